//! Probes: numbered UDP packets, stamped with one clock as they leave and as they arrive.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::{Host, Link, LinkError, Namespace, Way};
use lastbyte_sys::{process, socket};
use lastbyte_units::BitRate;

use crate::finding::Outcome;

/// IPv4 and UDP headers, in bytes.
const HEADERS: u32 = 28;
/// A packet's number, in bytes.
const NUMBER: u32 = 4;
/// The largest IP packet of a load, in bytes, and the smallest, which has nothing but its number.
pub(crate) const FULL_PACKET: u32 = 1500;
pub(crate) const SMALL_PACKET: u32 = HEADERS + NUMBER;
/// The receive buffer asked for: room for thousands of packets while the thread does not run.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// How often a receiver without packets checks whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time from one packet to the next of those that are sent at once: 1.5 Gbit/s of full ones, which
/// also a link that was built without optimization can read. Packets that are sent faster wait in the
/// host's device, which then is a queue that the path does not have.
pub(crate) const AT_START_EVERY: Duration = Duration::from_micros(8);
/// How often a fast sender writes, many packets at once.
const SEND_EVERY: Duration = Duration::from_micros(200);
/// Datagrams that the kernel cuts from one write at most: 64 KiB.
pub(crate) const MOST_AT_ONCE: u32 = 40;
/// The longest packet that a receiver takes, in bytes.
const LONGEST: usize = 9216;
/// ECT(0) and CE (RFC 3168 section 5).
const ECT: u8 = 0b10;
const CE: u8 = 0b11;
/// The initial capacity of the logs, in packets.
const LOG_ROOM: u32 = 1 << 18;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The length of each packet.
    pub(crate) ip_bytes: u32,
    /// The most packets.
    pub(crate) packets: u32,
    /// The longest time that is taken to send them.
    pub(crate) within: Duration,
    /// How many are sent at once at the beginning.
    pub(crate) at_start: u32,
    /// The time from one to the next.
    pub(crate) every: Duration,
    /// How many a late sender may send at once to catch up; the time for more than that is lost.
    pub(crate) burst: u32,
    /// How many are written with one call, and cut by the kernel.
    pub(crate) batch: u32,
    /// Whether packets may be marked instead of dropped.
    pub(crate) ecn: bool,
    /// Whether its threads run before ordinary ones: for a load so small that no other program has to
    /// wait for it, where each microsecond of lateness counts.
    pub(crate) high_priority: bool,
    /// A rate and an excess: sending ends once that many more bytes were sent than leave at the rate.
    pub(crate) overfill: Option<(BitRate, u64)>,
}

impl Load {
    /// One packet after the other, without a bound yet.
    pub(crate) fn paced(ip_bytes: u32, every: Duration) -> Self {
        Self {
            ip_bytes,
            packets: 0,
            within: Duration::ZERO,
            at_start: 0,
            every,
            burst: 1,
            batch: 1,
            ecn: false,
            high_priority: false,
            overfill: None,
        }
    }
}

/// The load of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) way: Way,
    pub(crate) load: Load,
    /// How long the receiver waits after the last packet was sent.
    pub(crate) linger: Duration,
    /// Whether packets may be duplicated: then more may follow when each has arrived once.
    pub(crate) copies: bool,
}

impl Flow {
    /// How fast it is sent, in bit/s.
    pub(crate) fn bits_per_s(&self) -> f64 {
        f64::from(self.load.ip_bytes) * 8.0 / self.load.every.as_secs_f64().max(1e-9)
    }
}

/// What was observed of a flow at both of its ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// When each packet was sent, by number.
    pub(crate) sent: Vec<Instant>,
    /// In the order of arrival.
    pub(crate) arrivals: Vec<Arrival>,
    /// Packets for which the receiving socket had no room.
    pub(crate) overflowed: u64,
    /// Packets that the receiving kernel refused, because their checksum or length was wrong.
    pub(crate) refused: u64,
    /// How late the sender woke up at most in 9 of 10 cases, in seconds.
    pub(crate) lateness: f64,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) number: u32,
    pub(crate) at: Instant,
    pub(crate) ip_bytes: u32,
    /// Congestion experienced (RFC 3168).
    pub(crate) marked: bool,
}

impl Observed {
    /// The time from sending to arrival of each packet, by number, in seconds; `None` for one that never
    /// arrived.
    pub(crate) fn delays(&self) -> impl Iterator<Item = Option<f64>> {
        let mut delays = vec![None; self.sent.len()];
        for arrival in &self.arrivals {
            let delay = self.delay(arrival);
            if let Some(first @ None) = delays.get_mut(arrival.number as usize) {
                *first = delay;
            }
        }
        delays.into_iter()
    }

