//! Echo requests through an ICMP socket, stamped as they leave and as their replies arrive.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastbyte_sys::{icmp, poll, process, socket};

use super::echo::Dialect;
use super::seen::{Reply, Seen};
use super::{LATE, Load, PATIENCE, RecordError};

/// How often a receiver without packets looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Asked for at the receiver: a thousand full packets that wait while the thread does not run.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// Longer than any packet that is answered here.
const ROOM: usize = 2048;
/// As many replies are kept to each request: a host that repeats itself for ever fills no memory.
const MOST_COPIES: usize = 4;
/// As many packets are taken before the receiver looks whether it is over.
const AT_ONCE: u32 = 1000;
/// How often a request is tried where the network refused an earlier one.
const TRIES: u32 = 3;
/// How long to wait where this machine had no room for a packet.
const ROOM_WITHIN: Duration = Duration::from_millis(1);

/// An ICMP socket towards one host.
#[derive(Debug)]
pub(super) struct Prober {
    socket: OwnedFd,
    dialect: Dialect,
    start: Instant,
    /// The number of the next request.
    next: u32,
    /// Packets that found no room in the socket so far.
    overflowed: u32,
    longest: Duration,
}

/// What the sender tells the receiver when it has sent all.
#[derive(Clone, Copy, Debug)]
struct Over {
    sent: usize,
    at: Duration,
}

/// What a receiver heard.
#[derive(Debug, Default)]
struct Heard {
    replies: Vec<Reply>,
    overflowed: u32,
    complaint: Option<String>,
}

impl Prober {
    /// Opens a socket: a datagram one where that is allowed, otherwise a raw one.
    pub(super) fn open(to: SocketAddr) -> Result<Self, RecordError> {
        let (socket, raw) = match icmp::open(to, icmp::Kind::Datagram) {
            Ok(socket) => (socket, false),
            Err(_) => (icmp::open(to, icmp::Kind::Raw).map_err(RecordError::at_open)?, true),
        };
        icmp::connect(&socket, to).map_err(|cause| RecordError::at_connect(to, cause))?;
        let prepare = || {
            icmp::stamp_arrivals(&socket)?;
            icmp::count_overflows(&socket)?;
            // Without the right to more, as much as the kernel lets anybody have.
            socket::force_receive_buffer(&socket, RECEIVE_BUFFER)
                .or_else(|_| socket::set_receive_buffer(&socket, RECEIVE_BUFFER))
        };
        prepare().map_err(RecordError::at("preparing an ICMP socket"))?;
        // The standard library's hasher is seeded by the system's chance.
        let cookie = RandomState::new().hash_one(process_number());
        let [a, b, ..] = cookie.to_be_bytes();
        let id = u16::from_be_bytes([a, b]);
        let dialect = Dialect { v6: to.is_ipv6(), raw, id, cookie };
        let (next, overflowed, longest) = (0, 0, Duration::ZERO);
        Ok(Self { socket, dialect, start: Instant::now(), next, overflowed, longest })
    }

    /// The shortest request, as an IP packet.
    pub(super) fn shortest(&self) -> u32 {
        self.dialect.shortest()
    }

