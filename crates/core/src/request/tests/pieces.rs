//! A client that sends its bytes in pieces, for the tests and the fuzzer.

#![allow(missing_docs, unreachable_pub, reason = "for tests alone")]

use lastbyte_core::request::{Credentials, RequestReader, Step};

/// What became of what a client sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Progress {
    /// All steps but [`Step::More`].
    pub steps: Vec<Step>,
    /// What it sent behind its request, if that was understood.
    pub early: Option<Vec<u8>>,
}

/// Sends bytes in pieces of these sizes, in turn, and does what the machine says.
pub fn send<A: RequestReader>(mut machine: A, bytes: &[u8], sizes: &[usize]) -> Progress {
    let mut rest = bytes;
    let mut steps = Vec::new();
    let mut sizes = sizes.iter().copied().cycle();
    loop {
        let step = machine.next();
        assert!(machine.capacity() <= A::MOST);
        match &step {
            Step::More if rest.is_empty() => return Progress { steps, early: None },
            Step::More => {
                let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
                let room = machine.capacity();
                let taken = machine.put(&rest[..size]);
                assert_eq!(taken, size.min(room));
                assert!(taken > 0, "it asks for more and takes nothing");
                rest = &rest[taken..];
                continue;
            }
            Step::Reply(bytes) => assert!(!bytes.is_empty()),
            Step::Check(credentials) => machine.on_checked(is_user(credentials)),
            Step::Request(destination) => {
                let odd = |char: char| char.is_control() || char.is_whitespace();
                assert!(destination.port != 0, "{destination:?}");
                assert!(!destination.host.is_empty() && !destination.host.contains(odd));
                steps.push(step);
                let early = [&machine.into_rest(), rest].concat();
                return Progress { steps, early: Some(early) };
            }
            Step::Refuse(_) => {
                steps.push(step);
                return Progress { steps, early: None };
            }
        }
        steps.push(step);
        assert!(steps.len() <= 8, "it goes round in a circle: {steps:?}");
    }
}

/// The one user that there is.
pub fn is_user(credentials: &Credentials) -> bool {
    credentials.name == b"u" && credentials.password == b"p"
}

/// The law: the same bytes lead to the same end, in whatever pieces they come.
///
/// The first byte says whether there are users, the second how many sizes of pieces follow; then come
/// the sizes, then what the client sends.
pub fn by_bytes<A: RequestReader>(make: impl Fn(bool) -> A, bytes: &[u8]) {
    let [users, count, rest @ ..] = bytes else { return };
    let Some((sizes, sent)) = rest.split_at_checked(usize::from(count % 16)) else { return };
    let sizes: Vec<usize> = sizes.iter().map(|size| usize::from(*size)).collect();
    let make = || make(users % 2 == 1);
    let whole = send(make(), sent, &[]);
    assert_eq!(send(make(), sent, &sizes), whole);
    assert_eq!(send(make(), sent, &[1]), whole);
}
