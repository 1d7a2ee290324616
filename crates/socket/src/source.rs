//! The address that a connection would come from, before there is one.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use lastbyte_sys::socket;

use crate::connect::ConnectOptions;

/// The address that a connection to `peer` would come from, by the kernel's choice of this moment;
/// `None` where no way leads there, or where the connection could not be opened for another reason
/// that is known before the first packet: an address family that the kernel does not have, a mark
/// without the right to set it, an interface that is gone.
///
/// It connects a UDP socket, for which the kernel looks the way up and sends nothing. The socket has
/// the mark and the interface of the connection, and its source address where one of the peer's
/// family is given, so that policy routing treats both alike; but not a rule that asks for TCP (`ip
/// rule ... ipproto tcp`). These are four system calls (socket, connect, getsockname, close), and one
/// for the mark, one for the interface and two for the source, where these are given.
#[must_use]
pub fn source_of(peer: SocketAddr, how: &ConnectOptions) -> Option<IpAddr> {
    // A UDP socket would take it.
    if peer.ip().is_multicast() {
        return None;
    }
    let mut sources = how.sources.iter();
    let given = sources.find(|source| source.is_ipv6() == peer.is_ipv6());
    if given.is_none() && !how.sources.is_empty() {
        return None;
    }
    let fd = socket::open_udp(peer).ok()?;
    if let Some(mark) = how.tune.mark {
        socket::set_mark(&fd, mark).ok()?;
    }
    if let Some(name) = &how.tune.interface {
        socket::set_interface(&fd, name).ok()?;
    }
    if let Some(source) = given {
        socket::bind(&fd, on_link_of(*source, peer)).ok()?;
    }
    socket::begin_connect(&fd, peer).ok()?;
    Some(socket::local_address(&fd).ok()??.ip())
}

/// A source address to bind to, with the peer's link, which a link-local one needs.
fn on_link_of(source: IpAddr, peer: SocketAddr) -> SocketAddr {
    match (source, peer) {
        (IpAddr::V6(source), SocketAddr::V6(peer)) => {
            SocketAddrV6::new(source, 0, 0, peer.scope_id()).into()
        }
        (source, _) => (source, 0).into(),
    }
}