    /// The time from sending to arrival of a packet, in seconds; `None` for one that was never sent.
    pub(crate) fn delay(&self, arrival: &Arrival) -> Option<f64> {
        let sent = self.sent.get(arrival.number as usize)?;
        Some(arrival.at.saturating_duration_since(*sent).as_secs_f64())
    }

    /// How many packets never arrived.
    pub(crate) fn lost(&self) -> u64 {
        self.missing().len() as u64
    }

    /// The packets that never arrived, in order.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let numbers = (0..).zip(self.delays());
        numbers.filter(|(_, delay)| delay.is_none()).map(|(number, _)| number).collect()
    }

    /// How many duplicates arrived.
    pub(crate) fn copies(&self) -> u64 {
        self.arrivals.len() as u64 + self.lost() - self.sent.len() as u64
    }

    /// The outcome that these packets show; [`Outcome::TooBusy`] where the receiving socket overflowed,
    /// as they then say nothing about the link.
    pub(crate) fn unless_overflowed(&self, outcome: Outcome) -> Outcome {
        if self.overflowed == 0 {
            return outcome;
        }
        let packets = self.overflowed;
        Outcome::TooBusy(format!(
            "this machine is too busy: the receiver had no room for {packets}"
        ))
    }
}

/// Sends the flows at the same time, and waits until all have ended.
pub(crate) fn run(link: &Link, flows: &[Flow]) -> Result<Vec<Observed>, LinkError> {
    let sockets: Vec<_> = flows
        .iter()
        .map(|flow| sockets(link, flow.way.sender(), flow.way.receiver()))
        .collect::<Result<_, _>>()?;
    let before = counters(link, flows)?;
    let results = thread::scope(|scope| {
        let flows = flows.iter().zip(&sockets);
        let started: Vec<_> =
            flows.map(|(flow, (from, to))| scope.spawn(move || flow.carry_out(from, to))).collect();
        let joined = started.into_iter().map(|thread| match thread.join() {
            Ok(seen) => seen,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<io::Result<Vec<Observed>>>()
    });
    let mut results = results.map_err(LinkError::at("sending and receiving probes"))?;
    let after = counters(link, flows)?;
    for ((seen, before), after) in results.iter_mut().zip(before).zip(after) {
        seen.overflowed = after.overflows - before.overflows;
        seen.refused = after.refusals - before.refusals;
    }
    Ok(results)
}

/// Sends a load over the near host's loopback interface, where nothing but the probe itself is late.
pub(crate) fn run_on_loopback(link: &Link, load: Load) -> Result<Observed, LinkError> {
    let (from, to) = sockets(link, Host::Near, Host::Near)?;
    let flow = Flow { way: Way::Up, load, linger: LOOK_EVERY, copies: false };
    flow.carry_out(&from, &to).map_err(LinkError::at("sending probes over loopback"))
}

/// A sending and a receiving socket.
fn sockets(link: &Link, from: Host, to: Host) -> Result<(UdpSocket, UdpSocket), LinkError> {
    let bound = |host: Host| {
        let made = link.host(host).run(|| UdpSocket::bind((host.address(), 0)))?;
        made.map_err(LinkError::at("making a probe's socket"))
    };
    let (from, to) = (bound(from)?, bound(to)?);
    let ready = || {
        // Without the privilege for more, as much as the kernel allows everyone.
        socket::force_receive_buffer(&to, RECEIVE_BUFFER)
            .or_else(|_| socket::set_receive_buffer(&to, RECEIVE_BUFFER))?;
        to.set_read_timeout(Some(LOOK_EVERY))?;
        from.set_write_timeout(Some(Duration::from_secs(1)))?;
        from.connect(to.local_addr()?)
    };
    ready().map_err(LinkError::at("preparing a probe's socket"))?;
    Ok((from, to))
}

/// A host's counters of datagrams that its kernel dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Dropped because a socket's buffer was full.
    overflows: u64,
    /// Dropped because of a wrong checksum or length.
    refusals: u64,
}

/// The counters of each flow's receiving host.
fn counters(link: &Link, flows: &[Flow]) -> Result<Vec<Counters>, LinkError> {
    let read = |host: &Namespace| {
        host.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))?
            .map(|text| Counters::of(&text))
            .map_err(LinkError::at("reading a host's counters"))
    };
    flows.iter().map(|flow| read(link.host(flow.way.receiver()))).collect()
}

