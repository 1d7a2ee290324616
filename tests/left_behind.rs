//! What stays: nothing after a command that ended, however it was ended; and of a link that was
//! made to stay, exactly what the ledger says and `undo` takes back.
//!
//! Each test runs in a world of its own (see `support/world.rs`) and counts network namespaces,
//! kept ones, interfaces, mounts, processes and temporary files before and after. Without the
//! rights to make one, it says so and passes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastbyte_host::{Proc, Stat};

use crate::support::world::{Findings, World, alone};
use crate::support::{
    self, Answer, Running, SOON, answer, holds_within, processes, processes_with_argument,
    signal_to, wait_for,
};

/// Programs of these tests sleep so long: nothing of it is waited for.
const LONG: &str = "86400";
const LAB: [&str; 7] = ["lab", "--rtt", "20ms", "--rate", "10mbit", "--seconds", "30"];
const SLEEP: [&str; 7] = ["link", "run", "--rtt", "20ms", "--", "sleep", LONG];
/// How long `undo --all` may have to be repeated after a kill: the carrier of a link whose
/// `link up` was killed goes on until it has entered itself into the ledger.
const ON_THEIR_WAY_UP: Duration = Duration::from_secs(3);

// --- ended by a signal --------------------------------------------------------------------------

#[test]
fn an_interrupted_lab_leaves_nothing() {
    alone(|world| {
        let lab = start(world, &LAB);
        wait_for_sender(&lab);
        lab.signal_group("INT");
        lab.answer_within(SOON).with_code(130);
        world.assert_nothing_left();
    });
}

#[test]
fn a_killed_lab_leaves_nothing() {
    alone(|world| {
        let mut lab = start(world, &LAB);
        wait_for_sender(&lab);
        lab.kill();
        lab.answer_within(SOON).with_code(137);
        world.assert_nothing_left();
    });
}

#[test]
fn an_interrupted_program_on_a_path_leaves_nothing() {
    alone(|world| {
        let running = start(world, &SLEEP);
        wait_for_sleepers(1);
        running.signal_group("INT");
        let told = running.answer_within(SOON).with_code(130);
        assert!(told.stderr.contains("link: up   0 packets"), "it went down in order: {told:#?}");
        world.assert_nothing_left();
    });
}

#[test]
fn a_path_ended_by_any_signal_leaves_nothing() {
    alone(|world| {
        for (signal, code) in [("KILL", 137), ("TERM", 143), ("HUP", 129)] {
            let running = start(world, &SLEEP);
            wait_for_sleepers(1);
            signal_to(signal, &running.pid().to_string());
            running.answer_within(SOON).with_code(code);
            world.assert_nothing_left();
        }
    });
}

#[test]
fn a_path_killed_with_programs_on_both_ends_leaves_nothing() {
    alone(|world| {
        if !has_python() {
            return;
        }
        let far = format!(
            "sleep {LONG} & exec python3 -c 'import socket, time\ns = socket.create_server((\"\", 7))\
             \ntime.sleep({LONG})'"
        );
        let near = format!("setsid sleep {LONG} & sleep {LONG}");
        let words = ["link", "run", "--rtt", "20ms", "--far", &far, "--", "sh", "-c", &near];
        let mut running = start(world, &words);
        wait_for_sleepers(3);
        running.kill();
        running.answer_within(SOON).with_code(137);
        world.assert_nothing_left();
    });
}

#[test]
fn a_path_killed_at_any_moment_leaves_nothing() {
    alone(|world| {
        let mut moments = Moments::new(Duration::from_millis(60));
        let program = format!("sleep {LONG} & sleep {LONG}");
        let far = program.as_str();
        let words = ["link", "run", "--rtt", "20ms", "--far", far, "--", "sh", "-c", &program];
        for _ in 0..20 {
            let mut running = start(world, &words);
            thread::sleep(moments.next());
            running.kill();
            running.answer_within(SOON).with_code(137);
            world.assert_nothing_left();
        }
    });
}

