//! Pairs both hosts' records of each connection, and concludes from both. No I/O.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lastbyte_link::Host;

use super::connections::Connection;
use super::counters::Counters;
use super::watch::Observed;

/// A connection as both hosts' kernels saw it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pair {
    /// The near host's record; `None` if its kernel did not report it.
    pub near: Option<Connection>,
    /// The far host's record.
    pub far: Option<Connection>,
    /// Which host opened the connection, if known.
    pub dialled_by: Option<Host>,
    /// From near to far.
    pub up: Stream,
    /// From far to near.
    pub down: Stream,
    /// How it ended.
    pub ending: Ending,
}

/// One direction of a connection, in bytes of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stream {
    /// Received by the receiver's kernel, in order, without the FIN.
    pub received: u64,
    /// Whether that is known to the byte: the receiver's kernel reported it at the end, and whether
    /// a FIN is included is known.
    pub exact: bool,
    /// Of these, bytes that the receiving program did not read.
    pub unread: u64,
    /// What the sender's kernel sent, each byte counted once.
    pub sent: Option<u64>,
    /// What it retransmitted, `tcpi_bytes_retrans`.
    pub retransmitted: Option<u64>,
    /// What the receiver acked.
    pub acked: Option<u64>,
    /// Whether the FIN arrived: then all bytes before it did.
    pub fin: Option<bool>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// By a FIN in both directions: each host received all that the other sent.
    Orderly,
    /// The program of this host reset it (`SO_LINGER` of 0), as its kernel reported.
    AbortedBy(Host),
    /// A FIN is missing, and both kernels counted resets and no timeout: it was reset.
    Reset,
    /// A FIN is missing, and both kernels counted timeouts and no reset: the peer was silent.
    TimedOut,
    /// A FIN is missing; the kernels' counts, which are of all connections together, do not show
    /// why.
    Truncated,
    /// It was open at the end of the watch.
    Open,
    /// A host's record is missing or incomplete.
    Unknown,
}

/// All payload of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Received by the receiving host's kernel.
    pub received: u64,
    /// Whether that is known to the byte.
    pub exact: bool,
    /// Of these, bytes that the receiving program did not read.
    pub unread: u64,
    /// When the first byte was received.
    pub first_byte: Option<Duration>,
    /// When the last byte was received.
    pub last_byte: Option<Duration>,
    /// What the largest connections carried, which together have 99 % of the bytes. The others are
    /// control connections (iperf3, FTP).
    pub bulk: u64,
    /// From the first to the last byte of those.
    pub bulk_time: Duration,
    /// Bytes received in each tenth of a second, from the beginning of the watch.
    pub tenths: Vec<u64>,
}

impl Totals {
    /// The rate of the largest connections, in bit/s; `None` if all arrived at the same time.
    #[must_use]
    pub fn bits_per_s(&self) -> Option<f64> {
        let seconds = self.bulk_time.as_secs_f64();
        (seconds > 0.0).then(|| self.bulk as f64 * 8.0 / seconds)
    }
}

/// Pairs the hosts' records by addresses; if addresses were reused, in the order of time.
pub(super) fn pairs(near: &mut Observed, far: &mut Observed) -> Vec<Pair> {
    let counters = (near.counters, far.counters);
    let mut theirs = Unpaired::of(std::mem::take(&mut far.connections));
    let mut pairs: Vec<Pair> = std::mem::take(&mut near.connections)
        .into_iter()
        .map(|near| {
            let far = theirs.take_peer_of(&near);
            Pair::of(Some(near), far, counters)
        })
        .collect();
    pairs.extend(theirs.rest().map(|far| Pair::of(None, Some(far), counters)));
    // A failed connection attempt is no connection.
    pairs.retain(|pair| !pair.is_nothing());
    pairs.sort_by_key(Pair::first_seen);
    pairs
}

