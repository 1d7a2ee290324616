//! Starts programs on a host, and retains the end of their output.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lastbyte_link::{FAR, LinkError, NEAR, Namespace};
use lastbyte_sys::process;

use super::error::LaunchError;

/// Starts programs on the hosts of a path.
pub trait Launch: Sync {
    /// Starts `command`, whose first element is the program, on a host: with an empty stdin, and
    /// its output retained for [`Exit`]. It must not outlive the [`Running`].
    ///
    /// # Errors
    /// If it cannot be started.
    fn launch(&self, host: &Namespace, command: &[String])
    -> Result<Box<dyn Running>, LaunchError>;
}

/// A program that was started.
pub trait Running: Send {
    /// Whether it has ended. Does not wait.
    fn has_ended(&mut self) -> bool;

    /// Kills it with all that it started, unless it has ended. Returns how it ended.
    ///
    /// # Errors
    /// If its exit status is unknown.
    fn end(self: Box<Self>) -> Result<Exit, LaunchError>;
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 128 and the signal's number after a signal.
    pub code: u8,
    /// The end of its standard output.
    pub stdout: Output,
    /// The end of its standard error.
    pub stderr: Output,
}

/// The end of a program's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The last [`Tail::CAPACITY`] bytes at most; what is no UTF-8 is replaced.
    pub text: String,
    /// Bytes before those.
    pub left_out: u64,
}

/// Retains the end of what is written into a pipe. A thread reads the pipe to its end.
#[derive(Debug)]
pub struct Tail {
    retained: Arc<Mutex<Retained>>,
    ended: Receiver<()>,
}

#[derive(Debug, Default)]
struct Retained {
    bytes: VecDeque<u8>,
    left_out: u64,
}

impl Tail {
    /// How much is retained, in bytes.
    pub const CAPACITY: usize = 64 * 1024;

    /// Starts to read.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn of(mut pipe: impl Read + Send + 'static) -> io::Result<Self> {
        let retained = Arc::new(Mutex::new(Retained::default()));
        let (end, ended) = mpsc::channel();
        let filled = Arc::clone(&retained);
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            let mut chunk = vec![0; 16 * 1024];
            loop {
                match pipe.read(&mut chunk) {
                    Ok(length @ 1..) => lock(&filled).add(&chunk[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                }
            }
            drop(end);
        })?;
        Ok(Self { retained, ended })
    }

    /// Returns what was written. Waits a short time for the end of the pipe: a program that runs on
    /// may have it open.
    #[must_use]
    pub fn take(self) -> Output {
        const TIMEOUT: Duration = Duration::from_secs(1);
        let _ = self.ended.recv_timeout(TIMEOUT);
        let mut retained = lock(&self.retained);
        let text = String::from_utf8_lossy(retained.bytes.make_contiguous()).into_owned();
        Output { text, left_out: retained.left_out }
    }
}

impl Retained {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes.extend(chunk);
        let beyond = self.bytes.len().saturating_sub(Tail::CAPACITY);
        self.bytes.drain(..beyond);
        self.left_out += beyond as u64;
    }
}

fn lock(retained: &Mutex<Retained>) -> std::sync::MutexGuard<'_, Retained> {
    retained.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts programs in a host's network namespace, without further isolation: they see this
/// machine's files and names. `LASTBYTE_NEAR` and `LASTBYTE_FAR` have the hosts' addresses.
///
/// The children of a program are not killed with it: a shell command should end in `exec`.
#[derive(Clone, Copy, Debug, Default)]
pub struct InNamespace;

impl Launch for InNamespace {
    fn launch(
        &self,
        host: &Namespace,
        command: &[String],
    ) -> Result<Box<dyn Running>, LaunchError> {
        let failed = |cause: io::Error| LaunchError::of(command, cause);
        let (first, rest) = command.split_first().ok_or_else(|| failed(no_program()))?;
        let mut program = Command::new(first);
        program.args(rest).env("LASTBYTE_NEAR", NEAR.to_string());
        program.env("LASTBYTE_FAR", FAR.to_string());
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        process::die_with_parent(&mut program, process::SIGKILL);

        let (started, start) = mpsc::channel();
        // The kernel kills the program with this thread, so the thread lives as long.
        let thread = host.spawn("program", move || {
            let mut child = program.spawn()?;
            let tails = tails_of(&mut child);
            let _ = started.send((child.id(), tails));
            child.wait()
        });
        let thread = thread.map_err(|error| LaunchError::of(command, error))?;
        match start.recv() {
            Ok((pid, tails)) => {
                let pid = i32::try_from(pid).map_err(|error| LaunchError::of(command, error))?;
                let (stdout, stderr) = tails.map_err(failed)?;
                let command = command.to_vec();
                let (stdout, stderr) = (Some(stdout), Some(stderr));
                Ok(Box::new(Program { command, thread: Some(thread), pid, stdout, stderr }))
            }
            Err(_) => Err(match joined(thread) {
                Ok(status) => LaunchError::of(command, status.to_string()),
                Err(cause) => LaunchError::of(command, cause),
            }),
        }
    }
}

fn no_program() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the command is empty")
}

fn tails_of(child: &mut Child) -> io::Result<(Tail, Tail)> {
    let missing = || io::Error::other("no pipe");
    let stdout = Tail::of(child.stdout.take().ok_or_else(missing)?)?;
    let stderr = Tail::of(child.stderr.take().ok_or_else(missing)?)?;
    Ok((stdout, stderr))
}

type Outcome = Result<io::Result<ExitStatus>, LinkError>;

struct Program {
    command: Vec<String>,
    thread: Option<JoinHandle<Outcome>>,
    pid: i32,
    stdout: Option<Tail>,
    stderr: Option<Tail>,
}

impl Program {
    /// Kills it, unless it has ended.
    fn kill(&self) {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && let Ok(pidfd) = process::pidfd_open(self.pid)
        {
            // It may have ended by now; a pidfd never refers to another process.
            let _ = process::pidfd_send_signal(&pidfd, process::SIGKILL);
        }
    }
}

/// After an error, no program goes on.
impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running for Program {
    fn has_ended(&mut self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn end(mut self: Box<Self>) -> Result<Exit, LaunchError> {
        self.kill();
        let Some(thread) = self.thread.take() else { unreachable!("ended once") };
        let status = joined(thread);
        let status = status.map_err(|cause| LaunchError::of(&self.command, cause))?;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        let code = u8::try_from(code.unwrap_or(255)).unwrap_or(255);
        let last_output = |tail: Option<Tail>| tail.map(Tail::take).unwrap_or_default();
        Ok(Exit {
            code,
            stdout: last_output(self.stdout.take()),
            stderr: last_output(self.stderr.take()),
        })
    }
}

fn joined(
    thread: JoinHandle<Outcome>,
) -> Result<ExitStatus, Box<dyn std::error::Error + Send + Sync>> {
    let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(outcome??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let long = vec![b'a'; 3 * Tail::CAPACITY];
        let output = Tail::of(io::Cursor::new([&long[..], b"end\xFF"].concat())).unwrap().take();
        assert!(output.text.ends_with("aend\u{FFFD}"));
        assert_eq!(output.left_out, 2 * Tail::CAPACITY as u64 + 4);
        assert_eq!(Tail::of(io::empty()).unwrap().take(), Output::default());
    }
}
