//! System calls of the processes in scope, counted by thread, call and descriptor.

use std::collections::{BTreeMap, HashMap};
use std::io;

use lastbyte_host::Proc;
use lastbyte_sys::calls::CALLS;

use super::super::Each;
use super::super::tables::Tables;
use super::directory::TracingDirectory;
use super::instance::Instance;
use super::line::{Fields, Line};
use crate::event::{Calls as CallsEvent, Event, Ready, What};

/// Limit on lines read at a time; the kernel drops and counts further ones.
const LINES: usize = 50_000;
/// How often counts are reported.
const EVERY_NS: u64 = 1_000_000_000;
/// Limits on threads, and on calls and descriptors of each.
const MAX_THREADS: usize = 4096;
const MAX_CALLS: usize = 1024;
/// A waiting call that takes no longer than this did not wait.
const AT_ONCE_NS: u64 = 50_000;

#[derive(Debug)]
pub(super) struct Calls {
    instance: Instance,
    threads: HashMap<u32, Thread>,
    since_ns: u64,
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    entered: Option<Entered>,
    calls: BTreeMap<(String, Option<i32>), CallsEvent>,
    ready: BTreeMap<&'static str, Ready>,
    /// A waiting call that returned at once with something ready, and nothing was done since.
    idle: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Entered {
    number: i64,
    first: u64,
    second: u64,
    at_ns: u64,
}

impl Calls {
    pub(super) fn start(tracing: &TracingDirectory, proc: &Proc) -> io::Result<Self> {
        let instance = Instance::make(tracing, proc, "-calls")?;
        // Children of the traced processes are traced too; Linux 4.7.
        instance.set("options/event-fork", "1")?;
        Ok(Self { instance, threads: HashMap::new(), since_ns: 0 })
    }

    /// Traces all threads of a process, and what it starts.
    pub(super) fn watch(&mut self, pid: u32, proc: &Proc) {
        for tid in proc.threads(pid) {
            let _ = self.instance.set("set_event_pid", &tid.to_string());
        }
        // Not before a process is set: until then all processes would be traced.
        for event in ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"] {
            let _ = self.instance.turn(event, true);
        }
    }

    pub(super) fn take(&mut self, now_ns: u64, tables: &Tables, each: Each<'_>) -> io::Result<()> {
        let threads = &mut self.threads;
        let mut on = |text: &str| {
            let Some(line) = Line::parse(text) else { return };
            if threads.len() >= MAX_THREADS && !threads.contains_key(&line.tid) {
                return;
            }
            let thread = threads.entry(line.tid).or_default();
            let before = if thread.pid == 0 { line.tid } else { thread.pid };
            thread.pid = line.pid.unwrap_or(before);
            match line.event {
                "sys_enter" => thread.enter(line.fields, line.at_ns),
                "sys_exit" => thread.leave(line.fields, line.at_ns),
                _ => {}
            }
        };
        self.instance.read(LINES, now_ns, &mut on, each)?;
        if self.since_ns == 0 {
            self.since_ns = now_ns;
        }
        let over_ns = now_ns - self.since_ns;
        if over_ns >= EVERY_NS {
            self.since_ns = now_ns;
            for (tid, thread) in &mut self.threads {
                thread.report(*tid, (now_ns, over_ns), tables, each);
            }
            self.threads.retain(|_, thread| thread.entered.is_some());
        }
        Ok(())
    }
}

impl Thread {
    /// `NR 7 (7ffd3c, 1, 64, 0, 0, 0)`, in hexadecimal.
    fn enter(&mut self, fields: Fields<'_>, at_ns: u64) {
        self.entered = parse_enter(fields.0, at_ns);
        let name = self.entered.and_then(|entered| called_by(entered.number));
        match name.filter(|name| is_waiting(name)) {
            // Waiting again with nothing done since: the last call had no effect.
            Some(_) => {
                if let Some(ready) = self.idle.take().and_then(|name| self.ready.get_mut(name)) {
                    ready.idle += 1;
                }
            }
            None if name.is_some() => self.idle = None,
            None => {}
        }
    }

