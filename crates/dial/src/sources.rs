//! What this host's network says about addresses, for RFC 6724: where a connection would come from,
//! whether IPv6 is of use, and what the administrator prefers.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use lastbyte_core::order::{HeldAddresses, PolicyTable, Source, is_tunnel};
use lastbyte_socket::{ConnectOptions, source_of};
use lastbyte_sys::socket;

/// The source addresses for the destinations of one answer. What it has to ask about IPv6 it asks once,
/// and not at all where there is none.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    how: &'a ConnectOptions,
    held: Option<HeldAddresses>,
    /// The interfaces that were asked about, and whether they are tunnels.
    tunnels: Vec<(String, bool)>,
}

impl<'a> Sources<'a> {
    /// For connections that are opened in this way, by this thread: it has the network namespace.
    pub(crate) fn new(how: &'a ConnectOptions) -> Self {
        Self { how, held: None, tunnels: Vec::new() }
    }

    /// The source address for a destination, or none where no way leads there.
    ///
    /// Of IPv4 nothing more is asked: it has neither deprecated nor care-of addresses, and where it goes
    /// through a tunnel as a means of transition (DS-Lite, RFC 6333) all of it does.
    pub(crate) fn source_for(&mut self, destination: SocketAddr) -> Option<Source> {
        let address = source_of(destination, self.how)?;
        let IpAddr::V6(ipv6) = address else { return Some(Source::new(address)) };
        let index = match destination {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(destination) => destination.scope_id(),
        };
        let held = self.held.get_or_insert_with(|| {
            HeldAddresses::parse(&fs::read_to_string(IF_INET6).unwrap_or_default())
        });
        // An address of a whole prefix that is this host's (`ip route ... type local`) has no entry.
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

/// Asks the kernel itself: `/sys/class/net` tells of the namespace in which it was mounted.
fn leads_through_tunnel(interface: &str, destination: SocketAddr) -> bool {
    let hardware_type = || socket::hardware_type(&socket::open_udp(destination)?, interface);
    hardware_type().is_ok_and(is_tunnel)
}

/// Whether this host has an IPv6 address beyond those of its loopback interface and its links, so that
/// it is worth asking for others (as `AI_ADDRCONFIG` of `getaddrinfo(3)` wants it; but there
/// link-local ones count, of which each interface has one). Where nobody can tell, it is.
pub(crate) fn uses_ipv6() -> bool {
    match fs::read_to_string(IF_INET6) {
        Ok(text) => HeldAddresses::parse(&text).reach_beyond_links(),
        // A kernel without IPv6 has no such file. One without `/proc` says nothing.
        Err(_) => !Path::new("/proc/thread-self/net").exists(),
    }
}

/// The table of precedences and labels that this system uses: `gai.conf(5)`, or else RFC 6724's. As with
/// glibc, what makes no sense in the file is passed over, and a file that cannot be read is none.
pub(crate) fn system_policy() -> PolicyTable {
    policy_of(Path::new("/etc/gai.conf")).unwrap_or_default()
}

/// The most of a `gai.conf` that is read, in bytes; what is behind is passed over.
const MOST_BYTES: u64 = 1 << 16;

fn policy_of(path: &Path) -> io::Result<PolicyTable> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        // A part of a line could be another one.
        let last = text.iter().rposition(|byte| *byte == b'\n').unwrap_or_default();
        text.truncate(last);
    }
    Ok(PolicyTable::parse_gai_conf(&String::from_utf8_lossy(&text)).0)
}
