//! How to dial, and what a dial returns.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_core::race::Parameters;
use lastbyte_socket::ConnectOptions;

use crate::timeline::Timeline;

/// How to dial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DialOptions {
    /// How to open each connection.
    pub connect: ConnectOptions,
    /// The delays of the race, and the deadline of the whole dial, name resolution included.
    pub race: Parameters,
    /// Which address families to resolve.
    pub families: Families,
    /// Which addresses not to connect to, resolved or given.
    pub veto: Option<Veto>,
}

/// A check that forbids addresses. The dialer calls it for each address and port before it opens a
/// socket, also for addresses that a name resolved to. It runs in the task that dials and must not
/// block.
///
/// Two are equal if one is a clone of the other.
#[derive(Clone)]
pub struct Veto(pub(crate) Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>);

impl Veto {
    /// Forbids the addresses for which `forbids` returns true.
    #[must_use]
    pub fn new(forbids: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(forbids))
    }
}

impl fmt::Debug for Veto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Veto").finish_non_exhaustive()
    }
}

impl PartialEq for Veto {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Veto {}

impl DialOptions {
    /// Sets how to open each [connection](field@Self::connect).
    #[must_use]
    pub fn connect(self, connect: ConnectOptions) -> Self {
        Self { connect, ..self }
    }

    /// Sets the delays of the [race](field@Self::race), its deadline among them.
    #[must_use]
    pub fn race(self, race: Parameters) -> Self {
        Self { race, ..self }
    }

    /// Limits the time of the whole dial, name resolution included: [`Parameters::deadline`].
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { race: self.race.within(deadline), ..self }
    }

    /// Sets which [families](field@Self::families) to resolve.
    #[must_use]
    pub fn families(self, families: Families) -> Self {
        Self { families, ..self }
    }

    /// Sets which addresses [not to connect to](field@Self::veto).
    #[must_use]
    pub fn veto(self, veto: Veto) -> Self {
        Self { veto: Some(veto), ..self }
    }
}

/// Which address families to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Families {
    /// Both, as far as the network has them.
    #[default]
    Both,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// A connection, and the timeline of the dial.
#[derive(Debug)]
#[non_exhaustive]
pub struct Dialed<S> {
    /// The connection.
    pub stream: S,
    /// What happened, and when.
    pub timeline: Timeline,
}
