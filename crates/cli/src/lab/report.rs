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
    ensure!(
        path.file_name().is_some() && !path.is_dir(),
        "--report {}: that is no file",
        path.display()
    );
    let told = || format!("--report {}", path.display());
    if is_device(path) {
        // Opening a pipe would wait for its reader.
        return Ok(());
    }
    let beside = beside(path);
    File::create(&beside).with_context(told)?;
    fs::remove_file(&beside).with_context(told)
}

/// What is no regular file is written to, and never replaced.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file())
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
        methods: advice.ways.iter().map(|way| (way.scope.to_owned(), way.lines.clone())).collect(),
        warnings: advice.warnings.clone(),
    });
    let text = page(experiment, findings, &told.unwrap_or_default());
    let written = if is_device(path) {
        File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()))
    } else {
        let beside = beside(path);
        let moved = File::create(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)
        });
        if moved.is_err() {
            // What is there of it is no page.
            let _ = fs::remove_file(&beside);
        }
        moved
    };
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
