//! Checks a configuration before any client connects: faults, and advice.
//!
//! A fault keeps a gate from starting: it could not do what its configuration says, or would be a
//! proxy open to everybody. Advice does not.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lastbyte_socket::{Granted, SocketOptions};
use lastbyte_sys::process::{self, CAP_NET_ADMIN, CAP_NET_RAW};
use lastbyte_sys::{socket, tcp};
use lastbyte_units::{BitRate, ByteSize, Span, grouped};

use super::prefix::cover;
use super::{Config, Kind, LegOptions, Limits, Prefix, Remark, Route, Subject, Target, Users};

/// What was found: each list in the order of the routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Why the gate cannot start.
    pub faults: Vec<Remark>,
    /// What the operator should know.
    pub advice: Vec<Remark>,
}

impl Findings {
    fn fault(&mut self, of: &Subject, key: impl Into<String>, sentence: impl Into<String>) {
        self.faults.push(Remark::new(of.clone(), key, sentence));
    }

    fn advise(&mut self, of: &Subject, key: impl Into<String>, sentence: impl Into<String>) {
        self.advice.push(Remark::new(of.clone(), key, sentence));
    }
}

/// What a configuration is checked against.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The congestion controls that this kernel has loaded; empty where it does not say.
    pub available: Vec<String>,
    /// Those of them that programs without privileges may use.
    pub allowed: Vec<String>,
    /// Tries a congestion control on a socket of its own: the kernel may load a module for it, for
    /// processes with the privilege.
    pub try_congestion: fn(&str) -> io::Result<()>,
    /// How many descriptors this process may have at most.
    pub descriptors: Option<u64>,
    /// The largest send buffer that can be asked for (`net.core.wmem_max`).
    pub largest_send_buffer: Option<u64>,
    /// The largest receive buffer that can be asked for (`net.core.rmem_max`).
    pub largest_receive_buffer: Option<u64>,
    /// Whether multipath TCP is there, and on.
    pub has_mptcp: bool,
    /// Whether packets may be marked.
    pub may_mark: bool,
    /// The interfaces; empty where they cannot be listed.
    pub interfaces: Vec<String>,
}

impl Machine {
    /// This machine, as it is now.
    #[must_use]
    pub fn read() -> Self {
        let number = |path: &str| read(path).trim().parse().ok();
        let names = |path: &str| read(path).split_whitespace().map(str::to_owned).collect();
        let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        Self {
            available: names("/proc/sys/net/ipv4/tcp_available_congestion_control"),
            allowed: names("/proc/sys/net/ipv4/tcp_allowed_congestion_control"),
            try_congestion,
            // The hard limit, to which a program may raise its own.
            descriptors: process::descriptor_limits().ok().map(|(_, most)| most),
            largest_send_buffer: number("/proc/sys/net/core/wmem_max"),
            largest_receive_buffer: number("/proc/sys/net/core/rmem_max"),
            has_mptcp: number("/proc/sys/net/mptcp/enabled").is_some_and(|on: u64| on != 0),
            may_mark: may_mark(process::effective_capabilities().unwrap_or_default()),
            interfaces: interfaces.filter_map(|one| one.file_name().into_string().ok()).collect(),
        }
    }
}

