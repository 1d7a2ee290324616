//! Features of a network device that are switched on and off by name (`netdevice(7)`, `SIOCETHTOOL`;
//! `include/uapi/linux/ethtool.h`).

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::check;
use crate::tun::{Offload, interface_name};

/// Commands of `SIOCETHTOOL`.
const GET_NAMES: u32 = 0x1B;
const COUNT_NAMES: u32 = 0x37;
const SET_FEATURES: u32 = 0x3B;
/// The set of names that features have, and the room for each (`ETH_SS_FEATURES`,
/// `ETH_GSTRING_LEN`).
const OF_FEATURES: u32 = 4;
const NAME_ROOM: usize = 32;
/// Features that a device may have: the kernel has about 60.
const MOST_FEATURES: u32 = 1024;

/// Leaves the work in `offload` to the reader of the other end, for interface `name` in the calling
/// thread's network namespace. Other segmentation is done by the kernel before.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, `ENODEV` where there is no such interface.
pub fn set_offload(name: &str, offload: Offload) -> io::Result<()> {
    let names = feature_names(name)?;
    let mut blocks = vec![(0_u32, 0_u32); names.len().div_ceil(32)];
    for (place, name) in names.iter().enumerate() {
        if let Some(on) = wanted(name, offload) {
            let (valid, requested) = &mut blocks[place / 32];
            *valid |= 1 << (place % 32);
            *requested |= u32::from(on) << (place % 32);
        }
    }
    // struct ethtool_sfeatures: command, number of blocks, each with what is valid and its value.
    let mut request = vec![SET_FEATURES, u32::try_from(blocks.len()).map_err(io::Error::other)?];
    request.extend(blocks.iter().flat_map(|(valid, requested)| [*valid, *requested]));
    ask(name, &mut request)
}

/// What a feature has to be, where it matters.
fn wanted(name: &str, offload: Offload) -> Option<bool> {
    match name {
        // The kernel's own cutting, just before the device.
        "tx-generic-segmentation" => Some(true),
        "tx-tcp-segmentation" | "tx-tcp6-segmentation" => Some(offload == Offload::Segments),
        "tx-gso-list" | "tx-gso-partial" => Some(false),
        name => (name.starts_with("tx-") && name.ends_with("-segmentation")).then_some(false),
    }
}

/// The names of a device's features, in the order of their bits.
fn feature_names(interface: &str) -> io::Result<Vec<String>> {
    // struct ethtool_sset_info: command, reserved, 64 bits of sets, and a number for the one asked.
    let set: u64 = 1 << OF_FEATURES;
    let [a, b, c, d, e, f, g, h] = set.to_ne_bytes();
    let halves = [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])];
    let mut count = [COUNT_NAMES, 0, halves[0], halves[1], 0];
    ask(interface, &mut count)?;
    let count = count[4].min(MOST_FEATURES);
    // struct ethtool_gstrings: command, set, number, names.
    let words = usize::try_from(count).map_err(io::Error::other)? * NAME_ROOM / 4;
    let mut names = vec![0; 3 + words];
    names[..3].copy_from_slice(&[GET_NAMES, OF_FEATURES, count]);
    ask(interface, &mut names)?;
    let bytes: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let name = |bytes: &[u8]| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    Ok(bytes.chunks(NAME_ROOM).map(name).collect())
}

/// Makes one request, which begins with its command and has the room that the answer needs.
fn ask(interface: &str, request: &mut [u32]) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut ifreq = libc::ifreq {
        ifr_name: interface_name(interface)?,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: request.as_mut_ptr().cast() },
    };
    // SAFETY: `ifreq` and the request behind it outlive the call; the kernel writes to the request no
    // more than its own numbers announce, for which there is room.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ifreq) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tcp_is_ever_left_uncut() {
        let wants = |name| [Offload::Checksums, Offload::Segments].map(|all| wanted(name, all));
        assert_eq!(wants("tx-tcp-segmentation"), [Some(false), Some(true)]);
        assert_eq!(wants("tx-tcp6-segmentation"), [Some(false), Some(true)]);
        assert_eq!(wants("tx-udp-segmentation"), [Some(false); 2]);
        assert_eq!(wants("tx-tcp-ecn-segmentation"), [Some(false); 2]);
        assert_eq!(wants("tx-generic-segmentation"), [Some(true); 2]);
        assert_eq!(wants("tx-checksum-ip-generic"), [None; 2]);
        assert_eq!(wants("rx-gro"), [None; 2]);
    }
}
