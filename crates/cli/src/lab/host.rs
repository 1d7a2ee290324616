//! `lastbyte lab HOST`: the near host of an experiment over a real path.

use std::fs;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use lastbyte_core::text::in_one_line;
use lastbyte_dial::blocking::Dialer;
use lastbyte_dial::{DialOptions, Resolver};
use lastbyte_lab::remote::Remote;
use lastbyte_lab::remote::protocol::Key;
use lastbyte_lab::{Load, Plan, Setting};
use lastbyte_link::Way;
use lastbyte_socket::blocking::Stream;
use lastbyte_units::{ByteSize, grouped};

use crate::output::talk;

/// Options for a real path: `lastbyte lab serve` on another host prints the words.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "A real path, to HOST:PORT or ssh://USER@HOST")]
pub(crate) struct HostArgs {
    /// The key that `lab serve` has printed. Others on this machine can see it here: see --key-file,
    /// and LASTBYTE_LAB_KEY in the environment
    #[arg(long, value_name = "KEY", conflicts_with = "key_file")]
    pub(crate) key: Option<String>,
    /// A file with the key; - is stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Send at most so many bytes each way, over all runs: clouds charge for them. What the network
    /// repeats, and its headers, come on top
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "10GiB")]
    pub(crate) max_bytes: ByteSize,
    /// Do not ask before bytes are sent
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// With ssh://: how the program is called there
    #[arg(long, value_name = "COMMAND", default_value = "lastbyte")]
    pub(crate) remote_command: String,
}

const KEY_VARIABLE: &str = "LASTBYTE_LAB_KEY";
const SSH: &str = "ssh://";

/// A host of the command line.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// One that `lab serve` runs on.
    Serving(String, u16),
    /// One that ssh leads to.
    Ssh { target: String, port: Option<u16> },
}

impl HostArgs {
    /// Whether the word for the path, or the options, mean another host.
    pub(crate) fn is_meant(&self, word: Option<&str>) -> bool {
        let is_place = |word| matches!(place(word), Ok(Some(_)) | Err(_));
        self.key.is_some() || self.key_file.is_some() || word.is_some_and(is_place)
    }
}

/// A host with an experiment open, and whatever keeps it there.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) remote: Arc<Remote>,
    ssh: Option<Ssh>,
}

impl Far {
    /// Connects to the host of the command line, and opens an experiment there. Sends no load.
    pub(crate) fn open(args: &HostArgs, word: Option<&str>) -> Result<Self> {
        let Some(word) = word else { bail!("which host? `lab serve` prints its address") };
        let Some(place) = place(word)? else {
            bail!("`{}` is no HOST:PORT, and a key is for one", in_one_line(word));
        };
        let (name, port, key, ssh) = match place {
            Place::Serving(name, port) => (name, port, key(args)?, None),
            Place::Ssh { target, port } => {
                let (ssh, port, key) = Ssh::start(args, &target, port)?;
                (ssh.host.clone(), port, key, Some(ssh))
            }
        };
        let stream = dial(&name, port).map_err(|error| match &ssh {
            None => error,
            Some(_) => error.context(
                "ssh gets there, and plain TCP does not: open a port and give it to \
                 `lab serve --listen` and `--data-port` by hand",
            ),
        })?;
        let remote = Remote::open(stream, &name, key, args.max_bytes.bytes())
            .with_context(|| format!("{} port {port}", in_one_line(&name)))?;
        Ok(Self { remote, ssh })
    }

    /// Bounds each run so that all of them keep to the limits, says what may be sent, and asks.
    pub(crate) fn agree(&self, args: &HostArgs, plan: &mut Plan) -> Result<()> {
        plan.load = self.bounded(plan)?;
        let words = plan.path.words();
        talk(&format!("lab: {}, {}", in_one_line(&words.name), words.words));
        let [up, down] = Way::BOTH.map(|way| bytes(plan, way));
        talk(&format!(
            "lab: at most {} bytes will go there, and {} come from there; clouds charge for such bytes",
            grouped(up),
            grouped(down)
        ));
        if args.yes {
            return Ok(());
        }
        ensure!(
            io::stdin().is_terminal() && io::stderr().is_terminal(),
            "there is no terminal to ask on: say --yes to send so many bytes, or less with --max-bytes"
        );
        talk("lab: go on? [y/N]");
        let mut answer = String::new();
        io::stdin().lock().take(64).read_line(&mut answer)?;
        ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was sent");
        Ok(())
    }

