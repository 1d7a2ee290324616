//! `lab serve`: the far host's part of experiments.
//!
//! A peer with the key can make this host send and receive generated load, within [`Limits`], and
//! nothing else. A peer without the key gets a nonce, and its connection is closed after
//! [`HANDSHAKE_WITHIN`], or earlier if too many wait.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use lastbyte_host::Proc;
use lastbyte_link::Way;
use lastbyte_socket::blocking::{Stream, TcpListener};
use lastbyte_socket::{ListenOptions, SocketError, SocketOptions};

use super::channel::{Channel, ChannelError};
use super::escaped;
use super::protocol::{
    Key, Opened, ProtocolError, RESPONSE_LIMIT, Refusal, Request, Response, Role,
};
use crate::admission::{Admission, Admitted};
use crate::error::LabError;
use crate::far;
use crate::record::Flow;
use crate::run_state::RunState;
use crate::setting::Buffers;
use crate::task::Task;

/// The longest time to serve: a month.
const MAX_SERVE_TIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a peer may take to prove that it has the key, and then to send its first request.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// The most connections that have not proven the key: one more closes another.
const MAX_UNPROVEN: usize = 32;
/// The most control connections.
const MAX_CONNECTIONS: usize = 64;
/// The time between two checks whether to end.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// The time between two reports of refused peers.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How long after the end of a run its last bytes may arrive.
const DRAIN_WITHIN: Duration = Duration::from_secs(180);
/// How long a server for one experiment waits for a lost near host to reconnect.
const RETURN_WITHIN: Duration = Duration::from_secs(60);
/// The most connections of a run in each direction.
const MAX_STREAMS: u32 = 64;
/// The most runs of one server.
const MAX_RUNS: u64 = 10_000;

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes to receive, and the most to send, over all experiments.
    pub most_bytes: u64,
    /// The longest load of a run.
    pub most_time: Duration,
    /// How long to serve.
    pub serve_for: Duration,
    /// Whether to end after one experiment.
    pub once: bool,
    /// The port for load; 0 lets the kernel choose one for each run.
    pub data_port: u16,
}

/// An event of a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerEvent<'a> {
    /// Peers were refused since the last such event.
    Refused {
        /// The last peer refused.
        peer: IpAddr,
        /// Why it was refused.
        why: String,
        /// How many peers were refused.
        strangers: u64,
    },
    /// An experiment was opened, or resumed over another control connection.
    Opened {
        /// The near host.
        peer: IpAddr,
        /// Its version of the program, with control characters escaped.
        version: &'a str,
        /// Its kernel, likewise.
        kernel: &'a str,
    },
    /// A run begins.
    Run {
        /// What it is.
        task: &'a Task,
    },
    /// A run was refused.
    RunRefused {
        /// Why.
        why: &'a Refusal,
    },
    /// An experiment ended, or its control connection was lost.
    Closed {
        /// Why the connection was lost; `None` if the near host ended the experiment.
        lost: Option<String>,
        /// Bytes received by this server so far.
        received: u64,
        /// Bytes sent by this server so far.
        sent: u64,
    },
}

/// Serves experiments.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    key: Key,
    limits: Limits,
}

