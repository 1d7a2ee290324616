//! Networks of several hosts: the hosts, the links between them, and the routes that packets take.
//!
//! ```toml
//! title = "a client with two routes to a server"
//! [[hosts]]                      # optional: a link names its hosts too
//! name = "client"
//! [[links]]
//! name = "access"                # "client-router" if left out
//! between = ["client", "router"] # near, far: "up" is from the first to the second
//! scenario = "lte"               # a path by name, or a file beside this one; and, or instead,
//! loss = "1%"                    # all keys of a scenario but its title: what differs from that
//! [links.down]
//! rate = "20mbit"
//! [[links]]
//! between = ["router", "server"]
//! rtt = "80ms"
//! [[links]]
//! between = ["client", "server"]
//! rtt = "300ms"
//! [[routes]]                     # what differs from the shortest routes
//! host = "client"
//! to = "server"
//! via = "router"                 # the next host, or a link's name
//! ```
//!
//! The shortest route is the one with the fewest links; of two equal ones, the one whose first link
//! comes first in the file. All addresses of a host are reached over the same route, except those on a
//! link that two hosts share: these are reached over that link.
//!
//! | What | IPv4 | IPv6 |
//! |---|---|---|
//! | the ends of link i, from 0 | 198.18.i.1, 198.18.i.2 | 2001:2:0:i::1, 2001:2:0:i::2 |
//! | host h, from 1, if it has several links | 198.19.254.h | 2001:2:0:ffff::h |
//!
//! These are from the blocks set aside for benchmarks (RFC 2544, RFC 5180). A host of one link is known
//! by its address on that link. Hosts count in the order in which the file names them first.

mod next_hops;
mod parsed;
mod text;

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::host::{Host, NEAR, NEAR_V6};
use crate::scenario::ScenarioError;
use crate::spec::{Spec, SpecError};
use next_hops::NextHops;

/// The most hosts: the route past all of them has 62 routers, and a packet begins with a hop limit of 64
/// (RFC 1700, Linux's too), of which each router takes one.
pub const MOST_HOSTS: usize = 64;
/// The most links: each takes a thread and up to 8 descriptors, of which a process has 1024 unless it
/// asks for more.
pub const MOST_LINKS: usize = 100;
/// The longest name of a host in bytes: as long as the name of a device, which scripts take it for.
pub const LONGEST_HOST_NAME: usize = 15;
/// The longest name of a link in bytes: two hosts, a dash between them, and a number behind another.
pub const LONGEST_LINK_NAME: usize = 2 * LONGEST_HOST_NAME + 1 + 4;
/// What a link has to carry uncut for IPv6 (RFC 8200 section 5).
const LEAST_MTU_OF_IPV6: u32 = 1280;

/// The topologies that come with lastbyte: name and TOML text.
const KNOWN: &[(&str, &str)] = &[
    ("dual-homed", include_str!("../../../scenarios/topologies/dual-homed.toml")),
    ("dumbbell", include_str!("../../../scenarios/topologies/dumbbell.toml")),
    ("two-offices", include_str!("../../../scenarios/topologies/two-offices.toml")),
];

/// A valid network: every host can be reached from every other.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    title: String,
    hosts: Vec<HostPlan>,
    links: Vec<LinkPlan>,
    next_hops: NextHops,
}

/// A host of a network, to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct HostPlan {
    name: String,
    /// Its place among all hosts.
    number: usize,
    attachments: Vec<Attachment>,
}

/// An end of a link at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The device, with its addresses.
    pub device: Device,
    /// The link's place in [`Topology::links`].
    pub link: usize,
    /// Which of the link's ends this is.
    pub end: Host,
    /// The place in [`Topology::hosts`] of the host at the other end.
    pub neighbour: usize,
}

/// A link of a network, to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    name: String,
    hosts: [usize; 2],
    spec: Spec,
}

/// An entry of a host's routing table that leads to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where packets shall go.
    pub destination: IpAddr,
    /// The next host's address on the link that they take.
    pub via: IpAddr,
    /// The host's device of that link.
    pub device: String,
    /// The address that the host speaks from; `None` for its address on that link.
    pub source: Option<IpAddr>,
}

