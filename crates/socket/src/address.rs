//! The standard library's sockets that a stream can use, and their addresses.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use lastbyte_core::Kind;
use lastbyte_sys::socket;
use lastbyte_sys::watch::OwnsDescriptor;

/// A connected stream socket of the standard library, TCP or Unix. Other crates cannot implement
/// this trait.
pub trait Socket:
    AsFd + OwnsDescriptor + fmt::Debug + Send + Sync + Sized + Unpin + sealed::Sealed + 'static
{
    #[doc(hidden)]
    const KIND: Kind;
    /// The listener that accepts these sockets.
    type Listener: AsFd + OwnsDescriptor + fmt::Debug + Send + Sync + Unpin + 'static;

    #[doc(hidden)]
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;
    #[doc(hidden)]
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;
    #[doc(hidden)]
    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    #[doc(hidden)]
    fn accept(listener: &Self::Listener) -> io::Result<(Self, Option<Address>)>;
    #[doc(hidden)]
    fn set_listener_nonblocking(listener: &Self::Listener, on: bool) -> io::Result<()>;
    #[doc(hidden)]
    fn local(&self) -> Option<Address>;
    #[doc(hidden)]
    fn peer(&self) -> Option<Address>;
    #[doc(hidden)]
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    #[doc(hidden)]
    fn set_timeouts(&self, read: bool, timeout: Option<Duration>) -> io::Result<()>;
}

mod sealed {
    #[allow(unnameable_types, reason = "a sealed trait cannot be named")]
    pub trait Sealed {}
    impl Sealed for std::net::TcpStream {}
    impl Sealed for std::os::unix::net::UnixStream {}
}

/// The standard library's two sockets have the same methods but no common trait.
macro_rules! socket {
    ($stream:ty, $listener:ty, $kind:expr, $address:path) => {
        impl Socket for $stream {
            const KIND: Kind = $kind;
            type Listener = $listener;

            fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
                (&mut &*self).read(buffer)
            }

            fn send(&self, bytes: &[u8]) -> io::Result<usize> {
                (&mut &*self).write(bytes)
            }

            fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                (&mut &*self).write_vectored(parts)
            }

            fn accept(listener: &$listener) -> io::Result<(Self, Option<Address>)> {
                let (stream, peer) = listener.accept()?;
                Ok((stream, Some($address(peer))))
            }

            fn set_listener_nonblocking(listener: &$listener, on: bool) -> io::Result<()> {
                listener.set_nonblocking(on)
            }

            fn local(&self) -> Option<Address> {
                self.local_addr().ok().map($address)
            }

            fn peer(&self) -> Option<Address> {
                self.peer_addr().ok().map($address)
            }

            fn set_nonblocking(&self, on: bool) -> io::Result<()> {
                <$stream>::set_nonblocking(self, on)
            }

            fn set_timeouts(&self, read: bool, timeout: Option<Duration>) -> io::Result<()> {
                if read { self.set_read_timeout(timeout) } else { self.set_write_timeout(timeout) }
            }
        }
    };
}

socket!(TcpStream, TcpListener, Kind::Tcp, Address::Ip);
socket!(UnixStream, UnixListener, Kind::Unix, unix_address);

/// The kind of a connected socket.
pub(crate) fn kind_of(fd: &impl AsFd) -> io::Result<Kind> {
    Ok(match (socket::family(fd)?, socket::protocol(fd)?) {
        (socket::FAMILY_UNIX, _) => Kind::Unix,
        (socket::FAMILY_IPV4 | socket::FAMILY_IPV6, socket::PROTOCOL_TCP) => Kind::Tcp,
        (socket::FAMILY_IPV4 | socket::FAMILY_IPV6, socket::PROTOCOL_MPTCP) => Kind::Mptcp,
        _ => Kind::Other,
    })
}

/// The address of a socket, or of its peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An internet address and port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Path(PathBuf),
    /// The name of a Unix socket in the abstract namespace, without the leading NUL.
    Abstract(Vec<u8>),
    /// A Unix socket that was not bound, such as a client's.
    Unnamed,
}

pub(crate) fn unix_address(address: UnixAddr) -> Address {
    if let Some(path) = address.as_pathname() {
        Address::Path(path.to_owned())
    } else if let Some(name) = address.as_abstract_name() {
        Address::Abstract(name.to_owned())
    } else {
        Address::Unnamed
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl Address {
    /// The internet address, if it is one.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Path(_) | Self::Abstract(_) | Self::Unnamed => None,
        }
    }
}

/// In the notation of `ss` and `/proc/net/unix`, with control characters escaped.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Path(path) => write!(f, "{}", path.to_string_lossy().escape_debug()),
            Self::Abstract(name) => write!(f, "@{}", name.escape_ascii()),
            Self::Unnamed => f.write_str("(unnamed)"),
        }
    }
}

/// Both addresses of a connection, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Our address.
    pub local: Option<Address>,
    /// The peer's address.
    pub peer: Option<Address>,
}

/// Begins with a space, to follow a word.
impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.local, &self.peer) {
            (Some(local), Some(peer)) => write!(f, " {local} -> {peer}"),
            (None, Some(peer)) => write!(f, " -> {peer}"),
            (Some(local), None) => write!(f, " {local}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_without_control_characters() {
        assert_eq!(Address::Ip(([192, 0, 2, 1], 80).into()).to_string(), "192.0.2.1:80");
        assert_eq!(Address::Path("/run/a\u{1b}[31m".into()).to_string(), "/run/a\\u{1b}[31m");
        assert_eq!(Address::Abstract(b"bus\0x".to_vec()).to_string(), "@bus\\x00x");
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(Socket::peer(&near), Some(Address::Unnamed));
        assert_eq!(kind_of(&far).unwrap(), Kind::Unix);
    }
}
