//! Why a link could not be made or carried.

use std::io;

/// Making or using a link failed. The text names the cause: there is no further `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The rights for it are missing: what, for what, and how to get them.
    #[error("{what}: {cause}; {advice}")]
    Rights {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A step failed.
    #[error("{doing}: {cause}")]
    Step {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
}

const AS_ROOT: &str = "making a path needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run it as root, such as \
                       with sudo";
const TUN: &str = "making a path needs /dev/net/tun: load the module tun, or give a container the \
                   device (docker: --device /dev/net/tun --cap-add NET_ADMIN --cap-add SYS_ADMIN)";

impl LinkError {
    /// Names the step in which the kernel said no, and the cure where it is a matter of rights.
    pub(crate) fn at(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::Rights { what: doing, cause, advice: AS_ROOT },
            _ => Self::Step { doing, cause },
        }
    }

    /// As [`LinkError::at`], for the TUN device, which may be missing altogether.
    pub(crate) fn at_tun(cause: io::Error) -> Self {
        let what = "making a TUN device";
        match cause.raw_os_error() {
            // ENOENT, ENXIO, ENODEV: no such file, or no driver behind it.
            Some(2 | 6 | 19) => Self::Rights { what, cause, advice: TUN },
            _ => Self::at(what)(cause),
        }
    }
}
