//! Listeners: one kernel socket for each address, watched by all workers.
//!
//! There is one socket, and not one for each worker (`SO_REUSEPORT`): so no connection in its queue is lost
//! when routes change. A listener is closed after all connections in its queue were accepted: those clients
//! are connected already, and may have sent.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastbyte_socket::blocking::Listener;
use lastbyte_socket::{Endpoints, Incoming, Operation, SocketError};
use lastbyte_sys::{socket, watch};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::{task, time};

use crate::lock::lock;
use crate::loops;
use crate::route::{ActiveRoute, listen_options};

/// A listener, and its route.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: Listener,
    /// The route of its connections. A reload changes it.
    route: Mutex<Arc<ActiveRoute>>,
    is_closing: AtomicBool,
    closing: Notify,
}

impl Bound {
    /// Listens for a route. No worker accepts yet.
    pub(crate) fn open(route: Arc<ActiveRoute>) -> Result<Self, SocketError> {
        let listener = Listener::bind_with(route.route.listen, &listen_options(&route.route))?;
        listener.set_nonblocking(true)?;
        // Where it is refused, circles of gates are bounded by the flows per client alone.
        let _ = loops::watch(&listener);
        Ok(Self {
            listener,
            route: Mutex::new(route),
            is_closing: AtomicBool::new(false),
            closing: Notify::new(),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("a listener has an address")
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    pub(crate) fn route(&self) -> Arc<ActiveRoute> {
        Arc::clone(&lock(&self.route))
    }

    /// Connections that are accepted from now on take this route.
    pub(crate) fn set_route(&self, route: Arc<ActiveRoute>) {
        *lock(&self.route) = route;
    }

    /// Has all acceptors accept what waits in the queue, and end.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.closing.notify_waiters();
    }

    fn no_descriptors(&self) -> SocketError {
        let endpoints = Endpoints { local: Some(self.address().into()), ..Endpoints::default() };
        let cause = io::Error::other("no descriptors left for another flow");
        SocketError::new(Operation::Accept, endpoints, cause)
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    async fn closed(&self) {
        let mut notified = pin!(self.closing.notified());
        notified.as_mut().enable();
        if !self.is_closing() {
            notified.await;
        }
    }
}

/// A listener as one worker watches it: a duplicate of its descriptor, in the worker's event loop.
#[derive(Debug)]
pub(crate) struct Acceptor {
    bound: Arc<Bound>,
    io: AsyncFd<OwnedFd>,
}

/// Takes the connections of an acceptor.
pub(crate) trait Intake {
    /// A connection was accepted, for this route.
    fn take(&self, incoming: Incoming, route: Arc<ActiveRoute>);
    /// Accepting pauses, because of an error that may pass.
    fn on_pause(&self, route: &ActiveRoute, cause: SocketError);
    /// Whether to accept connections that still wait.
    fn wants_more(&self) -> bool;
    /// Whether there are descriptors for one more flow, upstream included.
    fn has_descriptors(&self) -> bool;
}

/// How many connections are accepted before flows get a turn.
const TURN: usize = 16;

/// How many connections of a closing listener one worker accepts: no more than could wait there, or a
/// flood of clients would keep it open for ever.
const LAST: usize = 4096;

/// How long accepting pauses where the kernel has no descriptors or no memory: the first time, and at most;
/// doubled each time in between. Where the gate's own count is the reason, the first is used each time.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

impl Acceptor {
    /// Watches a listener from the event loop of the runtime that was entered.
    pub(crate) fn of(bound: Arc<Bound>) -> io::Result<Self> {
        let duplicate = bound.listener.as_fd().try_clone_to_owned()?;
        Ok(Self { bound, io: watch::register(duplicate, Interest::READABLE)? })
    }

    /// Accepts until the listener is closed, and then what waits in its queue.
    pub(crate) async fn run(self, intake: &impl Intake) {
        let mut pause = PAUSES[0];
        while !self.bound.is_closing() {
            match self.accept_some(intake) {
                Turn::Emptied => self.wait().await,
                Turn::Over => {
                    pause = PAUSES[0];
                    task::yield_now().await;
                }
                Turn::Full => {
                    intake.on_pause(&self.bound.route(), self.bound.no_descriptors());
                    while !intake.has_descriptors() && !self.bound.is_closing() {
                        let _ = time::timeout(PAUSES[0], self.bound.closed()).await;
                    }
                }
                Turn::Refused(cause) => {
                    intake.on_pause(&self.bound.route(), cause);
                    let _ = time::timeout(pause, self.bound.closed()).await;
                    pause = (2 * pause).min(PAUSES[1]);
                }
            }
        }
        // An event may not have been reported yet: the queue itself is asked.
        for _ in 0..LAST {
            if !intake.wants_more() {
                break;
            }
            match self.bound.listener.accept_now() {
                Ok(incoming) => intake.take(incoming, self.bound.route()),
                Err(error) if socket::is_of_one_connection(&error.cause) => {}
                Err(_) => break,
            }
        }
    }

    /// Waits until a connection may be there, or the listener is closed.
    async fn wait(&self) {
        let mut closed = pin!(self.bound.closed());
        poll_fn(|cx| {
            let readable = self.io.poll_read_ready(cx).map(drop);
            if readable.is_ready() { readable } else { closed.as_mut().poll(cx) }
        })
        .await;
    }

    /// Accepts what waits, but not for longer than a turn.
    fn accept_some(&self, intake: &impl Intake) -> Turn {
        for _ in 0..TURN {
            // Without a descriptor for the upstream a client could only be reset: it waits in the queue
            // instead.
            if !intake.has_descriptors() {
                return Turn::Full;
            }
            let mut refused = None;
            let accepted = self.io.try_io(Interest::READABLE, |_| {
                self.bound.listener.accept_now().map_err(|error| {
                    let kind = error.cause.kind();
                    refused = Some(error);
                    kind.into()
                })
            });
            match (accepted, refused) {
                (Ok(incoming), _) => intake.take(incoming, self.bound.route()),
                (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Turn::Emptied;
                }
                (Err(_), Some(refused)) if !socket::is_of_one_connection(&refused.cause) => {
                    return Turn::Refused(refused);
                }
                (Err(_), _) => {}
            }
        }
        Turn::Over
    }
}

/// How an acceptor's turn ended.
enum Turn {
    /// The queue is empty.
    Emptied,
    /// More may wait.
    Over,
    /// More may wait, and there are no descriptors for them.
    Full,
    /// Nothing can be accepted now.
    Refused(SocketError),
}
