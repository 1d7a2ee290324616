//! The far host's part of a run: it listens, and serves each connection that proves with the run's
//! token that it belongs to the run.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::Way;
use lastbyte_socket::SocketError;
use lastbyte_socket::blocking::{Listener, Stream};

use crate::admission::{Admission, Admitted};
use crate::error::LabError;
use crate::flow::{self, ReceiveOptions, RequestSchedule, lock};
use crate::record::Flow;
use crate::run_state::RunState;
use crate::task::{PREAMBLE, Purpose, Task, Token};

/// How long a connection may take to send its preamble.
const PREAMBLE_WITHIN: Duration = Duration::from_secs(5);
/// The most connections of a run without a preamble.
const MAX_UNPROVEN: usize = 128;
/// The most connections of a run at the same time.
const MAX_CONNECTIONS: usize = 256;
/// The time between two checks whether the run is over.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The far host during a run, for the near host.
pub trait FarEnd: Send {
    /// The address on which it listens.
    fn address(&self) -> SocketAddr;

    /// The token that a connection of this run must send.
    fn token(&self) -> Token;

    /// Waits for the end of its part and returns its flows, each with the far host's side only.
    ///
    /// # Errors
    /// Why it could not do its part.
    fn end(self: Box<Self>) -> Result<Vec<Flow>, LabError>;
}

/// Serves one run until it is over, and then until its last connection of load has ended.
///
/// # Errors
/// The first socket option that a connection of load could not get.
pub fn serve(
    listener: &Listener,
    task: &Task,
    token: &Token,
    state: &RunState,
) -> Result<Vec<Flow>, LabError> {
    let run = Serving {
        task,
        token,
        state,
        began: Instant::now(),
        claimed: Mutex::new(Vec::new()),
        flows: Mutex::new(Vec::new()),
        failed: Mutex::new(None),
    };
    let admission = Admission::new(MAX_UNPROVEN, MAX_CONNECTIONS);
    thread::scope(|scope| {
        while state.goes_on() {
            let stream = match listener.accept_within(POLL_EVERY) {
                Ok(stream) => stream,
                Err(error) => {
                    // Without free descriptors, the connection stays queued and `accept` returns at
                    // once.
                    if error.cause.kind() != io::ErrorKind::TimedOut {
                        thread::sleep(POLL_EVERY);
                    }
                    continue;
                }
            };
            let Some(admitted) = admission.admit(&stream) else { continue };
            let run = &run;
            // A connection without a valid preamble is closed, and so is one for which no thread
            // starts.
            let serve = move || drop(run.serve(stream, &admitted));
            let _ = thread::Builder::new().spawn_scoped(scope, serve);
        }
        while !admission.is_empty() {
            // Connections without a preamble need not be waited for.
            if state.is_aborted() {
                admission.close_all();
            } else {
                admission.close_unproven();
            }
            thread::sleep(POLL_EVERY / 10);
        }
    });
    let Serving { flows, failed, .. } = run;
    match into_inner(failed) {
        Some(error) => Err(error),
        None => Ok(into_inner(flows)),
    }
}

struct Serving<'a> {
    task: &'a Task,
    token: &'a Token,
    state: &'a RunState,
    began: Instant,
    /// The streams that a connection has claimed: each is served once.
    claimed: Mutex<Vec<(Way, u32)>>,
    flows: Mutex<Vec<Flow>>,
    failed: Mutex<Option<LabError>>,
}

impl Serving<'_> {
    fn serve(&self, mut stream: Stream, admitted: &Admitted<'_>) -> io::Result<()> {
        let mut preamble = [0; PREAMBLE];
        read_within(&mut stream, &mut preamble, PREAMBLE_WITHIN)?;
        stream.set_read_timeout(None)?;
        let purpose = Purpose::read(&preamble, self.task, self.token);
        if purpose.is_none() || !admitted.set_proven() {
            return Ok(());
        }
        match purpose {
            Some(Purpose::Up(number)) if self.claim(Way::Up, number) => {
                let settings = &self.task.settings;
                let reading = ReceiveOptions {
                    run_began: self.began,
                    rate: settings.read_rate,
                    requests: RequestSchedule::of(self.task, number),
                    most_bytes: self.task.load.share(number, settings.streams).bytes,
                    until: flow::until(self.task.load),
                    run: Some(self.state),
                };
                let received = flow::receive(stream, &reading);
                self.record(received.map(|received| Flow {
                    way: Way::Up,
                    stream: number,
                    aside: false,
                    received: Some(received),
                    sent: None,
                }));
            }
            Some(Purpose::Down(number)) if self.claim(Way::Down, number) => {
                self.record(self.send(stream, number));
            }
            Some(Purpose::Echo) => echo(stream, self.state)?,
            _ => {}
        }
        Ok(())
    }

    fn send(&self, stream: Stream, number: u32) -> Result<Flow, SocketError> {
        let settings = &self.task.settings;
        settings.sender().apply_to(&stream)?;
        let load = self.task.load.share(number, settings.streams);
        let sent = flow::send(stream, load, settings.write_rate)?;
        Ok(Flow { way: Way::Down, stream: number, aside: false, received: None, sent: Some(sent) })
    }

    fn claim(&self, way: Way, number: u32) -> bool {
        let mut claimed = lock(&self.claimed);
        let free = !claimed.contains(&(way, number));
        claimed.push((way, number));
        free
    }

    fn record(&self, flow: Result<Flow, SocketError>) {
        match flow {
            Ok(flow) => lock(&self.flows).push(flow),
            Err(error) => {
                let error = LabError::from_socket(error, Some(&self.task.settings.congestion));
                lock(&self.failed).get_or_insert(error);
            }
        }
    }
}

/// Fills the buffer, within a time for all of it.
pub(crate) fn read_within(
    stream: &mut Stream,
    mut buffer: &mut [u8],
    within: Duration,
) -> io::Result<()> {
    let began = Instant::now();
    while !buffer.is_empty() {
        let left = within.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[length..];
    }
    Ok(())
}

/// Echoes, until the stream ends or the run is over. A probe is one byte: a peer that sends many,
/// stays long, or does not read the response is no probe.
fn echo(mut stream: Stream, state: &RunState) -> io::Result<()> {
    const MAX_BYTES: u64 = 64;
    const MAX_TIME: Duration = Duration::from_secs(15);
    let began = Instant::now();
    let before = stream.bytes_read();
    stream.set_read_timeout(Some(POLL_EVERY))?;
    let mut buffer = [0; 64];
    while state.goes_on() && began.elapsed() < MAX_TIME && stream.bytes_read() - before < MAX_BYTES
    {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                if stream.write_now(&buffer[..length])? < length {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
