//! Where a run happens: over loopback, over an emulated path, or to another host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use lastbyte_link::{Host, Link, LinkError, Report, Scenario, Way};
use lastbyte_socket::ListenOptions;
use lastbyte_socket::blocking::TcpListener;
use lastbyte_socket::{Operation, SocketOptions};
use lastbyte_units::BitRate;

use crate::error::LabError;
use crate::far::{self, FarEnd};
use crate::record::{Flow, LinkDirection, LinkFigures, PathDescription};
use crate::remote::Remote;
use crate::run_state::RunState;
use crate::task::{Task, Token};

/// A path to run over.
#[derive(Clone, Debug)]
pub enum Path {
    /// This machine's loopback interface: needs no privileges, and has neither delay nor loss.
    Loopback,
    /// An emulated path, made for each run.
    Link(Box<Scenario>),
    /// A real path, to a host that runs `lab serve`.
    Remote(Arc<Remote>),
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Loopback, Self::Loopback) => true,
            (Self::Link(one), Self::Link(other)) => one == other,
            (Self::Remote(one), Self::Remote(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Path {
    /// Makes the path.
    ///
    /// # Errors
    /// [`LinkError::Rights`] names the missing privilege and how to get it.
    pub fn up(&self, seed: u64) -> Result<PathUp, LinkError> {
        Ok(match self {
            Self::Loopback => PathUp::Loopback,
            Self::Link(scenario) => PathUp::Link(Box::new(Link::up(&scenario.spec, seed)?)),
            Self::Remote(remote) => PathUp::Remote(Arc::clone(remote)),
        })
    }

    /// The scenario of an emulated path.
    #[must_use]
    pub fn scenario(&self) -> Option<&Scenario> {
        match self {
            Self::Link(scenario) => Some(scenario),
            Self::Loopback | Self::Remote(_) => None,
        }
    }

    /// The far host of a real path.
    #[must_use]
    pub fn remote(&self) -> Option<&Arc<Remote>> {
        match self {
            Self::Remote(remote) => Some(remote),
            Self::Loopback | Self::Link(_) => None,
        }
    }

    /// The path, described in a sentence and in figures.
    #[must_use]
    pub fn description(&self) -> PathDescription {
        if let Self::Remote(remote) = self {
            return remote.description();
        }
        let Some(scenario) = self.scenario() else {
            return PathDescription {
                name: "loopback".to_owned(),
                description: "this machine's loopback interface".to_owned(),
                ..PathDescription::default()
            };
        };
        let spec = &scenario.spec;
        let rate = |way: Way| spec.direction(way).rate.map(|rate| rate.bits_per_s());
        PathDescription {
            name: scenario.name.clone(),
            emulated: true,
            description: spec.to_string(),
            rtt: Some(spec.rtt()),
            up_bits_per_s: rate(Way::Up),
            down_bits_per_s: rate(Way::Down),
            up_limit_bits_per_s: spec.tcp_limit_bits_per_s(Way::Up),
            down_limit_bits_per_s: spec.tcp_limit_bits_per_s(Way::Down),
            up_queue_bytes: spec.queue_bytes(&spec.up),
            up_loss_share: spec.up.loss.map(|loss| loss.fraction()),
        }
    }
}

/// A path that is up.
#[derive(Debug)]
pub enum PathUp {
    /// This machine's loopback interface.
    Loopback,
    /// An emulated link.
    Link(Box<Link>),
    /// A real path: this machine is the near host, and another one the far host.
    Remote(Arc<Remote>),
}

impl PathUp {
    /// The emulated link, if it is one.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Loopback | Self::Remote(_) => None,
        }
    }

    /// The rate of its slower direction, if known.
    #[must_use]
    pub fn capacity(&self) -> Option<BitRate> {
        let spec = self.link()?.spec();
        Way::BOTH.iter().filter_map(|way| spec.direction(*way).lasting_rate()).min()
    }

    /// A host's address, if both hosts are on this machine.
    #[must_use]
    pub fn address(&self, host: Host) -> IpAddr {
        match self {
            Self::Link(_) => host.address().into(),
            Self::Loopback | Self::Remote(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Tests whether the far host can listen.
    ///
    /// # Errors
    /// If it cannot. The first run tests a real far host.
    pub fn rehearse(&self, port: u16) -> Result<(), LabError> {
        if let Self::Remote(_) = self {
            return Ok(());
        }
        let address = SocketAddr::new(self.address(Host::Far), port);
        self.run(Host::Far, || TcpListener::bind(address))??;
        Ok(())
    }

    /// Prepares the far host for a run. A real far host chooses its port itself.
    ///
    /// # Errors
    /// If it cannot listen, or refuses.
    pub fn far(&self, task: &Task, port: u16) -> Result<Box<dyn FarEnd>, LabError> {
        if let Self::Remote(remote) = self {
            return Ok(Box::new(remote.run(task)?));
        }
        let address = SocketAddr::new(self.address(Host::Far), port);
        let options = ListenOptions::default().socket(task.settings.receiver());
        let listener = self.run(Host::Far, || TcpListener::bind_with(address, &options))??;
        // A congestion control that needs ECN (dctcp) gets it only if both hosts set it. The sender
        // reports an option that cannot be set.
        let congestion = SocketOptions::default().congestion(&task.settings.congestion);
        let _ = congestion.apply_to(&listener);
        let address = listener.local_addr().map_err(LabError::Receiver)?;
        let token = Token::new().map_err(LabError::Receiver)?;
        let state = Arc::new(RunState::default());
        let (task, served_state) = (task.clone(), Arc::clone(&state));
        let serve = move || far::serve(&listener, &task, &token, &served_state);
        let thread = self.spawn(Host::Far, "far", serve)?;
        Ok(Box::new(OwnFar { address, token, state, thread: Some(thread) }))
    }

    /// Does `work` on a host and waits for it; on this machine if the path is not emulated.
    ///
    /// # Errors
    /// When the host cannot be entered.
    pub fn run<T: Send>(
        &self,
        host: Host,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LinkError> {
        match self.link() {
            Some(link) => link.host(host).run(work),
            None => Ok(work()),
        }
    }

    /// Starts a thread on a host; on this machine if the path is not emulated.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        host: Host,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LinkError>>, LinkError> {
        match self.link() {
            Some(link) => link.host(host).spawn(name, work),
            None => Ok(std::thread::spawn(|| Ok(work()))),
        }
    }

    /// Sets a network sysctl of an emulated host. Real machines are not changed.
    ///
    /// # Errors
    /// If the kernel refuses the value.
    pub fn set_sysctl(&self, host: Host, name: &str, value: &str) -> Result<(), LinkError> {
        match self.link() {
            Some(link) => link.host(host).set_sysctl(name, value),
            None => Ok(()),
        }
    }

    /// Classifies the error of a run. On a real path, a connection that failed or was reset says
    /// nothing about the next run.
    #[must_use]
    pub fn judged(&self, error: LabError) -> LabError {
        match (self, error) {
            (Self::Remote(_), LabError::Socket(error)) => {
                let hint = match error.operation {
                    Operation::Connect => {
                        " (where a firewall is on the way, give a port that it lets through to \
                         `lab serve --data-port`)"
                    }
                    _ => "",
                };
                LabError::Lost(format!("{error}{hint}"))
            }
            (Self::Remote(_), LabError::Receiver(error)) => LabError::Lost(error.to_string()),
            (_, error) => error,
        }
    }

    /// Takes the path down; returns the report of an emulated one.
    ///
    /// # Errors
    /// If the link had failed.
    pub fn down(self) -> Result<Option<Report>, LinkError> {
        match self {
            Self::Link(link) => link.down().map(Some),
            Self::Loopback | Self::Remote(_) => Ok(None),
        }
    }
}

/// A far host on this machine: a thread.
#[derive(Debug)]
struct OwnFar {
    address: SocketAddr,
    token: Token,
    state: Arc<RunState>,
    thread: Option<FarThread>,
}

type FarThread = JoinHandle<Result<Result<Vec<Flow>, LabError>, LinkError>>;

impl FarEnd for OwnFar {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn token(&self) -> Token {
        self.token
    }

    fn end(mut self: Box<Self>) -> Result<Vec<Flow>, LabError> {
        self.state.end();
        let Some(thread) = self.thread.take() else { return Ok(Vec::new()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
    }
}

/// A near host that gives up closes the listener.
impl Drop for OwnFar {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.state.abort();
        }
    }
}

impl LinkFigures {
    /// The part of a link's report that records have.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let way = |one: &lastbyte_link::DirectionReport| LinkDirection {
            packets: one.packets,
            bytes: one.bytes,
            lost_packets: one.lost,
            dropped_packets: one.dropped,
            policed_packets: one.policed,
            marked_packets: one.marked,
            queued_p50_ms: ms(one.queue_delay.p50),
            queued_p99_ms: ms(one.queue_delay.p99),
        };
        Self {
            up: way(&report.up),
            down: way(&report.down),
            device_drops_packets: report.device_drops,
            late_p50_ms: ms(report.lateness.p50),
            late_p99_ms: ms(report.lateness.p99),
            late_max_ms: ms(report.lateness.max),
            cpu_s: report.cpu.as_secs_f64(),
        }
    }
}
