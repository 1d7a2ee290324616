//! Counters of a whole network namespace: how often the kernel reset or gave up a connection.

use std::fs;
use std::io;

/// What a namespace's kernel counted (`/proc/net/snmp` and `netstat`). A counter that this kernel
/// does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// `Tcp: AttemptFails`: connections that were not made, at either side.
    pub attempt_fails: u64,
    /// `Tcp: EstabResets`: connections that went from established, or from having the peer's FIN,
    /// straight to closed: by a reset sent or received, or given up.
    pub estab_resets: u64,
    /// `Tcp: OutRsts`: resets sent, also those to what no connection was there for.
    pub out_rsts: u64,
    /// `TcpExt: TCPAbortOnData`: reset because data came after the program had closed, or closed with
    /// `SO_LINGER` of 0.
    pub abort_on_data: u64,
    /// `TcpExt: TCPAbortOnClose`: reset because the program closed with data unread.
    pub abort_on_close: u64,
    /// `TcpExt: TCPAbortOnMemory`: given up for want of memory, or of room for orphans.
    pub abort_on_memory: u64,
    /// `TcpExt: TCPAbortOnTimeout`: given up because the peer was silent for too long.
    pub abort_on_timeout: u64,
    /// `TcpExt: TCPAbortOnLinger`: reset because the peer's FIN did not come in time after the program
    /// had closed.
    pub abort_on_linger: u64,
    /// `TcpExt: TCPAbortFailed`: a reset that could not be sent.
    pub abort_failed: u64,
}

impl Counters {
    /// Reads those of the calling thread's namespace.
    pub(super) fn read() -> io::Result<Self> {
        let text = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        Ok(Self::parse(&text("snmp")?, &text("netstat")?))
    }

    fn parse(snmp: &str, netstat: &str) -> Self {
        let tcp = |name| counter(snmp, "Tcp:", name);
        let extended = |name| counter(netstat, "TcpExt:", name);
        Self {
            attempt_fails: tcp("AttemptFails"),
            estab_resets: tcp("EstabResets"),
            out_rsts: tcp("OutRsts"),
            abort_on_data: extended("TCPAbortOnData"),
            abort_on_close: extended("TCPAbortOnClose"),
            abort_on_memory: extended("TCPAbortOnMemory"),
            abort_on_timeout: extended("TCPAbortOnTimeout"),
            abort_on_linger: extended("TCPAbortOnLinger"),
            abort_failed: extended("TCPAbortFailed"),
        }
    }

    /// What was counted since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            attempt_fails: self.attempt_fails.saturating_sub(before.attempt_fails),
            estab_resets: self.estab_resets.saturating_sub(before.estab_resets),
            out_rsts: self.out_rsts.saturating_sub(before.out_rsts),
            abort_on_data: self.abort_on_data.saturating_sub(before.abort_on_data),
            abort_on_close: self.abort_on_close.saturating_sub(before.abort_on_close),
            abort_on_memory: self.abort_on_memory.saturating_sub(before.abort_on_memory),
            abort_on_timeout: self.abort_on_timeout.saturating_sub(before.abort_on_timeout),
            abort_on_linger: self.abort_on_linger.saturating_sub(before.abort_on_linger),
            abort_failed: self.abort_failed.saturating_sub(before.abort_failed),
        }
    }
}

/// The value below a name: a line of names is followed by a line of values that begins alike.
fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.split(' ').next() == Some(group));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let both = names.split_whitespace().zip(values.split_whitespace());
    let value = both.into_iter().find(|(each, _)| *each == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_below_its_name() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: RtoMin MaxConn EstabResets OutRsts\nTcp: 200 -1 7 9\n";
        let netstat = "TcpExt: X TCPAbortOnTimeout\nTcpExt: 5 6\nIpExt: TCPAbortOnData\nIpExt: 3\n";
        let counters = Counters::parse(snmp, netstat);
        assert_eq!((counters.estab_resets, counters.out_rsts), (7, 9));
        assert_eq!((counters.abort_on_timeout, counters.abort_on_data), (6, 0));
        assert_eq!(Counters::parse("", "Tcp: A\nTcpExt: 3"), Counters::default());
        let since = counters.since(Counters { out_rsts: 4, ..Counters::default() });
        assert_eq!((since.out_rsts, since.estab_resets), (5, 7));
    }

    #[test]
    fn this_kernel_has_them() {
        let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        assert!(text.contains(" TCPAbortOnTimeout "), "{text}");
        Counters::read().unwrap();
    }
}
