//! `lastbyte lab serve`: the far host of other people's experiments.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use lastbyte_lab::Task;
use lastbyte_lab::remote::protocol::{Key, Refusal};
use lastbyte_lab::remote::{Limits, Server, ServerEvent};
use lastbyte_socket::{ConnectOptions, source_of};
use lastbyte_units::{ByteSize, Span, grouped};

use crate::output::{say, talk};
use crate::verdict::Verdict;

/// Be the far host of experiments: `lastbyte lab HOST:PORT --key KEY` on the other machine makes them.
///
/// Prints the one line to paste there. Whoever has its key may have this host take and send made-up
/// bytes, within the limits below, one experiment at a time; whoever has not gets nothing. The bytes
/// are counted as programs see them: the network carries some percent more. Ctrl-C ends it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen [default: all addresses of this host, at a port that the kernel chooses]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The port for what carries load, where a firewall lets only some through; 0 lets the kernel
    /// choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) data_port: u16,
    /// Take at most so many bytes, and send at most so many, over all experiments
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "10GiB")]
    pub(crate) max_bytes: ByteSize,
    /// Send for at most so long in each run
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) max_seconds: u64,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, default_value = "1h")]
    pub(crate) serve_for: Span,
    /// End after one experiment
    #[arg(long)]
    pub(crate) once: bool,
    /// End when stdin does, which whoever started it holds open
    #[arg(long, hide = true)]
    pub(crate) parent_pipe: bool,
}

/// Serves until its time is over.
pub(crate) fn run(args: &ServeArgs) -> Result<Verdict> {
    let key = Key::new().context("drawing a key")?;
    let limits = Limits {
        most_bytes: args.max_bytes.bytes(),
        most_time: Duration::from_secs(args.max_seconds),
        serve_for: args.serve_for.as_duration(),
        once: args.once,
        data_port: args.data_port,
    };
    let server = listen(args, &key, limits)?;
    announce(args, server.local_addr(), &key);
    let stop = Arc::new(AtomicBool::new(false));
    if args.parent_pipe {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
            stop.store(true, Ordering::Release);
        });
    }
    server.serve(&stop, &tell);
    talk("lab serve: ended");
    Ok(Verdict::Done)
}

fn listen(args: &ServeArgs, key: &Key, limits: Limits) -> Result<Server> {
    let on = |address| Server::listen(address, key.clone(), limits);
    if let Some(address) = args.listen {
        return Ok(on(address)?);
    }
    // One socket takes both families, but where the kernel has no IPv6.
    let all: SocketAddr = (Ipv6Addr::UNSPECIFIED, 0).into();
    Ok(on(all).or_else(|_| on((Ipv4Addr::UNSPECIFIED, 0).into()))?)
}

/// The line to paste, with the address that most likely leads here.
fn announce(args: &ServeArgs, local: SocketAddr, key: &Key) {
    let addresses = match local.ip() {
        ip if ip.is_unspecified() => own_addresses(local.is_ipv4()),
        ip => vec![ip],
    };
    let with_port = |ip: &IpAddr| SocketAddr::new(*ip, local.port()).to_string();
    let mut addresses = addresses.iter().map(with_port);
    let first = addresses.next().unwrap_or_else(|| format!("HOST:{}", local.port()));
    say(&format!("lastbyte lab {first} --key {key}"));
    if args.parent_pipe {
        return;
    }
    let others: Vec<String> = addresses.collect();
    if !others.is_empty() {
        talk(&format!("lab serve: this host is also {}", others.join(", ")));
    }
    talk(&format!(
        "lab serve: for {}, at most {} bytes each way, {} s a run{}; Ctrl-C ends it",
        args.serve_for,
        grouped(args.max_bytes.bytes()),
        args.max_seconds,
        if args.once { ", one experiment" } else { "" },
    ));
}

/// The addresses of this host that others can use, the most likely first: the one that whoever is
/// logged in here by ssh came by, those that this host goes out by, and the rest.
fn own_addresses(ipv4_alone: bool) -> Vec<IpAddr> {
    let by_ssh = env::var("SSH_CONNECTION").ok();
    let by_ssh = by_ssh.and_then(|words| words.split(' ').nth(2)?.parse().ok());
    // Addresses of documentation (RFC 5737, RFC 3849): the kernel looks the way up, nothing is sent.
    let out = [IpAddr::from([192, 0, 2, 1]), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()];
    let how = ConnectOptions::default();
    let out = out.iter().filter_map(|ip| source_of(SocketAddr::new(*ip, 9), &how));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in by_ssh.into_iter().chain(out).chain(listed_addresses()) {
        let useless = ip.is_loopback() || is_link_local(ip) || (ipv4_alone && ip.is_ipv6());
        if !useless && !addresses.contains(&ip) {
            addresses.push(ip);
        }
    }
    addresses
}

/// What needs the name of an interface is not for another machine.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// What the kernel's tables name as this host's own.
fn listed_addresses() -> BTreeSet<IpAddr> {
    let trie = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let v4 = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    let v4 = v4.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse().ok());
    let inet6 = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let v6 = inet6.lines().filter_map(|line| {
        let digits = u128::from_str_radix(line.split(' ').next()?, 16).ok()?;
        Some(Ipv6Addr::from_bits(digits).into())
    });
    v4.chain(v6).collect()
}

/// Says what happens.
fn tell(note: ServerEvent<'_>) {
    let line = match note {
        ServerEvent::Refused { peer, why, strangers: 1 } => format!("refused {peer}: {why}"),
        ServerEvent::Refused { peer, why, strangers } => {
            format!("refused {peer}: {why} (and {} others)", strangers - 1)
        }
        ServerEvent::Opened { peer, version, kernel } => {
            format!("an experiment of {peer} (lastbyte {version}, Linux {kernel})")
        }
        ServerEvent::Run { task } => run_line(task),
        ServerEvent::RunRefused { why } => match why {
            Refusal::Congestion { name, why } => format!("refused a run: {name:?}: {why}"),
            Refusal::Unsuited(why) | Refusal::Far(why) => format!("refused a run: {why}"),
        },
        ServerEvent::Closed { lost, received, sent } => {
            let why = lost.map_or_else(|| "is over".to_owned(), |why| format!("was lost: {why}"));
            let (received, sent) = (grouped(received), grouped(sent));
            format!("the experiment {why}; {received} bytes taken so far, {sent} sent")
        }
        _ => return,
    };
    talk(&format!("lab serve: {line}"));
}

fn run_line(task: &Task) -> String {
    let bytes = task.load.bytes.map(|bytes| format!("{} bytes", grouped(bytes)));
    let time = task.load.time.map(|time| format!("{} s", time.as_secs_f64()));
    let most: Vec<String> = bytes.into_iter().chain(time).collect();
    format!("a run of {}, at most {}", task.settings, most.join(" or "))
}
