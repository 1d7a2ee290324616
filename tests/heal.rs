//! `lastbyte heal`: options of live connections of other programs, and their way back.
//!
//! The other program is this test: it has both ends of each connection open, and asks them afterwards
//! what they have. Without the right to be traced by a child of ours, a test says so and passes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use lastbyte_link::{Link, LinkError, Namespace, Scenario};
use lastbyte_sys::{process, socket, tcp};
use serde_json::{Value, json};

use crate::support::{
    self, Answer, LATER, Running, SOON, Scratch, answer, answer_within, copy_program,
};
use crate::support::{congestion_controls, signal_to};

/// As a program would fix it; the kernel doubles it.
const FIXED: i32 = 65_536;

// --- what is changed, and taken back ------------------------------------------------------------

#[test]
fn buffers_are_unlocked_and_fixed_again_as_they_were() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    socket::set_send_buffer(&near, FIXED).unwrap();
    let told = bench.heal(&for_end(&near, &["--unlock-buffers"])).with_code(0);
    let said = ["send buffer: 131,072 bytes, fixed by the program -> sized by the kernel"];
    assert!(said.iter().all(|said| told.stdout.contains(said)), "{told:#?}");
    assert!(!told.stdout.contains("receive buffer"), "it is not fixed: {told:#?}");
    assert!(told.stdout.contains("changed; `lastbyte undo 1` takes it back"), "{told:#?}");
    assert_eq!(socket::buffer_lock(&near).unwrap(), 0);

    let listed = bench.lastbyte(&["changes"]).with_code(0);
    let what = "send buffer of 131,072 bytes unlocked";
    assert!(listed.stdout.contains(what) && listed.stdout.contains("made"), "{listed:#?}");
    let again = bench.heal(&for_end(&near, &["--unlock-buffers"])).with_code(1);
    assert!(again.stdout.contains("nothing to unlock"), "{again:#?}");

    let undone = bench.lastbyte(&["undo", "1"]).with_code(0);
    assert!(
        undone.stdout.starts_with("undone: socket ") && undone.stderr.is_empty(),
        "{undone:#?}"
    );
    assert_eq!(socket::buffer_lock(&near).unwrap(), socket::SEND_BUFFER_LOCKED);
    assert_eq!(socket::send_buffer(&near).unwrap(), 2 * FIXED);
}

/// Beyond what a user may fix (`net.core.wmem_max`), and both at once.
#[test]
fn buffers_that_root_has_fixed_come_back_too() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    if socket::force_send_buffer(&near, 40 << 20).is_err() {
        lastbyte_testing::not_tested!("SO_SNDBUFFORCE needs CAP_NET_ADMIN");
        return;
    }
    socket::force_receive_buffer(&near, 35 << 20).unwrap();
    let told = bench.heal(&for_end(&near, &["--unlock-buffers"])).with_code(0);
    assert!(told.stdout.contains("the handshake bounds the window at"), "{told:#?}");
    assert_eq!(socket::buffer_lock(&near).unwrap(), 0);
    // The kernel makes something else of it.
    socket::set_send_buffer(&near, 5000).unwrap();
    socket::set_buffer_lock(&near, 0).unwrap();
    let undone = bench.lastbyte(&["undo", "--all"]).with_code(0);
    assert_eq!(undone.stderr, "", "{undone:#?}");
    assert_eq!(socket::buffer_lock(&near).unwrap(), 3);
    let sizes = (socket::send_buffer(&near).unwrap(), socket::receive_buffer(&near).unwrap());
    assert_eq!(sizes, (80 << 20, 70 << 20));
}

