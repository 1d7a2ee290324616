//! Several hosts and the links between them.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use lastbyte_sys::netlink::Interface;

use crate::error::LinkError;
use crate::host::{Host, Namespace};
use crate::link::{End, Link};
use crate::port::Kind;
use crate::report::Report;
use crate::topology::{Attachment, HostPlan, LinkPlan, Route, Topology};

/// A topology that was made: its hosts, and the links between them, each carried by a thread of this
/// process. Dropping it removes all of it.
#[derive(Debug)]
pub struct Network {
    topology: Topology,
    hosts: Vec<Namespace>,
    links: Vec<Link>,
    has_ipv6: bool,
}

impl Network {
    /// Makes all hosts and all links of a topology.
    ///
    /// `seed` decides which packets are lost: each link has one of its own from it, the first `seed`
    /// itself, as with [`Link::up`].
    ///
    /// # Errors
    /// [`LinkError::Rights`] says what is missing and how to get it, [`LinkError::Part`] which host or
    /// link could not be made. Nothing is left of what had been made before.
    pub fn up(topology: &Topology, seed: u64) -> Result<Self, LinkError> {
        Self::over(Kind::ALL, topology, create(topology)?, seed)
    }

    /// Makes the links of a topology between hosts that exist already, in the order of its hosts. They
    /// have no devices but loopback. Those of several links become routers, with an address of their
    /// own on loopback, and stay so when the links go; the devices may go a moment after these.
    ///
    /// # Errors
    /// As [`Network::up`]; [`LinkError::Hosts`] for another number of hosts than the topology's.
    pub fn between(
        topology: &Topology,
        hosts: Vec<Namespace>,
        seed: u64,
    ) -> Result<Self, LinkError> {
        Self::over(Kind::ALL, topology, hosts, seed)
    }

    /// As [`Network::between`], over devices of one of these kinds.
    fn over(
        kinds: &[Kind],
        topology: &Topology,
        hosts: Vec<Namespace>,
        seed: u64,
    ) -> Result<Self, LinkError> {
        let (there, asked) = (hosts.len(), topology.hosts().len());
        if there != asked {
            return Err(LinkError::Hosts { there, asked });
        }
        let each = || topology.hosts().iter().zip(&hosts);
        for (plan, host) in each() {
            prepare(plan, host).map_err(LinkError::of("host", plan.name()))?;
        }
        let mut links = Vec::new();
        for (number, plan) in topology.links().iter().enumerate() {
            let end = |end| -> Result<End, LinkError> {
                let attachment = attachment(topology, (number, plan), end);
                let host = hosts[plan.host(end)].try_clone()?;
                Ok(End { host, device: attachment.device.clone() })
            };
            let ends = end(Host::Near).and_then(|near| Ok((near, end(Host::Far)?)));
            let seed = seed_of(seed, number as u64);
            let link = ends.and_then(|ends| Link::over(kinds, ends, plan.spec(), seed));
            links.push(link.map_err(LinkError::of("link", plan.name()))?);
        }
        let mut has_ipv6 = true;
        for (plan, host) in each() {
            let connected = connect(topology, plan, host);
            has_ipv6 &= connected.map_err(LinkError::of("host", plan.name()))?;
        }
        Ok(Self { topology: topology.clone(), hosts, links, has_ipv6 })
    }

    /// What it was made from.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Whether there is IPv6 as the topology says. A kernel may be booted without.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// The hosts, in the order of the topology.
    pub fn hosts(&self) -> impl Iterator<Item = (&HostPlan, &Namespace)> {
        self.topology.hosts().iter().zip(&self.hosts)
    }

    /// The links, in the order of the topology.
    pub fn links(&self) -> impl Iterator<Item = (&LinkPlan, &Link)> {
        self.topology.links().iter().zip(&self.links)
    }