    /// The load of one run, so that all together keep to the limits.
    fn bounded(&self, plan: &Plan) -> Result<Load> {
        /// Less shows nothing.
        const LEAST: u64 = 100_000;
        let most_time = Duration::from_secs(self.remote.about().most_seconds);
        ensure!(
            plan.load.time.is_none_or(|time| time <= most_time),
            "the far host lets a run send for {} s at most: use --seconds, or its --max-seconds",
            most_time.as_secs()
        );
        let share =
            Way::BOTH.into_iter().zip(self.remote.most_bytes()).filter_map(|(way, most)| {
                let runs = runs(plan, way);
                (runs > 0).then(|| most / runs)
            });
        let share = share.min().unwrap_or_default();
        let of = plan.subjects.len() * plan.rounds.most_rounds as usize;
        match plan.load.bytes {
            Some(bytes) => ensure!(
                bytes <= share,
                "{of} runs of {} bytes are more than --max-bytes here and on the far host allow: that \
                 is {} for each",
                grouped(bytes),
                grouped(share)
            ),
            None => ensure!(
                share >= LEAST,
                "{} bytes for each of {of} runs show nothing: use fewer runs, or more --max-bytes here \
                 and on the far host",
                grouped(share)
            ),
        }
        Ok(Load { bytes: Some(plan.load.bytes.unwrap_or(share)), ..plan.load })
    }

    /// Its address.
    pub(crate) fn address(&self) -> IpAddr {
        self.remote.address()
    }

    /// Ends the experiment there.
    pub(crate) fn close(self) {
        self.remote.bye();
        if let Some(ssh) = self.ssh {
            ssh.end();
        }
    }
}

/// How many runs of a plan load a direction.
fn runs(plan: &Plan, way: Way) -> u64 {
    let loads = |setting: &Setting| match setting {
        Setting::Own(settings) => settings.direction.ways().contains(&way),
        Setting::Command(_) => false,
    };
    plan.settings().filter(loads).count() as u64 * u64::from(plan.rounds.most_rounds)
}

/// The most that a plan sends in a direction.
fn bytes(plan: &Plan, way: Way) -> u64 {
    runs(plan, way) * plan.load.bytes.unwrap_or_default()
}

/// What a word means; `None` where it is no other host.
fn place(word: &str) -> Result<Option<Place>> {
    let port_of = |port: &str| match port.parse::<u16>() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(anyhow!("`{}` is no port of a host", in_one_line(port))),
    };
    if let Some(rest) = word.strip_prefix(SSH) {
        let rest = rest.trim_end_matches('/');
        let (target, port) = match split_port(rest) {
            Some((target, port)) => (target, Some(port_of(port)?)),
            None => (rest, None),
        };
        // ssh would take it for an option.
        let host = target.rsplit('@').next().unwrap_or_default();
        ensure!(
            !host.is_empty() && !target.starts_with('-') && !host.starts_with('-'),
            "`{}` names no host",
            in_one_line(word)
        );
        return Ok(Some(Place::Ssh { target: target.replace(['[', ']'], ""), port }));
    }
    if word.ends_with(".toml") || word.contains('/') {
        return Ok(None);
    }
    let Some((host, port)) = split_port(word) else { return Ok(None) };
    ensure!(!host.is_empty(), "`{}` names no host", in_one_line(word));
    Ok(Some(Place::Serving(host.replace(['[', ']'], ""), port_of(port)?)))
}

/// HOST and PORT of HOST:PORT. An address of IPv6 has to stand in brackets.
fn split_port(word: &str) -> Option<(&str, &str)> {
    let (host, port) = word.rsplit_once(':')?;
    let bracketed = host.ends_with(']') && host.contains('[');
    (bracketed || !host.contains(':')).then_some((host, port))
}

