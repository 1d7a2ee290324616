//! The race for a connection: RFC 8305 (Happy Eyeballs), prepared for its successor.
//!
//! The machine is told which questions were asked about a name, what was answered, and how each
//! attempt went; it says when to start the next attempt, and to which address. It has neither clock
//! nor socket: `now` is the time since the race began.
//!
//! ```text
//!            on_answer, on_connected, on_failed
//!   driver ------------------------------------> Race
//!          <------------------------------------
//!            next(now): Start | Wait | Connected | Exhausted | TimedOut
//! ```
//!
//! 1. **Resolution** (section 3). With the answer of the preferred family (AAAA) the race begins.
//!    If others came first it waits for that for the [resolution delay](Parameters). An address that
//!    is known to work needs no such wait. Answers that come later join.
//! 2. **Order** (section 4). Those that worked lately come first, those that did not last; among
//!    equals RFC 6724 decides ([`crate::order`]), and where that cannot, chance: so the load is
//!    shared as DNS asked. Then the families take turns, after the
//!    [first address family count](Parameters).
//! 3. **Attempts** (section 5). Each is given the [connection attempt delay](Parameters), then the
//!    next begins beside it; none is given up for being slow. One that fails lets the next begin at
//!    once. The first that connects wins.
//!
//! **Hints** of HTTPS and SVCB records (`ipv4hint`, `ipv6hint`; RFC 9460 section 7.3) count as
//! addresses until those of their family are answered, and services of lower priority come later:
//! see [`Question::Https`] and [`Candidate::service`]. Nobody asks that question yet.
//!
//! **A trial.** Where one address is known to work, others that are as good by RFC 6724 would never
//! be used again. Now and then ([`Race::new`]) the race begins with one of these, and has the one
//! that works follow [`TRIAL_HEAD_START`] later: so what a trial of a dead address costs is known, and
//! those that live share the load.

use std::cmp::Ordering;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::order::{self, Destination, PolicyTable, Source};

/// How many addresses of one host and family are looked at, at most. Further ones are ignored: with one
/// attempt each 100 ms, no deadline that people wait for would reach them.
pub const MOST_ADDRESSES: usize = 128;

/// How long an address that is on trial runs alone. RFC 8305 sections 5 and 8: no attempt may run alone
/// for less.
pub const TRIAL_HEAD_START: Duration = Duration::from_millis(10);

/// What is asked about a name, the most preferred answer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Question {
    /// Service bindings, whose hints count as addresses (RFC 9460).
    Https,
    /// IPv6 addresses.
    Aaaa,
    /// IPv4 addresses.
    A,
}

/// By the name of its record type.
impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Https => "HTTPS",
            Self::Aaaa => "AAAA",
            Self::A => "A",
        })
    }
}

/// The delays of a race, by their names in RFC 8305, section 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameters {
    /// How long to wait for the preferred family's answer once there are other addresses. The RFC
    /// recommends 50 ms, the default.
    pub resolution_delay: Duration,
    /// How long an attempt to an address of unknown round trip runs alone. The RFC recommends 250 ms
    /// and allows 100 ms to 2 s; the default is 200 ms. Less than 10 ms it never is.
    pub connection_attempt_delay: Duration,
    /// The least delay that a known round trip may lead to: 100 ms.
    pub minimum_connection_attempt_delay: Duration,
    /// The most: 2 s.
    pub maximum_connection_attempt_delay: Duration,
    /// How many addresses of the first family are tried before the other has its turn: 1.
    pub first_address_family_count: u8,
    /// When to give up.
    pub deadline: Duration,
}

impl Parameters {
    /// Sets the [resolution delay](field@Self::resolution_delay).
    #[must_use]
    pub fn resolution_delay(self, resolution_delay: Duration) -> Self {
        Self { resolution_delay, ..self }
    }

    /// Sets the [delay](field@Self::connection_attempt_delay) of an attempt to an address of unknown
    /// round trip.
    #[must_use]
    pub fn connection_attempt_delay(self, connection_attempt_delay: Duration) -> Self {
        Self { connection_attempt_delay, ..self }
    }

