//! TUN devices: a network interface whose packets a program reads and writes
//! (`Documentation/networking/tuntap.rst`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::check;

/// The device through which TUN interfaces are made.
pub const DEVICE: &str = "/dev/net/tun";

/// Not in the `libc` crate: `include/uapi/linux/if_tun.h`.
const IFF_VNET_HDR: libc::c_int = 0x4000;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54D0;
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;

/// The length of the header in front of every packet (`struct virtio_net_hdr` of
/// `include/uapi/linux/virtio_net.h`): flags, kind of segmentation, then, as 16-bit numbers in the
/// machine's order, length of the headers, size of a segment, start and offset of the checksum.
pub const VNET_HEADER: usize = 10;

/// What the kernel leaves to the reader of a TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums: packets come with them unfinished, and go back so.
    Checksums,
    /// Checksums and the cutting of TCP data into segments: packets of up to 64 KiB come whole.
    Segments,
}

/// An open TUN interface; it vanishes when this is dropped, also by a kill.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the interface `name` (at most 15 bytes) in the calling thread's network namespace, for
    /// whole IP packets behind a [`VNET_HEADER`] (`TUNSETIFF`, `IFF_TUN | IFF_NO_PI |
    /// IFF_VNET_HDR`; `TUNSETOFFLOAD`).
    ///
    /// # Errors
    /// The kernel's: `ENOENT` or `ENODEV` without the TUN driver, `EACCES` or `EPERM` without
    /// `CAP_NET_ADMIN`, `EBUSY` for a name in use.
    pub fn create(name: &str, offload: Offload) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(Path::new(DEVICE))?;
        let mut request = libc::ifreq {
            ifr_name: interface_name(name)?,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_flags: i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI | IFF_VNET_HDR)
                    .unwrap_or_default(),
            },
        };
        // SAFETY: TUNSETIFF reads and writes one ifreq, which is ours and outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let flags = match offload {
            Offload::Checksums => TUN_F_CSUM,
            Offload::Segments => TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6,
        };
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, flags) })?;
        Ok(Self { file })
    }

    /// Reads one packet, which leaves the host, with its header (`read(2)`). Returns the length of
    /// both in bytes.
    ///
    /// # Errors
    /// `EAGAIN` when none is there.
    pub fn read_packet(&self, packet: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &self.file, packet)
    }

    /// Writes one packet with its header; it arrives at the host (`write(2)`).
    ///
    /// # Errors
    /// `EINVAL` for what is no IP packet, `EIO` while the interface is down, `ENOBUFS` when the
    /// kernel had no room and dropped it.
    pub fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        io::Write::write(&mut &self.file, packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A name as `struct ifreq` has it.
pub(crate) fn interface_name(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut room = [0; libc::IFNAMSIZ];
    if name.len() >= room.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(room)
}