    /// Sends requests and waits for the replies.
    pub(super) fn exchange(&mut self, load: &Load) -> Result<Seen, RecordError> {
        let first = self.next;
        let (over, answered) = (OnceLock::new(), AtomicBool::new(false));
        let this = &*self;
        let (sent, heard) = thread::scope(|scope| {
            let receiver = scope.spawn(|| this.receive(load, first, (&over, &answered)));
            let sender = scope.spawn(|| this.send(load, first, &answered));
            let sent = sender.join();
            // Before all else: without it the receiver would not end.
            let count = sent.as_ref().ok().and_then(|sent| sent.as_ref().ok());
            let count = count.map_or(0, |seen| seen.sent.len());
            let _ = over.set(Over { sent: count, at: this.start.elapsed() });
            let heard = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), heard)
        });
        let mut seen = sent.map_err(RecordError::at("sending echo requests"))?;
        let heard = heard.map_err(RecordError::at("receiving echo replies"))?;
        seen.replies = heard.replies;
        seen.overflowed = u64::from(heard.overflowed.saturating_sub(self.overflowed));
        seen.complaint = seen.complaint.or(heard.complaint);
        self.overflowed = self.overflowed.max(heard.overflowed);
        self.next = first.saturating_add(u32::try_from(seen.sent.len()).unwrap_or(u32::MAX));
        let trips = seen.round_trips().into_iter().flatten();
        self.longest = self.longest.max(Duration::from_secs_f64(trips.fold(0.0, f64::max)));
        Ok(seen)
    }

    fn send(&self, load: &Load, first: u32, answered: &AtomicBool) -> io::Result<Seen> {
        process::exact_timers()?;
        hurry();
        let mut seen = Seen { ip_bytes: load.ip_bytes, ..Seen::default() };
        seen.sent.reserve(load.packets as usize);
        let mut request = self.dialect.request(load.ip_bytes);
        let start = self.start.elapsed();
        let mut due = start;
        // Twice as many tries: this machine may have no room for some.
        for _ in 0..load.packets.saturating_mul(2) {
            let place = u32::try_from(seen.sent.len()).unwrap_or(u32::MAX);
            let mut now = self.start.elapsed();
            if now < due {
                thread::sleep(due - now);
                now = self.start.elapsed();
            }
            let is_silent = !answered.load(Ordering::Relaxed);
            if place >= load.packets || (is_silent && now.saturating_sub(start) > load.give_up) {
                break;
            }
            // A sender that was late goes on from there, unless it is to keep a rate up.
            due = if load.catch_up { due + load.every } else { now.max(due + load.every) };
            let packet = request.numbered(first.wrapping_add(place));
            match self.send_one(packet, &mut seen.complaint)? {
                Sending::Sent => seen.sent.push(now),
                Sending::NoRoom => thread::sleep(ROOM_WITHIN),
                Sending::TooLong => break,
            }
        }
        Ok(seen)
    }

    /// Sends one request.
    fn send_one(&self, packet: &[u8], complaint: &mut Option<String>) -> io::Result<Sending> {
        for _ in 0..TRIES {
            let Err(error) = icmp::send(&self.socket, packet) else { return Ok(Sending::Sent) };
            match Refusal::of(&error) {
                Refusal::TooLong => return Ok(Sending::TooLong),
                Refusal::NoRoom => return Ok(Sending::NoRoom),
                // What an earlier request met: this one has not been sent yet.
                Refusal::Network => *complaint = Some(error.to_string()),
                Refusal::Failed => return Err(error),
            }
        }
        // The network takes none: as good as lost.
        Ok(Sending::Sent)
    }

    /// Receives until all has come, or nothing more is to be waited for.
    fn receive(
        &self,
        load: &Load,
        first: u32,
        (over, answered): (&OnceLock<Over>, &AtomicBool),
    ) -> io::Result<Heard> {
        hurry();
        let mut heard = Heard { overflowed: self.overflowed, ..Heard::default() };
        let mut came = vec![false; load.packets as usize];
        let (mut distinct, mut last, mut gap) = (0, Duration::ZERO, Duration::ZERO);
        loop {
            poll::wait([(&self.socket, poll::READABLE)], Some(LOOK_EVERY))?;
            let mut all_there = true;
            for _ in 0..AT_ONCE {
                let Some(reply) = self.take(&mut heard)? else { break };
                all_there = false;
                let place = reply.number.wrapping_sub(first);
                let Some(came) = came.get_mut(place as usize) else { continue };
                if heard.replies.len() < load.packets as usize * MOST_COPIES {
                    heard.replies.push(Reply { number: place, ..reply });
                }
                gap = if distinct == 0 { gap } else { gap.max(reply.at.saturating_sub(last)) };
                distinct += usize::from(!*came);
                *came = true;
                last = reply.at;
                answered.store(true, Ordering::Relaxed);
            }
            let Some(over) = over.get() else { continue };
            let is_known = distinct > 1 && !self.longest.is_zero();
            let patience =
                if is_known { LATE.max(self.longest * 3 / 2 + gap * 3) } else { PATIENCE };
            let quiet = self.start.elapsed().saturating_sub(last.max(over.at));
            // Copies come right behind.
            let all = distinct >= over.sent && all_there;
            if (all && quiet > LOOK_EVERY / 2) || quiet > patience {
                return Ok(heard);
            }
        }
    }

    /// The next reply that is there; `None` when none is.
    fn take(&self, heard: &mut Heard) -> io::Result<Option<Reply>> {
        let mut packet = [0; ROOM];
        for _ in 0..AT_ONCE {
            let received = match icmp::receive(&self.socket, &mut packet) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => match Refusal::of(&error) {
                    Refusal::Failed => return Err(error),
                    Refusal::TooLong => continue,
                    Refusal::Network | Refusal::NoRoom => {
                        heard.complaint = Some(error.to_string());
                        continue;
                    }
                },
            };
            heard.overflowed = heard.overflowed.max(received.overflowed.unwrap_or_default());
            let at = self.arrival(received.stamp);
            if let Some(parsed) = self.dialect.parse(&packet[..received.bytes.min(ROOM)]) {
                return Ok(Some(Reply { number: parsed.number, at, ip_bytes: parsed.ip_bytes }));
            }
        }
        Ok(None)
    }

    /// When a packet came, by the clock of the sender: that of the stamp may be set meanwhile, so only
    /// the stamp's age is used.
    fn arrival(&self, stamp: Option<Duration>) -> Duration {
        let (now, clock) = (self.start.elapsed(), SystemTime::now());
        let clock = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = stamp.and_then(|stamp| clock.checked_sub(stamp));
        // Older than that it is a clock that was set, no packet that waited.
        let age = age.filter(|age| *age < Duration::from_secs(1)).unwrap_or_default();
        now.saturating_sub(age)
    }
}

/// Lets a thread go before ordinary ones: so little is sent that nobody has to wait for it, and each
/// microsecond of its own lateness counts.
fn hurry() {
    // Without the right to it the probe is later, and its figure says so.
    let _ = process::before_ordinary_threads();
}

fn process_number() -> u32 {
    std::process::id()
}

/// What became of a request here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Sent,
    /// This machine had no room for it.
    NoRoom,
    /// It is known not to fit the path.
    TooLong,
}

/// What an error number says about a request.
enum Refusal {
    TooLong,
    NoRoom,
    Network,
    Failed,
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match (error.kind(), error.raw_os_error()) {
            // EMSGSIZE, ENOBUFS.
            (_, Some(90)) => Self::TooLong,
            (Kind::WouldBlock, _) | (_, Some(105)) => Self::NoRoom,
            (Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable, _) => {
                Self::Network
            }
            // EHOSTDOWN, EPROTO, EOPNOTSUPP, ENOPROTOOPT, EACCES: what ICMP errors become.
            (_, Some(112 | 71 | 95 | 92 | 13)) => Self::Network,
            _ => Self::Failed,
        }
    }
}
