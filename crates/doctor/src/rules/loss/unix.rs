//! LB107: a Unix socket closed with bytes in it that nobody had read.

use crate::book::Book;
use crate::event::{Event, What};
use crate::finding::{Class, Code, Finding};
use crate::rules::Rule;
use crate::words::{bytes, one_line, who};

/// LB107.
#[derive(Debug, Default)]
pub(super) struct Unread;

impl Rule for Unread {
    fn on(&mut self, event: &Event, book: &Book, found: &mut Vec<Finding>) {
        let What::UnixUnread { by, bytes: unread, sender, path } = &event.what else { return };
        let is_wanted =
            book.wants_process(by.pid) || sender.is_some_and(|pid| book.wants_process(pid));
        if !is_wanted || *unread == 0 {
            return;
        }
        let about = book.about_process(by.pid);
        let from = sender.map(|pid| format!(" that {} had sent", who(&book.about_process(pid))));
        let at = path.as_deref().map(|path| format!(" at {}", one_line(path)));
        let sentence = format!(
            "{} closed a Unix socket{} with {}{} unread: they are lost, and the sender gets ECONNRESET \
             once it has read what was sent to it.",
            who(&about),
            at.unwrap_or_default(),
            bytes(*unread),
            from.unwrap_or_default(),
        );
        let mut evidence = std::collections::BTreeMap::new();
        evidence.insert("unread_bytes".to_owned(), (*unread).into());
        evidence.insert("exact".to_owned(), "yes".into());
        if let Some(pid) = sender {
            evidence.insert("sender_pid".to_owned(), (*pid).into());
        }
        // A pair of sockets by which a program wakes itself: nobody else waits for what is in it.
        let is_own = *sender == Some(by.pid);
        found.push(Finding {
            code: Code(107),
            class: if is_own { Class::Note } else { Class::Loss },
            harmless: is_own,
            bytes: Some(*unread),
            at_ns: event.at_ns,
            times: 1,
            about,
            sentence,
            fix: "Read to the sender's end before the close; a sender that must know waits for an answer."
                .to_owned(),
            heal: None,
            evidence,
        });
    }
}