/// Its parent was killed before it could ask the kernel to be killed with it.
#[test]
fn a_program_whose_parent_has_ended_already_does_not_start() {
    let mut parent = Command::new("true");
    let ended = Running::start(&mut parent);
    let pid = ended.pid().to_string();
    ended.answer_within(SOON).with_code(0);
    let words = ["link-init", "--parent", &pid, "--", "echo", "started"];
    let told = answer(Command::new(support::LASTBYTE).args(words));
    assert!(told.code() != 0 && told.stdout.is_empty(), "{told:#?}");
}

/// Without root: a user namespace more, which has to vanish too.
#[test]
fn a_killed_path_of_nobody_leaves_nothing() {
    alone(|world| {
        // Where everybody may start it: the directory that it was built in may be closed to others.
        let binary = "/run/lastbyte";
        support::copy_program(binary.as_ref());
        let nobody = |words: &[&str]| {
            let mut command = Command::new(binary);
            command.args(words).current_dir("/").uid(65534).gid(65534);
            command
        };
        if answer(&mut nobody(&["link", "run", "-q", "--rtt", "1ms", "--", "true"])).code() == 2 {
            lastbyte_testing::not_tested!("users may not make namespaces here");
            return;
        }
        world.assert_nothing_left();
        let program = format!("setsid sleep {LONG} & sleep {LONG}");
        let words = ["link", "run", "--rtt", "20ms", "--far", &program, "--", "sh", "-c", &program];
        let mut moments = Moments::new(Duration::from_millis(60));
        for number in 0..10 {
            let mut running = Running::start(nobody(&words).stdin(Stdio::null()));
            if number == 0 {
                // The far program does not listen: the near one is started all the same, later.
                wait_for_sleepers(4);
            } else {
                thread::sleep(moments.next());
            }
            running.kill();
            running.answer_within(SOON).with_code(137);
            world.assert_nothing_left();
        }
    });
}

// --- links that stay ----------------------------------------------------------------------------

#[test]
fn a_link_stays_until_it_is_taken_down() {
    alone(|world| {
        let told = up(world, "wan").with_code(0);
        assert!(told.stdout.starts_with("link wan is up: RTT 2 ms\n"), "{told:#?}");
        let told = say(world, &["link", "list"]).with_code(0);
        assert!(told.stdout.contains("wan   carries RTT 2 ms"), "{told:#?}");
        let told = say(world, &["changes", "--json"]).with_code(0);
        let kinds: Vec<String> =
            told.json_lines().iter().map(|entry| entry["change"]["kind"].to_string()).collect();
        assert_eq!(kinds, ["\"process\"", "\"namespace\"", "\"namespace\""], "{told:#?}");
        // What counts what is left behind sees all of it.
        let (before, now) = (world.before(), Findings::now());
        assert_eq!(now.kept.len(), before.kept.len() + 2, "{now:#?}");
        assert_eq!(now.networks.len(), before.networks.len() + 2, "{now:#?}");
        assert_eq!(now.mounts.len(), before.mounts.len() + 2, "{now:#?}");
        assert_eq!(now.processes.len(), before.processes.len() + 1, "{now:#?}");
        assert_eq!(now.interfaces, before.interfaces, "its devices are in its own networks");
        assert!(!world.is_tidy());

        say(world, &["link", "down", "wan"]).with_code(0);
        world.assert_nothing_left();
        let told = say(world, &["link", "list"]).with_code(0);
        assert_eq!(told.stdout, "no link is up\n");
        say(world, &["link", "down", "wan"]).with_code(2);
        // The name is free again.
        up(world, "wan").with_code(0);
        say(world, &["undo", "--all"]).with_code(0);
        world.assert_nothing_left();
    });
}

