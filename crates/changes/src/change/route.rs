//! A route of lastbyte's own: made, known again, taken back.

use std::fmt;
use std::io;
use std::net::IpAddr;

use lastbyte_sys::process::NO_SUCH_PROCESS as ESRCH;
use lastbyte_sys::route::{self, Hop, MAIN_TABLE, Route, UNICAST};
use serde::{Deserialize, Serialize};

use super::{NotMade, network};
use crate::error::{ChangesError, Doing, Result, must, refused};
use crate::prefix::Prefix;

/// The origin of lastbyte's routes, as `ip route` shows it: `proto 108`. Neither Linux
/// (`linux/rtnetlink.h`) nor iproute2 (`rt_protos`) gives this number to anybody, nor do the routing
/// daemons (FRR and BIRD have 11, 12 and 186 to 198).
pub(crate) const PROTOCOL: u8 = 108;

/// A route to a prefix that had none, for the congestion control of connections over it. It is the
/// route that these took before in all else. It does not follow when that one changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedRoute {
    /// Where it leads.
    pub to: Prefix,
    /// The congestion control of connections over it.
    pub congestion: String,
    /// The neighbours that it sends packets to.
    pub hops: Vec<AddedHop>,
    /// The address that programs without a choice of their own send from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// As of the route that connections took before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// The network namespace that it is in, as the inode number of its file in `/proc`.
    pub network: u64,
}

/// One of the neighbours that the route sends packets to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedHop {
    /// `None` where the destination itself is the neighbour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The interface's name when the route was made, for the reader.
    pub device: String,
    /// The interface's number, which it keeps under another name.
    pub device_index: u32,
    /// Its share of the connections, beside the others'.
    pub weight: u16,
    /// Whether no address of the interface need speak for the neighbour.
    pub on_link: bool,
}

/// A metric of a route by its number in the kernel (`RTAX_*` in `linux/rtnetlink.h`), in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its number.
    pub rtax: u16,
    /// Its value.
    pub value: u32,
}

impl AddedRoute {
    /// Adds the route, and sees that the kernel takes it.
    pub(crate) fn make(&self) -> Result<(), NotMade> {
        self.add().map_err(NotMade::nothing_left)?;
        self.is_taken().map_err(|error| {
            let left = self.take_back(&mut |_| {}).err().map(Box::new);
            NotMade { error, left }
        })
    }

    /// Deletes the route if it is there as it was made. `tell` hears of what was left alone.
    pub(super) fn take_back(&self, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let here = network()?;
        must(here == self.network, || {
            format!(
                "it is in the network namespace net:[{}], and this is net:[{here}]: undo it \
                 there, such as with nsenter; it ends with that namespace",
                self.network
            )
        })?;
        let there = route::of_prefix(self.to.address(), self.to.bits())
            .doing("cannot list the routes of this machine")?;
        if !there.iter().any(|route| self.is(route)) {
            if !there.is_empty() {
                let to = self.to;
                tell(&format!(
                    "the route to {to} is not the one that lastbyte made: it is left alone"
                ));
            }
            return Ok(());
        }
        match route::delete(&self.route()) {
            Ok(()) => Ok(()),
            // Somebody was faster.
            Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(()),
            Err(error) => Err(words(&error, || format!("cannot delete the route to {}", self.to))),
        }
    }

    /// Refuses a route that could not be told from others.
    pub(super) fn check(&self) -> Result<()> {
        must(!self.hops.is_empty(), || format!("a route to {} by nobody", self.to))?;
        must(!self.congestion.is_empty(), || format!("a route to {} for nothing", self.to))
    }

    fn add(&self) -> Result<()> {
        match route::add(&self.route()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(refused(format!(
                "a route to {} has appeared meanwhile: it is left alone",
                self.to
            ))),
            Err(error) => Err(words(&error, || format!("cannot add {self}"))),
        }
    }

    /// Whether it is what the kernel goes by now: rules may look into other tables first.
    fn is_taken(&self) -> Result<()> {
        let to = self.to;
        let taken = route::to(to.address())
            .doing_with(|| format!("cannot ask for the route to {to} once it is there"))?;
        must(self.is(&taken), || {
            format!("the kernel does not take a new route to {to} of the main table: see `ip rule`")
        })
    }

    /// Whether a route that the kernel tells of is this one, as it was made.
    fn is(&self, found: &Route) -> bool {
        let made = self.route();
        // The kernel has an order of its own.
        let hops = |route: &Route| {
            let mut hops = route.hops.clone();
            hops.sort_by_key(|hop| (hop.interface, hop.via));
            hops
        };
        let metrics = |route: &Route| {
            let mut metrics = route.metrics.clone();
            metrics.sort_unstable();
            metrics
        };
        hops(found) == hops(&made)
            && metrics(found) == metrics(&made)
            // Chosen by the kernel where none was asked for.
            && Route { hops: Vec::new(), metrics: Vec::new(), priority: 0, ..found.clone() }
                == Route { hops: Vec::new(), metrics: Vec::new(), ..made }
    }

    fn route(&self) -> Route {
        let hop = |hop: &AddedHop| Hop {
            via: hop.via,
            interface: hop.device_index,
            weight: hop.weight,
            on_link: hop.on_link,
        };
        Route {
            destination: self.to.address(),
            prefix_bits: self.to.bits(),
            table: MAIN_TABLE,
            tos: 0,
            protocol: PROTOCOL,
            kind: UNICAST,
            priority: 0,
            source: self.source,
            hops: self.hops.iter().map(hop).collect(),
            congestion: Some(self.congestion.clone()),
            metrics: self.metrics.iter().map(|metric| (metric.rtax, metric.value)).collect(),
            unknown: Vec::new(),
        }
    }
}

/// `the route to 203.0.113.7/32 via 10.0.2.1 dev eth0 with congctl bbr`.
impl fmt::Display for AddedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the route to {}", self.to)?;
        for (place, hop) in self.hops.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { " and" })?;
            if let Some(via) = hop.via {
                write!(f, " via {via}")?;
            }
            write!(f, " dev {}", hop.device)?;
        }
        write!(f, " with congctl {}", self.congestion)
    }
}

/// The kernel's error with what was tried, or who may do it.
fn words(error: &io::Error, what: impl Fn() -> String) -> ChangesError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return refused(format!(
            "{}: it needs CAP_NET_ADMIN: run it as root, such as with sudo",
            what()
        ));
    }
    refused(format!("{}: {error}", what()))
}