#[test]
fn each_option_is_changed_and_taken_back() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    let Some([first, second]) = two_congestion_controls() else { return };
    tcp::set_congestion(&near, &first).unwrap();
    let words = ["--congestion", &second, "--pacing", "80mbit", "--notsent-lowat", "128KiB"];
    let told = bench.heal(&for_end(&near, &[&words[..], &["--json"]].concat())).with_code(0);
    let line = &told.json_lines()[0];
    assert_eq!(line["outcome"], "changed", "{line}");
    assert_eq!(line["congestion"], json!({"before": first, "after": second}));
    assert_eq!(line["notsent_lowat_bytes"], json!({"before": 0, "after": 131_072}));
    assert_eq!(line["pacing_bytes_per_s"], json!({"before": u64::MAX, "after": 10_000_000}));
    assert_eq!(line["holders"][0]["pid"], std::process::id());
    let has = |congestion: &str, lowat: u32, pacing: u64| {
        assert_eq!(tcp::congestion(&near).unwrap(), congestion);
        assert_eq!(tcp::notsent_lowat(&near).unwrap(), lowat);
        assert_eq!(socket::max_pacing_rate(&near).unwrap(), pacing);
    };
    has(&second, 131_072, 10_000_000);

    // The same once more is nothing; something else comes on top, and goes first.
    bench.heal(&for_end(&near, &words)).with_code(1);
    bench.heal(&for_end(&near, &["--pacing", "none"])).with_code(0);
    has(&second, 131_072, u64::MAX);
    bench.lastbyte(&["undo", "--all"]).with_code(0);
    has(&first, 0, u64::MAX);
    assert_eq!(bench.open_changes(), [0; 0]);
}

#[test]
fn what_somebody_has_changed_since_is_left_alone() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    socket::set_send_buffer(&near, FIXED).unwrap();
    let words = ["--unlock-buffers", "--pacing", "80mbit", "--notsent-lowat", "128KiB"];
    bench.heal(&for_end(&near, &words)).with_code(0);
    socket::set_send_buffer(&near, 20_000).unwrap();
    socket::set_max_pacing_rate(&near, 5_000_000).unwrap();
    let undone = bench.lastbyte(&["undo", "1"]).with_code(0);
    for said in ["SO_MAX_PACING_RATE since: it is left alone", "fixed its buffers since"] {
        assert!(undone.stderr.contains(said), "{undone:#?}");
    }
    assert_eq!(socket::send_buffer(&near).unwrap(), 40_000);
    assert_eq!(socket::max_pacing_rate(&near).unwrap(), 5_000_000);
    assert_eq!(tcp::notsent_lowat(&near).unwrap(), 0, "that was ours still");
}

/// Its lines are spelled out here: later versions have to read them. A kill came before the change.
#[test]
fn a_planned_change_that_was_never_made_takes_nothing_back() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    socket::set_send_buffer(&near, FIXED).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = json!({
        "schema": 1, "id": 1, "event": "planned", "at_unix_s": 1, "boot_id": boot.trim(),
        "change": {
            "kind": "socket",
            "cookie": socket::cookie(&near).unwrap(),
            "local": near.local_addr().unwrap(),
            "peer": near.peer_addr().unwrap(),
            "network": fs::metadata("/proc/self/ns/net").unwrap().ino(),
            "pid": std::process::id(),
            "start_ticks": 1,
            "program": "other",
            "fd": 0,
            "buffers": {"send_bytes": 2 * FIXED, "receive_bytes": 5000},
            "congestion": {"before": tcp::congestion(&near).unwrap(), "after": "nosuch"},
            "notsent_lowat_bytes": {"before": 0, "after": 5000},
            "pacing_bytes_per_s": {"before": u64::MAX, "after": 10_000_000},
        }
    });
    bench.scratch.file("changes.jsonl", format!("{record}\n"));
    let listed = bench.lastbyte(&["changes"]).with_code(0);
    let said = "send buffer of 131,072 bytes and receive buffer of 5,000 bytes unlocked";
    assert!(listed.stdout.contains(said), "{listed:#?}");
    bench.lastbyte(&["undo", "1"]).with_code(0);
    let lock = socket::buffer_lock(&near).unwrap();
    assert_eq!((lock, socket::send_buffer(&near).unwrap()), (1, 2 * FIXED));
    assert_eq!(socket::max_pacing_rate(&near).unwrap(), u64::MAX);
    assert_eq!(bench.open_changes(), [0; 0]);
}

