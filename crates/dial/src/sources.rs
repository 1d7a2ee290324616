//! The address that the kernel would connect from, for RFC 6724.

use std::net::{SocketAddr, UdpSocket};

use lastbyte_core::order::{PolicyTable, Source};
use lastbyte_socket::ConnectOptions;

/// The source address for a destination, or none where no way leads there.
pub(crate) fn source_for(destination: SocketAddr, how: &ConnectOptions) -> Option<Source> {
    let _ = how;
    let any: SocketAddr =
        if destination.is_ipv6() { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(destination).ok()?;
    Some(Source::new(socket.local_addr().ok()?.ip()))
}

/// The table of precedences and labels that this system uses.
pub(crate) fn system_policy() -> PolicyTable {
    PolicyTable::default()
}
