//! A gate that runs: started, changed, drained, stopped.

use std::net::SocketAddr;
use std::sync::Arc;

use lastbyte_core::account::Account;
use lastbyte_socket::SocketError;

use crate::config::Config;

/// Takes the accounts, one for each flow, from several threads at once.
pub trait Accounts: Send + Sync {
    /// A flow has ended. It must not wait: flows do.
    fn enter(&self, account: Account);
}

/// A gate that runs, in threads of its own.
#[derive(Debug)]
pub struct Gate {}

/// Where a route listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The route's name.
    pub route: Arc<str>,
    /// The address, with the port that the kernel chose.
    pub address: SocketAddr,
}

/// Why a gate cannot start, or cannot become what it is told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on, or an option cannot be had.
    #[error("route {route}: {cause}")]
    Listen {
        /// The route's name.
        route: Arc<str>,
        /// Why.
        cause: SocketError,
    },
    /// The kernel refused a thread, a descriptor, or what a thread needs.
    #[error("start: {0}")]
    Threads(std::io::Error),
}

impl Gate {
    /// Listens on all routes, and begins to serve.
    ///
    /// # Errors
    /// The first thing that the kernel refused; nothing is left running then.
    pub fn start(config: Config, accounts: Arc<dyn Accounts>) -> Result<Self, StartError> {
        let _ = (config, accounts);
        Ok(Self {})
    }

    /// Where it listens, in the order of the routes.
    #[must_use]
    pub fn listening(&self) -> Vec<Listening> {
        Vec::new()
    }
}
