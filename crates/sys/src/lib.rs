//! The one door to the kernel: one safe function per system call or socket option.
//!
//! This crate forbids unsafe code everywhere else: all other crates reach the kernel through it. It
//! returns the kernel's bytes and numbers without interpretation, which is the work of
//! `lastbyte-core`. Each function names its man page, each unsafe block its reason, and each
//! failure is the kernel's own error number, without added text.
//!
//! Modules go by what they touch: [`tcp`], [`icmp`] and [`socket`] one socket, [`sock_diag`] those of
//! all programs, [`poll`] and [`watch`] waiting, [`pipe`] pipes, [`tun`], [`packet`], [`ethtool`], [`netlink`], [`mod@route`],
//! [`namespace`] and [`mount`] a host of one's own,
//! [`name`] the C library's names, [`calls`] the numbers of system calls, [`signal`], [`process`] and [`mod@file`] the rest.

#![allow(unsafe_code, reason = "the only crate where unsafe is allowed: it is the door itself")]

pub mod calls;
pub mod ethtool;
pub mod file;
pub mod icmp;
pub mod mount;
pub mod name;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod route;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod tcp;
pub mod tun;
pub mod watch;

use std::io;

/// Turns the `-1 and errno` of a system call into a result.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// As [`check`], for calls that return a size.
fn check_size(returned: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}
