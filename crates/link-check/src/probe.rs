//! Probes: numbered UDP packets, stamped with one clock as they leave and as they arrive.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_sys::{process, socket};
use lastbyte_units::BitRate;

use lastbyte_link::{Host, Link, LinkError, Namespace};

use super::Way;

/// IPv4 and UDP headers, in bytes.
pub(super) const HEADERS: u32 = 28;
/// A packet's number, in bytes.
pub(super) const NUMBER: u32 = 4;
/// Asked for at the receiver: thousands of packets that wait while the thread does not run.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// How often a receiver without packets looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time from one packet to the next of those that are sent at once: 1.5 Gbit/s of full ones, which
/// also a link that was built without optimization can read. What comes faster than it reads waits in
/// the host's device, which then is a queue that nobody asked for.
pub(super) const AT_START_EVERY: Duration = Duration::from_micros(8);
/// The longest packet.
const LONGEST: usize = 9216;
/// ECT(0) and CE (RFC 3168 section 5).
const ECT: u8 = 0b10;
const CE: u8 = 0b11;
/// Room in the logs at first, in packets: more is made where a load turns out longer.
const LOG_ROOM: u32 = 1 << 18;

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The length of each packet.
    pub(super) ip_bytes: u32,
    /// As many at most.
    pub(super) packets: u32,
    /// For so long at most.
    pub(super) within: Duration,
    /// So many at once at first.
    pub(super) at_start: u32,
    /// The time from one to the next.
    pub(super) every: Duration,
    /// As many may follow at once when the sender is late; for more than that, time is lost.
    pub(super) burst: u32,
    /// As many are written at once, and cut by the kernel.
    pub(super) batch: u32,
    /// Whether packets may be marked instead of dropped.
    pub(super) ecn: bool,
    /// Whether its threads go before ordinary ones: where so little is sent that nobody has to wait
    /// for them, and each microsecond of their own lateness counts.
    pub(super) prompt: bool,
    /// Enough when this much more was sent than leaves at this rate.
    pub(super) overfill: Option<(BitRate, u64)>,
}

impl Load {
    /// One packet after the other, without a bound yet.
    pub(super) fn paced(ip_bytes: u32, every: Duration) -> Self {
        Self {
            ip_bytes,
            packets: 0,
            within: Duration::ZERO,
            at_start: 0,
            every,
            burst: 1,
            batch: 1,
            ecn: false,
            prompt: false,
            overfill: None,
        }
    }
}

/// A load in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) way: Way,
    pub(super) load: Load,
    /// How long the receiver waits after the last packet was sent.
    pub(super) linger: Duration,
    /// Whether some may arrive twice: when all have come, more may.
    pub(super) copies: bool,
}

/// What was seen of a load at both of its ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// When each packet was sent, by number.
    pub(super) sent: Vec<Instant>,
    /// In the order of their coming.
    pub(super) arrivals: Vec<Arrival>,
    /// Packets that found no room in the receiving socket.
    pub(super) overflowed: u64,
    /// Packets that the receiving kernel refused, because their checksum or length was wrong.
    pub(super) refused: u64,
    /// How late the sender woke up, 9 times of 10 at most, in seconds.
    pub(super) late: f64,
}

/// A packet that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) number: u32,
    pub(super) at: Instant,
    pub(super) ip_bytes: u32,
    /// Congestion experienced (RFC 3168).
    pub(super) marked: bool,
}

impl Seen {
    /// How long each packet was on its way, by number, in seconds; `None` for one that never came.
    pub(super) fn delays(&self) -> impl Iterator<Item = Option<f64>> {
        let mut delays = vec![None; self.sent.len()];
        for arrival in &self.arrivals {
            let delay = self.delay(arrival);
            if let Some(first @ None) = delays.get_mut(arrival.number as usize) {
                *first = delay;
            }
        }
        delays.into_iter()
    }

