//! What an observer saw: the only thing that rules know of the world, and what a recording holds.
//!
//! Every tier speaks these words. What a tier cannot know is `None`, never zero. Times are nanoseconds
//! of `CLOCK_MONOTONIC`; sequence numbers are TCP's own, 32 bits that wrap, and of both ends of one
//! connection they are the same numbers.

use std::net::SocketAddr;

use lastbyte_core::sample::{State, TcpInfo};
use serde::{Deserialize, Serialize};

/// One thing that happened, or was seen to be so.
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
    /// Watching begins: the first event.
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
    /// A socket, when it first matters, and again when its addresses came to be known.
    Socket(Socket),
    /// A process holds a socket: it made it, uses it, or has it open.
    Holds {
        /// Which.
        socket: SocketId,
        /// Who.
        pid: u32,
        /// By which descriptor, where known.
        fd: Option<i32>,
    },
    /// A TCP connection changed its state.
    Changed(Changed),
    /// A reset was sent. In a box: it is rare, and twice as large as any other.
    ResetSent(Box<ResetSent>),
    /// A reset came, and was believed.
    ResetReceived {
        /// The socket that it ends.
        socket: SocketId,
        /// As it was just before.
        counts: Option<Counts>,
    },
    /// A segment was sent again.
    Retransmitted {
        /// By which.
        socket: SocketId,
        /// Why.
        why: Again,
        /// So many since the last such event of this socket and reason.
        segments: u32,
    },
    /// The kernel gave a socket an error, for the program to find.
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
    /// What a socket looks like at a moment.
    Sample(Box<Sample>),
    /// The last of a socket: the kernel has forgotten it.
    Gone {
        /// Which.
        socket: SocketId,
        /// As it was then.
        counts: Option<Counts>,
    },
    /// What a program did with a socket in a time.
    Io(Io),
    /// System calls of one kind by one thread in a time, where calls are traced.
    Calls(Calls),
    /// Waiting calls of one thread that came back with something ready, where calls are traced.
    Ready(Ready),
    /// A Unix socket was closed with bytes in it that nobody had read.
    UnixUnread {
        /// Who closed it.
        by: Actor,
        /// The bytes.
        bytes: u64,
        /// How well that number is known.
        #[serde(default, skip_serializing_if = "Precision::is_exact")]
        precision: Precision,
        /// Who had sent them, where known.
        sender: Option<u32>,
        /// The path or abstract name that one of both ends is bound to, where known.
        path: Option<String>,
    },
    /// A thread kept a processor busy.
    Cpu(Cpu),
    /// Processor time that a process has used.
    Used(Used),
    /// A network namespace that is looked into from now on.
    Network(Network),
    /// Counters of a network namespace that grew.
    Counters(Counters),
    /// Events that were dropped because nobody took them in time.
    Dropped {
        /// So many.
        events: u64,
    },
    /// Time passes: ten times a second, so that rules can look at what does not happen.
    Tick,
}

/// How and what is watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Began {
    /// From where.
    pub tier: Tier,
    /// `uname -r`.
    pub kernel: String,
    /// What is asked about.
    pub scope: Scope,
    /// Whether system calls are traced all the time; `None`: in windows.
    pub calls: Option<bool>,
    /// Whether each loss is seen, if no event is dropped; `None` in recordings that do not say so: as the
    /// tier does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees_each_loss: Option<bool>,
}

/// From where is watched. A higher one knows all that a lower one knows, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Tables of sockets and `/proc`, looked at ten times a second: needs no rights.
    Procfs,
    /// Those and the kernel's trace points as text, in a tracefs instance of its own.
    Tracefs,
    /// Those and programs in the kernel (eBPF).
    Bpf,
}

impl Tier {
    /// From where, as the end of a sentence that says that something is watched.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Procfs => "by tables of sockets and /proc",
            Self::Tracefs => "by the kernel's trace points (tracefs)",
            Self::Bpf => "from within the kernel (eBPF)",
        }
    }

    /// Whether no connection is too short-lived to be seen with its bytes. Tables show what there is at a
    /// look; trace points tell how one ended, and not what was in it.
    #[must_use]
    pub fn sees_short(self) -> bool {
        self == Self::Bpf
    }
}

/// What is asked about: findings are given for these alone.
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

