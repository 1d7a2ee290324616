//! Namespaces in which nothing is connected: whether something came since the last look, for some
//! microseconds. The kernel's table of connections is one for all namespaces, and a look into the
//! emptiest of them goes through all of it.

use std::fs::File;
use std::path::Path;

use lastbyte_host::counters::{OF_THIS_THREAD, of_group, open, sockets_in_use, text};

/// It is looked into at least so often: what listens there is told of once a second.
const AT_LEAST_NS: u64 = 950_000_000;

/// What says that nothing has come.
#[derive(Debug)]
pub(super) struct IdleCheck {
    /// `sockstat` and `snmp`; `sockstat6`, where there is IPv6.
    files: Option<[File; 2]>,
    of_v6: Option<File>,
    /// Of the last whole look, if it has shown nothing that is connected: what was counted before it, and
    /// when it was.
    last: Option<(SocketCounts, u64)>,
    was_connected: bool,
}

/// Sockets that are in tables, and connections that were opened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketCounts {
    in_use: u64,
    opened: u64,
}

/// What a whole look has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableCounts {
    pub(super) listening: u64,
    pub(super) connected: u64,
}

impl IdleCheck {
    /// Of the namespace that the calling thread is in.
    pub(super) fn open() -> Self {
        let file = |name| open(Path::new(OF_THIS_THREAD), name).ok();
        let files = file("sockstat").zip(file("snmp")).map(|(sockets, counts)| [sockets, counts]);
        Self { files, of_v6: file("sockstat6"), last: None, was_connected: false }
    }

    /// Whether a look would show nothing that the last one has not shown.
    pub(super) fn lasts(&self, now_ns: u64) -> bool {
        let Some((last, looked_ns)) = self.last else { return false };
        now_ns < looked_ns.saturating_add(AT_LEAST_NS)
            && self.in_use() == Some(last.in_use)
            // Where nothing is in a table there is nothing to be seen, whatever was opened meanwhile. A
            // connection may have come as its listener went.
            && (last.in_use == 0 || self.counts() == Some(last))
    }

    /// Before a look: what is counted, where it may turn out to show nothing that is connected.
    pub(super) fn before(&self) -> Option<SocketCounts> {
        if self.was_connected { None } else { self.counts() }
    }

    /// After it; `shown` is `None` where it was not whole.
    pub(super) fn after(
        &mut self,
        before: Option<SocketCounts>,
        shown: Option<TableCounts>,
        now_ns: u64,
    ) {
        self.was_connected = shown.is_none_or(|shown| shown.connected > 0);
        // More in use than is shown are such as came meanwhile.
        let is_all = |counts: &SocketCounts| {
            !self.was_connected && shown.is_some_and(|shown| shown.listening == counts.in_use)
        };
        self.last = before.filter(is_all).map(|counts| (counts, now_ns));
    }

    fn counts(&self) -> Option<SocketCounts> {
        let counts = text(&self.files.as_ref()?[1]).ok()?;
        let is_open = |name| matches!(name, "ActiveOpens" | "PassiveOpens");
        let opens = of_group(&counts, "Tcp").filter(|(name, _)| is_open(*name));
        let opened = opens.fold(0, |sum: u64, (_, number)| sum.wrapping_add(number));
        Some(SocketCounts { in_use: self.in_use()?, opened })
    }

    fn in_use(&self) -> Option<u64> {
        let of_v4 = sockets_in_use(&text(&self.files.as_ref()?[0]).ok()?, "TCP")?;
        let of_v6 = match &self.of_v6 {
            Some(file) => sockets_in_use(&text(file).ok()?, "TCP6")?,
            None => 0,
        };
        Some(of_v4 + of_v6)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// One of made-up files, with so many sockets and opened connections.
    fn idle_check(in_use: u64, opened: u64) -> IdleCheck {
        let file = |text: String| {
            let file = lastbyte_sys::file::in_memory().unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            file
        };
        let sockets = format!("sockets: used 99\nTCP: inuse {in_use} orphan 1 tw 2\n");
        let counts = format!("Tcp: ActiveOpens PassiveOpens\nTcp: {opened} 1\n");
        let files = Some([file(sockets), file(counts)]);
        let of_v6 = Some(file("TCP6: inuse 0\nUDP6: inuse 3\n".to_owned()));
        IdleCheck { files, of_v6, last: None, was_connected: false }
    }

    /// With what the last look has left behind.
    fn looked(mut idle_check: IdleCheck, shown: TableCounts) -> IdleCheck {
        let before = idle_check.before();
        idle_check.after(before, Some(shown), SECOND_NS);
        idle_check
    }

    #[test]
    fn what_only_listens_is_looked_into_when_something_came_and_once_a_second() {
        let listens = TableCounts { listening: 2, connected: 0 };
        let same = looked(idle_check(2, 5), listens);
        assert!(same.lasts(SECOND_NS + 1) && same.lasts(SECOND_NS + AT_LEAST_NS - 1));
        assert!(!same.lasts(SECOND_NS + AT_LEAST_NS));
        let after = |in_use, opened| {
            IdleCheck { last: same.last, ..idle_check(in_use, opened) }.lasts(SECOND_NS + 1)
        };
        assert!(after(2, 5));
        // One more, one less, and one whose listener went as it came.
        assert!(!after(3, 5) && !after(1, 5) && !after(2, 6));
    }

    #[test]
    fn what_is_empty_stays_so_whatever_came_and_went() {
        let empty = looked(idle_check(0, 5), TableCounts::default());
        assert!(empty.lasts(SECOND_NS + 1));
        let after =
            |in_use| IdleCheck { last: empty.last, ..idle_check(in_use, 9) }.lasts(SECOND_NS + 1);
        assert!(after(0) && !after(1));
    }

    #[test]
    fn what_is_connected_or_was_not_seen_whole_is_looked_into_each_time() {
        let connected = TableCounts { listening: 1, connected: 1 };
        let mut one = looked(idle_check(2, 5), connected);
        assert!(!one.lasts(SECOND_NS + 1) && one.before().is_none());
        // The next look shows that it is over; the one after that is counted before.
        one = looked(one, TableCounts { listening: 2, connected: 0 });
        assert!(!one.lasts(SECOND_NS + 1));
        assert!(looked(one, TableCounts { listening: 2, connected: 0 }).lasts(SECOND_NS + 1));
        let mut broken = idle_check(0, 5);
        let before = broken.before();
        broken.after(before, None, SECOND_NS);
        assert!(!broken.lasts(SECOND_NS + 1));
        // Something came while it was looked at.
        assert!(
            !looked(idle_check(3, 5), TableCounts { listening: 2, connected: 0 })
                .lasts(SECOND_NS + 1)
        );
        let blind = IdleCheck { files: None, ..idle_check(0, 0) };
        assert!(!looked(blind, TableCounts::default()).lasts(SECOND_NS + 1));
    }

    #[test]
    fn this_kernel_tells_both() {
        let own = IdleCheck::open();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(own.in_use().unwrap() >= 1 && own.counts().is_some());
        drop(listener);
    }
}