#[test]
fn both_ends_of_a_link_that_stays_can_be_used() {
    alone(|world| {
        if !has_python() {
            return;
        }
        up(world, "wan").with_code(0);
        let far = "import socket\ns = socket.create_server(('', 7))\nc = s.accept()[0]\nn = 0\n\
                   while d := c.recv(65536): n += len(d)\nprint(n, c.getpeername()[0])";
        let mut far = world.lastbyte(&["link", "exec", "wan", "far", "--", "python3", "-c", far]);
        let far = Running::start(far.stdin(Stdio::null()));
        // The far program may not listen yet: then the connection is refused, and tried again.
        let near = "import socket, time\nfor _ in range(2000):\n try:\n  \
                    c = socket.create_connection(('far', 7)); break\n except ConnectionRefusedError:\n  \
                    time.sleep(0.01)\nc.sendall(b'x' * 1000000)\nprint(c.getsockname()[0])";
        let told = say(world, &["link", "exec", "wan", "near", "--", "python3", "-c", near]);
        assert_eq!(told.with_code(0).stdout, "198.18.0.1\n");
        assert_eq!(far.answer_within(SOON).with_code(0).stdout, "1000000 198.18.0.1\n");

        let told = say(world, &["link", "exec", "wan", "near", "--", "sh", "-c", "exit 7"]);
        told.with_code(7);
        // `ip netns` knows it by its name.
        let ip = ["netns", "exec", "lastbyte-wan-far", "cat", "/proc/net/dev"];
        let told = answer(Command::new("ip").args(ip)).with_code(0);
        assert!(told.stdout.contains("path0:"), "{told:#?}");
        say(world, &["link", "down", "wan"]).with_code(0);
        world.assert_nothing_left();
    });
}

/// `ip netns add` mounts the folder of names over itself, if nobody has before: a mount in it that was made
/// earlier would be hidden by that, and could not be taken away.
#[test]
fn a_link_stays_in_reach_where_ip_netns_names_others() {
    alone(|world| {
        let netns = |word: &str| answer(Command::new("ip").args(["netns", word, "of-others"]));
        up(world, "wan").with_code(0);
        netns("add").with_code(0);
        assert_works(world, "wan");
        // And where it was the first.
        up(world, "lan").with_code(0);
        for name in ["wan", "lan"] {
            assert_works(world, name);
            say(world, &["link", "down", name]).with_code(0);
        }
        netns("delete").with_code(0);
        // It leaves what it has mounted on the folder.
        answer(Command::new("umount").arg("/run/netns")).with_code(0);
        world.assert_nothing_left();
    });
}

#[test]
fn a_link_that_stays_can_be_made_different_and_tells_what_it_did() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let told = say(world, &["link", "set", "wan", "rtt", "80ms", "loss", "none"]).with_code(0);
        assert_eq!(told.stdout, "link wan is now: RTT 80 ms\n");
        // A packet there and one back.
        let begun = Instant::now();
        assert_works(world, "wan");
        assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
        say(world, &["link", "set", "wan", "--way", "down", "loss", "100%"]).with_code(0);
        let script = "timeout 0.3 bash -c 'echo > /dev/tcp/198.18.0.2/9'";
        let words = ["link", "exec", "wan", "near", "--", "bash", "-c", script];
        say(world, &words).with_code(124);
        let figures = &say(world, &["link", "stats", "wan", "--json"]).with_code(0).json_lines()[0];
        assert_eq!((&figures["link"], &figures["up"]["lost_packets"]), (&"wan".into(), &0.into()));
        assert_eq!(figures["up"]["packets"], figures["down"]["packets"], "a reset for each SYN");
        assert_eq!(figures["down"]["delivered_packets"], 1, "{figures:#}");

        let refused = |words: &[&str], said: &[&str]| {
            let told = say(world, &[&["link"], words].concat()).with_code(2);
            assert!(said.iter().all(|said| told.stderr.contains(said)), "{told:#?}");
        };
        refused(&["set", "wan", "los", "1%"], &["unknown field `los`"]);
        refused(&["set", "wan", "loss", "1%", "rate"], &["`rate` has no value"]);
        refused(&["set", "wan", "loss", "2"], &["loss = 2"]);
        refused(&["set", "wan", "queue", "1bdp"], &["without a rate"]);
        refused(&["set", "wan", "mtu", "1400"], &["MTU of 1500"]);
        refused(&["set", "wan", "colour", "none"], &["`colour`"]);
        refused(&["set", "wan", "--link", "lan", "loss", "1%"], &["no link lan", "wan"]);
        refused(&["exec", "wan", "middle", "--", "true"], &["no host middle", "near, far"]);
        let told = say(world, &["link", "down", "wan"]).with_code(0);
        assert_eq!(told.stdout, "link wan is gone\n");
        assert!(told.stderr.starts_with("wan: up   "), "{told:#?}");
        world.assert_nothing_left();
    });
}

