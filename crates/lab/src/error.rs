//! Why an experiment could not be made.

use lastbyte_link::LinkError;
use lastbyte_socket::SocketError;

/// A run could not be made, or its bytes not be accounted for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The path could not be made.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The congestion control may not be used.
    #[error("congestion control {name}: {why}")]
    Congestion {
        /// Its name.
        name: String,
        /// What to do about it.
        why: String,
    },
    /// A socket operation failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The receiver never saw the connection's end.
    #[error("the receiver: {0}")]
    Receiver(std::io::Error),
    /// A file to be sent could not be made.
    #[error("a file in memory: {0}")]
    File(std::io::Error),
    /// The far host could not do its part.
    #[error("the far host: {0}")]
    Far(String),
    /// A program of others was not measured.
    #[error(transparent)]
    Foreign(#[from] crate::foreign::ForeignError),
    /// The far host was lost in the middle of a run; the next one looks for it again.
    #[error("the far host was lost: {0}")]
    Lost(String),
    /// The far host is not to be found again, or has no more to give: there are no more runs.
    #[error("there is no far host any more: {0}")]
    Gone(String),
    /// What needs two hosts of this machine's own cannot be done on this path.
    #[error("{0}")]
    Unsuited(String),
    /// Plan for nothing.
    #[error("there is nothing to compare: name at least one congestion control and one buffer")]
    NoSubjects,
}

impl LabError {
    /// Whether it concerns the one subject, so that the others can go on.
    #[must_use]
    pub fn is_of_subject(&self) -> bool {
        matches!(
            self,
            Self::Congestion { .. } | Self::Far(_) | Self::Foreign(_) | Self::Unsuited(_)
        )
    }

    /// Says what a refused option means where that is known.
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
