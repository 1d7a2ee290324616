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

/// An open TUN interface; it vanishes when this is dropped, also by a kill.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the interface `name` (at most 15 bytes) in the calling thread's network namespace, for
    /// whole IP packets without a header of its own (`TUNSETIFF`, `IFF_TUN | IFF_NO_PI`).
    ///
    /// # Errors
    /// The kernel's: `ENOENT` or `ENODEV` without the TUN driver, `EACCES` or `EPERM` without
    /// `CAP_NET_ADMIN`, `EBUSY` for a name in use.
    pub fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(Path::new(DEVICE))?;
        let mut request = libc::ifreq {
            ifr_name: interface_name(name)?,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_flags: i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap_or_default(),
            },
        };
        // SAFETY: TUNSETIFF reads and writes one ifreq, which is ours and outlives the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        Ok(Self { file })
    }

    /// Reads one packet, which leaves the host (`read(2)`). Returns its length in bytes.
    ///
    /// # Errors
    /// `EAGAIN` when none is there.
    pub fn read_packet(&self, packet: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &self.file, packet)
    }

    /// Writes one packet, which arrives at the host (`write(2)`).
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

fn interface_name(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut room = [0; libc::IFNAMSIZ];
    if name.len() >= room.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(room)
}
