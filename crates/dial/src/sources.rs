//! Source addresses, usable families and the administrator's preferences, for RFC 6724.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use lastbyte_core::order::{LocalAddresses, PolicyTable, Source, is_tunnel};
use lastbyte_socket::{ConnectOptions, source_of};
use lastbyte_sys::socket;

/// The source addresses for the destinations of one answer. It reads this host's IPv6 addresses at
/// most once, and only if an IPv6 source needs them.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    how: &'a ConnectOptions,
    held: Option<LocalAddresses>,
    /// The interfaces seen so far, and whether they are tunnels.
    tunnels: Vec<(String, bool)>,
}

impl<'a> Sources<'a> {
    /// For connections with these options, opened by this thread: its network namespace decides.
    pub(crate) fn new(how: &'a ConnectOptions) -> Self {
        Self { how, held: None, tunnels: Vec::new() }
    }

    /// The source address for a destination; `None` without a route.
    ///
    /// IPv4 needs no more: it has no deprecated or care-of addresses, and if it passes a transition
    /// tunnel (DS-Lite, RFC 6333), all of it does.
    pub(crate) fn source_for(&mut self, destination: SocketAddr) -> Option<Source> {
        let address = source_of(destination, self.how)?;
        let IpAddr::V6(ipv6) = address else { return Some(Source::new(address)) };
        let index = match destination {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(destination) => destination.scope_id(),
        };
        let held = self.held.get_or_insert_with(|| {
            LocalAddresses::parse(&fs::read_to_string(IF_INET6).unwrap_or_default())
        });
        // An address of a local prefix (`ip route ... type local`) has no entry.
        let Some(entry) = held.find(ipv6, index) else { return Some(Source::new(address)) };
        let source = held.source(entry);
        let known = self.tunnels.iter().find(|(name, _)| *name == entry.interface);
        let tunnel = match known {
            Some((_, tunnel)) => *tunnel,
            None => {
                let tunnel = leads_through_tunnel(&entry.interface, destination);
                self.tunnels.push((entry.interface.clone(), tunnel));
                tunnel
            }
        };
        Some(Source { tunnel, ..source })
    }
}

/// The IPv6 addresses of the calling thread's network namespace. (`/proc/net` would be that of the
/// process's first thread.)
const IF_INET6: &str = "/proc/thread-self/net/if_inet6";

/// Asks the kernel: `/sys/class/net` shows the namespace in which it was mounted.
fn leads_through_tunnel(interface: &str, destination: SocketAddr) -> bool {
    let hardware_type = || socket::hardware_type(&socket::open_udp(destination)?, interface);
    hardware_type().is_ok_and(is_tunnel)
}

/// Whether this host has an IPv6 address beyond loopback and link-local ones, so that AAAA
/// questions are of use. Like `AI_ADDRCONFIG` of `getaddrinfo(3)`, which also counts link-local
/// addresses, though each interface has one. True if it cannot be found out.
pub(crate) fn uses_ipv6() -> bool {
    match fs::read_to_string(IF_INET6) {
        Ok(text) => LocalAddresses::parse(&text).reach_beyond_links(),
        // A kernel without IPv6 has no such file. Without `/proc` nothing is known.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            !Path::new("/proc/thread-self/net").exists()
        }
        Err(_) => true,
    }
}

/// The policy table of this system: `gai.conf(5)`, or else RFC 6724's. As in glibc, invalid lines
/// are skipped, and an unreadable file counts as absent.
pub(crate) fn system_policy() -> PolicyTable {
    policy_of(Path::new("/etc/gai.conf")).unwrap_or_default()
}

/// The most of a `gai.conf` that is read, in bytes; the rest is ignored.
const MOST_BYTES: u64 = 1 << 16;

