//! The page that `--report` writes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lastbyte_lab::page::{self, page};
use lastbyte_lab::{Experiment, Findings};

use crate::lab::Advice;
use crate::output::talk;

/// Whether a page can be written there: nobody should learn it after a long experiment.
pub(crate) fn check(path: &Path) -> Result<()> {
    ensure!(path.file_name().is_some(), "--report {}: that is no file", path.display());
    let beside = beside(path);
    File::create(&beside).with_context(|| format!("--report {}", path.display()))?;
    fs::remove_file(&beside).with_context(|| format!("--report {}", path.display()))
}

/// Writes the page: whole, or what was there before stays.
pub(crate) fn write(
    path: &Path,
    experiment: &Experiment,
    findings: &Findings,
    advice: Option<&Advice>,
) -> Result<()> {
    let told = advice.map(|advice| page::Advice {
        conclusion: advice.sentences.clone(),
        ways: advice.ways.iter().map(|way| (way.scope.to_owned(), way.lines.clone())).collect(),
        warnings: advice.warnings.clone(),
    });
    let text = page(experiment, findings, &told.unwrap_or_default());
    let beside = beside(path);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // What is there of it is no page.
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("--report {}", path.display()))?;
    talk(&format!("lab: {} shows it: {} kB", path.display(), text.len() / 1000));
    Ok(())
}

/// In the same folder, so that it can be moved into place.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
