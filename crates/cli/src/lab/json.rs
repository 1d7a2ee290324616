//! The experiment as JSON Lines: what is to be done, each run with all its samples as it ends, and
//! what was found. Keys carry their units.

use anyhow::Result;
use lastbyte_lab::record::{About, Ended, Void};
use lastbyte_lab::{Event, Experiment, Findings, Plan, Row, Run};
use serde::Serialize;

use crate::output::say_json;

/// One line.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Plan(&'a About),
    Run {
        #[serde(flatten)]
        run: &'a Run,
        /// For readers that do not know the plan's numbers.
        name: String,
        complete: bool,
        received_bits_per_s: f64,
    },
    Void(&'a Void),
    Ended(&'a Ended),
    Summary(Summary),
}

/// Makes the runs of a plan and prints them.
pub(super) fn run(plan: &Plan) -> Result<Experiment> {
    let settings: Vec<_> = plan.settings().collect();
    let mut failed = None;
    let mut watch = |event: Event<'_>| {
        let said = match event {
            Event::Begun(about) => say_json(&Line::Plan(about)),
            Event::Counted(run) => say_json(&Line::Run {
                run,
                name: settings[run.subject].to_string(),
                complete: run.is_complete(),
                received_bits_per_s: run.received_bits_per_s(),
            }),
            Event::Void(void) => say_json(&Line::Void(void)),
            _ => Ok(()),
        };
        failed = failed.take().or_else(|| said.err());
    };
    let experiment = lastbyte_lab::experiment(plan, &mut watch)?;
    if let Some(error) = failed {
        return Err(error);
    }
    say_json(&Line::Ended(&experiment.ended))?;
    for row in &Findings::of(&experiment).rows {
        say_json(&Line::Summary(Summary::of(row)))?;
    }
    Ok(experiment)
}

#[derive(Serialize)]
struct Summary {
    name: String,
    congestion: Option<String>,
    buffers: Option<String>,
    runs: usize,
    complete_runs: usize,
    median_bits_per_s: f64,
    min_bits_per_s: f64,
    max_bits_per_s: f64,
    claimed_bits_per_s: f64,
    resent_share: Option<f64>,
    resent_needlessly_share: Option<f64>,
    buffer_cap_bits_per_s: Option<f64>,
}

impl Summary {
    fn of(row: &Row) -> Self {
        Self {
            name: row.setting.to_string(),
            congestion: row.congestion().map(str::to_owned),
            buffers: row.buffers().map(|buffers| buffers.to_string()),
            runs: row.samples.len(),
            complete_runs: row.complete,
            median_bits_per_s: row.received.median,
            min_bits_per_s: row.received.min,
            max_bits_per_s: row.received.max,
            claimed_bits_per_s: row.claimed,
            resent_share: row.resent,
            resent_needlessly_share: row.resent_needlessly,
            buffer_cap_bits_per_s: row.cap,
        }
    }
}