    /// The host of a name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Namespace> {
        self.hosts().find(|(plan, _)| plan.name() == name).map(|(_, host)| host)
    }

    /// The link of a name, for its report, or to change its path.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links().find(|(plan, _)| plan.name() == name).map(|(_, link)| link)
    }

    /// What each link has done so far, with its name, in the order of the topology.
    ///
    /// # Errors
    /// When a carrier has failed.
    pub fn report(&self) -> Result<Vec<(String, Report)>, LinkError> {
        let report = |(plan, link): (&LinkPlan, &Link)| named(plan, link.report());
        self.links().map(report).collect()
    }

    /// Takes all links down and returns the report of each, with its name, in the order of the topology.
    ///
    /// # Errors
    /// When a carrier had failed before; the others are taken down all the same.
    pub fn down(self) -> Result<Vec<(String, Report)>, LinkError> {
        let Self { topology, links, hosts: _hosts, .. } = self;
        let down = |(plan, link): (&LinkPlan, Link)| named(plan, link.down());
        topology.links().iter().zip(links).map(down).collect()
    }

    /// Why a link carries no more, if one failed since this was last asked. The others go on.
    pub fn take_failure(&mut self) -> Option<LinkError> {
        let mut links = self.topology.links().iter().zip(&mut self.links);
        links
            .find_map(|(plan, link)| Some(LinkError::of("link", plan.name())(link.take_failure()?)))
    }
}

fn create(topology: &Topology) -> Result<Vec<Namespace>, LinkError> {
    let create = |plan: &HostPlan| Namespace::create().map_err(LinkError::of("host", plan.name()));
    topology.hosts().iter().map(create).collect()
}

fn named(
    plan: &LinkPlan,
    report: Result<Report, LinkError>,
) -> Result<(String, Report), LinkError> {
    let report = report.map_err(LinkError::of("link", plan.name()))?;
    Ok((plan.name().to_owned(), report))
}

/// The end of a link, as its host has it.
fn attachment<'a>(
    topology: &'a Topology,
    (number, plan): (usize, &LinkPlan),
    end: Host,
) -> &'a Attachment {
    let ends = topology.hosts()[plan.host(end)].attachments();
    let found = ends.iter().find(|attachment| attachment.link == number);
    found.unwrap_or_else(|| unreachable!("each link is attached to the hosts that it names"))
}

/// A seed for each link, by `SplitMix64`'s mixing; the first has the network's own.
fn seed_of(seed: u64, link: u64) -> u64 {
    let mut mixed = link.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    seed ^ mixed ^ (mixed >> 31)
}

/// Sets a host up, except for its links.
fn prepare(plan: &HostPlan, host: &Namespace) -> Result<(), LinkError> {
    if !plan.forwards() {
        return Ok(());
    }
    host.run(|| {
        // Routes may be asymmetric: a packet may arrive over a link that no reply would take (RFC 3704).
        // A device gets the default when it is made, and the larger of its own value and `all` counts.
        for name in ["ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter"] {
            set(name, "0").map_err(LinkError::at("turning reverse-path filtering off"))?;
        }
        set("ipv4/ip_forward", "1").map_err(LinkError::at(FORWARDING))?;
        if has_ipv6() {
            // Where it was a router before: not while devices are made, see `forward_v6`.
            set("ipv6/conf/all/forwarding", "0").map_err(LinkError::at(FORWARDING))?;
        }
        let [v4, v6] = plan.own_addresses();
        let v6 = v6.filter(|_| has_ipv6());
        let added = Interface::named("lo").and_then(|loopback| {
            add_if_missing(loopback, v4, 32)?;
            add_if_missing(loopback, v6, 128)
        });
        added.map_err(LinkError::at("adding an address to loopback"))
    })?
}