impl Server {
    /// Listens on an address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn listen(address: SocketAddr, key: Key, limits: Limits) -> Result<Self, SocketError> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self { listener, address, key, limits })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, or until its time or its one experiment is over. `report` receives
    /// events from several threads.
    pub fn serve(&self, stop: &AtomicBool, report: &(dyn Fn(ServerEvent<'_>) + Sync)) {
        let admission = Admission::new(MAX_UNPROVEN, MAX_CONNECTIONS);
        let service = Service {
            server: self,
            until: Instant::now() + self.limits.serve_for.min(MAX_SERVE_TIME),
            stop,
            report,
            usage: Mutex::new(Usage {
                left: [self.limits.most_bytes; 2],
                runs: 0,
                used: [0; 2],
                open: None,
                only: None,
                lost_at: None,
                done: false,
            }),
            refused: Mutex::default(),
        };
        thread::scope(|scope| {
            while service.goes_on() {
                let stream = match self.listener.accept_within(POLL_EVERY) {
                    Ok(stream) => stream,
                    Err(error) => {
                        // Without free descriptors, the connection stays queued and `accept`
                        // returns at once.
                        if error.cause.kind() != io::ErrorKind::TimedOut {
                            thread::sleep(POLL_EVERY);
                        }
                        continue;
                    }
                };
                let peer = stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
                let (Some(peer), Some(admitted)) = (peer, admission.admit(&stream)) else {
                    service.refuse(None, "too many at once");
                    continue;
                };
                let service = &service;
                let accept = move || service.accept(stream, peer, &admitted);
                // A connection for which no thread starts is closed.
                let _ = thread::Builder::new().spawn_scoped(scope, accept);
            }
            // Sessions notice the end themselves, and abort their runs.
            admission.close_unproven();
        });
        service.report_refused();
    }
}

/// A running server.
struct Service<'a> {
    server: &'a Server,
    until: Instant,
    stop: &'a AtomicBool,
    report: &'a (dyn Fn(ServerEvent<'_>) + Sync),
    usage: Mutex<Usage>,
    refused: Mutex<Refused>,
}

/// What was served so far. Pairs are up and down, as the near host sees it.
struct Usage {
    left: [u64; 2],
    used: [u64; 2],
    runs: u64,
    /// The open experiment, and a handle that closes its control connection.
    open: Option<(String, TcpStream)>,
    /// The only experiment to serve.
    only: Option<String>,
    /// When its near host was lost.
    lost_at: Option<Instant>,
    /// Whether it is over.
    done: bool,
}

#[derive(Default)]
struct Refused {
    reported_at: Option<Instant>,
    unreported: u64,
    last: Option<(IpAddr, String)>,
}

/// Why a session ended.
enum Closing {
    Bye,
    Lost(String),
}

impl From<ChannelError> for Closing {
    fn from(error: ChannelError) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Service<'_> {
    /// Does the handshake with a connection and serves its experiment.
    fn accept(&self, stream: Stream, peer: IpAddr, admitted: &Admitted<'_>) {
        let key = &self.server.key;
        let opened =
            Channel::handshake(stream, key, Role::Far, HANDSHAKE_WITHIN).and_then(|mut channel| {
                // From here on, unproven connections cannot displace it.
                admitted.set_proven();
                Ok((channel.receive_within::<Request>(HANDSHAKE_WITHIN)?, channel))
            });
        match opened {
            Ok((Request::Open { experiment, version, kernel }, mut channel)) => {
                if !self.claim(&experiment, &channel) {
                    let _ = channel.send(&Response::Busy);
                    self.refuse(Some(peer), "another experiment is running");
                    return;
                }
                let (version, kernel) = (&escaped(&version), &escaped(&kernel));
                (self.report)(ServerEvent::Opened { peer, version, kernel });
                let closing = match self.session(&mut channel) {
                    Ok(closing) | Err(closing) => closing,
                };
                self.release(closing);
            }
            Ok(_) => self.refuse(Some(peer), &ProtocolError::UnexpectedMessage.to_string()),
            Err(ChannelError::Closed) => self.refuse(Some(peer), "it did not prove the key"),
            Err(error) => self.refuse(Some(peer), &error.to_string()),
        }
    }

