//! Decides which server to ask when, and how.
//!
//! A question goes to the first server. If that fails or is unreachable, the next one is asked at
//! once. If it does not answer within 400 ms, the next one is asked too, while the first may still
//! answer. After the last server comes the first again, and the interval doubles, so that lost
//! packets are sent again and a dead server costs little. A server that did not answer while
//! another one did is asked last for a minute.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_proto::op::{Message, Query, ResponseCode};
use tokio::time::{sleep_until, timeout_at};

use super::QueryError;
use super::exchange::{Fault, Way, exchange};
use super::files::{LONGEST_TIMEOUT, MOST_ATTEMPTS, ResolvConf};

/// How long to wait for a server before sending the question again: longer than the round-trip time
/// to nearly all servers, and than most of them need to resolve a name.
const RESEND: Duration = Duration::from_millis(400);
/// How long a server that did not answer is asked last.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a server's way of being asked is remembered.
const MANNERS: Duration = Duration::from_secs(600);
/// The most attempts at one server for a question: after truncation, without EDNS, over TCP,
/// without random case, and one more.
const MOST_WAYS: usize = 5;

#[derive(Debug)]
pub(super) struct Servers {
    servers: Vec<SocketAddr>,
    /// How long to wait for the answer to a question.
    patience: Duration,
    rotate: bool,
    way: Way,
    turn: AtomicUsize,
    known: Mutex<HashMap<SocketAddr, Known>>,
}

/// What is known about a server, and until when.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    silent: Option<Instant>,
    way: Option<(Way, Instant)>,
}

impl Servers {
    pub(super) fn new(configuration: &ResolvConf) -> Self {
        Self {
            servers: configuration.servers.clone(),
            // A configuration that was not parsed from a text may exceed the limits.
            patience: configuration.timeout.min(LONGEST_TIMEOUT)
                * configuration.attempts.min(MOST_ATTEMPTS),
            rotate: configuration.rotate,
            way: Way { tcp: configuration.use_vc, random_case: true, edns: true },
            turn: AtomicUsize::new(0),
            known: Mutex::default(),
        }
    }

    /// Asks until a server answers, and returns that server. `read` decides whether a message is an
    /// answer.
    ///
    /// # Errors
    /// The most informative of the servers' faults.
    pub(super) async fn ask<T>(
        &self,
        query: &Query,
        mut read: impl FnMut(&Message) -> Result<T, Fault>,
    ) -> Result<(SocketAddr, T), QueryError> {
        let began = Instant::now();
        let deadline = began + self.patience;
        let mut waiting = self.in_order(began);
        let (mut asked, mut faults) = (Vec::new(), Vec::new());
        let mut exchanges = FuturesUnordered::new();
        let (mut next, mut gap) = (began, RESEND.min(self.patience));
        loop {
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            if now >= next {
                let Some(server) = waiting.pop_front() else { break };
                waiting.push_back(server);
                asked.push(server);
                exchanges.push(self.ask_one(server, query, deadline));
                next = now + gap;
                if asked.len() % waiting.len() == 0 {
                    gap *= 2;
                }
            }
            let until = next.min(deadline);
            let Some((server, result)) = first_of(&mut exchanges, until).await else { continue };
            match result.and_then(|message| read(&message)) {
                Ok(answer) => {
                    self.remember_silent(&asked, &waiting, server);
                    return Ok((server, answer));
                }
                Err(fault) => {
                    // A forger's guesses are not the server's fault.
                    if fault != Fault::Guessed {
                        waiting.retain(|other| *other != server);
                        next = Instant::now();
                    }
                    faults.push((server, fault));
                }
            }
        }
        Err(worst(&faults, &self.servers, self.patience))
    }

