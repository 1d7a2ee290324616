//! Opening a connection to one address.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lastbyte_core::Kind;
use lastbyte_sys::{poll, socket, tcp};

use crate::address::Endpoints;
use crate::error::{Operation, SocketError};
use crate::options::ConnectOptions;
use crate::shared::{Shared, WriteSide};
use crate::source::{source_for, source_of};

/// A connection that is being opened: everything except the wait, for blocking and tokio streams
/// alike.
#[derive(Debug)]
pub(crate) struct Opening<'a, S: AsFd> {
    io: Unused<S>,
    kind: Kind,
    peer: SocketAddr,
    /// Our address, known once connected.
    local: Option<SocketAddr>,
    /// The rest of the early data, to be written before the connection is returned.
    early: &'a [u8],
    written: usize,
}

impl<'a> Opening<'a, TcpStream> {
    /// Opens a non-blocking socket, and has the kernel send a SYN.
    pub(crate) fn begin(peer: SocketAddr, how: &'a ConnectOptions) -> Result<Self, SocketError> {
        let failed = |cause| error(Operation::Connect, (None, peer), cause);
        let source = source_for(peer, how).map_err(failed)?;
        let (fd, kind) = open(peer, how.mptcp).map_err(failed)?;
        let io = Unused(Some(TcpStream::from(fd)));
        let mut opening = Self { io, kind, peer, local: None, early: &how.early, written: 0 };
        how.socket.apply(&opening.io)?;
        opening.settle(source)?;
        if how.any_port {
            let _ = socket::take_any_port(&opening.io);
        }
        if let Some(hops) = how.hop_limit {
            // An IPv4 destination may be IPv4-mapped.
            let ipv6 = peer.ip().to_canonical().is_ipv6();
            socket::set_hop_limit(&opening.io, ipv6, hops)
                .map_err(|cause| error(Operation::Set(hop_option(ipv6)), (source, peer), cause))?;
        }
        opening.send_syn(how).map_err(|cause| failed(opening.explained(cause)))?;
        Ok(opening)
    }

    /// Waits for the connection, and writes the early data.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), SocketError> {
        let timeout = timeout.unwrap_or(Duration::MAX);
        let began = Instant::now();
        let ready = self.wait_until_writable(began, timeout)?;
        self.on_writable(ready.ended)?;
        while !self.early.is_empty() {
            let rest = self.early;
            match socket::send_now(&self.io, rest) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_until_writable(began, timeout)?;
                }
                result => self.on_written(result)?,
            }
        }
        self.io.get().set_nonblocking(false).map_err(|cause| self.failed(cause))
    }

    fn wait_until_writable(
        &self,
        began: Instant,
        timeout: Duration,
    ) -> Result<poll::Ready, SocketError> {
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            match poll::wait_for(&self.io, poll::WRITABLE, left) {
                Ok(ready) if ready.writable => return Ok(ready),
                // A signal may have ended the wait.
                Ok(_) if began.elapsed() < timeout => {}
                Ok(_) => return Err(self.failed(io::ErrorKind::TimedOut.into())),
                Err(cause) => return Err(self.failed(cause)),
            }
        }
    }

    /// Sets what every connection needs, and binds the source address.
    fn settle(&self, source: Option<SocketAddr>) -> Result<(), SocketError> {
        let failed = |operation, cause| error(operation, (source, self.peer), cause);
        // MPTCP refuses it, and its byte count does not show a FIN anyway.
        if self.kind == Kind::Tcp {
            socket::set_oob_inline(&self.io, true)
                .map_err(|cause| failed(Operation::Set("SO_OOBINLINE"), cause))?;
        }
        let Some(source) = source else { return Ok(()) };
        // A kernel without this option picks a port at once, which works as long as ports are free.
        let _ = socket::leave_port_to_connect(&self.io);
        socket::bind_source(&self.io, source).map_err(|cause| failed(Operation::Bind, cause))
    }

    fn send_syn(&mut self, how: &ConnectOptions) -> io::Result<()> {
        for _ in 1..TRIES {
            match self.try_syn() {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                result => return result,
            }
        }
        self.try_syn().map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable if has_address(self.peer, how) => {
                io::Error::new(error.kind(), NO_PORT)
            }
            _ => error,
        })
    }

    /// Explains `EINVAL`, if the reason is known.
    fn explained(&self, error: io::Error) -> io::Error {
        match self.peer {
            SocketAddr::V6(peer)
                if error.kind() == io::ErrorKind::InvalidInput
                    && peer.ip().is_unicast_link_local()
                    && peer.scope_id() == 0 =>
            {
                let text = format!("{0} is link-local: name its interface, as {0}%eth0", peer.ip());
                io::Error::new(error.kind(), text)
            }
            _ => error,
        }
    }

    fn try_syn(&mut self) -> io::Result<()> {
        if !self.early.is_empty()
            && let Some(taken) = tcp::begin_connect_with(&self.io, self.peer, self.early)?
        {
            self.take(taken);
            return Ok(());
        }
        socket::begin_connect(&self.io, self.peer)
    }

    /// Replaces the socket by one registered with tokio.
    #[cfg(feature = "tokio")]
    pub(crate) fn map<T: AsFd>(
        self,
        make: impl FnOnce(TcpStream) -> io::Result<T>,
    ) -> Result<Opening<'a, T>, SocketError> {
        let Self { io, kind, peer, local, early, written } = self;
        let io = make(io.used()).map_err(|cause| error(Operation::Connect, (None, peer), cause))?;
        Ok(Opening { io: Unused(Some(io)), kind, peer, local, early, written })
    }
}

