//! System calls that touch descriptors, by their numbers on this machine (`syscalls(2)`).

/// Its name; `None` for one that touches none, or is not known here.
#[must_use]
pub fn name(number: i64) -> Option<&'static str> {
    CALLS.iter().find(|call| i64::from(call.0) == number).map(|call| call.1)
}

/// Pairs of a number and its name.
macro_rules! calls {
    ($($constant:ident $name:literal),* $(,)?) => { [$((libc::$constant as i32, $name)),*] };
}

/// The numbers fit: the kernel's tables have less than a thousand entries.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
const COMMON: [(i32, &str); 27] = calls![
    SYS_read "read",
    SYS_readv "readv",
    SYS_recvfrom "recvfrom",
    SYS_recvmsg "recvmsg",
    SYS_recvmmsg "recvmmsg",
    SYS_write "write",
    SYS_writev "writev",
    SYS_sendto "sendto",
    SYS_sendmsg "sendmsg",
    SYS_sendmmsg "sendmmsg",
    SYS_sendfile "sendfile",
    SYS_splice "splice",
    SYS_ppoll "ppoll",
    SYS_pselect6 "pselect6",
    SYS_epoll_pwait "epoll_pwait",
    SYS_epoll_pwait2 "epoll_pwait2",
    SYS_epoll_ctl "epoll_ctl",
    SYS_accept "accept",
    SYS_accept4 "accept4",
    SYS_connect "connect",
    SYS_shutdown "shutdown",
    SYS_close "close",
    SYS_ioctl "ioctl",
    SYS_getsockopt "getsockopt",
    SYS_setsockopt "setsockopt",
    SYS_io_uring_enter "io_uring_enter",
    SYS_socket "socket",
];

#[cfg(target_arch = "x86_64")]
#[allow(clippy::cast_possible_truncation, reason = "as those above")]
const CALLS: [(i32, &str); 30] = {
    let mut all = [(0, ""); 30];
    let mut at = 0;
    while at < COMMON.len() {
        all[at] = COMMON[at];
        at += 1;
    }
    // Newer machines have only their successors.
    let old: [(i32, &str); 3] =
        calls![SYS_poll "poll", SYS_select "select", SYS_epoll_wait "epoll_wait"];
    all[27] = old[0];
    all[28] = old[1];
    all[29] = old[2];
    all
};

#[cfg(not(target_arch = "x86_64"))]
const CALLS: [(i32, &str); 27] = COMMON;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(name(libc::SYS_accept4), Some("accept4"));
        assert_eq!(name(libc::SYS_getpid), None);
        assert_eq!(name(-1), None);
        assert!(CALLS.iter().all(|call| !call.1.is_empty()));
    }
}
