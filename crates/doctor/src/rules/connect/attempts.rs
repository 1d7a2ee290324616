//! LB401, LB402, LB403: connection attempts. Attempts of a process belong together if they are to
//! one port of different addresses, and each began during the one before or soon after it failed.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use lastbyte_core::sample::State;

use crate::event::{Again, Changed, Event, SocketId, What};
use crate::facts::Facts;
use crate::finding::{About, Class, Code, Finding};
use crate::rules::Rule;
use crate::rules::figures::evidence;
use crate::text::{time, who};

/// A first address that has not answered for this long is slow. A program that follows RFC 8305
/// section 8 loses 250 ms, a browser 300 ms, and neither needs a fix.
const SLOW_NS: u64 = 400_000_000;
/// After so long without an answer Linux has sent the SYN again (RFC 6298 section 2).
const SYN_AGAIN_NS: u64 = 1_000_000_000;
/// The next attempt begins this soon after a failure.
const SOON_NS: u64 = 1_000_000_000;
/// A failed attempt without a later success is reported after this time.
const ALONE_NS: u64 = 2_000_000_000;
/// Dead addresses that cost this much time are a finding; below it, a note.
const NOTICED_NS: u64 = 50_000_000;
/// This many dead addresses are a finding, however little time they cost.
const MANY_DEAD: usize = 3;
/// A process with this many attempts at once has several destinations, and it is unknown which
/// attempts belong together.
const MOST_AT_ONCE: usize = 16;
/// Limit on attempts in total.
const MOST: usize = 50_000;

/// LB401, LB402, LB403.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Attempts in progress.
    open: BTreeMap<SocketId, Attempt>,
    /// Failed attempts by process and port, oldest first.
    failed: BTreeMap<(u32, u16), VecDeque<Attempt>>,
    failed_count: usize,
}

/// A `connect`, from its SYN on.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    socket: Option<SocketId>,
    pid: u32,
    peer: SocketAddr,
    began_ns: u64,
    ended_ns: u64,
    syns_again: u32,
    /// How it failed, `errno`; 0: the program gave it up.
    errno: i32,
}

impl Rule for Attempts {
    fn on(&mut self, event: &Event, facts: &Facts, found: &mut Vec<Finding>) {
        let at_ns = event.at_ns;
        match &event.what {
            What::Changed(changed) => self.on_change(at_ns, changed, facts, found),
            What::Retransmitted { socket, why: Again::Syn, segments } => {
                if let Some(attempt) = self.open.get_mut(socket) {
                    attempt.syns_again = attempt.syns_again.saturating_add(*segments);
                }
            }
            What::Failed { socket, errno } => {
                if let Some(attempt) = self.open.get_mut(socket) {
                    attempt.errno = *errno;
                }
            }
            What::NotConnected { pid, peer, errno } => self.fail(Attempt {
                socket: None,
                pid: *pid,
                peer: *peer,
                began_ns: at_ns,
                ended_ns: at_ns,
                syns_again: 0,
                errno: *errno,
            }),
            What::Gone { socket, .. } => {
                if let Some(attempt) = self.open.remove(socket) {
                    self.fail(Attempt { ended_ns: at_ns, ..attempt });
                }
            }
            What::Tick => self.report_unanswered(facts, ALONE_NS, found),
            _ => {}
        }
    }

    fn at_end(&mut self, facts: &Facts, found: &mut Vec<Finding>) {
        let now_ns = facts.now_ns();
        for attempt in std::mem::take(&mut self.open).into_values() {
            self.fail(Attempt { ended_ns: now_ns, ..attempt });
        }
        self.report_unanswered(facts, 0, found);
    }
}

impl Attempts {
    fn on_change(
        &mut self,
        at_ns: u64,
        changed: &Changed,
        facts: &Facts,
        found: &mut Vec<Finding>,
    ) {
        let id = changed.socket;
        if changed.to == State::SynSent {
            let Some(known) = facts.socket(id) else { return };
            let holder = known.holders.last().map(|(pid, _)| *pid);
            let Some(pid) = changed.by.map(|by| by.pid).or(holder) else { return };
            let attempt = Attempt {
                socket: Some(id),
                pid,
                peer: known.socket.peer,
                began_ns: at_ns,
                ended_ns: at_ns,
                syns_again: 0,
                errno: 0,
            };
            if self.open.len() < MOST {
                self.open.insert(id, attempt);
            }
            return;
        }
        let Some(mut attempt) = self.open.remove(&id) else { return };
        attempt.ended_ns = at_ns;
        // The address may have become known after the change.
        attempt.peer = facts.socket(id).map_or(attempt.peer, |known| known.socket.peer);
        if changed.to == State::Close {
            if changed.errno != 0 {
                attempt.errno = changed.errno;
            }
            self.fail(attempt);
        } else {
            self.succeed(attempt, facts, found);
        }
    }

