//! A tracefs instance of our own, with its own buffer and settings, which disturbs no other tracer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lastbyte_host::Proc;
use lastbyte_sys::file;

use super::super::Each;
use super::directory::TracingDirectory;
use super::line::lost;
use crate::event::{Event, What};

/// The prefix of our instances' names; the PID and start time follow.
const NAME: &str = "lastbyte-doctor-";
/// Limit on the stored part of an incomplete line.
const MAX_PARTIAL_LINE: usize = 8192;

#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    /// Keeps the mount of the path alive.
    _directory: TracingDirectory,
    /// Closed before the directory is removed, which is busy until then.
    pipe: Option<File>,
    buffer: Vec<u8>,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Instance {
    /// Makes an empty instance with the monotonic clock.
    pub(super) fn make(tracing: &TracingDirectory, proc: &Proc, suffix: &str) -> io::Result<Self> {
        let pid = Proc::default().own_stat()?.pid;
        let start = proc.stat(pid).map_or(0, |stat| stat.start);
        /// Distinguishes several observers in one process.
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = tracing.path.join(format!("instances/{NAME}{pid}-{start}-{count}{suffix}"));
        fs::create_dir(&path)?;
        let (buffer, rest, _directory) = (vec![0; 64 * 1024], Vec::new(), tracing.clone());
        let mut instance = Self { path, _directory, pipe: None, buffer, rest };
        instance.set("trace_clock", "mono")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // The size for each processor.
        let size = (16 * 1024 / processors).clamp(64, 1024);
        instance.set("buffer_size_kb", &size.to_string())?;
        // Wake up the reader when a part of the buffer is full, not for each event. Linux 5.0.
        let _ = instance.set("buffer_percent", "25");
        // Linux 4.14: record the process with the thread.
        let _ = instance.set("options/record-tgid", "1");
        let pipe = file::open_nonblocking(&instance.path.join("trace_pipe"))?;
        instance.pipe = Some(pipe);
        Ok(instance)
    }

    pub(super) fn set(&self, what: &str, value: &str) -> io::Result<()> {
        // Never created: the kernel would not allow it.
        let mut file = File::options().write(true).open(self.path.join(what))?;
        io::Write::write_all(&mut file, value.as_bytes())
    }

    pub(super) fn turn(&self, event: &str, on: bool) -> io::Result<()> {
        self.set(&format!("events/{event}/enable"), if on { "1" } else { "0" })
    }

    /// The number of a name in an event's format, such as `{ 4, "SOCKET_CLOSE" }`.
    pub(super) fn number_of(&self, event: &str, name: &str) -> Option<u64> {
        let format = fs::read_to_string(self.path.join(format!("events/{event}/format"))).ok()?;
        let before = format.split(&format!(", \"{name}\" }}")).next()?;
        before.rsplit("{ ").next()?.trim().parse().ok()
    }

    pub(super) fn pipe(&self) -> Option<&File> {
        self.pipe.as_ref()
    }

    /// Calls `on` with each available line, up to a limit; lost lines are an event. Returns whether
    /// there may be more.
    pub(super) fn read(
        &mut self,
        most: usize,
        now_ns: u64,
        on: &mut dyn FnMut(&str),
        each: Each<'_>,
    ) -> io::Result<bool> {
        let Some(pipe) = &mut self.pipe else { return Ok(false) };
        let mut lines = 0;
        while lines < most {
            let length = match pipe.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.rest.extend_from_slice(&self.buffer[..length]);
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in self.rest[..whole].split(|byte| *byte == b'\n') {
                lines += 1;
                let line = String::from_utf8_lossy(line);
                match lost(&line) {
                    Some(events) => each(Event { at_ns: now_ns, what: What::Dropped { events } }),
                    None => on(&line),
                }
            }
            self.rest.drain(..whole);
            if self.rest.len() > MAX_PARTIAL_LINE {
                self.rest.clear();
            }
        }
        Ok(true)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.pipe = None;
        remove(&self.path);
    }
}

/// Removes our instances whose process was killed.
pub(super) fn sweep(tracing: &Path, proc: &Proc) {
    for entry in fs::read_dir(tracing.join("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(owner) else { continue };
        if proc.stat(pid).is_none_or(|stat| stat.start != start) {
            remove(&entry.path());
        }
    }
}

/// The PID and start time in the name of an instance of ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(NAME)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn remove(path: &Path) {
    let disable = File::options().write(true).open(path.join("events/enable"));
    let _ = disable.and_then(|mut file| io::Write::write_all(&mut file, b"0"));
    // The kernel removes its files with it.
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_have_an_owner() {
        assert_eq!(owner("lastbyte-doctor-12-345-0-calls"), Some((12, 345)));
        for name in ["lastbyte-doctor-", "lastbyte-doctor-12", "lastbyte-doctor-x-1", "other-1-2"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
