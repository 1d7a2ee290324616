//! A gate that runs: started, changed, drained, stopped.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lastbyte_dial::{Dialer, Resolver, ResolverError};
use lastbyte_metrics::Snapshot;
use lastbyte_socket::SocketError;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::config::check::is_open_proxy;
use crate::config::{Config, Route};
use crate::context::Context;
use crate::limits;
use crate::listeners::{Acceptor, Bound};
use crate::live::LiveFlow;
use crate::lock::lock;
use crate::loops::ListenAddress;
use crate::reports::{Accounts, Notices};
use crate::route::{ActiveRoute, listen_options};
use crate::stop::Phase;
use crate::worker::{Member, Order, Team, Worker};

/// A gate that runs, in threads of its own. It stops when it is dropped.
pub struct Gate {
    team: Arc<Team>,
    /// The event loops of the workers.
    loops: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    state: Arc<Mutex<State>>,
}

/// What a reload can change.
#[derive(Debug)]
struct State {
    config: Config,
    /// A listener for each route, in their order.
    bounds: Vec<Arc<Bound>>,
}

/// Where a route listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The route's name.
    pub route: Arc<str>,
    /// The address, with the port that the kernel chose.
    pub address: SocketAddr,
}

/// What a reload has changed: the names of routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Those that were not there before.
    pub added: Vec<Arc<str>>,
    /// Those whose listener stays, and whose configuration differs.
    pub changed: Vec<Arc<str>>,
    /// Those that are gone. Their flows continue.
    pub removed: Vec<Arc<str>>,
    /// The keys that change only when the gate is restarted.
    pub ignored: Vec<&'static str>,
}

/// What became of the flows that were open when the gate was stopped, and of connections that waited to
/// be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Those that ended by themselves.
    pub finished: u64,
    /// Those that were reset.
    pub reset: u64,
}

/// Why a gate cannot start or reload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The kernel refused to listen on an address, or refused an option.
    #[error("route {route}: {cause}")]
    Listen {
        /// The route's name.
        route: Arc<str>,
        /// Why.
        cause: SocketError,
    },
    /// The key cannot change while the listener stays.
    #[error("route {route}: {key} cannot be changed while the gate runs")]
    Fixed {
        /// The route's name.
        route: Arc<str>,
        /// What: the name of a key.
        key: &'static str,
    },
    /// Every client could connect anywhere through this proxy: it listens off loopback, without a list of
    /// clients or users.
    #[error("route {0}: an open proxy")]
    OpenProxy(Arc<str>),
    /// There is no resolver for names.
    #[error("resolver: {0}")]
    Resolver(ResolverError),
    /// The gate was told to stop.
    #[error("the gate is stopping")]
    Stopping,
    /// The kernel refused a thread, a descriptor, or what a thread needs.
    #[error("start: {0}")]
    Threads(io::Error),
}

impl Gate {
    /// Listens on all routes, and begins to serve.
    ///
    /// # Errors
    /// The first thing that the kernel refused; nothing is left running then.
    pub fn start(
        config: Config,
        accounts: Arc<dyn Accounts>,
        notices: Arc<dyn Notices>,
    ) -> Result<Self, StartError> {
        let resolver = Resolver::dns().map_err(StartError::Resolver)?;
        let context = Context::new(Dialer::new(resolver), accounts, notices);
        let workers = config.workers.or_else(|| thread::available_parallelism().ok());
        let nothing = State { config: Config::of(Vec::new()), bounds: Vec::new() };
        let gate = Self::with_workers(context, workers.map_or(1, NonZeroUsize::get), nothing)
            .map_err(StartError::Threads)?;
        // From nothing to all: what fails leaves nothing, and dropping the gate ends its threads.
        gate.turn_into(config)?;
        gate.team.context.most_flows.store(limits::flows_by_descriptors(), Ordering::Relaxed);
        Ok(gate)
    }

