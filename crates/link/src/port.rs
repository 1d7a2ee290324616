//! A host's device, as the carrier sees it: from here packets leave the host, and here they arrive.
//!
//! Two kinds, which give and take the same: an IP packet behind a vnet header. A TUN device, where
//! `/dev/net/tun` may be opened; else a pair of Ethernet devices, one end on the host and the other in a
//! namespace that nobody is in, with a packet socket on it. The second needs no device file, so it is
//! there in most user namespaces.

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

/// Which kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Packets through `/dev/net/tun`.
    Tun,
    /// Packets through a pair of Ethernet devices and a packet socket.
    Pair,
}

impl Kind {
    /// The best first: TUN devices cost less for each packet.
    pub(crate) const ALL: &[Self] = &[Self::Tun, Self::Pair];
}

/// What a device is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The largest IP packet in bytes.
    pub(crate) mtu: u32,
    /// Whether segments mostly go on as they come, uncut.
    pub(crate) uncut: bool,
}

/// A device of a host.
#[derive(Debug)]
pub(crate) enum Port {
    Tun(Tun),
    Pair {
        socket: PacketSocket,
        wire: Namespace,
    },
    #[cfg(test)]
    Script(tests::Script),
}

impl Port {
    /// Makes the device of the host that the calling thread is in, of the first kind that there is.
    pub(crate) fn create(name: &str, kinds: &[Kind], use_of: Use) -> Result<Self, LinkError> {
        let mut missing = None;
        for kind in kinds {
            let tried = match kind {
                // What must be cut we cut ourselves: one read brings many segments.
                Kind::Tun => Tun::create(name, Offload::Segments).map(Self::Tun),
                Kind::Pair => Self::pair(name, use_of)?,
            };
            match tried {
                Err(error) if is_missing(&error) => missing = Some(error),
                made => return made.map_err(LinkError::at_device),
            }
        }
        Err(LinkError::at_device(missing.unwrap_or_else(|| io::ErrorKind::Unsupported.into())))
    }

    /// The inner failure is that of the devices themselves.
    fn pair(name: &str, use_of: Use) -> Result<io::Result<Self>, LinkError> {
        // A ring has frames of one size. Where the kernel cuts they can be small ones, and more.
        let cut_by_kernel = !use_of.uncut && use_of.mtu <= DEFAULT_MTU;
        let offload = if cut_by_kernel { Offload::Checksums } else { Offload::Segments };
        let host = NetworkNamespace::current().map_err(LinkError::at("making a device"))?;
        let wire = Namespace::create()?;
        let socket = wire.run(|| {
            stay_silent();
            netlink::create_pair((WIRE, WIRE_MAC), (name, HOST_MAC), &host)?;
            let wire = Interface::named(WIRE)?;
            // The kernel drops what is longer than the other end's MTU.
            wire.set_mtu(use_of.mtu)?;
            // Before the socket, which would else begin with the error that its device is down.
            wire.set_up_without_arp()?;
            PacketSocket::open(wire, (WIRE_MAC, HOST_MAC), offload)
        })?;
        Ok(socket.and_then(|socket| {
            // What the host does not cut comes uncut to the socket.
            ethtool::set_offload(name, offload)?;
            Ok(Self::Pair { socket, wire })
        }))
    }

    /// Takes the host's device into service.
    pub(crate) fn set_up(&self, device: Interface) -> io::Result<()> {
        match self {
            Self::Tun(_) => device.set_up(),
            Self::Pair { .. } => device.set_up_without_arp(),
            #[cfg(test)]
            Self::Script(_) => Ok(()),
        }
    }

    /// Reads one packet, which leaves the host, with its vnet header; `EAGAIN` when none is there.
    pub(crate) fn read_packet(&mut self, packet: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tun(tun) => tun.read_packet(packet),
            Self::Pair { socket, .. } => socket.read_packet(packet),
            #[cfg(test)]
            Self::Script(script) => script.read_packet(packet),
        }
    }

    /// Writes one packet with its vnet header; it arrives at the host.
    pub(crate) fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        match self {
            Self::Tun(tun) => tun.write_packet(packet),
            Self::Pair { socket, .. } => socket.write_packet(packet),
            #[cfg(test)]
            Self::Script(script) => {
                script.to_host.borrow_mut().push(packet.to_vec());
                Ok(())
            }
        }
    }

    /// Packets dropped unasked on their way through here, so far, that neither a failed write nor
    /// [`Namespace::device_drops`] tells of.
    pub(crate) fn drops(&mut self) -> io::Result<u64> {
        match self {
            Self::Tun(_) => Ok(0),
            Self::Pair { socket, wire } => {
                // Older kernels say of a packet that found no room at the host that it was sent.
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
            Self::Pair { socket, .. } => socket.as_fd(),
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

/// Keeps the kernel from sending packets of its own into the wire.
fn stay_silent() {
    // Without IPv6 there is nothing to keep silent; IPv4 has no address there.
    let _ = fs::write(Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6"), "1");
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    /// A device without a host: what a test says leaves it, and what arrives is kept.
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
