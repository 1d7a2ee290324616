//! Both addresses of a connection as a compact map key.

use std::net::{IpAddr, SocketAddr};

/// Both addresses of a connection, the socket's own first. A pair of IPv4 addresses takes 16 bytes,
/// a pair of [`SocketAddr`] 64.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AddressPair {
    /// Address, port, address, port.
    V4([u8; 12]),
    /// Any other pair.
    Any(Box<(SocketAddr, SocketAddr)>),
}

impl AddressPair {
    pub(crate) fn of(local: SocketAddr, peer: SocketAddr) -> Self {
        let (IpAddr::V4(here), IpAddr::V4(there)) = (local.ip(), peer.ip()) else {
            return Self::Any(Box::new((local, peer)));
        };
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&here.octets());
        bytes[4..6].copy_from_slice(&local.port().to_be_bytes());
        bytes[6..10].copy_from_slice(&there.octets());
        bytes[10..].copy_from_slice(&peer.port().to_be_bytes());
        Self::V4(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_equal_where_their_addresses_are() {
        assert_eq!(size_of::<AddressPair>(), 16);
        let addresses =
            ["192.0.2.1:1", "192.0.2.1:256", "1.192.0.2:1", "[::1]:1", "[::ffff:192.0.2.1]:1"];
        let addresses = addresses.map(|text| text.parse::<SocketAddr>().unwrap());
        let all = || addresses.iter().flat_map(|a| addresses.iter().map(|b| (*a, *b)));
        for (local, peer) in all() {
            for other in all() {
                let is_same = AddressPair::of(local, peer) == AddressPair::of(other.0, other.1);
                assert_eq!(is_same, (local, peer) == other, "{local} {peer} {other:?}");
            }
        }
    }
}