    /// A gate without listeners.
    fn with_workers(context: Context, workers: usize, state: State) -> io::Result<Self> {
        let mut members = Vec::new();
        let mut parts = Vec::new();
        for _ in 0..workers {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            let (sender, orders) = unbounded_channel();
            members.push(Member::new(sender));
            parts.push((runtime, orders));
        }
        let team = Arc::new(Team { context: Arc::new(context), members });
        let loops = parts.iter().map(|(runtime, _)| runtime.handle().clone()).collect();
        let state = Arc::new(Mutex::new(state));
        let mut gate = Self { team, loops, threads: Vec::new(), state };
        for (own, (runtime, orders)) in parts.into_iter().enumerate() {
            let worker = Worker::new(Arc::clone(&gate.team), own);
            *lock(&gate.team.context.workers) += 1;
            let ended = WorkerEnded { context: Arc::clone(&gate.team.context) };
            let thread = thread::Builder::new().name(format!("gate-{own}"));
            let thread = thread.spawn(move || work(&runtime, worker, orders, ended))?;
            gate.threads.push(thread);
        }
        Ok(gate)
    }

    /// The addresses it listens on, in the order of the routes; none once it was told to stop.
    #[must_use]
    pub fn listening(&self) -> Vec<Listening> {
        lock(&self.state).listening()
    }

    /// The open flows, in no order.
    #[must_use]
    pub fn flows(&self) -> Vec<LiveFlow> {
        self.team.flows()
    }

    /// How many flows are open, with those that are on their way to a worker. It is cheap.
    #[must_use]
    pub fn open_flows(&self) -> usize {
        self.team.open_flows()
    }

    /// What can be seen of it: the view may outlive it.
    #[must_use]
    pub fn view(&self) -> View {
        View { team: Arc::clone(&self.team), state: Arc::clone(&self.state) }
    }

    /// Counts a reload that failed before there was a configuration.
    pub fn count_failed_reload(&self) {
        self.team.context.statistics.gate.reloads_failed.add(1);
    }

    /// Takes a new configuration, without ending any flow: open flows keep the route that they took. A
    /// listener whose address stays keeps its queue, and new options hold for what is accepted from now on.
    /// The listener of a route that is gone serves what waits in its queue, and is closed.
    ///
    /// An address that overlaps with one that goes (`0.0.0.0:80` and `127.0.0.1:80`) is still in use: that
    /// takes two reloads.
    ///
    /// # Errors
    /// Why it cannot: nothing has changed then.
    pub fn reload(&self, config: Config) -> Result<Changes, StartError> {
        let changes = self.turn_into(config);
        let counts = &self.team.context.statistics.gate;
        let count = if changes.is_ok() { &counts.reloads } else { &counts.reloads_failed };
        count.add(1);
        changes
    }

    fn turn_into(&self, config: Config) -> Result<Changes, StartError> {
        let mut state = lock(&self.state);
        if self.team.context.stop.phase() != Phase::Running {
            return Err(StartError::Stopping);
        }
        let context = &self.team.context;
        let plan = Plan::of(&state, &config, context)?;
        let own = plan.bounds.iter().map(|bound| ListenAddress::of(bound.listener()));
        let own = own.collect::<io::Result<_>>().map_err(StartError::Threads)?;
        let acceptors = self.acceptors_of(&plan.opened).map_err(StartError::Threads)?;
        plan.change_options()?;
        // Nothing can fail from here on.
        for Kept { bound, route, .. } in &plan.kept {
            let route = bound.route().followed_by(Arc::clone(route), context);
            bound.set_route(Arc::new(route));
        }
        for (member, acceptors) in self.team.members.iter().zip(acceptors) {
            for acceptor in acceptors {
                member.accept(acceptor);
            }
        }
        for gone in &plan.gone {
            gone.close();
        }
        context.own.set(own);
        context.admission.set(config.limits);
        *state = State { config, bounds: plan.bounds };
        Ok(plan.changes)
    }