impl Machine {
    /// How many flows the descriptors allow: two for each, and a few dozen for everything else.
    #[must_use]
    pub fn flows(&self) -> Option<u64> {
        self.descriptors.map(|all| all.saturating_sub(SPARE_DESCRIPTORS) / 2)
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn try_congestion(name: &str) -> io::Result<()> {
    let fd = socket::open_tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    tcp::set_congestion(&fd, name)
}

/// Whether one of the two capabilities that allow it is in effect (`capabilities(7)`).
fn may_mark(effective: u64) -> bool {
    effective & (CAP_NET_ADMIN | CAP_NET_RAW) != 0
}

impl Config {
    /// Its faults on this machine, and advice.
    #[must_use]
    pub fn check(&self, machine: &Machine) -> Findings {
        let mut found = Findings::default();
        if self.routes.is_empty() {
            found.fault(&Subject::Gate, "", "there is no route, so no client could connect");
        }
        self.check_whole(machine, &mut found);
        for (index, route) in self.routes.iter().enumerate() {
            let of = Subject::Route(index, Some(Arc::clone(&route.name)));
            self.check_twice(index, &of, &mut found);
            self.check_loops(route, &of, &mut found);
            check_clients(route, &of, &mut found);
            check_times(route, &of, &mut found);
            for (leg, options) in [(Leg::Client, &route.client), (Leg::Upstream, &route.upstream)] {
                let mut check =
                    LegCheck { leg, route, options, machine, of: &of, found: &mut found };
                check.all();
            }
        }
        found
    }

    fn check_whole(&self, machine: &Machine, found: &mut Findings) {
        let Limits { flows, flows_per_client, dials } = self.limits;
        let limits = [("flows", flows), ("flows_per_client", flows_per_client), ("dials", dials)];
        for (key, _) in limits.iter().filter(|(_, limit)| *limit == 0) {
            found.fault(&Subject::Gate, format!("limits.{key}"), "0 would admit no client");
        }
        let asked = u64::try_from(flows).unwrap_or(u64::MAX);
        let fit = machine.flows().filter(|fit| *fit < asked && flows != Limits::default().flows);
        if let Some(fit) = fit {
            let [asked, fit] = [asked, fit].map(grouped);
            let sentence = format!(
                "{asked} flows are allowed, but the limit of descriptors is enough for about {fit}: raise \
                 it (ulimit -Hn, LimitNOFILE=), or connections beyond it wait to be accepted"
            );
            found.advise(&Subject::Gate, "limits.flows", sentence);
        }
        if let Some(path) = &self.control
            && path.as_os_str().len() > LONGEST_SOCKET_PATH
        {
            let sentence = format!("a Unix socket's path has at most {LONGEST_SOCKET_PATH} bytes");
            found.fault(&Subject::Gate, "control", sentence);
        }
        if let Some(metrics) = self.metrics.filter(|metrics| !is_loopback(metrics.ip())) {
            found.advise(
                &Subject::Gate,
                "metrics",
                format!(
                    "every client that can reach {metrics} can read the statistics: there is no authentication"
                ),
            );
        }
        if self.drain > Duration::from_secs(24 * 3600) {
            let sentence = "a stopping gate may run on for more than a day";
            found.advise(&Subject::Gate, "drain", sentence);
        }
    }

    /// Each route has a name and an address of its own.
    fn check_twice(&self, index: usize, of: &Subject, found: &mut Findings) {
        let Some(route) = self.routes.get(index) else { return };
        for before in &self.routes[..index] {
            if before.name == route.name {
                found.fault(of, "name", format!("another route has the name {}", route.name));
            }
            let (one, other) = (before.listen, route.listen);
            let same_ip = one.ip() == other.ip() || is_any(one.ip(), other.ip());
            if one.port() != 0 && one.port() == other.port() && same_ip {
                let sentence = format!("route {} already listens on {one}", before.name);
                found.fault(of, "listen", sentence);
            }
        }
    }

    /// A flow that leads back to its own listener would open flows until descriptors run out.
    fn check_loops(&self, route: &Route, of: &Subject, found: &mut Findings) {
        let mut seen: Vec<&str> = Vec::new();
        let mut next: Vec<(&Route, &Target)> =
            targets(route).map(|target| (route, target)).collect();
        while let Some((from, target)) = next.pop() {
            for to in self.routes.iter().filter(|to| reaches(target, to.listen)) {
                if to.listen == route.listen {
                    let by = if from.name == route.name {
                        String::new()
                    } else {
                        format!(" by route {}", from.name)
                    };
                    found.fault(
                        of,
                        "forward",
                        format!("it leads back to itself{by}: {target} is {}", route.listen),
                    );
                    return;
                }
                if !seen.contains(&&*to.name) {
                    seen.push(&to.name);
                    next.extend(targets(to).map(|target| (&**to, target)));
                }
            }
        }
    }
}

/// What the rest of the process needs.
const SPARE_DESCRIPTORS: u64 = 64;
/// The size of `sun_path` without the zero at its end (`unix(7)`).
const LONGEST_SOCKET_PATH: usize = 107;

fn targets(route: &Route) -> impl Iterator<Item = &Target> {
    let targets = match &route.kind {
        Kind::Forward(forward) => forward.targets.as_slice(),
        _ => &[],
    };
    targets.iter()
}

/// Whether a target is evidently this listener. Names other than `localhost` are not resolved.
fn reaches(target: &Target, listen: SocketAddr) -> bool {
    if target.port != listen.port() {
        return false;
    }
    let at = |address: IpAddr| {
        // A connect to the unspecified address goes to loopback.
        let address = match address.to_canonical() {
            IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            address => address,
        };
        address == listen.ip() || (listen.ip().is_unspecified() && is_loopback(address))
    };
    match target.host.parse::<IpAddr>() {
        Ok(address) => at(address),
        Err(_) => {
            target.host.eq_ignore_ascii_case("localhost")
                && (at(Ipv4Addr::LOCALHOST.into()) || at(Ipv6Addr::LOCALHOST.into()))
        }
    }
}

fn is_any(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4() && (one.is_unspecified() || other.is_unspecified())
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn check_clients(route: &Route, of: &Subject, found: &mut Findings) {
    let everybody = allows_everybody(&route.allow);
    let (is_near, listen) = (is_loopback(route.listen.ip()), route.listen);
    match &route.kind {
        Kind::Forward(forward) => {
            if forward.targets.is_empty() {
                found.fault(of, "forward", "it has no target: write HOST:PORT");
            }
            if everybody && !is_near {
                found.advise(
                    of,
                    "allow",
                    format!(
                        "every client that can reach {listen} is forwarded: `allow` restricts them"
                    ),
                );
            }
        }
        Kind::Socks5(Users(users)) | Kind::HttpConnect(Users(users)) => {
            if is_open_proxy(route) {
                let of_all =
                    if route.allow.is_empty() { "" } else { ", and `allow` has every address" };
                found.fault(of, "listen", format!(
                    "an open proxy: every client that can reach {listen} could connect anywhere from \
                     here{of_all}; listen on 127.0.0.1, or restrict clients by `allow`, `users` or `users_file`"
                ));
            } else if !users.is_empty() && !is_near {
                found.advise(
                    of,
                    "users",
                    format!("passwords cross the network to {listen} unencrypted"),
                );
            }
            if !is_near && route.may_reach(Ipv4Addr::LOCALHOST.into()) {
                let sentence = "its clients can connect to what listens on this host's loopback";
                found.advise(of, "reach", sentence);
            } else if !is_near && route.reach.is_empty() {
                let sentence = "its clients can connect to all that this host can reach, except its \
                                loopback and link-local addresses: `reach` restricts that further";
                found.advise(of, "listen", sentence);
            }
        }
    }
}

/// Whether every client could connect anywhere through a route.
pub(crate) fn is_open_proxy(route: &Route) -> bool {
    let users = match &route.kind {
        Kind::Forward(_) => return false,
        Kind::Socks5(users) | Kind::HttpConnect(users) => users,
    };
    !users.are_asked() && allows_everybody(&route.allow) && !is_loopback(route.listen.ip())
}

/// Whether a list restricts nothing: it has all of IPv4, or all that is assigned of IPv6.
fn allows_everybody(allow: &[Prefix]) -> bool {
    let all_of_ipv4 = Prefix { address: Ipv4Addr::UNSPECIFIED.into(), bits: 0 };
    // RFC 4291 section 2.4, and IANA's registry: 2000::/3 is global unicast.
    let all_of_ipv6 =
        Prefix { address: Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0).into(), bits: 3 };
    allow.is_empty() || cover(allow, all_of_ipv4) || cover(allow, all_of_ipv6)
}

/// No clock is asked to add more.
const MOST_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);

fn check_times(route: &Route, of: &Subject, found: &mut Findings) {
    let times = route.times;
    let all = [
        ("request_timeout", Some(times.request)),
        ("connect_timeout", Some(times.connect)),
        ("idle_timeout", times.idle),
        ("stall_timeout", times.stall),
        ("settle_timeout", Some(times.settle)),
    ];
    for (key, _) in all.iter().filter(|(_, time)| time.is_some_and(|time| time.is_zero())) {
        found.fault(of, *key, "0 is no time limit: every flow would exceed it");
    }
    let is_endless = |time: &Duration| *time > MOST_TIME;
    for (key, _) in all.iter().filter(|(_, time)| time.as_ref().is_some_and(is_endless)) {
        found.fault(of, *key, "more than ten years: leave the key out for no limit");
    }
}

/// A leg of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    Client,
    Upstream,
}