impl Counters {
    /// From the two lines about UDP: names, then numbers. `InErrors` counts what `RcvbufErrors` and
    /// `MemErrors` count, and what is damaged.
    fn of(snmp: &str) -> Self {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
        let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
            return Self::default();
        };
        let number = |wanted| {
            let mut both = names.split_whitespace().zip(numbers.split_whitespace());
            let found = both.find(|(name, _)| *name == wanted);
            found.and_then(|(_, number)| number.parse::<u64>().ok()).unwrap_or(0)
        };
        let overflows = number("RcvbufErrors") + number("MemErrors");
        Self { overflows, refusals: number("InErrors").saturating_sub(overflows) }
    }
}

/// What the sender tells the receiver when it has sent all.
#[derive(Clone, Copy, Debug)]
struct AllSent {
    packets: usize,
    wait_until: Instant,
}

impl Flow {
    fn carry_out(&self, from: &UdpSocket, to: &UdpSocket) -> io::Result<Observed> {
        if self.load.ecn {
            socket::set_type_of_service(from, ECT)?;
            socket::tell_type_of_service(to)?;
        }
        let all_sent = OnceLock::new();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                self.load.set_priority();
                self.receive(to, &all_sent)
            });
            let sent = self.load.send(from);
            let sent_count = sent.as_ref().map_or(0, |log| log.sent.len());
            let count = if self.copies { usize::MAX } else { sent_count };
            let _ =
                all_sent.set(AllSent { packets: count, wait_until: Instant::now() + self.linger });
            let arrivals = receiver.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            let SendLog { sent, mut lateness } = sent?;
            lateness.sort_by(f64::total_cmp);
            let lateness = lateness.get(lateness.len() * 9 / 10).copied().unwrap_or_default();
            Ok(Observed { sent, arrivals: arrivals?, overflowed: 0, refused: 0, lateness })
        })
    }

    /// Receives until all packets have arrived, or no more are to be expected.
    fn receive(
        &self,
        socket: &UdpSocket,
        all_sent: &OnceLock<AllSent>,
    ) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::with_capacity(self.load.packets.min(LOG_ROOM) as usize);
        let mut packet = [0; LONGEST];
        loop {
            let received = if self.load.ecn {
                socket::receive_with_type_of_service(socket, &mut packet)
            } else {
                socket.recv(&mut packet).map(|length| (length, None))
            };
            let at = Instant::now();
            match received {
                Ok((length, service)) => {
                    let [a, b, c, d, ..] = packet;
                    arrivals.push(Arrival {
                        number: u32::from_be_bytes([a, b, c, d]),
                        at,
                        ip_bytes: u32::try_from(length).unwrap_or(u32::MAX).saturating_add(HEADERS),
                        marked: service.is_some_and(|byte| byte & CE == CE),
                    });
                }
                Err(error) if is_no_packet(&error) => {}
                Err(error) => return Err(error),
            }
            if all_sent
                .get()
                .is_some_and(|all| arrivals.len() >= all.packets || at > all.wait_until)
            {
                return Ok(arrivals);
            }
        }
    }
}

/// What a sender did.
#[derive(Debug, Default)]
struct SendLog {
    /// When each packet was sent.
    sent: Vec<Instant>,
    /// How late it woke up each time, in seconds.
    lateness: Vec<f64>,
}

impl Load {
    fn send(&self, socket: &UdpSocket) -> io::Result<SendLog> {
        process::exact_timers()?;
        self.set_priority();
        let bytes = (self.ip_bytes - HEADERS) as usize;
        let batch = self.batch_of(socket);
        let mut packets = vec![0; bytes * batch as usize];
        let mut log = SendLog::default();
        log.sent.reserve(self.packets.min(LOG_ROOM) as usize);
        let start = Instant::now();
        let mut due = start;
        for first in (0..self.packets).step_by(batch as usize) {
            let many = batch.min(self.packets - first);
            let mut now = Instant::now();
            if now < due {
                thread::sleep(due - now);
                now = Instant::now();
                log.lateness.push((now - due).as_secs_f64());
            }
            due = self.next_due(first, many, due, now);
            let elapsed = now - start;
            if elapsed > self.within || self.is_overfull(first, elapsed) {
                break;
            }
            let numbered = packets.chunks_mut(bytes).zip(first..first + many);
            for (packet, number) in numbered {
                packet[..NUMBER as usize].copy_from_slice(&number.to_be_bytes());
            }
            log.sent.extend((0..many).map(|_| now));
            socket.send(&packets[..bytes * many as usize])?;
        }
        Ok(log)
    }

    /// When the next ones are due, after `many` from `first` on.
    fn next_due(&self, first: u32, many: u32, due: Instant, now: Instant) -> Instant {
        let at_start = first < self.at_start;
        let every = if at_start { self.every.min(AT_START_EVERY) } else { self.every };
        let next = due + every * many;
        if at_start {
            return next;
        }
        // What a late sender has missed beyond that is never sent.
        let late = self.every * (self.burst.max(many) - 1);
        next.max(now.checked_sub(late).unwrap_or(next))
    }

