//! The enums of the C interface, as numbers and as text.

use std::ffi::{CStr, c_char, c_int};

use lastbyte::{Delivery, PeerEnd, Unproven};

/// How far all bytes of a connection are known to have come. A greater number is stronger.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing was done: the descriptor is no connected stream socket, or the options are wrong.
    None = 0,
    /// The local kernel accepted the bytes: `write` returned. They may still be discarded.
    Written = 1,
    /// They left the send queue for the device at least once. They may still be lost.
    Sent = 2,
    /// The peer's kernel acknowledged them. Its program may not have read them.
    Acked = 3,
    /// Acked, and the peer's FIN came after ours was acknowledged. It does not prove that the
    /// peer's program read anything: the program may have half-closed early, or be a proxy.
    Closed = 4,
    /// The peer's program confirmed them. TCP cannot prove that: a finish that wants it fails once
    /// everything else is proven.
    Confirmed = 5,
}

/// How the peer's direction had ended when a finish ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Its stream ended, and how is not known; or nothing was done.
    Unknown = 0,
    /// It was still connected and had not ended its direction.
    Open = 1,
    /// It ended its direction with a FIN.
    Fin = 2,
    /// It reset the connection, or our kernel gave it up.
    Reset = 3,
    /// It did not end its direction before the deadline.
    Silent = 4,
}

/// Why a finish could not prove the wanted level. In brackets: `errno`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was proven (0).
    Proven = 0,
    /// The deadline passed first (ETIMEDOUT).
    Deadline = 1,
    /// The peer reset the connection, or our kernel gave it up (ECONNRESET).
    Reset = 2,
    /// The connection was closed or never established, so no FIN could be queued (ENOTCONN).
    NotConnected = 3,
    /// `LB_LEVEL_CLOSED` was wanted, and the peer ended its direction before it acknowledged our
    /// FIN: its FIN proves nothing about our bytes (EPROTO).
    EarlyFin = 4,
    /// The kernel cannot prove the level (EOPNOTSUPP): MPTCP and vsock count nothing, no transport
    /// has `LB_LEVEL_CONFIRMED`, and `LB_LEVEL_CLOSED` needs `bytes_read`. All steps were taken
    /// that prevent a loss.
    Unknowable = 5,
    /// The kernel refused a system call that should succeed on every connection (the kernel's
    /// `errno`).
    Refused = 6,
    /// Nothing was done: no such descriptor is open (EBADF).
    NotOpen = 7,
    /// Nothing was done: the descriptor is a file, a pipe or something else, not a socket
    /// (ENOTSOCK).
    NoSocket = 8,
    /// Nothing was done: a datagram socket has no stream to end (EPROTOTYPE).
    NoStream = 9,
    /// Nothing was done: a listening socket, which has no peer (EINVAL).
    Listening = 10,
    /// Nothing was done: the options are invalid (EINVAL).
    BadOptions = 11,
}

/// How a stream ended that was read to its end.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not known.
    Unknown = 0,
    /// The peer ended its direction with a FIN after the last byte that was read.
    Fin = 1,
    /// The connection was reset: bytes may be missing, even if the end looked clean.
    Reset = 2,
}

/// Which addresses to dial, or which one was.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Both, as the network has them; of a connection: there is none.
    Both = 0,
    /// IPv4 alone.
    Ipv4 = 4,
    /// IPv6 alone.
    Ipv6 = 6,
}

/// What resolves the addresses of a name.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBy {
    /// The DNS servers of `/etc/resolv.conf`, for both families at once, by this library; names of
    /// `/etc/hosts` come first.
    Dns = 0,
    /// `getaddrinfo`, in a thread: for names that only `/etc/nsswitch.conf` leads to.
    System = 1,
}

/// Why a dial did not connect. In brackets: `errno`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undialed {
    /// It did (0).
    Connected = 0,
    /// Nothing was done: the host can be none (EINVAL), or is NULL (EFAULT).
    BadHost = 1,
    /// Nothing was done: port 0 (EINVAL).
    BadPort = 2,
    /// Nothing was done: the options make no sense (EINVAL).
    BadOptions = 3,
    /// Nothing was done: the system's configuration of DNS cannot be used (EIO).
    NoResolver = 4,
    /// Nothing was done: no descriptor or memory is left to wait with (the kernel's own number).
    NoEvents = 5,
    /// The name has no address (ENOENT).
    NoAddress = 6,
    /// Nobody could say whether the name has an address: later somebody may (EAGAIN).
    NoAnswer = 7,
    /// Every attempt failed (the kernel's own number for the first of them).
    AllFailed = 8,
    /// The time passed first (ETIMEDOUT).
    TimedOut = 9,
    /// A bug in this library (ENOTRECOVERABLE).
    Broken = 10,
}

