//! Measures the claims of a path one after the other, and again where the machine was too busy.

use std::thread;

use lastbyte_link::{LinkError, Spec, Way};

use crate::check::{Attempt, Check, LinkRun};
use crate::claims::{self, changes, cuts, own_report};
use crate::finding::{Finding, Findings, Phase};

/// How often a phase is tried when the machine is too busy for it.
const ATTEMPTS: u32 = 3;

/// Measures a path. Takes about 10 s for a plain one, some more for each claim beyond delay, loss, rate
/// and queue, and as long as the last cut or change that is waited for. Calls `watch` as each phase
/// begins. `seed` decides which packets are lost.
///
/// # Errors
/// [`LinkError::Rights`] says what is missing and how to get it. A link that does something wrong is a
/// finding, not an error.
pub fn measure(
    spec: &Spec,
    seed: u64,
    watch: &mut dyn FnMut(Phase),
) -> Result<Findings, LinkError> {
    let check = Check::new(spec, seed);
    let mut results = Results::default();
    let beside = thread::scope(|scope| {
        // Beside the others: these take longest, and their few probes disturb no other claim.
        let beside = scope.spawn(|| claims::measure_beside(&check));
        for claim in claims::IN_TURN.iter().filter(|claim| check.asked.iter().any(claim.is_made)) {
            watch(claim.phase);
            results.attempt(claim.phase, || (claim.measure)(&check))?;
        }
        watch(Phase::Scheduled);
        beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    results.keep(beside);
    results.attempt(Phase::Scheduled, || changes::rates_and_losses(&check))?;
    for way in Way::BOTH {
        results.list.extend(cuts::not_checked(spec, way));
        results.list.extend(changes::not_checked(spec, way));
    }
    Ok(results.findings())
}

/// What was measured so far.
#[derive(Debug, Default)]
struct Results {
    list: Vec<Finding>,
    runs: Vec<LinkRun>,
    /// Links of attempts that do not count, because the machine was too busy.
    repeated: usize,
}

impl Results {
    /// Tries a phase until the machine was not too busy for it, and keeps the best attempt.
    fn attempt(
        &mut self,
        phase: Phase,
        measure: impl Fn() -> Result<Attempt, LinkError>,
    ) -> Result<(), LinkError> {
        let mut best: Option<Attempt> = None;
        for _ in 0..ATTEMPTS {
            let attempt = measure()?;
            debug_assert!(attempt.runs.iter().all(|run| run.phase == phase));
            let (better, worse) = match best.take() {
                Some(best) if best.busy() <= attempt.busy() => (best, Some(attempt)),
                other => (attempt, other),
            };
            self.repeated += worse.map_or(0, |worse| worse.runs.len());
            let idle = better.busy() == (0, false);
            best = Some(better);
            if idle {
                break;
            }
        }
        self.keep(best.unwrap_or_default());
        Ok(())
    }

    fn keep(&mut self, attempt: Attempt) {
        self.list.extend(attempt.list);
        self.runs.extend(attempt.runs);
    }

    /// All findings; those about the links' own reports are last.
    fn findings(mut self) -> Findings {
        self.list.extend(own_report::findings(&self.runs, self.repeated));
        Findings { list: self.list }
    }
}