// --- which ones ---------------------------------------------------------------------------------

#[test]
fn a_connection_is_found_by_all_its_names() {
    let Some(bench) = Bench::new() else { return };
    for connection in [connection(), connection_v6()] {
        let (near, far) = connection;
        let cookie = socket::cookie(&near).unwrap();
        let far_cookie = socket::cookie(&far).unwrap();
        let (local, peer) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let found = |words: &[&str]| -> Vec<u64> {
            // No other test's connection has this, so that it is planned for each.
            let words = [words, &["--pacing", "77mbit", "--json"]].concat();
            let told = bench.would_heal(&words).with_code(2);
            let lines = told.json_lines();
            assert!(lines.iter().all(|line| line["outcome"] == "planned"), "{told:#?}");
            lines.iter().map(|line| line["cookie"].as_u64().unwrap()).collect()
        };
        let (pid, fd) = (std::process::id().to_string(), near.as_raw_fd().to_string());
        assert_eq!(found(&["--socket", &format!("{cookie:#x}")]), [cookie]);
        assert_eq!(found(&["--socket", &format!("socket {cookie}")]), [cookie]);
        assert_eq!(found(&["--socket", &format!("{local},{peer}")]), [cookie]);
        assert_eq!(found(&["--pid", &pid, "--fd", &fd]), [cookie]);
        let ends = [cookie, far_cookie];
        let both = |found: Vec<u64>| assert!(ends.iter().all(|end| found.contains(end)));
        both(found(&["--port", &local.port().to_string()]));
        both(found(&["--pid", &pid]));
        assert_eq!(socket::max_pacing_rate(&near).unwrap(), u64::MAX, "nothing was changed");
    }
    assert_eq!(bench.open_changes(), [0; 0]);
}

#[test]
fn what_is_no_connection_is_named() {
    let Some(bench) = Bench::new() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (unix, _other) = UnixStream::pair().unwrap();
    let unconnected = socket::open_tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    let pid = std::process::id().to_string();
    let refused = |fd: i32, said: &str| {
        let words = ["--pid", &pid, "--fd", &fd.to_string(), "--unlock-buffers"];
        let told = bench.heal(&words).with_code(2);
        assert!(told.stderr.contains(said) && told.stdout.is_empty(), "{said}: {told:#?}");
        assert!(told.stderr.contains(&format!("(process {pid})")), "{told:#?}");
    };
    refused(listener.as_raw_fd(), "is a listening socket");
    refused(datagrams.as_raw_fd(), "is not a TCP socket");
    refused(unix.as_raw_fd(), "is a Unix socket");
    refused(unconnected.as_raw_fd(), "is not connected");
    refused(file.as_raw_fd(), "is no socket: /dev/null");
    refused(i32::MAX, "has nothing open by the number 2147483647");
    if let Ok(Some(mptcp)) = socket::open_mptcp_nonblocking((Ipv4Addr::LOCALHOST, 0).into()) {
        refused(mptcp.as_raw_fd(), "Multipath TCP");
        // Its first path is in the kernel's list once it is connected.
        socket::begin_connect(&mptcp, listener.local_addr().unwrap()).unwrap();
        let _accepted = listener.accept().unwrap();
        refused(mptcp.as_raw_fd(), "Multipath TCP");
    }

    let gone = bench.heal(&["--pid", &i32::MAX.to_string(), "--unlock-buffers"]).with_code(2);
    assert!(gone.stderr.contains("there is no process 2147483647"), "{gone:#?}");
    let none = bench.heal(&["--socket", "0xffffffffffff", "--unlock-buffers"]).with_code(1);
    assert!(none.stdout.contains("socket 0xffffffffffff is no TCP connection"), "{none:#?}");
    // Nobody is given this one by chance.
    let none = bench.heal(&["--port", "1", "--unlock-buffers"]).with_code(1);
    assert!(none.stdout.contains("no program has a TCP connection with port"), "{none:#?}");
    let mut sleeper = Command::new("sleep").arg("86400").spawn().unwrap();
    let none = bench.heal(&["--pid", &sleeper.id().to_string(), "--unlock-buffers"]).with_code(1);
    assert!(none.stdout.contains("has no TCP connection"), "{none:#?}");
    end(&mut sleeper);
    assert_eq!(bench.open_changes(), [0; 0]);
}

