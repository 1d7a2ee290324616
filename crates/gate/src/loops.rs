//! Loops: a flow whose destination is the gate itself, or leads back to it.
//!
//! 1. *The gate itself.* Each address that is about to be connected to is compared with those that the
//!    gate listens on ([`OwnAddresses::is_own`]), after its name was resolved.
//! 2. *Several gates on one host that lead to each other*, each a process of its own: none of their
//!    addresses is the gate's own. As routers do it, such a flow carries a hop limit: a gate opens its
//!    connection with one hop less than the client's SYN had ([`hop_limit_for`]). At the limit the flow is
//!    refused, which ends the one before, and so the whole loop. A gate looks at the SYN only if a client
//!    on this host has more than [`SUSPICIOUS`] flows: the loop ends some 64 flows later, and other
//!    clients pay nothing.
//!
//! Seen on Linux 6.18, over IPv4, IPv6 and IPv4-mapped addresses: the SYN that a listener keeps has the hop
//! limit that was set before `connect`, unchanged, whatever address of this host it goes to; and its link
//! header is the loopback device's, whose addresses are 0. A network card never sends such a header: so a
//! client on this host is told from a remote one, whose hop limit routers have decreased.
//!
//! A loop over several hosts, or through another proxy, which opens each connection with the default hop
//! limit, ends at the limit of flows per client ([`crate::config::Limits`]). Hops are not counted there: a
//! remote client's SYN has few left, and its upstream may be as far away.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock};

use lastbyte_core::account::How;
use lastbyte_sys::{route, socket, tcp};

use crate::limits::FlowPass;

/// The addresses that the gate listens on. All threads share it; a reload changes it.
#[derive(Debug, Default)]
pub(crate) struct OwnAddresses {
    own: RwLock<Vec<ListenAddress>>,
}

/// Where one listener listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    address: SocketAddr,
    /// Whether `[::]` is for IPv6 alone.
    only_ipv6: bool,
}

impl ListenAddress {
    /// Asks the kernel.
    ///
    /// # Errors
    /// `ENOTSOCK` and the like, for what is no listener over TCP.
    pub(crate) fn of(listener: &impl AsFd) -> io::Result<Self> {
        let address = socket::local_address(listener)?.ok_or(io::ErrorKind::InvalidInput)?;
        let only_ipv6 = address.is_ipv6() && socket::is_only_ipv6(listener)?;
        Ok(Self { address, only_ipv6 })
    }

    fn is_reached_by(self, to: SocketAddr) -> bool {
        let ip = reached(to.ip());
        let own = self.address.ip();
        self.address.port() == to.port()
            && if own.is_unspecified() {
                let takes =
                    if own.is_ipv4() { ip.is_ipv4() } else { ip.is_ipv6() || !self.only_ipv6 };
                takes && is_of_this_host(ip)
            } else {
                own.to_canonical() == ip && is_same_scope(self.address, to)
            }
    }
}

impl OwnAddresses {
    /// Replaces the addresses.
    pub(crate) fn set(&self, own: Vec<ListenAddress>) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// Whether a connection to this address would come to the gate itself. For a listener on all
    /// addresses, and no other, the kernel is asked whether the address is this host's.
    pub(crate) fn is_own(&self, address: SocketAddr) -> bool {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        own.iter().any(|own| own.is_reached_by(address))
    }
}

/// Where a connection to this address goes: from the unspecified address to loopback.
fn reached(to: IpAddr) -> IpAddr {
    match to.to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Link-local addresses may be the same over two interfaces.
fn is_same_scope(one: SocketAddr, two: SocketAddr) -> bool {
    match (one, two) {
        (SocketAddr::V6(one), SocketAddr::V6(two)) => {
            [one.scope_id(), two.scope_id()].contains(&0) || one.scope_id() == two.scope_id()
        }
        _ => true,
    }
}

/// Whether the kernel delivers packets for this address locally, by its routes: so whole networks that are
/// routed to this host count too. About five system calls.
fn is_of_this_host(ip: IpAddr) -> bool {
    ip.is_loopback() || route::to(ip).is_ok_and(|route| route.kind == route::LOCAL)
}

/// Above this many flows of a client on this host its SYN is looked at.
pub(crate) const SUSPICIOUS: usize = 256;

/// Has the kernel keep the SYNs of a listener's connections, for [`hop_limit_for`]: once for each
/// listener, before or while it listens. It costs about 100 bytes of the kernel's memory for each
/// connection, as long as that is open.
///
/// # Errors
/// `ENOPROTOOPT` over MPTCP, `EINVAL` before Linux 5.10: circles are bounded by the flows per client
/// then.
pub(crate) fn watch(listener: &impl AsFd) -> io::Result<()> {
    tcp::save_syn(listener)
}

/// The hop limit of the connection to the upstream; `None` for the kernel's default. To be called once for
/// a flow, before it is connected.
///
/// # Errors
/// [`How::Loop`] when no hop is left.
pub(crate) fn hop_limit_for(pass: &FlowPass, client: &impl AsFd) -> Result<Option<u8>, How> {
    if pass.of_client() <= SUSPICIOUS {
        return Ok(None);
    }
    let mut buffer = [0; tcp::SYN_ROOM];
    // What cannot be read is not counted: see `watch`.
    let length = tcp::saved_syn(client, &mut buffer).unwrap_or_default();
    match hops_over_loopback(&buffer[..length]) {
        None => Ok(None),
        Some(0 | 1) => Err(How::Loop),
        Some(hops) => Ok(Some(hops - 1)),
    }
}

/// The hop limit of a SYN, if its sender is on this host. First comes the link header: two addresses of six
/// bytes, 0 for the loopback device, and the protocol of what follows.
fn hops_over_loopback(syn: &[u8]) -> Option<u8> {
    const IPV4: [u8; 2] = [0x08, 0x00];
    const IPV6: [u8; 2] = [0x86, 0xDD];
    let (addresses, rest) = syn.split_first_chunk::<12>()?;
    let (kind, packet) = rest.split_first_chunk::<2>()?;
    if *addresses != [0; 12] {
        return None;
    }
    match (*kind, packet.first()? >> 4) {
        // RFC 791 section 3.1 and RFC 8200 section 3.
        (IPV4, 4) => packet.get(8).copied(),
        (IPV6, 6) => packet.get(7).copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
