//! The blocking listener.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use lastbyte_sys::{poll, socket};

use crate::error::{Operation, SocketError};
use crate::stream::Stream;
use crate::tune::Tune;

/// Connections that wait to be accepted. Closing the listener resets them.
const BACKLOG: i32 = 1024;

/// Waits for connections.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    local: SocketAddr,
}

impl Listener {
    /// Listens on an address; port 0 lets the kernel choose one. The options count for every
    /// accepted connection: the kernel passes all of a [`Tune`] on.
    ///
    /// # Errors
    /// Names the option that could not be set, or why the address cannot be had.
    pub fn listen(address: SocketAddr, tune: &Tune) -> Result<Self, SocketError> {
        let failed = |cause| SocketError {
            operation: Operation::Listen,
            local: Some(address),
            peer: None,
            cause,
        };
        let fd = socket::open_tcp(address).map_err(failed)?;
        tune.apply(&fd)?;
        socket::bind(&fd, address).map_err(failed)?;
        socket::listen(&fd, BACKLOG).map_err(failed)?;
        let tcp = TcpListener::from(fd);
        let local = tcp.local_addr().map_err(failed)?;
        Ok(Self { tcp, local })
    }

    /// The address listened on, with the port that the kernel chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Takes the next connection.
    ///
    /// # Errors
    /// The kernel's, such as `EMFILE`; most pass by themselves.
    pub fn accept(&self) -> Result<Stream, SocketError> {
        let (tcp, _) = self.tcp.accept().map_err(|cause| self.error(cause))?;
        Stream::ours(tcp)
    }

    /// Takes the next connection, waiting at most `timeout`.
    ///
    /// # Errors
    /// `TimedOut` when none came; otherwise as [`Listener::accept`].
    pub fn accept_within(&self, timeout: Duration) -> Result<Stream, SocketError> {
        let ready = poll::wait([(&self.tcp, poll::READABLE)], Some(timeout));
        if ready.map_err(|cause| self.error(cause))?[0] {
            return self.accept();
        }
        Err(self.error(io::ErrorKind::TimedOut.into()))
    }

    fn error(&self, cause: io::Error) -> SocketError {
        SocketError { operation: Operation::Accept, local: Some(self.local), peer: None, cause }
    }
}
