//! Parses `/etc/resolv.conf` and `/etc/hosts`: `resolv.conf(5)`, `hosts(5)`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::ResolverError;
use crate::host::{self, Host};

/// The port of DNS servers (RFC 1035 section 4.2).
const PORT: u16 = 53;
/// The most servers, as in glibc (`MAXNS`); further ones are ignored.
const MOST_SERVERS: usize = 3;
/// The most domains to search; further ones are ignored.
const MOST_DOMAINS: usize = 32;
/// glibc's limits (`resolv.conf(5)`).
const MOST_DOTS: usize = 15;
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const MOST_ATTEMPTS: u32 = 5;

/// How to ask DNS: the settings of `/etc/resolv.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolvConf {
    /// The servers, in order. A text gives at most 3.
    pub servers: Vec<SocketAddr>,
    /// The domains to search for a name, without final dots.
    pub search: Vec<String>,
    /// A name with at least this many dots is first tried as it is; default 1.
    pub ndots: usize,
    /// `timeout` times `attempts` is how long to wait for an answer; default 5 s, at most 30 s. The
    /// question is sent again, and to the next server, long before that.
    pub timeout: Duration,
    /// See `timeout`; default 2, at most 5.
    pub attempts: u32,
    /// Whether each question begins with another server; default no.
    pub rotate: bool,
    /// Whether to ask everything over TCP; default no.
    pub use_vc: bool,
    /// Whether never to ask for IPv6 addresses; default no.
    pub no_aaaa: bool,
}

impl Default for ResolvConf {
    fn default() -> Self {
        Self {
            servers: vec![(Ipv4Addr::LOCALHOST, PORT).into()],
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            rotate: false,
            use_vc: false,
            no_aaaa: false,
        }
    }
}

impl ResolvConf {
    /// Parses a `resolv.conf(5)`. As in glibc, unknown settings are ignored, without a server one
    /// on this host is asked, and the last of `search` and `domain` counts. Beyond glibc, a server
    /// may have a port (`127.0.0.1:5353`, `[::1]:5353`), and a time-out a fraction (`timeout:0.3`).
    /// `sortlist` and the environment (`LOCALDOMAIN`, `RES_OPTIONS`) are ignored.
    ///
    /// # Errors
    /// When servers are listed, and none of them is an address.
    pub fn parse(text: &str) -> Result<Self, ResolverError> {
        let mut read = Self { servers: Vec::new(), ..Self::default() };
        let mut bad_server = None;
        for line in text.lines() {
            let line = line.trim_start();
            if line.starts_with([';', '#']) {
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => match words.next() {
                    Some(word) => match server(word) {
                        Some(server) => read.servers.push(server),
                        None => bad_server = Some(word),
                    },
                    None => bad_server = Some(""),
                },
                Some("search") => read.search = words.filter_map(domain).collect(),
                Some("domain") => read.search = words.take(1).filter_map(domain).collect(),
                Some("options") => words.for_each(|option| read.set(option)),
                _ => {}
            }
        }
        read.servers.truncate(MOST_SERVERS);
        read.search.truncate(MOST_DOMAINS);
        if !read.servers.is_empty() {
            return Ok(read);
        }
        match bad_server {
            None => Ok(Self { servers: Self::default().servers, ..read }),
            Some(word) => Err(ResolverError::Configuration {
                file: "resolv.conf".to_owned(),
                problem: format!("no nameserver is an address: `{}`", word.escape_debug()),
            }),
        }
    }

    fn set(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        match (name, value.parse::<f64>().ok().filter(|value| value.is_finite())) {
            ("ndots", _) => {
                self.ndots = value.parse().map_or(self.ndots, |dots: usize| dots.min(MOST_DOTS));
            }
            ("timeout", Some(seconds)) if seconds > 0.0 => {
                let most = LONGEST_TIMEOUT.as_secs_f64();
                self.timeout = Duration::from_secs_f64(seconds.min(most));
            }
            ("attempts", _) => {
                self.attempts =
                    value.parse().map_or(self.attempts, |most: u32| most.clamp(1, MOST_ATTEMPTS));
            }
            ("rotate", _) => self.rotate = true,
            ("use-vc", _) => self.use_vc = true,
            ("no-aaaa", _) => self.no_aaaa = true,
            _ => {}
        }
    }