    /// How many packets the kernel cuts from one write.
    fn batch_of(&self, socket: &UdpSocket) -> u32 {
        let most = self.batch.min(65_000 / self.ip_bytes.max(1)).max(1);
        let cuts = |bytes| socket::set_segment_bytes(socket, bytes).is_ok();
        // An old kernel that cannot segment only makes the sender slower.
        let bytes = u16::try_from(self.ip_bytes - HEADERS).unwrap_or(0);
        if most > 1 && cuts(bytes) { most } else { 1 }
    }

    fn set_priority(&self) {
        if self.high_priority {
            // Without the privilege the probe is later, and its figure says so.
            let _ = process::before_ordinary_threads();
        }
    }

    fn is_overfull(&self, packets: u32, elapsed: Duration) -> bool {
        self.overfill.is_some_and(|(rate, excess)| {
            u64::from(packets) * u64::from(self.ip_bytes) > rate.bytes_in(elapsed) + excess
        })
    }
}

/// How many packets are written at once, so that the sender runs every [`SEND_EVERY`].
pub(crate) fn batch_for(every: Duration) -> u32 {
    let packets = SEND_EVERY.as_nanos() / every.as_nanos().max(1);
    u32::try_from(packets).unwrap_or(u32::MAX).clamp(1, MOST_AT_ONCE)
}

/// Whether the kernel refuses a packet one byte longer than `ip_bytes` that may not be fragmented.
pub(crate) fn refuses_longer(link: &Link, way: Way, ip_bytes: u32) -> Result<bool, LinkError> {
    let (from, _to) = sockets(link, way.sender(), way.receiver())?;
    let tried = || -> io::Result<bool> {
        socket::forbid_fragments(&from)?;
        match from.send(&vec![0; (ip_bytes + 1 - HEADERS) as usize]) {
            // EMSGSIZE
            Err(error) if error.raw_os_error() == Some(90) => Ok(true),
            sent => sent.map(|_| false),
        }
    };
    tried().map_err(LinkError::at("sending a packet that is too long"))
}

fn is_no_packet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MS: Duration = Duration::from_millis(1);

    /// A sender that offers packets of 1000 bytes in the first of these times, and a link with this
    /// rate that delivers them.
    pub(crate) fn seen(every: Duration, many: u32, tx: Duration, base: Duration) -> Observed {
        let start = Instant::now();
        let sent: Vec<_> = (0..many).map(|number| start + every * number).collect();
        let arrival = |number| arrival(number, start + base + tx * (number + 1));
        Observed { sent, arrivals: (0..many).map(arrival).collect(), ..Observed::default() }
    }

    pub(crate) fn arrival(number: u32, at: Instant) -> Arrival {
        Arrival { number, at, ip_bytes: 1000, marked: false }
    }

    #[test]
    fn counters_are_found_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams \
                    RcvbufErrors SndbufErrors InCsumErrors\nUdp: 10 0 9 12 7 0 2\n\
                    UdpLite: InDatagrams\nUdpLite: 0";
        assert_eq!(Counters::of(snmp), Counters { overflows: 7, refusals: 2 });
        assert_eq!(Counters::of(""), Counters::default());
        assert_eq!(Counters::of("Udp: InDatagrams\nUdp: 10"), Counters::default());
    }

    #[test]
    fn a_packet_that_came_twice_is_not_two() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let arrival = |number, ms| Arrival { number, at: at(ms), ip_bytes: 32, marked: false };
        let seen = Observed {
            sent: vec![at(0), at(1), at(2)],
            arrivals: vec![arrival(2, 12), arrival(0, 13), arrival(2, 20)],
            ..Observed::default()
        };
        let delays: Vec<_> = seen.delays().collect();
        assert_eq!(delays, [Some(0.013), None, Some(0.010)]);
        assert_eq!((seen.missing(), seen.copies()), (vec![1], 1));
    }

    #[test]
    fn a_late_sender_catches_up_only_as_far_as_it_may() {
        let ms = Duration::from_millis(1);
        let load = Load { burst: 4, at_start: 2, ..Load::paced(100, ms) };
        let due = Instant::now();
        assert_eq!(load.next_due(5, 1, due, due), due + ms);
        assert_eq!(load.next_due(5, 1, due, due + ms * 3), due + ms);
        assert_eq!(load.next_due(5, 1, due, due + ms * 10), due + ms * 7, "the rest is lost");
        assert_eq!(load.next_due(0, 1, due, due), due + AT_START_EVERY);
    }
}
