//! Namespaces of the calling thread: `unshare(2)`, `setns(2)`.
//!
//! Network, mount and PID-for-children namespaces belong to a thread, not to the process, so a
//! thread can enter one while the rest of the program stays where it is.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use crate::check;

/// Gives this process a new user namespace, in which it has every capability, and which owns the
/// namespaces made from then on (`user_namespaces(7)`; `unshare(2)`, `CLONE_NEWUSER`). Outside of them
/// it may do no more than before. No user is known in there until one is mapped.
///
/// # Errors
/// The kernel's: `EINVAL` for a process of several threads, `ENOSPC` past
/// `user.max_user_namespaces`, `EPERM` where the machine's settings forbid it.
pub fn unshare_user() -> io::Result<()> {
    unshare(libc::CLONE_NEWUSER)
}

/// Maps `user` and `group`, who made the calling process's user namespace, to root in there
/// (`user_namespaces(7)`).
///
/// # Errors
/// The kernel's: `EPERM` for anybody else.
pub fn map_to_root(user: u32, group: u32) -> io::Result<()> {
    // Else a group could be dropped that takes a right away; without this the kernel refuses the map.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Gives the calling thread a new, empty network namespace (`unshare(2)`, `CLONE_NEWNET`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` past `user.max_net_namespaces`.
pub fn unshare_network() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

/// Gives the calling thread its own copy of the mount table (`unshare(2)`, `CLONE_NEWNS`). Its
/// root and working directory are then its own too.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_mounts() -> io::Result<()> {
    unshare(libc::CLONE_NEWNS)
}

/// Makes the next child of the calling thread process 1 of a new PID namespace (`unshare(2)`,
/// `CLONE_NEWPID`): when it ends, the kernel kills all others in it. The thread cannot start
/// further threads afterwards.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_child_pids() -> io::Result<()> {
    unshare(libc::CLONE_NEWPID)
}

/// Moves the calling thread into the network namespace behind `namespace` (`setns(2)`,
/// `CLONE_NEWNET`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` for a descriptor of another kind.
pub fn enter_network(namespace: &impl AsFd) -> io::Result<()> {
    let fd = namespace.as_fd().as_raw_fd();
    // SAFETY: setns takes no pointer; the descriptor is open as long as `namespace` is borrowed.
    check(unsafe { libc::setns(fd, libc::CLONE_NEWNET) }).map(drop)
}

/// The path of the calling thread's network namespace, fit to be bind-mounted.
#[must_use]
pub fn current_network_path() -> PathBuf {
    // Not /proc/self: that is the main thread's.
    PathBuf::from("/proc/thread-self/ns/net")
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes no pointer. None of the flags used here shares memory away.
    check(unsafe { libc::unshare(flags) }).map(drop)
}
