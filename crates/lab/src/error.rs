//! Errors of experiments.

use lastbyte_link::LinkError;
use lastbyte_socket::SocketError;

/// A run failed, or its bytes cannot be accounted for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The path could not be made.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The congestion control cannot be used.
    #[error("congestion control {name}: {why}")]
    Congestion {
        /// Its name.
        name: String,
        /// The reason, and what to do about it.
        why: String,
    },
    /// A socket operation failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The receiver failed.
    #[error("the receiver: {0}")]
    Receiver(std::io::Error),
    /// The file to send could not be made.
    #[error("a file in memory: {0}")]
    File(std::io::Error),
    /// The far host failed or refused.
    #[error("the far host: {0}")]
    Far(String),
    /// Another program could not be measured.
    #[error(transparent)]
    Foreign(#[from] crate::foreign::ForeignError),
    /// The connection to the far host was lost during a run; the next run reconnects.
    #[error("the far host was lost: {0}")]
    Lost(String),
    /// The far host cannot be reached again, or its limits are used up: there are no more runs.
    #[error("the far host is gone: {0}")]
    Gone(String),
    /// The run does not suit this path, for example because it needs two emulated hosts.
    #[error("{0}")]
    Unsuited(String),
    /// The plan has no subjects.
    #[error("there is nothing to compare: name at least one congestion control and one buffer")]
    NoSubjects,
}

impl LabError {
    /// Whether it concerns one subject only, so that the others can go on.
    #[must_use]
    pub fn is_of_subject(&self) -> bool {
        matches!(
            self,
            Self::Congestion { .. } | Self::Far(_) | Self::Foreign(_) | Self::Unsuited(_)
        )
    }

    /// Explains a refused option, if it is known why.
    pub(crate) fn from_socket(error: SocketError, congestion: Option<&str>) -> Self {
        let (Some(name), lastbyte_socket::Operation::Set("TCP_CONGESTION")) =
            (congestion, error.operation)
        else {
            return Self::Socket(error);
        };
        let why = match error.cause.kind() {
            std::io::ErrorKind::NotFound => "this kernel does not have it".to_owned(),
            std::io::ErrorKind::PermissionDenied => {
                "only CAP_NET_ADMIN may use it: run as root, or add it to \
                 net.ipv4.tcp_allowed_congestion_control"
                    .to_owned()
            }
            _ => error.cause.to_string(),
        };
        Self::Congestion { name: name.to_owned(), why }
    }
}
