//! A gate on loopback, an upstream behind it, and what the gate says.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use lastbyte_core::account::Account;
use lastbyte_gate::config::{Config, Forward, Kind, LegOptions, Route, Target, Times};
use lastbyte_gate::{Accounts, Gate, Notice, Notices};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A route from a port of the kernel's choice.
pub(crate) fn route(name: &str, target: SocketAddr) -> Route {
    let target = Target { host: target.ip().to_string(), port: target.port() };
    Route {
        name: name.into(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        kind: Kind::Forward(Forward { targets: vec![target], choice: Default::default() }),
        allow: Vec::new(),
        reach: Vec::new(),
        client: LegOptions::default(),
        upstream: LegOptions::default(),
        times: Times::default(),
    }
}

pub(crate) fn config(routes: impl IntoIterator<Item = Route>, workers: usize) -> Config {
    let routes = routes.into_iter().map(Arc::new).collect();
    Config { workers: NonZeroUsize::new(workers), ..Config::of(routes) }
}

pub(crate) fn start(config: Config) -> (Gate, Arc<Said>) {
    let said = Arc::new(Said::default());
    (Gate::start(config, said.clone(), said.clone()).unwrap(), said)
}

/// The first address of a gate.
pub(crate) fn address(gate: &Gate) -> SocketAddr {
    gate.listening()[0].address
}

/// What a gate has said.
#[derive(Default)]
pub(crate) struct Said {
    accounts: Mutex<Vec<Account>>,
    notices: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Said {
    /// Waits until there are so many accounts.
    pub(crate) fn accounts(&self, number: usize) -> Vec<Account> {
        let accounts = self.accounts.lock().unwrap();
        let too_few = |accounts: &mut Vec<Account>| accounts.len() < number;
        let (accounts, _) = self.changed.wait_timeout_while(accounts, LONG, too_few).unwrap();
        assert!(accounts.len() >= number, "{} of {number} accounts", accounts.len());
        accounts.clone()
    }

    /// Waits until there is a notice.
    pub(crate) fn notice(&self) -> String {
        let notices = self.notices.lock().unwrap();
        let none = |notices: &mut Vec<String>| notices.is_empty();
        let (notices, _) = self.changed.wait_timeout_while(notices, LONG, none).unwrap();
        notices.first().expect("a notice").clone()
    }
}

impl Accounts for Said {
    fn enter(&self, account: Account) {
        self.accounts.lock().unwrap().push(account);
        self.changed.notify_all();
    }
}

impl Notices for Said {
    fn notice(&self, notice: Notice) {
        self.notices.lock().unwrap().push(notice.to_string());
        self.changed.notify_all();
    }
}

/// A server that sends back what it gets, each byte increased by a number of its own. It serves all
/// connections in one thread, for as long as the process lives.
pub(crate) fn echo(add: u8) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    // Its descriptors are there when this returns.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                // It may be short of descriptors as well.
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(answer(stream, add))),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
    });
    address
}

async fn answer(mut stream: tokio::net::TcpStream, add: u8) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut buffer = [0; 1_024];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        buffer[..bytes].iter_mut().for_each(|byte| *byte = byte.wrapping_add(add));
        if stream.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}

/// A connection that waits no longer than a test may.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, LONG).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Sends a byte and returns the answer.
pub(crate) fn ask(stream: &mut TcpStream, byte: u8) -> u8 {
    stream.write_all(&[byte]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    answer[0]
}

/// Descriptors of this process that are open now.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