/// A topology that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// There is none of that name.
    #[error("there is no topology `{name}`: known are {}; or give a file ending in .toml", known())]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("topology file {}: {cause}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The text is not what a topology looks like; the message names key and line.
    #[error("topology {name}: {cause}")]
    Text {
        /// Name or file.
        name: String,
        /// Where and what.
        cause: toml::de::Error,
    },
    /// The network is not possible.
    #[error("topology {name}{}: {cause}", Line(*line))]
    Invalid {
        /// Name or file.
        name: String,
        /// The line of its table, from 1; `None` where it is about no table, or all.
        line: Option<usize>,
        /// Why.
        cause: InvalidTopology,
    },
}

/// Why a network is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTopology {
    /// A host's name is not valid.
    #[error(
        "`{0}` is not a valid host name: use 1 to {LONGEST_HOST_NAME} lowercase letters, digits and \
         dashes, beginning with a letter and not ending with a dash; `localhost` is reserved"
    )]
    HostName(String),
    /// A link's name is not valid.
    #[error(
        "`{0}` is not a valid link name: use 1 to {LONGEST_LINK_NAME} lowercase letters, digits and \
         dashes, beginning with a letter and not ending with a dash"
    )]
    LinkName(String),
    /// Two hosts have one name.
    #[error("host `{0}` is listed twice: list each host once")]
    HostTwice(String),
    /// Two links have one name.
    #[error("two links are called `{0}`: give each link its own name")]
    LinkTwice(String),
    /// A link is named as a host is.
    #[error("link `{0}` has the name of a host: give it another name")]
    LinkNamedAsHost(String),
    /// A link has one host.
    #[error("a link connects `{0}` with itself: name two hosts")]
    LinkToItself(String),
    /// There is no link.
    #[error("a network has at least one link: give [[links]] with between = [\"near\", \"far\"]")]
    NoLinks,
    /// A host has no link.
    #[error("host `{0}` has no link: name it in the `between` of a link, or remove it")]
    Alone(String),
    /// There are too many hosts.
    #[error("{0} hosts: a network has at most {MOST_HOSTS}")]
    TooManyHosts(usize),
    /// There are too many links.
    #[error("{0} links: a network has at most {MOST_LINKS}")]
    TooManyLinks(usize),
    /// Some hosts cannot reach others.
    #[error("no route from `{from}` to `{to}`: connect them, directly or through other hosts")]
    TwoParts {
        /// A host of one part.
        from: String,
        /// A host of the other.
        to: String,
    },
    /// There is no host of that name.
    #[error("no host is called `{0}`: every host is named in the `between` of a link")]
    NoSuchHost(String),
    /// A route leads nowhere.
    #[error("a route leads from `{0}` to itself: name another host")]
    RouteToItself(String),
    /// Two routes of a host lead to the same host.
    #[error("`{host}` has two routes to `{to}`: give one")]
    RouteTwice {
        /// Whose routes.
        host: String,
        /// Where to.
        to: String,
    },
    /// A route begins over a link that its host does not have.
    #[error("`{host}` has no link called `{via}`, and no link to a host of that name")]
    NoNeighbour {
        /// Whose route.
        host: String,
        /// Over what.
        via: String,
    },
    /// Packets go round for ever.
    #[error(
        "routing loop: packets to `{to}` go round {}; give one of these hosts another route to `{to}`",
        hosts.join(", ")
    )]
    RoutingLoop {
        /// Where they shall go.
        to: String,
        /// The hosts in the order in which they forward to each other; the last is the first.
        hosts: Vec<String>,
    },
    /// A link's own keys are not valid.
    #[error("invalid link: {0}")]
    Spec(SpecError),
    /// `without` has a key that a link cannot be without.
    #[error("`without` cannot remove `{0}`: no property of a link is called so")]
    Without(String),
    /// The path that a link names cannot be used, or a file that its keys name.
    #[error(transparent)]
    Scenario(ScenarioError),
}

/// Behind the name of a file: the line, if it is known.
struct Line(Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}

