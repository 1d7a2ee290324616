//! A program that stops before its first instruction, so that whoever watches it misses nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use lastbyte_host::Proc;
use lastbyte_sys::process;

use crate::{Result, SandboxError, code, has_ended, step};

/// A program that was started, and may not have been let go: this program again, which has to call
/// [`become_program`] for its hidden command.
#[derive(Debug)]
pub struct StoppedProgram {
    child: Child,
    process: OwnedFd,
    has_begun: bool,
}

impl StoppedProgram {
    /// Starts a process that will be the program, and has stopped. `hidden` is the command by which it
    /// calls [`become_program`].
    ///
    /// # Errors
    /// No process can be started, or it ends before it stops.
    pub fn start(hidden: &str, command: &[String]) -> Result<Self> {
        let mut own = Command::new("/proc/self/exe");
        own.arg0("lastbyte").arg(hidden);
        if let Ok(this) = Proc::default().own_stat() {
            own.args(["--parent", &this.pid.to_string()]);
        }
        own.arg("--").args(command);
        let child = own.spawn().map_err(step("start a process"))?;
        let pid = child.id().cast_signed();
        let process = process::pidfd_open(pid).map_err(step("hold on to the process"))?;
        let patient = Self { child, process, has_begun: false };
        if !process::wait_for_stop(pid).map_err(step("wait for the process"))? {
            return Err(SandboxError::EndedEarly(command[0].clone()));
        }
        Ok(patient)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it become the program.
    ///
    /// # Errors
    /// The kernel does not wake it.
    pub fn begin(&mut self) -> Result<()> {
        self.has_begun = true;
        process::pidfd_send_signal(&self.process, process::SIGCONT)
            .map_err(step("let the program begin"))
    }

    /// Passes a signal on to the program.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn signal(&self, signal: i32) -> Result<()> {
        match process::pidfd_send_signal(&self.process, signal) {
            // It has ended.
            Err(error) if error.raw_os_error() == Some(process::NO_SUCH_PROCESS) => Ok(()),
            sent => sent.map_err(step("pass a signal on to the program")),
        }
    }

    /// How it ended, if it has: its exit code, or 128 and the number of the signal.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<u8>> {
        let status = self.child.try_wait().map_err(step("wait for the program"))?;
        Ok(status.map(code))
    }
}

impl Drop for StoppedProgram {
    /// One that never began must not stay stopped for ever.
    fn drop(&mut self) {
        if !self.has_begun {
            let _ = process::pidfd_send_signal(&self.process, process::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Stops, and is the program once the one that started this lets it go on; ends with `parent` if that
/// ends before.
pub fn become_program(command: &[String], parent: Option<u32>) -> SandboxError {
    let waited = process::set_parent_death_signal(process::SIGKILL).and_then(|()| {
        if parent.is_some_and(has_ended) {
            return Err(io::Error::other("it has ended"));
        }
        process::stop()?;
        process::set_parent_death_signal(0)
    });
    if let Err(cause) = waited {
        return SandboxError::NotAwaited(cause);
    }
    let cause = Command::new(&command[0]).args(&command[1..]).exec();
    SandboxError::CannotRun { program: command[0].clone(), cause }
}
