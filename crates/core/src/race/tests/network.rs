//! A network without packets: what is answered and when, and what each address does. It drives a
//! race through time that is only counted. The fuzzer uses it too.

#![allow(missing_docs, unreachable_pub, reason = "for tests alone")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "for tests alone")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lastbyte_core::history::History;
use lastbyte_core::order::{PolicyTable, Source};
use lastbyte_core::race::{
    Action, Attempt, AttemptState, Because, Candidate, Parameters, Question, Race, Standing,
    TRIAL_HEAD_START,
};

/// What an address does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It accepts, after this time.
    Accepts(Duration),
    /// It refuses, after this time.
    Refuses(Duration),
    /// It never answers.
    Silent,
}

/// A host: what is answered to each question, when, and what its addresses do.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Question, when it is answered (`None`: never), and with which addresses.
    pub answers: Vec<(Question, Option<Duration>, Vec<SocketAddr>)>,
    /// What the addresses do; others are silent.
    pub peers: Vec<(SocketAddr, Peer)>,
}

/// How a race went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The race at its end.
    pub race: Race,
    /// Its last word.
    pub last: Action,
    /// When that was.
    pub at: Duration,
    /// When each attempt began, and where to.
    pub started: Vec<(Duration, SocketAddr)>,
}

impl Outcome {
    /// The address that won.
    pub fn winner(&self) -> Option<SocketAddr> {
        match self.last {
            Action::Connected { attempt } => Some(self.started[attempt].1),
            _ => None,
        }
    }
}

/// The address that this host has in each family.
pub fn source_for(address: IpAddr) -> Source {
    let own = if address.is_ipv6() { "2001:db8::fe" } else { "192.0.2.254" };
    Source::new(own.parse().expect("it is an address"))
}

impl Network {
    /// Races through it. What is left to chance comes from `tie_breaker`; what earlier races told, and when
    /// this one begins, from `history`.
    pub fn race(
        &self,
        parameters: Parameters,
        history: Option<(&mut History, Duration)>,
        tie_breaker: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let questions: Vec<Question> =
            self.answers.iter().map(|(question, ..)| *question).collect();
        let (mut history, began) = history.unzip();
        let began = began.unwrap_or_default();
        let trial = history.as_ref().is_some_and(|history| history.trial_is_due("host"));
        let mut race = Race::new(parameters, PolicyTable::default(), &questions, trial);
        let mut events = self.events();
        let (mut now, mut started) = (Duration::ZERO, Vec::new());
        // Each step starts an attempt, or takes an event, or lets time pass to where it is asked to:
        // at most once more than there are events, and once for each delay.
        let steps = 1000 + 10 * events.len();
        for _ in 0..steps {
            match race.next(now) {
                Action::Start { attempt, address, .. } => {
                    assert_eq!(attempt, started.len(), "attempts are numbered in their order");
                    started.push((now, address));
                    events.extend(match self.peer(address) {
                        Peer::Accepts(after) => Some((now + after, Event::Connected(attempt))),
                        Peer::Refuses(after) => Some((now + after, Event::Failed(attempt))),
                        Peer::Silent => None,
                    });
                }
                Action::Wait { until } => {
                    assert!(until > now, "a wait until now would spin: {until:?} at {now:?}");
                    let next = events.iter().enumerate().min_by_key(|(_, (at, _))| *at);
                    match next.map(|(index, (at, _))| (index, *at)) {
                        Some((index, at)) if at <= until => {
                            now = now.max(at);
                            let (_, event) = events.remove(index);
                            let known = |address: SocketAddr| match &history {
                                Some(history) => {
                                    let own = source_for(address.ip()).address;
                                    history.standing("host", address, own, began + now)
                                }
                                None => Standing::Unknown,
                            };
                            Self::enter(&mut race, event, now, &known, tie_breaker);
                        }
                        _ => now = until,
                    }
                }
                last => {
                    if let Some(history) = history.as_deref_mut() {
                        history.record("host", race.verdicts(now), began + now);
                    }
                    return Outcome { race, last, at: now, started };
                }
            }
        }
        panic!("the race has no end: {race:?} at {now:?}");
    }

    fn events(&self) -> Vec<(Duration, Event<'_>)> {
        self.answers
            .iter()
            .filter_map(|(question, at, addresses)| {
                Some(((*at)?, Event::Answered(*question, addresses)))
            })
            .collect()
    }

    fn peer(&self, address: SocketAddr) -> Peer {
        let known = self.peers.iter().find(|(of, _)| *of == address);
        known.map_or(Peer::Silent, |(_, peer)| *peer)
    }

