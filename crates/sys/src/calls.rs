//! Numbers of system calls: they differ from one kind of processor to the next.

/// Calls that read, write, open, close or wait for descriptors, by name, with their numbers on this kind
/// of processor (`syscalls(2)`). Some are missing where a newer call does their work.
pub const CALLS: &[(&str, i64)] = &[
    #[cfg(target_arch = "x86_64")]
    ("epoll_wait", libc::SYS_epoll_wait),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    ("ppoll", libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    ("select", libc::SYS_select),
    ("pselect6", libc::SYS_pselect6),
    ("read", libc::SYS_read),
    ("readv", libc::SYS_readv),
    ("write", libc::SYS_write),
    ("writev", libc::SYS_writev),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmsg", libc::SYS_recvmsg),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("sendto", libc::SYS_sendto),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendfile", libc::SYS_sendfile),
    ("splice", libc::SYS_splice),
    ("accept", libc::SYS_accept),
    ("accept4", libc::SYS_accept4),
    ("connect", libc::SYS_connect),
    ("shutdown", libc::SYS_shutdown),
    ("close", libc::SYS_close),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("ioctl", libc::SYS_ioctl),
    ("getsockopt", libc::SYS_getsockopt),
];
