//! What the doctor says, in words or as JSON Lines.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use lastbyte_core::text::plain;
use lastbyte_doctor::{Class, Finding, Precision, Scope, Shortfall, Summary, Tier};
use lastbyte_units::grouped;
use serde::Serialize;

use super::create;
use super::words::DoctorArgs;
use crate::output::{say, say_json, talk, width, wrap};

/// Where the answer goes.
pub(super) struct Answer {
    json: bool,
    /// Harmless ones too.
    all: bool,
    /// Of better tiers all that is known, not one line.
    verbose: bool,
    to: To,
}

enum To {
    Stdout,
    /// Where stdout is the program's.
    Stderr,
    File(BufWriter<File>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Began {
        tier: Tier,
        scope: Scope,
    },
    Shortfall {
        tier: Tier,
        why: &'a str,
        adds: &'a str,
    },
    /// What cannot be seen for want of rights, or because the kernel does not tell.
    Blind {
        why: &'a str,
    },
    /// As soon as it is found; `finding` at the end has all that is alike together.
    New(Measured<'a>),
    Finding(Measured<'a>),
    End(&'a Summary),
}

/// A finding, and how well its bytes are known.
#[derive(Serialize)]
struct Measured<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    /// Of those that are about bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_precision: Option<Precision>,
}

impl<'a> From<&'a Finding> for Measured<'a> {
    fn from(finding: &'a Finding) -> Self {
        let is_about_bytes = finding.bytes.is_some() || finding.class == Class::Loss;
        Self { finding, bytes_precision: is_about_bytes.then(|| finding.precision()) }
    }
}

impl Answer {
    pub(super) fn open(args: &DoctorArgs) -> Result<Self> {
        let to = match &args.output {
            Some(path) => To::File(BufWriter::new(create(path)?)),
            None if args.command.is_empty() || args.json => To::Stdout,
            None => To::Stderr,
        };
        Ok(Self { json: args.json, all: args.all, verbose: args.verbose, to })
    }

    /// From where is watched, and why not from higher up.
    pub(super) fn say_begun(
        &mut self,
        tier: Tier,
        scope: Scope,
        shortfalls: &[Shortfall],
    ) -> Result<()> {
        if self.json {
            self.json(&Line::Began { tier, scope })?;
            for Shortfall { tier, why, adds } in shortfalls {
                self.json(&Line::Shortfall { tier: *tier, why, adds })?;
            }
            return Ok(());
        }
        talk(&format!("doctor: watches {}, {}", words_of(scope), tier.words()));
        for Shortfall { tier, why, adds } in shortfalls.iter().filter(|_| self.verbose) {
            talk(&format!("doctor: not {}: {why}; {adds}", tier.words()));
        }
        if let ([best, others @ ..], false) = (shortfalls, self.verbose) {
            let others: Vec<String> =
                others.iter().map(|other| format!(", nor {}", other.tier.words())).collect();
            let (others, tier) = (others.concat(), best.tier.words());
            talk(&format!("doctor: not {tier}: {}{others} (--verbose says more)", best.why));
        }
        Ok(())
    }

    /// What is not seen from there, in sentences.
    pub(super) fn say_blind(&mut self, blind: &[String]) -> Result<()> {
        for why in blind {
            if self.json {
                self.json(&Line::Blind { why })?;
            } else {
                talk(&format!("doctor: {why}"));
            }
        }
        Ok(())
    }

    /// What is found while it goes on.
    pub(super) fn say_new(&mut self, new: &[Finding]) -> Result<()> {
        let all = self.all;
        if !self.json {
            return Ok(());
        }
        let mut told = new.iter().filter(|finding| all || !finding.harmless);
        told.try_for_each(|finding| self.json(&Line::New(finding.into())))
    }

    /// What was found, and in what.
    pub(super) fn say_all(&mut self, findings: &[Finding], summary: &Summary) -> Result<()> {
        if self.json {
            findings.iter().try_for_each(|finding| self.json(&Line::Finding(finding.into())))?;
            self.json(&Line::End(summary))?;
        } else {
            let all = self.all;
            for finding in findings.iter().filter(|finding| all || !finding.harmless) {
                for line in lines(finding, width()) {
                    self.line(&line)?;
                }
            }
            for told in served_words(summary) {
                for line in wrap(&told, 7, width()) {
                    self.line(&line)?;
                }
            }
            for line in wrap(&format!("doctor: {}", summary_words(summary)), 0, width()) {
                self.line(&line)?;
            }
        }
        match &mut self.to {
            To::File(file) => file.flush().context("cannot write the answer"),
            _ => Ok(()),
        }
    }

    fn json(&mut self, line: &Line<'_>) -> Result<()> {
        match &mut self.to {
            To::File(file) => writeln!(file, "{}", serde_json::to_string(line)?)
                .context("cannot write the answer"),
            _ => say_json(line),
        }
    }

    fn line(&mut self, line: &str) -> Result<()> {
        match &mut self.to {
            To::Stdout => say(line),
            To::Stderr => talk(line),
            To::File(file) => {
                writeln!(file, "{}", plain(line)).context("cannot write the answer")?;
            }
        }
        Ok(())
    }
}

fn words_of(scope: Scope) -> String {
    match scope {
        Scope::Machine => "the whole machine".to_owned(),
        Scope::Process(pid) => format!("process {pid} and what it starts"),
        Scope::Port(port) => format!("TCP port {port}"),
    }
}

/// A finding: a heading, the sentence, what to do.
pub(crate) fn lines(finding: &Finding, width: usize) -> Vec<String> {
    const MARGIN: usize = 7;
    let heading = format!("{:<6} {}", finding.code, heading(finding));
    let mut lines = wrap(&heading, MARGIN, width);
    let mut part = |what: &str, text: &str| {
        lines.extend(wrap(&format!("{:MARGIN$}{what}{text}", ""), MARGIN, width));
    };
    part("", &finding.sentence);
    if !finding.harmless {
        part("fix: ", &finding.fix);
    }
    if let Some(heal) = &finding.heal {
        part("heal: ", heal);
    }
    lines
}

/// Whom it is about, and how often.
pub(super) fn heading(finding: &Finding) -> String {
    let about = &finding.about;
    let mut words = vec![finding.class.to_string()];
    if let Some(pid) = about.pid {
        // A name of many lines would be taken for lines of ours.
        let name = about.name.as_deref().unwrap_or("?").replace(['\n', '\t'], " ");
        words.push(format!("{name}[{pid}]"));
    }
    if let Some(place) = about.place() {
        words.push(place.replace(['\n', '\t'], " "));
    }
    if let (Some(local), Some(peer)) = (about.local, about.peer) {
        words.push(if peer.port() == 0 { local.to_string() } else { format!("{local} to {peer}") });
    }
    if finding.times > 1 {
        words.push(format!("{} times", grouped(finding.times)));
    }
    if finding.class == Class::Loss
        && let Some(bytes) = finding.bytes
    {
        words.push(format!("{}{} bytes", finding.precision().prefix(), grouped(bytes)));
    }
    words.join("  ")
}

/// What servers took for each connection, a sentence each.
fn served_words(summary: &Summary) -> Vec<String> {
    /// More would hide what was found.
    const MOST: usize = 3;
    let told = summary.served.iter().take(MOST).map(|one| {
        let name = one.name.replace(['\n', '\t'], " ");
        format!("served {name}[{}]  {}", one.pid, one.sentence())
    });
    let mut told: Vec<String> = told.collect();
    if summary.served.len() > MOST {
        let more = summary.served.len() - MOST;
        told.push(format!("served by {more} more, which --json names"));
    }
    told
}

/// One sentence about all.
pub(super) fn summary_words(summary: &Summary) -> String {
    let classes = [
        (Class::Loss, summary.loss),
        (Class::Slow, summary.slow),
        (Class::Cpu, summary.cpu),
        (Class::Connect, summary.connect),
    ];
    let found = classes.iter().filter(|(_, count)| *count > 0);
    let found: Vec<String> =
        found.map(|(class, count)| format!("{class} {}", grouped(*count))).collect();
    let mut words = if found.is_empty() && !summary.sees_each_loss {
        "nothing found, but a loss could have been missed".to_owned()
    } else if found.is_empty() {
        "nothing found".to_owned()
    } else {
        format!("found {}", found.join(", "))
    };
    if summary.bytes_lost > 0 {
        words += &format!(
            "; {}{} bytes lost",
            summary.bytes_lost_precision.prefix(),
            grouped(summary.bytes_lost)
        );
    } else if summary.loss > 0 {
        words += "; how many bytes were lost is not known";
    }
    if summary.harmless > 0 {
        words += &format!("; {} harmless", grouped(summary.harmless));
    }
    words += &format!("; watched for {:.1} s, {}", summary.watched_s, summary.tier.words());
    if let Some(looks) = summary.looks {
        words += &format!(", {} looks", grouped(looks));
        if let Some(rate) = summary.looks_per_s {
            words += &format!(" ({rate:.1} a second)");
        }
    }
    words += &match summary.unseen_connections {
        None => String::new(),
        Some(0) => "; no connection came and went between two looks".to_owned(),
        Some(1) => "; at most 1 connection end came and went between two looks".to_owned(),
        Some(ends) => {
            format!("; at most {} connection ends came and went between two looks", grouped(ends))
        }
    };
    if summary.sees_each_loss {
        words += "; each loss is seen from there";
    } else if summary.loss > 0 {
        words += "; others could have been missed";
    }
    words
}