/// A child has inherited it, as a server's workers do.
#[test]
fn a_shared_connection_is_changed_once_and_followed_to_whoever_has_it() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    socket::set_send_buffer(&near, FIXED).unwrap();
    let mut child = holding(&near);
    let words = for_end(&near, &["--unlock-buffers", "--json"]);
    let lines = bench.heal(&words).with_code(0).json_lines();
    let holders = lines[0]["holders"].as_array().unwrap();
    let pids: Vec<u64> = holders.iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert_eq!(lines.len(), 1);
    assert!(pids.contains(&std::process::id().into()) && pids.contains(&child.id().into()));

    // This process closes it, and has another connection by the same number.
    let recorded = bench.ledger_line()["change"]["fd"].as_i64().unwrap();
    let copy = socket::duplicate(near.as_raw_fd()).unwrap();
    let (number, cookie) = (near.as_raw_fd(), socket::cookie(&near).unwrap());
    drop(near);
    let (other, _peer) = connection();
    socket::set_send_buffer(&other, 2 * FIXED).unwrap();
    socket::set_buffer_lock(&other, 0).unwrap();
    eprintln!("recorded by {recorded}, was {number}, another is {} now", other.as_raw_fd());
    let undone = bench.lastbyte(&["undo", "1"]).with_code(0);
    assert_eq!(undone.stderr, "", "{undone:#?}");
    assert_eq!(socket::cookie(&copy).unwrap(), cookie);
    assert_eq!(socket::buffer_lock(&copy).unwrap(), socket::SEND_BUFFER_LOCKED);
    assert_eq!(socket::send_buffer(&copy).unwrap(), 2 * FIXED);
    assert_eq!(socket::buffer_lock(&other).unwrap(), 0, "it is another one");
    end(&mut child);
}

#[test]
fn a_connection_that_is_over_has_nothing_to_take_back() {
    let Some(bench) = Bench::new() else { return };
    let (near, far) = connection();
    let (other, other_far) = connection();
    let words = ["--pacing", "80mbit"];
    bench.heal(&for_end(&near, &words)).with_code(0);
    bench.heal(&for_end(&other, &words)).with_code(0);
    let cookie = format!("{:#x}", socket::cookie(&near).unwrap());
    drop((near, far));
    let undone = bench.lastbyte(&["undo", "1"]).with_code(0);
    assert!(undone.stderr.contains("there is nothing to take back"), "{undone:#?}");
    let none = bench.heal(&["--socket", &cookie, "--pacing", "80mbit"]).with_code(1);
    assert!(none.stdout.contains(&cookie), "{none:#?}");
    // Its program has it open still, and the connection is no more.
    socket::set_linger(&other_far, Some(std::time::Duration::ZERO)).unwrap();
    drop(other_far);
    assert!((&other).read(&mut [0]).is_err(), "it was reset");
    let undone = bench.lastbyte(&["undo", "--all"]).with_code(0);
    assert!(undone.stderr.contains("the connection is over"), "{undone:#?}");
    assert_eq!(bench.open_changes(), [0; 0]);
}

