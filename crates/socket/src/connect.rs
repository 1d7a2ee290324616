//! Opening a connection to one address.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lastbyte_core::Kind;
use lastbyte_sys::{poll, socket, tcp};

use crate::address::Endpoints;
use crate::error::{Operation, SocketError};
use crate::options::SocketOptions;
use crate::shared::{Shared, WriteSide};
use crate::source::source_of;

/// How a connection is opened: all that must be settled before `connect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Options of the socket.
    pub socket: SocketOptions,
    /// How long to wait for the connection; `None`, the default, for as long as the kernel tries
    /// (`net.ipv4.tcp_syn_retries`: about two minutes).
    pub timeout: Option<Duration>,
    /// The addresses to connect from, at most one of each family; empty for the kernel's choice. If
    /// there are some, and none of the destination's family, it is not connected to.
    ///
    /// The port is left to the kernel, and need not be free of connections to other destinations
    /// (`IP_BIND_ADDRESS_NO_PORT`). A link-local address of IPv6 is used on the interface of the
    /// destination's scope or else on [`SocketOptions::interface`].
    pub sources: Vec<IpAddr>,
    /// Ask for multipath TCP (RFC 8684). Where this kernel or the peer has none, the connection is
    /// plain TCP: [`Granted::multipath`](crate::Granted::multipath) tells.
    ///
    /// The kernel sets fewer options of it, and less can be said of its bytes and its end: see
    /// [`Kind::Mptcp`]. An option of `socket` that it refuses is an error.
    pub mptcp: bool,
    /// How many hops its packets may take (`IP_TTL`, `IPV6_UNICAST_HOPS`), at least 1; `None` for the
    /// kernel's choice (`net.ipv4.ip_default_ttl`, 64).
    pub hop_limit: Option<u8>,
    /// Take any local port of the kernel's range (`IP_LOCAL_PORT_RANGE`, Linux 6.8), not the even ones
    /// as long as there are some: for those who open thousands of connections to one destination. With
    /// 15,000 just ended it saves a gate a sixth of the processor time of a connection. It is left out
    /// where the kernel has no such thing.
    pub any_port: bool,
    /// The first bytes to send, already with the SYN where the peer has allowed that before (TCP fast
    /// open, RFC 7413); otherwise as soon as the handshake is done. They may arrive twice, and in a
    /// dial with several attempts at several servers: only for what may be done twice.
    ///
    /// The connection is there when the handshake is done and the kernel has taken all of them; they
    /// count as written. [`Granted::fast_open`](crate::Granted::fast_open) tells how they went.
    pub early: Vec<u8>,
}

impl ConnectOptions {
    /// Sets the options of the [socket](field@Self::socket).
    #[must_use]
    pub fn socket(self, socket: SocketOptions) -> Self {
        Self { socket, ..self }
    }

    /// Limits how long to [wait](field@Self::timeout) for the connection.
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the addresses to connect [from](field@Self::sources).
    #[must_use]
    pub fn sources(self, sources: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { sources: sources.into_iter().collect(), ..self }
    }

    /// Whether to ask for [multipath TCP](field@Self::mptcp).
    #[must_use]
    pub fn mptcp(self, mptcp: bool) -> Self {
        Self { mptcp, ..self }
    }

    /// Limits how many [hops](field@Self::hop_limit) its packets may take.
    #[must_use]
    pub fn hop_limit(self, hops: u8) -> Self {
        Self { hop_limit: Some(hops), ..self }
    }

    /// Whether to take [any local port](field@Self::any_port).
    #[must_use]
    pub fn any_port(self, any_port: bool) -> Self {
        Self { any_port, ..self }
    }

    /// Sets the [first bytes](field@Self::early) to send.
    #[must_use]
    pub fn early(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { early: bytes.into(), ..self }
    }
}

/// A connection that is being opened: what both faces do, but for the waiting.
#[derive(Debug)]
pub(crate) struct Opening<'a, S: AsFd> {
    io: Unused<S>,
    kind: Kind,
    peer: SocketAddr,
    /// Our own address, known once it is connected.
    local: Option<SocketAddr>,
    /// What is still to be written before the connection is handed out.
    early: &'a [u8],
    written: usize,
}

impl<'a> Opening<'a, TcpStream> {
    /// Opens a socket on which no call waits, and has the kernel send a SYN.
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
            // An IPv4 destination may be written as one of IPv6.
            let ipv6 = peer.ip().to_canonical().is_ipv6();
            socket::set_hop_limit(&opening.io, ipv6, hops)
                .map_err(|cause| error(Operation::Set(hop_option(ipv6)), (source, peer), cause))?;
        }
        opening.send_syn(how).map_err(|cause| failed(opening.explained(cause)))?;
        Ok(opening)
    }

    /// Waits for the connection, and writes what is to be written first.
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

    /// Settles what no option of the caller says.
    fn settle(&self, source: Option<SocketAddr>) -> Result<(), SocketError> {
        let failed = |operation, cause| error(operation, (source, self.peer), cause);
        // MPTCP refuses it, and its count tells nothing anyway.
        if self.kind == Kind::Tcp {
            socket::set_oob_inline(&self.io, true)
                .map_err(|cause| failed(Operation::Set("SO_OOBINLINE"), cause))?;
        }
        let Some(source) = source else { return Ok(()) };
        // A kernel that does not know it takes a port at once, which is as good while there are some.
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

    /// What the kernel calls an invalid argument, where that is known.
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

    /// Exchanges the socket for one that is watched.
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

/// How often a connect is tried for which the kernel finds no local port: it passes over ports that
/// others are just taking or giving back, and more so where few are free.
const TRIES: usize = 3;

const NO_PORT: &str = "all local ports to this destination are in use \
                       (net.ipv4.ip_local_port_range)";

impl<S: AsFd> Opening<'_, S> {
    /// The socket is writable, or `failed`: the attempt is over. Where it has not failed there is
    /// nothing to ask the kernel about that.
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

    /// What is to be written next.
    #[cfg(feature = "tokio")]
    pub(crate) fn early(&self) -> &[u8] {
        self.early
    }

    /// Enters a write of [`Opening::early`].
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

    /// Hands the connection out.
    pub(crate) fn connected(self) -> (Shared<S>, WriteSide) {
        let local = self.local.map(Into::into);
        let shared = Shared::new(self.io.used(), self.kind, true, Some(self.peer.into()));
        let writing = WriteSide { written: self.written as u64, ..WriteSide::default() };
        (Shared { local, ..shared }, writing)
    }
}