fn hop_option(ipv6: bool) -> &'static str {
    if ipv6 { "IPV6_UNICAST_HOPS" } else { "IP_TTL" }
}

/// How often to try a connect for which the kernel finds no local port. It skips ports that other
/// sockets are taking or releasing at that moment, more often so if few are free.
const TRIES: usize = 3;

const NO_PORT: &str = "all local ports to this destination are in use \
                       (net.ipv4.ip_local_port_range)";

impl<S: AsFd> Opening<'_, S> {
    /// The attempt is over: the socket is writable, or `failed`. Without a failure there is no
    /// error to read.
    pub(crate) fn on_writable(&mut self, failed: bool) -> Result<(), SocketError> {
        if failed {
            let error = socket::take_error(&self.io).map_err(|cause| self.failed(cause))?;
            return Err(self.failed(error.unwrap_or_else(|| io::ErrorKind::NotConnected.into())));
        }
        self.local = socket::local_address(&self.io).map_err(|cause| self.failed(cause))?;
        if self.local.is_some_and(|local| is_itself(local, self.peer)) {
            return Err(self.failed(io::Error::new(io::ErrorKind::ConnectionRefused, ITSELF)));
        }
        Ok(())
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn io(&self) -> &S {
        self.io.get()
    }

    /// What to write next.
    #[cfg(feature = "tokio")]
    pub(crate) fn early(&self) -> &[u8] {
        self.early
    }

    /// Records the result of a write of [`Opening::early`].
    pub(crate) fn on_written(&mut self, result: io::Result<usize>) -> Result<(), SocketError> {
        match result {
            Ok(taken) => self.take(taken),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(self.failed(cause)),
        }
        Ok(())
    }

    fn take(&mut self, taken: usize) {
        self.early = &self.early[taken..];
        self.written += taken;
    }

    pub(crate) fn failed(&self, cause: io::Error) -> SocketError {
        error(Operation::Connect, (self.local, self.peer), cause)
    }

    /// Returns the connection.
    pub(crate) fn connected(self) -> (Shared<S>, WriteSide) {
        let local = self.local.map(Into::into);
        let shared = Shared::new(self.io.used(), self.kind, true, Some(self.peer.into()));
        let writing = WriteSide { written: self.written as u64, ..WriteSide::default() };
        (Shared { local, ..shared }, writing)
    }
}

const ITSELF: &str = "no program listens there: the socket connected to itself";

/// Whether a connection has the same address at both ends. If no program listens on a port of the
/// ephemeral range, the kernel may choose that very port as the source, and the SYN reaches its own
/// socket (RFC 9293 section 3.5, simultaneous connection initiation).
fn is_itself(local: SocketAddr, peer: SocketAddr) -> bool {
    // Linux connects the unspecified address to this host, though RFC 1122 section 3.2.1.3 forbids
    // it.
    local.port() == peer.port() && (local.ip() == peer.ip() || peer.ip().is_unspecified())
}

/// A socket that has not been used yet. Dropping it resets the connection: if it has connected
/// meanwhile, the peer does not see a connection that ended cleanly, and nothing of it stays in the
/// kernel.
#[derive(Debug)]
struct Unused<S: AsFd>(Option<S>);

impl<S: AsFd> Unused<S> {
    fn get(&self) -> &S {
        self.0.as_ref().expect(THERE)
    }

    fn used(mut self) -> S {
        self.0.take().expect(THERE)
    }
}

/// Only `used` takes the socket out, and consumes the value.
const THERE: &str = "an unused socket is there";

impl<S: AsFd> AsFd for Unused<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}

impl<S: AsFd> Drop for Unused<S> {
    fn drop(&mut self) {
        if let Some(io) = &self.0 {
            // A closed connection needs no reset.
            let _ = socket::set_linger(io, Some(Duration::ZERO));
        }
    }
}

fn open(peer: SocketAddr, mptcp: bool) -> io::Result<(OwnedFd, Kind)> {
    if mptcp && let Some(fd) = socket::open_mptcp_nonblocking(peer)? {
        return Ok((fd, Kind::Mptcp));
    }
    Ok((socket::open_tcp_nonblocking(peer)?, Kind::Tcp))
}

/// Whether this host has an address to connect from. Over IPv6 the kernel returns `EADDRNOTAVAIL`
/// both for no address and for no free port; a UDP socket distinguishes them, as UDP has its own
/// ports.
fn has_address(peer: SocketAddr, how: &ConnectOptions) -> bool {
    peer.is_ipv4() || !how.sources.is_empty() || source_of(peer, how).is_some()
}

fn error(
    operation: Operation,
    (local, peer): (Option<SocketAddr>, SocketAddr),
    cause: io::Error,
) -> SocketError {
    let endpoints = Endpoints { local: local.map(Into::into), peer: Some(peer.into()) };
    SocketError::new(operation, endpoints, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_itself_has_the_same_address_and_port_at_both_ends() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (local, peer, itself) in [
            ("127.0.0.1:40000", "127.0.0.1:40000", true),
            ("127.0.0.1:40000", "0.0.0.0:40000", true),
            ("[::1]:40000", "[::]:40000", true),
            ("[fe80::1%2]:40000", "[fe80::1]:40000", true),
            ("127.0.0.1:40000", "127.0.0.1:40001", false),
            ("127.0.0.9:40000", "127.0.0.1:40000", false),
        ] {
            assert_eq!(is_itself(at(local), at(peer)), itself, "{local} -> {peer}");
        }
    }
}
