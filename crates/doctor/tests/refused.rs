//! Tier 3 on a kernel that refuses some of its programs: each in turn, with each error. Needs root, and
//! says so where it is lacking.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lastbyte_core::sample::State;
use lastbyte_doctor::{Event, Observer, Plan, Roots, Scope, Tier, Traced, What};

/// What is expected comes within this time, or not at all.
const LONG: Duration = Duration::from_secs(10);
/// EPERM as a policy says it, EACCES and EINVAL as the verifier does.
const ERRORS: [i32; 3] = [1, 13, 22];
/// Without it there is no use in the others.
const NEEDED: &str = "socket_state";
/// Asked for before Linux 6.10 alone: others have a trace point for it.
const LATE: [&str; 2] = ["late_reset_v4", "late_reset_v6"];
/// Without these no loss is missed.
const NO_LOSS: [&str; 7] =
    ["sent_again", "answered_again", "written", "read", "executed", "forked", "exited"];
/// The one that goes over all sockets, and what does the same for one network namespace.
const COUNTS: [&str; 2] = ["tell_counts", "tell_counts_of_network"];

/// The programs of the object, as its source names them.
fn programs() -> Vec<&'static str> {
    let source = include_str!("../bpf/sockets.bpf.c");
    let named = source.lines().zip(source.lines().skip(1)).filter_map(|(section, function)| {
        section.strip_prefix("SEC(\"")?.contains('/').then_some(())?;
        function.strip_prefix("int ")?.split_once('(').map(|(name, _)| name)
    });
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 10, "{named:?}");
    named
}

fn has_rights() -> bool {
    let is_root = lastbyte_sys::process::effective_user() == 0;
    if !is_root {
        lastbyte_testing::not_tested!("it needs root");
    }
    is_root
}

struct Watch {
    observer: Observer,
    events: Vec<Event>,
}

impl Watch {
    /// Tier 3 without these programs; why not, if there is none left.
    fn start(port: u16, refused: &[(&'static str, i32)]) -> Result<Self, String> {
        let roots = Roots { refused: refused.to_vec(), ..Roots::default() };
        // Tables are looked at once, so that they are not mistaken for what the programs tell.
        let plan = Plan {
            scope: Scope::Port(port),
            tier: Some(Tier::Bpf),
            traced: Traced::Never,
            every: Duration::from_secs(3600),
        };
        let (observer, _) = Observer::start_in(&plan, &roots).map_err(|error| error.to_string())?;
        Ok(Self { observer, events: Vec::new() })
    }

    fn until(&mut self, is_there: impl Fn(&What) -> bool) -> bool {
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            let events = &mut self.events;
            self.observer.take(Duration::from_millis(20), &mut |event| events.push(event)).unwrap();
            if self.events.iter().any(|event| is_there(&event.what)) {
                return true;
            }
        }
        false
    }

    /// Waits for the change of state by which bytes are lost: a close with unread input.
    fn sees_a_lossy_close(&mut self, listener: &TcpListener) -> bool {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"12345").unwrap();
        let end = Instant::now() + LONG;
        while server.peek(&mut [0; 5]).unwrap() < 5 {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        drop(server);
        self.until(|what| match what {
            What::Changed(changed) => {
                (changed.from, changed.to) == (State::Established, State::Close)
                    && changed.counts.is_some_and(|counts| counts.unread() == 5)
            }
            _ => false,
        })
    }
}

#[test]
fn without_any_one_program_the_others_continue_and_the_lack_is_reported() {
    if !has_rights() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let without_refusal = match Watch::start(port, &[]) {
        Ok(watch) if !watch.observer.sees_each_loss() => {
            lastbyte_testing::not_tested!("this kernel does not tell of each loss");
            return;
        }
        Ok(watch) => watch.observer.blind(),
        Err(why) => {
            assert!(why.contains("too old"), "root is refused: {why}");
            lastbyte_testing::not_tested!("{why}");
            return;
        }
    };
    for program in programs() {
        for errno in ERRORS {
            let started = Watch::start(port, &[(program, errno)]);
            if program == NEEDED {
                let why = started.err().unwrap();
                assert!(why.contains("load"), "{why}");
                continue;
            }
            let mut watch = started.unwrap_or_else(|why| panic!("{program} {errno}: {why}"));
            assert!(watch.sees_a_lossy_close(&listener), "{program} {errno}");
            let is_counter = COUNTS.contains(&program);
            let blind = watch.observer.blind();
            let said: Vec<&String> =
                blind.iter().filter(|line| !without_refusal.contains(line)).collect();
            let is_needless = LATE.contains(&program) && said.is_empty();
            let tells_no_loss = is_counter || is_needless || NO_LOSS.contains(&program);
            assert_eq!(watch.observer.sees_each_loss(), tells_no_loss, "{program} {errno}");
            if is_counter || is_needless {
                // The other does it.
                assert!(said.is_empty(), "{program} {errno}: {said:?}");
            } else if without_refusal.iter().any(|line| line.contains(program)) {
                assert!(said.is_empty(), "the kernel has none, whoever refuses it: {said:?}");
            } else {
                let [line] = said[..] else { panic!("{program} {errno}: {said:?}") };
                assert!(line.contains("not seen is") && line.contains(program), "{line}");
                // Who has all rights is not told to get them.
                assert!(!line.contains("root has"), "{line}");
                let is_policy = line.contains("policy of this kernel");
                assert_eq!(is_policy, errno != 22, "{line}");
            }
        }
    }
}

#[test]
fn counts_are_reported_with_either_program_and_missing_without_both() {
    if !has_rights() {
        return;
    }
    for refused in [&COUNTS[..0], &COUNTS[..1], &COUNTS[..]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pairs: Vec<(&'static str, i32)> = refused.iter().map(|name| (*name, 1)).collect();
        let mut watch = match Watch::start(address.port(), &pairs) {
            Ok(watch) => watch,
            Err(why) => {
                assert!(why.contains("too old"), "root is refused: {why}");
                lastbyte_testing::not_tested!("{why}");
                return;
            }
        };
        if watch.observer.blind().iter().any(|line| line.contains("what programs write")) {
            lastbyte_testing::not_tested!("this kernel tells of no write (Linux 6.3)");
            return;
        }
        let mut client = TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"1").unwrap();
        client.write_all(b"23").unwrap();
        // Both ends stay open, and nothing more happens.
        let is_lacking = refused.len() == COUNTS.len();
        if is_lacking {
            let blind = watch.observer.blind();
            let is_said = |line: &String| line.contains("until it is read or written again");
            assert_eq!(blind.iter().filter(|line| is_said(line)).count(), 1, "{blind:?}");
        } else {
            let told = watch.until(|what| match what {
                What::Io(io) => (io.writes, io.written_bytes) == (2, 3),
                _ => false,
            });
            assert!(told, "without {refused:?}: {:#?}", watch.events);
            assert_eq!(watch.observer.blind(), Vec::<String>::new());
        }
        drop((client, server));
    }
}
