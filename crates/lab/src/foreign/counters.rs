//! Counters of a network namespace: how often the kernel reset or gave up a connection.

use std::io;

use lastbyte_host::counters::{of_group, read};

/// What a namespace's kernel counted (`/proc/net/snmp` and `netstat`). A counter that this kernel
/// does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// `Tcp: AttemptFails`: failed connection attempts, of either side.
    pub attempt_fails: u64,
    /// `Tcp: EstabResets`: connections that went from established, or from having the peer's FIN,
    /// straight to closed: by a reset sent or received, or by giving up.
    pub estab_resets: u64,
    /// `Tcp: OutRsts`: resets sent, also in answer to segments of no connection.
    pub out_rsts: u64,
    /// `TcpExt: TCPAbortOnData`: reset because data came after the program had closed, or closed with
    /// `SO_LINGER` of 0.
    pub abort_on_data: u64,
    /// `TcpExt: TCPAbortOnClose`: reset because the program closed with data unread.
    pub abort_on_close: u64,
    /// `TcpExt: TCPAbortOnMemory`: given up for lack of memory, or at the limit of orphans.
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
    /// Reads the counters of the calling thread's namespace.
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self::parse(&read("snmp")?, &read("netstat")?))
    }

    fn parse(snmp: &str, netstat: &str) -> Self {
        let mut counters = Self::default();
        for (name, number) in of_group(snmp, "Tcp").chain(of_group(netstat, "TcpExt")) {
            match name {
                "AttemptFails" => counters.attempt_fails = number,
                "EstabResets" => counters.estab_resets = number,
                "OutRsts" => counters.out_rsts = number,
                "TCPAbortOnData" => counters.abort_on_data = number,
                "TCPAbortOnClose" => counters.abort_on_close = number,
                "TCPAbortOnMemory" => counters.abort_on_memory = number,
                "TCPAbortOnTimeout" => counters.abort_on_timeout = number,
                "TCPAbortOnLinger" => counters.abort_on_linger = number,
                "TCPAbortFailed" => counters.abort_failed = number,
                _ => {}
            }
        }
        counters
    }

    /// The difference from `before`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_their_names() {
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
        Counters::read().unwrap();
    }
}