#[test]
fn a_program_that_died_has_nothing_to_take_back() {
    let Some(bench) = Bench::new() else { return };
    let (near, mut far) = connection();
    let mut child = holding(&near);
    drop(near);
    let pid = child.id().to_string();
    let told = bench.heal(&["--pid", &pid, "--fd", "0", "--pacing", "80mbit"]).with_code(0);
    assert!(told.stdout.contains(&format!("sleep (process {pid}, descriptor 0)")), "{told:#?}");
    end(&mut child);
    assert_eq!(far.read(&mut [0]).unwrap(), 0, "the kernel has ended it");
    drop(far);
    let undone = bench.lastbyte(&["undo", "1"]).with_code(0);
    assert!(undone.stderr.contains("there is nothing to take back"), "{undone:#?}");
}

#[test]
fn other_network_namespaces_are_looked_into() {
    let Some(bench) = Bench::new() else { return };
    let Some(space) = namespace() else { return };
    let (near, _far) = space.run(connection).unwrap();
    socket::set_send_buffer(&near, FIXED).unwrap();
    let port = near.local_addr().unwrap().port().to_string();
    let cookie = format!("{:#x}", socket::cookie(&near).unwrap());

    // A thread is in there: then all can be seen.
    let (leave, left) = mpsc::channel::<()>();
    let (enter, entered) = mpsc::channel();
    let stay = move || enter.send(()).map(|()| left.recv());
    let inside = space.spawn("inside", stay).unwrap();
    entered.recv_timeout(SOON).unwrap();
    for words in [["--port", &port], ["--socket", &cookie]] {
        let words = [&words[..], &["--unlock-buffers", "--json"]].concat();
        let told = bench.would_heal(&words).with_code(2);
        let lines = told.json_lines();
        assert!(lines.iter().any(|line| line["socket"] == cookie), "{told:#?}");
        assert!(told.stdout.contains("\"network\""), "{told:#?}");
    }
    drop(leave);
    let _ = inside.join();

    // Nobody is: the program's own sockets are asked themselves.
    let (pid, fd) = (std::process::id().to_string(), near.as_raw_fd().to_string());
    let words = ["--pid", &pid, "--fd", &fd, "--unlock-buffers"];
    bench.heal(&words).with_code(0);
    assert_eq!(socket::buffer_lock(&near).unwrap(), 0);
    let near = moved_to_another_number(near);
    let undone = bench.lastbyte(&["undo", "1"]).with_code(0);
    assert_eq!(undone.stderr, "", "{undone:#?}");
    assert_eq!(socket::buffer_lock(&near).unwrap(), socket::SEND_BUFFER_LOCKED);
}

// --- who, and whether ---------------------------------------------------------------------------

#[test]
fn another_users_connection_is_not_for_everybody() {
    if process::effective_user() != 0 {
        lastbyte_testing::not_tested!("only root can be another user for a moment");
        return;
    }
    let bench = Bench::new().unwrap();
    let (near, _far) = connection();
    let (pid, port) =
        (std::process::id().to_string(), near.local_addr().unwrap().port().to_string());
    let cookie = socket::cookie(&near).unwrap().to_string();
    for words in [["--pid", &pid], ["--port", &port], ["--socket", &cookie]] {
        let told = bench.nobody(&[&words[..], &["--pacing", "80mbit", "--yes"]].concat());
        let told = told.with_code(2);
        assert!(told.stderr.contains("CAP_SYS_PTRACE"), "{told:#?}");
    }
    let told = bench.nobody(&["--pid", &pid, "--pacing", "80mbit", "--yes"]).with_code(2);
    assert!(
        told.stderr.contains("is user 0's, and its sockets are not for user 65534"),
        "{told:#?}"
    );
    assert_eq!(socket::max_pacing_rate(&near).unwrap(), u64::MAX);
}

#[test]
fn without_a_terminal_it_says_what_it_would_do_and_refuses() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    let words = for_end(&near, &["--pacing", "80mbit"]);
    let told = bench.would_heal(&words).with_code(2);
    assert!(told.stdout.contains("pacing: unlimited -> at most 80 Mbit/s"), "{told:#?}");
    assert!(told.stderr.contains("--yes") && told.stderr.contains("nothing was changed"));
    assert_eq!(socket::max_pacing_rate(&near).unwrap(), u64::MAX);
    assert_eq!(bench.open_changes(), [0; 0]);
}

