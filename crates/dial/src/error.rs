//! Why there is no connection.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lastbyte_core::race::Question;
use lastbyte_socket::SocketError;

use crate::host::BadHost;
use crate::resolve::{Answer, QueryError};
use crate::timeline::Timeline;

/// A dial failed. The text says why, then how each attempt failed, in order; if no address was
/// found, how each DNS question was answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct DialError {
    /// The host, as it was given.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Why.
    pub why: Undialed,
    /// How each attempt failed, in the order in which they started.
    pub attempts: Vec<FailedAttempt>,
    /// The questions that were answered without an address.
    pub unanswered: Vec<Answer>,
    /// The questions that were not answered at all.
    pub open: Vec<Question>,
    /// What happened, and when.
    pub timeline: Timeline,
}

impl DialError {
    /// Whether no address was found: the name has none, or no answer came in time.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        match self.why {
            Undialed::NoAddress => true,
            Undialed::TimedOut => self.attempts.is_empty(),
            _ => false,
        }
    }

    /// Whether a later dial may find an address: not every answer denied that there is one.
    #[must_use]
    pub fn may_resolve_later(&self) -> bool {
        use QueryError::{NoAddresses, NoSuchName, NotKnown};
        let is_no = |answer: &Answer| match &answer.found {
            Err(error) => {
                matches!(error, NoAddresses { .. } | NoSuchName { .. } | NotKnown { .. })
            }
            Ok(_) => false,
        };
        self.is_unresolved() && !(self.open.is_empty() && self.unanswered.iter().all(is_no))
    }

    /// The error of the first attempt that failed.
    #[must_use]
    pub fn first(&self) -> Option<&SocketError> {
        self.attempts.iter().find_map(|attempt| attempt.error.as_ref())
    }
}

/// Why a dial failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undialed {
    /// The host is invalid.
    #[error("{0}")]
    BadHost(#[from] BadHost),
    /// The text has no numeric port.
    #[error("the port is missing: give one as in `example.org:443`")]
    NoPort,
    /// The DNS configuration of the system cannot be read.
    #[error("{0}")]
    Resolver(String),
    /// Port 0 is reserved.
    #[error("port 0 cannot be connected to: give one from 1 to 65535")]
    BadPort,
    /// The event loop cannot be used.
    #[error("event loop: {0}")]
    Runtime(String),
    /// No address was found.
    #[error("no address found")]
    NoAddress,
    /// The caller's [`DialOptions::veto`](crate::DialOptions::veto) forbids every address found.
    #[error("not to be connected to: {}", list(.0))]
    Vetoed(Vec<SocketAddr>),
    /// All attempts failed.
    #[error("no address connected")]
    AllFailed,
    /// The deadline passed.
    #[error("timed out")]
    TimedOut,
}

fn list(addresses: &[SocketAddr]) -> String {
    let named: Vec<String> = addresses.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    named.join(", ")
}

/// An attempt that failed, or had no answer.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// The address.
    pub address: SocketAddr,
    /// When it started, since the start of the dial.
    pub started: Duration,
    /// Why it failed; `None` if it was still running when the dial ended.
    pub error: Option<SocketError>,
}

/// How many attempts the text lists; it counts the others.
const MOST_NAMED: usize = 8;

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, why, timeline, .. } = self;
        write!(f, "dial {} port {port}: {why}", host.escape_debug())?;
        if *why == Undialed::TimedOut {
            write!(f, " after {}", Seconds(timeline.took))?;
        }
        let mut separator = ": ";
        for attempt in self.attempts.iter().take(MOST_NAMED) {
            write!(f, "{separator}")?;
            match &attempt.error {
                Some(error) => write!(f, "{error}")?,
                None => {
                    let silent = timeline.took.saturating_sub(attempt.started);
                    write!(f, "connect -> {}: no answer in {}", attempt.address, Seconds(silent))?;
                }
            }
            separator = "; ";
        }
        if self.attempts.len() > MOST_NAMED {
            write!(f, "; and {} more", self.attempts.len() - MOST_NAMED)?;
        }
        if self.attempts.is_empty() { self.questions(f, separator) } else { Ok(()) }
    }
}

