//! LB405: local ports run out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use lastbyte_core::sample::State;

use crate::event::{Event, What};
use crate::facts::Facts;
use crate::finding::{About, Class, Code, Finding};
use crate::rules::Rule;
use crate::rules::figures::evidence;
use crate::text::{count, who};

/// EADDRNOTAVAIL.
const NO_PORT: i32 = 99;
/// Limit on processes and addresses.
const MOST: usize = 10_000;

/// LB405.
#[derive(Debug, Default)]
pub(super) struct LocalPorts {
    /// Addresses that a connection was established with: for these a local address is not what is
    /// missing. On a machine without IPv6 the kernel returns the same error for each IPv6 address.
    reached: BTreeSet<IpAddr>,
    /// Processes whose failed calls are all reported one by one.
    reported: BTreeSet<u32>,
    /// Failed calls, by process and destination, until the next tick.
    failed: BTreeMap<(u32, Option<SocketAddr>), (u64, u64)>,
}

impl Rule for LocalPorts {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        match &event.what {
            What::Changed(changed) if changed.to == State::Established => {
                let known = facts.socket(changed.socket).filter(|_| self.reached.len() < MOST);
                self.reached.extend(known.map(|known| known.socket.peer.ip()));
            }
            What::NotConnected { pid, peer, errno: NO_PORT } => {
                let is_ours = peer.is_ipv4() || self.reached.contains(&peer.ip());
                if is_ours && facts.process_in_scope(*pid) && self.failed.len() < MOST {
                    self.reported.insert(*pid);
                    let failed = self.failed.entry((*pid, Some(*peer))).or_insert((event.at_ns, 0));
                    failed.1 = failed.1.saturating_add(1);
                }
            }
            What::Calls(calls)
                if calls.call == "connect" && !self.reported.contains(&calls.pid) =>
            {
                let ports = calls.errors.iter().filter(|(errno, _)| *errno == NO_PORT);
                let times = ports.fold(0_u64, |sum, (_, times)| sum.saturating_add(*times));
                // The address is unknown: a single failure may mean that there is no IPv6.
                if times > 1 && facts.process_in_scope(calls.pid) && self.failed.len() < MOST {
                    self.failed.insert((calls.pid, None), (event.at_ns, times));
                }
            }
            What::Exited { pid, .. } => drop(self.reported.remove(pid)),
            What::Tick => self.report(facts, found),
            _ => {}
        }
    }

    fn at_end(&mut self, facts: &Facts, found: &mut Vec<Finding>) {
        self.report(facts, found);
    }
}

impl LocalPorts {
    fn report(&mut self, facts: &Facts, found: &mut Vec<Finding>) {
        for ((pid, peer), (at_ns, times)) in std::mem::take(&mut self.failed) {
            let about = About { peer, ..facts.about_process(pid) };
            let to = peer.map(|peer| format!(" to {peer}")).unwrap_or_default();
            let connects = if times == 1 { "A connect" } else { "Connects" };
            let sentence = format!(
                "{connects} of {}{to} failed, {} in all, as no local port was free for that \
                 destination.",
                who(&about),
                count(times)
            );
            found.push(Finding {
                code: Code(405),
                class: Class::Connect,
                harmless: false,
                bytes: None,
                at_ns,
                times: 1,
                about,
                sentence,
                fix: "Keep connections open and reuse them; else widen \
                      net.ipv4.ip_local_port_range, let the peer close first (TIME-WAIT is then at \
                      the peer), or use more addresses."
                    .to_owned(),
                heal: None,
                evidence: evidence([("failed_connects", times.into())]),
            });
        }
    }
}