#[test]
fn a_link_whose_device_was_taken_away_says_so() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let words = ["link", "exec", "wan", "near", "--", "ip", "link", "delete", "path0"];
        say(world, &words).with_code(0);
        wait_for("the failure to be told", SOON, || {
            let told = say(world, &["link", "stats", "wan"]).with_code(2);
            told.stderr.contains("it has failed: link path: carrying packets")
        });
        say(world, &["link", "set", "wan", "loss", "1%"]).with_code(2);
        let told = say(world, &["link", "down", "wan"]).with_code(0);
        assert!(told.stderr.contains("what it did is not known: it has failed"), "{told:#?}");
        world.assert_nothing_left();
    });
}

#[test]
fn a_network_of_many_hosts_stays_until_it_is_taken_down() {
    alone(|world| {
        let told = say(world, &["link", "up", "net", "dumbbell"]).with_code(0);
        assert!(told.stdout.contains("6 hosts, 5 links"), "{told:#?}");
        let hosts =
            say(world, &["link", "exec", "net", "middle", "--", "true"]).with_code(2).stderr;
        let hosts: Vec<&str> =
            hosts.split_once("there are ").unwrap().1.trim().split(", ").collect();
        assert_eq!(hosts.len(), 6, "{hosts:?}");
        // Each finds the last one by its name, and is refused there by its kernel.
        let last = hosts[5];
        for host in &hosts[..5] {
            let script = format!("echo > /dev/tcp/{last}/9");
            let words = ["link", "exec", "net", host, "--", "bash", "-c", &script];
            let told = say(world, &words).with_code(1);
            assert!(told.stderr.contains("refused"), "from {host} to {last}: {told:#?}");
        }
        let figures = say(world, &["link", "stats", "net", "--json"]).with_code(0).json_lines();
        assert_eq!(figures.len(), 5);
        let told = say(world, &["link", "set", "net", "loss", "1%"]).with_code(2);
        assert!(told.stderr.contains("which link?"), "{told:#?}");
        let link = figures[0]["link"].as_str().unwrap();
        say(world, &["link", "set", "net", "--link", link, "loss", "1%"]).with_code(0);
        say(world, &["link", "down", "net"]).with_code(0);
        world.assert_nothing_left();
    });
}

#[test]
fn a_program_on_a_link_that_stays_dies_with_its_command() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let words = ["link", "exec", "wan", "near", "--", "sh", "-c", "sleep 86400 & sleep 86400"];
        let mut killed = start(world, &words);
        wait_for_sleepers(2);
        killed.kill();
        killed.answer_within(SOON).with_code(137);
        wait_for("the programs' end", SOON, || processes_with_argument(LONG).is_empty());

        let interrupted = start(world, &words);
        wait_for_sleepers(2);
        interrupted.signal_group("INT");
        interrupted.answer_within(SOON).with_code(130);
        wait_for("the programs' end", SOON, || processes_with_argument(LONG).is_empty());

        assert_works(world, "wan");
        say(world, &["link", "down", "wan"]).with_code(0);
        world.assert_nothing_left();
    });
}

