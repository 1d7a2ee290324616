//! Processes: pidfds, signals, and what a child must not outlive.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::{check, poll};

/// The signal that ends a program politely.
pub const SIGTERM: i32 = libc::SIGTERM;
/// The signal that ends a program at once.
pub const SIGKILL: i32 = libc::SIGKILL;
/// The signal that lets a stopped process go on.
pub const SIGCONT: i32 = libc::SIGCONT;
/// The signal of Ctrl-C.
pub const SIGINT: i32 = libc::SIGINT;
/// The signal of Ctrl-\.
pub const SIGQUIT: i32 = libc::SIGQUIT;

/// The error of a call for a process that has ended (`ESRCH`).
pub const NO_SUCH_PROCESS: i32 = libc::ESRCH;

/// A descriptor of a running process, which cannot come to mean another one (`pidfd_open(2)`,
/// Linux 5.3).
///
/// # Errors
/// The kernel's: `ESRCH` when there is no such process.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let returned = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let raw = i32::try_from(returned).map_err(io::Error::other)?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    check(raw).map(|raw| unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A descriptor of our own for what a process has open by the number `fd` (`pidfd_getfd(2)`, Linux 5.6).
/// It stands for the same open file: what is set by it is set for that process too, and as long as it
/// is open, a `close` over there does not end a connection.
///
/// # Errors
/// `EBADF` when the process has nothing open by that number, `ESRCH` when it has ended, `EPERM` for a
/// process that this one may not trace (`ptrace(2)`, `PTRACE_MODE_ATTACH_REALCREDS`: another user's
/// without `CAP_SYS_PTRACE`, or as `kernel.yama.ptrace_scope` says); `EMFILE`.
pub fn pidfd_getfd(process: &OwnedFd, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer; the pidfd is open.
    let returned = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    let raw = i32::try_from(returned).map_err(io::Error::other)?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    check(raw).map(|raw| unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Sends a signal to the process of a pidfd (`pidfd_send_signal(2)`, Linux 5.1).
///
/// # Errors
/// The kernel's: `ESRCH` when it has ended, `EPERM` for another user's.
pub fn pidfd_send_signal(process: &OwnedFd, signal: i32) -> io::Result<()> {
    let info: *const libc::siginfo_t = std::ptr::null();
    let fd = process.as_raw_fd();
    // SAFETY: a null info means what kill(2) would send; the descriptor is open.
    let returned = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, 0) };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until the process of a pidfd has ended, at most `timeout`. Returns whether it has.
///
/// # Errors
/// As [`poll::wait`].
pub fn pidfd_wait(process: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    Ok(poll::wait([(process, poll::READABLE)], Some(timeout))?[0])
}

/// Lets the kernel send `signal` to the child when the *thread* that starts it ends, also by a
/// kill (`prctl(2)`, `PR_SET_PDEATHSIG`). A parent that ended before the child could ask for this is
/// noticed, and the child ends with `ESRCH`; but a child in a PID namespace of its own does not see its
/// parent there (`getppid(2)` says 0), and has to look into `/proc` itself.
pub fn die_with_parent(command: &mut Command, signal: i32) -> &mut Command {
    let parent = std::process::id();
    let ask = move || {
        set_parent_death_signal(signal)?;
        match std::os::unix::process::parent_id() {
            0 => Ok(()),
            now if now == parent => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec the closure calls only prctl and getppid, which are bare system
    // calls, and an error of the system's is made without memory being asked for.
    unsafe { command.pre_exec(ask) }
}

/// As [`die_with_parent`], for the calling thread itself; it holds through an exec, not a fork.
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub fn set_parent_death_signal(signal: i32) -> io::Result<()> {
    // SAFETY: prctl with these arguments takes no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(drop)
}

/// Starts the child in a session of its own, out of reach of the terminal's signals (`setsid(2)`).
pub fn in_own_session(command: &mut Command) -> &mut Command {
    let setsid = || {
        // SAFETY: setsid takes no argument.
        check(unsafe { libc::setsid() }).map(drop)
    };
    // SAFETY: between fork and exec the closure calls only setsid, which is a bare system call.
    unsafe { command.pre_exec(setsid) }
}

/// Gives the child the default action for `signals` again, which an exec would not.
pub fn with_default_signals<'a>(
    command: &'a mut Command,
    signals: &'static [i32],
) -> &'a mut Command {
    let reset = move || signals.iter().try_for_each(|signal| default_signal(*signal));
    // SAFETY: between fork and exec the closure calls only signal, which is async-signal-safe.
    unsafe { command.pre_exec(reset) }
}

/// Ignores a signal in this process and, through an exec, in its children (`signal(2)`).
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub fn ignore_signal(signal: i32) -> io::Result<()> {
    set_action(signal, libc::SIG_IGN)
}

/// Gives a signal its default action in this process (`signal(2)`).
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub fn default_signal(signal: i32) -> io::Result<()> {
    set_action(signal, libc::SIG_DFL)
}

/// Lets readers of this process's standard output see its end, and discards what is written there
/// from now on (`dup2(2)`).
///
/// # Errors
/// As `open(2)` on `/dev/null`.
pub fn let_go_of_stdout() -> io::Result<()> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    // SAFETY: both descriptors are open, and descriptor 1 is owned by nobody but the process.
    check(unsafe { libc::dup2(nowhere.as_raw_fd(), libc::STDOUT_FILENO) }).map(drop)
}