    /// Reads the system's file; a missing file counts as empty.
    pub(super) fn read(path: &Path) -> Result<Self, ResolverError> {
        let text = read(path)?;
        let mut read = Self::parse(&text).map_err(|error| match error {
            ResolverError::Configuration { problem, .. } => configuration(path, problem),
        })?;
        let says_where = |line: &str| {
            let first = line.split_ascii_whitespace().next();
            matches!(first, Some("search" | "domain"))
        };
        if !text.lines().any(says_where) {
            read.search = own_domain().into_iter().collect();
        }
        Ok(read)
    }
}

fn server(word: &str) -> Option<SocketAddr> {
    if let Ok(address) = word.parse() {
        return Some(address);
    }
    let mut address = host::literal(word).ok()??;
    address.set_port(PORT);
    Some(address)
}

fn domain(word: &str) -> Option<String> {
    match Host::parse(word, 0) {
        Ok(Host::Name(name)) => Some(name.trim_end_matches('.').to_owned()),
        _ => None,
    }
}

/// The domain of this host's name, after its first dot: glibc's default search list.
fn own_domain() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    domain(name.trim().split_once('.')?.1)
}

/// The names of `/etc/hosts`, and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts(HashMap<String, Vec<SocketAddr>>);

impl Hosts {
    /// Parses a `hosts(5)`. Lines without an address at the start are skipped, and so are those
    /// whose scope is not an existing interface.
    pub(super) fn parse(text: &str) -> Self {
        let mut names: HashMap<String, Vec<SocketAddr>> = HashMap::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(Ok(Some(address))) = words.next().map(host::literal) else { continue };
            for name in words {
                let addresses = names.entry(key(name)).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Self(names)
    }

    /// Reads the system's file; a missing file counts as empty.
    pub(super) fn read(path: &Path) -> Result<Self, ResolverError> {
        Ok(Self::parse(&read(path)?))
    }

    /// The addresses of both families that a name has without DNS. A name of the file has those of
    /// the file alone: with an IPv4 address there it has no IPv6 address, and DNS is not asked for
    /// one, as glibc does by `hosts: files dns` if both families are asked for together. Only a
    /// `localhost` (RFC 6761 section 6.3) that is not in the file is both loopback addresses.
    pub(super) fn addresses(&self, name: &str) -> Option<Vec<SocketAddr>> {
        let name = key(name);
        if let Some(addresses) = self.0.get(&name) {
            return Some(addresses.clone());
        }
        let loopback: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
        is_localhost(&name).then(|| loopback.map(|ip| (ip, 0).into()).to_vec())
    }
}

/// Whether a name always means this host (RFC 6761 section 6.3).
pub(super) fn is_localhost(name: &str) -> bool {
    is_within(&key(name), "localhost")
}

/// Whether a name is resolved by multicast DNS on a link (RFC 6762 section 3).
pub(super) fn is_of_links(name: &str) -> bool {
    is_within(&key(name), "local")
}

/// Names that DNS must not be asked for, because nobody has them there (RFC 6761 section 6.4, RFC 7686
/// section 2).
pub(super) fn is_reserved(name: &str) -> bool {
    let name = key(name);
    is_within(&name, "invalid") || is_within(&name, "onion")
}

fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// A name as it is compared.
fn key(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Identifies the state of a file: a changed or replaced file has another one.
pub(super) type Stamp = Option<(u64, u64, i64, i64, u64)>;

pub(super) fn stamp(path: &Path) -> Stamp {
    let of = fs::metadata(path).ok()?;
    Some((of.dev(), of.ino(), of.mtime(), of.mtime_nsec(), of.size()))
}

fn read(path: &Path) -> Result<String, ResolverError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(configuration(path, error.to_string())),
    }
}