    /// An acceptor for each worker and each new listener.
    fn acceptors_of(&self, bounds: &[Arc<Bound>]) -> io::Result<Vec<Vec<Acceptor>>> {
        let of_worker = |events: &Handle| {
            let _entered = events.enter();
            bounds.iter().map(|bound| Acceptor::of(Arc::clone(bound))).collect()
        };
        self.loops.iter().map(of_worker).collect()
    }

    /// Accepts what waits in the queues and no more, and lets flows end by themselves. Those that have not
    /// after `limit` are reset. Returns at once: see [`Gate::ended`] and [`Gate::wait`]. If it is called
    /// again, the earlier limit counts.
    pub fn drain(&self, limit: Duration) {
        self.team.context.stop.drain(limit);
        self.notify();
    }

    /// Stops accepting, and resets all flows. Each leaves its account. Returns at once.
    pub fn stop(&self) {
        self.team.context.stop.stop();
        self.notify();
    }

    /// Closes all listeners, and has all workers look at the phase.
    fn notify(&self) {
        // The last acceptor to end closes the socket.
        for bound in lock(&self.state).bounds.drain(..) {
            bound.close();
        }
        for member in &self.team.members {
            member.check_phase();
        }
    }

    /// Waits until all flows have ended after [`Gate::drain`] or [`Gate::stop`], at most so long.
    /// Returns whether they have.
    #[must_use]
    pub fn ended(&self, timeout: Duration) -> bool {
        let context = &self.team.context;
        let ended =
            context
                .worker_ended
                .wait_timeout_while(lock(&context.workers), timeout, |workers| *workers > 0);
        ended.is_ok_and(|(workers, _)| *workers == 0)
    }

    /// Waits until all flows have ended after [`Gate::drain`] or [`Gate::stop`], and its threads too.
    #[must_use]
    pub fn wait(mut self) -> Totals {
        self.join();
        let context = &self.team.context;
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Totals { finished: read(&context.finished), reset: read(&context.reset) }
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that has panicked has reported it, and its flows have left their accounts.
            let _ = thread.join();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop();
        self.join();
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    fn listening(&self) -> Vec<Listening> {
        let routes = self.config.routes.iter().zip(&self.bounds);
        routes
            .map(|(route, bound)| Listening {
                route: Arc::clone(&route.name),
                address: bound.address(),
            })
            .collect()
    }
}

/// What can be seen of a gate, also while it stops and afterwards.
#[derive(Clone)]
pub struct View {
    team: Arc<Team>,
    state: Arc<Mutex<State>>,
}

impl View {
    /// As [`Gate::listening`].
    #[must_use]
    pub fn listening(&self) -> Vec<Listening> {
        lock(&self.state).listening()
    }

    /// As [`Gate::flows`].
    #[must_use]
    pub fn flows(&self) -> Vec<LiveFlow> {
        self.team.flows()
    }

    /// What was counted until now.
    #[must_use]
    pub fn statistics(&self) -> Snapshot {
        self.team.context.counted()
    }

