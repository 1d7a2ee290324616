//! What an observer saw. Rules know nothing else of the world, and a recording contains nothing
//! else.
//!
//! Every tier reports these events. A value that a tier cannot know is `None`, never zero. Times
//! are nanoseconds of `CLOCK_MONOTONIC`. Sequence numbers are TCP's own, 32 bits that wrap; both
//! ends of a connection use the same numbers.

use std::net::SocketAddr;

use lastbyte_core::sample::{State, TcpInfo};
use serde::{Deserialize, Serialize};

/// One event or observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// The observation begins: the first event.
    Began(Began),
    /// A process, when it first matters, and again when it runs another program.
    Process(Process),
    /// A process has ended, with all its threads.
    Exited {
        /// Which.
        pid: u32,
        /// How.
        ending: Ending,
    },
    /// A socket, when it first matters, and again when its addresses become known.
    Socket(Socket),
    /// A process holds a socket: it made it, uses it, or has it open.
    Holds {
        /// Which.
        socket: SocketId,
        /// Who.
        pid: u32,
        /// By which descriptor, if known.
        fd: Option<i32>,
    },
    /// A TCP connection changed its state.
    Changed(Changed),
    /// A reset was sent. Boxed: it is rare, and twice as large as any other event.
    ResetSent(Box<ResetSent>),
    /// A valid reset was received.
    ResetReceived {
        /// The socket that it ends.
        socket: SocketId,
        /// The counts just before.
        counts: Option<Counts>,
    },
    /// A segment was retransmitted.
    Retransmitted {
        /// By which.
        socket: SocketId,
        /// Why.
        why: Again,
        /// The number since the last such event of this socket and reason.
        segments: u32,
    },
    /// The kernel set an error on a socket.
    Failed {
        /// Which.
        socket: SocketId,
        /// `errno`, positive.
        errno: i32,
    },
    /// A call of `connect` failed at once, before anything was sent.
    NotConnected {
        /// Whose.
        pid: u32,
        /// Where to.
        peer: SocketAddr,
        /// `errno`, positive, such as `EADDRNOTAVAIL`.
        errno: i32,
    },
    /// The state of a socket at a moment.
    Sample(Box<Sample>),
    /// The last event of a socket: the kernel has destroyed it.
    Gone {
        /// Which.
        socket: SocketId,
        /// The counts at that moment.
        counts: Option<Counts>,
    },
    /// What a program did with a socket during an interval.
    Io(Io),
    /// System calls of one kind by one thread during an interval, if calls are traced.
    Calls(Calls),
    /// Waiting calls of one thread that returned with something ready, if calls are traced.
    Ready(Ready),
    /// A Unix socket was closed with unread bytes in it.
    UnixUnread {
        /// The process and thread that closed it.
        by: Actor,
        /// The number of bytes.
        bytes: u64,
        /// The precision of that number.
        #[serde(default, skip_serializing_if = "Precision::is_exact")]
        precision: Precision,
        /// The process that sent them, if known.
        sender: Option<u32>,
        /// The path or abstract name that one of the two ends is bound to, if known.
        path: Option<String>,
    },
    /// A thread kept a processor busy.
    Cpu(Cpu),
    /// Processor time that a process has used.
    Used(Used),
    /// A network namespace that is observed from now on.
    Network(Network),
    /// Counters of a network namespace that grew.
    Counters(Counters),
    /// Events that were dropped because they were not read in time.
    Dropped {
        /// The number of events.
        events: u64,
    },
    /// Time passes: ten times a second, so that rules can act when nothing happens.
    Tick,
}

/// How and what is observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Began {
    /// From where.
    pub tier: Tier,
    /// `uname -r`.
    pub kernel: String,
    /// What is in scope.
    pub scope: Scope,
    /// Whether system calls are traced all the time; `None`: in windows.
    pub calls: Option<bool>,
    /// Whether each loss is seen if no event is dropped; `None` in recordings without it: then the
    /// tier decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees_each_loss: Option<bool>,
}

/// How the observer observes. A higher tier knows everything that a lower one knows, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Socket tables and `/proc`, scanned ten times a second: needs no privileges.
    Procfs,
    /// Also the kernel's tracepoints as text, in a tracefs instance of its own.
    Tracefs,
    /// Also programs in the kernel (eBPF).
    Bpf,
}

impl Tier {
    /// The means, to end a sentence such as "watched for 2 s, ...".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Procfs => "by socket tables and /proc",
            Self::Tracefs => "by the kernel's tracepoints (tracefs)",
            Self::Bpf => "from within the kernel (eBPF)",
        }
    }

    /// Whether even the shortest connection is seen with its bytes. Tables show the sockets at the
    /// time of a scan; tracepoints show how a connection ended, but not its bytes.
    #[must_use]
    pub fn sees_short(self) -> bool {
        self == Self::Bpf
    }
}

