//! Drives a race: asks the DNS questions and opens the sockets.

use std::collections::hash_map::RandomState;
use std::future::{Future, poll_fn};
use std::hash::BuildHasher;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lastbyte_core::history::History;
use lastbyte_core::order::{PolicyTable, Source};
use lastbyte_core::race::{Action, AttemptState, Candidate, Question, Race, Standing};
use lastbyte_socket::{Operation, SocketError, Stream};
use tokio::time;

use crate::destination::{Destination, ToDestination};
use crate::error::{DialError, FailedAttempt, Undialed};
use crate::host::{Host, with_port};
use crate::literal;
use crate::options::{DialOptions, Dialed, Families, Veto};
use crate::resolve::{Answer, Answers, Resolver};
use crate::sources::{Sources, system_policy, uses_ipv6};
use crate::timeline::{Event, Timeline, What};

/// Dials over tokio. Cheap to clone: clones share their history.
#[derive(Clone, Debug)]
pub struct Dialer {
    shared: Arc<SharedState>,
}

#[derive(Debug)]
struct SharedState {
    resolver: Resolver,
    policy: PolicyTable,
    history: Mutex<History>,
    began: Instant,
    chance: RandomState,
    tie_breakers: AtomicU64,
}

impl Dialer {
    /// A dialer with this resolver and an empty history.
    #[must_use]
    pub fn new(resolver: Resolver) -> Self {
        let shared = SharedState {
            resolver,
            policy: system_policy(),
            history: Mutex::default(),
            began: Instant::now(),
            chance: RandomState::new(),
            tie_breakers: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Connects to a host. If the future is dropped, no socket is left. Needs a running runtime
    /// with I/O and time.
    ///
    /// # Errors
    /// Why there is no connection, and how each attempt failed.
    pub async fn dial(
        &self,
        to: impl ToDestination,
        options: &DialOptions,
    ) -> Result<Dialed<Stream>, DialError> {
        let to = to.to_destination();
        let (host, port) = match to.parts() {
            Ok(parts) => parts,
            Err(why) => return Err(self.failed(&to, options, why)),
        };
        if port != 0
            && let Some(address) = to.address()
        {
            return literal::dial(&host, address, options).await;
        }
        // This future is large; boxed, it does not enlarge dials to addresses.
        Box::pin(Dial::new(&self.shared, &host, port, options).run()).await
    }

    /// The error of a dial that did not begin.
    pub(crate) fn failed(
        &self,
        to: &Destination<'_>,
        options: &DialOptions,
        why: Undialed,
    ) -> DialError {
        let (host, port) = to.shown();
        Dial::new(&self.shared, &host, port, options).failed(why)
    }

    /// Clears the history, for instance after a change of the network. Entries for other source
    /// addresses are never used anyway.
    pub fn forget(&self) {
        self.shared.history().clear();
    }
}

impl SharedState {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that is unpredictable without knowing `chance`.
    fn tie_breaker(&self) -> u64 {
        self.chance.hash_one(self.tie_breakers.fetch_add(1, Ordering::Relaxed))
    }
}

/// A running attempt, with its number.
type Connecting<'a> =
    Pin<Box<dyn Future<Output = (usize, Result<Stream, SocketError>)> + Send + 'a>>;

/// One dial.
struct Dial<'a> {
    shared: &'a SharedState,
    options: &'a DialOptions,
    host: &'a str,
    port: u16,
    began: Instant,
    race: Race,
    timeline: Timeline,
    answers: Option<Answers>,
    unanswered: Vec<Answer>,
    vetoed: Vec<SocketAddr>,
    connecting: FuturesUnordered<Connecting<'a>>,
    connected: Option<Stream>,
    errors: Vec<(usize, SocketError)>,
    has_learned: bool,
}

/// An event that a dial waits for.
enum Happened {
    Answer(Option<Answer>),
    Attempt(usize, Result<Stream, SocketError>),
}

impl<'a> Dial<'a> {
    fn new(shared: &'a SharedState, host: &'a str, port: u16, options: &'a DialOptions) -> Self {
        Self {
            shared,
            options,
            host,
            port,
            began: Instant::now(),
            race: Race::new(options.race, shared.policy.clone(), &[], false),
            timeline: Timeline::default(),
            answers: None,
            unanswered: Vec::new(),
            vetoed: Vec::new(),
            connecting: FuturesUnordered::new(),
            connected: None,
            errors: Vec::new(),
            has_learned: false,
        }
    }