#[test]
fn a_link_taken_down_under_a_program_leaves_nothing_after_it() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let words = ["link", "exec", "wan", "near", "--", "sleep", LONG];
        let running = start(world, &words);
        wait_for_sleepers(1);
        say(world, &["link", "down", "wan"]).with_code(0);
        running.signal_group("INT");
        running.answer_within(SOON).with_code(130);
        world.assert_nothing_left();
    });
}

#[test]
fn a_second_link_of_the_same_name_is_refused_and_the_first_still_works() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let told = up(world, "wan").with_code(2);
        assert!(told.stderr.contains("there is a link wan already"), "{told:#?}");
        assert!(told.stderr.contains("lastbyte link down wan"), "{told:#?}");
        assert_works(world, "wan");
        say(world, &["undo", "--all"]).with_code(0);
        world.assert_nothing_left();
    });
}

#[test]
fn of_two_links_of_one_name_begun_together_one_works() {
    alone(|world| {
        for _ in 0..5 {
            let words = ["link", "up", "wan", "--rtt", "2ms"];
            let both = [start(world, &words), start(world, &words)];
            let told = both.map(|up| up.answer_within(SOON));
            let mut codes = [told[0].code(), told[1].code()];
            codes.sort_unstable();
            assert_eq!(codes, [0, 2], "{told:#?}");
            let refused = told.iter().find(|answer| answer.code() == 2).unwrap();
            assert!(refused.stderr.len() > "lastbyte: \n".len(), "{told:#?}");
            assert_works(world, "wan");
            say(world, &["undo", "--all"]).with_code(0);
            world.assert_nothing_left();
        }
    });
}

#[test]
fn a_link_of_another_ledger_is_left_alone() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let other = world.state().join("other");
        let mut up = world.lastbyte(&["link", "up", "wan", "--rtt", "2ms"]);
        let told = answer(up.env("LASTBYTE_STATE_DIR", &other)).with_code(2);
        assert!(told.stderr.contains("/run/netns/lastbyte-wan-near"), "{told:#?}");
        let mut changes = world.lastbyte(&["undo", "--all"]);
        answer(changes.env("LASTBYTE_STATE_DIR", &other)).with_code(0);
        assert_works(world, "wan");
        say(world, &["link", "down", "wan"]).with_code(0);
        world.assert_nothing_left();
    });
}

#[test]
fn a_file_of_somebody_else_in_the_place_of_a_namespace_is_left_alone() {
    alone(|world| {
        let file = "/run/netns/lastbyte-wan-far";
        fs::write(file, "mine").unwrap();
        let told = up(world, "wan").with_code(2);
        assert!(told.stderr.contains(file), "{told:#?}");
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
        fs::remove_file(file).unwrap();
        say(world, &["undo", "--all"]).with_code(0);
        world.assert_nothing_left();
    });
}

// --- killed links -------------------------------------------------------------------------------

#[test]
fn a_link_killed_on_its_way_up_is_undone() {
    alone(|world| {
        let mut moments = Moments::new(Duration::from_millis(60));
        for number in 0..20 {
            let name = format!("wan{number}");
            let mut up = start(world, &["link", "up", &name, "--rtt", "2ms"]);
            thread::sleep(moments.next());
            up.kill();
            let code = up.answer_within(SOON).code();
            assert!([0, 137].contains(&code), "it was too quick for us, or killed: {code}");
            let undone = holds_within(ON_THEIR_WAY_UP, || {
                say(world, &["undo", "--all"]).with_code(0);
                world.is_tidy()
            });
            assert!(undone, "{:#?}", Findings::now());
            let told = say(world, &["changes"]).with_code(0);
            assert_eq!(told.stdout, "lastbyte has left no change on this machine\n");
        }
    });
}