/// A socket for as long as this kernel runs: its cookie (`SO_COOKIE`), which is never given twice. An
/// observer that cannot know cookies makes numbers of its own, from 2^63 on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SocketId(pub u64);

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number in our PID namespace.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// What it calls itself, 15 bytes: any bytes, made UTF-8.
    pub name: String,
    /// Its command line, the words joined by spaces, cut at 256 bytes; empty where it is not known.
    pub command: String,
    /// Its user.
    pub user: Option<u32>,
    /// Its network namespace, an inode number.
    pub network: Option<u64>,
    /// The container that it is in, as its control group names it: the first 12 digits of an id, or a
    /// name.
    pub container: Option<String>,
    /// What its runtime calls the container beside the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
}

/// A network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Its inode number.
    pub inode: u64,
    /// Its name, where it has one (`ip-netns(8)`).
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
    /// The peer's; port 0 where there is none.
    pub peer: SocketAddr,
    /// Whether it is an IPv6 socket that speaks IPv4.
    #[serde(default)]
    pub mapped: bool,
    /// The inode number of its network namespace.
    pub network: Option<u64>,
    /// How it came to be.
    pub role: Role,
    /// Whether it is a subflow of an MPTCP connection (RFC 8684): its numbers are not those of what the
    /// program wrote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub subflow: bool,
    /// Whether it was there when watching began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
}

/// How well a number is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// It is that.
    #[default]
    Exact,
    /// It is no more.
    AtMost,
    /// It is no less.
    AtLeast,
    /// It may be more, or less.
    About,
}

impl Precision {
    /// As the evidence says it (`exact`); of a number that is not known at all, [`Self::AtLeast`], as
    /// nothing is counted of it.
    pub(crate) fn of_word(word: &str) -> Self {
        match word {
            "yes" => Self::Exact,
            "at most" => Self::AtMost,
            "about" => Self::About,
            _ => Self::AtLeast,
        }
    }

    /// Of a sum: what is bounded on both sides is bounded on none.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Exact, other) => other,
            (one, Self::Exact) => one,
            _ => Self::About,
        }
    }

    /// Before the number: `at most `; nothing where it is exact.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Exact => "",
            Self::AtMost => "at most ",
            Self::AtLeast => "at least ",
            Self::About => "about ",
        }
    }

    /// Whether it is just that number.
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
    /// It was there before.
    Unknown,
}

/// Who did something: the process and thread that the kernel worked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Set if it did so by ending.
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
    /// Who caused it; `None` where a packet or a timer did, or it is not known.
    pub by: Option<Actor>,
    /// What stood where, just then.
    pub counts: Option<Counts>,
    /// The socket's pending error, `errno`, positive; 0 if none.
    pub errno: i32,
    /// Whether the program still had it open.
    pub held: Option<bool>,
}

/// How far a connection is: TCP's own numbers at one moment (RFC 9293 section 3.3.1).
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
    /// Smoothed round trip, microseconds; 0 where none was measured.
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

/// From one sequence number up to a later one; 0 where it is not later (RFC 9293 section 3.4).
#[must_use]
pub fn distance(from: u32, to: u32) -> u32 {
    let ahead = to.wrapping_sub(from);
    if ahead < 1 << 31 { ahead } else { 0 }
}

/// A reset that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetSent {
    /// By which socket; `None` where the packet that it answers met none.
    pub socket: Option<SocketId>,
    /// From.
    pub local: SocketAddr,
    /// To.
    pub peer: SocketAddr,
    /// The inode number of the network namespace, where known.
    pub network: Option<u64>,
    /// The kernel's name of its reason, such as `TCP_ABORT_ON_CLOSE` (`enum sk_rst_reason`); `None`
    /// before Linux 6.10.
    pub reason: Option<String>,
    /// Whether a program's call caused it; otherwise it answers a packet, or a timer sent it.
    pub active: bool,
    /// Who, if active.
    pub by: Option<Actor>,
    /// As it was just then.
    pub counts: Option<Counts>,
}

/// Why a segment was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// Our SYN was not answered.
    Syn,
    /// Our answer to a SYN was not.
    SynAck,
    /// The retransmission timer ran out (RFC 6298).
    TimeOut,
    /// Acks said that it was lost (RFC 6675, RFC 8985).
    Loss,
}

/// What a socket looks like: a `sock_diag` answer. It is told at every look while bytes wait or move, and
/// once a second of a socket of which nothing changes.
///
/// The last of a socket that the kernel has forgotten, with its last numbers, has the state CLOSE: however
/// it got there, by TIME-WAIT too.
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
    /// Of the send buffer in use, bytes of memory.
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