    /// The same as OpenMetrics text, to be sent as [`lastbyte_metrics::CONTENT_TYPE`].
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.statistics().open_metrics("lastbyte_gate")
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// The thread of a worker.
fn work(runtime: &Runtime, worker: Worker, orders: UnboundedReceiver<Order>, _ended: WorkerEnded) {
    runtime.block_on(Arc::new(worker).run(orders));
}

/// Reports that a worker has ended, also by a panic.
struct WorkerEnded {
    context: Arc<Context>,
}

impl Drop for WorkerEnded {
    fn drop(&mut self) {
        *lock(&self.context.workers) -= 1;
        self.context.worker_ended.notify_all();
    }
}

/// The steps from one configuration to the next.
#[derive(Debug, Default)]
struct Plan {
    /// The listeners, in the order of the routes.
    bounds: Vec<Arc<Bound>>,
    /// The new ones among them.
    opened: Vec<Arc<Bound>>,
    /// Those that stay, with another configuration.
    kept: Vec<Kept>,
    gone: Vec<Arc<Bound>>,
    changes: Changes,
}

#[derive(Debug)]
struct Kept {
    bound: Arc<Bound>,
    before: Arc<Route>,
    route: Arc<Route>,
}

impl Plan {
    /// Opens new listeners, and checks whether the rest is possible.
    fn of(state: &State, config: &Config, context: &Context) -> Result<Self, StartError> {
        if let Some(open) = config.routes.iter().find(|route| is_open_proxy(route)) {
            return Err(StartError::OpenProxy(Arc::clone(&open.name)));
        }
        let mut plan = Self::default();
        let mut old: Vec<_> = state.config.routes.iter().zip(&state.bounds).collect();
        for route in &config.routes {
            let found = old.iter().position(|(before, _)| is_same_place(before, route));
            let Some((before, bound)) = found.map(|at| old.swap_remove(at)) else {
                plan.open(route, context)?;
                continue;
            };
            plan.bounds.push(Arc::clone(bound));
            if before != route {
                plan.keep(bound, before, route)?;
            }
        }
        for (route, bound) in old {
            plan.changes.removed.push(Arc::clone(&route.name));
            plan.gone.push(Arc::clone(bound));
        }
        if !state.bounds.is_empty() {
            let stay = [
                ("control", state.config.control != config.control),
                ("metrics", state.config.metrics != config.metrics),
                ("workers", state.config.workers != config.workers),
            ];
            let stay = stay.iter().filter(|(_, differs)| *differs);
            plan.changes.ignored.extend(stay.map(|(key, _)| *key));
        }
        Ok(plan)
    }

    fn open(&mut self, route: &Arc<Route>, context: &Context) -> Result<(), StartError> {
        let bound = Bound::open(Arc::new(ActiveRoute::new(Arc::clone(route), context)));
        let bound = Arc::new(bound.map_err(|cause| listen_error(route, cause))?);
        self.opened.push(Arc::clone(&bound));
        self.bounds.push(bound);
        self.changes.added.push(Arc::clone(&route.name));
        Ok(())
    }

    fn keep(
        &mut self,
        bound: &Arc<Bound>,
        before: &Arc<Route>,
        route: &Arc<Route>,
    ) -> Result<(), StartError> {
        if before.client.mptcp != route.client.mptcp {
            return Err(StartError::Fixed { route: Arc::clone(&route.name), key: "mptcp" });
        }
        let trial = listen_options(route).check(route.listen);
        trial.map_err(|cause| listen_error(route, cause))?;
        let bound = Arc::clone(bound);
        let (before, route) = (Arc::clone(before), Arc::clone(route));
        self.changes.changed.push(Arc::clone(&route.name));
        self.kept.push(Kept { bound, before, route });
        Ok(())
    }

    /// Sets the options of listeners that stay: of all of them, or of none.
    fn change_options(&self) -> Result<(), StartError> {
        for (at, Kept { bound, before, route }) in self.kept.iter().enumerate() {
            let (old, new) = (listen_options(before), listen_options(route));
            if old == new {
                continue;
            }
            if let Err(cause) = bound.listener().change(&old, &new) {
                for Kept { bound, before, route } in &self.kept[..=at] {
                    // The kernel granted the old ones before.
                    let _ =
                        bound.listener().change(&listen_options(route), &listen_options(before));
                }
                return Err(listen_error(route, cause));
            }
        }
        Ok(())
    }
}

/// Whether two routes listen on the same address. With port 0 only if they have the same name.
fn is_same_place(before: &Route, route: &Route) -> bool {
    before.listen == route.listen && (route.listen.port() != 0 || before.name == route.name)
}

fn listen_error(route: &Route, cause: SocketError) -> StartError {
    StartError::Listen { route: Arc::clone(&route.name), cause }
}
