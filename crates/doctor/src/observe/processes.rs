//! Processes in scope, and those that hold a socket: their start, program, end, and the processor
//! time of their threads.

use std::collections::BTreeMap;

use lastbyte_host::{Proc, Stat};
use lastbyte_sys::process::{self, CAP_SYS_PTRACE};

use super::Each;
use crate::event::{Cpu, Ending, Event, Process, Used, What};

/// Threads whose children are read at each scan; those of the others once a second.
const THREADS_AT_ONCE: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// How long an ended process is remembered: its actions may be reported later than its end.
const ENDED_NS: u64 = 10_000_000_000;
/// Processor time is reported for threads that use at least this percentage of a processor.
const BUSY_PERCENT: u64 = 20;
/// A tick of `/proc`'s clock (`USER_HZ`), nanoseconds.
const TICK_NS: u64 = 10_000_000;
/// Limit on threads of one process.
const MAX_THREADS: usize = 256;
/// Limit on the length of a reported command line.
const MAX_COMMAND_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct Processes {
    proc: Proc,
    known: BTreeMap<u32, KnownProcess>,
    /// Processes in scope that ended recently.
    ended: BTreeMap<u32, EndedProcess>,
    /// Whether ends are reported here; otherwise a higher tier does it.
    reports_ends: bool,
    sees_all: bool,
    second_ns: u64,
}

/// An ended process that was in scope.
#[derive(Debug)]
struct EndedProcess {
    /// When the end was found, and the time it was reported with.
    found_ns: u64,
    reported_ns: u64,
    ending: Ending,
    /// As last reported.
    process: Process,
    /// Whether its end was reported.
    is_over: bool,
}

#[derive(Debug)]
struct KnownProcess {
    /// As last reported.
    process: Process,
    stat: Stat,
    /// When it was found. The namespaces of a young process are read at each scan.
    since_ns: u64,
    /// The network namespaces that its threads are in, each with one of them: most often one.
    networks: BTreeMap<u64, u32>,
    /// Whether it or an ancestor is in scope.
    is_watched: bool,
    /// Processor time from before it was in scope, or already reported: in user mode and in the
    /// kernel.
    used: (u64, u64),
    /// Whether a first measurement, even of zero, was reported.
    is_measured: bool,
    /// The last measurement: when, and the processor time of each thread.
    at_ns: u64,
    threads: BTreeMap<u32, (u64, u64)>,
}

impl Processes {
    pub(super) fn new(proc: Proc, reports_ends: bool) -> Self {
        let has = process::effective_capabilities().unwrap_or_default();
        let sees_all = has & CAP_SYS_PTRACE != 0;
        Self {
            proc,
            known: BTreeMap::new(),
            ended: BTreeMap::new(),
            reports_ends,
            sees_all,
            second_ns: 0,
        }
    }

    /// Reports a process and follows what it starts.
    pub(super) fn watch(&mut self, pid: u32, now_ns: u64, each: Each<'_>) {
        if self.report(pid, now_ns, each)
            && let Some(known) = self.known.get_mut(&pid)
        {
            known.is_watched = true;
        }
    }

    /// A process in scope has started this one, which may have ended since.
    pub(super) fn adopt(&mut self, process: Process, now_ns: u64, each: Each<'_>) {
        self.watch(process.pid, now_ns, each);
        if self.is_watched(process.pid) {
            return;
        }
        // Its actions are reported later than this.
        let parent = self.known.get(&process.parent).map(|known| &known.process);
        let parent = parent.or_else(|| self.ended.get(&process.parent).map(|past| &past.process));
        let network = parent.and_then(|parent| parent.network);
        let process = Process { network, ..process };
        each(Event { at_ns: now_ns, what: What::Process(process.clone()) });
        let past = EndedProcess {
            found_ns: process::monotonic_ns(),
            reported_ns: u64::MAX,
            ending: Ending::Unknown,
            process,
            is_over: false,
        };
        self.ended.insert(past.process.pid, past);
    }

