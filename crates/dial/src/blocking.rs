//! The same without an event loop: a call returns when it is done.

use std::io;
use std::mem;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lastbyte_socket::blocking::Stream;
use tokio::runtime::{self, Handle, Runtime};

use crate::destination::ToDestination;
use crate::dialer;
use crate::error::{DialError, Undialed};
use crate::options::{DialOptions, Dialed};
use crate::resolve::Resolver;

/// Connects to a host by its name or address, with default options: `connect("example.org:443")?`.
/// See [`connect`](crate::connect()).
///
/// # Errors
/// Why there is no connection, and how each attempt failed. It fails inside a tokio runtime: see
/// [`Dialer`].
pub fn connect(to: impl ToDestination) -> Result<Stream, DialError> {
    connect_with(to, &DialOptions::default())
}

/// [`connect`] with options.
///
/// # Errors
/// As those of [`connect`].
pub fn connect_with(to: impl ToDestination, options: &DialOptions) -> Result<Stream, DialError> {
    static DIALER: OnceLock<Dialer> = OnceLock::new();
    let dialer = match DIALER.get() {
        Some(dialer) => dialer,
        None => {
            let over_tokio = crate::connect::shared_dialer(&to, options)?;
            let failed = |error: io::Error| {
                let why = Undialed::Runtime(error.to_string());
                over_tokio.failed(&to.to_destination(), options, why)
            };
            let dialer = Dialer::over(over_tokio.clone()).map_err(failed)?;
            DIALER.get_or_init(|| dialer)
        }
    };
    dialer.dial(to, options).map(|dialed| dialed.stream)
}

/// Dials and waits for the connection. Cheap to clone: clones share their history.
///
/// It works in any thread outside a tokio runtime, and in several at once. Inside a runtime,
/// `spawn_blocking` included, it fails, because it would block other tasks: use
/// [`Dialer`](crate::Dialer) there. A forked process makes its own event loop.
#[derive(Clone, Debug)]
pub struct Dialer {
    dialer: dialer::Dialer,
    events: Arc<Mutex<Arc<Events>>>,
}

/// An event loop, driven by the threads that wait.
#[derive(Debug)]
struct Events {
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
    process: u32,
}

impl Events {
    fn new() -> io::Result<Arc<Self>> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Arc::new(Self { runtime: Some(runtime), process: process::id() }))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.process == process::id() {
            // It has no tasks and no threads. To wait for those would be a panic where another loop runs.
            runtime.shutdown_background();
        } else {
            // A thread that was not forked may have been driving it, and would never give it back.
            mem::forget(runtime);
        }
    }
}

impl Dialer {
    /// A dialer that asks this resolver, and knows nothing yet.
    ///
    /// # Errors
    /// When there are no descriptors left for its event loop.
    pub fn new(resolver: Resolver) -> io::Result<Self> {
        Self::over(dialer::Dialer::new(resolver))
    }

    fn over(dialer: dialer::Dialer) -> io::Result<Self> {
        Ok(Self { dialer, events: Arc::new(Mutex::new(Events::new()?)) })
    }

    /// Connects to a host.
    ///
    /// # Errors
    /// Why there is no connection, with every attempt and what became of it.
    pub fn dial(
        &self,
        to: impl ToDestination,
        options: &DialOptions,
    ) -> Result<Dialed<Stream>, DialError> {
        let failed = |why: &str| {
            let why = Undialed::Runtime(why.to_owned());
            self.dialer.failed(&to.to_destination(), options, why)
        };
        if Handle::try_current().is_ok() {
            return Err(failed("this thread runs one already: use Dialer over tokio there"));
        }
        let events = self.events().map_err(|error| failed(&error.to_string()))?;
        let Some(runtime) = &events.runtime else { unreachable!("it is not dropped yet") };
        runtime.block_on(async {
            let Dialed { stream, timeline } = self.dialer.dial(&to, options).await?;
            let stream = stream.into_blocking().map_err(|error| failed(&error.to_string()))?;
            Ok(Dialed { stream, timeline })
        })
    }

    /// The event loop of this process. A forked process must not use its parent's: both would take
    /// events from one epoll queue.
    fn events(&self) -> io::Result<Arc<Events>> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.process != process::id() {
            *events = Events::new()?;
        }
        Ok(Arc::clone(&events))
    }

    /// Clears the history: see [`crate::Dialer::forget`].
    pub fn forget(&self) {
        self.dialer.forget();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn dialer() -> Dialer {
        Dialer::new(Resolver::dns_from("", "").unwrap()).unwrap()
    }

    #[test]
    fn a_process_that_was_forked_has_events_of_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialer = dialer();
        let mut elsewhere = Events::new().unwrap();
        Arc::get_mut(&mut elsewhere).unwrap().process = 0;
        *dialer.events.lock().unwrap() = Arc::clone(&elsewhere);
        let (drives, driven) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        thread::scope(|scope| {
            let runtime = elsewhere.runtime.as_ref().unwrap();
            scope.spawn(move || {
                runtime.block_on(async {
                    drives.send(()).unwrap();
                    let _ = stopped.await;
                });
            });
            // From now on that loop is another one's.
            driven.recv().unwrap();
            let dialed = dialer.dial(("127.0.0.1", port), &DialOptions::default());
            stop.send(()).unwrap();
            assert!(dialed.is_ok(), "{dialed:?}");
        });
        assert!(!Arc::ptr_eq(&elsewhere, &dialer.events().unwrap()));
    }
}