    async fn run(mut self) -> Result<Dialed<Stream>, DialError> {
        if let Err(why) = self.ask() {
            return Err(self.failed(why));
        }
        loop {
            match self.race.next(self.now()) {
                Action::Start { attempt, address, because } => {
                    self.note(What::Started { attempt, address, because });
                    let connect = Stream::connect_with(address, &self.options.connect);
                    self.connecting.push(Box::pin(connect.map(move |result| (attempt, result))));
                }
                Action::Wait { until } => self.wait(until).await,
                Action::Connected { attempt } => return self.won(attempt),
                Action::Exhausted if self.race.attempts().is_empty() => {
                    let vetoed = mem::take(&mut self.vetoed);
                    return Err(self.failed(match &vetoed[..] {
                        [] => Undialed::NoAddress,
                        _ => Undialed::Vetoed(vetoed),
                    }));
                }
                Action::Exhausted => return Err(self.failed(Undialed::AllFailed)),
                Action::TimedOut => return Err(self.failed(Undialed::TimedOut)),
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn note(&mut self, what: What) {
        let at = self.now();
        self.timeline.events.push(Event { at, what });
    }

    /// Asks for the addresses of the host.
    fn ask(&mut self) -> Result<(), Undialed> {
        if self.port == 0 {
            return Err(Undialed::BadPort);
        }
        let name = match Host::parse(self.host, self.port)? {
            Host::Literal(_) => unreachable!("an address is dialed without a race"),
            Host::Name(name) => name,
        };
        let is_local = self.shared.resolver.is_local(&name);
        let questions = questions(self.options, is_local);
        let trial = self.shared.history().trial_is_due(self.host);
        let policy = self.shared.policy.clone();
        self.race = Race::new(self.options.race, policy, questions, trial);
        for question in questions {
            self.note(What::Asked(*question));
        }
        self.answers = Some(self.shared.resolver.ask(&name, questions));
        Ok(())
    }

    /// Whether the veto forbids this address; records it if so.
    fn is_vetoed(&mut self, address: SocketAddr) -> bool {
        let vetoed = self.options.veto.as_ref().is_some_and(|Veto(forbids)| forbids(address));
        if vetoed && !self.vetoed.contains(&address) {
            self.vetoed.push(address);
        }
        vetoed
    }

    fn candidate(
        &self,
        address: SocketAddr,
        source: Option<Source>,
        standing: Standing,
    ) -> Candidate {
        Candidate { address, source, standing, service: 0, tie_breaker: self.shared.tie_breaker() }
    }

    /// Waits for the next event, and takes all others that are ready: the race must see an answer
    /// that has arrived before it decides on another one, and a connection made while this process
    /// was stopped.
    async fn wait(&mut self, until: Duration) {
        // A time beyond the clock's range counts as never, as in tokio.
        let far = || self.began + Duration::from_secs(86_400 * 365 * 30);
        let until = self.began.checked_add(until).unwrap_or_else(far);
        let mut happened = time::timeout_at(until.into(), self.next()).await.ok();
        while let Some(one) = happened {
            match one {
                Happened::Answer(None) => self.answers = None,
                Happened::Answer(Some(answer)) => self.on_answer(answer),
                Happened::Attempt(attempt, result) => self.on_attempt(attempt, result),
            }
            happened = self.next().now_or_never();
        }
    }

    async fn next(&mut self) -> Happened {
        let Self { answers, connecting, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(Some((attempt, result))) = connecting.poll_next_unpin(cx) {
                return Poll::Ready(Happened::Attempt(attempt, result));
            }
            match answers {
                Some(answers) => answers.poll_next(cx).map(Happened::Answer),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn on_answer(&mut self, answer: Answer) {
        let now = self.shared.began.elapsed();
        let addresses = answer.found.as_ref().map_or(&[][..], |found| &found.addresses);
        let mut sources = Sources::new(&self.options.connect);
        let port = self.port;
        let addresses = addresses.iter().map(|address| with_port(*address, port));
        let addresses: Vec<SocketAddr> = addresses.filter(|to| !self.is_vetoed(*to)).collect();
        let candidates: Vec<Candidate> = addresses
            .into_iter()
            .map(|address| {
                let source = sources.source_for(address);
                let standing = source.map_or(Standing::Unknown, |source| {
                    self.shared.history().standing(self.host, address, source.address, now)
                });
                self.candidate(address, source, standing)
            })
            .collect();
        self.race.on_answer(answer.question, &candidates, self.now());
        if answer.found.is_err() {
            self.unanswered.push(answer.clone());
        }
        self.note(What::Answered(answer));
    }

    fn on_attempt(&mut self, attempt: usize, result: Result<Stream, SocketError>) {
        let now = self.now();
        match result {
            Ok(stream) => {
                self.race.on_connected(attempt, now);
                let local = stream.local_addr().ok();
                if self.connected.is_none() {
                    self.connected = Some(stream);
                    self.note(What::Connected { attempt, local });
                } else {
                    stream.discard();
                    self.note(What::Cancelled { attempt, connected: true });
                }
            }
            Err(error) => {
                self.race.on_failed(attempt, now);
                self.note(What::Failed { attempt, error: error.to_string() });
                self.errors.push((attempt, error));
            }
        }
    }

    fn won(mut self, attempt: usize) -> Result<Dialed<Stream>, DialError> {
        self.cancel(Some(attempt));
        self.learn();
        match self.connected.take() {
            Some(stream) => {
                self.timeline.took = self.now();
                Ok(Dialed { stream, timeline: mem::take(&mut self.timeline) })
            }
            None => unreachable!("on_attempt stored the connection before the race knew of it"),
        }
    }

    /// Cancels all running attempts. One that has connected meanwhile is reset unused.
    fn cancel(&mut self, winner: Option<usize>) {
        while let Some(Some((attempt, result))) = self.connecting.next().now_or_never() {
            match result {
                Ok(stream) => {
                    stream.discard();
                    self.race.on_connected(attempt, self.now());
                    self.note(What::Cancelled { attempt, connected: true });
                }
                error => self.on_attempt(attempt, error),
            }
        }
        self.connecting.clear();
        let running = self.race.attempts().iter().enumerate();
        let running: Vec<usize> = running
            .filter(|(number, attempt)| {
                attempt.state == AttemptState::Running && Some(*number) != winner
            })
            .map(|(number, _)| number)
            .collect();
        for attempt in running {
            self.note(What::Cancelled { attempt, connected: false });
        }
    }

    /// Records this race in the history, once.
    fn learn(&mut self) {
        let has_learned = mem::replace(&mut self.has_learned, true);
        // Without a source address there is nothing to record.
        if !has_learned
            && self.race.attempts().iter().any(|attempt| attempt.candidate.source.is_some())
        {
            let now = self.shared.began.elapsed();
            let verdicts = self.race.verdicts(self.now());
            let verdicts = verdicts.filter(|(candidate, _)| !self.failed_here(candidate.address));
            self.shared.history().record(self.host, verdicts, now);
        }
    }

    /// Whether the attempt failed because of this host: an option, or no descriptor, port or
    /// memory. It would fail for any other address too, so it says nothing about this one.
    fn failed_here(&self, address: SocketAddr) -> bool {
        use io::ErrorKind::{
            ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
            NetworkUnreachable, TimedOut,
        };
        let to = |number: usize| self.race.attempts()[number].candidate.address;
        let error = self.errors.iter().find(|(attempt, _)| to(*attempt) == address);
        error.is_some_and(|(_, error)| {
            let network_said = matches!(
                error.cause.kind(),
                ConnectionAborted
                    | ConnectionRefused
                    | ConnectionReset
                    | HostUnreachable
                    | NetworkUnreachable
                    | TimedOut
            );
            !network_said || error.operation != Operation::Connect
        })
    }

    fn failed(mut self, why: Undialed) -> DialError {
        self.cancel(None);
        self.learn();
        self.timeline.took = self.now();
        let mut errors = mem::take(&mut self.errors);
        let attempts = self.race.attempts().iter().enumerate().map(|(number, attempt)| {
            let error = errors.iter().position(|(of, _)| *of == number);
            FailedAttempt {
                address: attempt.candidate.address,
                started: attempt.started,
                error: error.map(|at| errors.swap_remove(at).1),
            }
        });
        DialError {
            host: self.host.to_owned(),
            port: self.port,
            why,
            attempts: attempts.collect(),
            unanswered: mem::take(&mut self.unanswered),
            open: self.race.unanswered().to_vec(),
            timeline: mem::take(&mut self.timeline),
        }
    }
}

/// However a dial ends, also by a time-out of somebody else who drops it, the next one knows more.
impl Drop for Dial<'_> {
    fn drop(&mut self) {
        self.learn();
    }
}

/// What to ask for: the families that may be used and that there is a source for. Where this host has
/// no IPv6 but on its links, no answer of DNS is worth waiting for.
fn questions(options: &DialOptions, is_local: bool) -> &'static [Question] {
    let sources = &options.connect.sources;
    let from = |ipv6: bool| sources.is_empty() || sources.iter().any(|own| own.is_ipv6() == ipv6);
    match options.families {
        Families::Both if !from(true) => &[Question::A],
        Families::Both if !from(false) => &[Question::Aaaa],
        Families::Both if !is_local && !uses_ipv6() => &[Question::A],
        Families::Both => &[Question::Aaaa, Question::A],
        Families::Ipv4 => &[Question::A],
        Families::Ipv6 => &[Question::Aaaa],
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::net::TcpListener;

    use tokio::runtime;

    use super::*;

    /// As after a stop of the whole process: the deadline is over, one attempt has failed and another
    /// one has connected meanwhile.
    #[test]
    fn a_connection_that_is_there_wins_over_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (peer, nobody) = (listener.local_addr().unwrap(), "127.0.0.1:1".parse().unwrap());
        let dialer = Dialer::new(Resolver::dns_from("", "").unwrap());
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = DialOptions::default();
        let mut dial = Dial::new(&dialer.shared, "h", 80, &options);
        let candidates = [nobody, peer].map(|to| dial.candidate(to, None, Standing::Unknown));
        dial.race.on_answer(Question::A, &candidates, Duration::ZERO);
        for seconds in 0..2 {
            let now = Duration::from_secs(seconds);
            assert!(matches!(dial.race.next(now), Action::Start { .. }));
        }
        runtime.block_on(async {
            for (number, attempt) in dial.race.attempts().iter().enumerate() {
                let to = attempt.candidate.address;
                let result = Stream::connect_with(to, &options.connect).await;
                dial.connecting.push(Box::pin(ready((number, result))));
            }
            dial.wait(Duration::ZERO).await;
        });
        let last = dial.race.next(options.race.deadline);
        assert!(matches!(last, Action::Connected { .. }), "{last:?}");
        let Action::Connected { attempt } = last else { return };
        assert_eq!(dial.won(attempt).unwrap().stream.peer_addr().unwrap(), peer);
    }
}
