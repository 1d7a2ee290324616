//! The exact lines by which people apply a finding to this machine, narrowest first.

use std::net::IpAddr;
use std::path::Path;

use lastbyte_host::Proc;
use lastbyte_units::ByteSize;

use super::is_loaded;
use super::machine::{BUFFER_KEYS, MODULES, is_module, up_to};
use super::route;

/// A way to apply a setting.
#[derive(Clone, Debug)]
pub struct Way {
    /// For which connections, and how long.
    pub scope: &'static str,
    /// What to type or to write.
    pub lines: Vec<String>,
}

/// The ways to apply a congestion control to a part of this machine's connections: those of one
/// program, then those by a route. What the kernel does not have by itself is loaded first.
#[must_use]
pub fn congestion_ways(to: Option<IpAddr>, congestion: &str) -> Vec<Way> {
    let line = format!(
        "setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, \"{congestion}\", {})",
        congestion.len()
    );
    let mut ways = Vec::new();
    if is_loaded(congestion) {
        let lines = vec![format!("lastbyte cc load {congestion} --keep")];
        ways.push(Way { scope: "first", lines });
    }
    ways.push(Way { scope: "one program", lines: vec![line] });
    ways.extend(route_ways(to, congestion));
    ways
}

/// The ways to apply a congestion control by a route: to one host, or else the default routes.
pub(super) fn route_ways(to: Option<IpAddr>, congestion: &str) -> Vec<Way> {
    let scope = if to.is_some() { "one host" } else { "one route" };
    let lines = route::lines(to, congestion);
    if lines.is_empty() { Vec::new() } else { vec![Way { scope, lines }] }
}

/// How to let the kernel size buffers up to `limit`; no maximum is lowered. There is no narrower way:
/// a program that sets its buffers ends the kernel's sizing.
fn buffer_ways(limit: ByteSize) -> Vec<Way> {
    let line = |key: &&str| {
        let sizes = up_to(limit, &Proc::default().sysctl(key).ok()?)?;
        Some(format!("{key} = {sizes}"))
    };
    let mut lines = vec!["in /etc/sysctl.d/90-buffers.conf, on both sides:".to_owned()];
    lines.extend(BUFFER_KEYS.iter().filter_map(line));
    lines.push("sysctl --system".to_owned());
    vec![Way { scope: "all, for good", lines }]
}

/// The ways to apply findings to all connections of this machine, also of other programs and users.
#[must_use]
pub fn machine_wide_ways(congestion: Option<&str>, buffers: Option<ByteSize>) -> Vec<Way> {
    let mut ways = Vec::new();
    // What is loaded goes with the next boot, and these stay.
    if let Some(congestion) = congestion.filter(|name| !is_loaded(name)) {
        let mut lines = Vec::new();
        if is_module(Path::new(MODULES), congestion) {
            let file = format!("/etc/modules-load.d/tcp_{congestion}.conf");
            lines.push(format!("echo tcp_{congestion} > {file}; modprobe tcp_{congestion}"));
        }
        lines.push(format!(
            "echo net.ipv4.tcp_congestion_control={congestion} > /etc/sysctl.d/90-congestion.conf"
        ));
        lines.push("sysctl --system".to_owned());
        ways.push(Way { scope: "all, for good", lines });
    }
    ways.extend(buffers.map(buffer_ways).into_iter().flatten());
    ways
}
