//! This host's IPv6 addresses as the kernel reports them, for rules 3, 4 and 7.

use std::net::{IpAddr, Ipv6Addr};

use super::Source;

/// The IPv6 addresses of this host, in one network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddresses {
    addresses: Vec<LocalAddress>,
}

/// An IPv6 address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub address: Ipv6Addr,
    /// The index of its interface (`netdevice(7)`).
    pub index: u32,
    /// The name of its interface.
    pub interface: String,
    /// The scope by the kernel's own numbers (`IPV6_ADDR_*` of `include/net/ipv6.h`): 0x10 loopback,
    /// 0x20 link-local.
    pub scope: u8,
    /// `IFA_F_*` of `include/uapi/linux/if_addr.h`, the lowest 8 bits.
    pub flags: u8,
}

impl LocalAddresses {
    /// Parses `/proc/net/if_inet6`: address, interface index, prefix length, scope and flags, all
    /// hexadecimal, then the interface name. Malformed lines are skipped.
    #[must_use]
    pub fn parse(if_inet6: &str) -> Self {
        Self { addresses: if_inet6.lines().filter_map(LocalAddress::parse).collect() }
    }

    /// All addresses, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &LocalAddress> {
        self.addresses.iter()
    }

    /// The entry of an address. Several interfaces may have the same link-local address: then the
    /// entry of interface `index`, or else the first.
    #[must_use]
    pub fn find(&self, address: Ipv6Addr, index: u32) -> Option<&LocalAddress> {
        let mut all = self.addresses.iter().filter(|local| local.address == address);
        let first = all.next()?;
        if first.index == index {
            return Some(first);
        }
        Some(all.find(|local| local.index == index).unwrap_or(first))
    }

    /// The address as a source, with its flags. Whether it belongs to a tunnel depends on its
    /// interface: see [`is_tunnel`].
    ///
    /// The kernel flags home addresses (`IFA_F_HOMEADDRESS`), but not care-of addresses. If this
    /// host has a home address, it is mobile, and the addresses without the flag count as care-of
    /// addresses. Otherwise it has none. The loopback address is never one.
    #[must_use]
    pub fn source(&self, local: &LocalAddress) -> Source {
        let is_home = |local: &LocalAddress| local.flags & HOME_ADDRESS != 0;
        Source {
            address: IpAddr::V6(local.address),
            deprecated: local.flags & DEPRECATED != 0,
            care_of: !is_home(local)
                && !local.address.is_loopback()
                && self.addresses.iter().any(is_home),
            tunnel: false,
        }
    }

    /// Whether one of the addresses reaches beyond this host and its links. An address still in
    /// duplicate address detection counts, since it becomes usable in a moment; a duplicate does
    /// not.
    #[must_use]
    pub fn reach_beyond_links(&self) -> bool {
        self.addresses
            .iter()
            .any(|local| local.scope & (LOOPBACK | LINK_LOCAL) == 0 && local.flags & DUPLICATE == 0)
    }
}

impl LocalAddress {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let digits = words.next().filter(|word| word.len() == 32)?;
        let address = Ipv6Addr::from_bits(u128::from_str_radix(digits, 16).ok()?);
        let index = u32::from_str_radix(words.next()?, 16).ok()?;
        let _prefix_bits = words.next()?;
        let scope = u8::from_str_radix(words.next()?, 16).ok()?;
        let flags = u8::from_str_radix(words.next()?, 16).ok()?;
        Some(Self { address, index, interface: words.next()?.to_owned(), scope, flags })
    }
}

/// `IFA_F_DADFAILED`, `IFA_F_HOMEADDRESS` and `IFA_F_DEPRECATED`.
const DUPLICATE: u8 = 0x08;
const HOME_ADDRESS: u8 = 0x10;
const DEPRECATED: u8 = 0x20;

/// `IPV6_ADDR_LOOPBACK` and `IPV6_ADDR_LINKLOCAL`.
const LOOPBACK: u8 = 0x10;
const LINK_LOCAL: u8 = 0x20;

