//! Act 5: a server that nobody changes, by itself and behind a gate.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lastbyte_core::account::{Account, How};
use lastbyte_gate::config::{Config, Route};
use lastbyte_gate::{Accounts, Gate, Notice, Notices};
use lastbyte_lab::Path;
use lastbyte_link::Host;
use lastbyte_units::grouped;

use super::USUAL;
use crate::output::{mbit, say, talk};

/// What the server sends for each second of a run of the other acts, of at most 20; at its last connection half of
/// that, and then a reset.
const BYTES: usize = 1_500_000;
const SERVER_PORT: u16 = 7;
const GATE_PORT: u16 = 8;
/// What the gate sends by.
const BETTER: &str = "bbr";
/// For a client that nothing reaches any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns whether all arrived that was to arrive, and the cut was seen as one.
pub(super) fn an_unchanged_program(path: &Path, seconds: Duration) -> Result<bool> {
    let bytes = BYTES * usize::try_from(seconds.as_secs().min(20))?;
    say(&format!(
        "Act 5. A server that nobody changes sends {} bytes by {USUAL}",
        grouped(bytes as u64)
    ));
    say("over the same path: to a client, and to a gate beside it, which sends them on by");
    say(&format!("{BETTER}. The third time it fails half-way, and resets its connection."));
    say("");
    let path = path.up(1)?;
    let far = Host::Far.address();
    path.run(Host::Far, || serve(far, bytes))??;
    let (tell, told) = mpsc::channel();
    let gate = path.run(Host::Far, || start_gate(far, tell))??;
    let get = |port| path.run(Host::Near, move || receive(SocketAddr::from((far, port))));
    let straight = get(SERVER_PORT)??;
    straight.say("straight");
    let whole = get(GATE_PORT)??;
    whole.say("by the gate");
    let cut = get(GATE_PORT)??;
    cut.say("cut, by it");
    gate.drain(PATIENCE);
    let _ = gate.wait();
    path.down()?;
    say("");
    say("What the gate says of its two flows:");
    let accounts: Vec<Account> = told.try_iter().collect();
    accounts.iter().for_each(say_account);
    let is_told = accounts.iter().map(|account| account.ended.how).eq([How::Fin, How::Reset]);
    Ok(straight.is_whole(bytes) && whole.is_whole(bytes) && cut.end.is_err() && is_told)
}

fn say_account(account: &Account) {
    let acked = account.down.acked.map_or_else(|| "unknown".to_owned(), grouped);
    say(&format!(
        "  {}: {} bytes received, {acked} of them acknowledged by the client's host",
        account.ended,
        grouped(account.down.received)
    ));
}

/// Starts a server that is unchanged: it writes and closes, and leaves the rest to the kernel.
fn serve(address: Ipv4Addr, bytes: usize) -> Result<()> {
    let listener = TcpListener::bind((address, SERVER_PORT))?;
    lastbyte_socket::set_congestion(&listener, USUAL)?;
    thread::spawn(move || {
        let sent = vec![7; bytes];
        for length in [bytes, bytes, bytes / 2] {
            let Ok((mut client, _)) = listener.accept() else { return };
            // One that fails is seen by its client.
            let _ = client.write_all(&sent[..length]);
            if length < bytes {
                fail(client);
            }
        }
    });
    Ok(())
}

/// Resets a connection once the peer's kernel has what was written: a reset throws away the rest.
fn fail(client: TcpStream) {
    let until = Instant::now() + PATIENCE;
    while lastbyte_sys::tcp::unacked(&client).is_ok_and(|left| left > 0) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    let _ = lastbyte_sys::socket::set_linger(&client, Some(Duration::ZERO));
}

fn start_gate(address: Ipv4Addr, tell: Sender<Account>) -> Result<Gate> {
    let mut route: Route = format!("{address}:{GATE_PORT}={address}:{SERVER_PORT}").parse()?;
    route.allow.push(Host::Near.address().to_string().parse().context("an address is a prefix")?);
    route.client.tune.congestion = Some(BETTER.to_owned());
    let config = Config::of(vec![Arc::new(route)]);
    Ok(Gate::start(config, Arc::new(Told(tell)), Arc::new(Talk))?)
}

struct Told(Sender<Account>);

impl Accounts for Told {
    fn enter(&self, account: Account) {
        let _ = self.0.send(account);
    }
}

struct Talk;

impl Notices for Talk {
    fn notice(&self, notice: Notice) {
        talk(&notice.to_string());
    }
}

/// What a client got.
struct Got {
    bytes: usize,
    took: Duration,
    end: io::Result<()>,
}

/// A client that reads until there is no more.
fn receive(from: SocketAddr) -> Result<Got> {
    let began = Instant::now();
    let mut server = TcpStream::connect(from)?;
    server.set_read_timeout(Some(PATIENCE))?;
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
    let end = loop {
        match server.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(read) => bytes += read,
            Err(error) => break Err(error),
        }
    };
    Ok(Got { bytes, took: began.elapsed(), end })
}

impl Got {
    fn is_whole(&self, bytes: usize) -> bool {
        self.bytes == bytes && self.end.is_ok()
    }

    fn say(&self, how: &str) {
        let seconds = self.took.as_secs_f64();
        let end = match &self.end {
            Ok(()) => "the end".to_owned(),
            Err(error) => error.to_string(),
        };
        say(&format!(
            "{how:<14} {:>10} bytes in {seconds:>4.1} s, {:>5} Mbit/s, then: {end}",
            grouped(self.bytes as u64),
            mbit(self.bytes as f64 * 8.0 / seconds)
        ));
    }
}
