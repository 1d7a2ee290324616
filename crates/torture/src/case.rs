//! A case: what is done at both ends, what has to be seen, and the verdict.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_socket::blocking::Stream;
use lastbyte_units::grouped;

use crate::content::Content;
use crate::end::{Ending, Observed};
use crate::script::{Meeting, Player, Role, Step};
use crate::testbed::Testbed;

/// Cases that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// One direction ends, the other goes on.
    HalfClose,
    /// A connection ends in the middle.
    Reset,
    /// The server answers before it has read all, or the client closes before it has.
    Early,
    /// Little data, or none, and a close.
    Small,
    /// `MSG_OOB`.
    Urgent,
    /// An end that reads late, slowly or never.
    Slow,
    /// Many connections at once.
    Many,
    /// The upstream cannot be connected to.
    Upstream,
    /// The proxy is told to stop.
    Stop,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HalfClose => "half-close",
            Self::Reset => "reset",
            Self::Early => "early",
            Self::Small => "small",
            Self::Urgent => "urgent",
            Self::Slow => "slow",
            Self::Many => "many",
            Self::Upstream => "upstream",
            Self::Stop => "stop",
        })
    }
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, which begins with its group's.
    pub name: String,
    /// Its group.
    pub group: Group,
    /// What is done, in a sentence.
    pub does: &'static str,
    /// Why plain TCP does what is expected.
    pub because: &'static str,
    /// How often it is played by default.
    pub runs: u32,
    /// Whether it takes long, and is played only with `--long`.
    pub long: bool,
    /// What is done at both ends.
    pub play: Play,
    /// What the client has to see.
    pub client: Expected,
    /// What the server has to see.
    pub server: Expected,
}

/// How a case is played.
#[derive(Clone, Debug)]
pub enum Play {
    /// One connection, a script for each end.
    Scripts {
        /// The client's steps.
        client: Vec<Step>,
        /// The server's.
        server: Vec<Step>,
    },
    /// By a function of its own, which gets the number of the run.
    By(fn(&Testbed, u64) -> Outcome),
}

/// What an end has to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How much of what the other end wrote.
    pub bytes: Bytes,
    /// One of these. None: any.
    pub endings: &'static [Ending],
    /// A write of its own has to fail.
    pub write_error: bool,
}

/// How much of what the other end wrote has to arrive. What arrives has to be right in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// All of it.
    All,
    /// Any part from the beginning on.
    Part,
    /// All of it if the stream ended by a FIN, otherwise any part.
    AllBeforeFin,
}

impl Expected {
    /// Nothing is required of this end.
    pub const NOTHING: Self = Self { bytes: Bytes::Part, endings: &[], write_error: false };
    /// All bytes, then a FIN.
    pub const ALL_FIN: Self =
        Self { bytes: Bytes::All, endings: &[Ending::Fin], write_error: false };
    /// All bytes, then a reset.
    pub const ALL_RESET: Self =
        Self { bytes: Bytes::All, endings: &[Ending::Reset], write_error: false };
    /// All bytes; how it ended is not seen.
    pub const ALL: Self = Self { bytes: Bytes::All, endings: &[], write_error: false };
    /// Part of the bytes, then a reset.
    pub const PART_RESET: Self =
        Self { bytes: Bytes::Part, endings: &[Ending::Reset], write_error: false };

    /// The same, and that a write has to fail.
    #[must_use]
    pub const fn and_told(self) -> Self {
        Self { write_error: true, ..self }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NOTHING {
            return f.write_str("-");
        }
        f.write_str(match self.bytes {
            Bytes::All => "all",
            Bytes::Part => "part",
            Bytes::AllBeforeFin => "all before a FIN",
        })?;
        let endings: Vec<String> = self.endings.iter().map(ToString::to_string).collect();
        if !endings.is_empty() {
            write!(f, ", {}", endings.join(" or "))?;
        }
        if self.write_error { f.write_str(", write failed") } else { Ok(()) }
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Both ends of one connection.
    Pair(Box<Pair>),
    /// Many connections, of which each was right or not.
    Many {
        /// Right ones.
        good: u64,
        /// All.
        of: u64,
        /// What was wrong with the first that was not.
        fault: Option<String>,
    },
    /// It could not be played.
    NotPlayed(&'static str),
}

/// What both ends of one connection saw.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// The client.
    pub client: Observed,
    /// The server.
    pub server: Observed,
    /// How long it took.
    pub took: Duration,
}

impl Case {
    /// Plays it once.
    pub fn play_once(&self, testbed: &Testbed, run: u64) -> Outcome {
        testbed.clear();
        match &self.play {
            Play::Scripts { client, server } => {
                let key = testbed.setup().seed.wrapping_add(run);
                Outcome::Pair(Box::new(play_scripts(testbed, key, client, server)))
            }
            Play::By(function) => function(testbed, run),
        }
    }

    /// What was expected, in a few words.
    #[must_use]
    pub fn expected(&self) -> String {
        if matches!(self.group, Group::Many) {
            return "each: all, as it ended".to_owned();
        }
        match (self.client == Expected::NOTHING, self.server == Expected::NOTHING) {
            (false, true) => format!("client {}", self.client),
            (true, false) => format!("server {}", self.server),
            _ => format!("client {}; server {}", self.client, self.server),
        }
    }