#[test]
fn a_link_whose_carrier_was_killed_says_so_and_can_be_taken_down() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let carrier = carrier();
        signal_to("KILL", &carrier.to_string());
        lastbyte_sys::process::reap_any().unwrap();
        wait_for("the carrier's end", SOON, || !processes().contains(&carrier));
        let told = say(world, &["link", "list"]).with_code(0);
        assert!(told.stdout.contains("wan   its carrier is dead"), "{told:#?}");
        up(world, "wan").with_code(2);
        let told = say(world, &["link", "down", "wan"]).with_code(0);
        assert_eq!(told.stdout, "link wan is gone\n");
        world.assert_nothing_left();
    });
}

#[test]
fn a_dead_carrier_that_nobody_collected_is_dead() {
    alone(|world| {
        up(world, "wan").with_code(0);
        let carrier = carrier();
        signal_to("KILL", &carrier.to_string());
        wait_for("the carrier's end", SOON, || Proc::default().stat(carrier).unwrap().has_ended());
        let told = say(world, &["link", "list"]).with_code(0);
        say(world, &["link", "down", "wan"]).with_code(0);
        world.assert_nothing_left();
        assert!(told.stdout.contains("wan   its carrier is dead"), "{told:#?}");
    });
}

/// The one process that carries a link here.
fn carrier() -> u32 {
    let carriers = processes_with_argument("link-carry");
    assert_eq!(carriers.len(), 1, "carriers in this world");
    carriers[0]
}

// --- the tools above ----------------------------------------------------------------------------

/// Starts the binary in a process group of its own, as a shell does.
fn start(world: &World, words: &[&str]) -> Running {
    Running::start(world.lastbyte(words).stdin(Stdio::null()).process_group(0))
}

#[track_caller]
fn say(world: &World, words: &[&str]) -> Answer {
    answer(&mut world.lastbyte(words))
}

#[track_caller]
fn up(world: &World, name: &str) -> Answer {
    say(world, &["link", "up", name, "--rtt", "2ms"])
}

/// A packet goes there and comes back: the far kernel refuses a connection to a closed port.
#[track_caller]
fn assert_works(world: &World, name: &str) {
    let script = "echo > /dev/tcp/198.18.0.2/9";
    let told = say(world, &["link", "exec", name, "near", "--", "bash", "-c", script]).with_code(1);
    assert!(told.stderr.contains("refused"), "link {name} does not carry: {told:#?}");
}

/// Waits until the lab has a sender: then the path is there, and the run is under way.
#[track_caller]
fn wait_for_sender(lab: &Running) {
    let (proc, pid) = (Proc::default(), lab.pid());
    let is_sender = |stat: Stat| stat.name == "sender";
    wait_for("a sender", SOON, || {
        proc.threads(pid).into_iter().any(|tid| proc.thread_stat(pid, tid).is_some_and(is_sender))
    });
}

/// Waits until so many programs sleep; the shell that starts them has no such argument.
#[track_caller]
fn wait_for_sleepers(count: usize) {
    let sleepers = || {
        let named = |pid: &u32| Proc::default().name(*pid) == "sleep";
        processes_with_argument(LONG).iter().filter(|pid| named(pid)).count()
    };
    wait_for(&format!("{count} sleepers"), SOON, || sleepers() == count);
}

fn has_python() -> bool {
    let has = Command::new("python3").arg("-V").output().is_ok();
    if !has {
        lastbyte_testing::not_tested!("there is no python3 to send and receive with");
    }
    has
}

/// Moments to strike at: random, from a seed that is printed and can be given again.
struct Moments {
    state: u64,
    limit: Duration,
}

impl Moments {
    fn new(limit: Duration) -> Self {
        let given = std::env::var("LASTBYTE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seed: u64 = given.unwrap_or(now);
        eprintln!("killed at moments from LASTBYTE_TEST_SEED={seed}");
        Self { state: seed, limit }
    }

    /// The next one, by the generator of Knuth's MMIX.
    fn next(&mut self) -> Duration {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005);
        self.state = self.state.wrapping_add(1_442_695_040_888_963_407);
        let share = (self.state >> 40) as f64 / f64::from(1_u32 << 24);
        self.limit.mul_f64(share)
    }
}
