//! What a gate is told: the same however it was said, by words or by a file.

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
mod prefix;
mod reach;
mod remark;
pub mod words;

pub use remark::{Of, Place, Refused, Remark};

/// All that a gate is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The routes, at least one, each with a name and an address of its own.
    pub routes: Vec<Arc<Route>>,
    /// Bounds of the whole gate.
    pub limits: Limits,
    /// Where it answers questions about itself: a Unix socket for its own user alone.
    pub control: Option<PathBuf>,
    /// Where it answers `GET /metrics` over HTTP, for a collector.
    pub metrics: Option<SocketAddr>,
    /// How many threads carry flows; by default as many as there are processors.
    pub workers: Option<NonZeroUsize>,
    /// How long flows may go on when the gate is told to stop.
    pub drain: Duration,
}

impl Config {
    /// How long flows may go on, unless told: a minute.
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

/// Bounds of the whole gate. What is over is reset at once, and accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows that are open at once.
    pub flows: usize,
    /// Flows of one client's address that are open at once.
    pub flows_per_client: usize,
    /// Connections that are being opened at once.
    pub dials: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { flows: 100_000, flows_per_client: 50_000, dials: 4_096 }
    }
}

/// A route: where clients come in, and what becomes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name, in accounts and statistics.
    pub name: Arc<str>,
    /// Where it listens; with port 0 the kernel chooses one.
    pub listen: SocketAddr,
    /// What the client gets there.
    pub kind: Kind,
    /// Who may come; empty for everybody who can reach the address.
    pub allow: Vec<Prefix>,
    /// Where a proxy may connect to; empty for what is usual: see [`Route::may_reach`].
    pub reach: Vec<Prefix>,
    /// The client's leg: what we send to the client goes by it.
    pub client: LegOptions,
    /// The leg to the upstream: what we send there goes by it.
    pub upstream: LegOptions,
    /// Times.
    pub times: Times,
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// One of fixed targets.
    Forward(Forward),
    /// What it asks for by SOCKS 5 (RFC 1928).
    Socks5(Users),
    /// What it asks for by HTTP's method CONNECT (RFC 9110 section 9.3.6).
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

/// Which of several targets a flow is for.
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

/// Who may ask, where a client says who it is; empty where nobody has to.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(pub Vec<User>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|user| &user.name)).finish()
    }
}

/// A user and the password that proves it.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// At most 255 bytes.
    pub name: String,
    /// At most 255 bytes. It is never shown.
    pub password: String,
}

/// The addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// One of them.
    pub address: IpAddr,
    /// How many leading bits they share.
    pub bits: u8,
}

/// How the connections of one leg are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegOptions {
    /// Options of the socket. They govern what *we* send on this leg.
    pub tune: SocketOptions,
    /// Multipath TCP, where both sides have it.
    pub mptcp: bool,
    /// The addresses to connect from, for the upstream's leg.
    pub sources: Vec<IpAddr>,
}

/// Time limits. None of them ends a flow on which data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a client may take to say what it wants.
    pub request: Duration,
    /// How long connecting may take, names and all addresses included.
    pub connect: Duration,
    /// How long a flow may be idle, with nothing waiting in either direction; `None` for ever.
    pub idle: Option<Duration>,
    /// How long a side that has bytes to take may take none; `None` for ever.
    pub stall: Option<Duration>,
    /// How long a side may take to acknowledge the next of the last bytes, once an end is known.
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
