//! What `/proc` says of one process: files that may vanish while they are read, with names that may
//! hold anything.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::container::Container;
use crate::event::{Ending, Process};

/// `/proc`, wherever it lies.
#[derive(Clone, Debug)]
pub(super) struct Proc(pub(super) PathBuf);

/// `/proc/PID/stat`, or a thread's (`proc_pid_stat(5)`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: String,
    /// `Z` and `X`: it has ended.
    pub(super) state: u8,
    pub(super) parent: u32,
    /// Processor time in and outside of the kernel, ticks of a hundredth of a second.
    pub(super) user: u64,
    pub(super) system: u64,
    pub(super) threads: u32,
    /// When it was started: with the number it is the name of a process.
    pub(super) start: u64,
    /// The wait status; 0 for whoever may not see it.
    pub(super) status: i32,
}

impl Stat {
    /// Reads the line; `None` where it is not as it is known.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        // The name in brackets may hold anything, brackets too.
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        // From the third field on.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            name,
            state: *fields.first()?.as_bytes().first()?,
            parent: u32::try_from(number(4)?).ok()?,
            user: number(14)?,
            system: number(15)?,
            threads: u32::try_from(number(20)?).ok()?,
            start: number(22)?,
            status: number(52).and_then(|status| i32::try_from(status).ok()).unwrap_or(0),
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// How it ended. `sees_status`: whether the kernel shows us its wait status; where it does not, that
    /// reads 0, as if all were well.
    pub(super) fn ending(&self, sees_status: bool) -> Ending {
        match (sees_status && self.has_ended(), self.status & 0x7F, self.status >> 8 & 0xFF) {
            (false, ..) => Ending::Unknown,
            (true, 0, code) => Ending::Exit(code),
            (true, signal, _) => Ending::Signal(signal),
        }
    }
}

impl Proc {
    /// Every process that it shows.
    pub(super) fn pids(&self) -> io::Result<Vec<u32>> {
        Ok(numbers(&self.0)?.collect())
    }

    pub(super) fn threads(&self, pid: u32) -> Vec<u32> {
        let threads = numbers(&self.of(pid).join("task"));
        threads.map(Iterator::collect).unwrap_or_default()
    }

    pub(super) fn stat(&self, pid: u32) -> Option<Stat> {
        Stat::parse(&read(&self.of(pid).join("stat"), ROOM)?)
    }

    pub(super) fn thread_stat(&self, pid: u32, tid: u32) -> Option<Stat> {
        Stat::parse(&read(&self.of(pid).join("task").join(tid.to_string()).join("stat"), ROOM)?)
    }

    /// What a thread has started and is still there (`CONFIG_PROC_CHILDREN`); `None` where the kernel does
    /// not say.
    pub(super) fn children(&self, pid: u32, tid: u32) -> Option<Vec<u32>> {
        let path = self.of(pid).join("task").join(tid.to_string()).join("children");
        let text = read(&path, 1 << 20)?;
        let text = String::from_utf8_lossy(&text);
        Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// The process that a thread belongs to.
    pub(super) fn group(&self, tid: u32) -> Option<u32> {
        let status = read(&self.of(tid).join("status"), ROOM)?;
        let status = String::from_utf8_lossy(&status);
        status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
    }

    /// All about a process that its `stat` does not say.
    pub(super) fn process(&self, pid: u32, stat: &Stat) -> Process {
        let container = self.container(pid);
        let container_name = container.as_ref().and_then(|one| one.name(self, pid));
        Process {
            pid,
            parent: stat.parent,
            name: stat.name.clone(),
            command: self.command(pid),
            user: self.user(pid),
            network: self.network(pid, pid),
            container: container.map(|container| container.id),
            container_name,
        }
    }

    /// The container that a process is in.
    pub(super) fn container(&self, pid: u32) -> Option<Container> {
        let cgroup = read(&self.of(pid).join("cgroup"), 1 << 16)?;
        Container::of(&String::from_utf8_lossy(&cgroup), self.root())
    }

    /// Where the files of the machine lie whose processes it shows.
    pub(super) fn root(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }

    /// The inode number of a thread's network namespace; `None` for whoever may not see it.
    pub(super) fn network(&self, pid: u32, tid: u32) -> Option<u64> {
        in_brackets(&fs::read_link(self.network_path(pid, tid)).ok()?, "net:")
    }

    pub(super) fn network_path(&self, pid: u32, tid: u32) -> PathBuf {
        self.of(pid).join("task").join(tid.to_string()).join("ns/net")
    }

    /// The inode number of the PID namespace whose numbers it shows: that of the first process there; of
    /// whoever may not look at that, our own.
    #[cfg(feature = "bpf")]
    pub(super) fn pid_namespace(&self) -> Option<u64> {
        let of = |who: &str| fs::read_link(self.0.join(who).join("ns/pid")).ok();
        in_brackets(&of("1").or_else(|| of("self"))?, "pid:")
    }

    /// Calls `each` with every socket that a process has open: its inode number and the descriptor.
    ///
    /// # Errors
    /// `EACCES` for another user's process.
    pub(super) fn sockets(&self, pid: u32, each: &mut dyn FnMut(u32, i32)) -> io::Result<()> {
        let folder = self.of(pid).join("fd");
        for entry in fs::read_dir(folder)?.flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let inode = in_brackets(&target, "socket:").and_then(|inode| u32::try_from(inode).ok());
            let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(inode), Some(fd)) = (inode, fd) {
                each(inode, fd);
            }
        }
        Ok(())
    }

    /// The inode number of the socket that a descriptor is.
    #[cfg(feature = "bpf")]
    pub(super) fn socket(&self, pid: u32, fd: i32) -> Option<u32> {
        let target = fs::read_link(self.of(pid).join("fd").join(fd.to_string())).ok()?;
        u32::try_from(in_brackets(&target, "socket:")?).ok()
    }

    /// What an epoll watches: of each descriptor the data that the program gave it, and its number
    /// (`proc_pid_fdinfo(5)`).
    #[cfg(feature = "bpf")]
    pub(super) fn epoll(&self, pid: u32, fd: i32) -> Vec<(u64, i32)> {
        let text = read(&self.of(pid).join("fdinfo").join(fd.to_string()), 1 << 20);
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        let watched = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("tfd:")?;
            let mut words = rest.split_ascii_whitespace();
            let fd = words.next()?.parse().ok()?;
            let data = words.skip_while(|word| *word != "data:").nth(1)?;
            Some((u64::from_str_radix(data, 16).ok()?, fd))
        });
        watched.collect()
    }

    fn command(&self, pid: u32) -> String {
        const LONGEST: usize = 256;
        let bytes = read(&self.of(pid).join("cmdline"), LONGEST).unwrap_or_default();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        String::from_utf8_lossy(&bytes[..end]).replace('\0', " ")
    }

    /// The words of a command line, as far as the first `most` bytes hold them.
    pub(super) fn arguments(&self, pid: u32, most: usize) -> Vec<String> {
        let bytes = read(&self.of(pid).join("cmdline"), most).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    fn user(&self, pid: u32) -> Option<u32> {
        let status = read(&self.of(pid).join("status"), ROOM);
        let text = status.map(|status| String::from_utf8_lossy(&status).into_owned());
        let from_status = |text: String| {
            // A name cannot begin a line: its line feeds are escaped there.
            let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            line.split_ascii_whitespace().nth(1)?.parse().ok()
        };
        let of_folder = || fs::metadata(self.of(pid)).ok().map(|folder| folder.uid());
        text.and_then(from_status).or_else(of_folder)
    }

    fn of(&self, pid: u32) -> PathBuf {
        self.0.join(pid.to_string())
    }
}

