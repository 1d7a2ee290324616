//! Answers questions about a gate: a thread beside its workers, with the control socket and the metrics
//! over HTTP. However many questions there are, no flow waits for it.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task;

use crate::control::{self, BindError, Commands, ControlSocket};
use crate::gate::View;
use crate::scrape;

/// Why questions about a gate cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The control socket cannot be opened.
    #[error("control socket {}: {why}", path.display())]
    Control {
        /// Where.
        path: PathBuf,
        /// Why.
        why: BindError,
    },
    /// The kernel refused to listen on the address.
    #[error("metrics on {address}: {why}")]
    Metrics {
        /// Which.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// The kernel refused a thread, or what a thread needs.
    #[error("cannot start the thread that answers questions: {0}")]
    Thread(io::Error),
}

/// The sockets for questions, before they are answered: a gate whose control socket or metrics address is
/// in use has to fail before it takes connections.
#[derive(Debug)]
pub struct Watch {
    runtime: Runtime,
    control: Option<ControlSocket>,
    metrics: Option<net::TcpListener>,
}

impl Watch {
    /// Listens for questions, on the control socket at a path and over HTTP at an address.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open(control: Option<&Path>, metrics: Option<SocketAddr>) -> Result<Self, WatchError> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("gate-reload")
            .max_blocking_threads(1)
            .build()
            .map_err(WatchError::Thread)?;
        let bind = |path: &Path| {
            let bound = ControlSocket::bind(path, &runtime);
            bound.map_err(|why| WatchError::Control { path: path.to_owned(), why })
        };
        let control = control.map(bind).transpose()?;
        let listen = |address: SocketAddr| {
            let bound = net::TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            bound.map_err(|why| WatchError::Metrics { address, why })
        };
        let metrics = metrics.map(listen).transpose()?;
        Ok(Self { runtime, control, metrics })
    }

    /// The address for metrics, with the port that the kernel chose.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Begins to answer about a gate, also while it drains.
    ///
    /// # Errors
    /// The kernel refused a thread.
    pub fn start(self, view: View, commands: Arc<dyn Commands>) -> Result<Watching, WatchError> {
        let Self { runtime, mut control, metrics } = self;
        let (end, ended) = oneshot::channel();
        let entered = runtime.enter();
        if let Some(listener) = control.as_mut().and_then(ControlSocket::take) {
            let listener = UnixListener::from_std(listener).map_err(WatchError::Thread)?;
            task::spawn(control::serve(listener, view.clone(), commands));
        }
        if let Some(listener) = metrics {
            let listener = TcpListener::from_std(listener).map_err(WatchError::Thread)?;
            task::spawn(scrape::serve(listener, view));
        }
        drop(entered);
        let answer = move || {
            // Ends with the message, or with its sender.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("gate-watch".to_owned()).spawn(answer);
        let thread = thread.map_err(WatchError::Thread)?;
        Ok(Watching { end: Some(end), thread: Some(thread), _control: control })
    }
}

/// Questions are answered until this is dropped.
pub struct Watching {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Its file goes last.
    _control: Option<ControlSocket>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").finish_non_exhaustive()
    }
}
