//! A host's connections, from what its kernel reported at different times. No I/O.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use lastbyte_core::diag::{Memory, Socket};
use lastbyte_core::sample::{Limits, Moment, State, TcpInfo};

/// One connection, as the kernel of one of its hosts saw it. Times count from the watch's
/// beginning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Connection {
    /// This host's address; only the port is set if [`Connection::aborted`] is all that was seen.
    pub local: SocketAddr,
    /// The peer's address; only the IP address is set in that case.
    pub peer: SocketAddr,
    /// When it was first seen: up to one scan interval after its beginning.
    pub first_seen: Duration,
    /// Whether this host opened the connection, if known: a scan saw it in SYN-SENT (or
    /// SYN-RECEIVED), or its local port has a listener.
    pub dialled: Option<bool>,
    /// Payload that this host's kernel received in order, in bytes. One too many if the peer's FIN
    /// is counted in it and [`Connection::fin_received`] is `None`.
    pub received: u64,
    /// Whether the peer's FIN was received. The kernel counts it as one byte received, and its last
    /// report of a socket does not say whether it did: this is known if a scan saw the socket after
    /// its FIN, or after all other bytes.
    pub fin_received: Option<bool>,
    /// Payload received that the program did not read before it closed, or has not read yet.
    pub unread: u64,
    /// When the first payload was received, known to half a scan interval.
    pub first_byte: Option<Duration>,
    /// When the last payload was received, known to a tick of the kernel's clock (1 to 10 ms).
    pub last_byte: Option<Duration>,
    /// Payload received in each tenth of a second, without empty ones: the tenth's index, from 0,
    /// and bytes.
    pub tenths: Vec<(usize, u64)>,
    /// The kernel's last `TCP_INFO` of the connection.
    pub info: Option<TcpInfo>,
    /// Its samples.
    pub samples: Vec<Sample>,
    /// The congestion control; `None` if no scan saw the connection.
    pub congestion: Option<String>,
    /// The buffers at the last scan; `None` in the same case.
    pub memory: Option<Memory>,
    /// When the kernel destroyed the socket, after its end and the program's close. Only then are
    /// the figures final.
    pub ended: Option<Duration>,
    /// Whether this host's program reset it (`SO_LINGER` of 0), or it was never established. The
    /// kernel then forgets its counts: the figures are those of the last scan.
    pub aborted: bool,
    /// Whether the last scan saw it.
    pub open: bool,
}

/// A sample of a connection's `TCP_INFO`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// When.
    pub at: Duration,
    /// `struct tcp_info`.
    pub info: TcpInfo,
    /// The buffers at that time.
    pub memory: Option<Memory>,
}

impl Sample {
    fn moment(&self) -> Moment {
        Moment {
            info: self.info,
            send_buffer: self.memory.map(|memory| memory.send_buffer),
            queued: self.memory.map(|memory| memory.queued),
        }
    }
}

impl Connection {
    /// Payload sent, each byte counted once.
    #[must_use]
    pub fn sent(&self) -> Option<u64> {
        let (sent, again) = self.info?.bytes_sent.zip(self.info?.bytes_retrans)?;
        Some(sent.saturating_sub(again))
    }

    /// What limited its sending, from one sample to the next, as far as the fill of its buffers
    /// shows: whether the program waited for buffer space is not visible from outside.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for both in self.samples.windows(2) {
            let elapsed = both[1].at.saturating_sub(both[0].at);
            limits.add(&both[0].moment(), &both[1].moment(), elapsed, None);
        }
        limits
    }

    /// Whether its counts are complete: reported at its end, or at the last scan if it is open.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !self.aborted && (self.ended.is_some() || self.open)
    }

    /// Records whether the peer's FIN was received.
    pub(super) fn set_fin_received(&mut self, received: bool) {
        if self.fin_received.replace(received).is_some() || !received {
            return;
        }
        self.received = self.received.saturating_sub(1);
        // The FIN comes last.
        if let Some((_, bytes)) = self.tenths.last_mut() {
            *bytes -= 1;
            if *bytes == 0 {
                self.tenths.pop();
            }
        }
        // An unread FIN was still in the receive queue.
        self.unread = self.unread.saturating_sub(1);
        if self.received == 0 {
            (self.first_byte, self.last_byte) = (None, None);
        }
    }
}

/// What a caller may wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Open connections.
    pub(super) open: usize,
    /// Whether one of them has unacked bytes.
    pub(super) queued: bool,
    /// When a count last changed.
    pub(super) last_change: Duration,
    /// The largest smoothed round-trip time among them.
    pub(super) rtt: Duration,
    /// When the last scan was made, and how many.
    pub(super) last_scan: Duration,
    pub(super) scans: u64,
}

