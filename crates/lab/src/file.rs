//! An experiment as JSON Lines: the plan, each run as it ended, and how the rounds ended.
//!
//! A truncated file is read as far as it goes, and [`Ended::interrupted`] says so. Lines of unknown
//! types are skipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use lastbyte_stats::Position;
use serde::{Deserialize, Serialize};

use crate::findings::Row;
use crate::record::{
    About, Beside, Ended, Experiment, Limited, LinkDirection, LinkFigures, Run, SCHEMA, Void,
};
use crate::setting::Buffers;

/// The longest line to read: enough for a run of a thousand connections for an hour.
const MAX_LINE: u64 = 1 << 30;
/// The most rounds that a plan can have.
const MAX_ROUNDS: u32 = 10_000;

/// One line to write.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    /// The plan: the first line.
    Plan(&'a About),
    /// A run that counts.
    Run(RunLine<'a>),
    /// A run that does not count.
    Void(&'a Void),
    /// A run beside a flow of cubic.
    Beside(&'a Beside),
    /// How the rounds ended: without this line the file is truncated.
    Ended(&'a Ended),
    /// A subject's results, for readers that compute nothing.
    Summary(Box<SummaryLine<'a>>),
}

/// A subject's results.
#[derive(Debug, Serialize)]
pub struct SummaryLine<'a> {
    name: String,
    congestion: Option<&'a str>,
    buffers: Option<Buffers>,
    runs: usize,
    complete_runs: usize,
    median_bits_per_s: f64,
    min_bits_per_s: f64,
    max_bits_per_s: f64,
    limit_bits_per_s: Option<f64>,
    claimed_bits_per_s: f64,
    best: bool,
    place: Option<&'static str>,
    against_best_low_ratio: Option<f64>,
    against_best_high_ratio: Option<f64>,
    resent_share: Option<f64>,
    resent_needlessly_share: Option<f64>,
    limited_share: Limited,
    rtt_idle_p50_s: Option<f64>,
    rtt_loaded_p50_s: Option<f64>,
    rtt_loaded_p95_s: Option<f64>,
    round_trips_per_minute: Option<f64>,
    buffer_cap_bits_per_s: Option<f64>,
    beside_cubic: Vec<BesideLine>,
}

/// A subject's shares beside a flow of cubic.
#[derive(Debug, Serialize)]
struct BesideLine {
    queue_bdp: Option<f64>,
    median_share: f64,
    min_share: f64,
    max_share: f64,
    runs: usize,
}

impl<'a> SummaryLine<'a> {
    /// The line of a row of the table.
    #[must_use]
    pub fn of(row: &'a Row) -> Self {
        let latency = row.latency.as_ref();
        let interval = row.standing.and_then(|standing| standing.interval);
        Self {
            name: row.setting.to_string(),
            congestion: row.congestion(),
            buffers: row.buffers(),
            runs: row.samples.len(),
            complete_runs: row.complete,
            median_bits_per_s: row.received.median,
            min_bits_per_s: row.received.min,
            max_bits_per_s: row.received.max,
            limit_bits_per_s: row.limit_bits_per_s,
            claimed_bits_per_s: row.claimed,
            best: row.next.is_some(),
            place: row.standing.map(|standing| match standing.position {
                Position::Best => "best",
                Position::Worse => "worse",
                Position::Alike => "alike",
                _ => "open",
            }),
            against_best_low_ratio: interval.map(|it| it.low),
            against_best_high_ratio: interval.map(|it| it.high),
            resent_share: row.resent,
            resent_needlessly_share: row.resent_needlessly,
            limited_share: row.limited,
            rtt_idle_p50_s: latency.map(|it| it.idle_p50),
            rtt_loaded_p50_s: latency.map(|it| it.loaded_p50),
            rtt_loaded_p95_s: latency.map(|it| it.loaded_p95),
            round_trips_per_minute: latency.map(|it| it.rpm.median),
            buffer_cap_bits_per_s: row.cap,
            beside_cubic: row
                .shares
                .iter()
                .map(|share| BesideLine {
                    queue_bdp: share.queue_bdp,
                    median_share: share.share.median,
                    min_share: share.share.min,
                    max_share: share.share.max,
                    runs: share.share.n,
                })
                .collect(),
        }
    }
}

/// A run with figures computed from it, for readers that compute nothing.
#[derive(Debug, Serialize)]
pub struct RunLine<'a> {
    name: String,
    complete: bool,
    received_bytes: u64,
    written_bytes: u64,
    received_bits_per_s: f64,
    claimed_bits_per_s: f64,
    resent_share: Option<f64>,
    #[serde(flatten)]
    run: &'a Run,
}

impl<'a> Line<'a> {
    /// The line of a run.
    #[must_use]
    pub fn run(run: &'a Run, about: &About) -> Self {
        Self::Run(RunLine {
            name: about.subjects.get(run.subject).map(ToString::to_string).unwrap_or_default(),
            complete: run.is_complete(),
            received_bytes: run.received_bytes(),
            written_bytes: run.written_bytes(),
            received_bits_per_s: run.received_bits_per_s(),
            claimed_bits_per_s: run.claimed_bits_per_s(),
            resent_share: run.resent_share(),
            run,
        })
    }

    /// Writes the line and its newline.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }
}

/// One line read.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Known {
    Plan(Box<About>),
    Run(Box<Run>),
    Void(Void),
    Beside(Beside),
    Ended(Ended),
    #[serde(other)]
    Other,
}

/// Why a file could not be read as an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {cause}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line is invalid.
    #[error("{}, line {line}: {cause}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        cause: String,
    },
    /// The file does not begin with a plan.
    #[error("{}: not an experiment of `lastbyte lab`: the first line has to be of type plan", path.display())]
    NoPlan {
        /// Which file.
        path: PathBuf,
    },
    /// The file has another schema.
    #[error(
        "{}: written by lastbyte {version} in schema {schema}; this one reads schema {SCHEMA}",
        path.display()
    )]
    Schema {
        /// Which file.
        path: PathBuf,
        /// The version of the program that wrote it.
        version: String,
        /// Its schema.
        schema: u32,
    },
}