    fn fail(&mut self, attempt: Attempt) {
        if self.failed_count >= MOST {
            self.failed.clear();
            self.failed_count = 0;
        }
        self.failed.entry((attempt.pid, attempt.peer.port())).or_default().push_back(attempt);
        self.failed_count += 1;
    }

    fn succeed(&mut self, attempt: Attempt, facts: &Facts, found: &mut Vec<Finding>) {
        let wanted = attempt.socket.is_some_and(|id| facts.socket_in_scope(id));
        let before = self.before(attempt);
        if !wanted {
            return;
        }
        let is_other = |one: &&Attempt| one.peer.is_ipv4() != attempt.peer.is_ipv4();
        let is_slow = |one: &&Attempt| one.took_ns() >= SLOW_NS || is_unreachable(one.errno);
        let slow: Vec<Attempt> = before.iter().filter(is_other).filter(is_slow).copied().collect();
        let dead: Vec<Attempt> = before
            .iter()
            .filter(|one| one.errno != 0 && !(is_other(one) && is_slow(one)))
            .copied()
            .collect();
        found.extend(slow_family(facts, attempt, &slow));
        found.extend(dead_first(facts, attempt, &dead));
        if attempt.is_syn_lost() {
            found.push(syn_lost(facts, attempt, true));
        }
    }

    /// The attempts to other addresses that a success ends: those in progress, and those that
    /// failed just before it.
    fn before(&mut self, success: Attempt) -> Vec<Attempt> {
        let key = (success.pid, success.peer.port());
        let belongs = |one: &Attempt| {
            (one.pid, one.peer.port()) == key
                && one.peer.ip() != success.peer.ip()
                && one.began_ns <= success.began_ns
        };
        let open = self.open.values().filter(|one| belongs(one));
        let mut all: Vec<Attempt> =
            open.map(|one| Attempt { ended_ns: success.ended_ns, ..*one }).collect();
        if all.len() > MOST_AT_ONCE {
            return Vec::new();
        }
        let failed = self.failed.remove(&key).unwrap_or_default();
        self.failed_count = self.failed_count.saturating_sub(failed.len());
        let mut next_ns = success.began_ns;
        for one in failed.into_iter().rev() {
            let is_in_row = next_ns <= one.ended_ns.saturating_add(SOON_NS);
            if belongs(&one) && is_in_row {
                next_ns = one.began_ns.min(next_ns);
                all.push(one);
            }
        }
        all
    }

    /// Reports attempts that failed without an answer, if no success with another address followed.
    fn report_unanswered(&mut self, facts: &Facts, age_ns: u64, found: &mut Vec<Finding>) {
        let now_ns = facts.now_ns();
        let count = &mut self.failed_count;
        self.failed.retain(|_, row| {
            while let Some(one) = row.front().copied() {
                if one.ended_ns.saturating_add(age_ns) > now_ns {
                    break;
                }
                row.pop_front();
                *count = count.saturating_sub(1);
                let wanted = one.socket.is_some_and(|id| facts.socket_in_scope(id));
                if wanted && one.is_syn_lost() {
                    found.push(syn_lost(facts, one, false));
                }
            }
            !row.is_empty()
        });
    }
}

impl Attempt {
    fn took_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }

    fn is_syn_lost(&self) -> bool {
        self.syns_again > 0 || self.took_ns() >= SYN_AGAIN_NS
    }
}

