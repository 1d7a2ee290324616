//! The proxy and its two sides: where the client connects, and where the server listens.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::{LinkError, Namespace};
use lastbyte_socket::blocking::{Stream, TcpListener};
use lastbyte_socket::{ConnectOptions, SocketError};

/// The setup of a testbed.
#[derive(Debug)]
pub struct Setup {
    /// The address that the client connects to.
    pub proxy: SocketAddr,
    /// The address on which the server listens: the proxy has to connect there. If it equals
    /// `proxy`, the test is of plain TCP.
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
    /// How long an end waits for a byte or the end of the stream, beyond the round trip.
    pub deadline: Duration,
    /// How much longer than the round trip each wait for a signal is.
    pub settle: Duration,
    /// The seed of content and of random exchanges.
    pub seed: u64,
    /// A shell command that asks the proxy to stop.
    pub stop: Option<String>,
    /// A shell command that kills the proxy.
    pub kill: Option<String>,
}

/// Why the testbed does not work.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// A namespace cannot be entered.
    #[error(transparent)]
    Namespace(LinkError),
    /// The server cannot listen.
    #[error("cannot listen for the proxy: {0}")]
    Listen(#[source] SocketError),
    /// Nothing accepts connections at the proxy's address.
    #[error("cannot connect to the proxy: {0}")]
    Connect(#[source] SocketError),
    /// The proxy did not connect to the upstream.
    #[error("the proxy at {proxy} took a connection, but made none to {upstream}: {cause}")]
    Through {
        /// The address that the client connected to.
        proxy: SocketAddr,
        /// The address on which the server listened.
        upstream: SocketAddr,
        /// Why the wait ended.
        #[source]
        cause: SocketError,
    },
    /// A byte did not pass in both directions.
    #[error("the proxy at {0} takes connections, but no byte comes through both ways")]
    NoRoundTrip(SocketAddr),
}

/// Times that follow from this path.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// The shortest of some round trips of one byte through the proxy.
    pub round_trip: Duration,
    /// Long enough for a FIN or reset to reach the other end, and its answer to come back.
    pub moment: Duration,
    /// How long an end waits for a byte or the end of the stream.
    pub deadline: Duration,
}

/// The two sides of a proxy.
#[derive(Debug)]
pub struct Testbed {
    setup: Setup,
    waits: Waits,
    listener: Mutex<Option<Arc<TcpListener>>>,
    /// Locked while a thread waits for a connection, since several would take each other's.
    accepting: Mutex<()>,
}

impl Testbed {
    /// Listens, and measures the path with one connection.
    ///
    /// # Errors
    /// If no connection passes the proxy.
    pub fn open(setup: Setup) -> Result<Self, TestbedError> {
        let testbed = Self {
            waits: Waits {
                round_trip: Duration::ZERO,
                moment: SHORTEST_MOMENT,
                deadline: setup.deadline,
            },
            listener: Mutex::new(None),
            accepting: Mutex::new(()),
            setup,
        };
        testbed.listen()?;
        let round_trip = testbed.measure()?;
        let moment = SHORTEST_MOMENT + round_trip * 4 + testbed.setup.settle;
        let deadline = testbed.setup.deadline + round_trip * 100 + testbed.setup.settle * 10;
        Ok(Self { waits: Waits { round_trip, moment, deadline }, ..testbed })
    }

    /// The setup.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The times that follow from the path.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Connects to the proxy.
    ///
    /// # Errors
    /// Why it could not connect.
    pub fn connect(&self) -> Result<Stream, TestbedError> {
        self.connect_to(self.setup.proxy)
    }

    /// Connects to another address on the client's side.
    ///
    /// # Errors
    /// Why it could not connect.
    pub fn connect_to(&self, address: SocketAddr) -> Result<Stream, TestbedError> {
        let deadline = self.waits.deadline;
        let connect =
            move || Stream::connect_with(address, &ConnectOptions::default().within(deadline));
        inside(self.setup.proxy_namespace.as_ref(), connect)?.map_err(TestbedError::Connect)
    }

    /// Accepts the proxy's next connection; `None` if none comes in time, or the listener is
    /// closed.
    pub fn accept_within(&self, timeout: Duration) -> Option<Stream> {
        // Not locked while it waits, so that the listener can be closed.
        let listener = self.locked().clone()?;
        let _alone = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        listener.accept_within(timeout).ok()
    }

    /// Connects, and accepts the proxy's connection.
    ///
    /// # Errors
    /// If one of the two is not established in time.
    pub fn pair(&self) -> Result<(Stream, Stream), TestbedError> {
        let listener = self.locked().clone();
        let client = self.connect()?;
        let Some(listener) = listener else {
            return Err(TestbedError::NoRoundTrip(self.setup.proxy));
        };
        let failed = |cause| TestbedError::Through {
            proxy: self.setup.proxy,
            upstream: self.setup.upstream,
            cause,
        };
        Ok((client, listener.accept_within(self.waits.deadline).map_err(failed)?))
    }

    /// Accepts and closes connections that an earlier run left behind.
    pub fn clear(&self) {
        while let Some(stream) = self.accept_within(Duration::ZERO) {
            drop(stream);
        }
    }

    /// Closes the server's listener: new connections are refused.
    pub fn stop_listening(&self) {
        self.locked().take();
    }

    /// Listens again.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn listen(&self) -> Result<(), TestbedError> {
        let address = self.setup.upstream;
        let listener = self.on_server_side(move || TcpListener::bind(address))?;
        *self.locked() = Some(Arc::new(listener.map_err(TestbedError::Listen)?));
        Ok(())
    }

    /// Runs `work` in the server's namespace.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn on_server_side<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, TestbedError> {
        inside(self.setup.upstream_namespace.as_ref(), work)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Arc<TcpListener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the shortest of some round trips of a byte.
    fn measure(&self) -> Result<Duration, TestbedError> {
        let (mut client, mut server) = self.pair()?;
        let timeout = Some(self.waits.deadline);
        let echo = move || -> io::Result<()> {
            server.set_read_timeout(timeout)?;
            let mut byte = [0];
            for _ in 0..ROUND_TRIPS {
                server.read_exact(&mut byte)?;
                server.write_all(&byte)?;
            }
            Ok(())
        };
        let mut ask = || -> io::Result<Duration> {
            client.set_read_timeout(timeout)?;
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
        .map_err(|_| TestbedError::NoRoundTrip(self.setup.proxy))
    }
}

/// How many round trips are timed.
const ROUND_TRIPS: u64 = 10;
/// What a busy machine may need to schedule the other end.
const SHORTEST_MOMENT: Duration = Duration::from_millis(50);

/// Runs `work` in a namespace, or here. A socket belongs to the namespace in which it was made.
fn inside<T: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, TestbedError> {
    match namespace {
        Some(namespace) => namespace.run(work).map_err(TestbedError::Namespace),
        None => Ok(work()),
    }
}