/// More than `stat` and `status` are.
const ROOM: usize = 8192;

/// The number of a link such as `socket:[4711]`.
fn in_brackets(target: &Path, kind: &str) -> Option<u64> {
    target.to_str()?.strip_prefix(kind)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The entries of a folder that are numbers.
fn numbers(folder: &Path) -> io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = fs::read_dir(folder)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The first so many bytes of a file; `None` if it cannot be read, or no more.
pub(super) fn read(path: &Path, most: usize) -> Option<Vec<u8>> {
    let file = fs::File::open(path).ok()?;
    let mut bytes = Vec::with_capacity(most.min(1024));
    file.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_calls_itself() {
        let mut line =
            b"4711 (a) R 1 (b) S 42 4711 2396 0 -1 4194304 96 0 0 0 7 8 0 0 20 0 3 0 7305692"
                .to_vec();
        line.extend(b" 0".repeat(29));
        line.extend(b" 256\n");
        let stat = Stat::parse(&line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) R 1 (b", b'S', 42));
        assert_eq!((stat.user, stat.system, stat.threads, stat.start), (7, 8, 3, 7_305_692));
        assert_eq!((stat.status, stat.ending(true)), (256, Ending::Unknown));
        let ended = Stat { state: b'Z', ..stat };
        assert_eq!((ended.ending(true), ended.ending(false)), (Ending::Exit(1), Ending::Unknown));
        assert_eq!(Stat { status: 9, ..ended }.ending(true), Ending::Signal(9));
    }

    #[test]
    fn this_process_is_seen() {
        let proc = Proc(PathBuf::from("/proc"));
        let own = std::process::id();
        let stat = proc.stat(own).unwrap();
        let process = proc.process(own, &stat);
        assert!(!process.command.is_empty() && process.command.len() <= 3 * 256, "{process:?}");
        assert_eq!(process.user, Some(lastbyte_sys::process::effective_user()));
        assert!(process.network.is_some() && proc.threads(own).contains(&own));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let mut found = Vec::new();
        proc.sockets(own, &mut |_, fd| found.push(fd)).unwrap();
        assert!(found.contains(&raw));
        assert_eq!(proc.stat(u32::MAX), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_name_is_too_strange(name in prop::collection::vec(any::<u8>(), 0..16)) {
            let mut line = b"1 (".to_vec();
            line.extend(&name);
            line.extend(b") S 2");
            line.extend(b" 3".repeat(48));
            let stat = Stat::parse(&line).unwrap();
            prop_assert_eq!(stat.name, String::from_utf8_lossy(&name).into_owned());
            prop_assert_eq!((stat.parent, stat.start), (2, 3));
        }

        #[test]
        fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&line);
        }
    }
}