    /// `NR 7 = 1`.
    fn leave(&mut self, fields: Fields<'_>, at_ns: u64) {
        let Some(entered) = self.entered.take() else { return };
        let Some((number, returned)) = parse_exit(fields.0) else { return };
        let Some(name) = called_by(number).filter(|_| number == entered.number) else { return };
        let took_ns = at_ns.saturating_sub(entered.at_ns);
        if is_waiting(name) && returned > 0 {
            let ready = self.ready.entry(name).or_default();
            ready.count += 1;
            self.idle = (took_ns <= AT_ONCE_NS).then_some(name);
        }
        // `poll` and `select` have no descriptor as their first argument.
        let fd = i32::try_from(entered.first).ok().filter(|_| has_descriptor(name));
        let key = (called(name, entered.second), fd);
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&key) {
            return;
        }
        let calls = self.calls.entry(key).or_default();
        calls.count += 1;
        calls.in_call_ns += took_ns;
        if matches!(name, "select" | "pselect6") {
            calls.highest = calls.highest.max(entered.first);
        }
        match u64::try_from(returned) {
            Ok(returned) => {
                calls.returned = calls.returned.saturating_add(returned);
                calls.zero += u64::from(returned == 0);
            }
            Err(_) => {
                let errno = i32::try_from(returned.unsigned_abs()).unwrap_or(i32::MAX);
                match calls.errors.iter_mut().find(|error| error.0 == errno) {
                    Some(error) => error.1 += 1,
                    None => calls.errors.push((errno, 1)),
                }
            }
        }
    }

    fn report(&mut self, tid: u32, (at_ns, over_ns): (u64, u64), tables: &Tables, each: Each<'_>) {
        let pid = self.pid;
        for ((call, fd), calls) in std::mem::take(&mut self.calls) {
            let socket = fd.and_then(|fd| tables.held_by(pid, fd));
            let calls = CallsEvent { pid, tid, call, fd, socket, over_ns, ..calls };
            each(Event { at_ns, what: What::Calls(calls) });
        }
        for (call, ready) in std::mem::take(&mut self.ready) {
            let call = call.to_owned();
            each(Event { at_ns, what: What::Ready(Ready { pid, tid, call, over_ns, ..ready }) });
        }
    }
}

fn parse_enter(text: &str, at_ns: u64) -> Option<Entered> {
    let (number, rest) = text.strip_prefix("NR ")?.split_once(" (")?;
    let mut arguments = rest.split([',', ')']).map(|word| u64::from_str_radix(word.trim(), 16));
    Some(Entered {
        number: number.parse().ok()?,
        first: arguments.next()?.ok()?,
        second: arguments.next()?.ok()?,
        at_ns,
    })
}

fn parse_exit(text: &str) -> Option<(i64, i64)> {
    let (number, returned) = text.strip_prefix("NR ")?.split_once(" = ")?;
    Some((number.parse().ok()?, returned.trim().parse().ok()?))
}

fn called_by(number: i64) -> Option<&'static str> {
    CALLS.iter().find(|call| call.1 == number).map(|call| call.0)
}

/// An `ioctl` by what it asks (`include/uapi/linux/sockios.h`).
fn called(name: &str, request: u64) -> String {
    let request = match (name, request) {
        ("ioctl", 0x5411) => "SIOCOUTQ",
        ("ioctl", 0x541B) => "SIOCINQ",
        ("ioctl", 0x894B) => "SIOCOUTQNSD",
        _ => return name.to_owned(),
    };
    format!("ioctl:{request}")
}

fn is_waiting(name: &str) -> bool {
    matches!(
        name,
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait" | "epoll_pwait2"
    )
}

fn has_descriptor(name: &str) -> bool {
    !matches!(name, "poll" | "ppoll" | "select" | "pselect6")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_is_counted() {
        let mut thread = Thread { pid: 7, ..Thread::default() };
        let poll = if cfg!(target_arch = "x86_64") { 7 } else { return };
        for round in 0..10_u64 {
            let at = round * 10_000;
            thread.enter(Fields(&format!("NR {poll} (7ffd3c, 1, ffffffff, 0, 0, 0)")), at);
            thread.leave(Fields(&format!("NR {poll} = 1")), at + 1000);
        }
        thread.enter(Fields("NR 0 (5, 7ffd3c, 400, 0, 0, 0)"), 200_000);
        thread.leave(Fields("NR 0 = -11"), 201_000);
        assert_eq!((thread.ready["poll"].count, thread.ready["poll"].idle), (10, 9));
        let read = &thread.calls[&("read".to_owned(), Some(5))];
        assert_eq!(
            (read.count, read.errors.as_slice(), read.in_call_ns),
            (1, &[(11, 1)][..], 1000)
        );
        assert_eq!(thread.calls[&("poll".to_owned(), None)].returned, 10);
    }

    #[test]
    fn arguments_and_requests() {
        let entered = parse_enter("NR 16 (a, 5411, 7ffd, 0, 0, 0)", 1).unwrap();
        assert_eq!(
            (entered.number, entered.first, called("ioctl", entered.second)),
            (16, 10, "ioctl:SIOCOUTQ".into())
        );
        assert!(parse_enter("NR x (", 1).is_none() && parse_exit("NR 1 = ").is_none());
    }
}
