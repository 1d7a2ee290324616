//! Processes as `/proc` shows them (`proc(5)`): files that may vanish while they are read, with
//! names that may contain anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lastbyte_sys::process;
use serde::Serialize;

/// `/proc`, or the same file system mounted elsewhere, such as the host's that a container sees.
#[derive(Clone, Debug)]
pub struct Proc {
    path: PathBuf,
}

/// `/proc`.
impl Default for Proc {
    fn default() -> Self {
        Self::at("/proc")
    }
}

/// `/proc/PID/stat`, or a thread's (`proc_pid_stat(5)`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The process, or the thread, by its number in the PID namespace of this `/proc`.
    pub pid: u32,
    /// The name, up to 15 bytes that the process may choose.
    pub name: String,
    /// The state's letter; `Z` and `X`: it has ended.
    pub state: u8,
    /// The parent process; 0 if it has none in this PID namespace.
    pub parent: u32,
    /// Processor time in user mode, in ticks of 10 ms (`USER_HZ`).
    pub user: u64,
    /// Processor time in the kernel, in ticks of 10 ms (`USER_HZ`).
    pub system: u64,
    /// How many threads it has.
    pub threads: u32,
    /// When it started, in ticks of 10 ms since boot: with the number it identifies a process.
    pub start: u64,
    /// The wait status; 0 for a reader without the privilege to see it.
    pub status: i32,
}

impl Stat {
    /// Reads the line; `None` if its format is unknown.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        // The name in parentheses may contain anything, even parentheses.
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        // From the third field on.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: std::str::from_utf8(&line[..open]).ok()?.trim_end().parse().ok()?,
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

    /// Whether it has ended; a zombie only waits for its parent to collect it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

impl Proc {
    /// The file system that is mounted at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The root directory of the machine whose processes this shows: `run` and `var` are in it.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Every process that it shows.
    ///
    /// # Errors
    /// Nothing is mounted here, or this user may not list it.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        Ok(numbers(&self.path)?.collect())
    }

    /// Every process that it shows but the calling one; none if it cannot be listed.
    #[must_use]
    pub fn others(&self) -> Vec<u32> {
        let own = std::process::id();
        let mut pids = self.pids().unwrap_or_default();
        pids.retain(|pid| *pid != own);
        pids
    }

    /// Whether it shows a process or thread with this PID or TID, even a zombie.
    #[must_use]
    pub fn has(&self, pid: u32) -> bool {
        self.of(pid).exists()
    }

    /// The threads of a process; none if it has ended.
    #[must_use]
    pub fn threads(&self, pid: u32) -> Vec<u32> {
        let threads = numbers(&self.of(pid).join("task"));
        threads.map(Iterator::collect).unwrap_or_default()
    }