    /// Claims the server for an experiment. A near host that reconnects replaces its own old
    /// connection.
    fn claim(&self, experiment: &str, channel: &Channel) -> bool {
        let Ok(second) = channel.stream().as_fd().try_clone_to_owned().map(TcpStream::from) else {
            return false;
        };
        let until = Instant::now() + HANDSHAKE_WITHIN;
        loop {
            let mut usage = self.usage();
            let another = |one: &String| one != experiment;
            if usage.only.as_ref().is_some_and(another) {
                return false;
            }
            match &usage.open {
                None => {
                    if self.server.limits.once {
                        usage.only = Some(experiment.to_owned());
                    }
                    usage.lost_at = None;
                    usage.open = Some((experiment.to_owned(), second));
                    return true;
                }
                Some((one, _)) if another(one) => return false,
                Some((_, lost)) => {
                    let _ = lost.shutdown(Shutdown::Both);
                }
            }
            drop(usage);
            if Instant::now() > until || !self.goes_on() {
                return false;
            }
            thread::sleep(POLL_EVERY);
        }
    }

    fn release(&self, closing: Closing) {
        let mut usage = self.usage();
        usage.open = None;
        let [received, sent] = usage.used;
        let lost = match closing {
            Closing::Lost(why) => {
                usage.lost_at = Some(Instant::now());
                Some(why)
            }
            // A near host that made no run leaves the server free for another.
            Closing::Bye if usage.runs == 0 => {
                usage.only = None;
                None
            }
            Closing::Bye => {
                usage.done = true;
                None
            }
        };
        drop(usage);
        (self.report)(ServerEvent::Closed { lost, received, sent });
    }

    /// Serves requests until the near host ends the experiment.
    fn session(&self, channel: &mut Channel) -> Result<Closing, Closing> {
        channel.send(&Response::Opened(self.about()))?;
        let mut runs = 0;
        loop {
            let Some(request) = channel.receive(|| self.goes_on())? else {
                return Ok(Closing::Lost("this server ends".to_owned()));
            };
            match request {
                Request::Ping => channel.send(&Response::Pong)?,
                Request::Bye => return Ok(Closing::Bye),
                Request::Run { number, task } if number == runs => {
                    runs += 1;
                    self.run(channel, number, &task)?;
                }
                _ => return Err(ChannelError::from(ProtocolError::UnexpectedMessage).into()),
            }
        }
    }

    fn about(&self) -> Opened {
        let [most_bytes_up, most_bytes_down] = self.usage().left;
        Opened {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: Proc::default().kernel_release(),
            congestion: congestion_controls(),
            most_bytes_up,
            most_bytes_down,
            most_seconds: self.server.limits.most_time.as_secs(),
        }
    }

    fn run(&self, channel: &mut Channel, number: u64, task: &Task) -> Result<(), Closing> {
        let listener = match self.prepare(channel, task) {
            Ok(listener) => listener,
            Err(why) => {
                (self.report)(ServerEvent::RunRefused { why: &why });
                return Ok(channel.send(&Response::Refused(why))?);
            }
        };
        (self.report)(ServerEvent::Run { task });
        let most_time = self.server.limits.most_time;
        let until = Instant::now() + task.load.time.unwrap_or(most_time) + DRAIN_WITHIN;
        let goes_on = || self.goes_on() && Instant::now() < until;
        let (token, state) = (channel.token(number), RunState::default());
        let served = thread::scope(|scope| {
            let serving = scope.spawn(|| far::serve(&listener, task, &token, &state));
            let ended = supervise(channel, (number, &listener), &goes_on, &state, &serving);
            if ended.is_err() {
                state.abort();
            }
            let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map(|()| served)
        })?;
        self.settle(task, served.as_deref().ok());
        let answer = match served {
            Ok(flows) => Response::Done { flows: fitting(flows) },
            Err(error) => Response::Failed(refusal_of(error)),
        };
        Ok(channel.send(&answer)?)
    }