/// Whether interfaces of this hardware type (`ARPHRD_*` of `include/uapi/linux/if_arp.h`)
/// encapsulate packets, for rule 7: IP in IP, IP in IPv6, 6in4, 6to4 and GRE.
///
/// Tunnels made by programs (WireGuard, OpenVPN) are no transition mechanism and have no hardware
/// type of their own.
#[must_use]
pub fn is_tunnel(hardware_type: u16) -> bool {
    const TUNNEL: u16 = 768;
    const TUNNEL6: u16 = 769;
    const SIT: u16 = 776;
    const IPGRE: u16 = 778;
    const IP6GRE: u16 = 823;
    matches!(hardware_type, TUNNEL | TUNNEL6 | SIT | IPGRE | IP6GRE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As Linux 6.18 wrote it.
    const TEXT: &str = "\
fe8000000000000020e153fffe9c2dd6 05 40 20 c0      two
20010db8000300000000000000000001 05 40 00 92      two
20010db8000100000000000000000001 03 40 00 82      one
fe8000000000000020e153fffe9c2dd6 03 40 20 c0      one
00000000000000000000000000000001 01 80 10 80       lo
20010db8000200000000000000000001 05 40 00 a2      two
";

    #[test]
    fn each_line_is_an_address() {
        let local = LocalAddresses::parse(TEXT);
        assert_eq!(local.iter().count(), 6);
        let address = "2001:db8:3::1".parse().unwrap();
        let wanted =
            LocalAddress { address, index: 5, interface: "two".into(), scope: 0, flags: 0x92 };
        assert_eq!(local.find(address, 0), Some(&wanted));
        assert_eq!(local.find("2001:db8::1".parse().unwrap(), 0), None);
    }

    #[test]
    fn of_two_equal_addresses_the_interface_decides() {
        let local = LocalAddresses::parse(TEXT);
        let address = "fe80::20e1:53ff:fe9c:2dd6".parse().unwrap();
        let found =
            [5, 3, 0, 7].map(|index| local.find(address, index).unwrap().interface.as_str());
        assert_eq!(found, ["two", "one", "two", "two"]);
    }

    #[test]
    fn flags_tell_of_deprecated_and_home_addresses() {
        let source = |text: &str, address: &str| {
            let local = LocalAddresses::parse(text);
            let source = local.source(local.find(address.parse().unwrap(), 0).unwrap());
            assert_eq!(source.address, address.parse::<IpAddr>().unwrap());
            assert!(!source.tunnel);
            (source.deprecated, source.care_of)
        };
        assert_eq!(source(TEXT, "2001:db8:3::1"), (false, false), "the home address");
        assert_eq!(source(TEXT, "2001:db8:1::1"), (false, true));
        assert_eq!(source(TEXT, "2001:db8:2::1"), (true, true));
        assert_eq!(source(TEXT, "fe80::20e1:53ff:fe9c:2dd6"), (false, true));
        assert_eq!(source(TEXT, "::1"), (false, false));
        let without_home = TEXT.replace(" 92 ", " 82 ");
        assert_eq!(source(&without_home, "2001:db8:1::1"), (false, false));
        assert_eq!(source(&without_home, "2001:db8:2::1"), (true, false));
    }

    #[test]
    fn loopback_and_link_local_addresses_do_not_reach_far() {
        let line = |number: usize| TEXT.lines().nth(number).unwrap();
        for (text, reaches) in [
            ("", false),
            (line(4), false),
            (&[line(0), line(4)].join("\n"), false),
            (&[line(0), line(2), line(4)].join("\n"), true),
            // Unique local; still being checked for duplicates; a duplicate.
            ("fd000000000000000000000000000002 04 40 00 82     eth0", true),
            ("20010db8000000000000000000000002 04 40 00 40     eth0", true),
            ("20010db8000000000000000000000002 04 40 00 c8     eth0", false),
            ("20010db8000000000000000000000002 04 40 00", false),
        ] {
            assert_eq!(LocalAddresses::parse(text).reach_beyond_links(), reaches, "{text}");
        }
    }

    #[test]
    fn tunnels_are_told_by_their_type() {
        // Ethernet, loopback, point to point, none (TUN devices, WireGuard).
        for other in [1, 772, 512, 0xFFFE] {
            assert!(!is_tunnel(other), "{other}");
        }
        for tunnel in [768, 769, 776, 778, 823] {
            assert!(is_tunnel(tunnel), "{tunnel}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            // Miri takes its time, and lets nobody look for a file.
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = LocalAddresses::parse(&text);
        }

        #[test]
        fn no_line_makes_it_panic(
            lines in prop::collection::vec("[0-9a-fA-F+]{30,33}( [0-9a-fxé]{0,9}){0,5} ?[a-zé]{0,3}", 0..9),
        ) {
            let local = LocalAddresses::parse(&lines.join("\n"));
            prop_assert!(local.iter().count() <= lines.len());
        }
    }
}
