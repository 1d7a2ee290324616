//! A real far host, which the near host commands over one control connection.
//!
//! [`Server`] is the far host's part, [`Remote`] the near host's, [`protocol`] their messages.
//! [`Place`] names a far host, [`Ssh`] starts its part there.

mod channel;
mod place;
pub mod protocol;
mod server;
mod ssh;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_host::Proc;
use lastbyte_link::Way;
use lastbyte_socket::ConnectOptions;
use lastbyte_socket::blocking::Stream;

use crate::error::LabError;
use crate::far::FarEnd;
use crate::record::{Flow, PathDescription};
use crate::task::{Task, Token, random};
use channel::Channel;
pub use channel::ChannelError;
pub use place::{InvalidPlace, Place};
use protocol::{Key, Opened, Refusal, Request, Response, Role};
pub use server::{Limits, Server, ServerEvent};
pub use ssh::{ServeCommand, Ssh, SshError};

/// How long the handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a response may take that needs no work.
const RESPONSE_WITHIN: Duration = Duration::from_secs(15);
/// How long the far host may take to end its part: a sender's time to prove its last bytes, and a
/// reader's time-out.
const END_WITHIN: Duration = Duration::from_secs(180);
/// How long a connection attempt may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The delay before each attempt to reconnect to a far host.
const RECONNECT_DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];
/// How many round trips measure the idle path.
const PINGS: usize = 5;

/// An experiment could not be opened on a far host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The control connection failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Another experiment is running there.
    #[error("the far host runs another experiment; it takes one at a time")]
    Busy,
}

/// A far host that runs `lab serve` and has opened this experiment.
#[derive(Debug)]
pub struct Remote {
    name: String,
    address: SocketAddr,
    key: Key,
    experiment: String,
    about: Opened,
    rtt: Duration,
    /// The most bytes that all runs together may request, up and down.
    most_bytes: [u64; 2],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    channel: Option<Channel>,
    /// Runs of this session.
    runs: u64,
    /// Bytes requested so far, up and down.
    requested: [u64; 2],
}

impl Remote {
    /// Opens an experiment over a connection to a far host. `name` is the user's name for it. At
    /// most `most_bytes` are requested in each direction, even if the far host allows more.
    ///
    /// # Errors
    /// If the peer is no `lab serve`, has another key, speaks another version of the protocol, or
    /// is busy.
    pub fn open(
        stream: Stream,
        name: &str,
        key: Key,
        most_bytes: u64,
    ) -> Result<Arc<Self>, RemoteError> {
        let address = stream.peer_addr().map_err(|_| ChannelError::Closed)?;
        let random_bytes = random::<16>().map_err(ChannelError::Io)?;
        let experiment: String = random_bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mut channel, about) = begin(stream, &key, &experiment)?;
        let rtt = idle_rtt(&mut channel)?;
        let most_bytes =
            [about.most_bytes_up, about.most_bytes_down].map(|far| far.min(most_bytes));
        let state = State { channel: Some(channel), runs: 0, requested: [0; 2] };
        let name = name.to_owned();
        let state = Mutex::new(state);
        Ok(Arc::new(Self { name, address, key, experiment, about, rtt, most_bytes, state }))
    }

    /// The far host's version and limits.
    #[must_use]
    pub fn about(&self) -> &Opened {
        &self.about
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// The most bytes that all runs together may request, up and down.
    #[must_use]
    pub fn most_bytes(&self) -> [u64; 2] {
        self.most_bytes
    }

    /// The smallest round-trip time of the idle path, measured on the control connection.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The path, described in a sentence and in figures.
    #[must_use]
    pub fn description(&self) -> PathDescription {
        let Opened { version, kernel, .. } = &self.about;
        PathDescription {
            name: self.name.clone(),
            emulated: false,
            description: format!(
                "to {} (lastbyte {version}, Linux {kernel}), idle round trip {:.2} ms",
                self.address.ip().to_canonical(),
                self.rtt.as_secs_f64() * 1e3
            ),
            rtt: Some(self.rtt),
            ..PathDescription::default()
        }
    }

    /// Asks the far host to listen for a run. Reconnects first if the control connection was lost.
    ///
    /// # Errors
    /// The far host's refusal; [`LabError::Lost`] if the connection was lost, and
    /// [`LabError::Gone`] if the far host cannot be reached again.
    pub(crate) fn run(self: &Arc<Self>, task: &Task) -> Result<RemoteFar, LabError> {
        let mut state = self.lock();
        let requested = self.requested_with(state.requested, task)?;
        if state.channel.is_none() {
            state.channel = Some(self.reconnect()?);
            state.runs = 0;
        }
        let number = state.runs;
        let request = Request::Run { number, task: task.clone() };
        match self.request(&mut state, &request, RESPONSE_WITHIN)? {
            Response::Listening { port } => {
                state.runs += 1;
                state.requested = requested;
                let token = match &state.channel {
                    Some(channel) => channel.token(number),
                    None => return Err(LabError::Lost("there is no session".to_owned())),
                };
                let mut address = self.address;
                address.set_port(port);
                let remote = Some(Arc::clone(self));
                let streams = task.settings.streams;
                Ok(RemoteFar { remote, number, address, token, streams })
            }
            Response::Refused(refusal) => {
                state.runs += 1;
                Err(refusal.into())
            }
            _ => Err(self.unexpected_message(&mut state)),
        }
    }

    /// Ends the experiment, so that the far host is free for the next.
    pub fn bye(&self) {
        if let Some(mut channel) = self.lock().channel.take() {
            // If this fails, the far host sees the connection close.
            let _ = channel.send(&Request::Bye);
        }
    }

    /// The bytes requested, with those of one more run; the limits apply to the sum.
    fn requested_with(&self, mut requested: [u64; 2], task: &Task) -> Result<[u64; 2], LabError> {
        let Some(bytes) = task.load.bytes else {
            let why = "a run over a real path needs a limit of bytes";
            return Err(LabError::Unsuited(why.to_owned()));
        };
        for way in task.settings.direction.ways() {
            let index = usize::from(*way == Way::Down);
            requested[index] = requested[index].saturating_add(bytes);
            if requested[index] > self.most_bytes[index] {
                return Err(LabError::Gone(format!(
                    "the {} bytes that may go {way} are used up",
                    self.most_bytes[index]
                )));
            }
        }
        Ok(requested)
    }

    fn reconnect(&self) -> Result<Channel, LabError> {
        let mut last = None;
        for wait in RECONNECT_DELAYS {
            thread::sleep(wait);
            let stream = Stream::connect_with(
                self.address,
                &ConnectOptions::default().socket(channel::socket_options()).within(CONNECT_WITHIN),
            );
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    // Connection refused: a server that was restarted has another key.
                    let is_over = error.cause.kind() == std::io::ErrorKind::ConnectionRefused;
                    last = Some(error.to_string());
                    if is_over {
                        break;
                    }
                    continue;
                }
            };
            match begin(stream, &self.key, &self.experiment) {
                Ok((channel, _)) => return Ok(channel),
                Err(error) => last = Some(error.to_string()),
            }
        }
        Err(LabError::Gone(last.unwrap_or_default()))
    }

    fn request(
        &self,
        state: &mut State,
        request: &Request,
        within: Duration,
    ) -> Result<Response, LabError> {
        let Some(channel) = &mut state.channel else {
            return Err(LabError::Lost("there is no session".to_owned()));
        };
        let response = channel.send(request).and_then(|()| channel.receive_within(within));
        response.map_err(|error| {
            state.channel = None;
            LabError::Lost(error.to_string())
        })
    }

    fn unexpected_message(&self, state: &mut State) -> LabError {
        state.channel = None;
        LabError::Lost(protocol::ProtocolError::UnexpectedMessage.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.bye();
    }
}

