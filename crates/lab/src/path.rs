//! Where a run happens: over loopback, or over an emulated path.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use lastbyte_link::{Host, Link, LinkError, Report, Scenario, Way};
use lastbyte_socket::Listener;
use lastbyte_units::BitRate;

use crate::error::LabError;
use crate::far::{self, FarEnd, Purpose, Task, Token};
use crate::probe::Echo;
use crate::record::{Flow, LinkWay, LinkWords, PathWords};

/// A path to run over.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// This machine's loopback interface: needs no rights, and has neither delay nor loss.
    Loopback,
    /// An emulated path, made for each run.
    Link(Box<Scenario>),
}

impl Path {
    /// Makes the path.
    ///
    /// # Errors
    /// [`LinkError::Rights`] says what is missing and how to get it.
    pub fn up(&self, seed: u64) -> Result<PathUp, LinkError> {
        match self {
            Self::Loopback => Ok(PathUp { link: None }),
            Self::Link(scenario) => Ok(PathUp { link: Some(Link::up(&scenario.spec, seed)?) }),
        }
    }

    /// The scenario, where it is an emulated path.
    #[must_use]
    pub fn scenario(&self) -> Option<&Scenario> {
        match self {
            Self::Loopback => None,
            Self::Link(scenario) => Some(scenario),
        }
    }

    /// The path in words and figures.
    #[must_use]
    pub fn words(&self) -> PathWords {
        let Some(scenario) = self.scenario() else {
            return PathWords {
                name: "loopback".to_owned(),
                words: "this machine's loopback interface".to_owned(),
                ..PathWords::default()
            };
        };
        let spec = &scenario.spec;
        let rate = |way: Way| spec.direction(way).rate.map(|rate| rate.bits_per_s());
        PathWords {
            name: scenario.name.clone(),
            emulated: true,
            words: spec.to_string(),
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

/// A path that is there.
#[derive(Debug)]
pub struct PathUp {
    link: Option<Link>,
}

impl PathUp {
    /// The emulated link, where it is one.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// What its slower direction carries, where that is known.
    #[must_use]
    pub fn capacity(&self) -> Option<BitRate> {
        let spec = self.link()?.spec();
        let of = |way: &Way| {
            let direction = spec.direction(*way);
            let policed = direction.policer.map(|policer| policer.rate);
            [direction.mean_rate(), policed].into_iter().flatten().min()
        };
        Way::BOTH.iter().filter_map(of).min()
    }

    /// A host's address.
    #[must_use]
    pub fn address(&self, host: Host) -> IpAddr {
        match self.link {
            Some(_) => host.address().into(),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Makes the far host ready for a run.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn far(&self, task: &Task, port: u16) -> Result<Box<dyn FarEnd>, LabError> {
        let address = SocketAddr::new(self.address(Host::Far), port);
        let tune = task.settings.receiver();
        let listener = self.run(Host::Far, || Listener::listen(address, &tune))??;
        let address = listener.local_addr();
        let over = Arc::new(AtomicBool::new(false));
        let (task, told) = (task.clone(), Arc::clone(&over));
        let thread = self.spawn(Host::Far, "far", move || far::serve(&listener, &task, &told))?;
        Ok(Box::new(OwnFar { address, over, thread: Some(thread) }))
    }

    /// The echo of a run on the far host.
    pub(crate) fn echo(&self, address: SocketAddr, token: &Token) -> Echo {
        let hello = Purpose::Echo.preamble(token).to_vec();
        Echo { address, hello, capacity: self.capacity() }
    }

    /// Does `work` on a host and waits for it.
    ///
    /// # Errors
    /// When the host cannot be entered.
    pub fn run<T: Send>(
        &self,
        host: Host,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, LinkError> {
        match &self.link {
            Some(link) => link.host(host).run(work),
            None => Ok(work()),
        }
    }

    /// Starts a thread on a host.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        host: Host,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LinkError>>, LinkError> {
        match &self.link {
            Some(link) => link.host(host).spawn(name, work),
            None => Ok(std::thread::spawn(|| Ok(work()))),
        }
    }

    /// Sets a network sysctl of a host. Loopback is this machine itself, and is left as it is.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn set_sysctl(&self, host: Host, name: &str, value: &str) -> Result<(), LinkError> {
        match &self.link {
            Some(link) => link.host(host).set_sysctl(name, value),
            None => Ok(()),
        }
    }

    /// Ends the path; its report where it was an emulated one.
    ///
    /// # Errors
    /// When the link had failed on the way.
    pub fn down(self) -> Result<Option<Report>, LinkError> {
        self.link.map(Link::down).transpose()
    }
}

/// A far host of this machine's own: a thread.
#[derive(Debug)]
struct OwnFar {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<FarThread>,
}

type FarThread = JoinHandle<Result<Result<Vec<Flow>, LabError>, LinkError>>;

impl FarEnd for OwnFar {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn end(mut self: Box<Self>) -> Result<Vec<Flow>, LabError> {
        self.over.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(Vec::new()) };
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?
    }
}

/// A near host that gave up leaves no listener behind.
impl Drop for OwnFar {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

impl LinkWords {
    /// What is kept of a link's report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let way = |one: &lastbyte_link::DirectionReport| LinkWay {
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