/// Stops this process until another process continues it (`SIGSTOP`, `signal(7)`).
///
/// # Errors
/// None that the kernel is known for.
pub fn stop() -> io::Result<()> {
    // SAFETY: raise takes no pointer.
    check(unsafe { libc::raise(libc::SIGSTOP) }).map(drop)
}

/// Waits until a child has stopped, or has ended, which is left for others to collect (`waitid(2)`).
/// Returns whether it has stopped.
///
/// # Errors
/// `ECHILD`: it is no child of this process; an interruption is tried again.
pub fn wait_for_stop(child: i32) -> io::Result<bool> {
    let id = libc::id_t::try_from(child).map_err(io::Error::other)?;
    loop {
        // SAFETY: it is a struct of integers, for which zeros are a value.
        let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
        let what = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is ours and outlives the call.
        match check(unsafe { libc::waitid(libc::P_PID, id, &raw mut info, what) }) {
            Ok(_) => return Ok(info.si_code == libc::CLD_STOPPED),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Collects one ended child of any kind, waiting for it (`waitpid(2)` with -1). Returns its process
/// id and its raw wait status; `None` when there is no child left.
///
/// # Errors
/// The kernel's; an interruption is tried again.
pub fn reap_any() -> io::Result<Option<(i32, i32)>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours and outlives the call.
        match check(unsafe { libc::waitpid(-1, &raw mut status, 0) }) {
            Ok(pid) => return Ok(Some((pid, status))),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Lets timers of the calling thread end as exactly as the machine can, instead of up to 50 us late
/// (`prctl(2)`, `PR_SET_TIMERSLACK`).
///
/// # Errors
/// None expected; the kernel's are passed on.
pub fn exact_timers() -> io::Result<()> {
    // SAFETY: prctl with these arguments takes no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) }).map(drop)
}

/// Lets the calling thread run on one processor alone, numbered from 0 (`sched_setaffinity(2)`).
///
/// # Errors
/// `EINVAL` for one that is not there, or not for this process.
pub fn run_on_processor(number: usize) -> io::Result<()> {
    /// As many as `cpu_set_t` has bits for.
    const WORD: usize = libc::c_ulong::BITS as usize;
    let mut set: [libc::c_ulong; 1024 / WORD] = [0; 1024 / WORD];
    let word = set.get_mut(number / WORD);
    *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? = 1 << (number % WORD);
    let size = size_of_val(&set);
    // SAFETY: 0 means the calling thread; the set has the size announced and outlives the call.
    check(unsafe { libc::sched_setaffinity(0, size, set.as_ptr().cast()) }).map(drop)
}

/// Puts the calling thread before all ordinary ones (`sched_setscheduler(2)`, `SCHED_RR` at its
/// lowest priority).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_NICE`.
pub fn before_ordinary_threads() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 means the calling thread; `param` outlives the call.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const param) }).map(drop)
}

