//! Act 6: the doctor watches act 1's program, over a path.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lastbyte_doctor::{
    Class, Doctor, Event, Finding, Observer, Plan, Precision, Scope, Summary, Traced,
};
use lastbyte_lab::quiz::{self, Method, Outcome};
use lastbyte_lab::{Path, PathUp};
use lastbyte_units::grouped;

use super::QUIZ_BYTES;
use crate::doctor::lines;
use crate::output::{say, width};

/// Returns whether what the doctor says is what the reader counted.
pub(super) fn what_no_call_says(path: &Path) -> Result<bool> {
    say("Act 6. The program of act 1 closes once more, over the path of the others, and no");
    say("call fails. The doctor looks on.");
    say("");
    let path = path.up(1)?;
    let scope = Scope::Process(std::process::id());
    let plan = Plan { scope, tier: None, traced: Traced::Never, every: TURN };
    let (observer, _) = Observer::start(&plan).context("starting to watch")?;
    let tier = observer.tier();
    let (outcome, findings, summary) = watch(observer, &path)?;
    path.down()?;
    say(&format!(
        "the reader got {} of {} bytes; the doctor says:",
        grouped(outcome.arrived),
        grouped(outcome.written)
    ));
    for line in findings.iter().flat_map(|finding| lines(finding, width())) {
        say(&line);
    }
    if findings.is_empty() {
        say(&format!("nothing, with no more than {}", tier.words()));
    }
    let lost = outcome.written.saturating_sub(outcome.arrived);
    let agrees = agrees(&summary, lost);
    if !agrees {
        say(&format!(
            "That differs from what the reader counted: {} bytes did not arrive.",
            grouped(lost)
        ));
    } else if summary.bytes_lost_precision == Precision::About {
        say("The number is an estimate, and was not checked.");
    }
    Ok(agrees)
}

/// Whether a sum is so many bytes, or bounds them as it says.
fn agrees(summary: &Summary, lost: u64) -> bool {
    let said = summary.bytes_lost;
    (summary.loss > 0) == (lost > 0)
        && match summary.bytes_lost_precision {
            Precision::Exact => said == lost,
            Precision::AtMost => said >= lost,
            Precision::AtLeast => said <= lost,
            Precision::About => true,
        }
}

/// Two looks are no farther apart.
const TURN: Duration = Duration::from_millis(100);
/// What tables alone can tell is counted once a second.
const FOLLOWED: Duration = Duration::from_millis(1_500);

/// Plays the quiz once, watched. Returns what came of it, and what was found to be lost.
fn watch(mut observer: Observer, path: &PathUp) -> Result<(Outcome, Vec<Finding>, Summary)> {
    let (mut doctor, began) = (Doctor::new(), Instant::now());
    let mut turn = |observer: &mut Observer| {
        observer.take(TURN, &mut |event: Event| {
            doctor.take(&event);
        })
    };
    let played = thread::scope(|scope| -> Result<_> {
        let quiz = scope.spawn(|| quiz::play(path, Method::Close, QUIZ_BYTES, (1, 1)));
        while !quiz.is_finished() {
            turn(&mut observer)?;
        }
        Ok(quiz.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    })?;
    let since = Instant::now();
    while since.elapsed() < FOLLOWED {
        turn(&mut observer)?;
    }
    doctor.end();
    let is_loss = |finding: &Finding| finding.class == Class::Loss && !finding.harmless;
    let findings = doctor.findings().into_iter().filter(is_loss).collect();
    let outcome = played.into_iter().next().context("the quiz was not played")?;
    let mut summary = Summary::of(&doctor, began.elapsed());
    summary.sees_each_loss &= observer.sees_each_loss();
    Ok((outcome, findings, summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_agrees_with_what_was_counted_as_it_says() {
        let nothing = Summary::of(&Doctor::new(), Duration::ZERO);
        assert!(agrees(&nothing, 0) && !agrees(&nothing, 1));
        for (precision, at) in [
            (Precision::Exact, [false, true, false]),
            (Precision::AtMost, [true, true, false]),
            (Precision::AtLeast, [false, true, true]),
        ] {
            let (loss, bytes_lost, bytes_lost_precision) = (1, 7, precision);
            let said = Summary { loss, bytes_lost, bytes_lost_precision, ..nothing.clone() };
            assert_eq!([6, 7, 8].map(|lost| agrees(&said, lost)), at, "{precision:?}");
            assert!(!agrees(&said, 0));
        }
    }
}
