//! Lines of `trace_pipe` (`Documentation/trace/ftrace.rst`), such as
//!
//! ```text
//!          python3-5005    (   5005) [000] ..s2. 74050.387468: tcp_receive_reset: family=AF_INET ...
//! ```
//!
//! The first word is the name of a program: any 15 bytes, even line feeds and other syntax of a
//! line. They are too few to forge the head of a line. Events with longer text of a program's
//! choice (paths) are not enabled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The head of a line, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) tid: u32,
    /// The process, if the kernel has recorded it.
    pub(super) pid: Option<u32>,
    /// Whether in a call of that thread, not in an interrupt.
    pub(super) in_call: bool,
    pub(super) at_ns: u64,
    pub(super) event: &'a str,
    pub(super) fields: Fields<'a>,
}

/// `name=value` in the order of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields<'a>(pub(super) &'a str);

impl<'a> Line<'a> {
    /// Parses a line; `None` if it is none.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        // The first position that matches a whole head is the real one: a name is too short to
        // contain one.
        line.match_indices('-').find_map(|(at, _)| Self::head(&line[at + 1..]))
    }

    fn head(text: &'a str) -> Option<Self> {
        let (tid, text) = digits(text)?;
        let text = text.trim_start();
        let (pid, text) = match text.strip_prefix('(') {
            None => (None, text),
            Some(inside) => {
                let (pid, text) = inside.split_once(')')?;
                let pid = pid.trim();
                let unknown = !pid.is_empty() && pid.bytes().all(|byte| byte == b'-');
                (if unknown { None } else { Some(pid.parse().ok()?) }, text.trim_start())
            }
        };
        let (cpu, text) = text.strip_prefix('[')?.split_once("] ")?;
        if cpu.len() < 3 || !cpu.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (flags, text) = text.split_once(' ')?;
        let is_flag = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'#';
        if !(4..=6).contains(&flags.len()) || !flags.bytes().all(is_flag) {
            return None;
        }
        let (time, text) = text.trim_start().split_once(": ")?;
        let (event, rest) = text.split_once(':')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!event.is_empty() && event.bytes().all(is_name)).then_some(())?;
        // Hardware interrupt, software interrupt, both, or non-maskable interrupt.
        let interrupt = *flags.as_bytes().get(2)?;
        let in_call = interrupt == b'.' || interrupt == b'b';
        let fields = Fields(rest.trim_start());
        Some(Self { tid, pid, in_call, at_ns: nanoseconds(time)?, event, fields })
    }
}

impl<'a> Fields<'a> {
    /// The value of the last field with that name: a program's name may look like a field and comes
    /// before.
    pub(super) fn get(self, name: &str) -> Option<&'a str> {
        let value = self.0.rmatch_indices(name).find_map(|(at, _)| {
            let begins = at == 0 || self.0.as_bytes()[at - 1] == b' ';
            if begins { self.0[at + name.len()..].strip_prefix('=') } else { None }
        })?;
        value.split_ascii_whitespace().next()
    }

    pub(super) fn number<T: std::str::FromStr>(self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// The text between two fields, whatever it contains, such as the old and new name of a thread.
    pub(super) fn between(self, before: &str, after: &str) -> Option<&'a str> {
        let start = self.0.find(before)? + before.len();
        let end = self.0.rfind(after)?;
        self.0.get(start..end)
    }

    /// Both addresses of a socket, its own first, and whether it is an IPv6 socket of an IPv4
    /// connection.
    pub(super) fn addresses(self) -> Option<(SocketAddr, SocketAddr, bool)> {
        // Older kernels (5.10) do not have it in each event. IPv4 sockets also have mapped
        // addresses.
        let family = self.get("family");
        let is_six = family.is_none_or(|family| family == "AF_INET6");
        let ip = |four: &str, six: &str| -> Option<IpAddr> {
            if is_six {
                Some(self.number::<Ipv6Addr>(six)?.to_canonical())
            } else {
                Some(IpAddr::V4(self.number::<Ipv4Addr>(four)?))
            }
        };
        let local = SocketAddr::new(ip("saddr", "saddrv6")?, self.number("sport")?);
        let peer = SocketAddr::new(ip("daddr", "daddrv6")?, self.number("dport")?);
        Some((local, peer, family.is_some() && is_six && local.is_ipv4()))
    }

    /// An address with its port, such as `[::1]:80`.
    pub(super) fn address(self, name: &str) -> Option<SocketAddr> {
        let address: SocketAddr = self.number(name)?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

/// The number of lost events in `CPU:1 [LOST 42 EVENTS]`.
pub(super) fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once("[LOST ")?;
    rest.strip_suffix(" EVENTS]")?.parse().ok()
}