fn known() -> String {
    KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl Topology {
    /// The topology of a name, or of a file when the name ends in `.toml`.
    ///
    /// # Errors
    /// Names the file and, where possible, key and line; or the known names.
    pub fn find(name: &str) -> Result<Self, TopologyError> {
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(path);
            let text =
                text.map_err(|cause| TopologyError::File { path: path.to_owned(), cause })?;
            return text::parse(path.parent(), name, &text);
        }
        let text = KNOWN.iter().find(|(known, _)| *known == name);
        let (_, text) = text.ok_or_else(|| TopologyError::Unknown { name: name.to_owned() })?;
        Self::parse(name, text)
    }

    /// Whether a name is that of a topology, and not of a path: one that comes with lastbyte, or a file
    /// that has links.
    #[must_use]
    pub fn is_named(name: &str) -> bool {
        let path = Path::new(name);
        if path.extension().is_none_or(|extension| extension != "toml") {
            return KNOWN.iter().any(|(known, _)| *known == name);
        }
        let table = fs::read_to_string(path).ok().and_then(|text| text.parse::<toml::Table>().ok());
        table.is_some_and(|table| table.contains_key("links"))
    }

    /// All topologies that come with lastbyte, each with its name.
    ///
    /// # Errors
    /// None: they are tested.
    pub fn all() -> Result<Vec<(&'static str, Self)>, TopologyError> {
        KNOWN.iter().map(|(name, text)| Ok((*name, Self::parse(name, text)?))).collect()
    }

    /// Reads a topology from TOML text. Files that it names lie in this process's directory.
    ///
    /// # Errors
    /// Names, where possible, key and line.
    pub fn parse(name: &str, text: &str) -> Result<Self, TopologyError> {
        text::parse(None, name, text)
    }

    /// Two hosts, `near` and `far`, and one link, `path`: what [`crate::Link::up`] makes.
    #[must_use]
    pub fn of_two(spec: &Spec) -> Self {
        let host = |number: usize, name: &str, end| HostPlan {
            name: name.to_owned(),
            number,
            attachments: vec![Attachment::new(0, (0, spec), end, 1 - number)],
        };
        let link = LinkPlan { name: "path".to_owned(), hosts: [0, 1], spec: spec.clone() };
        Self {
            title: "two hosts".to_owned(),
            hosts: vec![host(0, "near", Host::Near), host(1, "far", Host::Far)],
            links: vec![link],
            next_hops: NextHops::shortest(&[vec![1], vec![0]]),
        }
    }

    /// What it represents, in a few words.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its hosts, in the order in which the file names them first; those of `[[hosts]]` before.
    #[must_use]
    pub fn hosts(&self) -> &[HostPlan] {
        &self.hosts
    }

    /// Its links, in the order of the file.
    #[must_use]
    pub fn links(&self) -> &[LinkPlan] {
        &self.links
    }

    /// The host of a name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&HostPlan> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The link of a name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&LinkPlan> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The host at an end of a link.
    #[must_use]
    pub fn host_at(&self, link: &LinkPlan, end: Host) -> &HostPlan {
        &self.hosts[link.hosts[usize::from(end == Host::Far)]]
    }

    /// The links that packets take from one host to another, in order; none from a host to itself.
    #[must_use]
    pub fn links_between(&self, from: &HostPlan, to: &HostPlan) -> Vec<&LinkPlan> {
        self.attachments_between(from, to).map(|on_it| &self.links[on_it.link]).collect()
    }

    /// A host's routes to all addresses that are not on a link of its own. There is one of IPv6 where
    /// all links of the route carry that.
    #[must_use]
    pub fn routes(&self, host: &HostPlan) -> Vec<Route> {
        let others = self.hosts.iter().filter(|other| other.number != host.number);
        others.flat_map(|other| self.routes_to(host, other)).collect()
    }

    fn routes_to(&self, host: &HostPlan, to: &HostPlan) -> Vec<Route> {
        let mut route = self.attachments_between(host, to);
        let Some(first) = route.next() else { return Vec::new() };
        let carries_v6 = |on_it: &Attachment| self.links[on_it.link].carries_v6();
        let v6 = carries_v6(first) && route.all(carries_v6);
        let end = first.end.other();
        let (via, via_v6) = address_on(first.link, end);
        let own = to.own_addresses();
        let apart = to.attachments.iter().filter(|there| there.neighbour != host.number);
        let on_links = apart.flat_map(|there| there.device.addresses.iter().map(|(ip, _)| *ip));
        let reached = own.into_iter().flatten().chain(on_links).filter(|ip| ip.is_ipv4() || v6);
        let route = |destination: IpAddr| {
            let [own, own_v6] = host.own_addresses();
            let (via, source) = match destination {
                IpAddr::V4(_) => (IpAddr::V4(via), own),
                IpAddr::V6(_) => (IpAddr::V6(via_v6), own_v6),
            };
            Route { destination, via, device: first.device.name.clone(), source }
        };
        reached.map(route).collect()
    }

    fn attachments_between(
        &self,
        from: &HostPlan,
        to: &HostPlan,
    ) -> impl Iterator<Item = &Attachment> {
        let hop = move |at: usize| {
            let attachment = self.next_hops.next(at, to.number)?;
            Some(&self.hosts[at].attachments[attachment])
        };
        std::iter::successors(hop(from.number), move |on_it| hop(on_it.neighbour))
    }
}