    /// Checks a task, reserves its bytes, and listens for its connections.
    fn prepare(&self, channel: &Channel, task: &Task) -> Result<TcpListener, Refusal> {
        let limits = &self.server.limits;
        check(task, limits)?;
        let Some(own) = channel.local_addr() else {
            return Err(Refusal::Far("it does not know its own address".to_owned()));
        };
        let address = match own.ip().to_canonical() {
            IpAddr::V4(own) => SocketAddr::new(own.into(), limits.data_port),
            // Keeps its scope.
            IpAddr::V6(_) => {
                let mut address = own;
                address.set_port(limits.data_port);
                address
            }
        };
        let settings = &task.settings;
        let failed =
            |error| refusal_of(LabError::from_socket(error, Some(settings.congestion.as_str())));
        let options = ListenOptions::default().socket(settings.receiver());
        let listener = TcpListener::bind_with(address, &options).map_err(failed)?;
        let congestion = SocketOptions::default().congestion(&settings.congestion);
        let set = congestion.apply_to(&listener);
        if settings.direction.ways().contains(&Way::Down) {
            // A sender's option that cannot be set fails the run here. A receiver may go without,
            // but a congestion control that needs ECN (dctcp) gets it only if both hosts set it.
            set.map_err(failed)?;
        }
        self.reserve(task)?;
        Ok(listener)
    }

    fn reserve(&self, task: &Task) -> Result<(), Refusal> {
        let mut usage = self.usage();
        let bytes = task.load.bytes.unwrap_or(u64::MAX);
        for way in task.settings.direction.ways() {
            let left = usage.left[place(*way)];
            if bytes > left {
                let why = format!("its limit leaves {left} bytes {way} (--max-bytes)");
                return Err(Refusal::Far(why));
            }
        }
        if usage.runs >= MAX_RUNS {
            return Err(Refusal::Far(format!("it has made {MAX_RUNS} runs")));
        }
        usage.runs += 1;
        task.settings.direction.ways().iter().for_each(|way| usage.left[place(*way)] -= bytes);
        Ok(())
    }

    /// Returns the unused bytes of a reservation. A failed run may have used all of it.
    fn settle(&self, task: &Task, flows: Option<&[Flow]>) {
        let mut usage = self.usage();
        let reserved = task.load.bytes.unwrap_or_default();
        for way in task.settings.direction.ways() {
            let of_way = |flow: &&Flow| flow.way == *way;
            let used = flows
                .map_or(reserved, |flows| flows.iter().filter(of_way).map(own_bytes).sum::<u64>());
            usage.used[place(*way)] += used;
            usage.left[place(*way)] += reserved.saturating_sub(used);
        }
    }

    fn refuse(&self, peer: Option<IpAddr>, why: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.unreported += 1;
        let unknown = IpAddr::from([0, 0, 0, 0]);
        refused.last = Some((peer.unwrap_or(unknown), why.to_owned()));
        if refused.reported_at.is_none_or(|reported_at| reported_at.elapsed() >= REPORT_EVERY) {
            self.report_last(&mut refused);
        }
    }

