//! A `lab serve` that ssh starts on another host.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lastbyte_core::text::in_one_line;

use super::place::split_port;
use super::protocol::Key;

/// How the program is called on the other host, and what it may be sent.
#[derive(Clone, Copy, Debug)]
pub struct ServeCommand<'a> {
    /// The program, in the words of a shell.
    pub program: &'a str,
    /// The most bytes each way.
    pub max_bytes: u64,
}

/// Why nothing serves on the other host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SshError {
    /// ssh cannot be started.
    #[error("starting ssh: {0}")]
    Start(io::Error),
    /// The program did not start there.
    #[error("`{program} lab serve` did not start on {target} (see --remote-command)")]
    NotServing {
        /// As it was called.
        program: String,
        /// As ssh took it.
        target: String,
    },
}

/// A `lab serve` that ssh has started, and that ends with its stdin.
#[derive(Debug)]
pub struct Ssh {
    child: Child,
    stdin: Option<ChildStdin>,
    talk: Option<JoinHandle<()>>,
    /// The host that ssh connects to.
    host: String,
}

impl Ssh {
    /// Starts ssh, which may ask for a password on the terminal, and waits for the line that
    /// `lab serve` prints there: its port and its key. `said` gets what ssh and the far host say, line by
    /// line, without what a terminal would obey.
    ///
    /// # Errors
    /// ssh cannot be started, or `lab serve` did not start there.
    pub fn start(
        command: &ServeCommand<'_>,
        target: &str,
        port: Option<u16>,
        said: fn(&str),
    ) -> Result<(Self, u16, Key), SshError> {
        let ServeCommand { program, max_bytes } = *command;
        let mut ssh = Command::new("ssh");
        ssh.arg("-T").args(port.map(|port| format!("-p{port}"))).args(["--", target]);
        // The words go through a shell there; none of them comes from elsewhere.
        ssh.arg(format!(
            // It ends with us in any case, and this host sets the limits.
            "{} lab serve --once --parent-pipe --max-seconds 3600 --for 720h --max-bytes {}",
            program, max_bytes
        ));
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = ssh.spawn().map_err(SshError::Start)?;
        let stderr = child.stderr.take();
        let talk = thread::spawn(move || stderr.into_iter().for_each(|one| pass_on(one, said)));
        let stdout = child.stdout.take();
        let host = host_name(target, port);
        let ssh = Self { stdin: child.stdin.take(), child, talk: Some(talk), host };
        match stdout.and_then(|stdout| read_line(BufReader::new(stdout))) {
            Some((port, key)) => Ok((ssh, port, key)),
            None => {
                ssh.end();
                let (program, target) = (in_one_line(program), in_one_line(target));
                Err(SshError::NotServing { program, target })
            }
        }
    }

    /// The host that ssh connects to.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Ends what runs there.
    pub fn end(mut self) {
        self.stop();
    }

    /// Ends its stdin, and it if that is not enough.
    fn stop(&mut self) {
        const END_WITHIN: Duration = Duration::from_secs(5);
        drop(self.stdin.take());
        let until = Instant::now() + END_WITHIN;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What it said last is waited for, but not for a master connection of ssh that stays.
        let talks = |talk: &JoinHandle<()>| !talk.is_finished();
        while Instant::now() < until && self.talk.as_ref().is_some_and(talks) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        if self.stdin.is_some() {
            self.stop();
        }
    }
}

/// Passes on what ssh and the far host say, without what a terminal would obey.
fn pass_on(stderr: impl Read, said: fn(&str)) {
    const LONGEST: u64 = 1000;
    let mut lines = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(1..) => {
                said(&in_one_line(String::from_utf8_lossy(&line).trim_end()));
            }
            Ok(0) | Err(_) => return,
        }
    }
}

/// Finds the line of `lab serve`: a shell may print others before.
fn read_line(mut from: impl BufRead) -> Option<(u16, Key)> {
    const LONGEST: u64 = 1000;
    const MOST: usize = 200;
    for _ in 0..MOST {
        let mut line = Vec::new();
        if from.by_ref().take(LONGEST).read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        if let Some(found) = std::str::from_utf8(&line).ok().and_then(port_and_key) {
            return Some(found);
        }
    }
    None
}

fn port_and_key(line: &str) -> Option<(u16, Key)> {
    let rest = line.trim().strip_prefix("lastbyte lab ")?;
    let (place, key) = rest.split_once(" --key ")?;
    let (_, port) = split_port(place)?;
    Some((port.parse().ok()?, key.parse().ok()?))
}

/// The host that ssh connects to for a target, which may be an alias of the user's own.
fn host_name(target: &str, port: Option<u16>) -> String {
    let mut command = Command::new("ssh");
    command.arg("-G").args(port.map(|port| format!("-p{port}"))).args(["--", target]);
    let said = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
    let said = said.unwrap_or_default();
    let name = said.lines().find_map(|line| line.strip_prefix("hostname "));
    let own = target.rsplit('@').next().unwrap_or(target);
    name.unwrap_or(own).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_among_others() {
        let key = Key::new().unwrap();
        let line =
            |place: &str| format!("Welcome\nlastbyte lab of x\nlastbyte lab {place} --key {key}\n");
        let found = Some((7, key.clone()));
        assert_eq!(read_line(line("192.0.2.1:7").as_bytes()), found);
        assert_eq!(read_line(line("[2001:db8::1]:7").as_bytes()), found);
        assert_eq!(read_line(line("HOST:7").as_bytes()), found);
        assert_eq!(read_line(line("HOST").as_bytes()), None);
        assert_eq!(read_line(&b"x".repeat(1 << 20)[..]), None);
        assert_eq!(read_line(&b"\n".repeat(1 << 20)[..]), None);
    }
}
