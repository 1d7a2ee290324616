//! Programs of others as subjects: guests, whose output is kept.

use std::io;
use std::process::Stdio;

use lastbyte_lab::foreign::{Exit, Launch, LaunchError, Running, Tail};
use lastbyte_link::Namespace;
use lastbyte_sandbox::{Guest, Neighbour};

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
        let guest = guest.map_err(|error| LaunchError::of(command, error.to_string()))?;
        let guest = Some(guest);
        Ok(Box::new(KeptGuest {
            command: command.to_vec(),
            guest,
            stdout: Some(stdout),
            stderr: Some(stderr),
        }))
    }
}

struct KeptGuest {
    command: Vec<String>,
    guest: Option<Guest>,
    stdout: Option<Tail>,
    stderr: Option<Tail>,
}

/// Nothing outlives what went wrong.
impl Drop for KeptGuest {
    fn drop(&mut self) {
        if let Some(guest) = self.guest.take().filter(|guest| !guest.has_ended()) {
            // It is told to end; whether it does is nobody's to know any more.
            let _ = guest.end();
        }
    }
}

impl Running for KeptGuest {
    fn has_ended(&mut self) -> bool {
        self.guest.as_ref().is_none_or(Guest::has_ended)
    }

    fn end(mut self: Box<Self>) -> Result<Exit, LaunchError> {
        let Some(guest) = self.guest.take() else { unreachable!("ended once") };
        let code = if guest.has_ended() { guest.wait() } else { guest.end_as() };
        let code = code.map_err(|error| LaunchError::of(&self.command, error.to_string()))?;
        let output = |tail: Option<Tail>| tail.map(Tail::take).unwrap_or_default();
        Ok(Exit { code, stdout: output(self.stdout.take()), stderr: output(self.stderr.take()) })
    }
}