/// The effective user id of this process (`geteuid(2)`).
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group id of this process (`getegid(2)`).
#[must_use]
pub fn effective_group() -> u32 {
    // SAFETY: getegid takes no argument and cannot fail.
    unsafe { libc::getegid() }
}

/// How many descriptors this process may have open: its own limit, and the one up to which it may
/// raise that (`getrlimit(2)`, `RLIMIT_NOFILE`).
///
/// # Errors
/// None expected; the kernel's are passed on.
pub fn descriptor_limits() -> io::Result<(u64, u64)> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits outlive the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) })?;
    Ok((limits.rlim_cur, limits.rlim_max))
}

/// Sets the limit of this process within `most`, which must come from [`descriptor_limits`]
/// (`setrlimit(2)`, `RLIMIT_NOFILE`).
///
/// # Errors
/// `EINVAL` beyond that limit.
pub fn set_descriptor_limit(own: u64, most: u64) -> io::Result<()> {
    let limits = libc::rlimit { rlim_cur: own, rlim_max: most };
    // SAFETY: the limits outlive the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) }).map(drop)
}

/// `CAP_NET_ADMIN`, as one of the bits of [`effective_capabilities`]
/// (`include/uapi/linux/capability.h`).
pub const CAP_NET_ADMIN: u64 = 1 << 12;
/// See [`CAP_NET_ADMIN`].
pub const CAP_NET_RAW: u64 = 1 << 13;
/// See [`CAP_NET_ADMIN`].
pub const CAP_SYS_ADMIN: u64 = 1 << 21;
/// See [`CAP_NET_ADMIN`].
pub const CAP_SYS_PTRACE: u64 = 1 << 19;
/// See [`CAP_NET_ADMIN`]; Linux 5.8.
pub const CAP_PERFMON: u64 = 1 << 38;
/// See [`CAP_NET_ADMIN`]; Linux 5.8.
pub const CAP_BPF: u64 = 1 << 39;

/// The capabilities that the calling thread has now, a bit for each (`capget(2)`,
/// `capabilities(7)`).
///
/// # Errors
/// None expected; the kernel's are passed on.
pub fn effective_capabilities() -> io::Result<u64> {
    // struct __user_cap_header_struct: version 3 and the calling thread.
    let mut header = [0x2008_0522_u32, 0];
    // Two of struct __user_cap_data_struct: effective, permitted, inheritable.
    let mut data = [0_u32; 6];
    let (header, sets) = (header.as_mut_ptr(), data.as_mut_ptr());
    // SAFETY: both have the room that version 3 asks for, and outlive the call.
    let returned = unsafe { libc::syscall(libc::SYS_capget, header, sets) };
    if returned < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(data[0]) | u64::from(data[3]) << 32)
}

/// Lets the C library return free memory of its heaps to the kernel (`malloc_trim(3)`). Other
/// threads that allocate wait meanwhile: a few milliseconds. Does nothing if there is no such call.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The size of a page of memory, in bytes (`sysconf(3)`, `_SC_PAGESIZE`).
#[must_use]
pub fn page_size() -> usize {
    // SAFETY: it only reads.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // What it is on nearly all machines, should it ever not be known.
    usize::try_from(size).unwrap_or(4096)
}

/// Processor time that the calling thread has used so far (`clock_gettime(2)`,
/// `CLOCK_THREAD_CPUTIME_ID`).
///
/// # Errors
/// None expected; the kernel's are passed on.
pub fn thread_cpu_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and outlives the call.
    check(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) })?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
}

/// Time since a fixed moment in the past, nanoseconds, which cannot be set (`clock_gettime(2)`,
/// `CLOCK_MONOTONIC`): the kernel's own events have it.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and outlives the call, which cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// For how long the calling thread was ready to run and had no processor, so far
/// (`/proc/thread-self/schedstat`, its second number); `None` where the kernel does not count it.
#[must_use]
pub fn thread_waiting_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

fn set_action(signal: i32, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: both actions used here run no code of ours.
    let before = unsafe { libc::signal(signal, action) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}
