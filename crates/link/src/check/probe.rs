//! Probes: numbered UDP packets, stamped with one clock as they leave and as they arrive.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_sys::{process, socket};
use lastbyte_units::BitRate;

use crate::error::LinkError;
use crate::host::{Host, Namespace};
use crate::link::Link;

use super::Way;

/// IPv4 and UDP headers, in bytes.
pub(super) const HEADERS: u32 = 28;
/// A packet's number, in bytes.
pub(super) const NUMBER: u32 = 4;
/// Asked for at the receiver: thousands of packets that wait while the thread does not run.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// How often a receiver without packets looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
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
}

/// A packet that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) number: u32,
    pub(super) at: Instant,
    pub(super) ip_bytes: u32,
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
        self.delays().filter(Option::is_none).count() as u64
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
        .map(|lane| sockets(link, lane.way.from(), lane.way.to()))
        .collect::<Result<_, _>>()?;
    let before = overflows(link, lanes)?;
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
    let after = overflows(link, lanes)?;
    for ((seen, before), after) in results.iter_mut().zip(before).zip(after) {
        seen.overflowed = after - before;
    }
    Ok(results)
}

/// Carries a load out over the near host's loopback interface, where only the probe itself is late.
pub(super) fn run_on_loopback(link: &Link, load: Load) -> Result<Seen, LinkError> {
    let (from, to) = sockets(link, Host::Near, Host::Near)?;
    let lane = Lane { way: Way::Up, load, linger: LOOK_EVERY };
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

/// Packets so far that found no room in a socket of each lane's receiving host.
fn overflows(link: &Link, lanes: &[Lane]) -> Result<Vec<u64>, LinkError> {
    let read = |host: &Namespace| {
        host.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))?
            .map(|text| udp_overflows(&text))
            .map_err(LinkError::at("reading a host's counters"))
    };
    lanes.iter().map(|lane| read(link.host(lane.way.to()))).collect()
}

/// `RcvbufErrors` from the two lines about UDP: names, then numbers.
fn udp_overflows(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let mut both = names.split_whitespace().zip(numbers.split_whitespace());
    both.find(|(name, _)| *name == "RcvbufErrors").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

/// What the sender tells the receiver when it has sent all.
#[derive(Clone, Copy, Debug)]
struct Over {
    sent: usize,
    wait_until: Instant,
}

impl Lane {
    fn carry_out(&self, from: &UdpSocket, to: &UdpSocket) -> io::Result<Seen> {
        let over = OnceLock::new();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                self.load.hurry();
                receive(to, self.load.packets.min(LOG_ROOM), &over)
            });
            let sent = self.load.send(from);
            let count = sent.as_ref().map_or(0, Vec::len);
            let _ = over.set(Over { sent: count, wait_until: Instant::now() + self.linger });
            let arrivals = receiver.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            Ok(Seen { sent: sent?, arrivals: arrivals?, overflowed: 0 })
        })
    }
}

impl Load {
    /// Sends, and returns when each packet was sent.
    fn send(&self, socket: &UdpSocket) -> io::Result<Vec<Instant>> {
        process::exact_timers()?;
        self.hurry();
        let mut packet = vec![0; (self.ip_bytes - HEADERS) as usize];
        let mut sent = Vec::with_capacity(self.packets.min(LOG_ROOM) as usize);
        let start = Instant::now();
        let mut due = start;
        for number in 0..self.packets {
            let mut now = Instant::now();
            if number >= self.at_start {
                if now < due {
                    thread::sleep(due - now);
                    now = Instant::now();
                }
                let late = self.every * (self.burst - 1);
                due = (due + self.every).max(now.checked_sub(late).unwrap_or(start));
            } else {
                due = now;
            }
            let elapsed = now - start;
            if elapsed > self.within || self.is_overfull(number, elapsed) {
                break;
            }
            packet[..NUMBER as usize].copy_from_slice(&number.to_be_bytes());
            sent.push(now);
            socket.send(&packet)?;
        }
        Ok(sent)
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

/// Receives until all has come, or nothing more is to be waited for.
fn receive(socket: &UdpSocket, room: u32, over: &OnceLock<Over>) -> io::Result<Vec<Arrival>> {
    let mut arrivals = Vec::with_capacity(room as usize);
    let mut packet = [0; 2048];
    loop {
        let received = socket.recv(&mut packet);
        let at = Instant::now();
        match received {
            Ok(length) => {
                let [a, b, c, d, ..] = packet;
                arrivals.push(Arrival {
                    number: u32::from_be_bytes([a, b, c, d]),
                    at,
                    ip_bytes: u32::try_from(length).unwrap_or(u32::MAX).saturating_add(HEADERS),
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

fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflows_are_found_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams \
                    RcvbufErrors SndbufErrors\nUdp: 10 0 7 12 7 0\nUdpLite: InDatagrams\nUdpLite: 0";
        assert_eq!(udp_overflows(snmp), 7);
        assert_eq!(udp_overflows(""), 0);
        assert_eq!(udp_overflows("Udp: InDatagrams\nUdp: 10"), 0);
    }

    #[test]
    fn a_packet_that_came_twice_is_not_two() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let arrival = |number, ms| Arrival { number, at: at(ms), ip_bytes: 32 };
        let seen = Seen {
            sent: vec![at(0), at(1), at(2)],
            arrivals: vec![arrival(2, 12), arrival(0, 13), arrival(2, 20), arrival(9, 20)],
            overflowed: 0,
        };
        let delays: Vec<_> = seen.delays().collect();
        assert_eq!(delays, [Some(0.013), None, Some(0.010)]);
        assert_eq!(seen.lost(), 1);
    }
}
