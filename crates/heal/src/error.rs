//! Why a connection was not found, or cannot be changed.

use std::io;

use lastbyte_congestion::CongestionError;

/// Finding or changing a connection failed. The text names the cause: there is no further `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The process has nothing open by that number.
    #[error("{who} has nothing open by the number {fd}")]
    NothingOpen {
        /// The process.
        who: String,
        /// The number.
        fd: i32,
    },
    /// What the process has open by that number is no socket.
    #[error("descriptor {fd} of {who} is no socket: {what}")]
    NoSocket {
        /// The process.
        who: String,
        /// The number.
        fd: i32,
        /// What it is, as `/proc` shows it.
        what: String,
    },
    /// What the process has open by that number is no connection of TCP.
    #[error("descriptor {fd} of {who} is {what}")]
    NotConnection {
        /// The process.
        who: String,
        /// The number.
        fd: i32,
        /// What it is.
        what: &'static str,
    },
    /// The process has closed the descriptor while it was looked for.
    #[error("{who} has closed {fd} meanwhile")]
    ClosedMeanwhile {
        /// The process.
        who: String,
        /// The number.
        fd: i32,
    },
    /// The process is another user's.
    #[error(
        "{who} is user {user}'s, and its sockets are not for user {own}: that needs CAP_SYS_PTRACE, \
         such as with sudo"
    )]
    OtherUser {
        /// The process.
        who: String,
        /// Its user.
        user: u32,
        /// The user who asks.
        own: u32,
    },
    /// The kernel does not hand out this process's sockets.
    #[error(
        "the kernel does not let this user have the sockets of {who}{}: that needs CAP_SYS_PTRACE, \
         such as with sudo", yama(ptrace_scope.as_deref())
    )]
    NotOurs {
        /// The process.
        who: String,
        /// `kernel.yama.ptrace_scope`, where it restricts.
        ptrace_scope: Option<String>,
    },
    /// The kernel has no `pidfd_getfd(2)`.
    #[error("this kernel cannot hand out another program's socket: pidfd_getfd needs Linux 5.6")]
    OldKernelPidfd,
    /// The kernel has no `SO_BUF_LOCK`.
    #[error("this kernel cannot unlock buffers: SO_BUF_LOCK needs Linux 5.14")]
    OldKernelBufferLock,
    /// The kernel does not offer this congestion control.
    #[error(
        "congestion control `{name}` is not known: this kernel offers {}{}", available.join(", "),
        if *can_be_loaded { format!("; `lastbyte cc load --keep {name}` loads it") }
        else { String::new() }
    )]
    UnknownCongestion {
        /// Its name.
        name: String,
        /// Those that the kernel offers.
        available: Vec<String>,
        /// Whether our catalogue has it.
        can_be_loaded: bool,
    },
    /// This user may not choose this congestion control.
    #[error(
        "{0} is not for everybody here (net.ipv4.tcp_allowed_congestion_control): choosing it needs \
         CAP_NET_ADMIN, such as with sudo"
    )]
    CongestionNotAllowed(String),
    /// The congestion controls of this kernel cannot be listed.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The kernel refused a step.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// Names the step that the kernel refused.
pub(crate) fn system<W: Into<String>>(what: W) -> impl FnOnce(io::Error) -> HealError {
    move |cause| HealError::System { what: what.into(), cause }
}

fn yama(scope: Option<&str>) -> String {
    scope.map_or_else(String::new, |scope| format!(" (kernel.yama.ptrace_scope is {scope})"))
}