/// Does the handshake and opens the experiment.
fn begin(stream: Stream, key: &Key, experiment: &str) -> Result<(Channel, Opened), RemoteError> {
    let mut channel = Channel::handshake(stream, key, Role::Near, HANDSHAKE_WITHIN)?;
    channel.send(&Request::Open {
        experiment: experiment.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: Proc::default().kernel_release(),
    })?;
    match channel.receive_within(RESPONSE_WITHIN)? {
        Response::Opened(mut opened) => {
            opened.version = escaped(&opened.version);
            opened.kernel = escaped(&opened.kernel);
            opened.congestion.truncate(64);
            opened.congestion.iter_mut().for_each(|name| *name = escaped(name));
            Ok((channel, opened))
        }
        Response::Busy => Err(RemoteError::Busy),
        _ => Err(ChannelError::Protocol(protocol::ProtocolError::UnexpectedMessage).into()),
    }
}

/// Measures the smallest of a few round trips.
fn idle_rtt(channel: &mut Channel) -> Result<Duration, ChannelError> {
    let mut least = Duration::MAX;
    for _ in 0..PINGS {
        let requested = Instant::now();
        channel.send(&Request::Ping)?;
        let Response::Pong = channel.receive_within(RESPONSE_WITHIN)? else {
            return Err(protocol::ProtocolError::UnexpectedMessage.into());
        };
        least = least.min(requested.elapsed());
    }
    Ok(least)
}

/// Text of the other host, with control characters escaped, and truncated.
fn escaped(text: &str) -> String {
    const MAX: usize = 300;
    let escaped = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        c => c.escape_debug().collect(),
    };
    text.chars().take(MAX).map(escaped).collect()
}

impl From<Refusal> for LabError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Congestion { name, why } => Self::Congestion {
                name: escaped(&name),
                why: format!("on the far host: {}", escaped(&why)),
            },
            Refusal::Unsuited(why) => Self::Unsuited(escaped(&why)),
            Refusal::Far(why) => Self::Far(escaped(&why)),
        }
    }
}

/// A run on a far host.
#[derive(Debug)]
pub(crate) struct RemoteFar {
    /// `None` once its end was requested.
    remote: Option<Arc<Remote>>,
    number: u64,
    address: SocketAddr,
    token: Token,
    streams: u32,
}

impl FarEnd for RemoteFar {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn token(&self) -> Token {
        self.token
    }

    fn end(mut self: Box<Self>) -> Result<Vec<Flow>, LabError> {
        let Some(remote) = self.remote.take() else { return Ok(Vec::new()) };
        let mut state = remote.lock();
        match remote.request(&mut state, &Request::End { number: self.number }, END_WITHIN)? {
            Response::Done { mut flows } => {
                let most = 2 * self.streams as usize;
                if flows.len() > most || !flows.iter().all(|flow| flow.is_plausible(self.streams)) {
                    return Err(LabError::Far("its figures are impossible".to_owned()));
                }
                for sent in flows.iter_mut().filter_map(|flow| flow.sent.as_mut()) {
                    sent.level = escaped(&sent.level);
                    sent.congestion = escaped(&sent.congestion);
                    sent.failure = sent.failure.as_deref().map(escaped);
                }
                Ok(flows)
            }
            Response::Failed(refusal) => Err(refusal.into()),
            _ => Err(remote.unexpected_message(&mut state)),
        }
    }
}

/// A run that is given up ends the session: the next run begins a new one.
impl Drop for RemoteFar {
    fn drop(&mut self) {
        if let Some(remote) = &self.remote {
            remote.lock().channel = None;
        }
    }
}
