//! What a gate reports to the program that runs it: an account for each flow, and notices.

use std::fmt;
use std::sync::Arc;

use lastbyte_core::account::Account;
use lastbyte_socket::SocketError;

/// Takes the accounts, one for each flow, from several threads at once.
pub trait Accounts: Send + Sync {
    /// A flow has ended. It must not wait: flows do.
    fn enter(&self, account: Account);

    /// How many accounts were lost on their way to where they are kept.
    fn lost(&self) -> u64 {
        0
    }
}

/// Takes notices, from several threads.
pub trait Notices: Send + Sync {
    /// Something has happened. It must not wait: flows do.
    fn notice(&self, notice: Notice);
}

/// What the operator of a gate has to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Connections cannot be accepted now. They wait in the kernel, and accepting is tried again soon;
    /// open flows go on. It is reported once in 10 s at most.
    AcceptPaused {
        /// The route whose listener it was, the last time.
        route: Arc<str>,
        /// Why, such as `EMFILE`.
        cause: SocketError,
        /// How often, since the last notice.
        times: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AcceptPaused { route, cause, times } => {
                let times = if *times == 1 { "once" } else { &format!("{times} times") };
                write!(f, "route {route}: {cause}: accepting pauses ({times} lately)")
            }
        }
    }
}
