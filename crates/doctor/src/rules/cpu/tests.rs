//! Loops: well ones first, then sick ones.

use proptest::prelude::*;

use super::*;
use crate::event::Scope;
use crate::finding::Finding;
use crate::story::Story;

const SECOND: u64 = 1_000_000_000;

fn story() -> Story {
    Story::new(Scope::Machine).process(7, "server").process(8, "other").socket(
        1,
        ("10.0.0.1:80", "10.0.0.2:50000"),
        7,
    )
}

/// So often each 100 ms, for so many of them.
fn each(times: u64, what: &What) -> Story {
    (0..times).fold(story(), |story, _| story.after(100).with(what.clone()))
}

fn ready(count: u64, idle: u64, ready: u32) -> What {
    let (fd, socket) = (Some(5), Some(SocketId(1)));
    let call = "epoll_wait".to_owned();
    let over_ns = SECOND / 10;
    What::Ready(Ready { pid: 7, tid: 9, call, over_ns, count, idle, fd, socket, ready })
}

fn calls(call: &str, count: u64) -> Calls {
    let call = call.to_owned();
    let (fd, over_ns) = (Some(5), SECOND / 10);
    Calls { pid: 7, tid: 9, call, fd, over_ns, count, ..Calls::default() }
}

fn io(reads: u64, read_bytes: u64, not_now: u64) -> What {
    let over_ns = SECOND / 10;
    let socket = SocketId(1);
    What::Io(Io { socket, pid: 7, over_ns, reads, read_bytes, not_now, ..Io::default() })
}

fn only(story: &Story, code: u16) -> Finding {
    let finding = story.finding();
    assert_eq!((finding.code, finding.class), (Code(code), Class::Cpu), "{}", finding.sentence);
    finding
}

#[test]
fn a_busy_server_is_well() {
    // 50,000 returns a second, of which a few were for a thread that came too late.
    assert_eq!(each(50, &ready(5_000, 150, POLLOUT)).findings(), []);
    // Each connection is hung up once.
    assert_eq!(each(50, &ready(5_000, 90, POLLIN | POLLHUP | POLLRDHUP)).findings(), []);
    // It reads until nothing is left, after each edge.
    assert_eq!(each(50, &io(2_000, 2_000_000, 2_000)).findings(), []);
    // It accepts until nobody waits.
    let accepts = Calls { errors: vec![(EAGAIN, 1_000)], ..calls("accept4", 2_000) };
    assert_eq!(each(50, &What::Calls(accepts)).findings(), []);
    let full = Calls { highest: 1_024, ..calls("select", 5_000) };
    assert_eq!(each(50, &What::Calls(full)).findings(), []);
}

#[test]
fn what_is_rare_or_short_is_nothing() {
    assert_eq!(each(50, &ready(50, 50, POLLOUT)).findings(), []);
    assert_eq!(each(9, &ready(10_000, 10_000, POLLOUT)).findings(), []);
    assert_eq!(each(9, &ready(10_000, 10_000, POLLHUP)).findings(), []);
    assert_eq!(each(9, &What::Calls(calls("ioctl:SIOCOUTQ", 10_000))).findings(), []);
    assert_eq!(each(50, &What::Calls(calls("ioctl:SIOCOUTQ", 50))).findings(), []);
    assert_eq!(each(50, &What::Calls(calls("ioctl:FIONREAD", 5_000))).findings(), []);
    assert_eq!(each(50, &io(0, 0, 500)).findings(), []);
    // Somebody else may read what is ready to be read.
    assert_eq!(each(50, &ready(10_000, 10_000, POLLIN)).findings(), []);
    // A file at its end gives 0 too.
    let file = Calls { zero: 10_000, ..calls("read", 10_000) };
    assert_eq!(each(50, &What::Calls(file)).findings(), []);
}

#[test]
fn rounds_that_are_not_one_after_the_other_are_no_loop() {
    let mut story = story();
    for round in 0..50 {
        let idle = if round % 5 == 4 { 0 } else { 5_000 };
        story = story.after(100).with(ready(5_000, idle, POLLOUT));
    }
    assert_eq!(story.findings(), []);
}

#[test]
fn a_wait_for_writability_with_nothing_to_write_is_reported_once() {
    let finding = only(&each(100, &ready(20_000, 19_990, POLLOUT)), 301);
    assert_eq!(finding.times, 1);
    assert_eq!(
        finding.sentence,
        "server (7): epoll_wait returned at once 199,900 times a second for 1.0 s because \
         descriptor 5 can be written to, and the program wrote nothing after it: all of its \
         sockets moved 0 bytes in that time."
    );
    assert_eq!(finding.evidence["descriptor"], Evidence::Count(5));
    assert_eq!(finding.about.socket, Some(SocketId(1)));
}

#[test]
fn the_bytes_of_the_same_time_are_reported() {
    let mut story = story().with(io(1, 777, 0));
    for _ in 0..12 {
        story = story.after(100).with(io(1, 1_000, 0)).with(ready(20_000, 20_000, POLLOUT));
    }
    let moved = only(&story, 301).evidence["moved_bytes"].clone();
    assert_eq!(moved, Evidence::Count(9_000));
}