    /// Sets the [least delay](field@Self::minimum_connection_attempt_delay) by a known round trip.
    #[must_use]
    pub fn minimum_connection_attempt_delay(self, least: Duration) -> Self {
        Self { minimum_connection_attempt_delay: least, ..self }
    }

    /// Sets the [greatest delay](field@Self::maximum_connection_attempt_delay) by a known round trip.
    #[must_use]
    pub fn maximum_connection_attempt_delay(self, greatest: Duration) -> Self {
        Self { maximum_connection_attempt_delay: greatest, ..self }
    }

    /// Sets the [count of addresses](field@Self::first_address_family_count) before the other family's.
    #[must_use]
    pub fn first_address_family_count(self, first_address_family_count: u8) -> Self {
        Self { first_address_family_count, ..self }
    }

    /// Sets the [deadline](field@Self::deadline).
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            resolution_delay: Duration::from_millis(50),
            connection_attempt_delay: Duration::from_millis(200),
            minimum_connection_attempt_delay: Duration::from_millis(100),
            maximum_connection_attempt_delay: Duration::from_secs(2),
            first_address_family_count: 1,
            deadline: Duration::from_secs(30),
        }
    }
}

/// What is known of an address from earlier races, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It connected lately.
    Good {
        /// How long that took.
        rtt: Duration,
    },
    /// Nothing is known.
    Unknown,
    /// It failed lately, or was overtaken.
    Suspect,
}

/// The class of those that failed lately.
const SUSPECT: u8 = 2;

impl Standing {
    fn class(self) -> u8 {
        match self {
            Self::Good { .. } => 0,
            Self::Unknown => 1,
            Self::Suspect => SUSPECT,
        }
    }
}

/// An address that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address and port.
    pub address: SocketAddr,
    /// The address that the kernel would connect from; `None` where there is no way there.
    pub source: Option<Source>,
    /// What is known of it.
    pub standing: Standing,
    /// The priority of its service (RFC 9460, section 2.4.1): all of a lower number come first. 0
    /// where there are no such records.
    pub service: u16,
    /// A random number, which decides between equals.
    pub tie_breaker: u64,
}

impl Candidate {
    fn destination(&self) -> Destination {
        Destination { address: self.address.ip(), source: self.source }
    }
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to this address, and ask again. Attempts are numbered from 0 on.
    Start {
        /// Its number.
        attempt: usize,
        /// Where to.
        address: SocketAddr,
        /// Why now.
        because: Because,
    },
    /// Wait until something happens, at most until then (since the race's beginning).
    Wait {
        /// When to ask again.
        until: Duration,
    },
    /// This attempt connected first: the race is over.
    Connected {
        /// Its number.
        attempt: usize,
    },
    /// All was answered, and all failed.
    Exhausted,
    /// The deadline has passed.
    TimedOut,
}

/// Why an attempt is started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Because {
    /// It is the first, and all preferred answers are there.
    Answered,
    /// It is the first, and no better answer came within the resolution delay.
    ResolutionDelay,
    /// It is the first, and worked before.
    WorkedBefore,
    /// It is the first: one that is as good as the one that worked before.
    Trial,
    /// The attempt before had its time alone.
    AttemptDelay,
    /// The attempt before has failed.
    Failed,
    /// All before failed lately, and now there is one that did not; or nothing was known of them, and
    /// now there is one that worked before.
    Better,
}

/// How an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// It was started, and nothing is known.
    Running,
    /// It connected, so long after the race's beginning.
    Connected(Duration),
    /// It failed, so long after the race's beginning.
    Failed(Duration),
}

/// An attempt that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where to, and what was known of it.
    pub candidate: Candidate,
    /// When, since the race's beginning.
    pub started: Duration,
    /// How it stands.
    pub state: AttemptState,
}