/// The name of an `enum lb_level`, such as "acked"; "invalid" for any other number. Never NULL; not
/// to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lb_level_name(level: c_int) -> *const c_char {
    Level::numbered(level).map_or(INVALID, Level::name).as_ptr()
}

/// The name of an `enum lb_peer`, such as "FIN"; "invalid" for any other number. Never NULL; not to
/// be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lb_peer_name(peer: c_int) -> *const c_char {
    Peer::numbered(peer).map_or(INVALID, Peer::name).as_ptr()
}

/// The text of an `enum lb_why`, such as "the deadline passed"; "invalid" for any other number.
/// Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lb_why_name(why: c_int) -> *const c_char {
    Why::numbered(why).map_or(INVALID, Why::name).as_ptr()
}

/// The name of an `enum lb_end`, such as "RST"; "invalid" for any other number. Never NULL; not to
/// be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lb_end_name(end: c_int) -> *const c_char {
    End::numbered(end).map_or(INVALID, End::name).as_ptr()
}

/// The text of an `enum lb_undialed`, such as "the name has no address"; "invalid" for any other
/// number. Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lb_undialed_name(why: c_int) -> *const c_char {
    Undialed::numbered(why).map_or(INVALID, Undialed::name).as_ptr()
}

const INVALID: &CStr = c"invalid";

impl Level {
    const ALL: [Self; 6] =
        [Self::None, Self::Written, Self::Sent, Self::Acked, Self::Closed, Self::Confirmed];

    pub(crate) fn numbered(number: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|level| *level as c_int == number)
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::None => c"none",
            Self::Written => c"written",
            Self::Sent => c"sent",
            Self::Acked => c"acked",
            Self::Closed => c"closed",
            Self::Confirmed => c"confirmed",
        }
    }

    /// The same in Rust, which has no level for nothing.
    pub(crate) fn delivery(self) -> Option<Delivery> {
        match self {
            Self::None => None,
            Self::Written => Some(Delivery::Written),
            Self::Sent => Some(Delivery::Sent),
            Self::Acked => Some(Delivery::Acked),
            Self::Closed => Some(Delivery::Closed),
            Self::Confirmed => Some(Delivery::Confirmed),
        }
    }
}

impl From<Delivery> for Level {
    fn from(level: Delivery) -> Self {
        match level {
            Delivery::Written => Self::Written,
            Delivery::Sent => Self::Sent,
            Delivery::Acked => Self::Acked,
            Delivery::Closed => Self::Closed,
            Delivery::Confirmed => Self::Confirmed,
        }
    }
}

impl Peer {
    const ALL: [Self; 5] = [Self::Unknown, Self::Open, Self::Fin, Self::Reset, Self::Silent];

    pub(crate) fn numbered(number: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| *peer as c_int == number)
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::Unknown => c"unknown",
            Self::Open => c"open",
            Self::Fin => c"FIN",
            Self::Reset => c"RST",
            Self::Silent => c"silence",
        }
    }

    /// The same in Rust.
    pub(crate) fn end(self) -> PeerEnd {
        match self {
            Self::Unknown => PeerEnd::Unknown,
            Self::Open => PeerEnd::Open,
            Self::Fin => PeerEnd::Fin,
            Self::Reset => PeerEnd::Reset,
            Self::Silent => PeerEnd::Silent,
        }
    }
}

impl From<PeerEnd> for Peer {
    fn from(end: PeerEnd) -> Self {
        match end {
            PeerEnd::Open => Self::Open,
            PeerEnd::Fin => Self::Fin,
            PeerEnd::Reset => Self::Reset,
            PeerEnd::Silent => Self::Silent,
            _ => Self::Unknown,
        }
    }
}

impl Why {
    const ALL: [Self; 12] = [
        Self::Proven,
        Self::Deadline,
        Self::Reset,
        Self::NotConnected,
        Self::EarlyFin,
        Self::Unknowable,
        Self::Refused,
        Self::NotOpen,
        Self::NoSocket,
        Self::NoStream,
        Self::Listening,
        Self::BadOptions,
    ];

    pub(crate) fn numbered(number: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|why| *why as c_int == number)
    }

    pub(crate) fn name(self) -> &'static CStr {
        match self {
            Self::Proven => c"proven",
            Self::Deadline => c"the deadline passed",
            Self::Reset => c"the connection was reset",
            Self::NotConnected => c"the socket was not connected",
            Self::EarlyFin => c"the peer's FIN came before ours was acknowledged",
            Self::Unknowable => c"the kernel cannot prove this level for this kind of socket",
            Self::Refused => c"a system call failed",
            Self::NotOpen => c"the descriptor is not open",
            Self::NoSocket => c"the descriptor is not a socket",
            Self::NoStream => c"the socket is not a stream socket",
            Self::Listening => c"the socket is listening and has no peer",
            Self::BadOptions => c"the options are invalid",
        }
    }

    /// Nothing was done, so that no level was reached.
    pub(crate) fn refused_the_descriptor(self) -> bool {
        matches!(self, Self::NotOpen | Self::NoSocket | Self::NoStream | Self::Listening)
    }
}

