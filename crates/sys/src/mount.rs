//! Mounts: what keeps a namespace alive, and what a process in its own namespace sees.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::check;

/// Makes every mount of the calling thread's mount namespace private, so that nothing mounted
/// later is seen outside (`mount(2)`, `MS_REC | MS_PRIVATE` on `/`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`.
pub fn make_all_private() -> io::Result<()> {
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)
}

/// Shows `source` at `target` as well (`mount(2)`, `MS_BIND`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENOENT` where either path is missing.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount(Some(source), target, None, libc::MS_BIND)
}

/// Mounts a fresh `/proc` for the calling process's PID namespace (`mount(2)`, type `proc`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`.
pub fn proc() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(Path::new("proc")), Path::new("/proc"), Some("proc"), flags)
}

/// Mounts a fresh `/sys`, which shows the network devices of the caller's network namespace
/// (`mount(2)`, type `sysfs`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`.
pub fn sysfs() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(Path::new("sysfs")), Path::new("/sys"), Some("sysfs"), flags)
}

/// Mounts an empty file system in memory at `target` (`mount(2)`, type `tmpfs`).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`.
pub fn tmpfs(target: &Path) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(Path::new("tmpfs")), target, Some("tmpfs"), flags)
}

/// Mounts an empty file system for BPF objects at `target`, for its owner alone: what has a file there
/// stays in the kernel (`mount(2)`, type `bpf`). `source` is what lists of mounts show as its device.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` where the kernel has no BPF.
pub fn bpffs(source: &str, target: &Path) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // Without a mode everybody may make folders there.
    mount_with(Some(Path::new(source)), target, Some("bpf"), flags, c"mode=0700")
}

/// Gives the calling thread, and what it starts from then on, its own copy of the mount table, with
/// tracefs at its place if it is not there (`mount(2)`, type `tracefs`). The machine's own table stays
/// as it is; what is made in a tracefs is the machine's in either.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` where the kernel has no tracing, `ENOENT`
/// where there is no place for it.
pub fn own_tracefs() -> io::Result<()> {
    const PLACE: &str = "/sys/kernel/tracing";
    if Path::new(PLACE).join("instances").is_dir() {
        return Ok(());
    }
    crate::namespace::unshare_mounts()?;
    make_all_private()?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(Path::new("tracefs")), Path::new(PLACE), Some("tracefs"), flags)
}

/// Takes the mount at `target` out of the tree at once, and ends it when its last user is gone
/// (`umount2(2)`, `MNT_DETACH`).
///
/// # Errors
/// The kernel's: `EINVAL` where nothing is mounted, `ENOENT` where the path is missing.
pub fn unmount_detach(target: &Path) -> io::Result<()> {
    let target = c_path(target)?;
    // SAFETY: `target` is a C string that outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

fn mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    mount_with(source, target, kind, flags, c"")
}

fn mount_with(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    data: &CStr,
) -> io::Result<()> {
    let source = source.map(c_path).transpose()?;
    let target = c_path(target)?;
    let kind = kind.map(|kind| CString::new(kind).map_err(io::Error::other)).transpose()?;
    let source = source.as_ref().map_or(ptr::null(), |source| source.as_ptr());
    let kind = kind.as_ref().map_or(ptr::null(), |kind| kind.as_ptr());
    let data = data.as_ptr().cast();
    // SAFETY: the strings outlive the call; null is allowed for source and type here.
    check(unsafe { libc::mount(source, target.as_ptr(), kind, flags, data) }).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