fn configuration(path: &Path, problem: String) -> ResolverError {
    ResolverError::Configuration { file: path.display().to_string(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ResolvConf {
        ResolvConf::parse(text).unwrap()
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn a_resolv_conf_is_read_as_glibc_does() {
        let read = parse(
            "# a comment\n; another\nnameserver 192.0.2.53\nnameserver fe80::1%1 # IPv6\n\
             domain old.test\nsearch a.test b.test.\nnameserver what\nsortlist 192.0.2.0\n\
             options ndots:2 timeout:3 attempts:4 rotate edns0 unknown:1\noptions use-vc no-aaaa\n",
        );
        assert_eq!(read.servers, addresses(&["192.0.2.53:53", "[fe80::1%1]:53"]));
        assert_eq!(read.search, ["a.test", "b.test"]);
        assert_eq!((read.ndots, read.timeout), (2, Duration::from_secs(3)));
        assert_eq!((read.attempts, read.rotate), (4, true));
        assert_eq!((read.use_vc, read.no_aaaa), (true, true));
    }

    #[test]
    fn nothing_said_is_a_server_on_this_host() {
        assert_eq!(parse(""), ResolvConf::default());
        assert_eq!(parse("").servers, addresses(&["127.0.0.1:53"]));
    }

    #[test]
    fn numbers_have_bounds() {
        let read = parse("options ndots:99 timeout:9999 attempts:0");
        assert_eq!((read.ndots, read.timeout, read.attempts), (15, Duration::from_secs(30), 1));
        let read =
            parse("options ndots:-1 timeout:-1 attempts:x timeout:nan timeout:inf timeout:0");
        assert_eq!(read, ResolvConf::default());
        assert_eq!(parse("options timeout:0.25").timeout, Duration::from_millis(250));
        let many = "nameserver 192.0.2.1\n".repeat(9);
        assert_eq!(parse(&many).servers.len(), 3);
    }

    #[test]
    fn servers_may_have_ports_and_must_be_addresses() {
        let read = parse("nameserver 127.0.0.1:5353\nnameserver [::1]:5353\nnameserver ::1");
        assert_eq!(read.servers, addresses(&["127.0.0.1:5353", "[::1]:5353", "[::1]:53"]));
        let error = ResolvConf::parse("nameserver dns.test\n").unwrap_err();
        assert_eq!(error.to_string(), "resolv.conf: no nameserver is an address: `dns.test`");
        assert!(ResolvConf::parse("nameserver").is_err());
    }

    #[test]
    fn hosts_have_several_names_and_addresses() {
        let hosts = Hosts::parse(
            "\u{feff}192.0.2.1 one.test ONE # the first\n2001:db8::1\tone.test\n192.0.2.2 one.test\n\
             192.0.2.1 one.test\nfe80::1%1 scoped\nnonsense one.test\n# 192.0.2.3 one.test\n\n",
        );
        let of = |name| hosts.addresses(name).unwrap_or_default();
        let all = addresses(&["192.0.2.1:0", "[2001:db8::1]:0", "192.0.2.2:0"]);
        assert_eq!(of("one.test"), all);
        assert_eq!(of("One.Test."), all);
        assert_eq!(of("one"), addresses(&["192.0.2.1:0"]));
        assert_eq!(of("scoped"), addresses(&["[fe80::1%1]:0"]));
        assert_eq!(hosts.addresses("two.test"), None);
    }

    #[test]
    fn localhost_is_what_the_file_says_or_else_both() {
        let both = addresses(&["[::1]:0", "127.0.0.1:0"]);
        let none = Hosts::default();
        assert_eq!(none.addresses("localhost"), Some(both.clone()));
        assert_eq!(none.addresses("a.LocalHost."), Some(both.clone()));
        assert_eq!(none.addresses("notlocalhost"), None);
        let one = Hosts::parse("127.0.0.1 localhost");
        assert_eq!(one.addresses("localhost"), Some(addresses(&["127.0.0.1:0"])));
        assert_eq!(one.addresses("a.localhost"), Some(both));
    }

    #[test]
    fn reserved_names_are_known() {
        assert!(is_reserved("a.invalid") && is_reserved("x.ONION.") && is_reserved("invalid"));
        assert!(!is_reserved("valid") && !is_reserved("a.test"));
    }
}
