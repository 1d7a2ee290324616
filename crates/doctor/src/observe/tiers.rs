//! Which tier is available: the highest first, and for each other tier the reason.

use std::fs;

use lastbyte_sys::process::{self, CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN};

use super::kernel::KernelSource;
use super::tracefs::{self, Trace};
use super::{ObserveError, Plan, Roots, Shortfall, Source};
use crate::event::Tier;

/// Starts the best tier, with its source; tiers that are not available go to `shortfalls`.
pub(super) fn start_best(
    plan: &Plan,
    roots: &Roots,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<(Tier, Option<Box<dyn Source>>), ObserveError> {
    // In another PID namespace their processes have other numbers, and would look ended.
    if whole_machine(roots).is_ok() {
        tracefs::sweep(roots);
    }
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
        Tier::Bpf => {
            KernelSupport::of(roots).refusal().map_or(Ok(()), Err)?;
            Ok(Box::new(KernelSource::start(plan, roots)?))
        }
        Tier::Procfs => Err("it needs no source".to_owned()),
    }
}

/// Tracepoints as text have PIDs of the initial PID namespace.
fn whole_machine(roots: &Roots) -> Result<(), String> {
    /// The inode number of that one (`include/uapi/linux/nsfs.h`, `PID_NS_INIT_INO`).
    const FIRST: &str = "pid:[4026531836]";
    match fs::read_link(roots.proc.join("self/ns/pid")) {
        Ok(namespace) if namespace.as_os_str() != FIRST => Err(
            "this is a PID namespace of its own, and the kernel's events have other numbers for \
             the processes in it; run it outside of the container"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// The conditions for loading programs into the kernel.
struct KernelSupport {
    /// `uname -r`.
    release: String,
    has_types: bool,
    /// As [`process::effective_capabilities`].
    capabilities: u64,
    /// The active mode of `lockdown`, if any.
    lockdown: Option<String>,
}

impl KernelSupport {
    fn of(roots: &Roots) -> Self {
        let lockdown = fs::read_to_string(roots.sys.join("kernel/security/lockdown"));
        let mode = |text: String| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
        Self {
            release: roots.proc().kernel_release(),
            has_types: roots.sys.join("kernel/btf/vmlinux").exists(),
            capabilities: process::effective_capabilities().unwrap_or_default(),
            lockdown: lockdown.ok().and_then(mode),
        }
    }

    /// The condition that is not met, in a sentence.
    fn refusal(&self) -> Option<String> {
        /// The first kernel in which such programs may read a socket's cookie.
        const FIRST: (u32, u32) = (5, 12);
        let release = &self.release;
        if version(release).is_some_and(|version| version < FIRST) {
            return Some(format!(
                "Linux {release} is too old for it: it needs {}.{}",
                FIRST.0, FIRST.1
            ));
        }
        let needed = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
        let lacking =
            needed.iter().filter(|right| self.capabilities & (right.0 | CAP_SYS_ADMIN) == 0);
        let lacking: Vec<&str> = lacking.map(|right| right.1).collect();
        if !lacking.is_empty() {
            let verb = if lacking.len() == 1 { "is" } else { "are" };
            return Some(format!("{} {verb} lacking; root has them", lacking.join(" and ")));
        }
        if !self.has_types {
            let why = "this kernel does not describe its types: there is no \
                       /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)";
            return Some(why.to_owned());
        }
        let is_locked = self.lockdown.as_deref() == Some("confidentiality");
        is_locked.then(|| "the kernel is locked down (confidentiality)".to_owned())
    }
}

/// The first two numbers of a release such as `6.18.44-fc`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What a tier adds to the tier below it.
fn adds(tier: Tier) -> &'static str {
    match tier {
        Tier::Procfs => "states and queues of sockets, ten times a second",
        Tier::Tracefs => {
            "each reset with its reason and the process that caused it, each change of state and \
             retransmission, processes and connections that live for milliseconds"
        }
        Tier::Bpf => {
            "the bytes unread and unacked at the moment of each close, which process closed, and \
             what programs do with their sockets call by call"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unmet_condition_is_named() {
        let fine = || KernelSupport {
            release: "6.18.44".to_owned(),
            has_types: true,
            capabilities: CAP_BPF | CAP_PERFMON,
            lockdown: Some("integrity".to_owned()),
        };
        assert_eq!(fine().refusal(), None);
        assert_eq!(KernelSupport { capabilities: CAP_SYS_ADMIN, ..fine() }.refusal(), None);
        let cases = [
            (
                KernelSupport { release: "4.19.0-27-amd64".to_owned(), ..fine() },
                "Linux 4.19.0-27-amd64 is too old",
            ),
            (
                KernelSupport { release: "5.10.0-32-amd64".to_owned(), ..fine() },
                "Linux 5.10.0-32-amd64 is too old for it: it needs 5.12",
            ),
            (KernelSupport { capabilities: CAP_PERFMON, ..fine() }, "CAP_BPF is lacking"),
            (KernelSupport { capabilities: 0, ..fine() }, "CAP_BPF and CAP_PERFMON are lacking"),
            (KernelSupport { has_types: false, ..fine() }, "does not describe its types"),
            (
                KernelSupport { lockdown: Some("confidentiality".to_owned()), ..fine() },
                "locked down",
            ),
        ];
        for (support, expected) in cases {
            let why = support.refusal().unwrap();
            assert!(why.contains(expected), "{why}");
        }
        assert_eq!(version("5.8"), Some((5, 8)));
        assert_eq!(version("unknown"), None);
    }
}
