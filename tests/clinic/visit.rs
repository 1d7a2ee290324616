//! One visit: a patient, sick or well, and its peer in places of their own, with or without the doctor;
//! what each of them knew afterwards.

use std::fs;
use std::thread;
use std::time::Duration;

use lastbyte_link::{FAR, Link, LinkError, Namespace, Scenario, Spec};
use serde_json::{Map, Value};

use super::bed::Bed;
use super::build::{clinic, python, words_for};
use super::catalogue::{Case, Place, Role};
use crate::support::{LASTBYTE, LATER, Scratch, code_of, congestion_controls};

/// Whether the patient shows its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Sick,
    Well,
}

/// Why there is nothing to judge.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// This machine lacks something. The case is left out, aloud.
    NotHere(String),
    /// Something does not do what it should.
    Broken(String),
}

impl Failure {
    pub(super) fn of_link(error: LinkError) -> Self {
        match error {
            LinkError::Rights { .. } => Self::NotHere(error.to_string()),
            other => Self::Broken(other.to_string()),
        }
    }
}

/// What everybody knew afterwards.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// What the patient said, all its lines in one.
    pub(super) patient: Value,
    /// What the peer said.
    pub(super) peer: Value,
    /// The lines of the doctor's answer.
    pub(super) findings: Vec<Value>,
    /// The doctor's page.
    pub(super) page: String,
    /// Why how fast things went tells nothing: the path between the two did not keep its promise.
    pub(super) late: Option<String>,
}

impl Seen {
    /// A number that the patient said; 0 if it did not.
    pub(super) fn patient(&self, key: &str) -> f64 {
        self.patient[key].as_f64().unwrap_or_default()
    }

    /// A number that the peer said.
    pub(super) fn peer(&self, key: &str) -> f64 {
        self.peer[key].as_f64().unwrap_or_default()
    }

    /// A count of the patient's.
    pub(super) fn count(&self, key: &str) -> u64 {
        self.patient[key].as_u64().unwrap_or_default()
    }

    /// A count of the peer's.
    pub(super) fn peer_count(&self, key: &str) -> u64 {
        self.peer[key].as_u64().unwrap_or_default()
    }

    /// How the peer's connections ended.
    pub(super) fn end(&self) -> &str {
        self.peer["end"].as_str().unwrap_or_default()
    }

    /// Bytes that the patient wrote and the peer's program never got.
    pub(super) fn missing(&self) -> u64 {
        self.count("written").saturating_sub(self.peer_count("received"))
    }
}

/// Runs a case to its end; under the doctor, if a tier of it is named.
pub(super) fn visit(case: &Case, state: State, tier: Option<&str>) -> Result<Seen, Failure> {
    let lacking = case.congestion.iter().find(|name| {
        let available = congestion_controls("available");
        !available.iter().any(|one| one == *name)
    });
    if let Some(name) = lacking {
        return Err(Failure::NotHere(format!("this kernel has no {name}")));
    }
    let ward = Ward::make(case, state)?;
    let scratch = Scratch::new();
    let program = [words_for(case.source)?, vec![word_for(state).to_owned()]].concat();
    let (mut patient, mut peer) = match case.role {
        Role::Client => clients(case, &ward, &scratch, (&program, tier))?,
        Role::Server => servers(case, &ward, &scratch, (&program, tier))?,
    };
    let then = case.then.filter(|_| state == State::Sick);
    let patient_said = listen(then, &ward, &mut patient, &mut peer)?;
    let (status, talk) = patient.end()?;
    peer.tell_end();
    let peer_said = peer.next()?.ok_or_else(|| Failure::Broken("the peer said nothing".into()));
    let (_, peer_talk) = peer.end()?;
    let peer_said =
        peer_said.map_err(|_| Failure::Broken(format!("the peer failed: {peer_talk}\n{talk}")))?;
    let code = code_of(status);
    if code != case.code_of(state) {
        return Err(Failure::Broken(format!("the patient ended with {code}: {talk}")));
    }
    let findings = if tier.is_some() { answer_in(&scratch, tier)? } else { Vec::new() };
    let page = fs::read_to_string(scratch.path().join(PAGE)).unwrap_or_default();
    let late = match ward {
        Ward::One(_) => None,
        Ward::Two(link) => link.down().map_err(Failure::of_link)?.broken_promise(),
    };
    Ok(Seen { patient: patient_said, peer: peer_said, findings, page, late })
}

/// The lines of the doctor's answer, which has to be whole and by the tier that was asked for.
fn answer_in(scratch: &Scratch, tier: Option<&str>) -> Result<Vec<Value>, Failure> {
    let answer = fs::read_to_string(scratch.path().join(ANSWER)).unwrap_or_default();
    let parse = |line: &str| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"));
    let lines: Result<Vec<Value>, _> = answer.lines().map(parse).collect();
    let lines = lines.map_err(Failure::Broken)?;
    let end = lines.last().filter(|line| line["type"] == "end");
    if end.is_none_or(|end| end["tier"].as_str() != tier) {
        return Err(Failure::Broken(format!("the doctor's answer is not whole: {answer}")));
    }
    Ok(lines)
}

/// The file that the doctor writes its answer to.
const ANSWER: &str = "answer";
/// And its page.
const PAGE: &str = "page.html";

fn word_for(state: State) -> &'static str {
    match state {
        State::Sick => "sick",
        State::Well => "well",
    }
}

/// The two places, and the path between them if they are two.
#[derive(Debug)]
enum Ward {
    One(Namespace),
    Two(Box<Link>),
}

