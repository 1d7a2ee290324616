//! The race for a connection: RFC 8305 (Happy Eyeballs), prepared for its successor.
//!
//! The driver reports which DNS questions it asked, the answers, and how each attempt went. The
//! machine decides when to start the next attempt, and to which address. It has no clock and no
//! socket: `now` is the time since the race began.
//!
//! ```text
//!            on_answer, on_connected, on_failed
//!   driver ------------------------------------> Race
//!          <------------------------------------
//!            next(now): Start | Wait | Connected | Exhausted | TimedOut
//! ```
//!
//! 1. **Resolution** (section 3). The race begins with the answer of the preferred family (AAAA).
//!    If the other answer arrives first, the race waits for the preferred one, at most for the
//!    [resolution delay](Parameters). It does not wait if an address is known to work. Later
//!    answers join the race.
//! 2. **Order** (section 4). Addresses that worked lately come first, those that failed come last.
//!    Among equals RFC 6724 decides ([`crate::order`]), and then chance, so that equal addresses
//!    share the load. Then the families alternate, after the [first address family
//!    count](Parameters).
//! 3. **Attempts** (section 5). Each attempt runs alone for the [connection attempt
//!    delay](Parameters), then the next begins beside it. Slow attempts continue. If one fails, the
//!    next begins at once. The first to connect wins.
//!
//! **Hints** of HTTPS and SVCB records (`ipv4hint`, `ipv6hint`; RFC 9460 section 7.3) count as
//! addresses until the answer for their family arrives, and services of lower priority come later:
//! see [`Question::Https`] and [`Candidate::service`]. The dialer does not ask that question yet.
//!
//! **A trial.** Once one address is known to work, others that rank equal under RFC 6724 would
//! never be used again. Sometimes ([`Race::new`]) the race begins with one of these, and starts the
//! known one [`TRIAL_HEAD_START`] later. So a trial of a dead address has a fixed cost, and working
//! addresses share the load.

use std::cmp::Ordering;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::order::{self, Destination, PolicyTable, Source};

/// The most addresses of one host and family that a race uses. It ignores further ones: at one
/// attempt every 100 ms, no usual deadline would reach them.
pub const MOST_ADDRESSES: usize = 128;

/// How long an attempt on trial runs alone, and the least for any attempt (RFC 8305 sections 5 and
/// 8).
pub const TRIAL_HEAD_START: Duration = Duration::from_millis(10);

/// A DNS question about a name, the most preferred first.
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
    /// How long to wait for the preferred family's answer once other addresses are known. Default
    /// 50 ms, as the RFC recommends.
    pub resolution_delay: Duration,
    /// How long an attempt runs alone if the round-trip time to its address is not known. The RFC
    /// recommends 250 ms and allows 100 ms to 2 s; the default is 200 ms. Values below 10 ms count
    /// as 10 ms.
    pub connection_attempt_delay: Duration,
    /// The shortest delay that a known round-trip time may lead to. Default 100 ms.
    pub minimum_connection_attempt_delay: Duration,
    /// The longest. Default 2 s.
    pub maximum_connection_attempt_delay: Duration,
    /// How many addresses of the first family are tried before the first one of the other family.
    /// Default 1.
    pub first_address_family_count: u8,
    /// When to give up, from the start of the race. Default 30 s.
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

/// What earlier races showed about an address, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It connected lately.
    Good {
        /// How long connecting took.
        rtt: Duration,
    },
    /// Nothing is known.
    Unknown,
    /// It failed lately, or a later attempt connected before it.
    Suspect,
}

/// The class of addresses that failed lately.
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

/// An address that the race may try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address and port.
    pub address: SocketAddr,
    /// The address that the kernel would connect from; `None` if there is no route.
    pub source: Option<Source>,
    /// What earlier races showed about it.
    pub standing: Standing,
    /// The priority of its service (RFC 9460, section 2.4.1): lower numbers come first. 0 without
    /// such records.
    pub service: u16,
    /// A random number that orders equal candidates.
    pub tie_breaker: u64,
}

impl Candidate {
    fn destination(&self) -> Destination {
        Destination { address: self.address.ip(), source: self.source }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to this address, then call [`Race::next`] again. Attempts are numbered from 0.
    Start {
        /// Its number.
        attempt: usize,
        /// Where to.
        address: SocketAddr,
        /// Why now.
        because: Because,
    },
    /// Wait for an answer or an attempt, at most until this time.
    Wait {
        /// Since the start of the race.
        until: Duration,
    },
    /// This attempt connected first: the race is over.
    Connected {
        /// Its number.
        attempt: usize,
    },
    /// All questions are answered, and all attempts failed.
    Exhausted,
    /// The deadline has passed.
    TimedOut,
}

/// Why an attempt starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Because {
    /// The first attempt: all preferred answers have arrived.
    Answered,
    /// The first attempt: the resolution delay passed without a preferred answer.
    ResolutionDelay,
    /// The first attempt: the address worked before.
    WorkedBefore,
    /// The first attempt, as a trial: the address ranks equal to one that worked before.
    Trial,
    /// The connection attempt delay of the previous attempt passed.
    AttemptDelay,
    /// The previous attempt failed.
    Failed,
    /// A better address became known: the attempts so far go to addresses that failed lately, or of
    /// which nothing is known.
    Better,
}

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// It has not connected or failed yet.
    Running,
    /// It connected, at this time since the start of the race.
    Connected(Duration),
    /// It failed, at this time since the start of the race.
    Failed(Duration),
}