fn digits(text: &str) -> Option<(u32, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Parses seconds with six decimals.
fn nanoseconds(time: &str) -> Option<u64> {
    let (seconds, micros) = time.split_once('.')?;
    (micros.len() == 6).then_some(())?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(micros * 1000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESET: &str = "tcp_receive_reset: family=AF_INET6 sport=55108 dport=33285 saddr=0.0.0.0 \
         daddr=0.0.0.0 saddrv6=::1 daddrv6=::1 sock_cookie=47621";

    #[test]
    fn a_line_is_read() {
        let text = format!("         python3-5005    (   5004) [001] ..s2. 74050.387468: {RESET}");
        let line = Line::parse(&text).unwrap();
        assert_eq!((line.tid, line.pid, line.in_call), (5005, Some(5004), false));
        assert_eq!((line.at_ns, line.event), (74_050_387_468_000, "tcp_receive_reset"));
        let (local, peer, mapped) = line.fields.addresses().unwrap();
        assert_eq!(
            (local.to_string(), peer.to_string()),
            ("[::1]:55108".into(), "[::1]:33285".into())
        );
        assert!(!mapped);
        assert_eq!(line.fields.get("sock_cookie"), Some("47621"));
        // Without the process, as the kernel writes it without that option, and before it knows it.
        for process in ["", " (-------)"] {
            let text = format!("<idle>-0      {process} [001] d.h1. 1.000002: {RESET}");
            let line = Line::parse(&text).unwrap();
            assert_eq!(
                (line.tid, line.pid, line.in_call, line.at_ns),
                (0, None, false, 1_000_002_000)
            );
        }
    }

    #[test]
    fn addresses_in_every_form() {
        let fields = Fields(
            "family=AF_INET6 protocol=IPPROTO_TCP sport=56869 dport=0 saddr=127.0.0.1 \
             daddr=0.0.0.0 saddrv6=::ffff:127.0.0.1 daddrv6=:: oldstate=TCP_LISTEN \
             newstate=TCP_CLOSE",
        );
        let (local, peer, mapped) = fields.addresses().unwrap();
        assert_eq!(
            (local.to_string(), peer.to_string()),
            ("127.0.0.1:56869".into(), "[::]:0".into())
        );
        assert!(mapped);
        // Of Linux 5.10.
        for (own, expected) in [("::ffff:127.0.0.1", "127.0.0.1:51054"), ("::1", "[::1]:51054")] {
            let text = format!(
                "sport=51054 dport=37015 saddr=127.0.0.1 daddr=127.0.0.1 saddrv6={own} \
                 daddrv6={own} sock_cookie=1"
            );
            let (local, peer, mapped) = Fields(&text).addresses().unwrap();
            assert_eq!(
                (local.to_string(), peer.port(), mapped),
                (expected.to_owned(), 37015, false)
            );
        }
        let fields =
            Fields("skbaddr=0 src=127.0.0.1:48275 dest=[::1]:47788 state=TCP_CLOSE reason=FLAGS");
        assert_eq!(fields.address("src"), "127.0.0.1:48275".parse().ok());
        assert_eq!(fields.address("dest"), "[::1]:47788".parse().ok());
    }

    #[test]
    fn what_was_lost_is_counted() {
        assert_eq!(lost("CPU:1 [LOST 42 EVENTS]"), Some(42));
        assert_eq!(lost("CPU:1 [LOST EVENTS]"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_name_forges_nothing(
            name in prop_oneof![
                prop::collection::vec(any::<u8>(), 1..16),
                // Characters of a head.
                "[-0-9() .\\[\\]d:\n]{1,15}".prop_map(String::into_bytes),
                "-[0-9] \\[[0-9]{3}\\] \\.{4}".prop_map(String::into_bytes),
            ],
        ) {
            let mut bytes = name.clone();
            bytes.extend(b"-4711    (   4710) [000] ..... 12.000001: sched_process_exit: comm=");
            bytes.extend(&name);
            bytes.extend(b" pid=4711 prio=120 group_dead=true");
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut heads = 0;
            for line in text.split('\n').filter_map(Line::parse) {
                prop_assert_eq!((line.tid, line.pid, line.at_ns), (4711, Some(4710), 12_000_001_000));
                prop_assert_eq!(line.event, "sched_process_exit");
                heads += 1;
            }
            prop_assert_eq!(heads, 1);
        }

        #[test]
        fn no_line_is_too_strange(text in "\\PC{0,120}", tail in "[-0-9() .:=a-z\\[\\]]{0,80}") {
            let text = format!("{text}{tail}");
            if let Some(line) = Line::parse(&text) {
                let _ = (line.fields.addresses(), line.fields.get("pid"), line.fields.address("src"));
                let _ = line.fields.between("oldcomm=", " newcomm=");
            }
            let _ = lost(&text);
        }
    }
}
