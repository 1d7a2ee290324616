//! Names of processes: from `/proc`, or, if they have ended, from what was stored at their `exec`.

use std::collections::HashMap;

use lastbyte_bpf::Loaded;
use lastbyte_host::process::command_line;
use lastbyte_host::{Container, Proc};

use super::record::{EXEC, Record, bytes_at, u32_at};
use crate::event::{Event, Process, What};
use crate::observe::Each;
use crate::observe::processes::process_of;

/// Limit on processes remembered as reported; beyond it, all are reported again.
const MAX_REPORTED: usize = 32_768;

/// The reported processes.
pub(super) struct Programs {
    proc: Proc,
    /// By PID, with the name at that time.
    reported: HashMap<u32, [u8; 16]>,
}

impl Programs {
    pub(super) fn new(proc: Proc) -> Self {
        Self { proc, reported: HashMap::new() }
    }

    /// Reports the process of a record once.
    pub(super) fn report(&mut self, record: &Record<'_>, sockets: &Loaded, each: Each<'_>) {
        let comm = record.comm();
        let is_reported = match self.reported.get(&record.pid()) {
            // A record without a name is about a process that was named before.
            Some(known) => *known == comm || comm[0] == 0,
            None => false,
        };
        if !is_reported {
            let process = self.process(record.pid(), comm, sockets);
            self.note(record.pid(), comm);
            each(Event { at_ns: record.at_ns(), what: What::Process(process) });
        }
    }

    /// Reports a child, or a new program of a process.
    pub(super) fn report_new(&mut self, record: &Record<'_>, sockets: &Loaded, each: Each<'_>) {
        let (pid, comm) = (record.pid(), record.comm());
        let parent = u32::try_from(record.number()).unwrap_or_default();
        let mut process = self.process(pid, comm, sockets);
        if record.kind() != EXEC {
            // `/proc` may already show another program for this PID.
            process.name = text(&comm);
        }
        process.parent = parent;
        self.note(pid, comm);
        each(Event { at_ns: record.at_ns(), what: What::Process(process) });
    }

    /// The living children of a process.
    pub(super) fn children(&self, pid: u32) -> Vec<u32> {
        let threads = self.proc.threads(pid).into_iter();
        threads.flat_map(|tid| self.proc.children(pid, tid).unwrap_or_default()).collect()
    }

    /// Forgets a process; returns whether it had been reported.
    pub(super) fn forget(&mut self, pid: u32) -> bool {
        self.reported.remove(&pid).is_some()
    }

    fn note(&mut self, pid: u32, comm: [u8; 16]) {
        if self.reported.len() >= MAX_REPORTED {
            self.reported.clear();
        }
        self.reported.insert(pid, comm);
    }

    fn process(&self, pid: u32, comm: [u8; 16], sockets: &Loaded) -> Process {
        let name = text(&comm);
        let stat = self.proc.stat(pid);
        if let Some(stat) = &stat {
            let process = process_of(&self.proc, pid, stat);
            // An ended process has no command line any more.
            if (process.name == name || name.is_empty()) && !process.command.is_empty() {
                return process;
            }
        }
        let kept = sockets.read("commands", &pid.to_ne_bytes()).ok().flatten();
        let kept = kept.map(|kept| self.contained(&KeptCommand(&kept), pid));
        match (kept, stat) {
            (Some(kept), _) if kept.name == name => kept,
            (_, Some(stat)) => Process { name, ..process_of(&self.proc, pid, &stat) },
            (Some(kept), None) => Process { name, command: String::new(), ..kept },
            (None, None) => Process { pid, name, ..Process::default() },
        }
    }

    /// An ended process, with its container.
    fn contained(&self, kept: &KeptCommand<'_>, pid: u32) -> Process {
        let process = kept.process(pid);
        // A process is in its parent's container. A process that is only in version 1 groups also
        // has an empty path.
        let container = match kept.control_group() {
            path if path.is_empty() => self.proc.container(process.parent),
            path => Container::of_path(&path, self.proc.root()),
        };
        let name = container.as_ref().and_then(|one| one.name(&self.proc, process.parent));
        let container = container.map(|container| container.id);
        Process { container, container_name: name, ..process }
    }
}

/// `struct command` of `bpf/sockets.bpf.c`.
struct KeptCommand<'a>(&'a [u8]);

impl KeptCommand<'_> {
    /// The offset of the command line, and its stored length.
    const LINE: usize = 28;
    const LONGEST: usize = 256;

    fn process(&self, pid: u32) -> Process {
        let length = usize::try_from(u32_at(self.0, 8)).unwrap_or_default();
        let line = self.0.get(Self::LINE..Self::LINE + length).unwrap_or_default();
        Process {
            pid,
            parent: u32_at(self.0, 0),
            name: text(&bytes_at(self.0, 12)),
            command: command_line(line),
            user: Some(u32_at(self.0, 4)),
            ..Process::default()
        }
    }

    /// The last components of the path of its control group; empty for the root group.
    fn control_group(&self) -> String {
        /// The stored length of a component, with its final 0.
        const STEP: usize = 96;
        let steps = self.0.get(Self::LINE + Self::LONGEST..).unwrap_or_default().chunks_exact(STEP);
        let steps = steps.map(|step| {
            let end = step.iter().position(|byte| *byte == 0).unwrap_or(STEP);
            String::from_utf8_lossy(&step[..end]).into_owned()
        });
        let mut steps: Vec<String> = steps.filter(|step| !step.is_empty()).collect();
        steps.reverse();
        steps.join("/")
    }
}

/// A name of at most 15 bytes.
fn text(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_is_kept_from_the_inside_out() {
        let mut bytes = vec![0xFF; KeptCommand::LINE + KeptCommand::LONGEST];
        let long = "x".repeat(95);
        for step in ["init", &long, ""] {
            let mut field = [0; 96];
            field[..step.len()].copy_from_slice(step.as_bytes());
            bytes.extend(field);
        }
        assert_eq!(KeptCommand(&bytes).control_group(), format!("{long}/init"));
        assert_eq!(KeptCommand(&bytes[..300]).control_group(), "");
    }
}