    /// How long a packet was on its way, in seconds; `None` for one that was never sent.
    pub(super) fn delay(&self, arrival: &Arrival) -> Option<f64> {
        let sent = self.sent.get(arrival.number as usize)?;
        Some(arrival.at.saturating_duration_since(*sent).as_secs_f64())
    }

    /// How many packets never came.
    pub(super) fn lost(&self) -> u64 {
        self.missing().len() as u64
    }

    /// Which packets never came, in order.
    pub(super) fn missing(&self) -> Vec<u32> {
        let numbers = (0..).zip(self.delays());
        numbers.filter(|(_, delay)| delay.is_none()).map(|(number, _)| number).collect()
    }

    /// How many packets came more than once, counted as often as they did.
    pub(super) fn copies(&self) -> u64 {
        self.arrivals.len() as u64 + self.lost() - self.sent.len() as u64
    }

    /// Why these counts tell nothing about the link.
    pub(super) fn spoiled(&self) -> Option<String> {
        (self.overflowed > 0).then(|| {
            format!("this machine is too busy: the receiver had no room for {}", self.overflowed)
        })
    }
}

/// Loads the lanes at once, and waits until all is over.
pub(super) fn run(link: &Link, lanes: &[Lane]) -> Result<Vec<Seen>, LinkError> {
    let sockets: Vec<_> = lanes
        .iter()
        .map(|lane| sockets(link, lane.way.sender(), lane.way.receiver()))
        .collect::<Result<_, _>>()?;
    let before = counters(link, lanes)?;
    let results = thread::scope(|scope| {
        let lanes = lanes.iter().zip(&sockets);
        let started: Vec<_> =
            lanes.map(|(lane, (from, to))| scope.spawn(move || lane.carry_out(from, to))).collect();
        let joined = started.into_iter().map(|thread| match thread.join() {
            Ok(seen) => seen,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect::<io::Result<Vec<Seen>>>()
    });
    let mut results = results.map_err(LinkError::at("sending and receiving probes"))?;
    let after = counters(link, lanes)?;
    for ((seen, before), after) in results.iter_mut().zip(before).zip(after) {
        seen.overflowed = after.overflows - before.overflows;
        seen.refused = after.refusals - before.refusals;
    }
    Ok(results)
}

/// Carries a load out over the near host's loopback interface, where only the probe itself is late.
pub(super) fn run_on_loopback(link: &Link, load: Load) -> Result<Seen, LinkError> {
    let (from, to) = sockets(link, Host::Near, Host::Near)?;
    let lane = Lane { way: Way::Up, load, linger: LOOK_EVERY, copies: false };
    lane.carry_out(&from, &to).map_err(LinkError::at("sending probes over loopback"))
}

/// A sending and a receiving socket.
fn sockets(link: &Link, from: Host, to: Host) -> Result<(UdpSocket, UdpSocket), LinkError> {
    let bound = |host: Host| {
        let made = link.host(host).run(|| UdpSocket::bind((host.address(), 0)))?;
        made.map_err(LinkError::at("making a probe's socket"))
    };
    let (from, to) = (bound(from)?, bound(to)?);
    let ready = || {
        // Without the right to more, as much as the kernel lets anybody have.
        socket::force_receive_buffer(&to, RECEIVE_BUFFER)
            .or_else(|_| socket::set_receive_buffer(&to, RECEIVE_BUFFER))?;
        to.set_read_timeout(Some(LOOK_EVERY))?;
        from.set_write_timeout(Some(Duration::from_secs(1)))?;
        from.connect(to.local_addr()?)
    };
    ready().map_err(LinkError::at("preparing a probe's socket"))?;
    Ok((from, to))
}

/// What a host's kernel did with datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Found no room in a socket.
    overflows: u64,
    /// Had a wrong checksum or length.
    refusals: u64,
}

/// The counters of each lane's receiving host.
fn counters(link: &Link, lanes: &[Lane]) -> Result<Vec<Counters>, LinkError> {
    let read = |host: &Namespace| {
        host.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))?
            .map(|text| Counters::of(&text))
            .map_err(LinkError::at("reading a host's counters"))
    };
    lanes.iter().map(|lane| read(link.host(lane.way.receiver()))).collect()
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
struct Over {
    sent: usize,
    wait_until: Instant,
}

