//! Routes in the words of `ip(8)`, and the one to add for a prefix.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use lastbyte_sys::netlink::Interface;
use lastbyte_sys::route::{self, Hop, MAIN_TABLE, Route, UNICAST};

use crate::change::{AddedHop, AddedRoute, Metric, network};
use crate::error::{Doing, Result, must, refused};
use crate::prefix::Prefix;

/// The route to add, so that connections to `to` use `congestion`. Nothing is changed.
///
/// # Errors
/// What this machine has that stands in the way, with the line to type where there is one.
pub(super) fn plan(to: Prefix, congestion: &str) -> Result<AddedRoute> {
    is_elsewhere(to)?;
    let there = route::of_prefix(to.address(), to.bits())
        .doing("cannot list the routes of this machine")?;
    if let Some(route) = there.first() {
        return Err(refused(already_there(to, route, congestion)));
    }
    let taken = taken_now(to, congestion)?;
    let hop = |hop: &Hop| {
        Ok(AddedHop {
            via: hop.via,
            device: device(hop).doing("cannot name an interface of the route")?,
            device_index: hop.interface,
            weight: hop.weight,
            on_link: hop.on_link,
        })
    };
    let metric = |&(rtax, value): &(u16, u32)| Metric { rtax, value };
    Ok(AddedRoute {
        to,
        congestion: congestion.to_owned(),
        hops: taken.hops.iter().map(hop).collect::<Result<_>>()?,
        source: taken.source,
        metrics: taken.metrics.iter().map(metric).collect(),
        network: network()?,
    })
}

/// The line by which the route to one host, or the default routes, get a congestion control.
pub(super) fn lines(to: Option<IpAddr>, congestion: &str) -> Vec<String> {
    let Some(to) = to.map(Prefix::from) else {
        let families: [IpAddr; 2] = [[0; 4].into(), [0; 16].into()];
        let default = |nowhere: IpAddr| {
            let routes = route::of_prefix(nowhere, 0).ok()?;
            // Of several the kernel takes the one with the lowest.
            let first = routes.into_iter().min_by_key(|route| route.priority)?;
            change_line(&first, congestion)
        };
        return families.into_iter().filter_map(default).collect();
    };
    if is_elsewhere(to).is_err() {
        return Vec::new();
    }
    let Ok(taken) = route::to(to.address()) else { return Vec::new() };
    if taken.kind != UNICAST {
        return Vec::new();
    }
    let line = if taken.prefix_bits == to.bits() {
        change_line(&taken, congestion)
    } else {
        add_line(to, &taken, congestion)
    };
    line.into_iter().collect()
}

/// Refuses addresses of this machine itself, of groups and of nobody.
fn is_elsewhere(to: Prefix) -> Result<()> {
    let address = to.address();
    must(!address.is_loopback(), || format!("{to} is this machine itself: no route leads there"))?;
    must(!address.is_multicast(), || format!("{to} is a group, and TCP is for two"))?;
    // 0.0.0.0/0 and its parts are prefixes like others.
    let nobody = Prefix::from(address) == to && address.is_unspecified();
    must(!nobody, || format!("{to} is the address of nobody"))?;
    if let IpAddr::V6(v6) = address {
        must(!is_link_local(v6), || {
            format!(
                "{to} is of one link, and which one is said by each connection: there is no route \
                 to it"
            )
        })?;
    }
    Ok(())
}

/// fe80::/10 (RFC 4291, section 2.5.6).
fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

fn already_there(to: Prefix, route: &Route, congestion: &str) -> String {
    let told = format!("there is a route to {to} already, which lastbyte does not change");
    if route.congestion.as_deref() == Some(congestion) {
        return format!("there is a route to {to} already, and its congctl is {congestion}");
    }
    match change_line(route, congestion) {
        Some(line) => format!("{told}; by hand: {line}"),
        None => format!("{told}; see `ip route show {to}`"),
    }
}

/// The route that the kernel takes for `to` now, if one can be made like it.
fn taken_now(to: Prefix, congestion: &str) -> Result<Route> {
    let taken = route::to(to.address()).map_err(|error| match error.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => refused(format!(
            "this machine has no route that leads to {to}: there is none to make one like"
        )),
        _ => refused(format!("cannot ask for the route to {to}: {error}")),
    })?;
    match taken.kind {
        UNICAST => {}
        LOCAL => {
            return Err(refused(format!(
                "{} is this machine's own address: no route leads there",
                to.address()
            )));
        }
        _ => return Err(refused(format!("{} is not the address of a host", to.address()))),
    }
    if taken.prefix_bits > to.bits() {
        let inner = prefix_of(&taken);
        return Err(refused(format!(
            "{inner}, which is part of {to}, has a route of its own: name a prefix without it"
        )));
    }
    let by_hand = || {
        let line = add_line(to, &taken, congestion);
        line.map_or_else(String::new, |line| format!("; by hand: {line}"))
    };
    must(taken.table == MAIN_TABLE, || {
        format!(
            "the route to {to} is in table {}, and lastbyte adds routes to the main table alone{}",
            taken.table,
            by_hand()
        )
    })?;
    must(taken.unknown.is_empty() && !taken.hops.is_empty(), || {
        format!(
            "the route to {to} is one that lastbyte cannot make another like (a next-hop object, \
             a tunnel or a realm): see `ip route get fibmatch {}`",
            to.address()
        )
    })?;
    Ok(taken)
}

