//! Routes of the calling thread's network namespace, by route netlink (`rtnetlink(7)`): which one the
//! kernel would take, which ones there are for a prefix, one more, one less.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NetlinkMessage,
    NetlinkPayload, Nla,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
    RouteNextHopFlags, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::netlink::{ask, exchange, family, order};

/// The table that holds what people and programs add (`RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = RouteHeader::RT_TABLE_MAIN as u32;
/// The type of a route to another host (`RTN_UNICAST`).
pub const UNICAST: u8 = 1;
/// The type of a route to this host itself (`RTN_LOCAL`).
pub const LOCAL: u8 = 2;

/// A route as the kernel reports it, and as it is given to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The first address of those that it leads to.
    pub destination: IpAddr,
    /// How many bits all of these have in common.
    pub prefix_bits: u8,
    /// The table that it is in (`RTA_TABLE`).
    pub table: u32,
    /// Which type of service it is for; 0 for any (`rtm_tos`).
    pub tos: u8,
    /// Its origin (`rtm_protocol`, `/etc/iproute2/rt_protos`).
    pub protocol: u8,
    /// What becomes of packets (`rtm_type`): [`UNICAST`], that they stay here ([`LOCAL`]), or go nowhere.
    pub kind: u8,
    /// Among routes to the same prefix the lowest is taken (`RTA_PRIORITY`, "metric" to `ip(8)`).
    pub priority: u32,
    /// The address that programs without a choice of their own send from (`RTA_PREFSRC`).
    pub source: Option<IpAddr>,
    /// The neighbours that packets go to, in turn if there are several.
    pub hops: Vec<Hop>,
    /// The congestion control of connections over it (`RTAX_CC_ALGO`).
    pub congestion: Option<String>,
    /// Its other metrics: number (`RTAX_*`) and value (`RTA_METRICS`).
    pub metrics: Vec<(u16, u32)>,
    /// Numbers of attributes that this type has no place for (`RTA_*`), such as those of tunnels.
    pub unknown: Vec<u16>,
}

/// Where a route sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The neighbour; `None` where the destination itself is one.
    pub via: Option<IpAddr>,
    /// The number of the interface.
    pub interface: u32,
    /// Its share of the flows, from 1 on (`rtnh_hops` + 1).
    pub weight: u16,
    /// Whether the neighbour is taken for one although no address says so (`RTNH_F_ONLINK`).
    pub on_link: bool,
}

/// The route that the kernel would send packets to `destination` by: of its table, not of a cache
/// (`RTM_GETROUTE`, `RTM_F_FIB_MATCH`).
///
/// # Errors
/// The kernel's: `ENETUNREACH` or `EHOSTUNREACH` where there is none, or one that refuses.
pub fn to(destination: IpAddr) -> io::Result<Route> {
    let bits = if destination.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = bits;
    message.header.flags = RouteFlags::FibMatch | RouteFlags::LookupTable;
    message.attributes.push(RouteAttribute::Destination(destination.into()));
    match exchange(RouteNetlinkMessage::GetRoute(message), 0)? {
        Some(RouteNetlinkMessage::NewRoute(route)) => Ok(read(route)),
        other => Err(io::Error::other(format!("RTM_GETROUTE was answered by {other:?}"))),
    }
}

/// The routes of the main table to exactly this prefix, of any origin (`RTM_GETROUTE`,
/// `NLM_F_DUMP`). The whole table is read, and only these are returned.
///
/// # Errors
/// The kernel's; `EINTR` when the table changed too often meanwhile.
pub fn of_prefix(destination: IpAddr, prefix_bits: u8) -> io::Result<Vec<Route>> {
    const ATTEMPTS: u32 = 8;
    for _ in 0..ATTEMPTS {
        if let Some(routes) = dump_prefix(destination, prefix_bits)? {
            return Ok(routes);
        }
    }
    Err(io::Error::from(io::ErrorKind::Interrupted))
}

/// Adds a unicast route to the main table (`RTM_NEWROUTE`). Never replaces one: what there is to the
/// same prefix with the same priority stays, and is an error.
///
/// # Errors
/// `EEXIST` for what is there, `EPERM` without `CAP_NET_ADMIN`, `ENETUNREACH` or `EINVAL` for a
/// neighbour that is none, `ENODEV` for an interface that is gone, `ENETDOWN` for one out of service,
/// `EINVAL` for a congestion control that the kernel does not have.
pub fn add(route: &Route) -> io::Result<()> {
    order(RouteNetlinkMessage::NewRoute(write(route)), NLM_F_CREATE | NLM_F_EXCL)
}

