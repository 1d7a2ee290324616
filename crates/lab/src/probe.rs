//! Round trips while a load is on, on connections beside it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lastbyte_link::{Host, LinkError};
use lastbyte_socket::{Stream, Tune};

use crate::error::LabError;
use crate::far::{Purpose, Token};
use crate::path::PathUp;
use crate::record::Latency;

/// Between two new connections.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Round trips before the load.
const IDLE_PROBES: usize = 3;

/// Probes until it is told to end.
#[derive(Debug)]
pub(crate) struct Prober {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<Latency, LinkError>>,
}

impl Prober {
    /// Measures the idle path, then goes on beside the load.
    ///
    /// # Errors
    /// When no thread can be started on the near host.
    pub(crate) fn start(
        path: &PathUp,
        address: SocketAddr,
        token: Token,
    ) -> Result<Self, LabError> {
        let (stop, stopped) = mpsc::channel();
        let (idle, idle_known) = mpsc::channel();
        let thread = path.spawn(Host::Near, "prober", move || {
            let mut latency = Latency::default();
            for _ in 0..IDLE_PROBES {
                if let Some((_, answer)) = ask(address, &token) {
                    latency.idle.push(answer);
                }
            }
            let _ = idle.send(());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PROBE_EVERY) {
                match ask(address, &token) {
                    Some((handshake, answer)) => {
                        latency.handshakes.push(handshake);
                        latency.beside.push(answer);
                    }
                    None => latency.unanswered += 1,
                }
            }
            latency
        })?;
        // The load begins once the idle path is known.
        let _ = idle_known.recv();
        Ok(Self { stop, thread })
    }

    /// What it has measured.
    pub(crate) fn end(self) -> Latency {
        drop(self.stop);
        let joined = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        joined.unwrap_or_default()
    }
}

/// A new connection, a question, its answer: how long the handshake and the answer took.
fn ask(address: SocketAddr, token: &Token) -> Option<(Duration, Duration)> {
    let began = Instant::now();
    let mut stream = Stream::connect(address, &Tune::default(), ANSWER_WITHIN).ok()?;
    let connected = began.elapsed();
    stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
    let asked = Instant::now();
    stream.write_all(&Purpose::Echo.preamble(token)).ok()?;
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut [0; 1]).ok()?;
    Some((connected, asked.elapsed()))
}
