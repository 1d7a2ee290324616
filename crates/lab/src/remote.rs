//! A far host that is another machine: what the near one asks of it, over one control connection.
//!
//! [`Server`] is the far host's part, [`Remote`] the near one's, [`protocol`] what they say.
//! [`Place`] is a far host as a word, [`Ssh`] starts its part there.

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
use crate::far::{FarEnd, Task, Token};
use crate::record::{Flow, PathWords};
use channel::Channel;
pub use channel::ChannelError;
pub use place::{InvalidPlace, Place};
use protocol::{Answer, Key, Opened, Refusal, Request, Role};
pub use server::{Limits, Note, Server};
pub use ssh::{ServeCommand, Ssh, SshError};

/// How long the far host may take to prove that it has the key.
const GREET_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may take for which nothing is done.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How long the far host may take to end its part: as long as a sender may take to prove its last
/// bytes, and a reader to miss them.
const END_WITHIN: Duration = Duration::from_secs(180);
/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Before each attempt to find a lost far host again.
const WAITS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];
/// Round trips that the idle path is known by.
const PINGS: usize = 5;

/// A far host could not be won for an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The control connection.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// Another experiment is on there.
    #[error("another experiment is on there: one at a time")]
    Busy,
}

/// A far host that runs `lab serve`, and has this experiment open.
#[derive(Debug)]
pub struct Remote {
    name: String,
    address: SocketAddr,
    key: Key,
    experiment: String,
    about: Opened,
    rtt: Duration,
    /// What may still be asked for, up and down.
    most_bytes: [u64; 2],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    channel: Option<Channel>,
    /// Runs of this session.
    runs: u64,
    /// Bytes asked for so far, up and down.
    asked: [u64; 2],
}

impl Remote {
    /// Opens an experiment over a connection to a far host. `name` is what the user calls it; at most
    /// `most_bytes` are ever asked for in each direction, whatever the far host would allow.
    ///
    /// # Errors
    /// Where it is none, has another key, speaks another version of the protocol, or is busy.
    pub fn open(
        stream: Stream,
        name: &str,
        key: Key,
        most_bytes: u64,
    ) -> Result<Arc<Self>, RemoteError> {
        let address = stream.peer_addr().map_err(|_| ChannelError::Closed)?;
        let drawn = protocol::random::<16>().map_err(ChannelError::Io)?;
        let experiment: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        let (mut channel, about) = begin(stream, &key, &experiment)?;
        let rtt = idle_rtt(&mut channel)?;
        let most_bytes =
            [about.most_bytes_up, about.most_bytes_down].map(|far| far.min(most_bytes));
        let state = State { channel: Some(channel), runs: 0, asked: [0; 2] };
        let name = name.to_owned();
        let state = Mutex::new(state);
        Ok(Arc::new(Self { name, address, key, experiment, about, rtt, most_bytes, state }))
    }

