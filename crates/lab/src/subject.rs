//! What can be measured: our own sender, and any program that moves bytes over a path.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Instant;

use lastbyte_link::{Host, LinkError, Way};
use lastbyte_socket::ConnectOptions;
use lastbyte_socket::blocking::Stream;

use crate::error::LabError;
use crate::flow::{self, ReceiveOptions, RequestSchedule, STALLED};
use crate::load::Load;
use crate::path::PathUp;
use crate::probe::{Echo, Prober};
use crate::record::{Flow, Latency};
use crate::setting::{Buffers, Setting, Settings};
use crate::task::{Purpose, Task, Token};

/// Something that moves bytes over a path.
pub trait Subject: fmt::Debug + Send + Sync {
    /// What it is, in a form that can be stored and compared.
    fn setting(&self) -> Setting;

    /// Moves a load over a path that nothing else uses at the same time, and returns the result.
    ///
    /// # Errors
    /// If the run failed. A connection that was reset is no error: it is in the result.
    fn run(&self, path: &PathUp, options: &RunOptions) -> Result<Outcome, LabError>;
}

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How much to send.
    pub load: Load,
    /// Whether to probe round-trip times.
    pub latency: bool,
    /// The receiver's port; 0 lets the kernel choose.
    pub port: u16,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its connections.
    pub flows: Vec<Flow>,
    /// Round-trip times, if they were probed.
    pub latency: Option<Latency>,
}

impl Subject for Settings {
    fn setting(&self) -> Setting {
        Setting::Own(self.clone())
    }

    fn run(&self, path: &PathUp, options: &RunOptions) -> Result<Outcome, LabError> {
        prepare(path, self)?;
        let task = Task { settings: self.clone(), load: options.load, latency: options.latency };
        let far = path.far(&task, options.port)?;
        let (address, token) = (far.address(), far.token());
        let prober = match options.latency {
            true => Some(Prober::start(path, Echo::of_run(path, address, &token))?),
            false => None,
        };
        let peer = FarHost { address, token, run_began: Instant::now() };
        let threads: Vec<_> = self
            .direction
            .ways()
            .iter()
            .flat_map(|way| (0..self.streams).map(move |stream| (*way, stream)))
            .map(|(way, stream)| start(path, (way, stream), &task, peer))
            .collect::<Result<_, _>>()?;
        let near: Vec<_> = threads.into_iter().map(joined).collect();
        let latency = prober.map(Prober::end);
        let far = far.end()?;
        let near: Vec<Flow> = near.into_iter().collect::<Result<_, _>>()?;
        let flows = merged(near, far);
        let latency = latency.transpose()?.map(|latency| latency.with_load(&flows));
        Ok(Outcome { flows, latency })
    }
}

/// Sets the maxima of autotuning, if the settings have them.
fn prepare(path: &PathUp, settings: &Settings) -> Result<(), LabError> {
    let Buffers::AutoUpTo(limit) = settings.buffers else { return Ok(()) };
    if path.link().is_none() {
        let why = "auto with a limit sets sysctls of both hosts, which is for emulated paths: \
                   elsewhere use auto or a fixed size, or set net.ipv4.tcp_rmem and tcp_wmem by hand \
                   before";
        return Err(LabError::Unsuited(why.to_owned()));
    }
    let limit = limit.bytes();
    for host in [Host::Near, Host::Far] {
        // The kernel's own minima and initial sizes (net/ipv4/tcp.c, tcp_init).
        path.set_sysctl(host, "ipv4/tcp_wmem", &sizes(16_384, limit))?;
        path.set_sysctl(host, "ipv4/tcp_rmem", &sizes(131_072, limit))?;
    }
    Ok(())
}

/// The minimum, initial and maximum size of an autotuned buffer.
fn sizes(first: u64, limit: u64) -> String {
    format!("{} {} {limit}", limit.min(4096), first.min(limit))
}

/// The far host of a run.
#[derive(Clone, Copy)]
struct FarHost {
    address: SocketAddr,
    token: Token,
    run_began: Instant,
}

type NearThread = JoinHandle<Result<Result<Flow, LabError>, LinkError>>;

/// Starts the near host's side of one connection.
fn start(
    path: &PathUp,
    (way, stream): (Way, u32),
    task: &Task,
    peer: FarHost,
) -> Result<NearThread, LabError> {
    let task = task.clone();
    let name = match way {
        Way::Up => "sender",
        Way::Down => "receiver",
    };
    let work = move || match way {
        Way::Up => send(peer, stream, &task),
        Way::Down => receive(peer, stream, &task),
    };
    Ok(path.spawn(Host::Near, name, work)?)
}

fn send(peer: FarHost, number: u32, task: &Task) -> Result<Flow, LabError> {
    let settings = &task.settings;
    let stream = connect(peer, Purpose::Up(number), task)?;
    let load = task.load.share(number, settings.streams);
    let sent = flow::send(stream, load, settings.write_rate)?;
    Ok(Flow { way: Way::Up, stream: number, aside: false, received: None, sent: Some(sent) })
}

fn receive(peer: FarHost, number: u32, task: &Task) -> Result<Flow, LabError> {
    let settings = &task.settings;
    let stream = connect(peer, Purpose::Down(number), task)?;
    let reading = ReceiveOptions {
        run_began: peer.run_began,
        rate: settings.read_rate,
        requests: RequestSchedule::of(task, number),
        most_bytes: task.load.share(number, settings.streams).bytes,
        until: flow::until(task.load),
        run: None,
    };
    let received = flow::receive(stream, &reading)?;
    Ok(Flow { way: Way::Down, stream: number, aside: false, received: Some(received), sent: None })
}

fn connect(peer: FarHost, purpose: Purpose, task: &Task) -> Result<Stream, LabError> {
    let settings = &task.settings;
    let tune = match purpose {
        Purpose::Up(_) => settings.sender(),
        Purpose::Down(_) | Purpose::Echo => settings.receiver(),
    };
    let stream = Stream::connect_with(
        peer.address,
        &ConnectOptions::default().socket(tune.clone()).within(STALLED),
    );
    let mut stream =
        stream.map_err(|error| LabError::from_socket(error, tune.congestion.as_deref()))?;
    stream.write_all(&purpose.preamble(&peer.token)).map_err(LabError::Receiver)?;
    Ok(stream)
}

fn joined(thread: NearThread) -> Result<Flow, LabError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
}

/// Joins the two hosts' records of each connection.
fn merged(mut near: Vec<Flow>, far: Vec<Flow>) -> Vec<Flow> {
    for other in far {
        let same = |flow: &&mut Flow| (flow.way, flow.stream) == (other.way, other.stream);
        // The near host has a record of every connection.
        if let Some(flow) = near.iter_mut().find(same) {
            flow.received = flow.received.take().or(other.received);
            flow.sent = flow.sent.take().or(other.sent);
        }
    }
    near
}