    /// What is wrong with the result; empty for a good one.
    #[must_use]
    pub fn faults(&self, outcome: &Outcome) -> Vec<String> {
        match outcome {
            Outcome::Pair(pair) => faults_of((self.client, self.server), pair),
            Outcome::Many { fault, good, of } if good < of => {
                vec![fault.clone().unwrap_or_else(|| "not told why".to_owned())]
            }
            Outcome::Many { .. } | Outcome::NotPlayed(_) => Vec::new(),
        }
    }
}

impl Case {
    /// Whether both ends received all required bytes, and no others, however the connection ended.
    pub(crate) fn is_whole(&self, outcome: &Outcome) -> bool {
        let Outcome::Pair(pair) = outcome else { return self.faults(outcome).is_empty() };
        let whole = |expected: Expected, seen: &Observed, other: &Observed| {
            seen.wrong_at.is_none()
                && (expected.bytes != Bytes::All || seen.got >= other.expected_bytes())
        };
        whole(self.client, &pair.client, &pair.server)
            && whole(self.server, &pair.server, &pair.client)
    }
}

/// What is wrong with what both ends saw.
pub(crate) fn faults_of((client, server): (Expected, Expected), pair: &Pair) -> Vec<String> {
    let mut faults = client.faults(Role::Client, &pair.client, &pair.server);
    faults.extend(server.faults(Role::Server, &pair.server, &pair.client));
    faults
}

impl Expected {
    fn faults(&self, role: Role, seen: &Observed, other: &Observed) -> Vec<String> {
        let who = role.name();
        let mut faults = Vec::new();
        if let Some(at) = seen.wrong_at {
            faults.push(format!("{who}: byte {} is wrong", grouped(at)));
        }
        let whole = match self.bytes {
            Bytes::All => true,
            Bytes::Part => false,
            Bytes::AllBeforeFin => seen.ending == Ending::Fin,
        };
        if seen.got > other.wrote || whole && seen.got < other.expected_bytes() {
            faults.push(format!("{who} got {}", seen.bytes(other)));
        }
        if !self.endings.is_empty() && !self.endings.contains(&seen.ending) {
            faults.push(format!("{who} saw {}", seen.ending));
        }
        if self.write_error && seen.write_error.is_none() {
            faults.push(format!("{who}: no write failed"));
        }
        if let Some(step) = seen.stuck {
            let is_right = seen.ending == Ending::Open && self.endings.contains(&Ending::Open);
            if !is_right {
                faults.push(format!("{who} hung {step}"));
            }
        }
        if *self != Self::NOTHING && !other.urgent.is_empty() {
            faults.extend(lost_marks(who, &other.urgent, &seen.marks));
        }
        faults
    }
}

/// A later urgent byte replaces one that is not read yet, so that the kernel knows only the last of
/// several in close succession. The cases leave time between them.
fn lost_marks(who: &str, urgent: &[u64], marks: &[u64]) -> Option<String> {
    let list = |places: &[u64]| {
        let places: Vec<String> = places.iter().map(|place| grouped(*place)).collect();
        if places.is_empty() {
            "nowhere".to_owned()
        } else {
            format!("at {}", places.join(" and "))
        }
    };
    (urgent != marks).then(|| format!("{who}: mark {}, not {}", list(marks), list(urgent)))
}

/// Plays a script at each end of a new connection.
pub(crate) fn play_scripts(testbed: &Testbed, key: u64, client: &[Step], server: &[Step]) -> Pair {
    let meeting = Meeting::default();
    let begun = Instant::now();
    let (client, server) = thread::scope(|scope| {
        let server = scope.spawn(|| serve(testbed, key, &meeting, server));
        let client = {
            let _leaves = Leaves(&meeting, Role::Client);
            match testbed.connect() {
                Ok(stream) => player(testbed, key, &meeting, Role::Client).play(stream, client),
                Err(_) => Observed { ending: Ending::Refused, ..Observed::default() },
            }
        };
        (client, server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Pair { client, server, took: begun.elapsed() }
}

/// The same over an established connection.
pub(crate) fn play_over(
    testbed: &Testbed,
    key: u64,
    (client, server): (Stream, Stream),
    steps: (&[Step], &[Step]),
) -> Pair {
    let meeting = Meeting::default();
    let begun = Instant::now();
    let play = |role, stream, steps| {
        let _leaves = Leaves(&meeting, role);
        player(testbed, key, &meeting, role).play(stream, steps)
    };
    let (client, server) = thread::scope(|scope| {
        let server = scope.spawn(|| play(Role::Server, server, steps.1));
        let client = play(Role::Client, client, steps.0);
        (client, server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Pair { client, server, took: begun.elapsed() }
}

fn serve(testbed: &Testbed, key: u64, meeting: &Meeting, steps: &[Step]) -> Observed {
    let _leaves = Leaves(meeting, Role::Server);
    match accept(testbed, meeting) {
        Some(stream) => player(testbed, key, meeting, Role::Server).play(stream, steps),
        None => Observed { ending: Ending::Missing, ..Observed::default() },
    }
}

/// Waits for the proxy's connection. After the client has closed, it comes soon or never.
fn accept(testbed: &Testbed, meeting: &Meeting) -> Option<Stream> {
    let begun = Instant::now();
    let moment = testbed.waits().moment;
    let mut last_chances = 4;
    while begun.elapsed() < testbed.waits().deadline && last_chances > 0 {
        if meeting.is_gone(Role::Client) {
            last_chances -= 1;
        }
        if let Some(stream) = testbed.accept_within(moment) {
            return Some(stream);
        }
    }
    None
}

/// The end with this role, with its own content keys.
pub(crate) fn player<'a>(
    testbed: &Testbed,
    key: u64,
    meeting: &'a Meeting,
    role: Role,
) -> Player<'a> {
    let content = |role: Role| Content::new(key.wrapping_mul(2).wrapping_add(role as u64));
    let (out, expected) = (content(role), content(role.other()));
    Player { role, waits: testbed.waits(), meeting, out, expected }
}

/// Marks an end as gone, however its script ended.
struct Leaves<'a>(&'a Meeting, Role);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}
