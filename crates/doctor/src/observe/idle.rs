//! A cheap check whether a namespace without connections has changed since the last scan: it takes
//! some microseconds. The kernel has one connection table for all namespaces, and each scan of an
//! empty one still reads the whole table.

use std::fs::File;
use std::path::Path;

use lastbyte_host::counters::{OF_THIS_THREAD, of_group, open, sockets_in_use, text};

/// A namespace is scanned at least this often: listening sockets are reported once a second.
const AT_LEAST_NS: u64 = 950_000_000;

/// The files and counts that show that nothing has changed.
#[derive(Debug)]
pub(super) struct IdleCheck {
    /// `sockstat` and `snmp`; `sockstat6` if there is IPv6.
    files: Option<[File; 2]>,
    of_v6: Option<File>,
    /// The counts before the last complete scan, and its time, if it showed no connection.
    last: Option<(SocketCounts, u64)>,
    was_connected: bool,
}

/// Sockets in the tables, and connections opened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketCounts {
    in_use: u64,
    opened: u64,
}

/// What a complete scan has shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableCounts {
    pub(super) listening: u64,
    pub(super) connected: u64,
}

impl IdleCheck {
    /// Opens the files of the calling thread's namespace.
    pub(super) fn open() -> Self {
        let file = |name| open(Path::new(OF_THIS_THREAD), name).ok();
        let files = file("sockstat").zip(file("snmp")).map(|(sockets, counts)| [sockets, counts]);
        Self { files, of_v6: file("sockstat6"), last: None, was_connected: false }
    }

    /// Whether a scan would show the same as the last one.
    pub(super) fn lasts(&self, now_ns: u64) -> bool {
        let Some((last, looked_ns)) = self.last else { return false };
        now_ns < looked_ns.saturating_add(AT_LEAST_NS)
            && self.in_use() == Some(last.in_use)
            // If no socket is in use there is nothing to see, whatever was opened meanwhile. A
            // connection may have been established as its listener closed.
            && (last.in_use == 0 || self.counts() == Some(last))
    }

    /// Before a scan: the counts, if the scan may show no connection.
    pub(super) fn before(&self) -> Option<SocketCounts> {
        if self.was_connected { None } else { self.counts() }
    }

    /// After a scan; `shown` is `None` if it was incomplete.
    pub(super) fn after(
        &mut self,
        before: Option<SocketCounts>,
        shown: Option<TableCounts>,
        now_ns: u64,
    ) {
        self.was_connected = shown.is_none_or(|shown| shown.connected > 0);
        // More sockets in use than shown: some came during the scan.
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

    /// A check of invented files with this many sockets and opened connections.
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

    /// With the counts of the last scan.
    fn looked(mut idle_check: IdleCheck, shown: TableCounts) -> IdleCheck {
        let before = idle_check.before();
        idle_check.after(before, Some(shown), SECOND_NS);
        idle_check
    }

    #[test]
    fn a_namespace_that_only_listens_is_scanned_after_a_change_and_once_a_second() {
        let listens = TableCounts { listening: 2, connected: 0 };
        let same = looked(idle_check(2, 5), listens);
        assert!(same.lasts(SECOND_NS + 1) && same.lasts(SECOND_NS + AT_LEAST_NS - 1));
        assert!(!same.lasts(SECOND_NS + AT_LEAST_NS));
        let after = |in_use, opened| {
            IdleCheck { last: same.last, ..idle_check(in_use, opened) }.lasts(SECOND_NS + 1)
        };
        assert!(after(2, 5));
        // One more, one less, and one whose listener closed as it was established.
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
    fn a_namespace_with_connections_or_a_partial_scan_is_scanned_each_time() {
        let connected = TableCounts { listening: 1, connected: 1 };
        let mut one = looked(idle_check(2, 5), connected);
        assert!(!one.lasts(SECOND_NS + 1) && one.before().is_none());
        // The next scan shows that it has ended; before the one after that, counts are read.
        one = looked(one, TableCounts { listening: 2, connected: 0 });
        assert!(!one.lasts(SECOND_NS + 1));
        assert!(looked(one, TableCounts { listening: 2, connected: 0 }).lasts(SECOND_NS + 1));
        let mut broken = idle_check(0, 5);
        let before = broken.before();
        broken.after(before, None, SECOND_NS);
        assert!(!broken.lasts(SECOND_NS + 1));
        // Something came during the scan.
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