/// An attempt that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The address, and what was known about it.
    pub candidate: Candidate,
    /// When it started, since the start of the race.
    pub started: Duration,
    /// Its state.
    pub state: AttemptState,
}

/// What a race showed about an address, for later races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It connected, after this time.
    Connected(Duration),
    /// It was refused or unreachable. That may pass soon: a service that restarts refuses for a
    /// moment.
    Failed,
    /// It did not answer, or a later attempt connected before it.
    Suspect,
}

/// The machine. See the [module](self) for its rules.
#[derive(Clone, Debug)]
pub struct Race {
    parameters: Parameters,
    policy: PolicyTable,
    trial: bool,
    /// Questions without an answer yet.
    unanswered: Vec<Question>,
    waiting: Vec<Waiting>,
    attempts: Vec<Attempt>,
    /// When the first address became known.
    known_at: Option<Duration>,
    /// When the next attempt may begin.
    next_at: Duration,
    winner: Option<usize>,
}

/// A candidate that has not been tried yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    candidate: Candidate,
    hint: bool,
}

impl Race {
    /// A race over the answers to `questions`. With `trial` it may begin with an unknown address
    /// although another is known to work: see [`crate::history::History`].
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

    /// A question was answered, with these candidates. Known addresses, and those beyond
    /// [`MOST_ADDRESSES`], are ignored.
    pub fn on_answer(&mut self, question: Question, candidates: &[Candidate], now: Duration) {
        self.unanswered.retain(|open| *open != question);
        // RFC 9460 section 7.3: hints stand in for the addresses until those arrive.
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

    /// An attempt connected. The first to connect wins.
    pub fn on_connected(&mut self, attempt: usize, now: Duration) {
        if self.settle(attempt, AttemptState::Connected(now)) {
            self.winner.get_or_insert(attempt);
        }
    }

    /// An attempt failed.
    pub fn on_failed(&mut self, attempt: usize, now: Duration) {
        // The delay belongs to the last attempt, which no longer needs it.
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

    /// What to do now.
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

    /// Why the next attempt may begin now, or else when it may.
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

    /// When the next attempt may begin early because its address is better than all those tried: at
    /// once if those failed lately, or after the head start of a trial if nothing was known about
    /// them.
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
        // If all known addresses failed lately, the race also waits for A, as long as for AAAA
        // otherwise.
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

    /// RFC 8305 section 5: the delay follows a known round-trip time. Twice that time leaves a
    /// margin for a slower path.
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

    /// The candidate to try next: of the best service and standing, and of the next family if there
    /// is one.
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

    /// Whether the next address should be IPv6; `None` before the first attempt. RFC 8305 section
    /// 4.
    fn next_family_is_ipv6(&self) -> Option<bool> {
        let (first, last) = (self.attempts.first()?, self.attempts.last()?);
        if self.attempts.len() < usize::from(self.parameters.first_address_family_count) {
            return Some(first.candidate.address.is_ipv6());
        }
        Some(!last.candidate.address.is_ipv6())
    }

    /// The candidate for a trial: nothing is known about it, and RFC 6724 does not rank it after
    /// the best one that worked.
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

    /// The first in order among those that `which` accepts.
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

    /// All attempts so far, in the order in which they started.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The questions that are not answered yet.
    #[must_use]
    pub fn unanswered(&self) -> &[Question] {
        &self.unanswered
    }

    /// The addresses not tried, in no particular order.
    pub fn untried(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.waiting.iter().map(|waiting| waiting.candidate.address)
    }

    /// What the race showed about the addresses that it tried. An address that had no time to
    /// answer gets no verdict.
    pub fn verdicts(&self, now: Duration) -> impl Iterator<Item = (&Candidate, Verdict)> {
        let winner = self.winner;
        let verdict = move |(number, attempt): (usize, &Attempt)| match attempt.state {
            AttemptState::Connected(at) => Some(Verdict::Connected(at - attempt.started)),
            AttemptState::Failed(_) => Some(Verdict::Failed),
            AttemptState::Running => {
                let overtaken = winner.is_some_and(|winner| number < winner);
                // With a short deadline the others would never be tried first.
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

/// What ranks candidates before RFC 6724 does. Those without a route come last in their service.
fn class_of(candidate: &Candidate) -> (u16, u8) {
    let class = if candidate.source.is_none() { SUSPECT + 1 } else { candidate.standing.class() };
    (candidate.service, class)
}

fn family_of(candidate: &Candidate) -> Question {
    if candidate.address.is_ipv6() { Question::Aaaa } else { Question::A }
}

#[cfg(test)]
mod tests;