#[test]
fn on_a_terminal_it_asks() {
    let Some(bench) = Bench::new() else { return };
    if Command::new("script").arg("--version").output().is_err() {
        lastbyte_testing::not_tested!("`script` of util-linux makes the terminal");
        return;
    }
    let (near, _far) = connection();
    let [_, socket] = near_words(&near);
    for (typed, code, rate) in [("n\n", 2, u64::MAX), ("\n", 2, u64::MAX), ("y\n", 0, 10_000_000)] {
        let command =
            format!("{} heal --socket {socket} --pacing 80mbit --for 0s", support::LASTBYTE);
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        script.env("LASTBYTE_STATE_DIR", bench.scratch.path());
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Kept open: an end of the input would be one of the terminal's too.
        let mut input = script.stdin.take().unwrap();
        input.write_all(typed.as_bytes()).unwrap();
        let mut said = String::new();
        script.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(script.wait().unwrap().code(), Some(code), "{said}");
        assert!(said.contains("heal: change this connection? [y/N]"), "{said}");
        assert_eq!(socket::max_pacing_rate(&near).unwrap(), rate, "{said}");
    }
}

#[test]
fn hostile_names_command_nothing() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    let program = bench.scratch.path().join("a\u{1b}[2J\nb");
    copy_sleep(&program);
    let mut child = Command::new(&program);
    let mut child = child.arg("86400").stdin(Stdio::from(OwnedFd::from(near))).spawn().unwrap();
    let words = ["--pid", &child.id().to_string(), "--pacing", "80mbit"];
    let told = bench.heal(&words).with_code(0);
    assert!(told.stdout.contains("a\\u{1b}[2J\\nb (process "), "{told:#?}");
    let listed = bench.lastbyte(&["changes"]).with_code(0);
    assert!(listed.stdout.contains("a\\u{1b}[2J\\nb (process "), "{listed:#?}");
    end(&mut child);
}

// --- what came of it ----------------------------------------------------------------------------

#[test]
fn the_gain_is_measured_and_an_idle_connection_is_called_idle() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    let (busy, busy_far) = connection();
    let load = Load::between(&busy, busy_far);
    let words = |socket: &TcpStream| {
        let [option, socket] = near_words(socket);
        [option, socket, "--notsent-lowat".to_owned(), "128KiB".to_owned()]
    };
    let idle = bench.heal_for("500ms", &words(&near)).with_code(0);
    assert!(idle.stdout.contains("it was idle: nothing moved"), "{idle:#?}");
    let told = bench.heal_for("500ms", &words(&busy)).with_code(0);
    let said = ["changed; was ", " Mbit/s, is ", " Mbit/s after 0.5 s", "lastbyte undo 2"];
    assert!(said.iter().all(|said| told.stdout.contains(said)), "{told:#?}");
    load.end();
}

#[test]
fn ctrl_c_while_it_measures_leaves_the_change_and_says_so() {
    let Some(bench) = Bench::new() else { return };
    let (near, _far) = connection();
    let [option, socket] = near_words(&near);
    let words = ["heal", &option, &socket, "--pacing", "80mbit", "--yes", "--for", "1h"];
    let running = Running::start(&mut bench.command(&words));
    support::wait_for("the change", SOON, || socket::max_pacing_rate(&near).unwrap() == 10_000_000);
    signal_to("INT", &running.pid().to_string());
    let told = running.answer_within(SOON).with_code(130);
    assert!(told.stderr.contains("interrupted: what was changed stays"), "{told:#?}");
    assert!(told.stdout.contains("`lastbyte undo 1` takes it back"), "{told:#?}");
    assert_eq!(socket::max_pacing_rate(&near).unwrap(), 10_000_000);
    bench.lastbyte(&["undo", "1"]).with_code(0);
    assert_eq!(socket::max_pacing_rate(&near).unwrap(), u64::MAX);
}

