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

use super::echo::EchoFormat;
use super::observed::{Observed, Reply};
use super::{LATE, Load, PATIENCE, RecordError};

/// How often a receiver without packets checks whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The receive buffer asked for: room for a thousand full packets while the thread does not run.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// The longest packet that is received, in bytes: more than any request.
const LONGEST: usize = 2048;
/// The most replies that are kept for each request: a host that repeats them for ever fills no memory.
const MOST_COPIES: usize = 4;
/// How many packets are taken before the receiver checks whether it is done.
const AT_ONCE: u32 = 1000;
/// How often a request is sent again where the error of an earlier one was reported instead.
const TRIES: u32 = 3;
/// How long to wait after this machine had no room for a packet.
const NO_ROOM_WAIT: Duration = Duration::from_millis(1);

/// An ICMP socket connected to one host.
#[derive(Debug)]
pub(super) struct Prober {
    socket: OwnedFd,
    format: EchoFormat,
    start: Instant,
    /// The number of the next request.
    next: u32,
    /// Packets so far for which the socket had no room.
    overflowed: u32,
    longest: Duration,
}

/// What the sender tells the receiver when it has sent all.
#[derive(Clone, Copy, Debug)]
struct AllSent {
    packets: usize,
    at: Duration,
}

/// What a receiver got.
#[derive(Debug, Default)]
struct Received {
    replies: Vec<Reply>,
    overflowed: u32,
    network_error: Option<String>,
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
            // Without the privilege for more, as much as the kernel allows everyone.
            socket::force_receive_buffer(&socket, RECEIVE_BUFFER)
                .or_else(|_| socket::set_receive_buffer(&socket, RECEIVE_BUFFER))
        };
        prepare().map_err(RecordError::at("preparing an ICMP socket"))?;
        // The standard library's hasher has a random seed.
        let cookie = RandomState::new().hash_one(process_number());
        let [a, b, ..] = cookie.to_be_bytes();
        let id = u16::from_be_bytes([a, b]);
        let format = EchoFormat { v6: to.is_ipv6(), raw, id, cookie };
        let (next, overflowed, longest) = (0, 0, Duration::ZERO);
        Ok(Self { socket, format, start: Instant::now(), next, overflowed, longest })
    }

    /// The shortest request, as an IP packet.
    pub(super) fn shortest(&self) -> u32 {
        self.format.shortest()
    }

    /// Sends requests and waits for the replies.
    pub(super) fn exchange(&mut self, load: &Load) -> Result<Observed, RecordError> {
        let first = self.next;
        let (all_sent, answered) = (OnceLock::new(), AtomicBool::new(false));
        let this = &*self;
        let (sent, received) = thread::scope(|scope| {
            let receiver = scope.spawn(|| this.receive(load, first, (&all_sent, &answered)));
            let sender = scope.spawn(|| this.send(load, first, &answered));
            let sent = sender.join();
            // First of all, as without it the receiver would never end.
            let count = sent.as_ref().ok().and_then(|sent| sent.as_ref().ok());
            let count = count.map_or(0, |seen| seen.sent.len());
            let _ = all_sent.set(AllSent { packets: count, at: this.start.elapsed() });
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), received)
        });
        let mut seen = sent.map_err(RecordError::at("sending echo requests"))?;
        let received = received.map_err(RecordError::at("receiving echo replies"))?;
        seen.replies = received.replies;
        seen.overflowed = u64::from(received.overflowed.saturating_sub(self.overflowed));
        seen.network_error = seen.network_error.or(received.network_error);
        self.overflowed = self.overflowed.max(received.overflowed);
        self.next = first.saturating_add(u32::try_from(seen.sent.len()).unwrap_or(u32::MAX));
        let trips = seen.round_trips().into_iter().flatten();
        self.longest = self.longest.max(Duration::from_secs_f64(trips.fold(0.0, f64::max)));
        Ok(seen)
    }

    fn send(&self, load: &Load, first: u32, answered: &AtomicBool) -> io::Result<Observed> {
        process::exact_timers()?;
        raise_priority();
        let mut seen = Observed { ip_bytes: load.ip_bytes, ..Observed::default() };
        seen.sent.reserve(load.packets as usize);
        let mut request = self.format.request(load.ip_bytes);
        let start = self.start.elapsed();
        let mut due = start;
        // Twice as many tries, because this machine may have no room for some.
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
            // A late sender goes on from there, unless it is to keep a rate.
            due = if load.catch_up { due + load.every } else { now.max(due + load.every) };
            let packet = request.numbered(first.wrapping_add(place));
            match self.send_one(packet, &mut seen.network_error)? {
                Sending::Sent => seen.sent.push(now),
                Sending::NoRoom => thread::sleep(NO_ROOM_WAIT),
                Sending::TooLong => break,
            }
        }
        Ok(seen)
    }

    /// Sends one request.
    fn send_one(&self, packet: &[u8], network_error: &mut Option<String>) -> io::Result<Sending> {
        for _ in 0..TRIES {
            let Err(error) = icmp::send(&self.socket, packet) else { return Ok(Sending::Sent) };
            match Refusal::of(&error) {
                Refusal::TooLong => return Ok(Sending::TooLong),
                Refusal::NoRoom => return Ok(Sending::NoRoom),
                // The error of an earlier request: this one has not been sent yet.
                Refusal::Network => *network_error = Some(error.to_string()),
                Refusal::Failed => return Err(error),
            }
        }
        // The network takes none: it counts as lost.
        Ok(Sending::Sent)
    }

    /// Receives until all replies have arrived, or no more are to be expected.
    fn receive(
        &self,
        load: &Load,
        first: u32,
        (all_sent, answered): (&OnceLock<AllSent>, &AtomicBool),
    ) -> io::Result<Received> {
        raise_priority();
        let mut received = Received { overflowed: self.overflowed, ..Received::default() };
        let mut came = vec![false; load.packets as usize];
        let (mut distinct, mut last, mut gap) = (0, Duration::ZERO, Duration::ZERO);
        loop {
            poll::wait([(&self.socket, poll::READABLE)], Some(LOOK_EVERY))?;
            let mut all_there = true;
            for _ in 0..AT_ONCE {
                let Some(reply) = self.take(&mut received)? else { break };
                all_there = false;
                let place = reply.number.wrapping_sub(first);
                let Some(came) = came.get_mut(place as usize) else { continue };
                if received.replies.len() < load.packets as usize * MOST_COPIES {
                    received.replies.push(Reply { number: place, ..reply });
                }
                gap = if distinct == 0 { gap } else { gap.max(reply.at.saturating_sub(last)) };
                distinct += usize::from(!*came);
                *came = true;
                last = reply.at;
                answered.store(true, Ordering::Relaxed);
            }
            let Some(all_sent) = all_sent.get() else { continue };
            let is_known = distinct > 1 && !self.longest.is_zero();
            let patience =
                if is_known { LATE.max(self.longest * 3 / 2 + gap * 3) } else { PATIENCE };
            let quiet = self.start.elapsed().saturating_sub(last.max(all_sent.at));
            // Duplicates follow at once.
            let all = distinct >= all_sent.packets && all_there;
            if (all && quiet > LOOK_EVERY / 2) || quiet > patience {
                return Ok(received);
            }
        }
    }

    /// The next reply; `None` if none has arrived.
    fn take(&self, received: &mut Received) -> io::Result<Option<Reply>> {
        let mut packet = [0; LONGEST];
        for _ in 0..AT_ONCE {
            let message = match icmp::receive(&self.socket, &mut packet) {
                Ok(message) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => match Refusal::of(&error) {
                    Refusal::Failed => return Err(error),
                    Refusal::TooLong => continue,
                    Refusal::Network | Refusal::NoRoom => {
                        received.network_error = Some(error.to_string());
                        continue;
                    }
                },
            };
            received.overflowed = received.overflowed.max(message.overflowed.unwrap_or_default());
            let at = self.arrival(message.stamp);
            if let Some(parsed) = self.format.parse(&packet[..message.bytes.min(LONGEST)]) {
                return Ok(Some(Reply { number: parsed.number, at, ip_bytes: parsed.ip_bytes }));
            }
        }
        Ok(None)
    }

    /// When a packet arrived, by the monotonic clock of the sender. The clock of the time stamp may be
    /// set meanwhile, so that only the age of the stamp is used.
    fn arrival(&self, stamp: Option<Duration>) -> Duration {
        let (now, clock) = (self.start.elapsed(), SystemTime::now());
        let clock = clock.duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = stamp.and_then(|stamp| clock.checked_sub(stamp));
        // A stamp older than that means that the clock was set, not that the packet waited.
        let age = age.filter(|age| *age < Duration::from_secs(1)).unwrap_or_default();
        now.saturating_sub(age)
    }
}

/// Lets a thread run before ordinary ones: so little is sent that no other program has to wait for it,
/// and each microsecond of lateness counts.
fn raise_priority() {
    // Without the privilege the probe is later, and its figure says so.
    let _ = process::before_ordinary_threads();
}

fn process_number() -> u32 {
    std::process::id()
}

/// What this machine did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Sent,
    /// This machine had no room for it.
    NoRoom,
    /// It is longer than the known MTU of the path.
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