impl Lane {
    fn carry_out(&self, from: &UdpSocket, to: &UdpSocket) -> io::Result<Seen> {
        if self.load.ecn {
            socket::set_type_of_service(from, ECT)?;
            socket::tell_type_of_service(to)?;
        }
        let over = OnceLock::new();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                self.load.hurry();
                self.receive(to, &over)
            });
            let sent = self.load.send(from);
            let sent_count = sent.as_ref().map_or(0, |log| log.sent.len());
            let count = if self.copies { usize::MAX } else { sent_count };
            let _ = over.set(Over { sent: count, wait_until: Instant::now() + self.linger });
            let arrivals = receiver.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            let Log { sent, mut woken } = sent?;
            woken.sort_by(f64::total_cmp);
            let late = woken.get(woken.len() * 9 / 10).copied().unwrap_or_default();
            Ok(Seen { sent, arrivals: arrivals?, overflowed: 0, refused: 0, late })
        })
    }

    /// Receives until all has come, or nothing more is to be waited for.
    fn receive(&self, socket: &UdpSocket, over: &OnceLock<Over>) -> io::Result<Vec<Arrival>> {
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
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error),
            }
            if over.get().is_some_and(|over| arrivals.len() >= over.sent || at > over.wait_until) {
                return Ok(arrivals);
            }
        }
    }
}

/// What a sender did.
#[derive(Debug, Default)]
struct Log {
    /// When each packet was sent.
    sent: Vec<Instant>,
    /// How late it was each time that it had slept, in seconds.
    woken: Vec<f64>,
}

impl Load {
    fn send(&self, socket: &UdpSocket) -> io::Result<Log> {
        process::exact_timers()?;
        self.hurry();
        let bytes = (self.ip_bytes - HEADERS) as usize;
        let batch = self.batch_of(socket);
        let mut packets = vec![0; bytes * batch as usize];
        let mut log = Log::default();
        log.sent.reserve(self.packets.min(LOG_ROOM) as usize);
        let start = Instant::now();
        let mut due = start;
        for first in (0..self.packets).step_by(batch as usize) {
            let many = batch.min(self.packets - first);
            let mut now = Instant::now();
            if now < due {
                thread::sleep(due - now);
                now = Instant::now();
                log.woken.push((now - due).as_secs_f64());
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
        // What a late sender has not sent for longer than that it never will.
        let late = self.every * (self.burst.max(many) - 1);
        next.max(now.checked_sub(late).unwrap_or(next))
    }

    /// How many packets the kernel cuts from one write.
    fn batch_of(&self, socket: &UdpSocket) -> u32 {
        let most = self.batch.min(65_000 / self.ip_bytes.max(1)).max(1);
        let cuts = |bytes| socket::set_segment_bytes(socket, bytes).is_ok();
        // An old kernel, which does not, only makes the sender slower.
        let bytes = u16::try_from(self.ip_bytes - HEADERS).unwrap_or(0);
        if most > 1 && cuts(bytes) { most } else { 1 }
    }

    fn hurry(&self) {
        if self.prompt {
            // Without the right to it the probe is later, and its figure says so.
            let _ = process::before_ordinary_threads();
        }
    }

    fn is_overfull(&self, packets: u32, elapsed: Duration) -> bool {
        self.overfill.is_some_and(|(rate, excess)| {
            u64::from(packets) * u64::from(self.ip_bytes) > rate.bytes_in(elapsed) + excess
        })
    }
}

/// Whether a packet that is longer than so many bytes is refused where it may not be cut.
pub(super) fn refuses_longer(link: &Link, way: Way, ip_bytes: u32) -> Result<bool, LinkError> {
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

fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let seen = Seen {
            sent: vec![at(0), at(1), at(2)],
            arrivals: vec![arrival(2, 12), arrival(0, 13), arrival(2, 20)],
            ..Seen::default()
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
