//! The source address of a connection, before there is one.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use lastbyte_sys::socket;

use crate::options::ConnectOptions;

/// The source address that the kernel would choose now for a connection to `peer`. `None` if there
/// is no route, or if opening would fail before the first packet: an address family that the kernel
/// does not have, a mark without the privilege to set it, an interface that is gone.
///
/// It connects a UDP socket: the kernel looks up the route and sends nothing. The socket gets the
/// connection's mark and interface, and its source address if one of the peer's family is given, so
/// that policy routing treats both alike. Rules for TCP only (`ip rule ... ipproto tcp`) do not
/// apply to it. This takes four system calls (socket, connect, getsockname, close), and one each
/// for a mark, an interface and a source.
#[must_use]
pub fn source_of(peer: SocketAddr, how: &ConnectOptions) -> Option<IpAddr> {
    // A UDP socket would accept a multicast address.
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

/// The address to bind for a destination; `None` for the kernel's choice.
pub(crate) fn source_for(peer: SocketAddr, how: &ConnectOptions) -> io::Result<Option<SocketAddr>> {
    if how.sources.is_empty() {
        return Ok(None);
    }
    // An IPv4 destination may be IPv4-mapped (RFC 4291 section 2.5.5.2).
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

/// The scope of a source address: the interface for a link-local address (RFC 4007), or 0 to use
/// the interface that the socket is bound to.
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

#[cfg(test)]
mod tests {
    use super::*;

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
