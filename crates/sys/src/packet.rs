//! Packet sockets with a ring in memory: whole frames of one network interface, read and written by a
//! program (`packet(7)`, `Documentation/networking/packet_mmap.rst`).
//!
//! The ring is the queue. A plain socket's would be bounded by `net.core.rmem_max`, which on most
//! machines holds fewer than 200 packets; the ring's size is ours to choose, without any right.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::check;
use crate::netlink::{Interface, Mac};
use crate::socket::{set_int, set_option, size_of_value};
use crate::tun::{Offload, VNET_HEADER};

/// From `include/uapi/linux/if_ether.h`.
const ETHERNET_HEADER: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];
/// From `include/uapi/linux/virtio_net.h`.
const NEEDS_CHECKSUM: u8 = 1;

/// Packets are laid into frames, frames into blocks; no frame lies across two blocks.
const BLOCK: usize = 1 << 20;
/// Room for a packet of 1500 bytes and the headers of Ethernet, vnet and the ring (90 bytes).
const FRAME: usize = 2048;
const BLOCKS: usize = 16;
/// Room for 64 KiB and the same headers.
const LARGE_FRAME: usize = 65_536 + 128;
const LARGE_BLOCKS: usize = 64;
/// Where the numbers of `struct tpacket2_hdr` lie in a frame.
const STATUS: usize = 0;
const LENGTH: usize = 4;
const CAPTURED: usize = 8;
const MAC_HEADER: usize = 12;

/// A packet socket on one Ethernet interface. It takes and gives IP packets behind a vnet header, as a
/// [`crate::tun::Tun`] does.
#[derive(Debug)]
pub struct PacketSocket {
    file: File,
    ring: Ring,
    /// The Ethernet header of a written packet, but for its last two bytes.
    addresses: [u8; 12],
    drops: u64,
}