/// A route to this host (`RTN_LOCAL`).
const LOCAL: u8 = 2;

fn prefix_of(route: &Route) -> String {
    format!("{}/{}", route.destination, route.prefix_bits)
}

/// The line that gives the route that is there a congestion control. All else is repeated: what `ip
/// route change` is not told of is dropped, or makes it another route.
fn change_line(route: &Route, congestion: &str) -> Option<String> {
    let to = if route.prefix_bits == 0 { "default".to_owned() } else { prefix_of(route) };
    let mut line = format!("{} change {to}", ip_route(route));
    if route.tos != 0 {
        line += &format!(" tos {}", route.tos);
    }
    // Which is what `ip` makes it where none is said.
    if route.protocol != BOOT {
        line += &format!(" proto {}", protocol(route.protocol));
    }
    if route.priority != 0 {
        line += &format!(" metric {}", route.priority);
    }
    with_the_rest(line, route, congestion)
}

/// The line that adds a route like this one for `to`.
fn add_line(to: Prefix, like: &Route, congestion: &str) -> Option<String> {
    with_the_rest(format!("{} add {to}", ip_route(like)), like, congestion)
}

fn ip_route(route: &Route) -> &'static str {
    if route.destination.is_ipv4() { "ip route" } else { "ip -6 route" }
}

/// `None` where there is something that this has no word for.
fn with_the_rest(mut line: String, route: &Route, congestion: &str) -> Option<String> {
    if !route.unknown.is_empty() || route.hops.is_empty() {
        return None;
    }
    if route.table != MAIN_TABLE {
        line += &format!(" table {}", route.table);
    }
    if let Some(source) = route.source {
        line += &format!(" src {source}");
    }
    line += &metrics(&route.metrics)?;
    let locked = is_locked(&route.metrics, CC_ALGO);
    // Next hops come last.
    let congestion = format!(" congctl {locked}{congestion}");
    if let [only] = route.hops.as_slice() {
        // The way first, as people write it.
        let (head, tail) = split_after_destination(&line);
        return Some(format!("{head}{}{tail}{congestion}", hop(only, route.destination)?));
    }
    line += &congestion;
    for several in &route.hops {
        line += &format!(" nexthop{} weight {}", hop(several, route.destination)?, several.weight);
    }
    Some(line)
}

/// After `ip [-6] route add|change PREFIX`.
fn split_after_destination(line: &str) -> (&str, &str) {
    let words = if line.starts_with("ip -6") { 5 } else { 4 };
    let end = line.match_indices(' ').nth(words - 1).map_or(line.len(), |(place, _)| place);
    line.split_at(end)
}

fn hop(hop: &Hop, to: IpAddr) -> Option<String> {
    let mut words = String::new();
    match (hop.via, to) {
        (Some(IpAddr::V6(via)), IpAddr::V4(_)) => words += &format!(" via inet6 {via}"),
        (Some(via), _) => words += &format!(" via {via}"),
        (None, _) => {}
    }
    words += &format!(" dev {}", device(hop).ok()?);
    if hop.on_link {
        words += " onlink";
    }
    Some(words)
}

fn device(hop: &Hop) -> io::Result<String> {
    Interface::numbered(hop.interface).name()
}

/// `RTPROT_BOOT`.
const BOOT: u8 = 3;

/// As in `/etc/iproute2/rt_protos`, for those that every version knows.
fn protocol(number: u8) -> String {
    match number {
        2 => "kernel".to_owned(),
        4 => "static".to_owned(),
        9 => "ra".to_owned(),
        16 => "dhcp".to_owned(),
        other => other.to_string(),
    }
}

/// `RTAX_LOCK`: a bit for each metric that is not to be changed by what the path tells.
const LOCK: u16 = 1;
const CC_ALGO: u16 = 16;
const RTO_MIN: u16 = 13;

/// The metrics with their names for `ip(8)`, in its units.
fn metrics(metrics: &[(u16, u32)]) -> Option<String> {
    let mut words = String::new();
    for &(number, value) in metrics {
        let (name, value) = match number {
            LOCK => continue,
            2 => ("mtu", value.to_string()),
            3 => ("window", value.to_string()),
            // Kept in eighths and quarters of a millisecond.
            4 => ("rtt", format!("{}ms", value / 8)),
            5 => ("rttvar", format!("{}ms", value / 4)),
            6 => ("ssthresh", value.to_string()),
            7 => ("cwnd", value.to_string()),
            8 => ("advmss", value.to_string()),
            9 => ("reordering", value.to_string()),
            10 => ("hoplimit", value.to_string()),
            11 => ("initcwnd", value.to_string()),
            12 if value == 1 => ("features", "ecn".to_owned()),
            RTO_MIN => ("rto_min", format!("{value}ms")),
            14 => ("initrwnd", value.to_string()),
            15 => ("quickack", value.to_string()),
            17 => ("fastopen_no_cookie", value.to_string()),
            _ => return None,
        };
        // `ip` locks this one by itself, and has no word for it.
        let locked = if number == RTO_MIN { "" } else { is_locked(metrics, number) };
        words += &format!(" {name} {locked}{value}");
    }
    Some(words)
}

fn is_locked(metrics: &[(u16, u32)], number: u16) -> &'static str {
    let locks = metrics.iter().find(|(kind, _)| *kind == LOCK).map_or(0, |(_, locks)| *locks);
    if locks & (1 << number) == 0 { "" } else { "lock " }
}