/// The connections of a host.
#[derive(Debug)]
pub(super) struct Connections {
    entries: HashMap<u64, Entry>,
    listening: HashSet<u16>,
    /// Between two samples of a connection.
    every: Duration,
    /// How many scans were made, and the time of the last one.
    scans: u64,
    last_scan: Duration,
    last_change: Duration,
    samples: usize,
    left_out: u64,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// `tcpi_bytes_received` when it certainly included no FIN.
    without_fin: Option<u64>,
    queued: bool,
    scan: u64,
}

impl Connections {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            listening: HashSet::new(),
            every,
            scans: 0,
            last_scan: Duration::ZERO,
            last_change: Duration::ZERO,
            samples: 0,
            left_out: 0,
        }
    }

    /// Adds a scan: all sockets at a time.
    pub(super) fn scan(&mut self, sockets: &[Socket], at: Duration) {
        self.scans += 1;
        for socket in sockets {
            if socket.state == State::Listen {
                self.listening.insert(socket.local.port());
            } else if let Some(info) = socket.info {
                self.update(socket, info, at);
            }
            // A socket in TIME-WAIT has no figures, and its connection was reported already.
        }
        self.last_scan = at;
    }

    /// Adds the report of a destroyed socket.
    pub(super) fn destroyed(&mut self, socket: &Socket, at: Duration) {
        // A socket that was never connected has no peer.
        let forgotten = socket.peer.port() == 0;
        if forgotten && socket.peer.ip().is_unspecified() {
            return;
        }
        let Some(info) = socket.info.filter(|_| !forgotten) else {
            return self.aborted(socket, at);
        };
        self.update(socket, info, at);
        if let Some(entry) = self.entries.get_mut(&socket.cookie) {
            entry.connection.ended = Some(at);
            entry.queued = false;
        }
    }

    /// What a caller may wait for.
    pub(super) fn activity(&self) -> Activity {
        let mut activity = Activity {
            last_change: self.last_change,
            last_scan: self.last_scan,
            scans: self.scans,
            ..Activity::default()
        };
        for entry in self.entries.values().filter(|entry| self.is_open(entry)) {
            activity.open += 1;
            activity.queued |= entry.queued;
            let rtt = entry.connection.info.map_or(0, |info| info.rtt_us);
            activity.rtt = activity.rtt.max(Duration::from_micros(rtt.into()));
        }
        activity
    }

    /// Whether a connection is about to begin: there is none, or one that has carried nothing.
    pub(super) fn expects_connection(&self) -> bool {
        let mut open = self.entries.values().filter(|entry| self.is_open(entry)).peekable();
        let carried = |end: &Connection| end.received + end.sent().unwrap_or(0);
        open.peek().is_none() || open.any(|entry| carried(&entry.connection) == 0)
    }

    /// All connections with other hosts, the earliest first, and how many were left out at the
    /// limit.
    pub(super) fn into_connections(mut self) -> (Vec<Connection>, u64) {
        let scans = self.scans;
        let entries = std::mem::take(&mut self.entries);
        let mut connections: Vec<Connection> = entries
            .into_values()
            .map(|entry| Connection {
                open: entry.scan == scans && entry.connection.ended.is_none(),
                dialled: entry.connection.dialled.or_else(|| {
                    self.listening.contains(&entry.connection.local.port()).then_some(false)
                }),
                ..entry.connection
            })
            .collect();
        let ends: HashSet<_> = connections.iter().map(|each| (each.local, each.peer)).collect();
        // A connection with both ends here did not leave the host.
        connections.retain(|each| !ends.contains(&(each.peer, each.local)));
        connections.sort_by_key(|each| (each.first_seen, each.local, each.peer));
        (connections, self.left_out)
    }

    fn is_open(&self, entry: &Entry) -> bool {
        entry.scan == self.scans && entry.connection.ended.is_none()
    }

    fn update(&mut self, socket: &Socket, info: TcpInfo, at: Duration) {
        let (last_scan, every, scans) = (self.last_scan, self.every, self.scans);
        let room = self.samples < MAX_SAMPLES;
        let Some(entry) = self.entry(socket, at) else { return };
        entry.scan = scans;
        let before = entry.connection.info.replace(info);
        entry.count(socket, info, (last_scan, at));
        let connection = &mut entry.connection;
        connection.memory = socket.memory.or(connection.memory);
        if socket.congestion.is_some() {
            connection.congestion.clone_from(&socket.congestion);
        }
        let due = connection.samples.last().is_none_or(|last| at >= last.at + every);
        let sampled = room && (due || info.state == State::Close);
        if sampled {
            connection.samples.push(Sample { at, info, memory: socket.memory });
        }
        self.samples += usize::from(sampled);
        let counts = |info: TcpInfo| (info.bytes_received, info.bytes_acked, info.bytes_sent);
        if before.map(counts) != Some(counts(info)) || info.state == State::Close {
            self.last_change = at;
        }
    }

    /// The kernel reports an aborted socket without counts and with half of its addresses.
    fn aborted(&mut self, socket: &Socket, at: Duration) {
        if let Some(entry) = self.entry(socket, at) {
            entry.connection.aborted = true;
            entry.connection.ended = Some(at);
            entry.queued = false;
            self.last_change = at;
        }
    }

    /// The entry of a socket; `None` if its peer is this host, or at the limit.
    fn entry(&mut self, socket: &Socket, at: Duration) -> Option<&mut Entry> {
        if socket.peer.ip().is_loopback() || socket.peer.ip() == socket.local.ip() {
            return None;
        }
        let full = self.entries.len() >= MAX_CONNECTIONS;
        if full && !self.entries.contains_key(&socket.cookie) {
            self.left_out += 1;
            return None;
        }
        let new = || Entry {
            connection: Connection {
                local: socket.local,
                peer: socket.peer,
                first_seen: at,
                dialled: None,
                received: 0,
                fin_received: None,
                unread: 0,
                first_byte: None,
                last_byte: None,
                tenths: Vec::new(),
                info: None,
                samples: Vec::new(),
                congestion: None,
                memory: None,
                ended: None,
                aborted: false,
                open: false,
            },
            without_fin: None,
            queued: false,
            scan: 0,
        };
        Some(self.entries.entry(socket.cookie).or_insert_with(new))
    }
}

