//! The far host's part of a run: it listens, and each connection that shows the run's token gets
//! what it asks for.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::Way;
use lastbyte_socket::{Listener, SocketError, Stream};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::flow::{self, Asking, Reading};
use crate::plan::Load;
use crate::record::Flow;
use crate::setting::Settings;

/// What the far host is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// How both sides are set.
    pub settings: Settings,
    /// How much each direction carries.
    #[serde(flatten)]
    pub load: Load,
    /// Whether receivers ask for round trips through the load.
    pub latency: bool,
    /// What a connection must show.
    pub token: Token,
}

impl Task {
    /// When the receiver of one of its connections asks.
    pub(crate) fn asks(&self, stream: u32) -> Option<Asking> {
        self.latency.then(|| Asking::in_turn(stream, self.settings.streams))
    }
}

/// What shows that a connection belongs to a run.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(pub [u8; 32]);

/// A secret is not for logs.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// A new one, that nobody can guess.
    ///
    /// # Errors
    /// Without the kernel's source of chance.
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Compares in a time that does not depend on where they differ.
    fn is(&self, other: &[u8; 32]) -> bool {
        let differ = self.0.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The near host sends load.
    Up(u32),
    /// The far host sends load.
    Down(u32),
    /// The far host sends back what comes.
    Echo,
}

/// What comes first on every connection: token, kind, number.
pub(crate) const PREAMBLE: usize = 40;
/// How long a connection may take to say what it is for.
const PREAMBLE_WITHIN: Duration = Duration::from_secs(5);
/// Connections that a run may have at once.
const MOST_CONNECTIONS: usize = 256;
/// Between two looks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Purpose {
    /// The first bytes of a connection.
    pub(crate) fn preamble(self, token: &Token) -> [u8; PREAMBLE] {
        let (kind, number) = match self {
            Self::Up(stream) => (1_u32, stream),
            Self::Down(stream) => (2, stream),
            Self::Echo => (3, 0),
        };
        let mut bytes = [0; PREAMBLE];
        bytes[..32].copy_from_slice(&token.0);
        bytes[32..36].copy_from_slice(&kind.to_be_bytes());
        bytes[36..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// What the first bytes of a connection mean; `None` for a wrong token, or what this run has
    /// not.
    fn read(bytes: &[u8; PREAMBLE], task: &Task) -> Option<Self> {
        let (token, rest) = bytes.split_first_chunk::<32>()?;
        let (kind, number) = rest.split_first_chunk::<4>()?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        let known = task.token.is(token);
        let ways = task.settings.direction.ways();
        let has = |way| ways.contains(&way) && number < task.settings.streams;
        match u32::from_be_bytes(*kind) {
            _ if !known => None,
            1 if has(Way::Up) => Some(Self::Up(number)),
            2 if has(Way::Down) => Some(Self::Down(number)),
            3 => Some(Self::Echo),
            _ => None,
        }
    }
}

/// The far host, as the near one sees it, while a run is on.
pub trait FarEnd: Send {
    /// Where it listens.
    fn address(&self) -> SocketAddr;

    /// Waits for the end of its part and says what it saw: flows of which it knows one side.
    ///
    /// # Errors
    /// What kept it from its part.
    fn end(self: Box<Self>) -> Result<Vec<Flow>, LabError>;
}

/// Serves one run until `over`, and then until its last connection of load has ended.
///
/// # Errors
/// The first option that a connection of load could not be given.
pub fn serve(listener: &Listener, task: &Task, over: &AtomicBool) -> Result<Vec<Flow>, LabError> {
    let run = Serving {
        task,
        began: Instant::now(),
        taken: Mutex::new(Vec::new()),
        flows: Mutex::new(Vec::new()),
        failed: Mutex::new(None),
        connections: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        while !over.load(Ordering::Acquire) {
            let Ok(stream) = listener.accept_within(LOOK_EVERY) else { continue };
            if run.connections.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
                run.connections.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let run = &run;
            scope.spawn(move || {
                // One that says nothing useful is dropped.
                let _ = run.serve(stream, over);
                run.connections.fetch_sub(1, Ordering::AcqRel);
            });
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
    began: Instant,
    /// Parts of the load that a connection has claimed: each is served once.
    taken: Mutex<Vec<(Way, u32)>>,
    flows: Mutex<Vec<Flow>>,
    failed: Mutex<Option<LabError>>,
    connections: AtomicUsize,
}

impl Serving<'_> {
    fn serve(&self, mut stream: Stream, over: &AtomicBool) -> io::Result<()> {
        let mut preamble = [0; PREAMBLE];
        read_preamble(&mut stream, &mut preamble, over)?;
        match Purpose::read(&preamble, self.task) {
            Some(Purpose::Up(number)) if self.claim(Way::Up, number) => {
                let settings = &self.task.settings;
                let reading = Reading {
                    run_began: self.began,
                    rate: settings.read_rate,
                    asks: self.task.asks(number),
                };
                let received = flow::receive(stream, &reading);
                self.keep(received.map(|received| Flow {
                    way: Way::Up,
                    stream: number,
                    aside: false,
                    received: Some(received),
                    sent: None,
                }));
            }
            Some(Purpose::Down(number)) if self.claim(Way::Down, number) => {
                self.keep(self.send(stream, number));
            }
            Some(Purpose::Echo) => echo(stream, over)?,
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
        let mut taken = lock(&self.taken);
        let free = !taken.contains(&(way, number));
        taken.push((way, number));
        free
    }

    fn keep(&self, flow: Result<Flow, SocketError>) {
        match flow {
            Ok(flow) => lock(&self.flows).push(flow),
            Err(error) => {
                let error = LabError::from_socket(error, Some(&self.task.settings.congestion));
                lock(&self.failed).get_or_insert(error);
            }
        }
    }
}

/// Reads the first bytes of a connection, within a time for all of them. Once the run is over they
/// are not waited for: a probe that was given up on the way says nothing more.
fn read_preamble(stream: &mut Stream, mut room: &mut [u8], over: &AtomicBool) -> io::Result<()> {
    let began = Instant::now();
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    while !room.is_empty() {
        if began.elapsed() > PREAMBLE_WITHIN || over.load(Ordering::Acquire) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => room = &mut room[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends back what comes, in small pieces, until it ends or the run is over.
fn echo(mut stream: Stream, over: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    let mut piece = [0; 64];
    while !over.load(Ordering::Acquire) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => stream.write_all(&piece[..length])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
