//! Programs of others as subjects: guests, whose output is kept.

use std::io;
use std::process::Stdio;

use lastbyte_lab::foreign::{Exit, Launch, LaunchError, Running, Tail};
use lastbyte_link::Namespace;

use crate::guest::{Guest, Neighbour};

/// Starts programs as guests: they find `near` and `far` by name, and die with this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guests;

impl Launch for Guests {
    fn launch(
        &self,
        host: &Namespace,
        command: &[String],
    ) -> Result<Box<dyn Running>, LaunchError> {
        let failed = |cause: io::Error| LaunchError::of(command, cause);
        let (stdout, out) = io::pipe().map_err(failed)?;
        let (stderr, err) = io::pipe().map_err(failed)?;
        let (stdout, stderr) =
            (Tail::of(stdout).map_err(failed)?, Tail::of(stderr).map_err(failed)?);
        let guest = Guest::start_with(host, &Neighbour::of_path(), command, move |init| {
            init.stdin(Stdio::null()).stdout(out).stderr(err);
        });
        let guest = guest.map_err(|error| LaunchError::of(command, format!("{error:#}")))?;
        Ok(Box::new(KeptGuest { command: command.to_vec(), guest, stdout, stderr }))
    }
}

struct KeptGuest {
    command: Vec<String>,
    guest: Guest,
    stdout: Tail,
    stderr: Tail,
}

impl Running for KeptGuest {
    fn has_ended(&mut self) -> bool {
        self.guest.has_ended()
    }

    fn end(self: Box<Self>) -> Result<Exit, LaunchError> {
        let code = if self.guest.has_ended() { self.guest.wait() } else { self.guest.end_as() };
        let code = code.map_err(|error| LaunchError::of(&self.command, format!("{error:#}")))?;
        Ok(Exit { code, stdout: self.stdout.take(), stderr: self.stderr.take() })
    }
}
