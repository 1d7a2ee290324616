//! A program that runs in a namespace, says one line of JSON after the other, and can be told a line.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_link::Namespace;
use serde_json::Value;

use super::visit::Failure;

/// Killed when dropped.
#[derive(Debug)]
pub(super) struct Bed {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    talk: Receiver<String>,
    until: Instant,
    what: String,
}

impl Bed {
    /// Starts a program in a namespace. It has so long until its end.
    pub(super) fn start(
        place: &Namespace,
        words: &[String],
        limit: Duration,
    ) -> Result<Self, Failure> {
        let what = words.join(" ");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = place.run(|| command.spawn()).map_err(Failure::of_link)?;
        let mut child = started.map_err(|error| Failure::Broken(format!("{what}: {error}")))?;
        let (line, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).all(|text| line.send(text).is_ok());
        });
        let (said, talk) = mpsc::channel();
        let mut stderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            let _ = said.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, lines, talk, until: Instant::now() + limit, what })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line; none when all that could have said one have ended.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Failure> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(self.failure(&format!("said `{line}`: {error}"))),
            },
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.failure("does not end")),
        }
    }

    /// The number in the next line, which has to be there.
    pub(super) fn next_number(&mut self, key: &str) -> Result<u64, Failure> {
        let line = self.next()?;
        let number = line.as_ref().and_then(|line| line[key].as_u64());
        number.ok_or_else(|| self.failure(&format!("said no {key}: {line:?}")))
    }

    /// Tells it a line. It may have ended meanwhile.
    pub(super) fn tell(&mut self) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(b"\n");
        }
    }

    /// Ends what it is told.
    pub(super) fn tell_end(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end of a program that says nothing more, and returns what it said on stderr.
    pub(super) fn end(mut self) -> Result<(ExitStatus, String), Failure> {
        self.stdin = None;
        while Instant::now() < self.until {
            if let Some(status) = self.child.try_wait().unwrap() {
                let talk = self.talk.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
                return Ok((status, talk));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(self.failure("does not end"))
    }

    /// Ends it, so that all that it said can be told.
    fn failure(&mut self, what: &str) -> Failure {
        let _ = self.child.kill();
        let talk = self.talk.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        Failure::Broken(format!("`{}` {what}\n{talk}", self.what))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