/// What is in scope: findings are reported for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The whole machine.
    Machine,
    /// A process and all that it starts from now on.
    Process(u32),
    /// TCP connections with this port at either end.
    Port(u16),
}

/// A socket's cookie (`SO_COOKIE`), unique as long as this kernel runs. If the observer cannot know
/// the cookie, it assigns a number from 2^63 on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SocketId(pub u64);

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its PID in the observer's PID namespace.
    pub pid: u32,
    /// Its parent's PID.
    pub parent: u32,
    /// Its name (`comm`), up to 15 bytes of any value, converted to UTF-8.
    pub name: String,
    /// Its command line, arguments joined by spaces, truncated at 256 bytes; empty if unknown.
    pub command: String,
    /// Its user.
    pub user: Option<u32>,
    /// Its network namespace, an inode number.
    pub network: Option<u64>,
    /// Its container, as named by its control group: the first 12 digits of an id, or a name.
    pub container: Option<String>,
    /// The name that the runtime gives the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
}

/// A network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Its inode number.
    pub inode: u64,
    /// Its name, if it has one (`ip-netns(8)`).
    pub name: Option<String>,
    /// Whether it is the observer's own.
    pub is_own: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It returned or called `exit`, with this code.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// Not known.
    Unknown,
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Which.
    pub id: SocketId,
    /// Its own address. An IPv4 address that an IPv6 socket uses is given as IPv4, with `mapped`.
    pub local: SocketAddr,
    /// The peer's; port 0 if there is none.
    pub peer: SocketAddr,
    /// Whether it is an IPv6 socket of an IPv4 connection.
    #[serde(default)]
    pub mapped: bool,
    /// The inode number of its network namespace.
    pub network: Option<u64>,
    /// How it came to be.
    pub role: Role,
    /// Whether it is a subflow of an MPTCP connection (RFC 8684): its sequence numbers do not count
    /// the program's bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub subflow: bool,
    /// Whether it existed when the observation began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
}

/// The precision of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Exactly this number.
    #[default]
    Exact,
    /// At most this number.
    AtMost,
    /// At least this number.
    AtLeast,
    /// Possibly more or less.
    About,
}

impl Precision {
    /// From the evidence's `exact`. An unknown number is [`Self::AtLeast`], since it adds nothing
    /// to the sum.
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "yes" => Self::Exact,
            "at most" => Self::AtMost,
            "about" => Self::About,
            _ => Self::AtLeast,
        }
    }

    /// The precision of a sum: an upper and a lower bound together give no bound.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Exact, other) => other,
            (one, Self::Exact) => one,
            _ => Self::About,
        }
    }

    /// The words before the number, such as `at most `; empty if it is exact.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Exact => "",
            Self::AtMost => "at most ",
            Self::AtLeast => "at least ",
            Self::About => "about ",
        }
    }

    /// Whether the number is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

/// How a socket came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// By `connect`.
    Connected,
    /// By `accept`.
    Accepted,
    /// It listens.
    Listens,
    /// It existed before, or it is unknown.
    Unknown,
}

/// The process and thread that caused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How the process ended, if it acted by ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Which.
    pub socket: SocketId,
    /// From.
    #[serde(with = "state")]
    pub from: State,
    /// To.
    #[serde(with = "state")]
    pub to: State,
    /// What process caused it; `None` if a packet or timer did, or if unknown.
    pub by: Option<Actor>,
    /// The counts at that moment.
    pub counts: Option<Counts>,
    /// The socket's pending error, `errno`, positive; 0 if none.
    pub errno: i32,
    /// Whether the program still had it open.
    pub held: Option<bool>,
}

/// The progress of a connection: TCP's own variables at one moment (RFC 9293 section 3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// The number of the next byte that the program writes; our FIN, once queued, counts as a byte.
    pub write_seq: u32,
    /// SND.NXT: the next to be sent.
    pub snd_nxt: u32,
    /// SND.UNA: the first that is not acked.
    pub snd_una: u32,
    /// RCV.NXT: the next that is expected; the peer's FIN counts as a byte.
    pub rcv_nxt: u32,
    /// The next that the program will read.
    pub copied_seq: u32,
    /// As `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// As `tcpi_bytes_received`.
    pub bytes_received: u64,
    /// Smoothed round trip, microseconds; 0 if none was measured.
    pub rtt_us: u32,
    /// As `SO_BUF_LOCK`: 1 the send buffer is fixed, 2 the receive buffer.
    pub locks: u8,
    /// `sk_sndbuf`, bytes of memory.
    pub send_buffer: u32,
    /// `sk_rcvbuf`, bytes of memory.
    pub receive_buffer: u32,
}