/// A host can have no more connections with one port of another.
const MAX_CONNECTIONS: usize = 65_536;
/// A sample has some 250 bytes.
const MAX_SAMPLES: usize = 200_000;

impl Entry {
    /// Takes the counts of a look or of the end, `at` a time, after the look before that.
    fn count(&mut self, socket: &Socket, info: TcpInfo, (last_scan, at): (Duration, Duration)) {
        let counted = info.bytes_received.unwrap_or(0);
        let fin = match socket.state {
            State::CloseWait | State::LastAck | State::Closing => Some(true),
            State::Close => {
                let nothing_new = self.without_fin == Some(counted);
                self.connection.fin_received.or_else(|| nothing_new.then_some(false))
            }
            _ => None,
        };
        if matches!(socket.state, State::Established | State::FinWait1 | State::FinWait2) {
            self.without_fin = Some(counted);
        }
        match socket.state {
            State::SynSent => self.connection.dialled = Some(true),
            State::SynRecv => self.connection.dialled = Some(false),
            _ => {}
        }
        self.queued = socket.send_queue > 0;
        let payload = counted - u64::from(fin == Some(true) && counted > 0);
        let connection = &mut self.connection;
        connection.fin_received = fin;
        let unread = u64::from(socket.receive_queue);
        connection.unread = unread.saturating_sub(u64::from(fin == Some(true)));
        let grown = payload.saturating_sub(connection.received);
        connection.received = payload;
        if grown == 0 {
            return;
        }
        // Of payload alone: where a FIN was all that came, it is a time long ago.
        let last = at.saturating_sub(socket.since_data_received.unwrap_or_default());
        let came = last.max(last_scan);
        connection.last_byte = Some(connection.last_byte.map_or(last, |before| before.max(last)));
        connection.first_byte.get_or_insert_with(|| last_scan + (came - last_scan) / 2);
        let tenth = usize::try_from(came.as_millis() / 100).unwrap_or(usize::MAX);
        match connection.tenths.last_mut() {
            Some((each, bytes)) if *each >= tenth => *bytes += grown,
            _ => connection.tenths.push((tenth, grown)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A socket as `core` reads it: state, port, cookie, bytes received, and when the last came.
    fn socket(state: u8, port: u8, received: u64, since_ms: u32) -> Socket {
        let mut bytes = vec![0; 72];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &[2, state]);
        put(4, &[200, port]);
        put(6, &[20, 81]);
        put(8, &[198, 18, 0, 1]);
        put(24, &[198, 18, 0, 2]);
        put(44, &[port]);
        let mut info = vec![0; 232];
        info[0] = state;
        info[52..56].copy_from_slice(&since_ms.to_ne_bytes());
        info[128..136].copy_from_slice(&received.to_ne_bytes());
        bytes.extend([236_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat());
        bytes.extend(info);
        Socket::parse(&bytes).unwrap()
    }

    fn one(connections: Connections) -> Connection {
        let (mut connections, left_out) = connections.into_connections();
        assert_eq!((connections.len(), left_out), (1, 0));
        connections.remove(0)
    }

    #[test]
    fn a_connection_is_followed_to_its_end() {
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[], 10 * MS);
        connections.scan(&[socket(1, 1, 0, 4)], 20 * MS);
        connections.scan(&[socket(1, 1, 3000, 4)], 40 * MS);
        connections.scan(&[socket(1, 1, 5000, 0)], 130 * MS);
        let activity = connections.activity();
        assert_eq!(
            (activity.open, activity.last_change, activity.last_scan),
            (1, 130 * MS, 130 * MS)
        );
        connections.scan(&[socket(8, 1, 5001, 30)], 160 * MS);
        connections.destroyed(&socket(7, 1, 5001, 200), 330 * MS);
        assert_eq!(connections.activity().open, 0);
        let seen = one(connections);
        assert_eq!((seen.received, seen.fin_received), (5000, Some(true)));
        assert_eq!((seen.first_byte, seen.last_byte), (Some(28 * MS), Some(130 * MS)));
        assert_eq!(seen.tenths, [(0, 3000), (1, 2000)]);
        assert_eq!((seen.first_seen, seen.ended), (20 * MS, Some(330 * MS)));
        let sampled: Vec<_> = seen.samples.iter().map(|sample| sample.at).collect();
        assert_eq!(sampled, [20 * MS, 130 * MS, 330 * MS]);
        assert!(seen.is_final() && !seen.open);
    }

    #[test]
    fn an_end_that_nobody_saw_leaves_the_fin_open() {
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[], 100 * MS);
        connections.destroyed(&socket(7, 1, 701, 20), 190 * MS);
        let mut seen = one(connections);
        assert_eq!((seen.received, seen.fin_received), (701, None));
        assert_eq!((seen.first_byte, seen.last_byte), (Some(135 * MS), Some(170 * MS)));
        seen.set_fin_received(true);
        seen.set_fin_received(true);
        assert_eq!((seen.received, seen.tenths, seen.unread), (700, vec![(1, 700)], 0));
    }

    #[test]
    fn a_fin_alone_is_no_payload() {
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[socket(1, 1, 0, 3)], 10 * MS);
        connections.destroyed(&socket(7, 1, 1, 90), 100 * MS);
        let mut seen = one(connections);
        seen.set_fin_received(true);
        assert_eq!((seen.received, seen.first_byte, seen.last_byte), (0, None, None));
        assert_eq!(seen.tenths, []);
        // One that was reset has the same count before and after.
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[socket(1, 1, 9, 3)], 10 * MS);
        connections.destroyed(&socket(7, 1, 9, 90), 100 * MS);
        assert_eq!(one(connections).fin_received, Some(false));
    }

    #[test]
    fn what_an_aborted_socket_has_forgotten_is_kept() {
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[socket(1, 1, 9, 3)], 10 * MS);
        let mut forgotten = socket(7, 1, 0, u32::MAX);
        forgotten.local.set_ip("0.0.0.0".parse().unwrap());
        forgotten.peer.set_port(0);
        connections.destroyed(&forgotten, 20 * MS);
        let seen = one(connections);
        assert_eq!((seen.received, seen.local.port(), seen.peer.port()), (9, 51_201, 5201));
        assert!(seen.aborted && !seen.is_final());
    }

    #[test]
    fn what_does_not_leave_the_host_is_not_counted() {
        let mut connections = Connections::new(100 * MS);
        let mut loopback = socket(1, 1, 9, 3);
        loopback.peer.set_ip("127.0.0.1".parse().unwrap());
        let mut own = socket(1, 2, 9, 3);
        own.peer.set_ip("198.18.0.1".parse().unwrap());
        // Two addresses of one host.
        let here = socket(1, 3, 9, 3);
        let mut there = socket(1, 4, 9, 3);
        (there.local, there.peer) = (here.peer, here.local);
        let mut never = socket(7, 5, 0, 3);
        never.peer = "0.0.0.0:0".parse().unwrap();
        connections.scan(&[loopback, own, here, there], 10 * MS);
        connections.destroyed(&never, 20 * MS);
        assert_eq!(connections.into_connections(), (Vec::new(), 0));
    }

    #[test]
    fn a_port_that_listens_is_not_dialled_from() {
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[socket(10, 1, 0, 0), socket(1, 1, 0, 0)], MS);
        assert_eq!(one(connections).dialled, Some(false));
        let mut connections = Connections::new(100 * MS);
        connections.scan(&[socket(2, 1, 0, 0)], MS);
        connections.scan(&[socket(1, 1, 0, 0)], 2 * MS);
        assert_eq!(one(connections).dialled, Some(true));
    }
}
