//! A route at work: what its flows share, and how its two legs are set up.

use std::sync::Arc;
use std::time::Duration;

use lastbyte_dial::{DialOptions, Veto};
use lastbyte_socket::{Keepalive, ListenOptions, SocketOptions};

use crate::config::Route;
use crate::context::Context;
use crate::loops::OwnAddresses;
use crate::statistics::RouteStatistics;
use crate::targets::Chooser;

/// A route as it is now, with what its flows share.
#[derive(Debug)]
pub(crate) struct ActiveRoute {
    pub(crate) route: Arc<Route>,
    /// How its upstream is connected to.
    pub(crate) dial: DialOptions,
    /// Which of its targets a flow is for.
    pub(crate) chooser: Arc<Chooser>,
    pub(crate) statistics: RouteStatistics,
}

impl ActiveRoute {
    /// A route of a gate.
    pub(crate) fn new(route: Arc<Route>, context: &Context) -> Self {
        let chooser = Arc::new(Chooser::new(&route.kind));
        let dial = dial_options(&route, &context.own);
        let statistics = context.statistics.of_route(&route.name);
        Self { route, dial, chooser, statistics }
    }

    /// A route in the place of this one. Where the targets are the same, what is known of them stays.
    pub(crate) fn followed_by(&self, route: Arc<Route>, context: &Context) -> Self {
        let followed = Self::new(route, context);
        if followed.route.kind == self.route.kind {
            return Self { chooser: Arc::clone(&self.chooser), ..followed };
        }
        followed
    }
}

/// The receive buffer that a client's connection begins with, unless its route fixes one, in bytes.
const FIRST_BUFFER: u32 = 1 << 20;

/// How a route listens.
pub(crate) fn listen_options(route: &Route) -> ListenOptions {
    ListenOptions::default()
        .socket(with_defaults(&route.client.tune))
        .mptcp(route.client.mptcp)
        .first_buffer(FIRST_BUFFER)
        .reset_when_closed(true)
}

/// How the upstream of a route is connected to, by a gate that listens on `own`.
fn dial_options(route: &Arc<Route>, own: &Arc<OwnAddresses>) -> DialOptions {
    let (own, proxy) = (Arc::clone(own), Arc::clone(route));
    let mut options = DialOptions::default();
    options.connect.socket = with_defaults(&route.upstream.tune);
    options.connect.mptcp = route.upstream.mptcp;
    options.connect.any_port = true;
    options.connect.sources.clone_from(&route.upstream.sources);
    options.veto =
        Some(Veto::new(move |address| !proxy.may_reach(address.ip()) || own.is_own(address)));
    options
}

/// Keep-alive of both legs, unless their route says otherwise: the first probe after a minute of silence,
/// and the connection is given up after eight probes in two more. The kernel's own two hours are longer
/// than any middlebox remembers.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 8 };

/// The settings of a leg: those of its route, and the gate's defaults. A gate writes what it has read at
/// once: without `TCP_NODELAY` a message would be held back until the last segment is acknowledged, for up
/// to 40 ms.
fn with_defaults(tune: &SocketOptions) -> SocketOptions {
    let mut tune = tune.clone();
    tune.nodelay.get_or_insert(true);
    tune.keepalive.get_or_insert(KEEPALIVE);
    tune
}
