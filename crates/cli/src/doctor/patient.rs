//! The program that is watched: it stops before its first instruction, so that nothing of it is missed.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};
use lastbyte_host::Proc;
use lastbyte_sandbox::{NOT_FOUND, NOT_STARTED, code, has_ended};
use lastbyte_sys::process;

use super::words::PatientArgs;
use crate::output::talk;
use crate::verdict::Verdict;

/// A program that was started, and may not have been let go.
#[derive(Debug)]
pub(super) struct Patient {
    child: Child,
    process: OwnedFd,
    has_begun: bool,
}

impl Patient {
    /// Starts a process that will be the program, and has stopped.
    pub(super) fn start(command: &[String]) -> Result<Self> {
        let mut own = Command::new("/proc/self/exe");
        own.arg0("lastbyte").arg("doctor-patient");
        if let Ok(this) = Proc::default().own_stat() {
            own.args(["--parent", &this.pid.to_string()]);
        }
        own.arg("--").args(command);
        let child = own.spawn().context("start a process")?;
        let pid = i32::try_from(child.id())?;
        let process = process::pidfd_open(pid).context("hold on to the process")?;
        let patient = Self { child, process, has_begun: false };
        if !process::wait_for_stop(pid).context("wait for the process")? {
            bail!("the process that was to become {} ended before it began", command[0]);
        }
        Ok(patient)
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it become the program.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.has_begun = true;
        process::pidfd_send_signal(&self.process, process::SIGCONT).context("let the program begin")
    }

    /// Passes a signal on to the program.
    pub(super) fn signal(&self, signal: i32) -> Result<()> {
        match process::pidfd_send_signal(&self.process, signal) {
            // It has ended.
            Err(error) if error.raw_os_error() == Some(process::NO_SUCH_PROCESS) => Ok(()),
            sent => sent.context("pass a signal on to the program"),
        }
    }

    /// How it ended, if it has: its exit code, or 128 and the number of the signal.
    pub(super) fn ended(&mut self) -> Result<Option<u8>> {
        let status = self.child.try_wait().context("wait for the program")?;
        Ok(status.map(code))
    }
}

impl Drop for Patient {
    /// One that never began must not stay stopped for ever.
    fn drop(&mut self) {
        if !self.has_begun {
            let _ = process::pidfd_send_signal(&self.process, process::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Stops, and is the program once the doctor lets it go on; ends with a doctor that ends before.
pub(crate) fn become_program(args: &PatientArgs) -> Verdict {
    let command = &args.command;
    let waited = process::set_parent_death_signal(process::SIGKILL).and_then(|()| {
        if args.parent.is_some_and(has_ended) {
            return Err(io::Error::other("it has ended"));
        }
        process::stop()?;
        process::set_parent_death_signal(0)
    });
    if let Err(error) = waited {
        talk(&format!("lastbyte: cannot wait for the doctor: {error}"));
        return Verdict::Of(NOT_STARTED);
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    talk(&format!("lastbyte: cannot run {}: {error}", command[0]));
    Verdict::Of(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED })
}
