//! Which tier can be had: the highest first, and of each that cannot, what stands in the way.

use std::fs;

use super::kernel::KernelSource;
use super::tracefs::Trace;
use super::{ObserveError, Plan, Roots, Shortfall, Source};
use crate::event::Tier;

/// A tier that works, with its source; what does not is added to `shortfalls`.
pub(super) fn climb_down(
    plan: &Plan,
    roots: &Roots,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<(Tier, Option<Box<dyn Source>>), ObserveError> {
    for tier in [Tier::Bpf, Tier::Tracefs] {
        if plan.tier.is_some_and(|only| only != tier) {
            continue;
        }
        match start(tier, plan, roots) {
            Ok(source) => return Ok((tier, Some(source))),
            Err(why) if plan.tier.is_some() => return Err(ObserveError::Unavailable(why)),
            Err(why) => shortfalls.push(Shortfall { tier, why, adds: adds(tier) }),
        }
    }
    Ok((Tier::Procfs, None))
}

fn start(tier: Tier, plan: &Plan, roots: &Roots) -> Result<Box<dyn Source>, String> {
    match tier {
        Tier::Tracefs => {
            whole_machine(roots)?;
            Ok(Box::new(Trace::start(plan, roots)?))
        }
        Tier::Bpf => Ok(Box::new(KernelSource::start(plan, roots)?)),
        Tier::Procfs => Err("it needs no source".to_owned()),
    }
}

/// The kernel's own events have the numbers of the first PID namespace.
fn whole_machine(roots: &Roots) -> Result<(), String> {
    /// The inode number of that one (`include/uapi/linux/nsfs.h`, `PID_NS_INIT_INO`).
    const FIRST: &str = "pid:[4026531836]";
    match fs::read_link(roots.proc.join("self/ns/pid")) {
        Ok(namespace) if namespace.as_os_str() != FIRST => Err(
            "this is a PID namespace of its own, and the kernel's events have other numbers for the \
             processes in it; run it outside of the container"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// What a tier adds to the one below.
fn adds(tier: Tier) -> &'static str {
    match tier {
        Tier::Procfs => "states and queues of sockets, ten times a second",
        Tier::Tracefs => {
            "each reset with its reason, each change of state and retransmission, processes that live for \
             less than a tenth of a second"
        }
        Tier::Bpf => {
            "the bytes unread and unacked at the moment of each close, who closed, and what programs do \
             with their sockets call by call"
        }
    }
}

/// `uname -r`.
pub(super) fn kernel(roots: &Roots) -> String {
    let release = fs::read_to_string(roots.proc.join("sys/kernel/osrelease"));
    release.map(|release| release.trim().to_owned()).unwrap_or_default()
}
