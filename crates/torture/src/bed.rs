//! The proxy and the two sides of it: where the client connects to, and where the server waits.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::{LinkError, Namespace};
use lastbyte_socket::blocking::{Stream, TcpListener};
use lastbyte_socket::{ConnectOptions, SocketError};

/// What is known before anything is tried.
#[derive(Debug)]
pub struct Asked {
    /// Where the client connects to.
    pub proxy: SocketAddr,
    /// Where the server listens: the proxy has to connect there. The same as `proxy` is plain TCP.
    pub upstream: SocketAddr,
    /// The network namespace that the client is in, if it is another one.
    pub proxy_namespace: Option<Namespace>,
    /// The network namespace that the server is in, if it is another one.
    pub upstream_namespace: Option<Namespace>,
    /// A proxy's address whose upstream refuses; without one our own listener is closed.
    pub refused: Option<SocketAddr>,
    /// A proxy's address whose upstream cannot be reached.
    pub unreachable: Option<SocketAddr>,
    /// A proxy's address whose upstream never answers; without one our own listener does not.
    pub timed_out: Option<SocketAddr>,
    /// How long an end waits for a byte or an end before it gives up, the round trip not counted.
    pub deadline: Duration,
    /// What each wait for a signal is longer by than the round trip asks.
    pub settle: Duration,
    /// The seed of content and of random exchanges.
    pub seed: u64,
    /// A shell command that asks the proxy to stop.
    pub stop: Option<String>,
    /// A shell command that kills the proxy.
    pub kill: Option<String>,
}

/// Why nothing could be tried.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// A namespace cannot be entered.
    #[error(transparent)]
    Namespace(LinkError),
    /// The server cannot listen.
    #[error("cannot listen for the proxy: {0}")]
    Listen(#[source] SocketError),
    /// Nobody takes connections where the proxy should be.
    #[error("cannot connect to the proxy: {0}")]
    Connect(#[source] SocketError),
    /// The first connection did not come through.
    #[error("the proxy at {proxy} took a connection, but made none to {upstream}: {cause}")]
    Through {
        /// Where the client had connected to.
        proxy: SocketAddr,
        /// Where the server waited.
        upstream: SocketAddr,
        /// Why the wait was over.
        #[source]
        cause: SocketError,
    },
    /// A byte each way did not come through.
    #[error("the proxy at {0} takes connections, but no byte comes through both ways")]
    NoRoundTrip(SocketAddr),
}

/// How long things take on this path.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// A round trip of one byte through the proxy, the shortest of some.
    pub round_trip: Duration,
    /// Long enough for a signal to have come to the other side, and its answer back.
    pub moment: Duration,
    /// How long an end waits for a byte or an end before it gives up.
    pub deadline: Duration,
}

/// The two sides of a proxy.
#[derive(Debug)]
pub struct Bed {
    asked: Asked,
    waits: Waits,
    listener: Mutex<Option<Arc<TcpListener>>>,
    /// Held by who waits for a connection: of several, all but one would wait in vain.
    accepting: Mutex<()>,
}

impl Bed {
    /// Begins to listen, and measures the path with one connection.
    ///
    /// # Errors
    /// When no connection comes through.
    pub fn open(asked: Asked) -> Result<Self, BedError> {
        let bed = Self {
            waits: Waits {
                round_trip: Duration::ZERO,
                moment: SHORTEST_MOMENT,
                deadline: asked.deadline,
            },
            listener: Mutex::new(None),
            accepting: Mutex::new(()),
            asked,
        };
        bed.listen()?;
        let round_trip = bed.measure()?;
        let moment = SHORTEST_MOMENT + round_trip * 4 + bed.asked.settle;
        let deadline = bed.asked.deadline + round_trip * 100 + bed.asked.settle * 10;
        Ok(Self { waits: Waits { round_trip, moment, deadline }, ..bed })
    }

    /// What was asked.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// How long things take here.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Connects to the proxy.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(&self) -> Result<Stream, BedError> {
        self.connect_to(self.asked.proxy)
    }

    /// Connects to another address on the client's side.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect_to(&self, address: SocketAddr) -> Result<Stream, BedError> {
        let deadline = self.waits.deadline;
        let connect =
            move || Stream::connect_with(address, &ConnectOptions::default().within(deadline));
        inside(self.asked.proxy_namespace.as_ref(), connect)?.map_err(BedError::Connect)
    }

    /// Takes the proxy's next connection; `None` when none has come in time, or nobody listens.
    pub fn accept_within(&self, timeout: Duration) -> Option<Stream> {
        // Not held while it waits: the listener may be closed meanwhile.
        let listener = self.locked().clone()?;
        let _alone = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        listener.accept_within(timeout).ok()
    }

    /// Connects, and takes what the proxy connects.
    ///
    /// # Errors
    /// When one of the two is not there in time.
    pub fn pair(&self) -> Result<(Stream, Stream), BedError> {
        let listener = self.locked().clone();
        let client = self.connect()?;
        let Some(listener) = listener else {
            return Err(BedError::NoRoundTrip(self.asked.proxy));
        };
        let failed = |cause| BedError::Through {
            proxy: self.asked.proxy,
            upstream: self.asked.upstream,
            cause,
        };
        Ok((client, listener.accept_within(self.waits.deadline).map_err(failed)?))
    }

    /// Takes and resets connections that a former run left behind.
    pub fn clear(&self) {
        while let Some(stream) = self.accept_within(Duration::ZERO) {
            drop(stream);
        }
    }

    /// Closes the server's listener: whoever connects from now on is refused.
    pub fn stop_listening(&self) {
        self.locked().take();
    }

    /// Listens again.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn listen(&self) -> Result<(), BedError> {
        let address = self.asked.upstream;
        let listener = self.on_server_side(move || TcpListener::bind(address))?;
        *self.locked() = Some(Arc::new(listener.map_err(BedError::Listen)?));
        Ok(())
    }

    /// Does something on the server's side.
    ///
    /// # Errors
    /// When its namespace cannot be entered.
    pub fn on_server_side<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, BedError> {
        inside(self.asked.upstream_namespace.as_ref(), work)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Arc<TcpListener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shortest of some round trips of a byte.
    fn measure(&self) -> Result<Duration, BedError> {
        let (mut client, mut server) = self.pair()?;
        let patience = Some(self.waits.deadline);
        let echo = move || -> io::Result<()> {
            server.set_read_timeout(patience)?;
            let mut byte = [0];
            for _ in 0..ROUND_TRIPS {
                server.read_exact(&mut byte)?;
                server.write_all(&byte)?;
            }
            Ok(())
        };
        let mut ask = || -> io::Result<Duration> {
            client.set_read_timeout(patience)?;
            let mut shortest = Duration::MAX;
            for _ in 0..ROUND_TRIPS {
                let begun = Instant::now();
                client.write_all(b"?")?;
                client.read_exact(&mut [0])?;
                shortest = shortest.min(begun.elapsed());
            }
            Ok(shortest)
        };
        thread::scope(|scope| {
            scope.spawn(echo);
            ask()
        })
        .map_err(|_| BedError::NoRoundTrip(self.asked.proxy))
    }
}

/// So many are timed at the beginning.
const ROUND_TRIPS: u64 = 10;
/// What a busy machine may need to let the other side have its turn.
const SHORTEST_MOMENT: Duration = Duration::from_millis(50);

/// Does something in that namespace, or here. A socket stays where it was made.
fn inside<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, BedError> {
    match namespace {
        Some(namespace) => namespace.run(work).map_err(BedError::Namespace),
        None => Ok(work()),
    }
}
