//! Makes the page of an experiment that was kept as JSON Lines.
//!
//! ```text
//! lastbyte lab usa-malaysia --json > experiment.jsonl
//! cargo run -p lastbyte-lab --example page -- experiment.jsonl page.html
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use lastbyte_lab::page::{Advice, page};
use lastbyte_lab::{Findings, record};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to] = words.as_slice() else {
        return Ok(ExitCode::from(2));
    };
    let experiment = record::read(from)?;
    let page = page(&experiment, &Findings::of(&experiment), &Advice::default());
    std::fs::write(to, page)?;
    Ok(ExitCode::SUCCESS)
}