impl Ward {
    fn make(case: &Case, state: State) -> Result<Self, Failure> {
        let ward = match case.place {
            Place::Loopback | Place::Other => {
                Self::One(Namespace::create().map_err(Failure::of_link)?)
            }
            Place::Path { sick, well } => {
                let spec = spec(if state == State::Sick { sick } else { well });
                Self::Two(Box::new(Link::up(&spec, SEED).map_err(Failure::of_link)?))
            }
        };
        for (name, value) in case.sysctls {
            ward.near().set_sysctl(name, value).map_err(Failure::of_link)?;
        }
        Ok(ward)
    }

    /// Where the patient is.
    fn near(&self) -> &Namespace {
        match self {
            Self::One(only) => only,
            Self::Two(link) => link.near(),
        }
    }

    /// Where the peer is.
    fn far(&self) -> &Namespace {
        match self {
            Self::One(only) => only,
            Self::Two(link) => link.far(),
        }
    }
}

/// Decides which packets are lost.
const SEED: u64 = 9;

fn spec(text: &str) -> Spec {
    Scenario::parse("clinic", text).unwrap().spec
}

/// The peer serves, and the patient connects to it.
fn clients(
    case: &Case,
    ward: &Ward,
    scratch: &Scratch,
    (program, tier): (&[String], Option<&str>),
) -> Result<(Bed, Bed), Failure> {
    let unix = format!("unix:{}", scratch.path().join("socket").display());
    let at = match (case.place, case.host) {
        (_, "unix") => unix.as_str(),
        (Place::Path { .. }, _) => &FAR.to_string(),
        (_, "::1") => "::1",
        _ => "127.0.0.1",
    };
    let mut peer = Bed::start(ward.far(), &peer_words(case, &["serve", at]), LIMIT)?;
    let port = peer.next_number("port")?.to_string();
    let (host, port) = match case.host {
        "" => (at.to_owned(), port),
        "unix" => ("unix".to_owned(), unix["unix:".len()..].to_owned()),
        other => (other.to_owned(), port),
    };
    let mut words = [program, &[host, port]].concat();
    let outside = Namespace::create().map_err(Failure::of_link)?;
    let place = if matches!(case.place, Place::Other) {
        // The doctor is in a namespace that has nothing to do with the patient's.
        let enter = ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", peer.pid())];
        words = [&enter[..], &words].concat();
        &outside
    } else {
        ward.near()
    };
    let patient = Bed::start(place, &watched((case, words), scratch, tier), LIMIT)?;
    Ok((patient, peer))
}

/// The patient serves, and the peer connects to it.
fn servers(
    case: &Case,
    ward: &Ward,
    scratch: &Scratch,
    (program, tier): (&[String], Option<&str>),
) -> Result<(Bed, Bed), Failure> {
    let words = [program, &["serve".to_owned(), "0".to_owned()]].concat();
    let mut patient = Bed::start(ward.near(), &watched((case, words), scratch, tier), LIMIT)?;
    let port = patient.next_number("port")?.to_string();
    let peer = peer_words(case, &["connect", "127.0.0.1", &port]);
    Ok((patient, Bed::start(ward.far(), &peer, LIMIT)?))
}

/// For a patient that has lost its way; each takes a few seconds.
const LIMIT: Duration = LATER;

fn peer_words(case: &Case, how: &[&str]) -> Vec<String> {
    let script = clinic().join("peer.py");
    let begin = [python(), script.to_str().unwrap()];
    let connections = case.connections.to_string();
    let steps = case.peer.split_whitespace();
    let words = begin.into_iter().chain(how.iter().copied());
    let words = words.chain(["--connections", &connections]).chain(steps);
    words.map(str::to_owned).collect()
}

/// The words that run these under the doctor. With `LASTBYTE_CLINIC_RECORD=DIRECTORY` it writes down there
/// all that it sees, for `lastbyte doctor --replay`.
fn watched(
    (case, words): (&Case, Vec<String>),
    scratch: &Scratch,
    tier: Option<&str>,
) -> Vec<String> {
    let Some(tier) = tier else { return words };
    let answer = scratch.path().join(ANSWER);
    let doctor = [LASTBYTE, "doctor", "--json", "--all", "--output", answer.to_str().unwrap()];
    let page = scratch.path().join(PAGE);
    let more = ["--report", page.to_str().unwrap(), "--tier", tier];
    let mut doctor: Vec<_> = doctor.into_iter().chain(more).map(str::to_owned).collect();
    if let Ok(directory) = std::env::var("LASTBYTE_CLINIC_RECORD") {
        let state = words.iter().find(|word| *word == "sick" || *word == "well").unwrap();
        let file = format!("{directory}/{tier} {} {state}.jsonl.zst", case.name);
        doctor.extend(["--record".to_owned(), file]);
    }
    doctor.push("--".to_owned());
    doctor.extend(words);
    doctor
}

/// Hears what the patient says, to its end. When it has written, the peer is told, and the path becomes
/// this.
fn listen(
    then: Option<&str>,
    ward: &Ward,
    patient: &mut Bed,
    peer: &mut Bed,
) -> Result<Value, Failure> {
    let mut said = Map::new();
    while let Some(line) = patient.next()? {
        let Value::Object(line) = line else { continue };
        if line.contains_key("written") && !said.contains_key("written") {
            peer.tell();
            if let (Some(then), Ward::Two(link)) = (then, ward) {
                // What has left by now meets the path as it was.
                thread::sleep(SETTLING);
                link.become_path(&spec(then)).map_err(Failure::of_link)?;
            }
        }
        said.extend(line);
    }
    Ok(Value::Object(said))
}

const SETTLING: Duration = Duration::from_millis(50);