    fn report_refused(&self) {
        self.report_last(&mut self.refused.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn report_last(&self, refused: &mut Refused) {
        let Some((peer, why)) = refused.last.take() else { return };
        let strangers = std::mem::take(&mut refused.unreported);
        refused.reported_at = Some(Instant::now());
        (self.report)(ServerEvent::Refused { peer, why: escaped(&why), strangers });
    }

    fn goes_on(&self) -> bool {
        if self.stop.load(Ordering::Acquire) || Instant::now() >= self.until {
            return false;
        }
        let usage = self.usage();
        let returns = |lost_at: Instant| lost_at.elapsed() < RETURN_WITHIN;
        !self.server.limits.once || (!usage.done && usage.lost_at.is_none_or(returns))
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(way: Way) -> usize {
    usize::from(way == Way::Down)
}

/// The bytes that this host received or sent.
fn own_bytes(flow: &Flow) -> u64 {
    let received = flow.received.as_ref().map(|received| received.bytes);
    let sent = || flow.sent.as_ref().map(|sent| sent.written);
    received.or_else(sent).unwrap_or_default()
}

type Served<'scope> = ScopedJoinHandle<'scope, Result<Vec<Flow>, LabError>>;

/// Reports the run's port to the near host, and watches the control connection until the run is
/// over.
fn supervise(
    channel: &mut Channel,
    (number, listener): (u64, &TcpListener),
    goes_on: &dyn Fn() -> bool,
    state: &RunState,
    serving: &Served<'_>,
) -> Result<(), Closing> {
    let own = listener.local_addr().map_err(|error| Closing::Lost(error.to_string()))?;
    channel.send(&Response::Listening { port: own.port() })?;
    let out_of_time = || Closing::Lost("the time for the run is over".to_owned());
    match channel.receive(goes_on)? {
        Some(Request::End { number: ended }) if ended == number => state.end(),
        Some(_) => return Err(ChannelError::from(ProtocolError::UnexpectedMessage).into()),
        None => return Err(out_of_time()),
    }
    // No message is expected now, but a lost near host must be noticed.
    match channel.receive::<Request>(|| goes_on() && !serving.is_finished())? {
        Some(_) => Err(ChannelError::from(ProtocolError::UnexpectedMessage).into()),
        None if serving.is_finished() => Ok(()),
        None => Err(out_of_time()),
    }
}

/// Checks a task. Its numbers come from the other host.
fn check(task: &Task, limits: &Limits) -> Result<(), Refusal> {
    let settings = &task.settings;
    let far = |why: String| Err(Refusal::Far(why));
    if !(1..=MAX_STREAMS).contains(&settings.streams) {
        return far(format!("1 to {MAX_STREAMS} streams are allowed, not {}", settings.streams));
    }
    // TCP_CA_NAME_MAX of <net/tcp.h> is 16, the zero at the end included.
    let symbol = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !(1..16).contains(&settings.congestion.len()) || !settings.congestion.chars().all(symbol) {
        return far("that is not a name of a congestion control".to_owned());
    }
    if matches!(settings.buffers, Buffers::AutoUpTo(_)) {
        let why =
            "the sysctls of a real host are left as they are: auto with a limit needs them set";
        return Err(Refusal::Unsuited(why.to_owned()));
    }
    if task.load.bytes.is_none() {
        return far("a run needs a limit of bytes".to_owned());
    }
    if task.load.time.is_some_and(|time| time > limits.most_time) {
        let most = limits.most_time.as_secs();
        return far(format!("a run may send for {most} s at most (--max-seconds)"));
    }
    Ok(())
}

/// Thins the samples of flows until they fit into a response.
fn fitting(mut flows: Vec<Flow>) -> Vec<Flow> {
    let length = |flows: &Vec<Flow>| serde_json::to_vec(flows).map_or(0, |json| json.len());
    // Dropping every other sample changes no sum: the totals are separate.
    while length(&flows) > RESPONSE_LIMIT - (1 << 10) {
        for sent in flows.iter_mut().filter_map(|flow| flow.sent.as_mut()) {
            let mut odd = true;
            sent.samples.retain(|_| {
                odd = !odd;
                !odd
            });
        }
        for received in flows.iter_mut().filter_map(|flow| flow.received.as_mut()) {
            received.answers.truncate(received.answers.len() / 2);
        }
        if flows.iter().all(|flow| flow.sent.as_ref().is_none_or(|sent| sent.samples.len() < 2)) {
            break;
        }
    }
    flows
}

fn refusal_of(error: LabError) -> Refusal {
    match error {
        LabError::Congestion { name, why } => Refusal::Congestion { name, why },
        LabError::Unsuited(why) => Refusal::Unsuited(why),
        error => Refusal::Far(error.to_string()),
    }
}

/// The congestion controls that this process can use.
fn congestion_controls() -> Vec<String> {
    let root = lastbyte_sys::process::effective_user() == 0;
    let which = if root { "available" } else { "allowed" };
    let names = Proc::default().sysctl(&format!("net.ipv4.tcp_{which}_congestion_control"));
    let names = names.unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}