impl PacketSocket {
    /// Opens a socket on `interface` of the calling thread's network namespace; what is written goes
    /// `to` that Ethernet address (`packet(7)`, `PACKET_VNET_HDR`, `PACKET_RX_RING`).
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` without packet sockets, `ENOMEM`
    /// without room for the ring.
    pub fn open(
        interface: Interface,
        (from, to): (Mac, Mac),
        offload: Offload,
    ) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Protocol 0: nothing arrives before the bind.
        // SAFETY: socket takes no pointer.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let version = i32::try_from(libc::tpacket_versions::TPACKET_V2 as u32).unwrap_or(1);
        set_int(&fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        // Both before the ring: it leaves room for the header.
        set_int(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set_int(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // Written packets go to the device at once: the queue before it silently drops packets
        // until the kernel, a moment later, has noticed that the other end is up.
        set_int(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        let ring = Ring::map(&fd, offload)?;
        bind(&fd, interface)?;
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&to);
        addresses[6..].copy_from_slice(&from);
        Ok(Self { file: fd.into(), ring, addresses, drops: 0 })
    }

    /// Takes one IP packet with its vnet header out of the ring. Returns the length of both in bytes.
    ///
    /// # Errors
    /// `EAGAIN` when none is there.
    pub fn read_packet(&mut self, packet: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = self.ring.frame() else {
                return Err(io::ErrorKind::WouldBlock.into());
            };
            let taken = take(frame, packet);
            self.ring.release();
            match taken {
                Taken::Packet(length) => return Ok(length),
                Taken::CutOff => self.drops += 1,
                Taken::NotIp => {}
            }
        }
    }

    /// Writes one IP packet with its vnet header; it arrives at the other end (`writev(2)`).
    ///
    /// # Errors
    /// `EINVAL` for what is no IP packet, `ENETDOWN` while the interface is down, `ENOBUFS` when the
    /// kernel had no room and dropped it.
    pub fn write_packet(&self, packet: &[u8]) -> io::Result<()> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let (header, ip) = packet.split_at_checked(VNET_HEADER).ok_or_else(invalid)?;
        let mut vnet = [0; VNET_HEADER];
        vnet.copy_from_slice(header);
        shift(&mut vnet, |offset| offset.saturating_add(ETHERNET));
        let kind = match ip.first().ok_or_else(invalid)? >> 4 {
            4 => IPV4,
            6 => IPV6,
            _ => return Err(invalid()),
        };
        let parts = [&vnet[..], &self.addresses, &kind, ip].map(IoSlice::new);
        match (&self.file).write_vectored(&parts) {
            // The socket's own buffer is full: nothing waits here, so it is dropped.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::from_raw_os_error(libc::ENOBUFS))
            }
            result => result.map(drop),
        }
    }

    /// Packets dropped since the last call because the ring was full or they did not fit
    /// (`PACKET_STATISTICS`).
    ///
    /// # Errors
    /// None expected; the kernel's are passed on.
    pub fn take_drops(&mut self) -> io::Result<u64> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of_value::<libc::tpacket_stats>();
        let (fd, option) = (self.file.as_raw_fd(), libc::PACKET_STATISTICS);
        let pointer = (&raw mut stats).cast();
        // SAFETY: `stats` has the length announced, and both outlive the call.
        check(unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, pointer, &raw mut length) })?;
        Ok(u64::from(stats.tp_drops) + std::mem::take(&mut self.drops))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What was in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// An IP packet: the length of what was copied.
    Packet(usize),
    /// More than there was room for.
    CutOff,
    /// Neither IPv4 nor IPv6.
    NotIp,
}

const ETHERNET: u16 = 14;

/// Copies an IP packet with its vnet header out of a frame of the ring.
fn take(frame: &[u8], packet: &mut [u8]) -> Taken {
    let (length, captured) = (u32_at(frame, LENGTH), u32_at(frame, CAPTURED));
    let mac = usize::from(u16::from_ne_bytes([frame[MAC_HEADER], frame[MAC_HEADER + 1]]));
    let (Some(header), Some(ethernet)) = (
        mac.checked_sub(VNET_HEADER).and_then(|start| frame.get(start..mac)),
        frame.get(mac..mac + captured),
    ) else {
        return Taken::CutOff;
    };
    let Some((ethernet, ip)) = ethernet.split_at_checked(ETHERNET_HEADER) else {
        return Taken::NotIp;
    };
    if ethernet[12..] != IPV4 && ethernet[12..] != IPV6 {
        return Taken::NotIp;
    }
    let total = VNET_HEADER + ip.len();
    if captured < length || packet.len() < total {
        return Taken::CutOff;
    }
    packet[..VNET_HEADER].copy_from_slice(header);
    packet[VNET_HEADER..total].copy_from_slice(ip);
    shift(&mut packet[..VNET_HEADER], |offset| offset.saturating_sub(ETHERNET));
    Taken::Packet(total)
}

/// Changes the offsets of a vnet header, which count from the packet's first byte: the length of its
/// headers where it is to be cut, and the checksum's start where that is to be made.
fn shift(vnet: &mut [u8], by: impl Fn(u16) -> u16) {
    let (flags, kind) = (vnet[0], vnet[1]);
    let mut change = |at: usize| {
        let offset = u16::from_ne_bytes([vnet[at], vnet[at + 1]]);
        vnet[at..at + 2].copy_from_slice(&by(offset).to_ne_bytes());
    };
    if kind != 0 {
        change(2);
    }
    if flags & NEEDS_CHECKSUM != 0 {
        change(6);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    let number = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Lets the frames of an interface arrive at the socket (`bind(2)`, `ETH_P_ALL`).
fn bind(fd: &OwnedFd, interface: Interface) -> io::Result<()> {
    let all = u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be();
    let address = libc::sockaddr_ll {
        sll_family: libc::sa_family_t::try_from(libc::AF_PACKET).unwrap_or_default(),
        sll_protocol: all,
        sll_ifindex: i32::try_from(interface.index()).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_value::<libc::sockaddr_ll>();
    // SAFETY: `address` has the length given and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// Frames shared with the kernel, which fills them in turn; the status of each says which side owns
/// it.
#[derive(Debug)]
struct Ring {
    base: NonNull<u8>,
    blocks: usize,
    frame_size: usize,
    /// The frame that is filled next: its block and its place there.
    next: (usize, usize),
}

// SAFETY: the memory is reached through this value alone, which has no tie to a thread.
unsafe impl Send for Ring {}

impl Ring {
    fn map(fd: &OwnedFd, offload: Offload) -> io::Result<Self> {
        let (frame_size, blocks) = match offload {
            Offload::Checksums => (FRAME, BLOCKS),
            Offload::Segments => (LARGE_FRAME, LARGE_BLOCKS),
        };
        let number = |size: usize| u32::try_from(size).map_err(io::Error::other);
        let request = libc::tpacket_req {
            tp_block_size: number(BLOCK)?,
            tp_block_nr: number(blocks)?,
            tp_frame_size: number(frame_size)?,
            tp_frame_nr: number(BLOCK / frame_size * blocks)?,
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (all, protection) = (BLOCK * blocks, libc::PROT_READ | libc::PROT_WRITE);
        let (anywhere, fd) = (std::ptr::null_mut(), fd.as_raw_fd());
        // SAFETY: a new mapping of the whole ring at an address of the kernel's choice.
        let base = unsafe { libc::mmap(anywhere, all, protection, libc::MAP_SHARED, fd, 0) };
        match NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED) {
            Some(base) => Ok(Self { base, blocks, frame_size, next: (0, 0) }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// The next frame, if the kernel has filled it.
    fn frame(&self) -> Option<&[u8]> {
        // Acquire: what the kernel wrote before the status is seen after it.
        let is_ours = self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        let start = self.start();
        // SAFETY: the frame lies within the mapping, and is ours alone until it is released, which
        // takes `self` exclusively.
        is_ours.then(|| unsafe { std::slice::from_raw_parts(start, self.frame_size) })
    }

    /// Gives the frame back to the kernel, and goes on to the next.
    fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        let (block, place) = self.next;
        self.next = if place + 1 < BLOCK / self.frame_size {
            (block, place + 1)
        } else {
            ((block + 1) % self.blocks, 0)
        };
    }

    fn status(&self) -> &AtomicU32 {
        let status = self.start().wrapping_add(STATUS).cast::<u32>();
        // SAFETY: a frame begins with its status, at a multiple of 16, within the mapping, which lives
        // as long as `self`; the kernel changes it in one piece.
        unsafe { AtomicU32::from_ptr(status) }
    }

    fn start(&self) -> *mut u8 {
        let (block, place) = self.next;
        self.base.as_ptr().wrapping_add(block * BLOCK + place * self.frame_size)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing borrowed from it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), BLOCK * self.blocks) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of the ring with a packet of this Ethernet type, `captured` of `length` bytes of it.
    fn frame(kind: [u8; 2], length: u32, captured: u32) -> Vec<u8> {
        let mut frame = vec![0; FRAME];
        frame[LENGTH..LENGTH + 4].copy_from_slice(&length.to_ne_bytes());
        frame[CAPTURED..CAPTURED + 4].copy_from_slice(&captured.to_ne_bytes());
        frame[MAC_HEADER..MAC_HEADER + 2].copy_from_slice(&90_u16.to_ne_bytes());
        frame[80..90].copy_from_slice(&[NEEDS_CHECKSUM, 1, 66, 0, 0, 0, 34, 0, 16, 0]);
        frame[102..104].copy_from_slice(&kind);
        frame[104..].fill(0x45);
        frame
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn packets_come_without_their_ethernet_header() {
        let mut packet = [0; FRAME];
        assert_eq!(take(&frame(IPV4, 54, 54), &mut packet), Taken::Packet(50));
        assert_eq!(packet[..10], [NEEDS_CHECKSUM, 1, 52, 0, 0, 0, 20, 0, 16, 0]);
        assert_eq!(packet[10..50], [0x45; 40]);
        assert_eq!(packet[50..], [0; FRAME - 50]);
    }

    #[test]
    fn what_is_cut_off_or_no_ip_packet_is_not_taken() {
        let mut packet = [0; FRAME];
        assert_eq!(take(&frame(IPV4, 55, 54), &mut packet), Taken::CutOff);
        assert_eq!(take(&frame(IPV4, 54, 54), &mut packet[..49]), Taken::CutOff);
        assert_eq!(take(&frame(IPV4, 9999, 9999), &mut packet), Taken::CutOff);
        assert_eq!(take(&frame([0x08, 0x06], 54, 54), &mut packet), Taken::NotIp);
        assert_eq!(take(&frame(IPV4, 13, 13), &mut packet), Taken::NotIp);
        assert_eq!(take(&[0; FRAME], &mut packet), Taken::CutOff);
    }
}
