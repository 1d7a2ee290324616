//! Where the lines of an experiment go while it runs: to stdout, to a file, or to both.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lastbyte_lab::file::{Line, SummaryLine};
use lastbyte_lab::record::About;
use lastbyte_lab::{Event, Experiment, Findings};

use crate::output::talk;

/// Writes each line as it comes, so that a kill takes at most the last.
#[derive(Debug)]
pub(crate) struct Keeper {
    about: Option<About>,
    stdout: bool,
    file: Option<(PathBuf, File)>,
    /// Why the file is not whole.
    failed: Option<String>,
}

impl Keeper {
    /// A file that cannot be made is known before anything is measured.
    pub(crate) fn new(json: bool, save: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            // What is there stays until there is something better.
            let file = File::options().write(true).create(true).truncate(false).open(path);
            anyhow::Ok((
                path.to_owned(),
                file.with_context(|| format!("--save {}", path.display()))?,
            ))
        };
        Ok(Self { about: None, stdout: json, file: save.map(open).transpose()?, failed: None })
    }

    /// What happens. A file that takes no more is said once, and the measuring goes on; without
    /// stdout there is no answer, and no reason to.
    pub(crate) fn on(&mut self, event: &Event<'_>) -> ControlFlow<String> {
        match event {
            Event::Begun(about) => {
                self.about = Some((*about).clone());
                if let Some((_, file)) = &self.file {
                    // A pipe or a device has no length; what cannot be written is told by writing.
                    let _ = file.set_len(0);
                }
                self.write(&Line::Plan(about))
            }
            Event::Counted(run) => match self.about.take() {
                Some(about) => {
                    let flow = self.write(&Line::run(run, &about));
                    self.about = Some(about);
                    flow
                }
                None => ControlFlow::Continue(()),
            },
            Event::Void(void) => self.write(&Line::Void(void)),
            Event::Beside(beside) => self.write(&Line::Beside(beside)),
            _ => ControlFlow::Continue(()),
        }
    }

    /// The last line. An answer that is not whole is a failure.
    pub(crate) fn end(mut self, experiment: &Experiment) -> Result<()> {
        let mut flow = self.write(&Line::Ended(&experiment.ended));
        for row in &Findings::of(experiment).rows {
            if flow.is_continue() {
                flow = self.write(&Line::Summary(Box::new(SummaryLine::of(row))));
            }
        }
        if let Some((path, file)) = &self.file
            && let Err(error) = file.sync_all()
            // Pipes and devices cannot be.
            && error.kind() != io::ErrorKind::InvalidInput
        {
            self.failed.get_or_insert_with(|| format!("{}: {error}", path.display()));
        }
        match (self.failed, flow) {
            (Some(why), _) | (None, ControlFlow::Break(why)) => bail!("not all was kept: {why}"),
            (None, ControlFlow::Continue(())) => Ok(()),
        }
    }

    fn write(&mut self, line: &Line<'_>) -> ControlFlow<String> {
        if let Some((path, file)) = &mut self.file
            && self.failed.is_none()
            && let Err(error) = line.write(file)
        {
            let why = format!("{}: {error}", path.display());
            talk(&format!("lab: {why}; the measuring goes on, and nothing more is saved"));
            self.failed = Some(why);
        }
        if self.stdout {
            let mut stdout = io::stdout().lock();
            if let Err(error) = line.write(&mut stdout).and_then(|()| stdout.flush()) {
                if error.kind() == io::ErrorKind::BrokenPipe {
                    // Nobody reads any more (`| head`).
                    std::process::exit(0);
                }
                return ControlFlow::Break(format!("stdout: {error}"));
            }
        }
        ControlFlow::Continue(())
    }
}