    /// The servers, with those that did not answer at the end.
    fn in_order(&self, now: Instant) -> VecDeque<SocketAddr> {
        let mut servers = self.servers.clone();
        if self.rotate && !servers.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % servers.len();
            servers.rotate_left(turn);
        }
        let known = self.known();
        let is_silent = |server: &SocketAddr| {
            known.get(server).and_then(|known| known.silent).is_some_and(|until| now < until)
        };
        servers.sort_by_key(is_silent);
        servers.into()
    }

    /// Records which servers were asked before the answering one and have not answered.
    fn remember_silent(
        &self,
        asked: &[SocketAddr],
        waiting: &VecDeque<SocketAddr>,
        speaks: SocketAddr,
    ) {
        let mut known = self.known();
        for server in asked.iter().take_while(|server| **server != speaks) {
            if waiting.contains(server) {
                known.entry(*server).or_default().silent = Some(Instant::now() + SILENCE);
            }
        }
        known.entry(speaks).or_default().silent = None;
    }

    /// Asks one server, in a way that it supports.
    async fn ask_one(
        &self,
        server: SocketAddr,
        query: &Query,
        deadline: Instant,
    ) -> (SocketAddr, Result<Message, Fault>) {
        let mut way = self.way_of(server);
        let (mut odd_case, mut learned, mut over_udp) = (false, None, None);
        for _ in 0..MOST_WAYS {
            let left = deadline.saturating_duration_since(Instant::now());
            // If TCP fails, there must be time left for the next attempt.
            let patience = if odd_case && way.tcp { left / 2 } else { left };
            match exchange(server, query, way, patience).await {
                Ok(message) if message.metadata.truncation && !way.tcp => {
                    way.tcp = true;
                    let problem = "it is cut short, and nobody answers over TCP".to_owned();
                    over_udp = Some(Fault::Malformed(problem));
                }
                Ok(message) if way.edns && knows_no_edns(&message) => {
                    way.edns = false;
                    learned = Some(way);
                }
                Ok(message) => {
                    if let Some(way) = if odd_case { Some(way) } else { learned } {
                        let until = Instant::now() + MANNERS;
                        self.known().entry(server).or_default().way = Some((way, until));
                    }
                    return (server, Ok(message));
                }
                Err(Fault::Case) => (odd_case, way.tcp) = (true, true),
                Err(fault @ (Fault::Guessed | Fault::Malformed(_))) if !way.tcp => {
                    way.tcp = true;
                    over_udp = Some(fault);
                }
                Err(_) if odd_case && way.tcp => (way.tcp, way.random_case) = (false, false),
                // A server without TCP does not explain the failure.
                Err(fault @ (Fault::Silent | Fault::Unreachable(_))) => {
                    return (server, Err(over_udp.unwrap_or(fault)));
                }
                Err(fault) => return (server, Err(fault)),
            }
        }
        (server, Err(Fault::Malformed("whichever way it is asked".to_owned())))
    }

    fn way_of(&self, server: SocketAddr) -> Way {
        let way = self.known().get(&server).and_then(|known| known.way);
        way.filter(|(_, until)| Instant::now() < *until).map_or(self.way, |(way, _)| way)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SocketAddr, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next result, if there is one in time.
async fn first_of<F: Future>(
    exchanges: &mut FuturesUnordered<F>,
    until: Instant,
) -> Option<F::Output> {
    match timeout_at(until.into(), exchanges.next()).await {
        Ok(Some(result)) => Some(result),
        Ok(None) => {
            sleep_until(until.into()).await;
            None
        }
        Err(_) => None,
    }
}

/// The answers to EDNS of servers from before it, and of those that know another version (RFC 6891
/// sections 6.1.3 and 7).
fn knows_no_edns(message: &Message) -> bool {
    let code = message.metadata.response_code;
    matches!(code, ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::BADVERS)
}

/// The most informative fault: a response code, then an invalid answer, then an unreachable server.
fn worst(faults: &[(SocketAddr, Fault)], asked: &[SocketAddr], after: Duration) -> QueryError {
    if asked.is_empty() {
        return QueryError::System { text: "no DNS server is configured".to_owned() };
    }
    let telling = |fault: &Fault| match fault {
        Fault::Code(_) => 3,
        Fault::Malformed(_) | Fault::Guessed | Fault::Case => 2,
        Fault::Unreachable(_) => 1,
        Fault::Silent => 0,
    };
    let is_down = |(_, fault): &(_, Fault)| matches!(fault, Fault::Unreachable(_));
    let all_are_down = faults.len() >= asked.len() && faults.iter().all(is_down);
    let most = faults.iter().rev().max_by_key(|(_, fault)| telling(fault));
    match most {
        Some((server, Fault::Code(code))) => of_code(*server, *code),
        Some((server, Fault::Malformed(problem))) => {
            QueryError::Malformed { server: *server, problem: problem.clone() }
        }
        Some((server, Fault::Guessed)) => {
            let problem = "somebody sends forged answers in its name".to_owned();
            QueryError::Malformed { server: *server, problem }
        }
        Some((server, Fault::Case)) => {
            let problem = "the name came back in another case".to_owned();
            QueryError::Malformed { server: *server, problem }
        }
        Some((_, Fault::Unreachable(problem))) if all_are_down => {
            QueryError::Unreachable { servers: asked.to_vec(), problem: problem.clone() }
        }
        _ => QueryError::TimedOut { servers: asked.to_vec(), after },
    }
}

fn of_code(server: SocketAddr, code: ResponseCode) -> QueryError {
    match code {
        ResponseCode::ServFail => QueryError::ServerFailure { server },
        ResponseCode::Refused => QueryError::Refused { server },
        ResponseCode::FormErr => QueryError::Response { code: "FORMERR".to_owned(), server },
        ResponseCode::NotImp => QueryError::Response { code: "NOTIMP".to_owned(), server },
        code => QueryError::Response { code: format!("{}", u16::from(code)), server },
    }
}