impl Leg {
    fn key(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Client => "the client",
            Self::Upstream => "the upstream",
        }
    }

    /// The data that this host sends on it.
    fn data(self) -> &'static str {
        match self {
            Self::Client => "downloads: what the client gets",
            Self::Upstream => "uploads: what the client sends",
        }
    }
}

/// One leg that is being checked.
struct LegCheck<'a> {
    leg: Leg,
    route: &'a Route,
    options: &'a LegOptions,
    machine: &'a Machine,
    of: &'a Subject,
    found: &'a mut Findings,
}

impl LegCheck<'_> {
    fn all(&mut self) {
        self.congestion();
        self.directions();
        self.buffers();
        self.time_limits();
        self.paths();
    }

    fn fault(&mut self, key: &str, sentence: impl Into<String>) {
        self.found.fault(self.of, format!("{}.{key}", self.leg.key()), sentence);
    }

    fn advise(&mut self, key: &str, sentence: impl Into<String>) {
        self.found.advise(self.of, format!("{}.{key}", self.leg.key()), sentence);
    }

    fn congestion(&mut self) {
        let Some(name) = &self.options.tune.congestion else { return };
        let Err(error) = (self.machine.try_congestion)(name) else { return };
        let (available, allowed) =
            (self.machine.available.join(", "), self.machine.allowed.join(", "));
        let sentence = match error.kind() {
            io::ErrorKind::NotFound if available.is_empty() => {
                format!("this kernel has no {name:?}")
            }
            io::ErrorKind::NotFound => format!("this kernel has no {name:?}: it has {available}"),
            io::ErrorKind::PermissionDenied => format!(
                "only CAP_NET_ADMIN may use {name:?}: others may use {allowed}; add it to \
                 net.ipv4.tcp_allowed_congestion_control"
            ),
            _ => format!("{name:?}: {error}"),
        };
        self.fault("congestion", sentence);
    }

    /// Settings of a sender govern one direction alone.
    fn directions(&mut self) {
        let tune = &self.options.tune;
        let mut set = Vec::new();
        if let Some(name) = &tune.congestion {
            set.push(("congestion", format!("congestion control {name}")));
        }
        if let Some(bytes) = tune.max_pacing_rate {
            let rate = BitRate::from_bits_per_s(bytes.saturating_mul(8));
            set.push((
                "pacing",
                rate.map_or_else(|_| "pacing".to_owned(), |rate| format!("pacing at {rate}")),
            ));
        }
        if tune.notsent_lowat.is_some() {
            set.push(("notsent_lowat", "notsent_lowat".to_owned()));
        }
        if tune.send_buffer.is_some() {
            set.push(("send_buffer", "send_buffer".to_owned()));
        }
        let (leg, data) = (self.leg.name(), self.leg.data());
        for (key, what) in set {
            let mut sentence =
                format!("{what} affects only what this host sends to {leg} ({data})");
            if self.leg == Leg::Upstream {
                sentence.push_str(&format!(
                    "; what {leg} sends is governed by its own host: for replication or downloads run \
                     the gate there, and set [route.client]",
                ));
            }
            self.advise(key, sentence);
        }
    }

    fn buffers(&mut self) {
        let SocketOptions { send_buffer, receive_buffer, .. } = self.options.tune;
        let Machine { largest_send_buffer, largest_receive_buffer, .. } = *self.machine;
        let both = [
            ("send_buffer", send_buffer, largest_send_buffer, "wmem_max"),
            ("receive_buffer", receive_buffer, largest_receive_buffer, "rmem_max"),
        ];
        for (key, asked, largest, setting) in both {
            let Some(asked) = asked else { continue };
            if let Some(largest) = largest.filter(|largest| *largest < u64::from(asked)) {
                let [asked, largest] = [asked.into(), largest].map(ByteSize::from_bytes);
                self.advise(
                    key,
                    format!(
                        "the kernel grants {largest} of {asked}: net.core.{setting} is {} bytes",
                        largest.grouped()
                    ),
                );
            } else {
                self.advise(
                    key,
                    "a fixed buffer is never sized by the kernel again: set one only where it \
                    is larger than what the kernel would choose",
                );
            }
        }
    }

    fn time_limits(&mut self) {
        let (tune, times) = (&self.options.tune, self.route.times);
        if let Some(limit) = tune.user_timeout {
            let shown = Span::from(limit);
            let mut sentences =
                vec![format!("a side that is alive and reads nothing for {shown} is given up too")];
            if tune.keepalive.is_some() {
                sentences.push(format!(
                    "with it a silent side is given up after {shown}, not after the number of probes"
                ));
            }
            if times.stall.is_some_and(|stall| stall <= limit) {
                sentences
                    .push("stall_timeout is shorter: this one only finds dead paths".to_owned());
            }
            if self.leg == Leg::Upstream && limit < times.connect {
                sentences.push(format!(
                    "it limits each connect too, to {shown}, though connect_timeout is {}",
                    Span::from(times.connect)
                ));
            }
            self.advise("user_timeout", sentences.join("; "));
        }
        if let (Some(keepalive), Some(idle)) = (self.options.tune.keepalive, times.idle)
            && idle <= keepalive.idle
        {
            self.advise("keepalive", "idle_timeout ends a flow before its first probe");
        }
    }

    fn paths(&mut self) {
        let LegOptions { tune, mptcp, sources } = self.options;
        if *mptcp {
            let has = self.machine.has_mptcp;
            let off =
                if has { "" } else { "; this kernel lacks it, or it is off (net.mptcp.enabled)" };
            let sentence = format!(
                "multipath TCP does not report what was acknowledged, nor tell a FIN from a reset: \
                 accounts of such flows are never complete{off}"
            );
            self.advise("mptcp", sentence);
        }
        if tune.mark.is_some() && !self.machine.may_mark {
            self.fault("mark", "only CAP_NET_ADMIN may mark packets: run as root");
        }
        if let Some(name) = &tune.interface
            && !self.machine.interfaces.is_empty()
            && !self.machine.interfaces.contains(name)
        {
            let all = self.machine.interfaces.join(", ");
            self.fault(
                "interface",
                format!("this machine has no interface {name:?}: it has {all}"),
            );
        }
        for family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            if sources.iter().filter(|address| family(address)).count() > 1 {
                self.fault("source", "at most one address of each family");
            }
        }
    }
}

/// What the kernel grants of these options, tried on a socket of its own.
///
/// # Errors
/// What the kernel refuses.
pub fn granted(options: &LegOptions) -> io::Result<Granted> {
    let fd = socket::open_tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    options.tune.apply_to(&fd).map_err(|error| error.cause)?;
    Granted::read(&fd)
}

#[cfg(test)]
mod tests;
