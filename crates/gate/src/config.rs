//! The configuration of a gate, from arguments or from a file.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_socket::SocketOptions;

pub mod check;
pub mod file;
pub mod keys;
pub mod parse;
mod prefix;
mod reach;
mod remark;

pub use remark::{Place, Refused, Remark, Subject};

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The routes, at least one, each with a name and an address of its own.
    pub routes: Vec<Arc<Route>>,
    /// Limits of the whole gate.
    pub limits: Limits,
    /// Its control socket: a Unix socket for its own user alone.
    pub control: Option<PathBuf>,
    /// The address where it answers `GET /metrics` over HTTP, for a collector.
    pub metrics: Option<SocketAddr>,
    /// How many threads carry flows; by default as many as there are processors.
    pub workers: Option<NonZeroUsize>,
    /// How long flows may continue when the gate is told to stop.
    pub drain: Duration,
}

impl Config {
    /// The default of [`Config::drain`]: a minute.
    pub const DRAIN: Duration = Duration::from_secs(60);

    /// A gate of these routes, the rest by default.
    #[must_use]
    pub fn of(routes: Vec<Arc<Route>>) -> Self {
        Self {
            routes,
            limits: Limits::default(),
            control: None,
            metrics: None,
            workers: None,
            drain: Self::DRAIN,
        }
    }
}

/// Limits of the whole gate. A connection beyond them is reset at once, and leaves an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most flows that are open at once.
    pub flows: usize,
    /// The most flows of one client's address that are open at once.
    pub flows_per_client: usize,
    /// The most connects in progress at once.
    pub dials: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 100_000, flows_per_client: 50_000, dials: 4_096 }
    }
}

/// A route: where clients connect, and where their flows lead.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name, in accounts and statistics.
    pub name: Arc<str>,
    /// The address it listens on; with port 0 the kernel chooses a port.
    pub listen: SocketAddr,
    /// What it does with a client.
    pub kind: Kind,
    /// The clients that are admitted; empty for all.
    pub allow: Vec<Prefix>,
    /// Where a proxy may connect to; empty for the default: see [`Route::may_reach`].
    pub reach: Vec<Prefix>,
    /// The settings of the client's leg, for what we send to the client.
    pub client: LegOptions,
    /// The settings of the upstream's leg, for what we send there.
    pub upstream: LegOptions,
    /// Time limits.
    pub times: Times,
}

/// What a route does with a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Connects it to one of fixed targets.
    Forward(Forward),
    /// Connects it to what it asks for by SOCKS 5 (RFC 1928).
    Socks5(Users),
    /// Connects it to what it asks for by HTTP's method CONNECT (RFC 9110 section 9.3.6).
    HttpConnect(Users),
}

/// Fixed targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// At least one.
    pub targets: Vec<Target>,
    /// Which one is tried first. The others follow, in their order.
    pub choice: Choice,
}

/// Which of several targets is tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The first one that did not fail lately.
    FirstHealthy,
}

/// A host and a port to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The users of a proxy; empty where clients are not authenticated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(pub Vec<User>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|user| &user.name)).finish()
    }
}

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// At most 255 bytes.
    pub name: String,
    /// At most 255 bytes. It is never shown.
    pub password: String,
}

/// Addresses that share their leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// One of them.
    pub address: IpAddr,
    /// How many leading bits they share.
    pub bits: u8,
}

/// The settings of one leg.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegOptions {
    /// Options of the socket. They affect what *we* send on this leg.
    pub tune: SocketOptions,
    /// Multipath TCP, where both sides have it.
    pub mptcp: bool,
    /// The local addresses to connect from, for the upstream's leg.
    pub sources: Vec<IpAddr>,
}

/// Time limits. None of them ends a flow on which bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a client may take to send its request.
    pub request: Duration,
    /// How long a connect may take, with name resolution and all addresses.
    pub connect: Duration,
    /// How long a flow may be idle, with no bytes waiting in either direction; `None` for no limit.
    pub idle: Option<Duration>,
    /// How long a side may read none of the bytes that wait for it; `None` for no limit.
    pub stall: Option<Duration>,
    /// How long a side may take between two acknowledgements, once the other side has ended.
    pub settle: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: None,
            stall: None,
            settle: Duration::from_secs(30),
        }
    }
}