/// Adds an address; a host that was part of a network before still has it.
fn add_if_missing(to: Interface, address: Option<IpAddr>, prefix_bits: u8) -> io::Result<()> {
    match address.map_or(Ok(()), |address| to.add_address(address, prefix_bits)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Turns forwarding on for a host whose devices exist, and adds its routes. Returns whether there is
/// IPv6.
fn connect(topology: &Topology, plan: &HostPlan, host: &Namespace) -> Result<bool, LinkError> {
    let routes = topology.routes(plan);
    host.run(|| {
        let has_ipv6 = has_ipv6();
        if plan.forwards() && has_ipv6 {
            forward_v6(plan).map_err(LinkError::at(FORWARDING))?;
        }
        for Route { destination, via, device, source } in routes {
            if destination.is_ipv4() || has_ipv6 {
                let prefix_bits = if destination.is_ipv4() { 32 } else { 128 };
                let device = Interface::named(&device);
                device
                    .and_then(|device| device.add_route((destination, prefix_bits), via, source))
                    .map_err(LinkError::at("adding a route"))?;
            }
        }
        Ok(has_ipv6)
    })?
}

const FORWARDING: &str = "turning forwarding on";

/// An IPv6 router joins the all-routers group on each multicast device, and reports that there (RFC 4291
/// section 2.8, RFC 3810): packets that nobody asked for. So its devices have no multicast.
fn forward_v6(plan: &HostPlan) -> io::Result<()> {
    for attachment in plan.attachments() {
        Interface::named(&attachment.device.name)?.set_without_multicast()?;
    }
    set("ipv6/conf/all/forwarding", "1")
}

/// Sets a sysctl of the namespace that the calling thread is in.
fn set(name: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new("/proc/sys/net").join(name), value)
}

/// Whether the kernel has IPv6.
fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn every_link_has_a_seed_of_its_own_and_the_first_the_networks() {
        let mut seeds: Vec<u64> = (0..1000).map(|link| seed_of(7, link)).collect();
        assert_eq!(seeds[0], 7);
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 1000);
    }

    #[test]
    fn every_kind_of_device_is_routed_through() {
        for kind in Kind::ALL {
            let toml = "[[links]]\nbetween = ['a', 'b']\nrtt = '2ms'\nloss = '0.5%'\n\
                        [[links]]\nbetween = ['b', 'c']\nrtt = '2ms'\nrate = '300mbit'\n\
                        queue = '4MB'\n[[links]]\nbetween = ['c', 'd']\nmtu = 1400";
            let topology = Topology::parse("line", toml).unwrap();
            let up = create(&topology).and_then(|it| Network::over(&[*kind], &topology, it, 1));
            let network = match up {
                Ok(network) => network,
                Err(error @ LinkError::Rights { .. }) => {
                    lastbyte_testing::not_tested!("{error}");
                    continue;
                }
                Err(error) => panic!("{kind:?}: {error}"),
            };
            let far = topology.host("d").unwrap();
            let v6 = far.address_v6().filter(|_| network.has_ipv6()).map(IpAddr::V6);
            for far in [Some(IpAddr::V4(far.address())), v6].into_iter().flatten() {
                carry(&network, far);
            }
            let reports = network.down().unwrap();
            // All have the same to carry: 4 MB of 1348 bytes, but for the first and the lost ones.
            for (name, report) in &reports {
                assert!(report.up.packets > 2900, "{kind:?}, {name}: {report:?}");
                assert_eq!(report.device_drops, 0, "{kind:?}, {name}: {report:?}");
            }
        }
    }

    /// Sends 2 MB whose every byte tells its place from `a` to `d`, and compares.
    fn carry(network: &Network, far: IpAddr) {
        let host = |name| network.host(name).unwrap();
        let listener = host("d").run(|| TcpListener::bind((far, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut near = host("a").run(|| TcpStream::connect(address).unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let place = |at: usize| at.to_le_bytes()[0] ^ at.to_le_bytes()[1] ^ at.to_le_bytes()[2];
        let all: Vec<u8> = (0..2_000_000).map(place).collect();
        let expected = all.clone();
        let writer = std::thread::spawn(move || near.write_all(&all).unwrap());
        let mut got = Vec::new();
        let read = far.read_to_end(&mut got);
        assert!(read.is_ok(), "{read:?} after {} bytes: {:?}", got.len(), network.report());
        writer.join().unwrap();
        assert!(got == expected, "{} bytes, or not the same", got.len());
    }
}