/// LB401.
fn slow_family(facts: &Facts, success: Attempt, slow: &[Attempt]) -> Option<Finding> {
    let first = slow.iter().min_by_key(|one| one.began_ns)?;
    let cost_ns = success.began_ns.saturating_sub(first.began_ns);
    let (dead, live) = if success.peer.is_ipv4() { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
    let about = about(facts, success);
    if cost_ns < NOTICED_NS {
        return None;
    }
    Some(Finding {
        sentence: format!(
            "{} tried {} over {dead} first, which {}, and lost {} before it connected to {} over \
             {live}.",
            who(&about),
            first.peer,
            failed_phrase(*first),
            time(cost_ns),
            success.peer
        ),
        fix: format!(
            "Fix {dead} or remove its address from the name; a program dials both families at once \
             as RFC 8305 says (`lastbyte::dial::Dialer`, `lastbyte dial`)."
        ),
        evidence: evidence([
            ("cost_ms", milliseconds(cost_ns).into()),
            ("attempts", (slow.len() as u64).into()),
            ("first_peer", first.peer.to_string().as_str().into()),
            ("errno", (first.errno.unsigned_abs()).into()),
        ]),
        ..finding(401, Class::Connect, success, about)
    })
}

/// LB403.
fn dead_first(facts: &Facts, success: Attempt, dead: &[Attempt]) -> Option<Finding> {
    let first = dead.iter().min_by_key(|one| one.began_ns)?;
    let cost_ns = success.began_ns.saturating_sub(first.began_ns);
    let about = about(facts, success);
    let is_worth = cost_ns >= NOTICED_NS || dead.len() >= MANY_DEAD;
    let addresses = if dead.len() == 1 { "address" } else { "addresses" };
    let class = if is_worth { Class::Connect } else { Class::Note };
    Some(Finding {
        harmless: !is_worth,
        sentence: format!(
            "{} tried {} dead {addresses} before {}, the first {}, which {}, and lost {} by that.",
            who(&about),
            dead.len(),
            success.peer,
            first.peer,
            failed_phrase(*first),
            time(cost_ns)
        ),
        fix: "Remove the dead addresses from the name, or start the program that should listen \
              there; a program remembers which address worked, and tries several at once (RFC \
              8305)."
            .to_owned(),
        evidence: evidence([
            ("cost_ms", milliseconds(cost_ns).into()),
            ("dead_addresses", (dead.len() as u64).into()),
            ("first_peer", first.peer.to_string().as_str().into()),
            ("errno", (first.errno.unsigned_abs()).into()),
        ]),
        ..finding(403, class, success, about)
    })
}

/// LB402.
fn syn_lost(facts: &Facts, attempt: Attempt, connected: bool) -> Finding {
    let about = about(facts, attempt);
    let again = match attempt.syns_again {
        0 => "at least once more".to_owned(),
        1 => "once more".to_owned(),
        times => format!("{times} times more"),
    };
    let took = time(attempt.took_ns());
    let sentence = if connected {
        format!(
            "{} needed {took} to connect to {}: its SYN was not answered and was sent {again}.",
            who(&about),
            attempt.peer
        )
    } else {
        format!(
            "{} got no answer from {} in {took}: its SYN was sent {again}.",
            who(&about),
            attempt.peer
        )
    };
    Finding {
        sentence,
        fix: "Look for what drops the SYN: a full listen queue at the peer (LB404 there), a \
              firewall, a dead address, a lossy path; give connects a time limit, and try the next \
              address meanwhile."
            .to_owned(),
        evidence: evidence([
            ("connect_ms", milliseconds(attempt.took_ns()).into()),
            ("syns_sent_again", attempt.syns_again.into()),
            ("connected", if connected { "yes" } else { "no" }.into()),
            ("errno", (attempt.errno.unsigned_abs()).into()),
        ]),
        ..finding(402, Class::Connect, attempt, about)
    }
}

fn finding(code: u16, class: Class, attempt: Attempt, about: About) -> Finding {
    Finding {
        code: Code(code),
        class,
        harmless: false,
        bytes: None,
        at_ns: attempt.began_ns,
        times: 1,
        about,
        sentence: String::new(),
        fix: String::new(),
        heal: None,
        evidence: BTreeMap::new(),
    }
}

fn about(facts: &Facts, attempt: Attempt) -> About {
    match attempt.socket {
        Some(id) if facts.socket(id).is_some() => facts.about(id, Some(attempt.pid)),
        _ => About { peer: Some(attempt.peer), ..facts.about_process(attempt.pid) },
    }
}

fn failed_phrase(attempt: Attempt) -> String {
    let took = time(attempt.took_ns());
    match attempt.errno {
        111 => format!("refused after {took}"),
        110 => format!("did not answer for {took}"),
        errno if is_unreachable(errno) => format!("could not be reached, known after {took}"),
        0 => format!("had not answered after {took}"),
        errno => format!("failed after {took} (errno {errno})"),
    }
}

/// ETIMEDOUT, and the errors for an unreachable address: ENETDOWN, ENETUNREACH, EHOSTDOWN,
/// EHOSTUNREACH.
fn is_unreachable(errno: i32) -> bool {
    matches!(errno, 110 | 100 | 101 | 112 | 113)
}

fn milliseconds(ns: u64) -> f64 {
    (ns / 1_000) as f64 / 1_000.0
}