/// Sums up what all connections carried in one direction.
pub(super) fn totals(pairs: &[Pair], to: Host, complete: bool) -> Totals {
    let mut totals = Totals { exact: complete, ..Totals::default() };
    let mut ends = Vec::new();
    for pair in pairs {
        let (stream, end) = match to {
            Host::Near => (&pair.down, &pair.near),
            Host::Far => (&pair.up, &pair.far),
        };
        totals.received += stream.received;
        totals.unread += stream.unread;
        totals.exact &= stream.exact;
        ends.extend(end);
    }
    (totals.first_byte, totals.last_byte) = times(&ends);
    for (tenth, bytes) in ends.iter().flat_map(|end| &end.tenths) {
        if totals.tenths.len() <= *tenth {
            totals.tenths.resize(tenth + 1, 0);
        }
        totals.tenths[*tenth] += bytes;
    }
    ends.sort_by_key(|end| std::cmp::Reverse(end.received));
    let enough = totals.received - totals.received / 100;
    let largest = ends.iter().take_while(|end| {
        let wanted = totals.bulk < enough;
        totals.bulk += if wanted { end.received } else { 0 };
        wanted
    });
    let count = largest.count();
    let (first, last) = times(&ends[..count]);
    totals.bulk_time = last.unwrap_or_default().saturating_sub(first.unwrap_or_default());
    totals
}

/// When the first and the last byte arrived over these.
fn times(ends: &[&Connection]) -> (Option<Duration>, Option<Duration>) {
    let first = ends.iter().filter_map(|end| end.first_byte).min();
    (first, ends.iter().filter_map(|end| end.last_byte).max())
}

/// One host's records of connections, to be found by the other host's.
struct Unpaired {
    ends: Vec<Option<Connection>>,
    by_addresses: HashMap<Key, VecDeque<usize>>,
}

/// The local and the peer's port: an aborted socket has no more.
type Key = (u16, Option<u16>);

impl Unpaired {
    fn of(connections: Vec<Connection>) -> Self {
        let mut by_addresses: HashMap<Key, VecDeque<usize>> = HashMap::new();
        for (index, end) in connections.iter().enumerate() {
            let peer = (end.peer.port() != 0).then_some(end.peer.port());
            by_addresses.entry((end.local.port(), peer)).or_default().push_back(index);
        }
        Self { ends: connections.into_iter().map(Some).collect(), by_addresses }
    }

    fn take_peer_of(&mut self, end: &Connection) -> Option<Connection> {
        if end.peer.port() == 0 {
            // Only its port and the peer's IP address are known.
            let own = end.local.port();
            let is_other =
                |other: &Connection| other.peer.port() == own && other.local.ip() == end.peer.ip();
            let found = self.ends.iter_mut().find(|other| other.as_ref().is_some_and(is_other));
            return found.and_then(Option::take);
        }
        let keys = [(end.peer.port(), Some(end.local.port())), (end.peer.port(), None)];
        for key in keys {
            let Some(places) = self.by_addresses.get_mut(&key) else { continue };
            let fits = |place: &usize| {
                let other = self.ends[*place].as_ref();
                other.is_some_and(|other| {
                    let whole = (other.local, other.peer) == (end.peer, end.local);
                    whole || key.1.is_none() && other.peer.ip() == end.local.ip()
                })
            };
            if let Some(at) = places.iter().position(fits)
                && let Some(place) = places.remove(at)
            {
                return self.ends[place].take();
            }
        }
        None
    }

    fn rest(self) -> impl Iterator<Item = Connection> {
        self.ends.into_iter().flatten()
    }
}

impl Pair {
    fn of(
        near: Option<Connection>,
        far: Option<Connection>,
        counters: (Counters, Counters),
    ) -> Self {
        let dialled_by = dialled_by(near.as_ref(), far.as_ref());
        let (mut near, mut far) = (near, far);
        let acked_syn = |host| dialled_by.map(|by| u64::from(by == host));
        let up = Stream::of(near.as_ref(), far.as_mut(), acked_syn(Host::Near));
        let down = Stream::of(far.as_ref(), near.as_mut(), acked_syn(Host::Far));
        let mut pair = Self { near, far, dialled_by, up, down, ending: Ending::Unknown };
        pair.ending = pair.ending(counters);
        pair
    }