/// Deletes a route of the main table (`RTM_DELROUTE`): one to the same prefix by the same neighbours
/// and of the same protocol; over IPv4 also with the same metrics and congestion control, which the
/// kernel does not compare over IPv6.
///
/// # Errors
/// `ESRCH` where there is none such, `EPERM` without `CAP_NET_ADMIN`.
pub fn delete(route: &Route) -> io::Result<()> {
    order(RouteNetlinkMessage::DelRoute(write(route)), 0)
}

/// Whether the kernel lets the calling thread change routes: `CAP_NET_ADMIN` over its network
/// namespace, which is not always the one that its capabilities are for.
///
/// # Errors
/// The kernel's, if netlink cannot be asked at all.
pub fn may_change() -> io::Result<bool> {
    // The kernel checks privileges first; no prefix has so many bits, so that there is nothing to
    // delete.
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = 33;
    match order(RouteNetlinkMessage::DelRoute(message), 0) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(true),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

/// One pass over the table; `None` if it changed meanwhile.
fn dump_prefix(destination: IpAddr, prefix_bits: u8) -> io::Result<Option<Vec<Route>>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    let socket = ask(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)?;
    let (mut found, mut consistent) = (Vec::new(), true);
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            consistent &= message.header.flags & NLM_F_DUMP_INTR == 0;
            // Messages are padded to 4 bytes, the last one perhaps not.
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(consistent.then_some(found)),
                // A table without any route does not exist yet.
                NetlinkPayload::Error(error) if error.raw_code() == -libc::ENOENT => {
                    return Ok(Some(found));
                }
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                    let route = read(route);
                    let is_it = (route.destination, route.prefix_bits, route.table)
                        == (destination, prefix_bits, MAIN_TABLE);
                    found.extend(is_it.then_some(route));
                }
                _ => {}
            }
        }
    }
}

fn read(message: RouteMessage) -> Route {
    let header = message.header;
    let nowhere = match header.address_family {
        AddressFamily::Inet6 => IpAddr::from([0; 16]),
        _ => IpAddr::from([0; 4]),
    };
    let mut route = Route {
        destination: nowhere,
        prefix_bits: header.destination_prefix_length,
        table: header.table.into(),
        tos: header.tos,
        protocol: header.protocol.into(),
        kind: header.kind.into(),
        priority: 0,
        source: None,
        hops: Vec::new(),
        congestion: None,
        metrics: Vec::new(),
        unknown: Vec::new(),
    };
    let on_link = header.flags.contains(RouteFlags::Onlink);
    let mut only = Hop { via: None, interface: 0, weight: 1, on_link };
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                route.destination = ip(&address).unwrap_or(nowhere);
            }
            RouteAttribute::Table(table) => route.table = table,
            RouteAttribute::Priority(priority) => route.priority = priority,
            RouteAttribute::PrefSource(address) => route.source = ip(&address),
            RouteAttribute::Metrics(metrics) => read_metrics(&metrics, &mut route),
            RouteAttribute::MultiPath(hops) => {
                for hop in hops {
                    let read = read_hop(hop, &mut route.unknown);
                    route.hops.push(read);
                }
            }
            // What the kernel knows of its use, how sure a router was of itself, and for how long.
            RouteAttribute::CacheInfo(_)
            | RouteAttribute::Preference(_)
            | RouteAttribute::Expires(_) => {}
            other => read_hop_attribute(&other, &mut only, &mut route.unknown),
        }
    }
    if route.hops.is_empty() && only.interface != 0 {
        route.hops.push(only);
    }
    route
}

fn read_hop(hop: RouteNextHop, unknown: &mut Vec<u16>) -> Hop {
    let mut read = Hop {
        via: None,
        interface: hop.interface_index,
        weight: u16::from(hop.hops) + 1,
        on_link: hop.flags.contains(RouteNextHopFlags::Onlink),
    };
    for attribute in &hop.attributes {
        read_hop_attribute(attribute, &mut read, unknown);
    }
    read
}

fn read_hop_attribute(attribute: &RouteAttribute, hop: &mut Hop, unknown: &mut Vec<u16>) {
    match attribute {
        RouteAttribute::Oif(index) => hop.interface = *index,
        RouteAttribute::Gateway(address) => hop.via = ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => hop.via = Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => hop.via = Some((*address).into()),
        other => unknown.push(other.kind()),
    }
}

fn read_metrics(metrics: &[RouteMetric], route: &mut Route) {
    for metric in metrics {
        if let RouteMetric::CcAlgo(name) = metric {
            route.congestion = Some(name.clone());
            continue;
        }
        let mut value = [0; 4];
        if metric.value_len() == value.len() {
            metric.emit_value(&mut value);
            route.metrics.push((metric.kind(), u32::from_ne_bytes(value)));
        } else {
            route.unknown.push(METRICS);
        }
    }
}

