//! The address that a connection would come from, before there is one.

use std::net::{IpAddr, SocketAddr};

use lastbyte_sys::socket;

use crate::connect::{ConnectOptions, source_for};

/// The address that a connection to `peer` would come from, by the kernel's choice of this moment;
/// `None` where no way leads there, or where the connection could not be opened for another reason
/// that is known before the first packet: an address family that the kernel does not have, a mark
/// without the right to set it, an interface that is gone.
///
/// It connects a UDP socket, for which the kernel looks the way up and sends nothing. The socket has
/// the mark and the interface of the connection, and its source address where one of the peer's
/// family is given, so that policy routing treats both alike; but not a rule that asks for TCP (`ip
/// rule ... ipproto tcp`). These are four system calls (socket, connect, getsockname, close), and one
/// each for the mark, the interface and the source, where these are given.
#[must_use]
pub fn source_of(peer: SocketAddr, how: &ConnectOptions) -> Option<IpAddr> {
    // A UDP socket would take it.
    if peer.ip().is_multicast() {
        return None;
    }
    let given = source_for(peer, how).ok()?;
    let fd = socket::open_udp(peer).ok()?;
    if let Some(mark) = how.socket.mark {
        socket::set_mark(&fd, mark).ok()?;
    }
    if let Some(name) = &how.socket.interface {
        socket::set_interface(&fd, name).ok()?;
    }
    if let Some(source) = given {
        socket::bind_source(&fd, source).ok()?;
    }
    socket::begin_connect(&fd, peer).ok()?;
    Some(socket::local_address(&fd).ok()??.ip())
}
