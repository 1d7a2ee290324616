//! What a gate would do, in words.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use lastbyte_gate::config::check::{Machine, granted};
use lastbyte_gate::config::{
    Choice, Config, Forward, Kind, LegOptions, Refused, Route, Times, Users,
};
use lastbyte_socket::{Granted, Keepalive, SocketOptions};
use lastbyte_units::{BitRate, ByteSize, Span, grouped};

use super::Told;
use super::words::WhatArgs;
use crate::output::say;
use crate::verdict::Verdict;

/// `lastbyte gate check`: prints what it would do, and what is good to know.
pub(super) fn check(what: &WhatArgs) -> Result<Verdict> {
    let told = Told::by(what)?;
    let found = told.check();
    for route in &told.config().routes {
        for line in route_lines(route) {
            say(&line);
        }
    }
    for line in gate_lines(told.config()) {
        say(&line);
    }
    for advice in &found.advice {
        say(&format!("advice: {advice}"));
    }
    if found.faults.is_empty() { Ok(Verdict::Done) } else { Err(Refused(found.faults).into()) }
}

/// Where flows of a route go.
pub(super) fn leads_to(route: &Route) -> String {
    let asked = |how: &str, Users(users): &Users| match users.len() {
        0 => format!("where clients ask by {how}"),
        _ => {
            let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
            format!("where clients ask by {how}: {}", names.join(", "))
        }
    };
    match &route.kind {
        Kind::Forward(Forward { targets, choice }) => {
            let all: Vec<String> = targets.iter().map(ToString::to_string).collect();
            let choice = match (all.len(), choice) {
                (..=1, _) => "",
                (_, Choice::RoundRobin) => ", each in turn",
                (_, Choice::FirstHealthy) => ", the first that did not fail lately",
            };
            all.join(", ") + choice
        }
        Kind::Socks5(users) => asked("SOCKS 5", users),
        Kind::HttpConnect(users) => asked("HTTP CONNECT", users),
        _ => "somewhere".to_owned(),
    }
}

fn route_lines(route: &Route) -> Vec<String> {
    let allow: Vec<String> = route.allow.iter().map(ToString::to_string).collect();
    let allow = match allow.as_slice() {
        [] if route.listen.ip().is_loopback() => "everybody on this machine".to_owned(),
        [] => "everybody who can reach it".to_owned(),
        all => all.join(", "),
    };
    let mut lines = vec![
        format!("route {}", route.name),
        format!("  listens    on {}, for {allow}", route.listen),
        format!("  leads      to {}", leads_to(route)),
    ];
    if !matches!(route.kind, Kind::Forward(_)) {
        lines.push(format!("  reaches    {}", reaches(route)));
    }
    lines.extend([
        format!("  client     what we send: {}", leg(&route.client)),
        format!("  upstream   what we send: {}", leg(&route.upstream)),
        format!("  times      {}", times(&route.times)),
    ]);
    lines
}

/// Where a proxy connects to.
fn reaches(route: &Route) -> String {
    let reach: Vec<String> = route.reach.iter().map(ToString::to_string).collect();
    match reach.as_slice() {
        [] if route.may_reach(Ipv4Addr::LOCALHOST.into()) => "all that this host can".to_owned(),
        [] => "all that this host can, but loopback and link-local addresses".to_owned(),
        all => all.join(", "),
    }
}

fn gate_lines(config: &Config) -> Vec<String> {
    let limits = config.limits;
    let [flows, of_client, dials] = [limits.flows, limits.flows_per_client, limits.dials]
        .map(|limit| grouped(u64::try_from(limit).unwrap_or(u64::MAX)));
    let fit = Machine::read().flows();
    let fit = fit.map(|fit| format!("; descriptors for about {} flows", grouped(fit)));
    let fit = fit.unwrap_or_default();
    let mut lines = vec![
        "gate".to_owned(),
        format!(
            "  limits     {flows} flows, {of_client} of one client, {dials} connects at once{fit}"
        ),
        format!("  drain      {}", Span::from(config.drain)),
    ];
    if let Some(workers) = config.workers {
        lines.push(format!("  workers    {workers}"));
    }
    if let Some(control) = &config.control {
        lines.push(format!("  control    {}", control.display()));
    }
    if let Some(metrics) = config.metrics {
        lines.push(format!("  metrics    http://{metrics}/metrics"));
    }
    lines
}

fn times(times: &Times) -> String {
    let Times { request, connect, idle, stall, settle } = times;
    let or_none = |time: &Option<Duration>| match time {
        Some(time) => Span::from(*time).to_string(),
        None => "no limit".to_owned(),
    };
    let [request, connect, settle] = [request, connect, settle].map(|time| Span::from(*time));
    let (idle, stall) = (or_none(idle), or_none(stall));
    format!("request {request}, connect {connect}, idle {idle}, stall {stall}, settle {settle}")
}

/// What is asked of a leg, each with what the kernel grants where that is something else.
fn leg(options: &LegOptions) -> String {
    let all = asked(options);
    if all.is_empty() {
        return "as this machine does".to_owned();
    }
    let granted = match granted(options) {
        Ok(granted) => granted,
        Err(error) => return format!("{}: not granted: {error}", all.join(", ")),
    };
    let got = got(&options.tune, &granted);
    if got.is_empty() {
        all.join(", ")
    } else {
        format!("{} (granted: {})", all.join(", "), got.join(", "))
    }
}

fn asked(LegOptions { tune, mptcp, sources }: &LegOptions) -> Vec<String> {
    let size = |bytes: &u32| ByteSize::from_bytes((*bytes).into()).to_string();
    let mut all = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        all.extend(value.map(|value| format!("{name} {value}")));
    };
    add("congestion", tune.congestion.clone());
    add("send_buffer", tune.send_buffer.as_ref().map(size));
    add("receive_buffer", tune.receive_buffer.as_ref().map(size));
    add("notsent_lowat", tune.notsent_lowat.as_ref().map(size));
    add("pacing", tune.max_pacing_rate.and_then(rate));
    add("user_timeout", tune.user_timeout.map(|time| Span::from(time).to_string()));
    add("keepalive", tune.keepalive.map(probes));
    add("mark", tune.mark.map(|mark| mark.to_string()));
    add("nodelay", tune.nodelay.map(|on| on.to_string()));
    add("interface", tune.interface.clone());
    add("mptcp", mptcp.then(|| "true".to_owned()));
    for source in sources {
        add("source", Some(source.to_string()));
    }
    all
}

fn rate(bytes_per_s: u64) -> Option<String> {
    let rate = BitRate::from_bits_per_s(bytes_per_s.checked_mul(8)?);
    rate.ok().map(|rate| rate.to_string())
}

fn probes(Keepalive { idle, interval, probes }: Keepalive) -> String {
    format!("{} then {probes} times {}", Span::from(idle), Span::from(interval))
}

/// What differs by nature: the kernel doubles buffers, for what it needs beside the data.
fn got(tune: &SocketOptions, granted: &Granted) -> Vec<String> {
    let size = |bytes: u32| ByteSize::from_bytes(bytes.into());
    let mut all = Vec::new();
    if tune.congestion.is_some() {
        all.push(granted.congestion.clone());
    }
    if tune.send_buffer.is_some() {
        all.push(format!("send buffer {} with its overhead", size(granted.send_buffer)));
    }
    if tune.receive_buffer.is_some() {
        all.push(format!("receive buffer {} with its overhead", size(granted.receive_buffer)));
    }
    if tune.user_timeout.is_some()
        && let Some(time) = granted.user_timeout
    {
        all.push(format!("user_timeout {}", Span::from(time)));
    }
    all
}