    fn enter(
        race: &mut Race,
        event: Event<'_>,
        now: Duration,
        known: &dyn Fn(SocketAddr) -> Standing,
        tie_breaker: &mut dyn FnMut() -> u64,
    ) {
        match event {
            Event::Connected(attempt) => race.on_connected(attempt, now),
            Event::Failed(attempt) => race.on_failed(attempt, now),
            Event::Answered(question, addresses) => {
                let candidate = |address: &SocketAddr| Candidate {
                    address: *address,
                    source: Some(source_for(address.ip())),
                    standing: known(*address),
                    service: 0,
                    tie_breaker: tie_breaker(),
                };
                let candidates: Vec<Candidate> = addresses.iter().map(candidate).collect();
                race.on_answer(question, &candidates, now);
            }
        }
    }
}

/// Something that will happen.
#[derive(Clone, Copy, Debug)]
enum Event<'a> {
    Answered(Question, &'a [SocketAddr]),
    Connected(usize),
    Failed(usize),
}

/// Calls of a race in an order chosen by bytes, sensible or not; what is missing is zero. The law: an
/// address is tried once at most, and only if it was told; no attempt begins within the least delay
/// after one that has not failed, unless it gives hope for the first time; none after the end; and no
/// wait that is over already.
pub fn by_bytes(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let mut next = || usize::from(bytes.next().unwrap_or(0));
    let questions = [&[][..], &[Question::A], &[Question::Aaaa, Question::A], &ALL][next() % 4];
    let parameters = Parameters::default()
        .first_address_family_count((next() % 4) as u8)
        .within(Duration::from_millis(100 * next() as u64));
    let mut race = Race::new(parameters, PolicyTable::default(), questions, next() % 2 == 1);
    let mut told: Vec<SocketAddr> = Vec::new();
    let mut started: Vec<SocketAddr> = Vec::new();
    let mut earliest = Duration::ZERO;
    let mut now = Duration::ZERO;
    for _ in 0..200 {
        let (what, argument) = (next(), next());
        match what % 8 {
            0 => {
                let candidates: Vec<Candidate> =
                    (0..argument % 6).map(|_| candidate(&mut next)).collect();
                told.extend(candidates.iter().map(|candidate| candidate.address));
                race.on_answer(ALL[argument % 3], &candidates, now);
            }
            1 => race.on_connected(argument % 8, now),
            2 => {
                let last = argument % 8 + 1 == started.len();
                let running = race.attempts().get(argument % 8).map(|attempt| attempt.state);
                if last && running == Some(AttemptState::Running) {
                    earliest = now;
                }
                race.on_failed(argument % 8, now);
            }
            3 => now += Duration::from_millis(argument as u64),
            _ => match race.next(now) {
                Action::Start { attempt, address, because } => {
                    assert_eq!(attempt, started.len());
                    assert!(told.contains(&address), "{address} was never told");
                    assert!(!started.contains(&address), "{address} was tried before");
                    let soon = because == Because::Better;
                    assert!(soon || now >= earliest, "{now:?} is before {earliest:?}");
                    earliest = now
                        + match because {
                            Because::Trial => TRIAL_HEAD_START,
                            _ => parameters.minimum_connection_attempt_delay,
                        };
                    started.push(address);
                }
                Action::Wait { until } => assert!(now < until && until <= parameters.deadline),
                Action::Connected { attempt } => {
                    let state = race.attempts()[attempt].state;
                    assert!(matches!(state, AttemptState::Connected(_)), "{state:?}");
                }
                Action::Exhausted => {
                    let open = |attempt: &Attempt| attempt.state == AttemptState::Running;
                    assert!(!race.attempts().iter().any(open) && race.untried().count() == 0);
                }
                Action::TimedOut => assert!(now >= parameters.deadline),
            },
        }
        assert!(race.verdicts(now).count() <= started.len());
    }
}

const ALL: [Question; 3] = [Question::Https, Question::Aaaa, Question::A];

/// One of a few addresses, so that many come twice.
fn candidate(next: &mut impl FnMut() -> usize) -> Candidate {
    let number = (next() % 12) as u8;
    let address: SocketAddr = match number % 2 {
        0 => ([192, 0, 2, number], 80).into(),
        _ => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)], 80).into(),
    };
    let bits = next();
    let standing = match bits % 3 {
        0 => Standing::Unknown,
        1 => Standing::Suspect,
        _ => Standing::Good { rtt: Duration::from_millis(next() as u64 * 10) },
    };
    let source = (bits & 8 == 0).then(|| source_for(address.ip()));
    Candidate { address, source, standing, service: (bits >> 6) as u16, tie_breaker: next() as u64 }
}