const ITSELF: &str = "nobody listens there: the connection met itself";

/// Whether a connection has the same address at both ends. Where nobody listens on a port of the
/// range that the kernel chooses from, it may choose just that one, and the SYN meets itself
/// (RFC 9293 section 3.5, simultaneous connection initiation).
fn is_itself(local: SocketAddr, peer: SocketAddr) -> bool {
    // To the unspecified address is to ourselves (RFC 1122 section 3.2.1.3 forbids it, Linux does it).
    local.port() == peer.port() && (local.ip() == peer.ip() || peer.ip().is_unspecified())
}

/// A socket that nobody has used yet. Dropped as that it is reset: if it has connected meanwhile, its
/// peer shall not see a connection that came and ended well, and nothing of it stays in the kernel.
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

/// Only `used` takes it out, and then nothing is left to ask.
const THERE: &str = "an unused socket is there";

impl<S: AsFd> AsFd for Unused<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}

impl<S: AsFd> Drop for Unused<S> {
    fn drop(&mut self) {
        if let Some(io) = &self.0 {
            // A socket that is gone already needs no reset.
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

/// The address to bind to for a destination; `None` for the kernel's choice.
pub(crate) fn source_for(peer: SocketAddr, how: &ConnectOptions) -> io::Result<Option<SocketAddr>> {
    if how.sources.is_empty() {
        return Ok(None);
    }
    // An IPv4 destination may be written as one of IPv6 (RFC 4291 section 2.5.5.2).
    let wants_v4 = peer.ip().to_canonical().is_ipv4();
    let mut sources = how.sources.iter().map(IpAddr::to_canonical);
    let Some(source) = sources.find(|source| source.is_ipv4() == wants_v4) else {
        let family = if wants_v4 { "IPv4" } else { "IPv6" };
        let text = format!("none of the source addresses is of {family}");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    };
    Ok(Some(match (source, peer) {
        (IpAddr::V4(source), SocketAddr::V4(_)) => (source, 0).into(),
        (IpAddr::V4(source), SocketAddr::V6(_)) => (source.to_ipv6_mapped(), 0).into(),
        (IpAddr::V6(source), _) => {
            SocketAddrV6::new(source, 0, 0, scope_of(source, peer, how)?).into()
        }
    }))
}

/// The scope of a source address: that of a link-local one is its interface (RFC 4007), and 0 leaves
/// it to the interface that the socket is bound to.
fn scope_of(source: Ipv6Addr, peer: SocketAddr, how: &ConnectOptions) -> io::Result<u32> {
    if !source.is_unicast_link_local() {
        return Ok(0);
    }
    match peer {
        SocketAddr::V6(peer) if peer.scope_id() != 0 => Ok(peer.scope_id()),
        _ if how.socket.interface.as_ref().is_some_and(|name| !name.is_empty()) => Ok(0),
        _ => {
            let text = format!("the source address {source} is link-local: name its interface");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// Whether this host has an address to connect from. Over IPv6 the kernel says of both, no address
/// and no port, `EADDRNOTAVAIL`; a UDP socket has ports of its own.
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

    #[test]
    fn the_source_is_that_of_the_family_and_of_the_scope() {
        let sources = ["192.0.2.1", "fe80::1"].map(|text| text.parse().unwrap()).to_vec();
        let mut how = ConnectOptions::default().sources(sources);
        let source = |how: &ConnectOptions, peer: &str| {
            source_for(peer.parse().unwrap(), how).ok().flatten().map(|from| from.to_string())
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(source(&how, "198.51.100.1:80"), text("192.0.2.1:0"));
        assert_eq!(source(&how, "[::ffff:198.51.100.1]:80"), text("[::ffff:192.0.2.1]:0"));
        assert_eq!(source(&how, "[fe80::2%7]:80"), text("[fe80::1%7]:0"));
        assert_eq!(source(&how, "[2001:db8::2]:80"), None, "on which interface?");
        how.socket.interface = Some("path0".to_owned());
        assert_eq!(source(&how, "[2001:db8::2]:80"), text("[fe80::1]:0"));
        how.sources.clear();
        assert_eq!(source_for("192.0.2.1:80".parse().unwrap(), &how).unwrap(), None);
    }
}
