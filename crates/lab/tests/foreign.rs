//! Programs that know nothing of being measured: what the kernels say of them is what they did.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lastbyte_core::sample::State;
use lastbyte_lab::foreign::{
    Ending, Foreign, ForeignCommand, ForeignError, InNamespace, Pair, Watch, run,
};
use lastbyte_link::{FAR, FAR_V6, Host, Link, LinkError, Scenario};

const SECOND: Duration = Duration::from_secs(1);
const PATH: &str = "rtt = '20ms'\nrate = '80mbit'\nqueue = '1MB'";
/// Of a far host's own: nobody else is there.
const PORT: u16 = 5201;

/// A link, or the reason aloud why this machine cannot make one.
fn link(toml: &str) -> Option<Link> {
    match Link::up(&Scenario::parse("test", toml).unwrap().spec, 1) {
        Ok(link) => Some(link),
        Err(error @ LinkError::Rights { .. }) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A server on the far host that takes one connection.
fn serve<T: Send + 'static>(
    link: &Link,
    work: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (u16, JoinHandle<T>) {
    let listener = link.far().run(|| TcpListener::bind((FAR, 0)).unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, thread::spawn(move || work(listener.accept().unwrap().0)))
}

fn bash(script: &str) -> ForeignCommand {
    ForeignCommand { near: ["bash", "-c", script].map(str::to_owned).to_vec(), far: None }
}

fn measure(link: &Link, command: &ForeignCommand) -> Foreign {
    run(link, &InNamespace, command, 60 * SECOND).unwrap()
}

fn only(foreign: &Foreign) -> &Pair {
    assert_eq!(foreign.connections.len(), 1, "{foreign:?}");
    &foreign.connections[0]
}

#[test]
fn what_a_program_sends_is_counted_to_the_byte() {
    let Some(link) = link(PATH) else { return };
    let (port, server) =
        serve(&link, |mut stream| std::io::copy(&mut stream, &mut std::io::sink()).unwrap());
    let script =
        format!("exec head -c 3000000 /dev/zero > /dev/tcp/$LASTBYTE_FAR/{port}; echo not here");
    let foreign = measure(&link, &bash(&script));
    assert_eq!(server.join().unwrap(), 3_000_000);
    assert_eq!((foreign.near.code, foreign.timed_out), (0, false));
    assert_eq!((foreign.up.received, foreign.up.exact, foreign.up.unread), (3_000_000, true, 0));
    assert_eq!((foreign.down.received, foreign.down.exact), (0, true));
    assert_eq!(foreign.up.tenths.iter().sum::<u64>(), 3_000_000);
    // 24 Mbit and 3.4 % of headers at 80 Mbit/s, after slow start.
    let time = foreign.up.bulk_time;
    assert!(time >= Duration::from_millis(300) && time < 2 * SECOND, "{time:?}");
    let pair = only(&foreign);
    assert_eq!((pair.ending, pair.dialled_by), (Ending::Orderly, Some(Host::Near)));
    assert_eq!((pair.up.sent, pair.up.acked), (Some(3_000_000), Some(3_000_000)));
    assert_eq!((pair.up.fin, pair.down.fin), (Some(true), Some(true)));
    let near = pair.near.as_ref().unwrap();
    assert!(near.samples.len() >= 3 && near.congestion.is_some() && near.ended.is_some());
    assert!(near.info.unwrap().min_rtt_us.unwrap() >= 20_000);
    assert!((near.limits().shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(near.samples.iter().any(|sample| sample.info.state == State::Established));
    link.down().unwrap();
}

#[test]
fn what_a_program_receives_is_counted_to_the_byte() {
    let Some(link) = link(PATH) else { return };
    let (port, server) = serve(&link, |mut stream| {
        stream.read_exact(&mut [0; 9]).unwrap();
        stream.write_all(&vec![7; 2_000_000]).unwrap();
    });
    let script = format!(
        "exec 3<>/dev/tcp/$LASTBYTE_FAR/{port}; echo question >&3; wc -c <&3; echo oops >&2; exit 3"
    );
    let foreign = measure(&link, &bash(&script));
    server.join().unwrap();
    assert_eq!((foreign.near.code, foreign.near.stdout.text.trim()), (3, "2000000"));
    assert_eq!(foreign.near.stderr.text, "oops\n");
    assert_eq!((foreign.up.received, foreign.down.received), (9, 2_000_000));
    assert!(foreign.up.exact && foreign.down.exact);
    assert_eq!(only(&foreign).ending, Ending::Orderly);
}

#[test]
fn repeated_bytes_are_counted_once_and_told_of() {
    let Some(link) = link("rtt = '10ms'\nrate = '80mbit'\nloss = '1%'") else { return };
    let listener = link.far().run(|| TcpListener::bind((FAR_V6, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap();
    });
    let script = format!("exec head -c 1000000 /dev/zero > /dev/tcp/{FAR_V6}/{}", address.port());
    let foreign = measure(&link, &bash(&script));
    server.join().unwrap();
    let pair = only(&foreign);
    assert_eq!((pair.up.received, pair.up.sent, pair.up.exact), (1_000_000, Some(1_000_000), true));
    assert!(
        pair.up.retransmitted.unwrap() > 0,
        "1 % of 700 segments is none by 1 in 1,000: {pair:?}"
    );
    assert_eq!(pair.near.as_ref().unwrap().peer, address);
}

#[test]
fn a_far_program_is_waited_for_and_ended() {
    let Some(link) = link(PATH) else { return };
    let server = format!(
        "import socket\ns = socket.create_server(('', {PORT}))\nprint('up', flush=True)\nwhile 1:\n  \
         c = s.accept()[0]\n  while c.recv(65536): pass\n  c.sendall(b'x' * 1000)\n  c.close()\n"
    );
    let command = ForeignCommand {
        far: Some(["python3", "-c", &server].map(str::to_owned).to_vec()),
        ..bash(&format!(
            "for i in 1 2 3; do exec 3<>/dev/tcp/$LASTBYTE_FAR/{PORT}; echo $i >&3; exec 3>&-; done"
        ))
    };
    let foreign = match run(&link, &InNamespace, &command, 60 * SECOND) {
        Err(error @ ForeignError::Launch(_)) => return lastbyte_testing::not_tested!("{error}"),
        result => result.unwrap(),
    };
    let far = foreign.far.as_ref().unwrap();
    assert_eq!((far.code, foreign.far_ended, far.stdout.text.as_str()), (137, false, "up\n"));
    assert_eq!((foreign.up.received, foreign.up.exact), (6, true), "{foreign:?}");
    assert_eq!(foreign.connections.len(), 3);

    // It has to stay, and to listen, and not to be missing.
    let with = |far: &[&str]| {
        let far = far.iter().map(|word| (*word).to_owned()).collect();
        let command = ForeignCommand { far: Some(far), ..bash("true") };
        run(&link, &InNamespace, &command, SECOND / 4).unwrap_err()
    };
    let error = with(&["bash", "-c", "echo too soon; exit 4"]);
    assert!(matches!(error, ForeignError::EndedEarly { code: 4, .. }), "{error}");
    assert!(error.to_string().ends_with("\n  too soon"), "{error}");
    let error = with(&["bash", "-c", "exec sleep 100"]);
    assert!(matches!(error, ForeignError::NothingListens { .. }), "{error}");
    let error = with(&["/nowhere/to/be/found"]);
    assert!(error.to_string().starts_with("cannot run /nowhere/to/be/found: "), "{error}");
}

#[test]
fn no_bytes_are_an_error_that_says_what_the_program_said() {
    let Some(link) = link(PATH) else { return };
    let script = "echo hello; exec 3<>/dev/tcp/$LASTBYTE_FAR/9";
    let error = run(&link, &InNamespace, &bash(script), 10 * SECOND).unwrap_err();
    assert!(matches!(error, ForeignError::NoBytes { code: 1, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("\n  hello\n") && text.contains("refused"), "{text}");
}

#[test]
fn a_program_that_goes_on_is_ended_and_what_it_sent_is_counted() {
    let Some(link) = link(PATH) else { return };
    let (port, server) =
        serve(&link, |mut stream| std::io::copy(&mut stream, &mut std::io::sink()).unwrap());
    let script = format!("exec cat /dev/zero > /dev/tcp/$LASTBYTE_FAR/{port}");
    let foreign = run(&link, &InNamespace, &bash(&script), SECOND).unwrap();
    assert_eq!((foreign.near.code, foreign.timed_out), (137, true));
    // What lay in its socket went on after it.
    assert_eq!(foreign.up.received, server.join().unwrap());
    assert!(foreign.up.exact && foreign.up.received > 5_000_000, "{:?}", foreign.up);
    let tenths = &foreign.up.tenths;
    // 966 KB in each, but for what waits behind a loss, or the moment between two looks.
    let steady = &tenths[3..9];
    let all: u64 = steady.iter().sum();
    assert!(
        steady.iter().all(|bytes| *bytes > 0) && (4_500_000..7_500_000).contains(&all),
        "{tenths:?}"
    );
}

#[test]
fn a_receiver_that_resets_is_told_from_one_that_ends() {
    let Some(link) = link(PATH) else { return };
    let (port, server) = serve(&link, |mut stream| {
        stream.read_exact(&mut vec![0; 100_000]).unwrap();
        // Closed with data unread: a reset.
        drop(stream);
    });
    let script = format!("exec head -c 3000000 /dev/zero > /dev/tcp/$LASTBYTE_FAR/{port}");
    let foreign = measure(&link, &bash(&script));
    server.join().unwrap();
    let pair = only(&foreign);
    assert_eq!((pair.ending, pair.up.fin), (Ending::Reset, Some(false)), "{foreign:?}");
    assert!(foreign.up.exact && foreign.up.received >= 100_000, "{:?}", foreign.up);
    assert!(pair.up.sent.unwrap() >= pair.up.received, "{pair:?}");
    assert_eq!(foreign.up.received - foreign.up.unread, 100_000);
    assert_eq!(foreign.far_counters.abort_on_close, 1);
    assert_eq!(foreign.near_counters.estab_resets, 1);
}

#[test]
fn a_sender_that_aborts_takes_its_counts_with_it() {
    let Some(link) = link(PATH) else { return };
    let (port, server) = serve(&link, |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        bytes.len() as u64
    });
    let watches = [Watch::start(link.near()).unwrap(), Watch::start(link.far()).unwrap()];
    let near = link.near().run(|| {
        let mut stream = TcpStream::connect((FAR, port)).unwrap();
        stream.write_all(&[1; 5000]).unwrap();
        // The other side has it all, and both were looked at many times since.
        thread::sleep(SECOND / 2);
        lastbyte_sys::socket::set_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    near.unwrap();
    let received = server.join().unwrap();
    let [near, far] = watches.map(|watch| watch.stop().unwrap());
    assert!(near.connections[0].aborted && !far.connections[0].aborted);
    assert_eq!(near.connections[0].sent(), Some(5000), "by the last look");
    assert_eq!((far.connections[0].received, received), (5000, 5000));
    // It was looked at when it had all.
    assert_eq!(far.connections[0].fin_received, Some(false));
    assert_eq!((near.counters.out_rsts, far.counters.estab_resets), (1, 1));
}

#[test]
fn a_receiver_that_is_killed_has_what_its_kernel_had() {
    let Some(link) = link(PATH) else { return };
    let far = format!(
        "import os, signal, socket\nc = socket.create_server(('', {PORT})).accept()[0]\nn = 0\nwhile \
         n < 500000: n += len(c.recv(1000))\nos.kill(os.getpid(), signal.SIGKILL)\n"
    );
    let script = format!("exec head -c 3000000 /dev/zero > /dev/tcp/$LASTBYTE_FAR/{PORT}");
    let command = ForeignCommand {
        far: Some(["python3", "-c", &far].map(str::to_owned).to_vec()),
        ..bash(&script)
    };
    let foreign = match run(&link, &InNamespace, &command, 60 * SECOND) {
        Err(error @ ForeignError::Launch(_)) => return lastbyte_testing::not_tested!("{error}"),
        result => result.unwrap(),
    };
    assert_eq!((foreign.far_ended, foreign.far.as_ref().unwrap().code), (true, 137));
    let up = &foreign.up;
    assert!(up.exact && up.received >= 500_000 && up.received < 3_000_000, "{up:?}");
    assert!((500_000..501_000).contains(&(up.received - up.unread)), "{up:?}");
    assert_eq!(only(&foreign).ending, Ending::Reset);
}

/// A watch that looks so rarely that only the last words count.
#[test]
fn connections_between_two_looks_are_all_counted() {
    const CONNECTIONS: u64 = 500;
    let Some(link) = link("rtt = '1ms'") else { return };
    let began = Instant::now();
    let watch = |host| Watch::start_from(host, began, 1000 * SECOND).unwrap();
    let watches = [watch(link.near()), watch(link.far())];
    let listener = link.far().run(|| TcpListener::bind((FAR, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for _ in 0..CONNECTIONS {
            let mut stream = listener.accept().unwrap().0;
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        }
    });
    let client = move || {
        for bytes in 1..=CONNECTIONS {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&vec![1; usize::try_from(bytes).unwrap()]).unwrap();
        }
    };
    link.near().run(client).unwrap();
    server.join().unwrap();
    let [near, far] = watches.map(|watch| watch.stop().unwrap());
    assert_eq!((near.overflows, far.overflows), (0, 0));
    let sent: u64 = near.connections.iter().map(|each| each.sent().unwrap()).sum();
    assert_eq!(sent, CONNECTIONS * (CONNECTIONS + 1) / 2);
    // Each with its FIN, which this host alone does not know, but of the last one or two.
    let taken_off = far.connections.iter().filter(|each| each.fin_received == Some(true)).count();
    assert!(taken_off < 10 && far.connections.iter().all(|each| each.fin_received != Some(false)));
    let received: u64 = far.connections.iter().map(|each| each.received).sum();
    assert_eq!(received + taken_off as u64, sent + CONNECTIONS);
    assert_eq!((near.connections.len() as u64, far.connections.len() as u64), (500, 500));
}

#[test]
fn short_connections_are_counted_to_the_byte() {
    let Some(link) = link("rtt = '2ms'") else { return };
    let server = format!(
        "import socket\ns = socket.create_server(('', {PORT}))\nfor i in range(200):\n  c = s.accept()[0]\n  \
         while c.recv(65536): pass\n  c.sendall(b'thanks')\n  c.close()\n"
    );
    let command = ForeignCommand {
        far: Some(["python3", "-c", &server].map(str::to_owned).to_vec()),
        ..bash(&format!(
            "for i in {{1..200}}; do exec 3<>/dev/tcp/$LASTBYTE_FAR/{PORT}; echo -n $i >&3; exec 3>&-; done"
        ))
    };
    let foreign = match run(&link, &InNamespace, &command, 60 * SECOND) {
        Err(error @ ForeignError::Launch(_)) => return lastbyte_testing::not_tested!("{error}"),
        result => result.unwrap(),
    };
    let inexact: Vec<_> = foreign.connections.iter().filter(|pair| !pair.up.exact).collect();
    assert!(inexact.is_empty(), "{inexact:?}");
    assert_eq!((foreign.up.received, foreign.up.exact), (9 + 90 * 2 + 101 * 3, true));
    assert_eq!(foreign.connections.len(), 200);
    // The client had closed: what came back was answered by a reset.
    assert_eq!(foreign.down.received, 0);
    assert!(foreign.near_counters.out_rsts >= 200, "{:?}", foreign.near_counters);
    assert!(foreign.connections.iter().all(|pair| pair.ending == Ending::Reset));
}

#[test]
fn what_stays_on_a_host_is_not_counted() {
    let Some(link) = link("rtt = '1ms'") else { return };
    let watch = Watch::start(link.far()).unwrap();
    let talk = || {
        for own in [SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from((FAR, 0))] {
            let listener = TcpListener::bind(own).unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            near.write_all(b"to myself").unwrap();
            drop(near);
            let mut text = String::new();
            listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
            assert_eq!(text, "to myself");
        }
    };
    link.far().run(talk).unwrap();
    let seen = watch.stop().unwrap();
    assert_eq!((seen.connections.len(), seen.overflows), (0, 0), "{seen:?}");
}

#[test]
fn nothing_is_left_open() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let Some(link) = link("rtt = '1ms'") else { return };
    let before = open();
    for _ in 0..3 {
        let (port, server) = serve(&link, |mut stream| {
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
        });
        measure(&link, &bash(&format!("exec echo hi > /dev/tcp/$LASTBYTE_FAR/{port}")));
        server.join().unwrap();
    }
    let began = Instant::now();
    while open() > before {
        assert!(began.elapsed() < 5 * SECOND, "{} of {before}", open());
        thread::sleep(Duration::from_millis(10));
    }
}

/// iperf3 as it is installed, `-1`: its server ends with the first test.
fn iperf3(arguments: &str, toml: &str) -> Option<(Foreign, serde_json::Value)> {
    let link = link(toml)?;
    let near = format!("iperf3 -J -c {FAR} -p {PORT} {arguments}");
    let far = format!("iperf3 -s -1 -p {PORT}");
    let command = ForeignCommand::parse(&near, Some(&far)).unwrap();
    let foreign = match run(&link, &InNamespace, &command, 60 * SECOND) {
        Err(error @ ForeignError::Launch(_)) => {
            lastbyte_testing::not_tested!("{error}");
            return None;
        }
        result => result.unwrap(),
    };
    let report = serde_json::from_str(&foreign.near.stdout.text).unwrap();
    Some((foreign, report))
}

#[test]
#[ignore = "needs iperf3 and ten seconds: make test-real"]
fn iperf3_agrees_about_what_was_received() {
    for (arguments, way) in
        [("-n 4M", "up"), ("-t 3", "up"), ("-t 3 -R", "down"), ("-t 4 -P 4", "up")]
    {
        let Some((foreign, report)) = iperf3(arguments, PATH) else { return };
        let received = &report["end"]["sum_received"];
        let (bytes, seconds) = (received["bytes"].as_f64(), received["seconds"].as_f64());
        let (bytes, seconds) = (bytes.unwrap(), seconds.unwrap());
        let ours = if way == "up" { &foreign.up } else { &foreign.down };
        let rate = ours.bits_per_s().unwrap() / 1e6;
        eprintln!(
            "iperf3 {arguments}: {bytes} bytes in {seconds} s, {:.2} Mbit/s; seen {} bytes in {:?}, {rate:.2} \
             Mbit/s; retransmitted {:?}",
            bytes * 8e-6 / seconds,
            ours.received,
            ours.bulk_time,
            foreign.connections.iter().map(|pair| pair.up.retransmitted).collect::<Vec<_>>(),
        );
        // A client that receives stops counting when its time is up, and its kernel does not.
        let room = if way == "up" { 0.01 } else { 0.03 };
        assert!((ours.received as f64 / bytes - 1.0).abs() < room, "{arguments}");
        // The first bytes of a connection are its cookie, and wait for the others to be made.
        let timed = arguments.starts_with("-t");
        let off = (rate / (bytes * 8e-6 / seconds) - 1.0).abs();
        assert!(!timed || off < 0.03, "{arguments}: {off}");
        assert!(foreign.up.exact && foreign.down.exact, "{arguments}");
        assert!(foreign.far_ended && foreign.near.code == 0, "{arguments}");
    }
}
