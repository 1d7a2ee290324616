//! `lastbyte cc status`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use lastbyte_congestion::{available, default_algorithm};
use lastbyte_core::diag::Socket;
use lastbyte_core::sample::State;
use lastbyte_host::sockets;
use lastbyte_sys::sock_diag::{CONNECTED, LISTENING};
use lastbyte_units::grouped;
use serde::Serialize;

use super::words::StatusArgs;
use crate::output::{Align, Table, percent, say, say_json, talk};
use crate::verdict::Verdict;

/// Says which sockets have which congestion control.
pub(super) fn status(args: &StatusArgs) -> Result<Verdict> {
    let sockets = with_algorithm()?;
    let (available, default) = (available()?, default_algorithm()?);
    if args.sockets {
        return of_each(&sockets, &available, args.json);
    }
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (name, socket) in &sockets {
        sums.entry(name).or_default().add(socket);
    }
    let lines = sums.into_iter().map(|(name, sum)| {
        let is_available = available.iter().any(|one| one == name);
        Line { congestion: name, is_available, is_default: name == default, sum }
    });
    let lines: Vec<Line<'_>> = lines.collect();
    if args.json {
        lines.iter().try_for_each(say_json)?;
    } else if lines.is_empty() {
        say("no TCP socket in this network namespace");
    } else {
        draw(&lines);
    }
    Ok(Verdict::Done)
}

/// How many connections of this network namespace have an algorithm; listening sockets are none.
pub(super) fn connections_with(name: &str) -> Result<u64> {
    let count = with_algorithm()?
        .iter()
        .filter(|(of, socket)| of == name && socket.state != State::Listen)
        .count();
    Ok(count as u64)
}

/// All that have an algorithm, with its name. What waits in `TIME_WAIT` has none.
fn with_algorithm() -> Result<Vec<(String, Socket)>> {
    let all = sockets::list(CONNECTED | LISTENING).context("cannot list the kernel's sockets")?;
    let named = all.into_iter().filter_map(|mut socket| Some((socket.congestion.take()?, socket)));
    Ok(named.collect())
}

// --- sums ------------------------------------------------------------------------------------------

/// What the sockets of an algorithm are and did.
#[derive(Debug, Default, Serialize)]
struct Sum {
    established: u64,
    listening: u64,
    other: u64,
    /// By their peers' kernels.
    bytes_acked: u64,
    bytes_sent: u64,
    bytes_resent: u64,
    /// `None` where nothing was sent.
    resent_share: Option<f64>,
}

impl Sum {
    fn add(&mut self, socket: &Socket) {
        match socket.state {
            State::Established => self.established += 1,
            State::Listen => self.listening += 1,
            _ => self.other += 1,
        }
        // What these fields say of a listening socket is something else.
        let Some(info) = socket.info.as_ref().filter(|_| socket.state != State::Listen) else {
            return;
        };
        self.bytes_acked += info.bytes_acked.unwrap_or_default();
        self.bytes_sent += info.bytes_sent.unwrap_or_default();
        self.bytes_resent += info.bytes_retrans.unwrap_or_default();
        self.resent_share = share(self.bytes_resent, self.bytes_sent);
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// An algorithm.
#[derive(Debug, Serialize)]
struct Line<'a> {
    congestion: &'a str,
    /// Whether sockets can still choose it.
    #[serde(rename = "available")]
    is_available: bool,
    #[serde(rename = "default")]
    is_default: bool,
    #[serde(flatten)]
    sum: Sum,
}

fn draw(lines: &[Line<'_>]) {
    let mut table = Table::new(&[
        ("congestion", Align::Left),
        ("established", Align::Right),
        ("listening", Align::Right),
        ("other", Align::Right),
        ("bytes acked", Align::Right),
        ("resent", Align::Right),
        ("", Align::Left),
    ]);
    for Line { congestion, is_available, is_default, sum } in lines {
        let note = match (is_available, is_default) {
            (true, false) => "",
            (true, true) => "default",
            (false, false) => UNLOADED,
            (false, true) => "unloaded, default",
        };
        table.row(vec![
            (*congestion).to_owned(),
            grouped(sum.established),
            grouped(sum.listening),
            grouped(sum.other),
            grouped(sum.bytes_acked),
            in_percent(sum.resent_share),
            note.to_owned(),
        ]);
    }
    table.say();
    if lines.iter().any(|line| !line.is_available) {
        talk("cc: what is unloaded can be chosen no more; who has it keeps it");
    }
}

const UNLOADED: &str = "unloaded";

fn in_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), percent)
}

// --- each ------------------------------------------------------------------------------------------

/// A socket.
#[derive(Debug, Serialize)]
struct One<'a> {
    congestion: &'a str,
    available: bool,
    state: String,
    local: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    /// 0 where no program has it open any more.
    inode: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwnd_segments: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_acked: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_resent: Option<u64>,
}

impl<'a> One<'a> {
    fn of(name: &'a str, socket: &Socket, available: &[String]) -> Self {
        let listens = socket.state == State::Listen;
        let info = socket.info.as_ref().filter(|_| !listens);
        Self {
            congestion: name,
            available: available.iter().any(|one| one == name),
            state: in_words(socket.state),
            local: socket.local.to_string(),
            peer: (!listens).then(|| socket.peer.to_string()),
            inode: socket.inode,
            cwnd_segments: info.map(|info| info.cwnd_segments),
            rtt_us: info.map(|info| info.rtt_us),
            bytes_acked: info.and_then(|info| info.bytes_acked),
            bytes_sent: info.and_then(|info| info.bytes_sent),
            bytes_resent: info.and_then(|info| info.bytes_retrans),
        }
    }
}

fn of_each(sockets: &[(String, Socket)], available: &[String], json: bool) -> Result<Verdict> {
    let each = sockets.iter().map(|(name, socket)| One::of(name, socket, available));
    let mut each: Vec<One<'_>> = each.collect();
    each.sort_by(|a, b| (a.congestion, &a.local, &a.peer).cmp(&(b.congestion, &b.local, &b.peer)));
    if json {
        each.iter().try_for_each(say_json)?;
        return Ok(Verdict::Done);
    }
    if each.is_empty() {
        say("no TCP socket in this network namespace");
        return Ok(Verdict::Done);
    }
    let mut table = Table::new(&[
        ("congestion", Align::Left),
        ("state", Align::Left),
        ("local", Align::Left),
        ("peer", Align::Left),
        ("cwnd", Align::Right),
        ("RTT ms", Align::Right),
        ("bytes acked", Align::Right),
        ("resent", Align::Right),
        ("", Align::Left),
    ]);
    for one in &each {
        let dash = |known: Option<String>| known.unwrap_or_else(|| "-".to_owned());
        let resent = one.bytes_resent.zip(one.bytes_sent).and_then(|(part, all)| share(part, all));
        table.row(vec![
            one.congestion.to_owned(),
            one.state.clone(),
            one.local.clone(),
            dash(one.peer.clone()),
            dash(one.cwnd_segments.map(|it| it.to_string())),
            dash(one.rtt_us.map(|it| format!("{:.1}", f64::from(it) / 1e3))),
            dash(one.bytes_acked.map(grouped)),
            in_percent(resent),
            if one.available { "" } else { UNLOADED }.to_owned(),
        ]);
    }
    table.say();
    Ok(Verdict::Done)
}

/// The standard's name, or the kernel's number.
fn in_words(state: State) -> String {
    match (state.name(), state) {
        (Some(name), _) => name.to_owned(),
        (None, State::Other(number)) => format!("state {number}"),
        (None, _) => "unknown".to_owned(),
    }
}