impl Counts {
    /// Bytes written and not acked; our FIN counts as one.
    #[must_use]
    pub fn unacked(&self) -> u32 {
        distance(self.snd_una, self.write_seq)
    }

    /// Bytes written that were never sent; our FIN counts as one.
    #[must_use]
    pub fn unsent(&self) -> u32 {
        distance(self.snd_nxt, self.write_seq)
    }

    /// Bytes received that the program has not read; the peer's FIN counts as one.
    #[must_use]
    pub fn unread(&self) -> u32 {
        distance(self.copied_seq, self.rcv_nxt)
    }
}

/// The distance from one sequence number to a later one; 0 if it is not later (RFC 9293 section
/// 3.4).
#[must_use]
pub fn distance(from: u32, to: u32) -> u32 {
    let ahead = to.wrapping_sub(from);
    if ahead < 1 << 31 { ahead } else { 0 }
}

/// A reset that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetSent {
    /// The socket that sent it; `None` if it answers a packet for no socket.
    pub socket: Option<SocketId>,
    /// From.
    pub local: SocketAddr,
    /// To.
    pub peer: SocketAddr,
    /// The inode number of the network namespace, if known.
    pub network: Option<u64>,
    /// The kernel's name of its reason, such as `TCP_ABORT_ON_CLOSE` (`enum sk_rst_reason`); `None`
    /// before Linux 6.10.
    pub reason: Option<String>,
    /// Whether a program's call caused it; otherwise a packet or a timer did.
    pub active: bool,
    /// Who, if active.
    pub by: Option<Actor>,
    /// The counts at that moment.
    pub counts: Option<Counts>,
}

/// Why a segment was retransmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// Our SYN was not answered.
    Syn,
    /// Our SYN-ACK was not answered.
    SynAck,
    /// The retransmission timer expired (RFC 6298).
    TimeOut,
    /// Acknowledgements showed that it was lost (RFC 6675, RFC 8985).
    Loss,
}

/// The state of a socket, from `sock_diag`. A socket is sampled at every scan while bytes wait or
/// move, and once a second while nothing changes.
///
/// The last sample of a destroyed socket has its final values and the state CLOSE, also if it went
/// through TIME-WAIT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which.
    pub socket: SocketId,
    /// Its state.
    #[serde(with = "state")]
    pub state: State,
    /// Bytes not read, the peer's FIN as one; of a listening socket, connections not accepted.
    pub receive_queue: u32,
    /// Bytes not acked, our FIN as one; of a listening socket, the limit of its queue.
    pub send_queue: u32,
    /// The receive buffer, bytes of memory.
    pub receive_buffer: Option<u32>,
    /// The send buffer, bytes of memory.
    pub send_buffer: Option<u32>,
    /// Used part of the send buffer, bytes of memory.
    pub queued: Option<u32>,
    /// As `SO_BUF_LOCK`: 1 the send buffer is fixed by the program, 2 the receive buffer.
    pub locks: Option<u8>,
    /// Whether a program has it open.
    pub held: bool,
    /// The congestion control's name.
    pub congestion: Option<String>,
    /// `struct tcp_info`, as the kernel gave it.
    #[serde(default, skip_serializing_if = "Info::is_none")]
    pub info: Info,
}

/// `struct tcp_info` as the kernel's bytes; hexadecimal in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info(pub Option<Box<[u8]>>);

impl Info {
    /// The parsed structure; `None` if there is none, as for listening sockets.
    #[must_use]
    pub fn parse(&self) -> Option<TcpInfo> {
        TcpInfo::parse(self.0.as_deref()?)
    }

    fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// What one process did with a socket since the last such event of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Io {
    /// Which.
    pub socket: SocketId,
    /// Whose.
    pub pid: u32,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
    /// Calls that wrote bytes.
    pub writes: u64,
    /// The bytes of those.
    pub written_bytes: u64,
    /// Those calls that wrote at most 128 bytes.
    pub tiny_writes: u64,
    /// Calls that read bytes.
    pub reads: u64,
    /// The bytes of those.
    pub read_bytes: u64,
    /// Calls that failed with `EAGAIN`.
    pub not_now: u64,
    /// Writes whose last bytes Nagle's algorithm delayed because earlier ones were unacked (RFC
    /// 9293 section 3.7.4).
    pub held_back: u64,
    /// Total time that such bytes waited until the program continued, nanoseconds.
    pub held_back_ns: u64,
    /// Writes directly after a read: the number of answered requests, or of parts of one.
    #[serde(skip_serializing_if = "is_zero")]
    pub turns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// System calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calls {
    /// Whose.
    pub pid: u32,
    /// By which thread.
    pub tid: u32,
    /// Its name, such as `accept4` or `ioctl`; for an `ioctl` on a socket `ioctl:SIOCOUTQ` and so on.
    pub call: String,
    /// The descriptor, if it is the first argument.
    pub fd: Option<i32>,
    /// The socket of the descriptor, if known.
    pub socket: Option<SocketId>,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
    /// The number of calls.
    pub count: u64,
    /// The sum of their results without errors: bytes for calls that move bytes.
    pub returned: u64,
    /// Those that returned 0.
    pub zero: u64,
    /// Errors, `errno` positive, and how often.
    pub errors: Vec<(i32, u64)>,
    /// Total time between entry and return, nanoseconds.
    pub in_call_ns: u64,
    /// For `select` and `pselect6` the highest first argument (highest descriptor plus one); otherwise 0.
    pub highest: u64,
}

