//! Rules of class loss over what tier 3 tells of real connections: the bytes that a finding names are
//! those that the peer missed. Needs root, and says so where it is lacking.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lastbyte_doctor::finding::Evidence;
use lastbyte_doctor::{Class, Doctor, Event, Finding, Observer, Plan, Scope, Tier, Traced, Writer};

#[test]
fn unread_input_costs_what_was_not_sent() {
    let Some((findings, (written, read))) = watched("unread", |near, mut far| {
        far.write_all(b"12345").unwrap();
        let written = fill(&near);
        drop(near);
        (written, read_all(&mut far))
    }) else {
        return;
    };
    let finding = only(&findings, 101);
    assert!(written > read, "{written} {read}");
    assert_eq!((finding.class, finding.bytes), (Class::Loss, Some(written - read)), "{finding:#?}");
    assert_eq!(finding.evidence["exact"], Evidence::Word("yes".to_owned()));
    assert_eq!(finding.evidence["unread_bytes"], Evidence::Count(5));
}

#[test]
fn unread_input_is_harmless_where_all_had_arrived() {
    let Some((findings, ())) = watched("not-unread-acked", |mut near, mut far| {
        near.write_all(b"all of it").unwrap();
        far.read_exact(&mut [0; 9]).unwrap();
        far.write_all(b"12345").unwrap();
        // Longer than an ack is ever delayed.
        std::thread::sleep(Duration::from_millis(300));
        drop(near);
        read_all(&mut far);
    }) else {
        return;
    };
    let finding = only(&findings, 101);
    assert!(finding.harmless && finding.class == Class::Note, "{finding:#?}");
}

#[test]
fn a_linger_of_zero_costs_what_was_not_sent() {
    let Some((findings, (written, read))) = watched("linger", |near, mut far| {
        let written = fill(&near);
        lastbyte_sys::socket::set_linger(&near, Some(Duration::ZERO)).unwrap();
        drop(near);
        (written, read_all(&mut far))
    }) else {
        return;
    };
    let finding = only(&findings, 103);
    assert_eq!((finding.class, finding.bytes), (Class::Loss, Some(written - read)), "{finding:#?}");
}

#[test]
fn data_after_the_close_is_thrown_away() {
    let Some((findings, ())) = watched("after-close", |near, mut far| {
        drop(near);
        std::thread::sleep(Duration::from_millis(50));
        far.write_all(&[7; 10_000]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }) else {
        return;
    };
    let finding = only(&findings, 104);
    assert_eq!((finding.class, finding.bytes), (Class::Loss, Some(10_000)), "{finding:#?}");
    assert_eq!(finding.evidence["exact"], Evidence::Word("yes".to_owned()));
}

#[test]
fn data_that_meets_a_close_with_bytes_queued_costs_both() {
    let Some((findings, (written, read))) = watched("both-tails", |near, mut far| {
        let written = fill(&near);
        drop(near);
        std::thread::sleep(Duration::from_millis(50));
        far.write_all(&[7; 1_000]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        (written, read_all(&mut far))
    }) else {
        return;
    };
    let finding = only(&findings, 104);
    let bytes = Some(written - read + 1_000);
    assert_eq!((finding.class, finding.bytes), (Class::Loss, bytes), "{finding:#?}");
}

#[test]
fn orderly_ends_are_no_findings() {
    let Some((findings, ())) = watched("not-orderly", |mut near, mut far| {
        let reader = std::thread::spawn(move || {
            let read = read_all(&mut far);
            far.write_all(b"thanks").unwrap();
            read
        });
        near.write_all(&vec![7; 3_000_000]).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut near), 6);
        assert_eq!(reader.join().unwrap(), 3_000_000);
    }) else {
        return;
    };
    assert_eq!(findings, []);
}

/// What is found while two ends of a connection are played with. `None`, with the reason said aloud,
/// where tier 3 cannot be had.
fn watched<T>(
    name: &str,
    act: impl FnOnce(TcpStream, TcpStream) -> T,
) -> Option<(Vec<Finding>, T)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let plan = Plan {
        scope: Scope::Port(address.port()),
        tier: Some(Tier::Bpf),
        traced: Traced::Never,
        every: Duration::from_millis(100),
    };
    let mut observer = match Observer::start(&plan) {
        Ok((observer, _)) => observer,
        Err(why) => {
            lastbyte_testing::not_tested!("{why}");
            let is_expected =
                why.to_string().contains("too old") || lastbyte_sys::process::effective_user() != 0;
            assert!(is_expected, "root is refused: {why}");
            return None;
        }
    };
    let mut events = Vec::new();
    look(&mut observer, &mut events, Duration::from_millis(100));
    let (near, far) = pair(&listener, address);
    let result = act(near, far);
    look(&mut observer, &mut events, Duration::from_millis(600));
    keep(name, &events);
    let mut doctor = Doctor::new();
    for event in &events {
        doctor.take(event);
    }
    doctor.end();
    let losses = doctor.findings().into_iter().filter(|one| one.code.0 < 200).collect();
    Some((losses, result))
}

fn look(observer: &mut Observer, events: &mut Vec<Event>, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        observer.take(Duration::from_millis(20), &mut |event| events.push(event)).unwrap();
    }
}

/// Writes a recording, if a folder is named for that, to become one of the corpus.
fn keep(name: &str, events: &[Event]) {
    let Some(folder) = std::env::var_os("LASTBYTE_RECORDINGS") else { return };
    let file = File::create(PathBuf::from(folder).join(format!("loss-{name}.jsonl"))).unwrap();
    let mut writer = Writer::plain(file).unwrap();
    events.iter().for_each(|event| writer.add(event).unwrap());
    writer.finish().unwrap();
}

fn pair(listener: &TcpListener, address: SocketAddr) -> (TcpStream, TcpStream) {
    let far = TcpStream::connect(address).unwrap();
    let (near, _) = listener.accept().unwrap();
    (near, far)
}

/// Writes until nothing more is taken for a while.
fn fill(mut stream: &TcpStream) -> u64 {
    stream.set_nonblocking(true).unwrap();
    let (mut written, mut refused) = (0, 0);
    while refused < 5 {
        match stream.write(&[7; 65_536]) {
            Ok(bytes) => (written, refused) = (written + bytes as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    written
}

/// Reads to the end or a reset; says how many bytes.
fn read_all(stream: &mut TcpStream) -> u64 {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut buffer, mut read) = (vec![0; 65_536], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return read,
            Ok(bytes) => read += bytes as u64,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return read,
            Err(error) => panic!("{error}"),
        }
    }
}

fn only(findings: &[Finding], code: u16) -> &Finding {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code.0, code, "{findings:#?}");
    &findings[0]
}