/// What a race tells of an address, for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It connected, in this time.
    Connected(Duration),
    /// It failed, which somebody said, and may be over soon: a service that starts again refuses for a
    /// moment.
    Failed,
    /// It was silent, or one that was started later connected before it.
    Suspect,
}

/// The race: see the module's text.
#[derive(Clone, Debug)]
pub struct Race {
    parameters: Parameters,
    policy: PolicyTable,
    trial: bool,
    /// The questions that are not answered yet.
    unanswered: Vec<Question>,
    waiting: Vec<Waiting>,
    attempts: Vec<Attempt>,
    /// When the first address was known.
    known_at: Option<Duration>,
    /// When the attempt after the last one may begin.
    next_at: Duration,
    winner: Option<usize>,
}

/// A candidate that was not tried yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    candidate: Candidate,
    hint: bool,
}

impl Race {
    /// A race over the answers to `questions`. With `trial` it may begin with an address of which
    /// nothing is known though another is known to work: see [`crate::history::History`].
    #[must_use]
    pub fn new(
        parameters: Parameters,
        policy: PolicyTable,
        questions: &[Question],
        trial: bool,
    ) -> Self {
        Self {
            parameters,
            policy,
            trial,
            unanswered: questions.to_vec(),
            waiting: Vec::new(),
            attempts: Vec::new(),
            known_at: None,
            next_at: Duration::ZERO,
            winner: None,
        }
    }

    /// A question was answered; without candidates it was in vain. What is known already is passed
    /// over, and so is what comes after [`MOST_ADDRESSES`].
    pub fn on_answer(&mut self, question: Question, candidates: &[Candidate], now: Duration) {
        self.unanswered.retain(|open| *open != question);
        // RFC 9460 section 7.3: hints stand for the addresses until those are there.
        self.waiting.retain(|waiting| !(waiting.hint && question == family_of(&waiting.candidate)));
        for candidate in candidates {
            let of_family =
                self.addresses().filter(|of| of.is_ipv6() == candidate.address.is_ipv6());
            let known = self.addresses().any(|address| address == candidate.address);
            if !known && of_family.count() < MOST_ADDRESSES {
                let hint = question == Question::Https;
                self.waiting.push(Waiting { candidate: *candidate, hint });
            }
        }
        if !self.waiting.is_empty() {
            self.known_at.get_or_insert(now);
        }
    }

    /// An attempt connected. The first one that does wins.
    pub fn on_connected(&mut self, attempt: usize, now: Duration) {
        if self.settle(attempt, AttemptState::Connected(now)) {
            self.winner.get_or_insert(attempt);
        }
    }

    /// An attempt failed.
    pub fn on_failed(&mut self, attempt: usize, now: Duration) {
        // The time alone is the last one's: nobody needs it any more.
        if self.settle(attempt, AttemptState::Failed(now)) && attempt + 1 == self.attempts.len() {
            self.next_at = now;
        }
    }

    fn settle(&mut self, attempt: usize, state: AttemptState) -> bool {
        match self.attempts.get_mut(attempt) {
            Some(attempt) if attempt.state == AttemptState::Running => {
                attempt.state = state;
                true
            }
            _ => false,
        }
    }

    /// What is to be done now.
    pub fn next(&mut self, now: Duration) -> Action {
        if let Some(attempt) = self.winner {
            return Action::Connected { attempt };
        }
        if now >= self.parameters.deadline {
            return Action::TimedOut;
        }
        if self.waiting.is_empty() {
            let over = self.unanswered.is_empty() && !self.is_running();
            return if over { Action::Exhausted } else { self.wait(self.parameters.deadline) };
        }
        match self.may_start(now) {
            Ok(because) => self.start(because, now),
            Err(until) => self.wait(until),
        }
    }

    fn wait(&self, until: Duration) -> Action {
        Action::Wait { until: until.min(self.parameters.deadline) }
    }