/// Waiting calls that returned with something ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// Whose.
    pub pid: u32,
    /// By which thread.
    pub tid: u32,
    /// Its name: `epoll_wait`, `poll`, `select` or a variant.
    pub call: String,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
    /// Calls that returned with something ready.
    pub count: u64,
    /// Those calls that returned at once, after which the thread did nothing to any descriptor (no
    /// read, write, accept, connect, close, shutdown, epoll_ctl) before it waited again.
    pub idle: u64,
    /// The descriptor most often ready in such calls, if known.
    pub fd: Option<i32>,
    /// Its socket, if known.
    pub socket: Option<SocketId>,
    /// Its readiness: bits of `poll(2)`, ORed over the idle calls.
    pub ready: u32,
}

/// A thread that used at least a fifth of a processor for about a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Whose.
    pub pid: u32,
    /// By which thread.
    pub tid: u32,
    /// Processor time in user mode, nanoseconds; the resolution is 10 ms.
    pub user_ns: u64,
    /// Processor time in the kernel: mostly its system calls.
    pub system_ns: u64,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
}

/// Processor time of a process since its last such event, or since it is observed: of all its
/// threads, also ended ones, and of no other process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Used {
    /// Whose.
    pub pid: u32,
    /// In user mode, nanoseconds; the resolution is 10 ms.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

/// Growth of the counters of a network namespace (`/proc/net/netstat`, `/proc/net/snmp`) since they
/// were read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// The inode number of the namespace.
    pub network: u64,
    /// `ListenOverflows`: connections that found the queue of a listening socket full.
    pub listen_overflows: u64,
    /// `ListenDrops`: SYNs that a listening socket dropped for any reason.
    pub listen_drops: u64,
    /// `TCPAbortOnClose`.
    pub aborts_on_close: u64,
    /// `TCPAbortOnData`.
    pub aborts_on_data: u64,
    /// `TCPAbortOnLinger`.
    pub aborts_on_linger: u64,
    /// `TCPAbortOnMemory`.
    pub aborts_on_memory: u64,
    /// `TCPAbortOnTimeout`.
    pub aborts_on_timeout: u64,
    /// `TCPTimeouts`: retransmission timers that expired.
    pub timeouts: u64,
    /// `TCPReqQFullDrop` and `TCPReqQFullDoCookies`: half-open connections beyond the limit.
    pub requests_full: u64,
    /// `EstabResets`: connections that were reset, by either end.
    pub established_resets: u64,
    /// `OutRsts`: resets that were sent.
    pub resets_sent: u64,
    /// `ActiveOpens`: calls of `connect` that sent a SYN.
    pub active_opens: u64,
    /// `PassiveOpens`: connections accepted by a listening socket.
    pub passive_opens: u64,
}

/// States by the standard's names, such as `FIN-WAIT-1`; an unknown state by its number.
mod state {
    use super::State;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(state: &State, to: S) -> Result<S::Ok, S::Error> {
        match (state.name(), state) {
            (Some(name), _) => to.serialize_str(name),
            (None, State::Other(number)) => to.serialize_str(&number.to_string()),
            (None, _) => to.serialize_str("0"),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<State, D::Error> {
        let text = String::deserialize(from)?;
        if let Some(state) = (1..=12).map(State::from).find(|state| state.name() == Some(&text)) {
            return Ok(state);
        }
        let number = text.parse::<u8>().map_err(serde::de::Error::custom)?;
        Ok(State::from(number))
    }
}

impl Serialize for Info {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use std::fmt::Write as _;
        let bytes = self.0.as_deref().unwrap_or_default();
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        to.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Info {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// Longer than any kernel's.
        const LONGEST: usize = 2 * 4096;
        let text = String::deserialize(from)?;
        if text.len() > LONGEST || text.len() % 2 != 0 || !text.is_ascii() {
            return Err(serde::de::Error::custom("no tcp_info in hexadecimal"));
        }
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16);
        let bytes: Result<Box<[u8]>, _> = (0..text.len()).step_by(2).map(byte).collect();
        Ok(Self(Some(bytes.map_err(serde::de::Error::custom)?)))
    }
}