/// Reads an experiment from a file of JSON Lines.
///
/// # Errors
/// If the file has no experiment. A truncated one is no error: see [`Ended::interrupted`].
pub fn read(path: &Path) -> Result<Experiment, ReadError> {
    let failed = |cause| ReadError::File { path: path.to_owned(), cause };
    let mut from = BufReader::new(File::open(path).map_err(failed)?);
    read_lines(&mut from, path)
}

fn read_lines(from: &mut impl BufRead, path: &Path) -> Result<Experiment, ReadError> {
    let mut experiment: Option<Experiment> = None;
    let mut ended = false;
    for line in 1.. {
        let mut bytes = Vec::new();
        let length = io::Read::take(&mut *from, MAX_LINE).read_until(b'\n', &mut bytes);
        let length = length.map_err(|cause| ReadError::File { path: path.to_owned(), cause })?;
        // A line without newline was truncated, by a kill or a full disk.
        if length == 0 || bytes.last() != Some(&b'\n') {
            break;
        }
        let known = serde_json::from_slice(&bytes).map_err(|cause| ReadError::Line {
            path: path.to_owned(),
            line,
            cause: cause.to_string(),
        });
        let no_plan = || ReadError::NoPlan { path: path.to_owned() };
        match (known, &mut experiment) {
            (Ok(Known::Plan(about)), None) => experiment = Some(begun(*about, path)?),
            (Err(_), None) if line == 1 => return Err(no_plan()),
            (Err(error), _) => return Err(error),
            (Ok(_), None) => return Err(no_plan()),
            (Ok(Known::Run(run)), Some(experiment)) => {
                let link = run.link.iter().all(is_plausible_link);
                let latency = run.latency.iter().all(|latency| latency.unanswered < 1 << 20);
                let flows = run.flows.iter().all(|flow| flow.is_plausible(u32::MAX));
                if !(flows && link && latency && run.round <= MAX_ROUNDS) {
                    let cause = "impossible figures of a run".to_owned();
                    return Err(ReadError::Line { path: path.to_owned(), line, cause });
                }
                experiment.runs.push(*run);
            }
            (Ok(Known::Void(void)), Some(experiment)) => experiment.void.push(void),
            (Ok(Known::Beside(beside)), Some(experiment)) => experiment.beside.push(beside),
            (Ok(Known::Ended(how)), Some(experiment)) => {
                (experiment.ended, ended) = (how, true);
            }
            (Ok(Known::Other | Known::Plan(_)), Some(_)) => {}
        }
    }
    let mut experiment = experiment.ok_or_else(|| ReadError::NoPlan { path: path.to_owned() })?;
    let subjects = experiment.about.subjects.len();
    experiment.runs.retain(|run| run.subject < subjects);
    experiment.void.retain(|void| void.subject < subjects);
    experiment.beside.retain(|beside| beside.subject < subjects);
    if !ended {
        experiment.ended.interrupted = Some("the file ends before the experiment".to_owned());
        experiment.ended.rounds =
            experiment.runs.iter().map(|run| run.round + 1).max().unwrap_or_default();
    }
    Ok(experiment)
}