    /// A process has ended with this name: it may have run other programs since the last scan.
    pub(super) fn name_at_end(&mut self, pid: u32, name: &str, at_ns: u64, each: Each<'_>) {
        let known = self.known.get_mut(&pid).map(|known| &mut known.process);
        let past = self.ended.get_mut(&pid).filter(|past| at_ns <= past.reported_ns);
        let (known, is_over) = match (known, past) {
            (Some(known), _) => (known, None),
            (None, Some(past)) => (&mut past.process, Some(&mut past.is_over)),
            (None, None) => return,
        };
        if known.name != name {
            name.clone_into(&mut known.name);
            each(Event { at_ns, what: What::Process(known.clone()) });
        }
        if let Some(is_over) = is_over
            && !std::mem::replace(is_over, true)
            && self.reports_ends
        {
            each(Event { at_ns, what: What::Exited { pid, ending: Ending::Unknown } });
        }
    }

    /// Reports a process once. Returns whether it was reported.
    pub(super) fn report(&mut self, pid: u32, now_ns: u64, each: Each<'_>) -> bool {
        if self.known.contains_key(&pid) {
            return true;
        }
        // A process in scope was reported although it has ended since.
        let Some(stat) = self.proc.stat(pid) else { return self.ended.contains_key(&pid) };
        let process = process_of(&self.proc, pid, &stat);
        let known = KnownProcess {
            process: process.clone(),
            since_ns: now_ns,
            networks: process.network.map(|network| (network, pid)).into_iter().collect(),
            used: (stat.user, stat.system),
            is_measured: false,
            stat,
            is_watched: false,
            at_ns: 0,
            threads: BTreeMap::new(),
        };
        self.known.insert(pid, known);
        each(Event { at_ns: now_ns, what: What::Process(process) });
        true
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = u32> {
        self.known.iter().filter(|(_, known)| known.is_watched).map(|(pid, _)| *pid)
    }

    pub(super) fn is_watched(&self, pid: u32) -> bool {
        self.known.get(&pid).is_some_and(|known| known.is_watched)
    }

    /// Whether it was in scope at this time; it may have ended since.
    pub(super) fn was_watched(&self, pid: u32, at_ns: u64) -> bool {
        self.is_watched(pid) || self.ended.get(&pid).is_some_and(|past| at_ns <= past.found_ns)
    }

    /// Whether it is in scope, or was until recently.
    pub(super) fn is_remembered(&self, pid: u32) -> bool {
        self.is_watched(pid) || self.ended.contains_key(&pid)
    }

    /// How a process in scope has ended.
    pub(super) fn ending(&self, pid: u32) -> Ending {
        self.ended.get(&pid).map_or(Ending::Unknown, |past| past.ending)
    }

    /// The network namespace of a process that is or was in scope, if all its threads are in one.
    pub(super) fn network(&self, pid: u32) -> Option<u64> {
        match self.known.get(&pid) {
            Some(known) if known.networks.len() > 1 => None,
            Some(known) => known.process.network,
            None => self.ended.get(&pid)?.process.network,
        }
    }

    /// The network namespaces of the processes in scope, each with a process and a thread in it.
    pub(super) fn networks(&self) -> impl Iterator<Item = (u64, (u32, u32))> {
        let watched = self.known.iter().filter(|(_, known)| known.is_watched);
        watched.flat_map(|(pid, known)| {
            known.networks.iter().map(|(network, tid)| (*network, (*pid, *tid)))
        })
    }

    /// Finds ended processes, new programs, and children of the processes in scope.
    pub(super) fn scan(&mut self, now_ns: u64, each: Each<'_>) {
        let is_second = now_ns >= self.second_ns + SECOND_NS;
        if is_second {
            self.second_ns = now_ns;
            self.ended.retain(|_, past| past.found_ns + ENDED_NS > now_ns);
        }
        let pids: Vec<u32> = self.known.keys().copied().collect();
        for pid in pids {
            let is_watched = self.is_watched(pid);
            let is_there = !(is_watched || is_second) || self.scan_process(pid, now_ns, each);
            if is_second && is_there {
                self.measure(pid, now_ns, each);
            }
            if is_there && (is_second || self.is_young(pid, now_ns)) {
                self.find_networks(pid);
                if let Some(known) = self.known.get_mut(&pid) {
                    known.report_used(pid, now_ns, each);
                }
            }
            if is_watched {
                self.follow(pid, is_second, now_ns, each);
            }
        }
    }

    /// Reports the processor time of all processes until now.
    pub(super) fn report_used(&mut self, now_ns: u64, each: Each<'_>) {
        for (pid, known) in &mut self.known {
            let stat = self.proc.stat(*pid).filter(|stat| stat.start == known.stat.start);
            known.stat = stat.unwrap_or_else(|| known.stat.clone());
            known.report_used(*pid, now_ns, each);
        }
    }

    /// Returns whether it is still there.
    fn scan_process(&mut self, pid: u32, now_ns: u64, each: Each<'_>) -> bool {
        let stat = self.proc.stat(pid);
        let Some(known) = self.known.get_mut(&pid) else { return false };
        let is_same = stat.as_ref().is_some_and(|stat| stat.start == known.stat.start);
        let same = stat.filter(|_| is_same);
        let own = self.sees_all || known.process.user == Some(process::effective_user());
        match same {
            Some(stat) if !stat.has_ended() => {
                if stat.name != known.stat.name {
                    known.process = process_of(&self.proc, pid, &stat);
                    each(Event { at_ns: now_ns, what: What::Process(known.process.clone()) });
                }
                known.stat = stat;
                true
            }
            ended => {
                let ending = ended.as_ref().map_or(Ending::Unknown, |stat| ending(stat, own));
                // A zombie still shows its total processor time.
                known.stat = ended.unwrap_or_else(|| known.stat.clone());
                known.report_used(pid, now_ns, each);
                if let Some(known) = self.known.remove(&pid).filter(|known| known.is_watched) {
                    let (found_ns, reported_ns) = (process::monotonic_ns(), now_ns);
                    let (process, is_over) = (known.process, true);
                    let past = EndedProcess { found_ns, reported_ns, ending, process, is_over };
                    self.ended.insert(pid, past);
                }
                if self.reports_ends {
                    each(Event { at_ns: now_ns, what: What::Exited { pid, ending } });
                }
                false
            }
        }
    }

    /// A process younger than two seconds is scanned as often as possible.
    fn is_young(&self, pid: u32, now_ns: u64) -> bool {
        self.known.get(&pid).is_some_and(|known| now_ns <= known.since_ns + 2 * SECOND_NS)
    }

    /// Threads can be in other network namespaces than their process.
    fn find_networks(&mut self, pid: u32) {
        let Some(known) = self.known.get_mut(&pid).filter(|known| known.is_watched) else { return };
        let threads = self.proc.threads(pid).into_iter().take(THREADS_AT_ONCE);
        let pairs = threads.filter_map(|tid| Some((self.proc.network(pid, tid).ok()?, tid)));
        let networks: BTreeMap<u64, u32> = pairs.collect();
        if !networks.is_empty() {
            known.networks = networks;
        }
    }

    /// Puts the children of a process in scope.
    fn follow(&mut self, pid: u32, is_second: bool, now_ns: u64, each: Each<'_>) {
        let most = if is_second { MAX_THREADS } else { THREADS_AT_ONCE };
        let threads = self.proc.threads(pid);
        let mut says = threads.is_empty();
        for tid in threads.into_iter().take(most) {
            let Some(children) = self.proc.children(pid, tid) else { continue };
            says = true;
            for child in children {
                self.follow_child(child, now_ns, each);
            }
        }
        if !says && is_second {
            for child in self.proc.pids().unwrap_or_default() {
                if self.proc.stat(child).is_some_and(|stat| stat.parent == pid) {
                    self.follow_child(child, now_ns, each);
                }
            }
        }
    }

    fn follow_child(&mut self, child: u32, now_ns: u64, each: Each<'_>) {
        if self.is_watched(child) || self.proc.stat(child).is_none_or(|stat| stat.has_ended()) {
            return;
        }
        self.watch(child, now_ns, each);
        if let Some(known) = self.known.get_mut(&child) {
            // All its processor time is after its parent came into scope.
            known.used = (0, 0);
        }
        // It may have started others before it was found.
        let grandchildren = self.proc.children(child, child).unwrap_or_default();
        for grandchild in grandchildren {
            self.follow_child(grandchild, now_ns, each);
        }
    }

    /// Reports the threads of a process that keep a processor busy.
    fn measure(&mut self, pid: u32, now_ns: u64, each: Each<'_>) {
        let Some(known) = self.known.get_mut(&pid) else { return };
        let over_ns = now_ns - known.at_ns;
        let is_first = std::mem::replace(&mut known.at_ns, now_ns) == 0;
        let whole = (known.stat.user, known.stat.system);
        let before = known.threads.insert(0, whole).unwrap_or(whole);
        let is_busy = |used: u64| used * TICK_NS * 100 >= over_ns * BUSY_PERCENT;
        if is_first || !is_busy((whole.0 + whole.1).saturating_sub(before.0 + before.1)) {
            // Processor time of an idle interval is not counted later.
            known.threads.retain(|tid, _| *tid == 0);
            return;
        }
        let mut threads = BTreeMap::from([(0, whole)]);
        for tid in self.proc.threads(pid).into_iter().take(MAX_THREADS) {
            let Some(stat) = self.proc.thread_stat(pid, tid) else { continue };
            threads.insert(tid, (stat.user, stat.system));
            let Some(before) = known.threads.get(&tid) else { continue };
            let user = stat.user.saturating_sub(before.0);
            let system = stat.system.saturating_sub(before.1);
            if is_busy(user + system) {
                let (user_ns, system_ns) = (user * TICK_NS, system * TICK_NS);
                let cpu = Cpu { pid, tid, user_ns, system_ns, over_ns };
                each(Event { at_ns: now_ns, what: What::Cpu(cpu) });
            }
        }
        known.threads = threads;
    }
}

impl KnownProcess {
    /// Reports the processor time since the last report, from its last `stat`.
    fn report_used(&mut self, pid: u32, at_ns: u64, each: Each<'_>) {
        let now = (self.stat.user, self.stat.system);
        let before = std::mem::replace(&mut self.used, now);
        let user_ns = now.0.saturating_sub(before.0) * TICK_NS;
        let system_ns = now.1.saturating_sub(before.1) * TICK_NS;
        let is_first = !std::mem::replace(&mut self.is_measured, true);
        if is_first || user_ns + system_ns > 0 {
            each(Event { at_ns, what: What::Used(Used { pid, user_ns, system_ns }) });
        }
    }
}

/// Everything that is reported about a process.
pub(super) fn process_of(proc: &Proc, pid: u32, stat: &Stat) -> Process {
    let container = proc.container(pid);
    let container_name = container.as_ref().and_then(|one| one.name(proc, pid));
    Process {
        pid,
        parent: stat.parent,
        name: stat.name.clone(),
        command: proc.command(pid, MAX_COMMAND_BYTES),
        user: proc.user(pid),
        network: proc.network(pid, pid).ok(),
        container: container.map(|container| container.id),
        container_name,
    }
}

/// How it ended. `sees_status`: whether the kernel shows us its wait status; otherwise that reads
/// 0, like success.
fn ending(stat: &Stat, sees_status: bool) -> Ending {
    match (sees_status && stat.has_ended(), stat.status & 0x7F, stat.status >> 8 & 0xFF) {
        (false, ..) => Ending::Unknown,
        (true, 0, code) => Ending::Exit(code),
        (true, signal, _) => Ending::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_reported_by_the_wait_status_if_that_is_visible() {
        let runs = Stat { state: b'S', status: 256, ..Stat::default() };
        assert_eq!(ending(&runs, true), Ending::Unknown);
        let ended = Stat { state: b'Z', ..runs };
        assert_eq!(
            (ending(&ended, true), ending(&ended, false)),
            (Ending::Exit(1), Ending::Unknown)
        );
        assert_eq!(ending(&Stat { status: 9, ..ended }, true), Ending::Signal(9));
    }

    #[test]
    fn this_process_is_reported() {
        let (proc, own) = (Proc::default(), std::process::id());
        let process = process_of(&proc, own, &proc.stat(own).unwrap());
        assert!(!process.command.is_empty() && process.command.len() <= 3 * 256, "{process:?}");
        assert_eq!(process.user, Some(process::effective_user()));
        assert!(process.network.is_some());
    }
}