impl DialError {
    /// How the questions were answered; equal answers share one text.
    fn questions(&self, f: &mut fmt::Formatter<'_>, mut separator: &str) -> fmt::Result {
        let errors: Vec<(Question, String)> = self
            .unanswered
            .iter()
            .filter_map(|answer| Some((answer.question, answer.found.as_ref().err()?.to_string())))
            .chain(self.open.iter().map(|question| (*question, "not answered".to_owned())))
            .collect();
        if let [(_, first), rest @ ..] = &errors[..]
            && rest.iter().all(|(_, error)| error == first)
        {
            return write!(f, "{separator}{first}");
        }
        for (question, error) in &errors {
            write!(f, "{separator}{question}: {error}")?;
            separator = "; ";
        }
        Ok(())
    }
}

/// A time as people say it: `217 ms`, `30.0 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_secs(1) {
            write!(f, "{} ms", self.0.as_millis())
        } else {
            write!(f, "{:.1} s", self.0.as_secs_f64())
        }
    }
}

impl std::error::Error for DialError {}

impl From<DialError> for io::Error {
    fn from(error: DialError) -> Self {
        let kind = match (&error.why, error.first()) {
            (Undialed::TimedOut, _) => io::ErrorKind::TimedOut,
            (Undialed::BadHost(_) | Undialed::BadPort | Undialed::NoPort, _) => {
                io::ErrorKind::InvalidInput
            }
            (Undialed::NoAddress, _) => io::ErrorKind::NotFound,
            (Undialed::Vetoed(_), _) => io::ErrorKind::PermissionDenied,
            (_, Some(first)) => first.cause.kind(),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(why: Undialed) -> DialError {
        DialError {
            host: "example.net\u{1b}".to_owned(),
            port: 80,
            why,
            attempts: Vec::new(),
            unanswered: Vec::new(),
            open: Vec::new(),
            timeline: Timeline { took: Duration::from_millis(2500), ..Timeline::default() },
        }
    }

    fn attempt(number: u8, error: Option<io::ErrorKind>) -> FailedAttempt {
        let address = SocketAddr::from(([192, 0, 2, number], 80));
        let endpoints = lastbyte_socket::Endpoints { local: None, peer: Some(address.into()) };
        let operation = lastbyte_socket::Operation::Connect;
        let error = error.map(|kind| SocketError::new(operation, endpoints, kind.into()));
        FailedAttempt { address, started: Duration::from_millis(2000), error }
    }

    #[test]
    fn the_first_attempt_leads_and_all_are_named() {
        let refused = Some(io::ErrorKind::ConnectionRefused);
        let mut error = error(Undialed::AllFailed);
        error.attempts =
            vec![attempt(1, refused), attempt(2, Some(io::ErrorKind::HostUnreachable))];
        assert_eq!(
            error.to_string(),
            "dial example.net\\u{1b} port 80: no address connected: connect -> 192.0.2.1:80: \
             connection refused; connect -> 192.0.2.2:80: host unreachable"
        );
        error.attempts.extend((3..13).map(|number| attempt(number, refused)));
        assert!(error.to_string().ends_with("192.0.2.8:80: connection refused; and 4 more"));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn who_did_not_answer_is_said() {
        let mut late = error(Undialed::TimedOut);
        late.attempts.push(attempt(1, None));
        assert!(!late.is_unresolved());
        assert_eq!(
            late.to_string(),
            "dial example.net\\u{1b} port 80: timed out after 2.5 s: connect -> 192.0.2.1:80: no \
             answer in 500 ms"
        );
        assert_eq!(io::Error::from(late).kind(), io::ErrorKind::TimedOut);

        let answer = |question| Answer {
            question,
            name: "example.net".to_owned(),
            found: Err(QueryError::NoAddresses { server: None }),
        };
        let mut unresolved = error(Undialed::NoAddress);
        unresolved.unanswered = vec![answer(Question::Aaaa), answer(Question::A)];
        let text = unresolved.to_string();
        assert!(text.ends_with("no address found: no address of this family"), "{text}");
        assert!(!unresolved.may_resolve_later());
        unresolved.unanswered.pop();
        unresolved.open.push(Question::A);
        let text = unresolved.to_string();
        assert!(text.ends_with("AAAA: no address of this family; A: not answered"), "{text}");
        assert!(unresolved.is_unresolved() && unresolved.may_resolve_later());
    }
}
