//! Network interfaces of the calling thread's namespace, by route netlink (`rtnetlink(7)`).
//!
//! Each function opens its own socket, sends one request and reads the answers: what is done here
//! is done a few times per link, never per packet.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Interface counters as the kernel gives them (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived at the host.
    pub rx_packets: u64,
    /// Packets that left the host.
    pub tx_packets: u64,
    /// Arriving packets that the device had no room for.
    pub rx_dropped: u64,
    /// Leaving packets that the device had no room for.
    pub tx_dropped: u64,
}

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Makes two Ethernet interfaces, each of which receives what the other sends (`veth(4)`): `here` in
/// the calling thread's network namespace, `there` in another. Both go when either namespace does.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in both, `EEXIST` for a name in use, `EOPNOTSUPP` on a kernel
/// without them.
pub fn create_pair(here: (&str, Mac), there: (&str, Mac), other: &impl AsFd) -> io::Result<()> {
    let end = |(name, mac): (&str, Mac)| {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        message
    };
    let (mut message, mut peer) = (end(here), end(there));
    peer.attributes.push(LinkAttribute::NetNsFd(other.as_fd().as_raw_fd()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    order(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// An interface of the calling thread's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    index: u32,
}

impl Interface {
    /// Finds an interface by its name (`RTM_GETLINK`).
    ///
    /// # Errors
    /// `ENODEV` when there is none of that name.
    pub fn named(name: &str) -> io::Result<Self> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let link = ask_link(message)?;
        Ok(Self { index: link.header.index })
    }

    /// The interface with a number that the kernel gave, such as in a route; it may have gone since.
    #[must_use]
    pub fn numbered(index: u32) -> Self {
        Self { index }
    }

    /// Its number (`netdevice(7)`).
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    /// Its name now (`IFLA_IFNAME`).
    ///
    /// # Errors
    /// `ENODEV` when there is none of that number.
    pub fn name(self) -> io::Result<String> {
        let link = ask_link(self.message())?;
        let name = link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        });
        name.ok_or_else(|| io::Error::other("the kernel sent no IFLA_IFNAME"))
    }

    /// Sets how many packets may wait in the device on their way out (`IFLA_TXQLEN`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_queue(self, packets: u32) -> io::Result<()> {
        let mut message = self.message();
        message.attributes.push(LinkAttribute::TxQueueLen(packets));
        order(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets the largest packet in bytes, without the Ethernet header (`IFLA_MTU`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `EINVAL` for what the device cannot.
    pub fn set_mtu(self, mtu: u32) -> io::Result<()> {
        let mut message = self.message();
        message.attributes.push(LinkAttribute::Mtu(mtu));
        order(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Takes the interface into service (`IFF_UP`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_up(self) -> io::Result<()> {
        let mut message = self.message();
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        order(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// As [`Interface::set_up`], for an Ethernet interface that asks nobody for addresses: all that it
    /// sends goes to its own (`IFF_NOARP`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_up_without_arp(self) -> io::Result<()> {
        let mut message = self.message();
        message.header.flags = LinkFlags::Up | LinkFlags::Noarp;
        message.header.change_mask = message.header.flags;
        order(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Lets the interface know no groups (`IFF_MULTICAST`, cleared): the host joins none on it from
    /// then on, and tells nobody that it does.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_without_multicast(self) -> io::Result<()> {
        let mut message = self.message();
        message.header.change_mask = LinkFlags::Multicast;
        order(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Adds an address with its prefix, and by it the route to its neighbours (`RTM_NEWADDR`).
    /// IPv6 addresses are usable at once: no duplicate address detection.
    ///
    /// # Errors
    /// `EEXIST` when it is there already, `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_address(self, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.index = self.index;
        message.header.prefix_len = prefix_bits;
        message.header.family = family(address);
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Local(address));
        message.attributes.push(AddressAttribute::Address(address));
        order(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a route out of the interface (`RTM_NEWROUTE`): packets to the addresses that begin with
    /// the first so many bits of `destination` go to the neighbour `via`. Programs that chose no
    /// address send them from `source` (`RTA_PREFSRC`), or the kernel's choice. All of one family.
    ///
    /// # Errors
    /// `EEXIST` when there is one for these already, `ENETUNREACH` (IPv4) or `EHOSTUNREACH` (IPv6) for
    /// a `via` that is no neighbour, `EINVAL` for a `source` that is not the host's or a `destination`
    /// with more bits set, `ENETDOWN` before the interface is in service, `EPERM` without
    /// `CAP_NET_ADMIN`.
    pub fn add_route(
        self,
        (destination, prefix_bits): (IpAddr, u8),
        via: IpAddr,
        source: Option<IpAddr>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = prefix_bits;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination)));
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(via)));
        message.attributes.push(RouteAttribute::Oif(self.index));
        let source = source.map(|source| RouteAttribute::PrefSource(RouteAddress::from(source)));
        message.attributes.extend(source);
        order(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The interface's counters so far (`IFLA_STATS64`).
    ///
    /// # Errors
    /// `ENODEV` when the interface is gone.
    pub fn counters(self) -> io::Result<Counters> {
        let link = ask_link(self.message())?;
        let stats = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats),
            _ => None,
        });
        let stats = stats.ok_or_else(|| io::Error::other("the kernel sent no IFLA_STATS64"))?;
        Ok(Counters {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
        })
    }

    fn message(self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message
    }
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Sends a request that changes something and waits for its acknowledgement.
pub(crate) fn order(request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    exchange(request, NLM_F_ACK | flags).map(drop)
}

fn ask_link(message: LinkMessage) -> io::Result<LinkMessage> {
    match exchange(RouteNetlinkMessage::GetLink(message), 0)? {
        Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
        other => Err(io::Error::other(format!("RTM_GETLINK was answered by {other:?}"))),
    }
}

/// One request, one answer: `None` for a bare acknowledgement.
pub(crate) fn exchange(
    request: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<Option<RouteNetlinkMessage>> {
    let socket = ask(request, flags)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        NetlinkPayload::Error(_) => Ok(None),
        NetlinkPayload::InnerMessage(inner) => Ok(Some(inner)),
        other => Err(io::Error::other(format!("netlink answered with {other:?}"))),
    }
}

/// Sends one request on a socket of its own, from which the answers are read.
pub(crate) fn ask(request: RouteNetlinkMessage, flags: u16) -> io::Result<Socket> {
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | flags;
    message.header.sequence_number = 1;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    if flags & NLM_F_DUMP == NLM_F_DUMP {
        // So that it is of the one table asked for; before Linux 4.20 it is of all.
        let _ = socket.set_netlink_get_strict_chk(true);
    }
    socket.send(&bytes, 0)?;
    Ok(socket)
}
