//! A gate that runs: its lines, its signals, its end.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lastbyte_core::account::Account;
use lastbyte_gate::config::{Config, Route};
use lastbyte_gate::log::{Form, Log, Open, Sink};
use lastbyte_gate::{Accounts, Changes, Gate, Notice, Notices, Totals, Watch, WatchError, control};
use lastbyte_sys::{poll, process, signal};
use lastbyte_units::Span;

use super::Told;
use super::asking::own_folder;
use super::describe::leads_to;
use super::memory::{self, Memory};
use super::orders::{Order, Taken, orders};
use super::words::{GateArgs, LogArgs, LogWord};
use crate::output::talk;
use crate::verdict::Verdict;

/// Starts a gate, and serves until it is told to stop.
pub(super) fn run(args: &GateArgs) -> Result<Verdict> {
    let told = Told::by(&args.what)?.checked()?;
    raise_descriptor_limit();
    // Before there is a second thread: all have them blocked then.
    let signals = Signals::new()?;
    let log = open_log(&args.log)?;
    let accounts: Arc<dyn Accounts> = match &log {
        Some(log) => Arc::clone(log) as Arc<dyn Accounts>,
        None => Arc::new(NoLog),
    };
    // A gate that shares a place with another one takes no connection.
    let (watch, unanswered) = open_watch(told.config())?;
    let metrics = watch.metrics();
    let (given, taken) = orders().context("take orders")?;
    let gate = Gate::start(told.config().clone(), accounts, Arc::new(Talk))?;
    for route in &told.config().routes {
        say_listening(&gate, route);
    }
    if let Some(address) = metrics {
        talk(&format!("metrics on http://{address}/metrics"));
    }
    if let Some(why) = unanswered {
        talk(&format!("gate: `lastbyte gate stat` cannot ask it: {why}"));
    }
    let watching = watch.start(gate.view(), Arc::new(given))?;
    let mut running = Running { gate, told, log, signals, taken };
    let asked_by = running.serve()?;
    let (totals, by) = running.finish(asked_by)?;
    drop(watching);
    Ok(match (by, totals.reset) {
        (process::SIGINT, _) => Verdict::Of(BY_CTRL_C),
        (_, 0) => Verdict::Done,
        _ => Verdict::No,
    })
}

/// 128 and the number of the signal, as a shell has it.
const BY_CTRL_C: u8 = 130;

/// Where questions come in: as told, or in the place of this user's gates. Without such a place nobody
/// can ask, and the gate does its work all the same; then why is returned too.
fn open_watch(config: &Config) -> Result<(Watch, Option<String>)> {
    if let Some(path) = &config.control {
        return Ok((Watch::open(Some(path), config.metrics)?, None));
    }
    let Some(folder) = own_folder() else {
        return Ok((Watch::open(None, config.metrics)?, None));
    };
    let opened = match control::own_path(&folder) {
        Ok(path) => {
            control::sweep(&folder);
            Watch::open(Some(&path), config.metrics)
        }
        Err(why) => Err(WatchError::Control { path: folder, why }),
    };
    match opened {
        Err(error @ WatchError::Control { .. }) => {
            Ok((Watch::open(None, config.metrics)?, Some(error.to_string())))
        }
        opened => Ok((opened?, None)),
    }
}

/// A flow has two descriptors: as many as this process may come to have.
fn raise_descriptor_limit() {
    if let Ok((own, most)) = process::descriptor_limits()
        && own < most
        && let Err(error) = process::set_descriptor_limit(most, most)
    {
        talk(&format!("gate: the limit of descriptors stays at {own}: {error}"));
    }
}

fn open_log(args: &LogArgs) -> Result<Option<Arc<Log>>> {
    let form = match args.log {
        LogWord::Text => Form::Text,
        LogWord::Json => Form::Json,
        LogWord::None => return Ok(None),
    };
    let (open, what): (Open, _) = match args.log_file.clone() {
        Some(path) => {
            let what = path.display().to_string();
            (Box::new(move || append_to(&path)), what)
        }
        None => (Box::new(standard_output), "stdout".to_owned()),
    };
    let tell = |sentence: &str| talk(&format!("gate: {sentence}"));
    let log = Log::start(form, open, Box::new(tell)).with_context(|| format!("log to {what}"))?;
    Ok(Some(Arc::new(log)))
}

fn append_to(path: &Path) -> io::Result<Sink> {
    Ok(Box::new(File::options().append(true).create(true).open(path)?))
}