fn policy_of(path: &Path) -> io::Result<PolicyTable> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        // A truncated line could mean something else.
        let last = text.iter().rposition(|byte| *byte == b'\n').unwrap_or_default();
        text.truncate(last);
    }
    Ok(PolicyTable::parse_gai_conf(&String::from_utf8_lossy(&text)).0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use lastbyte_link::{LinkError, Namespace};

    use super::*;

    /// A host of its own, set up by commands of `ip(8)`; `None` where that is not possible.
    fn host(setup: &[&str]) -> Option<Namespace> {
        let host = match Namespace::create() {
            Ok(host) => host,
            Err(error @ LinkError::Rights { .. }) => {
                lastbyte_testing::not_tested!("{error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let set_up = || setup.iter().all(|command| ip(command));
        host.run(set_up).unwrap().then_some(host)
    }

    /// Runs a command of `ip(8)` in this thread's namespace; says so where that is not possible.
    fn ip(command: &str) -> bool {
        let said = Command::new("ip").args(command.split_whitespace()).output();
        let done = said.as_ref().is_ok_and(|said| said.status.success());
        if !done {
            lastbyte_testing::not_tested!("ip {command}: {said:?}");
        }
        done
    }

    fn source(destination: &str) -> Option<Source> {
        let how = ConnectOptions::default();
        Sources::new(&how).source_for(destination.parse().unwrap())
    }

    /// Without addresses that the kernel makes by itself.
    const LINK: [&str; 5] = [
        "link add one type veth peer name far-one",
        "link set far-one addrgenmode none",
        "link set one addrgenmode none",
        "link set far-one up",
        "link set one up",
    ];

    #[test]
    fn a_deprecated_source_is_noticed() {
        let Some(host) = host(&LINK) else { return };
        host.run(|| {
            assert!(ip("address add 2001:db8:1::1/64 dev one nodad preferred_lft 0"));
            assert!(ip("address add 2001:db8:2::1/64 dev one nodad"));
            let deprecated = source("[2001:db8:1::9]:80").unwrap();
            assert_eq!(deprecated.address, "2001:db8:2::1".parse::<IpAddr>().unwrap());
            assert!(ip("address delete 2001:db8:2::1/64 dev one"));
            let deprecated = source("[2001:db8:1::9]:80").unwrap();
            let address: IpAddr = "2001:db8:1::1".parse().unwrap();
            assert_eq!(deprecated, Source { deprecated: true, ..Source::new(address) });
            assert_eq!(source("[2001:db8:2::9]:80"), None);
            assert_eq!(source("192.0.2.1:80"), None);
        })
        .unwrap();
    }

    #[test]
    fn on_a_mobile_host_the_other_addresses_are_care_of_ones() {
        let Some(host) = host(&LINK) else { return };
        host.run(|| {
            assert!(ip("address add 2001:db8:1::1/64 dev one nodad"));
            assert!(ip("address add fe80::1/64 dev one nodad"));
            assert!(!source("[2001:db8:1::9]:80").unwrap().care_of);
            if ip("address add 2001:db8:2::1/64 dev one nodad home") {
                let how = ConnectOptions::default().sources(vec!["2001:db8:1::1".parse().unwrap()]);
                let mut sources = Sources::new(&how);
                let care_of = |destination: &str, sources: &mut Sources<'_>| {
                    sources.source_for(destination.parse().unwrap()).unwrap().care_of
                };
                assert!(care_of("[2001:db8:1::9]:80", &mut sources));
                assert!(!source("[2001:db8:2::9]:80").unwrap().care_of);
            }
        })
        .unwrap();
    }

    #[test]
    fn a_tunnel_is_noticed() {
        let tunnel = [
            "link set lo up",
            "address add 192.0.2.1/24 dev one",
            "tunnel add six mode sit local 192.0.2.1 remote 192.0.2.2",
            "link set six up",
            "address add 2001:db8:6::1/64 dev six nodad",
            "address add 2001:db8:1::1/64 dev one nodad",
        ];
        let Some(host) = host(&[&LINK[..], &tunnel].concat()) else { return };
        host.run(|| {
            assert!(source("[2001:db8:6::9]:80").unwrap().tunnel);
            assert!(!source("[2001:db8:1::9]:80").unwrap().tunnel);
            assert!(!source("192.0.2.2:80").unwrap().tunnel);
        })
        .unwrap();
    }

    #[test]
    fn ipv6_is_of_use_with_an_address_that_reaches_far() {
        let Some(host) = host(&["link set lo up"]) else { return };
        host.run(|| {
            assert!(!uses_ipv6(), "the loopback address alone");
            if !LINK.iter().all(|command| ip(command)) {
                return;
            }
            assert!(ip("address add fe80::1/64 dev one nodad"));
            assert!(!uses_ipv6(), "and one of the link");
            assert!(ip("address add fd00::1/64 dev one nodad"));
            assert!(uses_ipv6(), "and one that is unique");
        })
        .unwrap();
    }

    #[test]
    fn the_policy_comes_from_a_file_if_that_can_be_read() {
        let directory = std::env::temp_dir().join(format!("lastbyte-gai-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, ipv4) = (directory.join("gai.conf"), "192.0.2.1".parse().unwrap());
        let precedence = |text: &[u8]| {
            fs::write(&path, text).unwrap();
            policy_of(&path).unwrap().precedence(ipv4)
        };
        assert_eq!(precedence(b""), 35);
        assert_eq!(precedence(b"precedence ::ffff:0:0/96  100\n"), 100);
        assert_eq!(precedence(b"precedence\nprecedence ::ffff:0:0/96  100"), 100);
        assert_eq!(precedence(b"label \xFF\nprecedence ::ffff:0:0/96  100\n"), 100);
        // What is cut off is no line.
        let mut long = b"precedence ::ffff:0:0/96 7\n".repeat(3000);
        long.truncate(usize::try_from(MOST_BYTES).unwrap());
        assert_eq!(precedence(&[&long[..], b"9\n"].concat()), 7);
        let mut comment = vec![b'#'; usize::try_from(MOST_BYTES).unwrap()];
        assert_eq!(precedence(&comment), 35);
        comment.extend(b"\nprecedence ::ffff:0:0/96  100\n");
        assert_eq!(precedence(&comment), 35, "beyond the limit");

        fs::remove_file(&path).unwrap();
        assert_eq!(policy_of(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(policy_of(&directory).is_err(), "a directory");
        fs::remove_dir(&directory).unwrap();
    }
}
