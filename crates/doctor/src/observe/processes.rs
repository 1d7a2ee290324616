//! Processes that are asked about, and those that hold a socket: when they come, what they run, when
//! they end, and how much processor time their threads take.

use std::collections::BTreeMap;

use lastbyte_host::{Proc, Stat};
use lastbyte_sys::process::{self, CAP_SYS_PTRACE};

use super::Each;
use crate::event::{Cpu, Ending, Event, Process, Used, What};

/// Threads whose children are asked for at each look; of the others once a second.
const THREADS_AT_ONCE: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// How long it is known of a process that it was watched: what it did is told later than that it ended.
const ENDED_NS: u64 = 10_000_000_000;
/// Processor time is told of threads that use at least so many hundredths of a processor.
const BUSY_PERCENT: u64 = 20;
/// A tick of `/proc`'s clock (`USER_HZ`), nanoseconds.
const TICK_NS: u64 = 10_000_000;
/// So many threads of one process are looked at, at most.
const MAX_THREADS: usize = 256;
/// So many bytes of a command line are told, at most.
const MAX_COMMAND_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct Processes {
    proc: Proc,
    known: BTreeMap<u32, KnownProcess>,
    /// Watched ones that were lately found to have ended.
    ended: BTreeMap<u32, EndedProcess>,
    /// Whether ends are told of; otherwise a higher tier does.
    reports_ends: bool,
    sees_all: bool,
    second_ns: u64,
}

/// A watched process that has ended.
#[derive(Debug)]
struct EndedProcess {
    /// When that was found, and as of when it was told.
    found_ns: u64,
    reported_ns: u64,
    ending: Ending,
    /// As last told.
    process: Process,
    /// That it has ended was told.
    is_over: bool,
}

#[derive(Debug)]
struct KnownProcess {
    /// As last told.
    process: Process,
    stat: Stat,
    /// Found in this second or the last: where its threads are is asked at each look.
    since_ns: u64,
    /// The network namespaces that its threads are in, each with one of them: most often one.
    networks: BTreeMap<u64, u32>,
    /// It, or what it descends from, is asked about.
    is_watched: bool,
    /// Of its processor time, what was before it was watched or is told of: outside and in the kernel.
    used: (u64, u64),
    /// Whether it was told that this is measured, even if it is nothing yet.
    is_measured: bool,
    /// Of the second before: when, and of each thread its processor time.
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

    /// Tells of a process and follows what it starts.
    pub(super) fn watch(&mut self, pid: u32, now_ns: u64, each: Each<'_>) {
        if self.report(pid, now_ns, each)
            && let Some(known) = self.known.get_mut(&pid)
        {
            known.is_watched = true;
        }
    }

    /// A watched process has started this one, which may have ended since.
    pub(super) fn adopt(&mut self, process: Process, now_ns: u64, each: Each<'_>) {
        self.watch(process.pid, now_ns, each);
        if self.is_watched(process.pid) {
            return;
        }
        // What it did is told later than this.
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

    /// By this name a process has ended: it may have run other programs since it was looked at.
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

    /// Tells of a process, unless that was done. Returns whether it was told of.
    pub(super) fn report(&mut self, pid: u32, now_ns: u64, each: Each<'_>) -> bool {
        if self.known.contains_key(&pid) {
            return true;
        }
        // A watched one was told of, though it has ended since.
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

    /// Whether it was watched when it did what is told of now: it may have ended since.
    pub(super) fn was_watched(&self, pid: u32, at_ns: u64) -> bool {
        self.is_watched(pid) || self.ended.get(&pid).is_some_and(|past| at_ns <= past.found_ns)
    }

    /// Whether it is watched, or was until lately.
    pub(super) fn is_remembered(&self, pid: u32) -> bool {
        self.is_watched(pid) || self.ended.contains_key(&pid)
    }

    /// How one that was watched has ended.
    pub(super) fn ending(&self, pid: u32) -> Ending {
        self.ended.get(&pid).map_or(Ending::Unknown, |past| past.ending)
    }

    /// The network namespace of one that is or was watched, where all its threads are in one.
    pub(super) fn network(&self, pid: u32) -> Option<u64> {
        match self.known.get(&pid) {
            Some(known) if known.networks.len() > 1 => None,
            Some(known) => known.process.network,
            None => self.ended.get(&pid)?.process.network,
        }
    }

    /// The network namespaces of those that are asked about, each with a process and a thread in it.
    pub(super) fn networks(&self) -> impl Iterator<Item = (u64, (u32, u32))> {
        let watched = self.known.iter().filter(|(_, known)| known.is_watched);
        watched.flat_map(|(pid, known)| {
            known.networks.iter().map(|(network, tid)| (*network, (*pid, *tid)))
        })
    }

    /// Looks who has ended, who runs another program, and whom the watched ones have started.
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

    /// Tells what all of them have used until now.
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
                // One that nobody has waited for still says what it used in all.
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

    /// A program that lives for less than two seconds is looked at as often as possible.
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

    /// Watches what a watched process has started.
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
            // All of its time is since its parent is watched.
            known.used = (0, 0);
        }
        // It may have started others before it was seen.
        let grandchildren = self.proc.children(child, child).unwrap_or_default();
        for grandchild in grandchildren {
            self.follow_child(grandchild, now_ns, each);
        }
    }

    /// Tells of the threads of a process that keep a processor busy.
    fn measure(&mut self, pid: u32, now_ns: u64, each: Each<'_>) {
        let Some(known) = self.known.get_mut(&pid) else { return };
        let over_ns = now_ns - known.at_ns;
        let is_first = std::mem::replace(&mut known.at_ns, now_ns) == 0;
        let whole = (known.stat.user, known.stat.system);
        let before = known.threads.insert(0, whole).unwrap_or(whole);
        let is_busy = |used: u64| used * TICK_NS * 100 >= over_ns * BUSY_PERCENT;
        if is_first || !is_busy((whole.0 + whole.1).saturating_sub(before.0 + before.1)) {
            // What its threads used in an idle time is not counted later.
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
    /// Tells what it has used since that was told last, by its last `stat`.
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

/// All that is told of a process.
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

/// How it ended. `sees_status`: whether the kernel shows us its wait status; where it does not, that
/// reads 0, as if all were well.
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
    fn an_end_is_told_by_the_wait_status_where_that_is_seen() {
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
    fn this_process_is_told_of() {
        let (proc, own) = (Proc::default(), std::process::id());
        let process = process_of(&proc, own, &proc.stat(own).unwrap());
        assert!(!process.command.is_empty() && process.command.len() <= 3 * 256, "{process:?}");
        assert_eq!(process.user, Some(process::effective_user()));
        assert!(process.network.is_some());
    }
}