/// A descriptor of its own: what is written there is neither collected nor split.
fn standard_output() -> io::Result<Sink> {
    Ok(Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}

/// Where accounts go that nobody wants to read.
#[derive(Debug)]
struct NoLog;

impl Accounts for NoLog {
    fn enter(&self, _: Account) {}
}

/// What has to be known at once is said on stderr.
#[derive(Debug)]
struct Talk;

impl Notices for Talk {
    fn notice(&self, notice: Notice) {
        talk(&format!("gate: {notice}"));
    }
}

fn say_listening(gate: &Gate, route: &Route) {
    let listening = gate.listening();
    if let Some(place) = listening.iter().find(|place| place.route == route.name) {
        let to = leads_to(route);
        talk(&format!("listening on {} -> {to} (route {})", place.address, route.name));
    }
}

/// A gate that runs, and what it is run with.
struct Running {
    gate: Gate,
    told: Told,
    log: Option<Arc<Log>>,
    signals: Signals,
    taken: Taken,
}

impl Running {
    /// Serves until a signal says that it is enough, or an order as a signal would; returns that.
    fn serve(&mut self) -> Result<i32> {
        let mut memory = Memory::default();
        loop {
            match self.signals.wait_with(&mut self.taken, memory::LOOK_EVERY)? {
                Some(Heard::Signal(signal::SIGHUP)) => drop(self.reload()),
                Some(Heard::Signal(other)) => return Ok(other),
                Some(Heard::Order(Order::Drain)) => return Ok(process::SIGTERM),
                Some(Heard::Order(Order::Reload(answer))) => {
                    // Whoever asked may be gone.
                    let _ = answer.send(self.reload());
                }
                None => memory.look(self.gate.open_flows()),
            }
        }
    }

    /// Reads the file anew, and says what came of it. What cannot be had changes nothing.
    fn reload(&mut self) -> Result<String, String> {
        if let Some(log) = &self.log {
            log.reopen();
        }
        let Told::File(path, _) = &self.told else {
            let sentence = "there is no file to read anew: its routes are words";
            talk(&format!("gate: reload: {sentence}"));
            self.gate.count_failed_reload();
            return Err(sentence.to_owned());
        };
        let read = Told::read(path).and_then(Told::checked);
        let reloaded = read.inspect_err(|_| self.gate.count_failed_reload()).and_then(|told| {
            let changes = self.gate.reload(told.config().clone())?;
            Ok((told, changes))
        });
        match reloaded {
            Ok((told, changes)) => {
                let sentence = format!("reloaded {}: {}", path.display(), in_words(&changes));
                talk(&format!("gate: {sentence}"));
                self.told = told;
                let is_new = |route: &&Arc<Route>| {
                    changes.added.contains(&route.name) || changes.changed.contains(&route.name)
                };
                for route in self.told.config().routes.iter().filter(is_new) {
                    say_listening(&self.gate, route);
                }
                Ok(sentence)
            }
            Err(error) => {
                let sentence = format!("nothing is changed, it goes on as before:\n{error:#}");
                talk(&format!("gate: {sentence}"));
                Err(sentence)
            }
        }
    }

    /// Lets flows come to their end, and resets the rest. Returns what became of them, and the signal
    /// that said so last.
    fn finish(self, asked_by: i32) -> Result<(Totals, i32)> {
        let Self { gate, told, log, mut signals, taken } = self;
        // Whoever gives an order from now on hears that it stops.
        drop(taken);
        let (drain, mut by) = (told.config().drain, asked_by);
        let open = gate.flows().len();
        gate.drain(drain);
        if open > 0 {
            talk(&format!(
                "gate: draining: {} open, for {} at most; another signal resets the rest",
                flows(open),
                Span::from(drain)
            ));
        }
        // A thread that waits for either would be one more to end.
        while !gate.ended(LOOK_EVERY) {
            match signals.wait(Some(Duration::ZERO))? {
                Some(signal::SIGHUP) | None => {}
                Some(again) => {
                    by = again;
                    talk(&format!("gate: {} reset", flows(gate.flows().len())));
                    gate.stop();
                }
            }
        }
        let totals = gate.wait();
        if let Some(log) = log {
            log.end(LAST_LINES);
        }
        if open > 0 || totals.reset > 0 {
            talk(&format!("gate: ended: {} finished, {} reset", totals.finished, totals.reset));
        }
        Ok((totals, by))
    }
}

/// How often it looks for a signal while it drains.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a log may take that nobody reads.
const LAST_LINES: Duration = Duration::from_secs(2);

fn flows(count: usize) -> String {
    if count == 1 { "1 flow".to_owned() } else { format!("{count} flows") }
}

/// What a reload has changed.
fn in_words(changes: &Changes) -> String {
    let parts = [
        ("added", &changes.added),
        ("changed", &changes.changed),
        ("removed (its flows go on)", &changes.removed),
    ];
    let parts = parts.iter().filter(|(_, routes)| !routes.is_empty());
    let mut said: Vec<String> =
        parts.map(|(what, routes)| format!("{what} {}", routes.join(", "))).collect();
    if !changes.ignored.is_empty() {
        said.push(format!("not before it is started anew: {}", changes.ignored.join(", ")));
    }
    if said.is_empty() { "nothing has changed".to_owned() } else { said.join("; ") }
}

/// What a gate that runs hears.
#[derive(Debug)]
enum Heard {
    Signal(i32),
    Order(Order),
}

/// The signals that a gate listens to. They are read, and interrupt nobody.
#[derive(Debug)]
struct Signals(OwnedFd);

impl Signals {
    /// In the first thread, before there is another.
    fn new() -> Result<Self> {
        const ALL: [i32; 3] = [signal::SIGHUP, process::SIGINT, process::SIGTERM];
        signal::block(&ALL).context("block signals")?;
        Ok(Self(signal::signalfd(&ALL).context("wait for signals")?))
    }

    /// Waits for the next one, or for an order, at most so long.
    fn wait_with(&mut self, taken: &mut Taken, most: Duration) -> Result<Option<Heard>> {
        let ready = [(&self.0 as _, poll::READABLE), (&taken.bell as _, poll::READABLE)];
        let [_, rings] = poll::wait(ready, Some(most)).context("wait for signals")?;
        // A signal first: a second one is to end what an order has begun.
        match self.wait(Some(Duration::ZERO))? {
            Some(signal) => Ok(Some(Heard::Signal(signal))),
            None if rings => Ok(taken.next().context("take an order")?.map(Heard::Order)),
            None => Ok(None),
        }
    }

    /// Waits for the next one, at most so long.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<i32>> {
        poll::wait([(&self.0, poll::READABLE)], timeout).context("wait for signals")?;
        match signal::take(&self.0) {
            Ok(signal) => Ok(Some(signal)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("wait for signals"),
        }
    }
}