#[test]
fn a_hang_up_that_the_program_ignores_is_reported() {
    let finding = only(&each(20, &ready(20_000, 20_000, POLLIN | POLLOUT | POLLHUP)), 303);
    assert!(finding.sentence.contains("descriptor 5 is hung up (EPOLLHUP)"), "{finding:?}");
    let finding = only(&each(20, &ready(20_000, 20_000, POLLIN | POLLRDHUP)), 303);
    assert!(finding.sentence.contains("has received the peer's FIN (EPOLLRDHUP)"), "{finding:?}");
    let read = Calls { zero: 9_000, ..calls("recvfrom", 9_000) };
    let finding = only(&each(20, &What::Calls(read)), 303);
    assert!(finding.sentence.contains("recvfrom of descriptor 5 returned 0"), "{finding:?}");
    let socket = Some(SocketId(1));
    let read = Calls { zero: 9_000, socket, ..calls("read", 9_000) };
    assert_eq!(only(&each(20, &What::Calls(read)), 303).about.socket, socket);
}

#[test]
fn asking_for_the_queue_in_a_loop_is_reported() {
    let finding = only(&each(20, &What::Calls(calls("ioctl:SIOCOUTQ", 30_000))), 302);
    assert!(finding.sentence.contains("asked 300,000 times a second for 1.0 s"), "{finding:?}");
}

#[test]
fn select_with_a_descriptor_beyond_its_set_is_reported_at_once() {
    let calls = Calls { highest: 1_031, ..calls("pselect6", 1) };
    let finding = only(&each(3, &What::Calls(calls)), 304);
    assert!(finding.sentence.contains("descriptors up to 1,030"), "{finding:?}");
    assert_eq!(finding.times, 1);
}

#[test]
fn accepting_without_a_descriptor_left_is_reported() {
    for (errno, name) in [(EMFILE, "EMFILE"), (ENFILE, "ENFILE")] {
        let calls = Calls { errors: vec![(EAGAIN, 3), (errno, 40)], ..calls("accept4", 43) };
        let finding = only(&each(20, &What::Calls(calls)), 305);
        assert!(finding.sentence.contains(&format!("{name} 400 times")), "{finding:?}");
    }
}

#[test]
fn retrying_at_once_is_reported() {
    let finding = only(&each(20, &io(3, 3_000, 40_000)), 306);
    assert!(finding.sentence.contains("tried 400,000 times a second"), "{finding:?}");
}

#[test]
fn only_processes_in_scope_are_reported() {
    let mut story = Story::new(Scope::Process(8)).process(7, "server").process(8, "other");
    for _ in 0..20 {
        story = story.after(100).with(ready(20_000, 20_000, POLLOUT));
    }
    assert_eq!(story.findings(), []);
}

#[test]
fn what_is_followed_is_bounded_and_forgotten() {
    let facts = Facts::new();
    let mut cpu = Cpu::default();
    let mut found = Vec::new();
    let many = 0..3 * u32::try_from(MOST).unwrap();
    for pid in many.clone() {
        for what in [ready(20_000, 20_000, POLLOUT), io(0, 0, 40_000)] {
            let what = match what {
                What::Ready(ready) => What::Ready(Ready { pid, ..ready }),
                What::Io(io) => What::Io(Io { pid, ..io }),
                other => other,
            };
            cpu.on(&Event { at_ns: 1, what }, &facts, &mut found);
        }
    }
    assert!(cpu.spells.len() <= MOST && cpu.moved.len() <= MOST);
    for pid in many {
        let what = What::Exited { pid, ending: crate::event::Ending::Unknown };
        cpu.on(&Event { at_ns: 2, what }, &facts, &mut found);
    }
    assert!(cpu.spells.is_empty() && cpu.moved.is_empty() && found.is_empty());
}

proptest! {
    /// Whatever the numbers are, nothing breaks, and what is told is finite.
    #[test]
    fn any_numbers(rounds in prop::collection::vec(any_round(), 1..60)) {
        let mut story = story();
        for what in rounds {
            story = story.after(100).with(what);
        }
        for finding in story.findings() {
            let text = serde_json::to_string(&finding).unwrap();
            let again: Finding = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(again.evidence.len(), finding.evidence.len());
            prop_assert!(!finding.sentence.contains("inf") && !finding.sentence.contains("NaN"));
        }
    }
}

fn any_round() -> impl Strategy<Value = What> {
    let number = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0_u64..100_000];
    let names =
        prop::sample::select(vec!["read", "recvfrom", "accept", "select", "ioctl:SIOCOUTQ"]);
    let numbers = prop::collection::vec(number, 8);
    (numbers, any::<u32>(), prop::option::of(any::<i32>()), names, 0..3).prop_map(
        |(n, bits, fd, call, kind)| {
            let call = call.to_owned();
            let socket = Some(SocketId(n[7] % 3));
            let (pid, tid, over_ns) = (7, 9, n[0]);
            match kind {
                0 => What::Ready(Ready {
                    pid,
                    tid,
                    call,
                    over_ns,
                    count: n[1],
                    idle: n[2],
                    fd,
                    socket,
                    ready: bits,
                }),
                1 => What::Calls(Calls {
                    pid,
                    tid,
                    call,
                    fd,
                    socket,
                    over_ns,
                    count: n[1],
                    returned: n[2],
                    zero: n[3],
                    errors: vec![(24, n[4]), (24, n[5])],
                    in_call_ns: n[6],
                    highest: n[6],
                }),
                _ => What::Io(Io {
                    socket: SocketId(1),
                    pid,
                    over_ns,
                    writes: n[1],
                    written_bytes: n[2],
                    tiny_writes: n[3],
                    reads: n[4],
                    read_bytes: n[5],
                    not_now: n[6],
                    held_back: n[7],
                    held_back_ns: n[3],
                    turns: 0,
                }),
            }
        },
    )
}
