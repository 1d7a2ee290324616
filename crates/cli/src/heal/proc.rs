//! What `/proc` shows of other processes: which sockets they have open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Holder {
    pub(crate) pid: i32,
    /// The number by which it does.
    pub(crate) fd: i32,
    /// Its name, as the kernel tells it: up to 15 bytes that anybody may choose.
    pub(crate) program: String,
}

/// The sockets that a process has open: number and inode. What is closed meanwhile is left out.
///
/// # Errors
/// `NotFound` when there is no such process, `PermissionDenied` for another user's.
pub(crate) fn sockets_of(pid: i32) -> io::Result<Vec<(i32, u32)>> {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // The process ended, or closed it.
        let Ok(entry) = entry else { break };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let inode = fs::read_link(entry.path()).ok().and_then(|link| inode_of(&link));
        sockets.extend(number.zip(inode));
    }
    Ok(sockets)
}

/// The inode of a socket, from the link that stands for it: `socket:[4711]`.
fn inode_of(link: &Path) -> Option<u32> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Who has these sockets open, of those processes that can be seen.
pub(crate) fn holders_of(inodes: &BTreeSet<u32>) -> BTreeMap<u32, Vec<Holder>> {
    let mut holders: BTreeMap<u32, Vec<Holder>> = BTreeMap::new();
    for pid in processes() {
        for (fd, inode) in sockets_of(pid).unwrap_or_default() {
            if inodes.contains(&inode) {
                let holder = Holder { pid, fd, program: program(pid) };
                holders.entry(inode).or_default().push(holder);
            }
        }
    }
    holders
}

/// The name of a process; empty when it is gone.
pub(crate) fn program(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    name.strip_suffix('\n').unwrap_or(&name).to_owned()
}

/// The process that a thread is one of, itself for a process; `None` where there is no such thread.
pub(crate) fn process_of(pid: i32) -> Option<i32> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    // The name comes first, and has no end of line in it as it is told here.
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// The numbers of all processes but this one.
pub(super) fn processes() -> Vec<i32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid: &i32| pid.unsigned_abs() != own).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn links_that_stand_for_sockets_are_known() {
        let inode = |text: &str| inode_of(Path::new(text));
        assert_eq!(inode("socket:[4711]"), Some(4711));
        for other in ["pipe:[4711]", "socket:[]", "socket:[x]", "/socket:[1]", "socket:[1", ""] {
            assert_eq!(inode(other), None, "{other}");
        }
    }

    #[test]
    fn own_sockets_are_found_and_a_process_that_is_not_there_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&listener);
        assert!(sockets_of(own).unwrap().iter().any(|(number, _)| *number == fd));
        assert_eq!(sockets_of(i32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!((process_of(own), process_of(i32::MAX)), (Some(own), None));
        assert_eq!(program(i32::MAX), "");
    }
}
