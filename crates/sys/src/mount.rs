//! Mounts: what keeps a namespace alive, and what a process in its own namespace sees.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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

/// `ENODEV`: what a mount fails with where the kernel has no such file system.
pub const NO_SUCH_FILE_SYSTEM: i32 = libc::ENODEV;

/// A tracefs that is mounted nowhere, so that it is seen by way of this descriptor alone (its path is
/// `/proc/self/fd/N`), until that is closed. What is made in it is the machine's, as in any tracefs.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` where the kernel has no tracing, `ENOSYS`
/// before Linux 5.2.
pub fn detached_tracefs() -> io::Result<OwnedFd> {
    let context = open_file_system(c"tracefs")?;
    create_file_system(&context)?;
    mount_detached(&context)
}

/// `fsopen(2)`.
fn open_file_system(kind: &CStr) -> io::Result<OwnedFd> {
    /// `FSOPEN_CLOEXEC` (`linux/mount.h`).
    const CLOSE_ON_EXEC: libc::c_uint = 1;
    // SAFETY: `kind` is a C string that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOSE_ON_EXEC) };
    owned(fd)
}

/// `fsconfig(2)`, `FSCONFIG_CMD_CREATE`.
fn create_file_system(context: &OwnedFd) -> io::Result<()> {
    /// `FSCONFIG_CMD_CREATE` (`linux/mount.h`).
    const CREATE: libc::c_uint = 6;
    let (key, value) = (ptr::null::<libc::c_char>(), ptr::null::<libc::c_void>());
    let fd = context.as_raw_fd();
    // SAFETY: `context` is open; this command takes neither key nor value, which are null, and 0.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, fd, CREATE, key, value, 0) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `fsmount(2)`.
fn mount_detached(context: &OwnedFd) -> io::Result<OwnedFd> {
    /// `FSMOUNT_CLOEXEC`, and `MOUNT_ATTR_NOSUID`, `_NODEV` and `_NOEXEC` (`linux/mount.h`).
    const CLOSE_ON_EXEC: libc::c_uint = 1;
    const ATTRIBUTES: libc::c_uint = 2 | 4 | 8;
    let fd = context.as_raw_fd();
    // SAFETY: `context` is open; the other arguments are numbers.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, fd, CLOSE_ON_EXEC, ATTRIBUTES) };
    owned(fd)
}

/// The descriptor that a call has returned.
fn owned(returned: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(returned).map_err(io::Error::other)?;
    let fd = check(fd)?;
    // SAFETY: the call has just made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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
