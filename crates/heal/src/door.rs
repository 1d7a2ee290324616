//! The door to another program's socket: its descriptor, taken for an instant.
//!
//! While it is held, a `close` of the program's does not end the connection. So nothing here is held
//! while anybody waits: it is taken anew for each look, and the cookie says that it is still the same
//! socket, whatever became of the process and of the number meanwhile.

use std::io;
use std::os::fd::OwnedFd;

use lastbyte_core::text::in_one_line;
use lastbyte_host::process::{is_absent, take_descriptor};
use lastbyte_host::{Holder, Proc};
use lastbyte_sys::{process, socket};

use crate::error::{HealError, system};

/// Takes the socket of this cookie from one of those who have it open. `None` when none of them has
/// it open any more.
///
/// # Errors
/// Rights are missing, or the kernel is too old.
pub fn take(cookie: u64, holders: &[Holder]) -> Result<Option<OwnedFd>, HealError> {
    let mut refused = None;
    for holder in holders {
        match take_any(holder) {
            Ok(Some(fd)) if socket::cookie(&fd).ok() == Some(cookie) => return Ok(Some(fd)),
            Ok(_) => {}
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Takes whatever a process has open by a number; `None` when that is nothing, or it has ended.
///
/// # Errors
/// As [`take`].
pub(crate) fn take_any(holder: &Holder) -> Result<Option<OwnedFd>, HealError> {
    match take_descriptor(holder.pid, holder.fd) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) => match error.raw_os_error() {
            _ if is_absent(&error) => Ok(None),
            Some(EBADF) => Ok(None),
            _ if error.kind() == io::ErrorKind::Unsupported => Err(HealError::OldKernelPidfd),
            _ if error.kind() == io::ErrorKind::PermissionDenied => Err(not_ours(holder)),
            _ => {
                let what = format!("cannot take descriptor {} of {}", holder.fd, in_words(holder));
                Err(system(what)(error))
            }
        },
    }
}

/// The same number on every architecture of Linux.
const EBADF: i32 = 9;

/// Why a process's descriptors are not for us.
pub(crate) fn not_ours(holder: &Holder) -> HealError {
    let (who, own) = (in_words(holder), process::effective_user());
    match Proc::default().user(holder.pid) {
        Some(user) if user != own && own != 0 => HealError::OtherUser { who, user, own },
        _ => {
            let yama = Proc::default().sysctl("kernel.yama.ptrace_scope").ok();
            HealError::NotOurs { who, ptrace_scope: yama.filter(|scope| scope != "0") }
        }
    }
}

/// `nginx (process 4711)`.
pub(crate) fn in_words(holder: &Holder) -> String {
    format!("{} (process {})", in_one_line(&holder.program), holder.pid)
}