    fn is_running(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.state == AttemptState::Running)
    }

    /// Whether the next attempt may begin, or else when.
    fn may_start(&self, now: Duration) -> Result<Because, Duration> {
        let Some(last) = self.attempts.last() else {
            return self.may_begin(now);
        };
        let better_at = self.better_at(last);
        if matches!(last.state, AttemptState::Failed(_)) {
            Ok(Because::Failed)
        } else if better_at.is_some_and(|at| now >= at && at < self.next_at) {
            Ok(Because::Better)
        } else if now >= self.next_at {
            Ok(Because::AttemptDelay)
        } else {
            Err(better_at.map_or(self.next_at, |at| at.min(self.next_at)))
        }
    }

    /// When the next one may begin because it gives more hope than all that were started: at once
    /// where these failed lately, and with the headway of a trial where nothing is known of them.
    fn better_at(&self, last: &Attempt) -> Option<Duration> {
        let class = |candidate: &Candidate| class_of(candidate).1;
        let next = class(&self.waiting.get(self.best()?)?.candidate);
        let started = self.attempts.iter().map(|attempt| class(&attempt.candidate)).min()?;
        match started {
            SUSPECT.. => (next < SUSPECT).then_some(Duration::ZERO),
            _ => (next < started).then(|| last.started.saturating_add(TRIAL_HEAD_START)),
        }
    }

    /// RFC 8305 section 3; section 4.2 of the successor's draft, where there are service bindings.
    fn may_begin(&self, now: Duration) -> Result<Because, Duration> {
        if self.trial_candidate().is_some() {
            return Ok(Because::Trial);
        }
        let good = |waiting: &Waiting| matches!(waiting.candidate.standing, Standing::Good { .. });
        if self.waiting.iter().any(good) {
            return Ok(Because::WorkedBefore);
        }
        // Where all that is known failed lately, A too is waited for, as long as AAAA otherwise.
        let hopeful = |waiting: &Waiting| class_of(&waiting.candidate).1 < SUSPECT;
        let enough = self.unanswered.iter().all(|open| *open == Question::A)
            && self.waiting.iter().any(hopeful);
        if enough || self.unanswered.is_empty() {
            return Ok(Because::Answered);
        }
        let known_at = self.known_at.unwrap_or(now);
        let until = known_at.saturating_add(self.parameters.resolution_delay);
        if now >= until { Ok(Because::ResolutionDelay) } else { Err(until) }
    }

    fn start(&mut self, because: Because, now: Duration) -> Action {
        let trial = (because == Because::Trial).then(|| self.trial_candidate()).flatten();
        let Some(index) = trial.or_else(|| self.best()) else {
            return self.wait(self.parameters.deadline);
        };
        let candidate = self.waiting.remove(index).candidate;
        self.next_at = now.saturating_add(self.time_alone(&candidate, because));
        let attempt = self.attempts.len();
        self.attempts.push(Attempt { candidate, started: now, state: AttemptState::Running });
        Action::Start { attempt, address: candidate.address, because }
    }

    /// RFC 8305 section 5: from the round trip where it is known. Twice that is time for one that is
    /// no slower than it was, and for some more.
    fn time_alone(&self, candidate: &Candidate, because: Because) -> Duration {
        let parameters = &self.parameters;
        let alone = match candidate.standing {
            _ if because == Because::Trial => TRIAL_HEAD_START,
            Standing::Good { rtt } => rtt
                .saturating_mul(2)
                .max(parameters.minimum_connection_attempt_delay)
                .min(parameters.maximum_connection_attempt_delay),
            Standing::Unknown | Standing::Suspect => parameters.connection_attempt_delay,
        };
        alone.max(TRIAL_HEAD_START)
    }

    /// The candidate to try next: of the best service and standing, of the family whose turn it is.
    fn best(&self) -> Option<usize> {
        let class = |waiting: &Waiting| class_of(&waiting.candidate);
        let best = self.waiting.iter().map(class).min()?;
        let next_is_ipv6 = self.next_family_is_ipv6();
        let of_family = |candidate: &Candidate| Some(candidate.address.is_ipv6()) == next_is_ipv6;
        let has_next_family = self
            .waiting
            .iter()
            .any(|waiting| class(waiting) == best && of_family(&waiting.candidate));
        self.first_of(|waiting| {
            class(waiting) == best && (!has_next_family || of_family(&waiting.candidate))
        })
    }

    /// Whether it is the turn of IPv6; `None` while the order alone decides. RFC 8305 section 4.
    fn next_family_is_ipv6(&self) -> Option<bool> {
        let (first, last) = (self.attempts.first()?, self.attempts.last()?);
        if self.attempts.len() < usize::from(self.parameters.first_address_family_count) {
            return Some(first.candidate.address.is_ipv6());
        }
        Some(!last.candidate.address.is_ipv6())
    }

    /// The candidate to begin a trial with: one of which nothing is known, and which RFC 6724 does
    /// not put behind the best that works.
    fn trial_candidate(&self) -> Option<usize> {
        if !self.trial || !self.attempts.is_empty() {
            return None;
        }
        let good =
            self.first_of(|waiting| matches!(waiting.candidate.standing, Standing::Good { .. }))?;
        let good = &self.waiting[good].candidate;
        self.first_of(|waiting| {
            let candidate = &waiting.candidate;
            candidate.standing == Standing::Unknown
                && candidate.source.is_some()
                && candidate.service <= good.service
                && self.compare(candidate, good) != Ordering::Greater
        })
    }

    /// The first in order of those that `which` accepts.
    fn first_of(&self, which: impl Fn(&Waiting) -> bool) -> Option<usize> {
        let accepted = self.waiting.iter().enumerate().filter(|(_, waiting)| which(waiting));
        let first = accepted.min_by(|(_, a), (_, b)| {
            let (a, b) = (&a.candidate, &b.candidate);
            self.compare(a, b).then(a.tie_breaker.cmp(&b.tie_breaker))
        });
        first.map(|(index, _)| index)
    }

    fn compare(&self, a: &Candidate, b: &Candidate) -> Ordering {
        order::compare(&self.policy, &a.destination(), &b.destination())
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let waiting = self.waiting.iter().map(|waiting| waiting.candidate.address);
        waiting.chain(self.attempts.iter().map(|attempt| attempt.candidate.address))
    }

    /// All attempts so far, in the order in which they began.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The questions that are not answered yet.
    #[must_use]
    pub fn unanswered(&self) -> &[Question] {
        &self.unanswered
    }

    /// The addresses that were not tried, in no order.
    pub fn untried(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.waiting.iter().map(|waiting| waiting.candidate.address)
    }

    /// What the race tells of the addresses that it tried. One that had no time to answer gets no
    /// verdict.
    pub fn verdicts(&self, now: Duration) -> impl Iterator<Item = (&Candidate, Verdict)> {
        let winner = self.winner;
        let verdict = move |(number, attempt): (usize, &Attempt)| match attempt.state {
            AttemptState::Connected(at) => Some(Verdict::Connected(at - attempt.started)),
            AttemptState::Failed(_) => Some(Verdict::Failed),
            AttemptState::Running => {
                let overtaken = winner.is_some_and(|winner| number < winner);
                // Within a short deadline others would never have their turn.
                let Parameters { maximum_connection_attempt_delay, deadline, .. } = self.parameters;
                let silent = maximum_connection_attempt_delay.min(deadline / 2);
                (overtaken || now >= attempt.started.saturating_add(silent))
                    .then_some(Verdict::Suspect)
            }
        };
        let all = self.attempts.iter().enumerate();
        all.filter_map(move |(number, attempt)| {
            Some((&attempt.candidate, verdict((number, attempt))?))
        })
    }
}

/// What decides before RFC 6724 does; those that no way leads to come last of their service.
fn class_of(candidate: &Candidate) -> (u16, u8) {
    let class = if candidate.source.is_none() { SUSPECT + 1 } else { candidate.standing.class() };
    (candidate.service, class)
}

fn family_of(candidate: &Candidate) -> Question {
    if candidate.address.is_ipv6() { Question::Aaaa } else { Question::A }
}

#[cfg(test)]
mod tests;