    /// What the far host is, and what it allows.
    #[must_use]
    pub fn about(&self) -> &Opened {
        &self.about
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// The most bytes that all runs together may ask for, up and down.
    #[must_use]
    pub fn most_bytes(&self) -> [u64; 2] {
        self.most_bytes
    }

    /// The smallest round trip of the idle path, as the control connection saw it.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The path in words and figures.
    #[must_use]
    pub fn words(&self) -> PathWords {
        let Opened { version, kernel, .. } = &self.about;
        PathWords {
            name: self.name.clone(),
            emulated: false,
            words: format!(
                "to {} (lastbyte {version}, Linux {kernel}), idle round trip {:.2} ms",
                self.address.ip().to_canonical(),
                self.rtt.as_secs_f64() * 1e3
            ),
            rtt: Some(self.rtt),
            ..PathWords::default()
        }
    }

    /// Asks the far host to listen for a run. A lost control connection is made anew before.
    ///
    /// # Errors
    /// What the far host cannot do; [`LabError::Lost`] where the connection was lost meanwhile, and
    /// [`LabError::Gone`] where the far host is not to be found again.
    pub(crate) fn run(self: &Arc<Self>, task: &Task) -> Result<RemoteFar, LabError> {
        let mut state = self.lock();
        let asked = self.asked_with(state.asked, task)?;
        if state.channel.is_none() {
            state.channel = Some(self.find_again()?);
            state.runs = 0;
        }
        let number = state.runs;
        let request = Request::Run { number, task: task.clone() };
        match self.ask(&mut state, &request, ANSWER_WITHIN)? {
            Answer::Listening { port } => {
                state.runs += 1;
                state.asked = asked;
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
            Answer::Refused(refusal) => {
                state.runs += 1;
                Err(refusal.into())
            }
            _ => Err(self.out_of_turn(&mut state)),
        }
    }

    /// Says that the experiment is over, so that the far host is free for the next.
    pub fn bye(&self) {
        if let Some(mut channel) = self.lock().channel.take() {
            // It would notice by itself.
            let _ = channel.send(&Request::Bye);
        }
    }

    /// What has been asked for with one more run: the limits hold over all of them, whoever made
    /// the plan.
    fn asked_with(&self, mut asked: [u64; 2], task: &Task) -> Result<[u64; 2], LabError> {
        let Some(bytes) = task.load.bytes else {
            let why = "a run over a real path needs a limit of bytes";
            return Err(LabError::Unsuited(why.to_owned()));
        };
        for way in task.settings.direction.ways() {
            let place = usize::from(*way == Way::Down);
            asked[place] = asked[place].saturating_add(bytes);
            if asked[place] > self.most_bytes[place] {
                return Err(LabError::Gone(format!(
                    "the {} bytes that may go {way} are used up",
                    self.most_bytes[place]
                )));
            }
        }
        Ok(asked)
    }

    fn find_again(&self) -> Result<Channel, LabError> {
        let mut last = None;
        for wait in WAITS {
            thread::sleep(wait);
            let stream = Stream::connect_with(
                self.address,
                &ConnectOptions::default().socket(channel::tune()).within(CONNECT_WITHIN),
            );
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => {
                    // Nobody listens: a server that was started again has another key.
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

    fn ask(
        &self,
        state: &mut State,
        request: &Request,
        within: Duration,
    ) -> Result<Answer, LabError> {
        let Some(channel) = &mut state.channel else {
            return Err(LabError::Lost("there is no session".to_owned()));
        };
        let answer = channel.send(request).and_then(|()| channel.receive_within(within));
        answer.map_err(|error| {
            state.channel = None;
            LabError::Lost(error.to_string())
        })
    }

    fn out_of_turn(&self, state: &mut State) -> LabError {
        state.channel = None;
        LabError::Lost(protocol::ProtocolError::OutOfTurn.to_string())
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

/// Proves, and opens the experiment.
fn begin(stream: Stream, key: &Key, experiment: &str) -> Result<(Channel, Opened), RemoteError> {
    let mut channel = Channel::greet(stream, key, Role::Near, GREET_WITHIN)?;
    channel.send(&Request::Open {
        experiment: experiment.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: Proc::default().kernel_release(),
    })?;
    match channel.receive_within(ANSWER_WITHIN)? {
        Answer::Opened(mut opened) => {
            opened.version = plain(&opened.version);
            opened.kernel = plain(&opened.kernel);
            opened.congestion.truncate(64);
            opened.congestion.iter_mut().for_each(|name| *name = plain(name));
            Ok((channel, opened))
        }
        Answer::Busy => Err(RemoteError::Busy),
        _ => Err(ChannelError::Protocol(protocol::ProtocolError::OutOfTurn).into()),
    }
}

/// The smallest of a few round trips.
fn idle_rtt(channel: &mut Channel) -> Result<Duration, ChannelError> {
    let mut least = Duration::MAX;
    for _ in 0..PINGS {
        let asked = Instant::now();
        channel.send(&Request::Ping)?;
        let Answer::Pong = channel.receive_within(ANSWER_WITHIN)? else {
            return Err(protocol::ProtocolError::OutOfTurn.into());
        };
        least = least.min(asked.elapsed());
    }
    Ok(least)
}

/// A text of the other host's, without what a terminal would obey, and not endless.
fn plain(text: &str) -> String {
    const MOST: usize = 300;
    let escaped = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        c => c.escape_debug().collect(),
    };
    text.chars().take(MOST).map(escaped).collect()
}

impl From<Refusal> for LabError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Congestion { name, why } => Self::Congestion {
                name: plain(&name),
                why: format!("on the far host: {}", plain(&why)),
            },
            Refusal::Unsuited(why) => Self::Unsuited(plain(&why)),
            Refusal::Far(why) => Self::Far(plain(&why)),
        }
    }
}

/// A run on a far host.
#[derive(Debug)]
pub(crate) struct RemoteFar {
    /// `None` once its end was asked for.
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
        match remote.ask(&mut state, &Request::End { number: self.number }, END_WITHIN)? {
            Answer::Done { mut flows } => {
                let most = 2 * self.streams as usize;
                if flows.len() > most
                    || !flows.iter().all(|flow| protocol::is_sane(flow, self.streams))
                {
                    return Err(LabError::Far("it counted what cannot be".to_owned()));
                }
                for sent in flows.iter_mut().filter_map(|flow| flow.sent.as_mut()) {
                    sent.level = plain(&sent.level);
                    sent.congestion = plain(&sent.congestion);
                    sent.failure = sent.failure.as_deref().map(plain);
                }
                Ok(flows)
            }
            Answer::Failed(refusal) => Err(refusal.into()),
            _ => Err(remote.out_of_turn(&mut state)),
        }
    }
}

/// A run that was given up ends with its session: the next begins a new one.
impl Drop for RemoteFar {
    fn drop(&mut self) {
        if let Some(remote) = &self.remote {
            remote.lock().channel = None;
        }
    }
}
