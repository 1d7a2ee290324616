//! The exact lines by which a finding is applied to this machine, narrowest first.

use std::fs;
use std::net::Ipv4Addr;

use lastbyte_units::ByteSize;

/// A way to apply a setting.
pub(crate) struct Way {
    pub(crate) scope: &'static str,
    pub(crate) lines: Vec<String>,
}

/// All ways to apply a congestion control on this machine.
pub(crate) fn congestion_ways(congestion: &str) -> Vec<Way> {
    let line = format!(
        "setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, \"{congestion}\", {})",
        congestion.len()
    );
    let mut ways = vec![Way { scope: "one program", lines: vec![line] }];
    if let Some(route) = default_route() {
        let line = format!("ip route change {route} congctl {congestion}");
        ways.push(Way { scope: "one route", lines: vec![line] });
    }
    let mut lines = Vec::new();
    if is_module(congestion) {
        lines.push(format!(
            "echo tcp_{congestion} > /etc/modules-load.d/tcp_{congestion}.conf; modprobe tcp_{congestion}"
        ));
    }
    lines.push(format!(
        "echo net.ipv4.tcp_congestion_control={congestion} > /etc/sysctl.d/90-congestion.conf"
    ));
    lines.push("sysctl --system".to_owned());
    ways.push(Way { scope: "all, for good", lines });
    ways
}

/// How to let the kernel size buffers up to `limit`; no maximum is lowered.
pub(crate) fn buffer_ways(limit: ByteSize) -> Vec<Way> {
    let line = |name: &str| {
        let now = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        let mut sizes = now.split_whitespace().map_while(|size| size.parse::<u64>().ok());
        let (least, first) = (sizes.next()?, sizes.next()?);
        let most = sizes.next()?.max(limit.bytes());
        Some(format!("net.ipv4.{name} = {least} {first} {most}"))
    };
    let mut lines: Vec<String> = ["tcp_wmem", "tcp_rmem"].into_iter().filter_map(line).collect();
    lines.insert(0, "in /etc/sysctl.d/90-buffers.conf, on both sides:".to_owned());
    lines.push("sysctl --system".to_owned());
    vec![Way { scope: "all, for good", lines }]
}

/// The default congestion control of this machine.
pub(crate) fn default_congestion() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?;
    Some(name.trim().to_owned())
}

/// The congestion controls that this kernel offers now, in its order.
pub(crate) fn available_congestion() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_available_congestion_control")
}

/// Those that programs without rights may use.
pub(crate) fn allowed_congestion() -> Vec<String> {
    names("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
}

fn names(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn is_module(congestion: &str) -> bool {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    modules.lines().any(|line| line.starts_with(&format!("tcp_{congestion} ")))
}

fn default_route() -> Option<String> {
    parse_default_route(&fs::read_to_string("/proc/net/route").ok()?)
}

/// The default route as `ip route` writes it, from the table of `/proc/net/route`: interface,
/// destination, gateway and so on, addresses in hexadecimal as they lie in memory.
fn parse_default_route(table: &str) -> Option<String> {
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let route =
        table.lines().skip(1).map(fields).find(|fields| {
            fields.len() > 7 && fields[1] == "00000000" && fields[7] == "00000000"
        })?;
    let gateway = u32::from_str_radix(&route[2], 16).ok()?;
    let gateway = Ipv4Addr::from(gateway.to_ne_bytes());
    let interface = &route[0];
    Some(if gateway.is_unspecified() {
        format!("default dev {interface}")
    } else {
        format!("default via {gateway} dev {interface}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_default_route_is_read() {
        let heading = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let table = |lines: &str| parse_default_route(&format!("{heading}{lines}"));
        let near = "eth0 0002000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        let default = "eth0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n";
        assert_eq!(table(&format!("{near}{default}")).unwrap(), "default via 10.0.2.1 dev eth0");
        assert_eq!(
            table("wg0 00000000 00000000 1 0 0 0 00000000 0 0 0").unwrap(),
            "default dev wg0"
        );
        assert_eq!(table(near), None);
        assert_eq!(table("rubbish"), None);
    }
}
