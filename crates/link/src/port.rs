//! A host's device, as the carrier sees it: it reads the packets that leave the host, and writes those
//! that arrive.
//!
//! There are two kinds, with the same format: an IP packet behind a vnet header. A TUN device, where
//! `/dev/net/tun` may be opened; else a veth pair, one end on the host and the other in an otherwise
//! empty namespace, with a packet socket on it. The second needs no device file, so that it works in
//! most user namespaces.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use lastbyte_host::NetworkNamespace;
use lastbyte_sys::ethtool;
use lastbyte_sys::netlink::{self, Interface, Mac};
use lastbyte_sys::packet::PacketSocket;
use lastbyte_sys::tun::{Offload, Tun};

use crate::error::LinkError;
use crate::host::Namespace;
use crate::spec::DEFAULT_MTU;

/// The other end of the host's Ethernet device.
const WIRE: &str = "wire0";
/// Addresses of our own choice (IEEE 802, the second bit of the first byte): the two ends differ, so
/// that the kernel at the wire takes no packet for its own and drops each unread, but for our socket.
const HOST_MAC: Mac = [2, 0, 0, 0, 0, 1];
const WIRE_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Packets through `/dev/net/tun`.
    Tun,
    /// Packets through a veth pair and a packet socket.
    Veth,
}

impl Kind {
    /// The best first: TUN devices cost less for each packet.
    pub(crate) const ALL: &[Self] = &[Self::Tun, Self::Veth];
}

/// What a device needs to know when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortOptions {
    /// The largest IP packet in bytes.
    pub(crate) mtu: u32,
    /// Whether segments mostly go on as they come, uncut.
    pub(crate) uncut: bool,
}

/// A device of a host.
#[derive(Debug)]
pub(crate) enum Port {
    Tun(Tun),
    Veth {
        socket: PacketSocket,
        wire: Namespace,
    },
    #[cfg(test)]
    Script(tests::Script),
}

impl Port {
    /// Makes the device of the host that the calling thread is in, of the first kind that there is.
    pub(crate) fn create(
        name: &str,
        kinds: &[Kind],
        options: PortOptions,
    ) -> Result<Self, LinkError> {
        let mut missing = None;
        for kind in kinds {
            let tried = match kind {
                // We segment ourselves what must be segmented: one read returns many segments.
                Kind::Tun => Tun::create(name, Offload::Segments).map(Self::Tun),
                Kind::Veth => Self::create_veth(name, options)?,
            };
            match tried {
                Err(error) if is_missing(&error) => missing = Some(error),
                made => return made.map_err(LinkError::at_device),
            }
        }
        Err(LinkError::at_device(missing.unwrap_or_else(|| io::ErrorKind::Unsupported.into())))
    }

    /// Makes a veth pair; the inner failure is that of the devices themselves.
    fn create_veth(name: &str, options: PortOptions) -> Result<io::Result<Self>, LinkError> {
        // A ring has frames of one size. Where the kernel cuts they can be small ones, and more.
        let cut_by_kernel = !options.uncut && options.mtu <= DEFAULT_MTU;
        let offload = if cut_by_kernel { Offload::Checksums } else { Offload::Segments };
        let host = NetworkNamespace::current().map_err(LinkError::at("making a device"))?;
        let wire = Namespace::create()?;
        let socket = wire.run(|| {
            stay_silent();
            netlink::create_pair((WIRE, WIRE_MAC), (name, HOST_MAC), &host)?;
            let wire = Interface::named(WIRE)?;
            // The kernel drops what is longer than the other end's MTU.
            wire.set_mtu(options.mtu)?;
            // Before the socket, which would else begin with the error that its device is down.
            wire.set_up_without_arp()?;
            PacketSocket::open(wire, (WIRE_MAC, HOST_MAC), offload)
        })?;
        Ok(socket.and_then(|socket| {
            // What the host does not segment reaches the socket whole.
            ethtool::set_offload(name, offload)?;
            Ok(Self::Veth { socket, wire })
        }))
    }

    /// Takes the host's device into service.
    pub(crate) fn set_up(&self, device: Interface) -> io::Result<()> {
        match self {
            Self::Tun(_) => device.set_up(),
            Self::Veth { .. } => device.set_up_without_arp(),
            #[cfg(test)]
            Self::Script(_) => Ok(()),
        }
    }

    /// Reads one packet that leaves the host, with its vnet header; `EAGAIN` if there is none.
    pub(crate) fn read_packet(&mut self, packet: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tun(tun) => tun.read_packet(packet),
            Self::Veth { socket, .. } => socket.read_packet(packet),
            #[cfg(test)]
            Self::Script(script) => script.read_packet(packet),
        }
    }

    /// Writes one packet with its vnet header; it arrives at the host.
    pub(crate) fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        match self {
            Self::Tun(tun) => tun.write_packet(packet),
            Self::Veth { socket, .. } => socket.write_packet(packet),
            #[cfg(test)]
            Self::Script(script) => {
                script.to_host.borrow_mut().push(packet.to_vec());
                Ok(())
            }
        }
    }

    /// Packets dropped unasked in this device so far, beyond those that a failed write or
    /// `Device::drops_on` reports.
    pub(crate) fn drops(&mut self) -> io::Result<u64> {
        match self {
            Self::Tun(_) => Ok(0),
            Self::Veth { socket, wire } => {
                // Older kernels count a packet as sent although the host had no room for it.
                let counters = wire.run(|| Interface::named(WIRE)?.counters());
                let sent = counters.map_err(io::Error::other)??.tx_dropped;
                Ok(socket.take_drops()? + sent)
            }
            #[cfg(test)]
            Self::Script(_) => Ok(0),
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(tun) => tun.as_fd(),
            Self::Veth { socket, .. } => socket.as_fd(),
            #[cfg(test)]
            Self::Script(script) => script.nothing.as_fd(),
        }
    }
}

/// Whether a device failed for a reason that one of another kind may not have: no such file, no
/// driver, or a file that we may not open.
fn is_missing(error: &io::Error) -> bool {
    // EPERM, ENOENT, ENXIO, EACCES, ENODEV, EOPNOTSUPP, EAFNOSUPPORT.
    matches!(error.raw_os_error(), Some(1 | 2 | 6 | 13 | 19 | 95 | 97))
}

/// Keeps the kernel from sending packets of its own on the pair's outer end.
fn stay_silent() {
    // Fails where the kernel has no IPv6; for IPv4 the device has no address.
    let _ = fs::write(Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6"), "1");
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    /// A device without a host: a test queues what leaves it, and reads what arrived.
    #[derive(Debug)]
    pub(crate) struct Script {
        pub(crate) from_host: VecDeque<Vec<u8>>,
        pub(crate) to_host: RefCell<Vec<Vec<u8>>>,
        pub(super) nothing: fs::File,
    }

    impl Script {
        pub(crate) fn new() -> Self {
            let nothing = fs::File::open("/dev/null").unwrap();
            Self { from_host: VecDeque::new(), to_host: RefCell::default(), nothing }
        }

        pub(super) fn read_packet(&mut self, packet: &mut [u8]) -> io::Result<usize> {
            let next = self.from_host.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            packet[..next.len()].copy_from_slice(&next);
            Ok(next.len())
        }
    }
}