    fn ending(&self, (near, far): (Counters, Counters)) -> Ending {
        let ends = [(&self.near, Host::Near), (&self.far, Host::Far)];
        for (end, host) in ends {
            if end.as_ref().is_some_and(|end| end.aborted) {
                return Ending::AbortedBy(host);
            }
        }
        let fins = [self.up.fin, self.down.fin];
        if fins == [Some(true); 2] {
            return Ending::Orderly;
        }
        if ends.iter().any(|(end, _)| end.as_ref().is_some_and(|end| end.open)) {
            return Ending::Open;
        }
        if !fins.contains(&Some(false)) {
            return Ending::Unknown;
        }
        let timeouts = near.abort_on_timeout + far.abort_on_timeout;
        match (near.out_rsts + far.out_rsts, timeouts) {
            (1.., 0) => Ending::Reset,
            (0, 1..) => Ending::TimedOut,
            _ => Ending::Truncated,
        }
    }

    /// Whether only one host has a record, of nothing sent or received.
    fn is_nothing(&self) -> bool {
        match (&self.near, &self.far) {
            (Some(end), None) | (None, Some(end)) => {
                end.received == 0 && end.sent().unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    fn first_seen(&self) -> Option<Duration> {
        [&self.near, &self.far].into_iter().flatten().map(|end| end.first_seen).min()
    }
}

/// The kernel counts as acked, beyond payload, the SYN at the host that connected, and the FIN: 2
/// are both, 0 is neither.
fn dialled_by(near: Option<&Connection>, far: Option<&Connection>) -> Option<Host> {
    for (end, host) in [(near, Host::Near), (far, Host::Far)] {
        let Some(end) = end else { continue };
        let beyond = |end: &Connection| end.info?.bytes_acked?.checked_sub(end.sent()?);
        let by_count = match beyond(end).filter(|_| end.is_final()) {
            Some(2) => Some(true),
            _ => None,
        };
        if let Some(dialled) = end.dialled.or(by_count) {
            return Some(if dialled { host } else { host.other() });
        }
    }
    None
}

impl Stream {
    /// Combines both hosts' records, and corrects the receiver's. `acked_syn` is what the sender's
    /// kernel counts as acked for its SYN: nothing at the host that accepted.
    fn of(
        sender: Option<&Connection>,
        receiver: Option<&mut Connection>,
        acked_syn: Option<u64>,
    ) -> Self {
        let sent = sender.and_then(Connection::sent);
        // What was sent in all, if that is final.
        let all = sent.filter(|_| sender.is_some_and(Connection::is_final));
        let counted = sender.and_then(|sender| sender.info?.bytes_acked);
        let acked = counted.zip(acked_syn).map(|(acked, syn)| acked.saturating_sub(syn));
        let fin_acked = acked.zip(all).and_then(|(acked, all)| (acked > all).then_some(true));
        let mut stream = Self {
            sent,
            retransmitted: sender.and_then(|sender| sender.info?.bytes_retrans),
            // A FIN is acked last.
            acked: acked.zip(sent).map(|(acked, sent)| acked.min(sent)),
            fin: fin_acked,
            ..Self::default()
        };
        let Some(receiver) = receiver else { return stream };
        if receiver.fin_received.is_none()
            && let Some(all) = all
        {
            // A FIN is received last, and counts as one byte.
            receiver.set_fin_received(receiver.received > all);
        }
        let plausible = all.is_none_or(|all| receiver.received <= all);
        stream.fin = fin_acked.or(receiver.fin_received);
        stream.received = receiver.received;
        stream.unread = receiver.unread;
        // Nothing comes after a FIN, whatever the socket does.
        let done = receiver.is_final() || receiver.fin_received == Some(true);
        stream.exact = done && receiver.fin_received.is_some() && plausible;
        stream
    }
}

#[cfg(test)]
mod tests {
    use lastbyte_core::diag::Socket;

    use super::super::connections::Connections;
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const CLOSE: u8 = 7;
    const ESTABLISHED: u8 = 1;

    /// The near host's end, port 1, towards the far host's port 2; the far host's is the same turned
    /// round. With what the kernel counts: received, acked, sent and sent again.
    fn socket(host: Host, state: u8, counts: [u64; 4]) -> Socket {
        let mut bytes = vec![0; 72];
        let (own, other) = if host == Host::Near { (1, 2) } else { (2, 1) };
        bytes[..8].copy_from_slice(&[2, state, 0, 0, 20, own, 20, other]);
        bytes[8..12].copy_from_slice(&[198, 18, 0, own]);
        bytes[24..28].copy_from_slice(&[198, 18, 0, other]);
        bytes[44] = 9;
        let mut info = vec![0; 232];
        info[0] = state;
        for (at, count) in [128, 120, 200, 208].into_iter().zip(counts) {
            info[at..at + 8].copy_from_slice(&count.to_ne_bytes());
        }
        bytes.extend([236_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat());
        bytes.extend(info);
        Socket::parse(&bytes).unwrap()
    }

    /// What both watches saw of one connection whose sockets were destroyed with these counts.
    fn seen(near: [u64; 4], far: [u64; 4]) -> Pair {
        let end = |host, counts| {
            let mut connections = Connections::new(100 * MS);
            connections.scan(&[], 10 * MS);
            connections.destroyed(&socket(host, CLOSE, counts), 30 * MS);
            seen_by(connections)
        };
        let resets = Counters { out_rsts: 1, ..Counters::default() };
        let mut near = Observed { counters: resets, ..end(Host::Near, near) };
        let mut pairs = pairs(&mut near, &mut end(Host::Far, far));
        assert_eq!(pairs.len(), 1);
        pairs.remove(0)
    }

    fn seen_by(connections: Connections) -> Observed {
        let (connections, left_out) = connections.into_connections();
        Observed { connections, counters: Counters::default(), overflows: 0, left_out }
    }

    /// As a kernel counts it: the near host asks for the connection; each direction has so many bytes
    /// sent, of which so many arrive, and a FIN that arrives or not.
    fn counted(up: (u64, u64, bool), down: (u64, u64, bool)) -> ([u64; 4], [u64; 4]) {
        let [up_fin, down_fin] = [u64::from(up.2), u64::from(down.2)];
        let near = [down.1 + down_fin, 1 + up.1 + up_fin, up.0 + 30, 30];
        (near, [up.1 + up_fin, down.1 + down_fin, down.0, 0])
    }

    #[test]
    fn fins_are_told_from_bytes_by_what_was_sent() {
        for up in [(5000, 5000, true), (5000, 5000, false), (5000, 4999, false), (0, 0, true)] {
            for down in [(700, 700, true), (700, 700, false), (700, 1, false), (0, 0, false)] {
                let (near, far) = counted(up, down);
                let pair = seen(near, far);
                let told = |stream: Stream| (stream.sent, stream.received, stream.exact);
                assert_eq!(told(pair.up), (Some(up.0), up.1, true), "{up:?} {down:?}");
                assert_eq!(told(pair.down), (Some(down.0), down.1, true), "{up:?} {down:?}");
                assert_eq!(pair.up.retransmitted, Some(30));
                // A host that is acked two more than it sent has asked for the connection.
                let dialled = (up.1 == up.0 && up.2).then_some(Host::Near);
                assert_eq!(pair.dialled_by, dialled, "{up:?} {down:?}");
                let orderly = up.2 && down.2;
                let ending = if orderly { Ending::Orderly } else { Ending::Reset };
                assert_eq!(pair.ending, ending, "{up:?} {down:?}");
            }
        }
    }

    #[test]
    fn a_fin_that_came_to_time_wait_is_known_by_its_acknowledgement() {
        // The near host closed first; the small socket in its place took the far host's FIN.
        let (mut near, far) = counted((5000, 5000, true), (0, 0, true));
        near[0] = 0;
        let pair = seen(near, far);
        assert_eq!((pair.down.received, pair.down.exact, pair.down.fin), (0, true, Some(true)));
        assert_eq!(pair.ending, Ending::Orderly);
    }

    #[test]
    fn one_end_alone_is_not_known_to_the_byte() {
        let mut connections = Connections::new(100 * MS);
        connections.destroyed(&socket(Host::Far, CLOSE, [5001, 0, 0, 0]), 30 * MS);
        let pairs = pairs(&mut seen_by(Connections::new(MS)), &mut seen_by(connections));
        let up = totals(&pairs, Host::Far, true);
        assert_eq!((up.received, up.exact, pairs[0].ending), (5001, false, Ending::Unknown));
        assert!(!totals(&[], Host::Far, false).exact);
    }

    #[test]
    fn addresses_used_again_are_matched_in_order_of_time() {
        let many = |host, counts: [[u64; 4]; 2]| {
            let mut connections = Connections::new(100 * MS);
            for (index, counts) in counts.into_iter().enumerate() {
                let mut socket = socket(host, CLOSE, counts);
                socket.cookie = index as u64 + 1;
                connections.destroyed(&socket, MS * u32::try_from(index + 1).unwrap());
            }
            seen_by(connections)
        };
        let mut near = many(Host::Near, [[0, 12, 10, 0], [0, 22, 20, 0]]);
        let mut far = many(Host::Far, [[11, 0, 0, 0], [21, 0, 0, 0]]);
        let pairs = pairs(&mut near, &mut far);
        let received: Vec<_> = pairs.iter().map(|pair| (pair.up.received, pair.up.exact)).collect();
        assert_eq!(received, [(10, true), (20, true)]);
    }

    #[test]
    fn an_end_that_has_forgotten_its_address_is_found() {
        let mut near = Connections::new(100 * MS);
        near.scan(&[], MS);
        let mut forgotten = socket(Host::Near, CLOSE, [0; 4]);
        forgotten.local.set_ip("0.0.0.0".parse().unwrap());
        forgotten.peer.set_port(0);
        near.destroyed(&forgotten, 2 * MS);
        let mut far = Connections::new(100 * MS);
        far.scan(&[socket(Host::Far, ESTABLISHED, [9, 0, 0, 0])], MS);
        far.destroyed(&socket(Host::Far, CLOSE, [9, 0, 0, 0]), 2 * MS);
        let pairs = pairs(&mut seen_by(near), &mut seen_by(far));
        assert_eq!((pairs.len(), pairs[0].ending), (1, Ending::AbortedBy(Host::Near)));
        assert_eq!((pairs[0].up.received, pairs[0].up.exact), (9, true));
        // One that was never made is nothing.
        let mut failed = Connections::new(100 * MS);
        failed.destroyed(&forgotten, 2 * MS);
        assert_eq!(super::pairs(&mut seen_by(failed), &mut seen_by(Connections::new(MS))), []);
    }

    #[test]
    fn a_rate_is_that_of_the_connections_that_carry_most() {
        let end = |port: u8, bytes, from: u32, until: u32| {
            let mut connections = Connections::new(100 * MS);
            for (at, received) in [(from, 0), (from, 1), (until, bytes)] {
                let mut socket = socket(Host::Far, ESTABLISHED, [received, 0, 0, 0]);
                socket.peer.set_port(port.into());
                socket.since_data_received = Some(Duration::ZERO);
                connections.scan(&[socket], at * MS);
            }
            let mut connections = connections.into_connections().0;
            Pair::of(None, Some(connections.remove(0)), <(Counters, Counters)>::default())
        };
        let pairs = [end(1, 400, 10, 2000), end(2, 600_000, 100, 1100), end(3, 600_000, 200, 1000)];
        let totals = totals(&pairs, Host::Far, true);
        assert_eq!(
            (totals.received, totals.bulk, totals.bulk_time),
            (1_200_400, 1_200_000, 1000 * MS)
        );
        assert_eq!(totals.bits_per_s(), Some(9.6e6));
        assert_eq!((totals.first_byte, totals.last_byte), (Some(10 * MS), Some(2000 * MS)));
        assert_eq!(totals.tenths.iter().sum::<u64>(), 1_200_400);
    }
}