    /// `stat` of a process; `None` if there is none, or it cannot be read.
    #[must_use]
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        read_stat(&self.of(pid)).ok()
    }

    /// `stat` of the calling process, by the numbers of this `/proc`, which may be those of an outer PID
    /// namespace.
    ///
    /// # Errors
    /// It cannot be read; `InvalidData` if its format is unknown.
    pub fn own_stat(&self) -> io::Result<Stat> {
        read_stat(&self.path.join("self"))
    }

    /// When a process started, as in [`Stat::start`]; `None` if there is none, or it is a zombie.
    ///
    /// # Errors
    /// It cannot be read; `InvalidData` if its format is unknown.
    pub fn start(&self, pid: u32) -> io::Result<Option<u64>> {
        match read_stat(&self.of(pid)) {
            Ok(stat) => Ok((!stat.has_ended()).then_some(stat.start)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name of a process; empty if it has ended.
    #[must_use]
    pub fn name(&self, pid: u32) -> String {
        self.stat(pid).map(|stat| stat.name).unwrap_or_default()
    }

    /// `stat` of a thread; `None` if there is none, or it cannot be read.
    #[must_use]
    pub fn thread_stat(&self, pid: u32, tid: u32) -> Option<Stat> {
        read_stat(&self.of_thread(pid, tid)).ok()
    }

    /// The children of a thread that still exist (`CONFIG_PROC_CHILDREN`); `None` if the kernel does not
    /// list them.
    #[must_use]
    pub fn children(&self, pid: u32, tid: u32) -> Option<Vec<u32>> {
        let text = read(&self.of_thread(pid, tid).join("children"), 1 << 20).ok()?;
        let text = String::from_utf8_lossy(&text);
        Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// The process that a thread belongs to, itself for a process; `None` if there is no such thread.
    #[must_use]
    pub fn group(&self, tid: u32) -> Option<u32> {
        let status = self.status(tid)?;
        status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
    }

    /// The effective user of a process: by its `status`, or else the owner of its directory, which is root
    /// for a process that cannot be dumped; `None` if there is no such process.
    #[must_use]
    pub fn user(&self, pid: u32) -> Option<u32> {
        let from_status = |text: String| {
            // A name cannot begin a line: its line feeds are escaped there.
            let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            line.split_ascii_whitespace().nth(1)?.parse().ok()
        };
        let of_folder = || fs::metadata(self.of(pid)).ok().map(|folder| folder.uid());
        self.status(pid).and_then(from_status).or_else(of_folder)
    }

    /// The command line of a process, as far as its first `most` bytes show it, with a space between two
    /// arguments; empty if the process has ended.
    #[must_use]
    pub fn command(&self, pid: u32, most: usize) -> String {
        command_line(&read(&self.of(pid).join("cmdline"), most).unwrap_or_default())
    }

    /// The arguments of a command line, as far as its first `most` bytes show them.
    #[must_use]
    pub fn arguments(&self, pid: u32, most: usize) -> Vec<String> {
        let bytes = read(&self.of(pid).join("cmdline"), most).unwrap_or_default();
        let arguments = bytes.split(|byte| *byte == 0);
        arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
    }

    /// The inode number of a thread's network namespace.
    ///
    /// # Errors
    /// `NotFound` if there is no such thread, `PermissionDenied` if this user may not see its namespaces.
    pub fn network(&self, pid: u32, tid: u32) -> io::Result<u64> {
        let target = fs::read_link(self.network_path(pid, tid))?;
        inode_in(&target, "net:").ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The file by which a thread's network namespace can be entered, as long as the thread exists.
    #[must_use]
    pub fn network_path(&self, pid: u32, tid: u32) -> PathBuf {
        self.of_thread(pid, tid).join("ns/net")
    }

    /// The inode number of the PID namespace whose PIDs it shows: that of its first process, or our
    /// own if this user may not see that one.
    #[must_use]
    pub fn pid_namespace(&self) -> Option<u64> {
        let of = |who: &str| fs::read_link(self.path.join(who).join("ns/pid")).ok();
        inode_in(&of("1").or_else(|| of("self"))?, "pid:")
    }

    /// Calls `each` with every socket that a process has open: its inode number and the descriptor.
    /// Descriptors that are closed meanwhile are left out.
    ///
    /// # Errors
    /// `NotFound` if there is no such process, `PermissionDenied` for another user's.
    pub fn sockets(&self, pid: u32, each: &mut dyn FnMut(u32, i32)) -> io::Result<()> {
        let folder = self.of(pid).join("fd");
        for entry in fs::read_dir(folder)?.flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(inode), Some(fd)) = (socket_inode(&target), fd) {
                each(inode, fd);
            }
        }
        Ok(())
    }

    /// The processes that have these sockets open, by the sockets' inode numbers: all whose descriptors this
    /// user may see, but the calling one.
    #[must_use]
    pub fn holders(&self, inodes: &BTreeSet<u32>) -> BTreeMap<u32, Vec<Holder>> {
        let mut holders: BTreeMap<u32, Vec<Holder>> = BTreeMap::new();
        for pid in self.others() {
            // Processes of other users are left out.
            let _ = self.sockets(pid, &mut |inode, fd| {
                if inodes.contains(&inode) {
                    let holder = Holder { pid, fd, program: self.name(pid) };
                    holders.entry(inode).or_default().push(holder);
                }
            });
        }
        holders
    }

    /// The inode number of the socket that a descriptor is; `None` if it is none.
    #[must_use]
    pub fn socket(&self, pid: u32, fd: i32) -> Option<u32> {
        socket_inode(&self.descriptor(pid, fd).ok()?)
    }

    /// The target of a process's descriptor: a path, or text such as `socket:[4711]`.
    ///
    /// # Errors
    /// `NotFound` if the process has no such descriptor, `PermissionDenied` for another user's
    /// process.
    pub fn descriptor(&self, pid: u32, fd: i32) -> io::Result<PathBuf> {
        fs::read_link(self.of(pid).join("fd").join(fd.to_string()))
    }

    /// The descriptors that an epoll instance watches, each with the data that the program set for
    /// it (`proc_pid_fdinfo(5)`).
    #[must_use]
    pub fn epoll(&self, pid: u32, fd: i32) -> Vec<(u64, i32)> {
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

    /// Whether a process has a descriptor whose `fdinfo` has this line; `false` if this user may not see its
    /// descriptors.
    #[must_use]
    pub fn has_descriptor_with(&self, pid: u32, line: &str) -> bool {
        let infos = fs::read_dir(self.of(pid).join("fdinfo")).into_iter().flatten().flatten();
        let mut texts = infos.flat_map(|info| fs::read_to_string(info.path()));
        texts.any(|text| text.lines().any(|one| one == line))
    }

    /// A sysctl by its name, such as `net.ipv4.tcp_wmem` (`sysctl(8)`), without white space at its
    /// ends. Those of `net` belong to the network namespace of the calling thread.
    ///
    /// # Errors
    /// `NotFound` if this kernel does not have it; the kernel's others.
    pub fn sysctl(&self, name: &str) -> io::Result<String> {
        let value = fs::read_to_string(self.path.join("sys").join(name.replace('.', "/")))?;
        Ok(value.trim().to_owned())
    }

    /// The kernel's release, as `uname -r` prints it; empty if it cannot be read.
    #[must_use]
    pub fn kernel_release(&self) -> String {
        self.sysctl("kernel.osrelease").unwrap_or_default()
    }

    fn status(&self, pid: u32) -> Option<String> {
        let status = read(&self.of(pid).join("status"), ROOM).ok()?;
        Some(String::from_utf8_lossy(&status).into_owned())
    }

    pub(crate) fn of(&self, pid: u32) -> PathBuf {
        self.path.join(pid.to_string())
    }

    fn of_thread(&self, pid: u32, tid: u32) -> PathBuf {
        self.of(pid).join("task").join(tid.to_string())
    }
}

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// Its descriptor of the socket.
    pub fd: i32,
    /// Its name, up to 15 bytes that the process may choose.
    pub program: String,
}

/// A duplicate of another process's descriptor `fd`. While it is open, a `close` in that process
/// does not end a connection.
///
/// # Errors
/// As [`process::pidfd_getfd`].
pub fn take_descriptor(pid: u32, fd: i32) -> io::Result<OwnedFd> {
    let no_such_process = |_| io::Error::from_raw_os_error(process::NO_SUCH_PROCESS);
    let process = process::pidfd_open(i32::try_from(pid).map_err(no_such_process)?)?;
    process::pidfd_getfd(&process, fd)
}

/// Whether an error means that a process, or the requested part of it, does not exist.
#[must_use]
pub fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(process::NO_SUCH_PROCESS)
}

/// A command line from arguments that each end in a zero byte, with a space between two.
#[must_use]
pub fn command_line(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    String::from_utf8_lossy(&bytes[..end]).replace('\0', " ")
}

/// Longer than `stat` and `status`, bytes.
const ROOM: usize = 8192;

fn read_stat(folder: &Path) -> io::Result<Stat> {
    let line = read(&folder.join("stat"), ROOM)?;
    Stat::parse(&line).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The inode number of a socket, from its link: `socket:[4711]`.
fn socket_inode(target: &Path) -> Option<u32> {
    u32::try_from(inode_in(target, "socket:")?).ok()
}

/// The number of a link such as `socket:[4711]`.
fn inode_in(target: &Path, kind: &str) -> Option<u64> {
    target.to_str()?.strip_prefix(kind)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The entries of a directory that are numbers.
fn numbers(folder: &Path) -> io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = fs::read_dir(folder)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The first `most` bytes of a file.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::with_capacity(most.min(1024));
    file.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
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
        assert_eq!((stat.pid, stat.name.as_str(), stat.state), (4711, "a) R 1 (b", b'S'));
        assert_eq!((stat.parent, stat.user, stat.system), (42, 7, 8));
        assert_eq!((stat.threads, stat.start, stat.status), (3, 7_305_692, 256));
        assert!(!stat.has_ended() && Stat { state: b'Z', ..stat }.has_ended());
    }

    #[test]
    fn the_start_is_read_whatever_the_name_is() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        let start = |line: &str| Stat::parse(line.as_bytes()).map(|stat| stat.start);
        for name in ["sh", "a b", "a) R 1 (b", "))", "(", ""] {
            assert_eq!(start(&format!("7 ({name}) {rest}\n")), Some(4711), "{name}");
        }
        let cut =
            ["", "7 (sh", "7 (sh) S 1", &rest.replace("S 1", "7 (sh) S 1").replace("4711", "x")];
        for line in cut {
            assert_eq!(start(line), None, "{line}");
        }
    }

    #[test]
    fn this_process_is_seen() {
        let proc = Proc::default();
        let own = std::process::id();
        let stat = proc.stat(own).unwrap();
        assert_eq!((stat.pid, proc.own_stat().unwrap().pid), (own, own));
        assert_eq!(proc.start(own).unwrap(), Some(stat.start));
        assert_eq!((proc.name(own), proc.has(own)), (stat.name, true));
        assert!(proc.pids().unwrap().contains(&own) && !proc.others().contains(&own));
        let command = proc.command(own, 256);
        assert!(!command.is_empty() && command.len() <= 3 * 256, "{command}");
        assert_eq!(proc.user(own), Some(process::effective_user()));
        assert!(proc.network(own, own).is_ok() && proc.threads(own).contains(&own));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let mut found = Vec::new();
        proc.sockets(own, &mut |inode, fd| found.push((fd, inode))).unwrap();
        let inode = proc.socket(own, raw).unwrap();
        assert!(found.contains(&(raw, inode)), "{found:?}");
        assert_eq!(proc.descriptor(own, raw).unwrap(), Path::new(&format!("socket:[{inode}]")));
        assert_eq!(
            proc.holders(&BTreeSet::from([inode])),
            BTreeMap::new(),
            "we are not asked about"
        );
        assert_eq!(proc.group(own), Some(own));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // Above the greatest number that the kernel gives (PID_MAX_LIMIT, 2^22).
        let (proc, nobody) = (Proc::default(), u32::MAX);
        assert_eq!((proc.stat(nobody), proc.group(nobody), proc.user(nobody)), (None, None, None));
        assert_eq!((proc.start(nobody).unwrap(), proc.name(nobody)), (None, String::new()));
        assert!(
            !proc.has(nobody) && take_descriptor(nobody, 0).is_err_and(|error| is_absent(&error))
        );
        assert!(proc.sockets(nobody, &mut |_, _| ()).is_err_and(|error| is_absent(&error)));
        assert!(proc.network(nobody, nobody).is_err_and(|error| is_absent(&error)));
        assert_eq!((proc.command(nobody, 256), proc.threads(nobody)), (String::new(), Vec::new()));
    }

    #[test]
    fn settings_are_read_by_their_names() {
        let proc = Proc::default();
        assert_eq!(proc.sysctl("net.ipv4.tcp_wmem").unwrap().split_whitespace().count(), 3);
        assert_eq!(proc.sysctl("net.no_such").unwrap_err().kind(), io::ErrorKind::NotFound);
        let release = proc.kernel_release();
        assert!(release.starts_with(|first: char| first.is_ascii_digit()), "{release}");
        assert_eq!(release.trim(), release);
        assert_eq!(Proc::at("/nowhere").kernel_release(), "");
    }

    #[test]
    fn links_that_stand_for_sockets_are_known() {
        let inode = |text: &str| socket_inode(Path::new(text));
        assert_eq!(inode("socket:[4711]"), Some(4711));
        for other in ["pipe:[4711]", "socket:[]", "socket:[x]", "/socket:[1]", "socket:[1", ""] {
            assert_eq!(inode(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_line_has_spaces_between_arguments_alone() {
        assert_eq!(command_line(b"lastbyte\0cc\0load\0"), "lastbyte cc load");
        assert_eq!(command_line(b"a\0\0b"), "a  b");
        assert_eq!(command_line(b""), "");
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
