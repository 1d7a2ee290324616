//! Why a link could not be made, or failed.

use std::io;

use crate::rights;
use crate::spec::SpecError;

/// Making or using a link failed. The text names the cause: there is no further `source()`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A privilege or a device is missing: for what, and how to get it.
    #[error("{what}: {cause}; {advice}")]
    Rights {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        cause: io::Error,
        /// What to do.
        advice: String,
    },
    /// The path is not possible.
    #[error("invalid path: {0}")]
    Spec(SpecError),
    /// The number of namespaces is not that of the network's hosts.
    #[error(
        "the network has {asked} hosts, but {there} namespaces were given: give one for each host"
    )]
    Hosts {
        /// How many namespaces were given.
        there: usize,
        /// How many hosts it has.
        asked: usize,
    },
    /// A host or a link of a network could not be made or carried.
    #[error("{part}: {cause}")]
    Part {
        /// Which, such as "link access".
        part: String,
        /// Why.
        cause: Box<Self>,
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
const DEVICE: &str = "making a path needs /dev/net/tun, or veth devices and packet sockets: load the \
                      module tun or veth, or give a container the device (docker: --device \
                      /dev/net/tun --cap-add NET_ADMIN --cap-add SYS_ADMIN)";

impl LinkError {
    /// Names the step that the kernel refused, such as "sending probes": [`LinkError::Rights`] where a
    /// privilege is missing, else [`LinkError::Step`].
    pub fn at(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => {
                Self::Rights { what: doing, cause, advice: AS_ROOT.to_owned() }
            }
            _ => Self::Step { doing, cause },
        }
    }

    /// Names the host or link of a network that it is about. Missing rights are about none of them.
    pub(crate) fn of(kind: &'static str, name: &str) -> impl FnOnce(Self) -> Self {
        move |cause| match cause {
            Self::Rights { .. } => cause,
            _ => Self::Part { part: format!("{kind} {name}"), cause: Box::new(cause) },
        }
    }

    /// As [`LinkError::at`], for a host's first step. It needs no root in a user namespace: if this
    /// machine forbids those, the advice says so.
    pub(crate) fn at_namespace(cause: io::Error) -> Self {
        let what = "making a network namespace";
        let refused = cause.kind() == io::ErrorKind::PermissionDenied;
        match rights::why_not_in_a_user_namespace().filter(|_| refused) {
            Some(why) => {
                let advice = format!("{AS_ROOT}; without root it needs user namespaces, and {why}");
                Self::Rights { what, cause, advice }
            }
            None => Self::at(what)(cause),
        }
    }

    /// As [`LinkError::at`], for the device: this machine may have no kind of it.
    pub(crate) fn at_device(cause: io::Error) -> Self {
        let what = "making a device";
        match cause.raw_os_error() {
            // ENOENT, ENXIO, ENODEV, EOPNOTSUPP, EAFNOSUPPORT: no such file, or no driver behind it.
            Some(2 | 6 | 19 | 95 | 97) => Self::Rights { what, cause, advice: DEVICE.to_owned() },
            _ => Self::at(what)(cause),
        }
    }
}
