//! The counters of `/proc/net/netstat` and `/proc/net/snmp` that are about connections.

use lastbyte_host::counters::of_group;

use crate::event::Counters;

/// Parses the groups `TcpExt` and `Tcp`; a missing counter is 0.
pub(super) fn parse(text: &str, network: u64) -> Counters {
    let mut counters = Counters { network, ..Counters::default() };
    for (name, number) in of_group(text, "TcpExt").chain(of_group(text, "Tcp")) {
        match name {
            "ListenOverflows" => counters.listen_overflows = number,
            "ListenDrops" => counters.listen_drops = number,
            "TCPAbortOnClose" => counters.aborts_on_close = number,
            "TCPAbortOnData" => counters.aborts_on_data = number,
            "TCPAbortOnLinger" => counters.aborts_on_linger = number,
            "TCPAbortOnMemory" => counters.aborts_on_memory = number,
            "TCPAbortOnTimeout" => counters.aborts_on_timeout = number,
            "TCPTimeouts" => counters.timeouts = number,
            "TCPReqQFullDrop" | "TCPReqQFullDoCookies" => counters.requests_full += number,
            "EstabResets" => counters.established_resets = number,
            "OutRsts" => counters.resets_sent = number,
            "ActiveOpens" => counters.active_opens = number,
            "PassiveOpens" => counters.passive_opens = number,
            _ => {}
        }
    }
    counters
}

/// The growth of each counter; `None` if none has grown.
pub(super) fn grown(before: &Counters, now: &Counters) -> Option<Counters> {
    let nothing = Counters { network: now.network, ..Counters::default() };
    let grown = Counters {
        network: now.network,
        listen_overflows: now.listen_overflows.saturating_sub(before.listen_overflows),
        listen_drops: now.listen_drops.saturating_sub(before.listen_drops),
        aborts_on_close: now.aborts_on_close.saturating_sub(before.aborts_on_close),
        aborts_on_data: now.aborts_on_data.saturating_sub(before.aborts_on_data),
        aborts_on_linger: now.aborts_on_linger.saturating_sub(before.aborts_on_linger),
        aborts_on_memory: now.aborts_on_memory.saturating_sub(before.aborts_on_memory),
        aborts_on_timeout: now.aborts_on_timeout.saturating_sub(before.aborts_on_timeout),
        timeouts: now.timeouts.saturating_sub(before.timeouts),
        requests_full: now.requests_full.saturating_sub(before.requests_full),
        established_resets: now.established_resets.saturating_sub(before.established_resets),
        resets_sent: now.resets_sent.saturating_sub(before.resets_sent),
        active_opens: now.active_opens.saturating_sub(before.active_opens),
        passive_opens: now.passive_opens.saturating_sub(before.passive_opens),
    };
    (grown != nothing).then_some(grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_by_their_names() {
        let text = "TcpExt: SyncookiesSent ListenOverflows TCPReqQFullDrop TCPReqQFullDoCookies\n\
                    TcpExt: 1 2 3 4\nIpExt: ListenOverflows\nIpExt: 9\n";
        let counters = parse(text, 7);
        assert_eq!((counters.listen_overflows, counters.requests_full), (2, 7));
        assert_eq!(grown(&counters, &counters), None);
        let more = Counters { listen_overflows: 5, ..counters };
        let grown = grown(&counters, &more).unwrap();
        assert_eq!((grown.network, grown.listen_overflows, grown.requests_full), (7, 3, 0));
        assert_eq!(parse("TcpExt: ListenDrops\nTcpExt: many", 1).listen_drops, 0);
        let text = "Tcp: ActiveOpens PassiveOpens EstabResets OutRsts\nTcp: 1 2 3 4\n";
        let counters = parse(text, 7);
        assert_eq!((counters.active_opens, counters.passive_opens), (1, 2));
        assert_eq!((counters.established_resets, counters.resets_sent), (3, 4));
        assert_eq!(parse("", 1), Counters { network: 1, ..Counters::default() });
    }
}