impl From<Unproven> for Why {
    fn from(why: Unproven) -> Self {
        match why {
            Unproven::Deadline => Self::Deadline,
            Unproven::Reset => Self::Reset,
            Unproven::NotConnected => Self::NotConnected,
            Unproven::EarlyFin => Self::EarlyFin,
            Unproven::Unknowable => Self::Unknowable,
            Unproven::NotOpen => Self::NotOpen,
            Unproven::NoSocket => Self::NoSocket,
            Unproven::NoStream => Self::NoStream,
            Unproven::Listening => Self::Listening,
            _ => Self::Refused,
        }
    }
}

impl End {
    const ALL: [Self; 3] = [Self::Unknown, Self::Fin, Self::Reset];

    fn numbered(number: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|end| *end as c_int == number)
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::Unknown => c"unknown",
            Self::Fin => c"FIN",
            Self::Reset => c"RST",
        }
    }
}

impl From<lastbyte::End> for End {
    fn from(end: lastbyte::End) -> Self {
        match end {
            lastbyte::End::Fin => Self::Fin,
            lastbyte::End::Reset => Self::Reset,
            // `Truncated` is said of layers above, which a descriptor does not have.
            _ => Self::Unknown,
        }
    }
}

impl Family {
    pub(crate) fn numbered(number: c_int) -> Option<Self> {
        [Self::Both, Self::Ipv4, Self::Ipv6].into_iter().find(|one| *one as c_int == number)
    }
}

impl ResolvedBy {
    pub(crate) fn numbered(number: c_int) -> Option<Self> {
        [Self::Dns, Self::System].into_iter().find(|one| *one as c_int == number)
    }
}

impl Undialed {
    const ALL: [Self; 11] = [
        Self::Connected,
        Self::BadHost,
        Self::BadPort,
        Self::BadOptions,
        Self::NoResolver,
        Self::NoEvents,
        Self::NoAddress,
        Self::NoAnswer,
        Self::AllFailed,
        Self::TimedOut,
        Self::Broken,
    ];

    fn numbered(number: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|why| *why as c_int == number)
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::Connected => c"connected",
            Self::BadHost => c"this can be no host",
            Self::BadPort => c"port 0 cannot be connected to",
            Self::BadOptions => c"the options are invalid",
            Self::NoResolver => c"the DNS configuration of the system cannot be used",
            Self::NoEvents => c"no descriptor or memory is left to wait with",
            Self::NoAddress => c"the name has no address",
            Self::NoAnswer => c"no server could say whether the name has an address",
            Self::AllFailed => c"no address connected",
            Self::TimedOut => c"the deadline passed",
            Self::Broken => c"a bug in liblastbyte",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_library() {
        for level in Level::ALL {
            let Some(same) = level.delivery() else { continue };
            assert_eq!(level.name().to_str().unwrap(), same.to_string());
            assert_eq!(Level::from(same), level);
        }
        for peer in Peer::ALL {
            assert_eq!(peer.name().to_str().unwrap(), peer.end().to_string());
            assert_eq!(Peer::from(peer.end()), peer);
        }
        for end in [lastbyte::End::Fin, lastbyte::End::Reset, lastbyte::End::Unknown] {
            assert_eq!(End::from(end).name().to_str().unwrap(), end.to_string());
        }
        for why in [
            Unproven::Deadline,
            Unproven::Reset,
            Unproven::NotConnected,
            Unproven::EarlyFin,
            Unproven::Unknowable,
            Unproven::Refused,
            Unproven::NotOpen,
            Unproven::NoSocket,
            Unproven::NoStream,
            Unproven::Listening,
        ] {
            assert_eq!(Why::from(why).name().to_str().unwrap(), why.to_string());
        }
    }

    #[test]
    fn numbers_from_c_are_looked_at() {
        assert_eq!(Level::numbered(3), Some(Level::Acked));
        assert_eq!(Level::numbered(6), None);
        assert_eq!(Peer::numbered(-1), None);
        assert_eq!(Why::numbered(11), Some(Why::BadOptions));
        assert_eq!(Why::numbered(12), None);
        assert_eq!(End::numbered(c_int::MIN), None);
        assert_eq!(Family::numbered(5), None);
        assert_eq!(ResolvedBy::numbered(2), None);
        for why in Undialed::ALL {
            assert_eq!(Undialed::numbered(why as c_int), Some(why));
            assert_ne!(why.name(), INVALID);
        }
        let levels = [lb_level_name(99), lb_peer_name(99), lb_why_name(-1), lb_end_name(3)];
        for name in levels.into_iter().chain([lb_undialed_name(11)]) {
            assert_eq!(name, INVALID.as_ptr());
        }
    }
}