impl HostPlan {
    /// Its name, which is also its name in `/etc/hosts`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The IPv4 address that its name stands for.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.named_addresses().0
    }

    /// The IPv6 address that its name stands for; `None` if its one link is too small for IPv6.
    #[must_use]
    pub fn address_v6(&self) -> Option<Ipv6Addr> {
        let is_there = |v6: &Ipv6Addr| self.addresses().contains(&IpAddr::V6(*v6));
        Some(self.named_addresses().1).filter(is_there)
    }

    /// All its addresses: its own, if it has any, and those on its links.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let on_links = self.attachments.iter().flat_map(|end| &end.device.addresses);
        let own = self.own_addresses().into_iter().flatten();
        own.chain(on_links.map(|(address, _)| *address)).collect()
    }

    /// Its ends of links, in the order of the file; their devices are `path0`, `path1` and so on.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Whether it is a router: a host of several links forwards packets of others.
    #[must_use]
    pub fn forwards(&self) -> bool {
        self.attachments.len() > 1
    }

    /// If it has several links, its IPv4 and IPv6 addresses that belong to none of them.
    pub(crate) fn own_addresses(&self) -> [Option<IpAddr>; 2] {
        let (v4, v6) = self.named_addresses();
        [IpAddr::V4(v4), IpAddr::V6(v6)].map(|address| Some(address).filter(|_| self.forwards()))
    }

    fn named_addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        match &self.attachments[..] {
            [only] => address_on(only.link, only.end),
            _ => own_address(self.number),
        }
    }
}

impl LinkPlan {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path; up is from its near host to its far one.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The place of an end's host in [`Topology::hosts`].
    pub(crate) fn host(&self, end: Host) -> usize {
        self.hosts[usize::from(end == Host::Far)]
    }

    fn carries_v6(&self) -> bool {
        carries_v6(&self.spec)
    }
}

impl Attachment {
    /// An end of a link, in the given place among those of its host.
    fn new(place: usize, (link, spec): (usize, &Spec), end: Host, neighbour: usize) -> Self {
        let (v4, v6) = address_on(link, end);
        let mut addresses = vec![(IpAddr::V4(v4), 24)];
        addresses.extend(carries_v6(spec).then_some((IpAddr::V6(v6), 64)));
        Self { device: Device { name: format!("path{place}"), addresses }, link, end, neighbour }
    }
}

fn carries_v6(spec: &Spec) -> bool {
    spec.largest_packet() >= LEAST_MTU_OF_IPV6
}

/// The addresses of an end of a link, as in the table above.
fn address_on(link: usize, end: Host) -> (Ipv4Addr, Ipv6Addr) {
    let last = 1 + u8::from(end == Host::Far);
    let [a, b, ..] = NEAR.octets();
    let [c, d, e, ..] = NEAR_V6.segments();
    let link = one_byte(link);
    let v6 = Ipv6Addr::new(c, d, e, link.into(), 0, 0, 0, last.into());
    (Ipv4Addr::new(a, b, link, last), v6)
}

/// The addresses of a host that belong to no link, as in the table above.
fn own_address(host: usize) -> (Ipv4Addr, Ipv6Addr) {
    let host = one_byte(host + 1);
    let [c, d, e, ..] = NEAR_V6.segments();
    (Ipv4Addr::new(198, 19, 254, host), Ipv6Addr::new(c, d, e, 0xFFFF, 0, 0, 0, host.into()))
}

/// The number of a host or a link.
fn one_byte(number: usize) -> u8 {
    const { assert!(MOST_HOSTS < 255 && MOST_LINKS < 255) };
    debug_assert!(number < 255, "there are fewer of either");
    number.to_le_bytes()[0]
}

#[cfg(test)]
mod tests;
