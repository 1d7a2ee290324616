//! LB107: a Unix socket closed with unread bytes in it.

use crate::event::{Actor, Event, Precision, Scope, What};
use crate::facts::Facts;
use crate::finding::{Class, Code, Finding};
use crate::rules::Rule;
use crate::text::{bytes, one_line, who};

/// LB107.
#[derive(Debug, Default)]
pub(super) struct Unread;

impl Rule for Unread {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        let What::UnixUnread { by, bytes: unread, precision, sender, path } = &event.what else {
            return;
        };
        let is_wanted =
            facts.process_in_scope(by.pid) || sender.is_some_and(|pid| facts.process_in_scope(pid));
        if !is_wanted || *unread == 0 {
            return;
        }
        let about = facts.about_process(by.pid);
        let waits = Waits::of(facts, by, *sender, path.as_deref());
        let from = match sender {
            Some(_) if waits == Waits::Itself => " that it had sent itself".to_owned(),
            Some(pid) => format!(" that {} had sent", who(&facts.about_process(*pid))),
            None => String::new(),
        };
        let at = path.as_deref().map(|path| format!(" at {}", one_line(path)));
        let (exact, about_so_many) = match precision {
            Precision::Exact => ("yes", ""),
            Precision::AtMost => ("at most", "at most "),
            Precision::AtLeast => ("at least", "at least "),
            Precision::About => ("about", "about "),
        };
        let sentence = format!(
            "{} closed a Unix socket{} with {about_so_many}{}{from} unread: {}.",
            who(&about),
            at.unwrap_or_default(),
            bytes(*unread),
            waits.words(),
        );
        let mut evidence = std::collections::BTreeMap::new();
        evidence.insert("unread_bytes".to_owned(), (*unread).into());
        evidence.insert("exact".to_owned(), exact.into());
        if let Some(pid) = sender {
            evidence.insert("sender_pid".to_owned(), (*pid).into());
        }
        found.push(Finding {
            code: Code(107),
            class: if waits == Waits::Other { Class::Loss } else { Class::Note },
            harmless: matches!(waits, Waits::Itself | Waits::Unknown),
            bytes: Some(*unread),
            at_ns: event.at_ns,
            times: 1,
            about,
            sentence,
            fix: "Read to the end of the stream before the close; a sender that must know waits \
                  for a response."
                .to_owned(),
            heal: None,
            evidence,
        });
    }
}

/// Who waits for the unread bytes to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// The process that closed it: it wakes itself through such a socket pair.
    Itself,
    /// Another process of the same program, which may close its own socket pairs at any time.
    Kin,
    /// Unknown: the process exited or was killed, and the socket has no name. Such sockets are
    /// mostly within one program.
    Ended,
    /// Not known, and the socket has no name.
    Unknown,
    /// Somebody else.
    Other,
}

impl Waits {
    fn of(facts: &Facts, by: &Actor, sender: Option<u32>, path: Option<&str>) -> Self {
        match sender {
            Some(sender) if sender == by.pid => Self::Itself,
            Some(sender) if is_within(facts, by.pid, sender, path.is_some()) => Self::Kin,
            _ if path.is_none() && by.ending.is_some() => Self::Ended,
            None if path.is_none() => Self::Unknown,
            _ => Self::Other,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Itself => "nobody else waits for them",
            Self::Kin => "they stayed within the program, as both are of its own processes",
            Self::Ended => "it ended with them, and whether anybody waits for them is not known",
            Self::Unknown => "who had sent them, and whether anybody waits for them, is not known",
            Self::Other => {
                "they are lost, and the sender gets ECONNRESET once it has read what was sent to it"
            }
        }
    }
}

/// Whether a socket connects processes of one program. A socket without a name cannot be found by
/// others; it can only be inherited or passed on.
fn is_within(facts: &Facts, one: u32, other: u32, has_name: bool) -> bool {
    let name = |pid: u32| facts.process(pid).map(|one| &one.process.name);
    are_kin(facts, one, other) && (!has_name || name(one) == name(other))
}

/// Whether two processes are related: both in scope of one program, parent and child, or children
/// of one parent that is not `init`.
fn are_kin(facts: &Facts, one: u32, other: u32) -> bool {
    if matches!(facts.scope(), Scope::Process(_))
        && facts.process_in_scope(one)
        && facts.process_in_scope(other)
    {
        return true;
    }
    /// Orphaned processes, and all services, have `init` as their parent.
    const FIRST: u32 = 1;
    let parent = |pid: u32| facts.process(pid).map(|one| one.process.parent);
    let is_parent = |parent: Option<u32>, of: u32| parent == Some(of) && of > FIRST;
    let (of_one, of_other) = (parent(one), parent(other));
    is_parent(of_one, other)
        || is_parent(of_other, one)
        || of_one.is_some_and(|parent| parent > FIRST && of_other == Some(parent))
}
