//! `lastbyte lab HOST`: the near host of an experiment over a real path.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use lastbyte_core::text::in_one_line;
use lastbyte_dial::blocking::Dialer;
use lastbyte_dial::{DialOptions, Resolver};
use lastbyte_lab::remote::protocol::Key;
use lastbyte_lab::remote::{Place, Remote, ServeCommand, Ssh};
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

impl HostArgs {
    /// Whether the word for the path, or the options, mean another host.
    pub(crate) fn is_meant(&self, word: Option<&str>) -> bool {
        let is_place = |word| matches!(Place::of(word), Ok(Some(_)) | Err(_));
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
        let Some(place) = Place::of(word)? else {
            bail!("`{}` is no HOST:PORT, and a key is for one", in_one_line(word));
        };
        let (name, port, key, ssh) = match place {
            Place::Serving(name, port) => (name, port, key(args)?, None),
            Place::Ssh { target, port } => {
                let command = ServeCommand {
                    program: &args.remote_command,
                    max_bytes: args.max_bytes.bytes(),
                };
                let (ssh, port, key) = Ssh::start(&command, &target, port, say_there)?;
                (ssh.host().to_owned(), port, key, Some(ssh))
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
        let words = plan.path.description();
        talk(&format!("lab: {}, {}", in_one_line(&words.name), words.description));
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

/// Says what the far host says.
fn say_there(line: &str) {
    talk(&format!("there: {line}"));
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