/// `struct tcp_info` as bytes, of the length that the kernel gave; hexadecimal in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info(pub Option<Box<[u8]>>);

impl Info {
    /// What it says; `None` where there is none, as of listening sockets.
    #[must_use]
    pub fn parse(&self) -> Option<TcpInfo> {
        TcpInfo::parse(self.0.as_deref()?)
    }

    fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// What one process did with a socket since the last such event of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Io {
    /// Which.
    pub socket: SocketId,
    /// Whose.
    pub pid: u32,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
    /// Calls that gave bytes to the kernel.
    pub writes: u64,
    /// The bytes of those.
    pub written_bytes: u64,
    /// Of those calls such with at most 128 bytes.
    pub tiny_writes: u64,
    /// Calls that took bytes.
    pub reads: u64,
    /// The bytes of those.
    pub read_bytes: u64,
    /// Calls that found no room or no bytes (`EAGAIN`).
    pub not_now: u64,
    /// Writes whose last bytes were held back because earlier ones were not acked (Nagle, RFC 9293
    /// section 3.7.4).
    pub held_back: u64,
    /// For how long in all such bytes waited until the program went on, nanoseconds.
    pub held_back_ns: u64,
    /// Writes that came after a read, with no other write between: so many questions were answered, or
    /// so many parts of one.
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
    /// On which descriptor, where it has one as its first argument.
    pub fd: Option<i32>,
    /// The socket behind the descriptor, where known.
    pub socket: Option<SocketId>,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
    /// So many calls.
    pub count: u64,
    /// The sum of what they returned, where that was not an error: bytes for those that move bytes.
    pub returned: u64,
    /// Those that returned 0.
    pub zero: u64,
    /// Errors, `errno` positive, and how often.
    pub errors: Vec<(i32, u64)>,
    /// The time between entry and return in all, nanoseconds.
    pub in_call_ns: u64,
    /// For `select` and `pselect6` the highest first argument (highest descriptor plus one); otherwise 0.
    pub highest: u64,
}

/// Waiting calls that came back with something ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// Whose.
    pub pid: u32,
    /// By which thread.
    pub tid: u32,
    /// Its name: `epoll_wait`, `poll`, `select` and their kin.
    pub call: String,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
    /// Calls that came back with something ready.
    pub count: u64,
    /// Of those such that came back at once and after which the thread did nothing to any descriptor
    /// (no read, write, accept, connect, close, shutdown, epoll_ctl) before it waited again.
    pub idle: u64,
    /// The descriptor that was ready in such calls most often, where known.
    pub fd: Option<i32>,
    /// The socket behind it, where known.
    pub socket: Option<SocketId>,
    /// What of it was ready: bits of `poll(2)`, ored over the idle calls.
    pub ready: u32,
}

/// A thread that used at least a fifth of a processor over a time, about a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Whose.
    pub pid: u32,
    /// By which thread.
    pub tid: u32,
    /// Processor time outside of the kernel, nanoseconds; to a hundredth of a second.
    pub user_ns: u64,
    /// In the kernel: mostly its system calls.
    pub system_ns: u64,
    /// The time that it covers, nanoseconds.
    pub over_ns: u64,
}

/// Processor time that a process has used since the last such event of it, or since it is watched: all its
/// threads, also those that have ended, and no other process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Used {
    /// Whose.
    pub pid: u32,
    /// Outside of the kernel, nanoseconds; to a hundredth of a second.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

/// Counters of a network namespace (`/proc/net/netstat`, `/proc/net/snmp`) since the last look.
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
    /// `TCPTimeouts`: retransmission timers that ran out.
    pub timeouts: u64,
    /// `TCPReqQFullDrop` and `TCPReqQFullDoCookies`: half-open connections that found no room.
    pub requests_full: u64,
    /// `EstabResets`: connections that were reset, by either end.
    pub established_resets: u64,
    /// `OutRsts`: resets that were sent.
    pub resets_sent: u64,
    /// `ActiveOpens`: calls of `connect` that sent a SYN.
    pub active_opens: u64,
    /// `PassiveOpens`: SYNs that a listening socket took.
    pub passive_opens: u64,
}

/// States by the standard's names, such as `FIN-WAIT-1`; an unknown one by its number.
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
        /// More than any kernel gives.
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