/// The peer learns of a close at once: what measures does not keep the connection open.
#[test]
fn an_end_while_it_measures_is_no_later_for_that_and_is_told() {
    let Some(bench) = Bench::new() else { return };
    let (near, mut far) = connection();
    let [option, socket] = near_words(&near);
    let words = ["heal", &option, &socket, "--pacing", "80mbit", "--yes", "--for", "1h", "--json"];
    let running = Running::start(&mut bench.command(&words));
    support::wait_for("the change", SOON, || socket::max_pacing_rate(&near).unwrap() == 10_000_000);
    drop(near);
    far.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    let told = running.answer_within(SOON).with_code(0);
    assert_eq!(told.json_lines()[0]["measured"]["ended"], true, "{told:#?}");
}

/// A fixed buffer of 128 KiB is 131,072 bytes with their overhead in 50 ms.
#[test]
fn a_live_transfer_over_a_long_path_grows_its_buffer() {
    let Some(bench) = Bench::new() else { return };
    let spec = Scenario::parse("test", "rtt = '50ms'").unwrap().spec;
    let link = match Link::up(&spec, 1) {
        Ok(link) => link,
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let address = (lastbyte_link::Host::Far.address(), 0);
    let listener = link.far().run(|| TcpListener::bind(address)).unwrap().unwrap();
    let peer = listener.local_addr().unwrap();
    let near = link.near().run(|| {
        let fd = socket::open_tcp(peer).unwrap();
        socket::set_send_buffer(&fd, FIXED).unwrap();
        let _ = tcp::set_congestion(&fd, "cubic");
        socket::connect(&fd, peer, SOON).unwrap();
        TcpStream::from(fd)
    });
    let near = near.unwrap();
    let (far, _) = listener.accept().unwrap();
    let load = Load::between(&near, far);
    let fd = near.as_raw_fd().to_string();
    let pid = std::process::id().to_string();
    let words = ["--pid", &pid, "--fd", &fd, "--unlock-buffers"];
    let told = bench.heal_for("5s", &words).with_code(0);
    eprintln!("{}", told.stdout.trim());
    assert_eq!(socket::buffer_lock(&near).unwrap(), 0);
    assert!(socket::send_buffer(&near).unwrap() > 2 * FIXED, "{told:#?}");
    load.end();
}

// --- the bench ----------------------------------------------------------------------------------

/// Where a test works: a ledger of its own.
struct Bench {
    scratch: Scratch,
}

impl Bench {
    /// `None` where a program that we start may not have our sockets.
    fn new() -> Option<Self> {
        let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        if process::effective_user() != 0 && !matches!(yama.trim(), "" | "0") {
            lastbyte_testing::not_tested!(
                "kernel.yama.ptrace_scope does not let a child have our sockets"
            );
            return None;
        }
        Some(Self { scratch: Scratch::new() })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = support::lastbyte(words);
        command.env("LASTBYTE_STATE_DIR", self.scratch.path());
        command
    }

    #[track_caller]
    fn lastbyte(&self, words: &[&str]) -> Answer {
        answer(&mut self.command(words))
    }

    /// Changes without asking, and without measuring.
    #[track_caller]
    fn heal<S: AsRef<str>>(&self, words: &[S]) -> Answer {
        self.heal_for("0s", words)
    }

    #[track_caller]
    fn heal_for<S: AsRef<str>>(&self, time: &str, words: &[S]) -> Answer {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let words = [&["heal", "--yes", "--for", time], &words[..]].concat();
        answer_within(&mut self.command(&words), LATER)
    }

    /// Says what it would change, as nobody can be asked.
    #[track_caller]
    fn would_heal<S: AsRef<str>>(&self, words: &[S]) -> Answer {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        self.lastbyte(&[&["heal", "--for", "0s"], &words[..]].concat())
    }

    /// The same as somebody without rights.
    fn nobody(&self, words: &[&str]) -> Answer {
        const NOBODY: u32 = 65534;
        let program = self.scratch.path().join("lastbyte");
        if !program.exists() {
            copy_program(&program);
        }
        let mut command = Command::new(program);
        command.arg("heal").args(words).current_dir("/").uid(NOBODY).gid(NOBODY);
        answer(command.env("LASTBYTE_STATE_DIR", "/dev/null/none"))
    }

    /// The numbers of the changes that the ledger has open.
    fn open_changes(&self) -> Vec<u64> {
        let lines = self.lastbyte(&["changes", "--json"]).with_code(0).json_lines();
        lines.iter().map(|line| line["id"].as_u64().unwrap()).collect()
    }

    fn ledger_line(&self) -> Value {
        self.lastbyte(&["changes", "--json"]).with_code(0).json_lines().remove(0)
    }
}

/// Both ends of a connection over loopback.
fn connection() -> (TcpStream, TcpStream) {
    ends(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
}

/// The same over IPv6, or over IPv4 where there is no other.
fn connection_v6() -> (TcpStream, TcpStream) {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).map_or_else(|_| connection(), ends)
}

fn ends(listener: TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// The words that name this end alone.
fn near_words(near: &TcpStream) -> [String; 2] {
    ["--socket".to_owned(), format!("{:#x}", socket::cookie(near).unwrap())]
}

/// Words for this end alone.
fn for_end(near: &TcpStream, words: &[&str]) -> Vec<String> {
    near_words(near).into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
}

/// A program that has a socket open, as its input, and does nothing.
fn holding(socket: &TcpStream) -> Child {
    let copy = socket::duplicate(socket.as_raw_fd()).unwrap();
    Command::new("sleep").arg("86400").stdin(Stdio::from(copy)).spawn().unwrap()
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Copies `sleep` by a process of its own (see [`copy_program`]).
fn copy_sleep(to: &std::path::Path) {
    let copy = ["-c", "cp \"$(command -v sleep)\" \"$0\""];
    assert!(Command::new("sh").args(copy).arg(to).status().unwrap().success());
}

/// The same socket, no longer by the number that it had.
fn moved_to_another_number(socket: TcpStream) -> TcpStream {
    let copy = socket::duplicate(socket.as_raw_fd()).unwrap();
    drop(socket);
    TcpStream::from(copy)
}

/// Two congestion controls that anybody may choose.
fn two_congestion_controls() -> Option<[String; 2]> {
    let names = congestion_controls("allowed");
    match names.as_slice() {
        [one, two, ..] => Some([one.clone(), two.clone()]),
        _ => {
            lastbyte_testing::not_tested!(
                "this kernel lets one congestion control be chosen: {names:?}"
            );
            None
        }
    }
}

/// A network namespace with loopback; says so if this machine does not let us make one.
fn namespace() -> Option<Namespace> {
    match Namespace::create() {
        Ok(space) => Some(space),
        Err(error) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
    }
}

/// A transfer that goes on.
struct Load {
    stop: Arc<AtomicBool>,
    near: TcpStream,
    threads: [thread::JoinHandle<()>; 2],
}

impl Load {
    fn between(near: &TcpStream, mut far: TcpStream) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, mut writer) = (Arc::clone(&stop), near.try_clone().unwrap());
        let write = thread::spawn(move || {
            let bytes = vec![7; 1 << 16];
            while !told.load(Ordering::Relaxed) && writer.write_all(&bytes).is_ok() {}
        });
        let read = thread::spawn(move || {
            let mut room = vec![0; 1 << 18];
            while far.read(&mut room).is_ok_and(|count| count > 0) {}
        });
        Self { stop, near: near.try_clone().unwrap(), threads: [write, read] }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.near.shutdown(Shutdown::Both);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}