/// `RTA_METRICS`.
const METRICS: u16 = 8;

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn write(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(route.destination);
    header.destination_prefix_length = route.prefix_bits;
    header.table = RouteHeader::RT_TABLE_MAIN;
    header.tos = route.tos;
    header.protocol = RouteProtocol::from(route.protocol);
    header.kind = RouteType::Unicast;
    let by_neighbours = route.hops.iter().any(|hop| hop.via.is_some());
    header.scope = if by_neighbours { RouteScope::Universe } else { RouteScope::Link };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(route.destination.into()));
    if route.priority != 0 {
        attributes.push(RouteAttribute::Priority(route.priority));
    }
    attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    let metrics = write_metrics(route);
    if !metrics.is_empty() {
        attributes.push(RouteAttribute::Metrics(metrics));
    }
    match route.hops.as_slice() {
        [only] => {
            attributes.extend(write_via(only, route.destination));
            attributes.push(RouteAttribute::Oif(only.interface));
            if only.on_link {
                header.flags |= RouteFlags::Onlink;
            }
        }
        hops => {
            let hops = hops.iter().map(|hop| write_hop(hop, route.destination)).collect();
            attributes.push(RouteAttribute::MultiPath(hops));
        }
    }
    message
}

fn write_metrics(route: &Route) -> Vec<RouteMetric> {
    let number = |(kind, value): &(u16, u32)| {
        RouteMetric::Other(DefaultNla::new(*kind, value.to_ne_bytes().to_vec()))
    };
    let mut metrics: Vec<RouteMetric> = route.metrics.iter().map(number).collect();
    metrics.extend(route.congestion.clone().map(RouteMetric::CcAlgo));
    metrics
}

fn write_hop(hop: &Hop, destination: IpAddr) -> RouteNextHop {
    let mut written = RouteNextHop::default();
    written.interface_index = hop.interface;
    written.hops = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
    if hop.on_link {
        written.flags = RouteNextHopFlags::Onlink;
    }
    written.attributes.extend(write_via(hop, destination));
    written
}

fn write_via(hop: &Hop, destination: IpAddr) -> Option<RouteAttribute> {
    Some(match (hop.via?, destination) {
        // IPv4 by a neighbour that is known by its IPv6 address (RFC 5549).
        (IpAddr::V6(via), IpAddr::V4(_)) => RouteAttribute::Via(RouteVia::Inet6(via)),
        (via, _) => RouteAttribute::Gateway(via.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(via: Option<&str>, interface: u32, weight: u16) -> Hop {
        Hop { via: via.map(|via| via.parse().unwrap()), interface, weight, on_link: false }
    }

    fn route(destination: &str, prefix_bits: u8, hops: Vec<Hop>) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            prefix_bits,
            table: MAIN_TABLE,
            tos: 0,
            protocol: 108,
            kind: UNICAST,
            priority: 7,
            source: None,
            hops,
            congestion: Some("reno".to_owned()),
            metrics: vec![(1, 1 << 2), (2, 1400), (11, 20)],
            unknown: Vec::new(),
        }
    }

    #[test]
    fn what_is_told_to_the_kernel_reads_the_same() {
        let mut on_link = hop(Some("10.9.9.9"), 2, 1);
        on_link.on_link = true;
        for route in [
            route("203.0.113.7", 32, vec![hop(Some("192.0.2.2"), 2, 1)]),
            route("203.0.113.7", 32, vec![hop(None, 2, 1)]),
            route("203.0.113.7", 32, vec![on_link]),
            route("203.0.113.7", 32, vec![hop(Some("2001:db8::1"), 2, 1)]),
            route(
                "203.0.113.0",
                24,
                vec![hop(Some("192.0.2.2"), 2, 256), hop(None, 3, 1), on_link],
            ),
            route("2001:db8::", 32, vec![hop(Some("fe80::1"), 2, 1), hop(Some("fe80::2"), 3, 9)]),
        ] {
            let message = RouteNetlinkMessage::NewRoute(write(&route));
            let mut message = NetlinkMessage::from(message);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).unwrap();
            let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) =
                message.payload
            else {
                panic!("{message:?}");
            };
            assert_eq!(read(message), route);
        }
    }

    #[test]
    fn loopback_is_a_local_route_and_in_no_other_table() {
        let here = IpAddr::from([127, 0, 0, 1]);
        match to(here) {
            Ok(route) => assert_ne!(route.kind, UNICAST),
            // In a network whose loopback is down.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH)),
        }
        assert_eq!(of_prefix(here, 32).unwrap(), []);
        assert_eq!(of_prefix(IpAddr::from([0; 16]), 128).unwrap(), []);
        // Asking changes nothing, whatever the answer is.
        may_change().unwrap();
    }
}