/// The key, from wherever it was given.
fn key(args: &HostArgs) -> Result<Key> {
    /// More is no key.
    const MOST: u64 = 1024;
    let text = match (&args.key, &args.key_file) {
        (Some(key), _) => key.clone(),
        (None, Some(file)) => {
            let mut text = String::new();
            let read = if file.as_os_str() == "-" {
                io::stdin().lock().take(MOST).read_to_string(&mut text)
            } else {
                fs::File::open(file).and_then(|file| file.take(MOST).read_to_string(&mut text))
            };
            read.with_context(|| format!("reading the key from {}", file.display()))?;
            text
        }
        (None, None) => std::env::var(KEY_VARIABLE).map_err(|_| {
            anyhow!("which key? `lab serve` has printed it: --key, --key-file or {KEY_VARIABLE}")
        })?,
    };
    Ok(text.parse()?)
}

fn dial(host: &str, port: u16) -> Result<Stream> {
    let dialer = Dialer::new(Resolver::dns()?).context("starting to dial")?;
    let dialed = dialer.dial((host, port), &DialOptions::default());
    Ok(dialed.map_err(|error| anyhow!("{}", in_one_line(&error.to_string())))?.stream)
}

/// A `lab serve` that ssh has started, and that ends with its stdin.
#[derive(Debug)]
struct Ssh {
    child: Child,
    stdin: Option<ChildStdin>,
    talk: Option<JoinHandle<()>>,
    /// The host that ssh connects to.
    host: String,
}

impl Ssh {
    /// Starts ssh, which may ask for a password on the terminal, and waits for the line that
    /// `lab serve` prints there.
    fn start(args: &HostArgs, target: &str, port: Option<u16>) -> Result<(Self, u16, Key)> {
        let mut command = Command::new("ssh");
        command.arg("-T").args(port.map(|port| format!("-p{port}"))).args(["--", target]);
        // The words go through a shell there; none of them comes from elsewhere.
        command.arg(format!(
            // It ends with us in any case, and this host sets the limits.
            "{} lab serve --once --parent-pipe --max-seconds 3600 --for 720h --max-bytes {}",
            args.remote_command,
            args.max_bytes.bytes()
        ));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting ssh")?;
        let stderr = child.stderr.take();
        let said = thread::spawn(move || stderr.into_iter().for_each(pass_on));
        let stdout = child.stdout.take();
        let host = host_name(target, port);
        let ssh = Self { stdin: child.stdin.take(), child, talk: Some(said), host };
        match stdout.and_then(|stdout| read_line(BufReader::new(stdout))) {
            Some((port, key)) => Ok((ssh, port, key)),
            None => {
                ssh.end();
                bail!(
                    "`{} lab serve` did not start on {} (see --remote-command)",
                    in_one_line(&args.remote_command),
                    in_one_line(target)
                )
            }
        }
    }

    fn end(mut self) {
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

/// Shows what ssh and the far host say, without what a terminal would obey.
fn pass_on(stderr: impl Read) {
    const LONGEST: u64 = 1000;
    let mut lines = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(1..) => {
                talk(&format!("there: {}", in_one_line(String::from_utf8_lossy(&line).trim_end())));
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
    fn hosts_are_told_from_scenarios() {
        let serving = |host: &str, port| Some(Place::Serving(host.to_owned(), port));
        let ssh = |target: &str, port| Some(Place::Ssh { target: target.to_owned(), port });
        for (word, expected) in [
            ("usa-malaysia", None),
            ("paths/mine:1.toml", None),
            ("host:7", serving("host", 7)),
            ("192.0.2.7:40123", serving("192.0.2.7", 40123)),
            ("[2001:db8::1]:80", serving("2001:db8::1", 80)),
            ("2001:db8::1", None),
            ("ssh://host", ssh("host", None)),
            ("ssh://me@host:2222/", ssh("me@host", Some(2222))),
            ("ssh://me@[::1]:22", ssh("me@::1", Some(22))),
        ] {
            assert_eq!(place(word).unwrap(), expected, "{word}");
        }
        for wrong in [
            ":7",
            "host:0",
            "host:http",
            "host:65536",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://me@-x",
        ] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

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