/// Whether the counts can be summed without overflow.
fn is_plausible_link(link: &LinkFigures) -> bool {
    const MAX: u64 = 1 << 50;
    let way = |way: &LinkDirection| {
        let packets = [way.lost_packets, way.dropped_packets, way.policed_packets];
        way.packets <= MAX && way.bytes <= MAX && packets.iter().all(|count| *count <= MAX)
    };
    way(&link.up) && way(&link.down) && link.device_drops_packets <= MAX
}

fn begun(about: About, path: &Path) -> Result<Experiment, ReadError> {
    let rounds = about.rounds;
    if rounds.most_rounds > MAX_ROUNDS || rounds.least_rounds > rounds.most_rounds {
        let cause = "an impossible number of rounds".to_owned();
        return Err(ReadError::Line { path: path.to_owned(), line: 1, cause });
    }
    if about.schema != SCHEMA {
        let (version, schema) = (about.version, about.schema);
        return Err(ReadError::Schema { path: path.to_owned(), version, schema });
    }
    Ok(Experiment {
        about,
        runs: Vec::new(),
        void: Vec::new(),
        beside: Vec::new(),
        ended: Ended::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Load, Rounds};
    use crate::record::PathDescription;
    use crate::setting::{Buffers, Setting, Settings};

    fn about() -> About {
        About {
            schema: SCHEMA,
            version: "0".to_owned(),
            kernel: "6".to_owned(),
            began_unix_s: 1,
            command: vec!["lastbyte".to_owned()],
            path: PathDescription::default(),
            subjects: vec![Setting::Own(Settings::new("cubic", Buffers::Auto))],
            load: Load::bytes(5),
            rounds: Rounds::exactly(2),
            seed: 7,
            parallel: 1,
        }
    }

    fn run(round: u32) -> Run {
        Run { subject: 0, round, flows: Vec::new(), latency: None, link: None, repeated: 0 }
    }

    fn written(lines: &[Line<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        lines.iter().for_each(|line| line.write(&mut bytes).unwrap());
        bytes
    }

    fn read_back(bytes: &[u8]) -> Result<Experiment, ReadError> {
        read_lines(&mut &bytes[..], Path::new("a.json"))
    }

    #[test]
    fn what_is_written_is_read() {
        let (about, runs) = (about(), [run(0), run(1)]);
        let void = Void { subject: 0, round: 1, why: "late".to_owned(), beside: false };
        let ended = Ended { rounds: 2, settled: Some(true), interrupted: None };
        let bytes = written(&[
            Line::Plan(&about),
            Line::run(&runs[0], &about),
            Line::Void(&void),
            Line::run(&runs[1], &about),
            Line::Ended(&ended),
        ]);
        let experiment = read_back(&bytes).unwrap();
        assert_eq!((&experiment.about, &experiment.ended), (&about, &ended));
        assert_eq!((&experiment.runs[..], &experiment.void[..]), (&runs[..], &[void][..]));
    }

    #[test]
    fn a_file_that_was_cut_says_so_and_gives_what_it_has() {
        let (about, one) = (about(), run(0));
        let bytes =
            written(&[Line::Plan(&about), Line::run(&one, &about), Line::run(&one, &about)]);
        let experiment = read_back(&bytes[..bytes.len() - 3]).unwrap();
        assert_eq!((experiment.runs.len(), experiment.ended.rounds), (1, 1));
        assert!(experiment.ended.interrupted.is_some());
    }

    #[test]
    fn what_is_no_experiment_is_refused_with_its_place() {
        let refused = |bytes: &[u8]| read_back(bytes).unwrap_err().to_string();
        assert!(refused(b"").contains("not an experiment"));
        assert!(refused(b"hello\n").contains("not an experiment"));
        assert!(refused(b"{\"type\":\"ended\",\"rounds\":1}\n").contains("not an experiment"));
        let plan = written(&[Line::Plan(&about())]);
        assert!(refused(&[&plan[..], b"{\"type\":\"run\"}\n"].concat()).contains("line 2"));
        let other = About { schema: 1, ..about() };
        assert!(refused(&written(&[Line::Plan(&other)])).contains("schema 1"));
        let odd = b"{\"type\":\"of tomorrow\",\"x\":1}\n";
        assert!(read_back(&[&plan[..], odd].concat()).is_ok());
        let far = b"{\"type\":\"void\",\"subject\":9,\"round\":0,\"why\":\"\"}\n";
        assert_eq!(read_back(&[&plan[..], far].concat()).unwrap().void, []);
    }
}
