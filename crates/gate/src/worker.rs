//! A worker: a thread with an event loop of its own, and the flows that live in it.
//!
//! A flow stays with its worker from its first step to its account, so that no event has to wake
//! another thread.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use lastbyte_core::account::{Account, Ended, How, Party};
use lastbyte_metrics::Held;
use lastbyte_relay::Pool;
use lastbyte_socket::{Incoming, SocketError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time;

use crate::account::Notes;
use crate::balance::Balance;
use crate::context::Context;
use crate::flow::{self, Accepted};
use crate::listeners::{Acceptor, Intake};
use crate::live::{Entry, Live, LiveFlow, Place};
use crate::lock::lock;
use crate::route::ActiveRoute;
use crate::steps::{Step, Steps};
use crate::stop::Phase;

/// What a worker can be ordered to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// To accept.
    Accept(Acceptor),
    /// To serve what another one has accepted.
    Serve(NewFlow),
    /// To look at the phase of the gate.
    CheckPhase,
}

/// A connection that was accepted, on its way to the worker that serves it.
#[derive(Debug)]
pub(crate) struct NewFlow {
    incoming: Incoming,
    route: Arc<ActiveRoute>,
    number: u64,
    began: Duration,
    at: Instant,
    /// Counts it among those that are open.
    open: Held,
}

/// All workers of a gate, as each of them sees the others.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) context: Arc<Context>,
    pub(crate) members: Vec<Member>,
}

impl Team {
    /// The flows that are open now, in no order.
    pub(crate) fn flows(&self) -> Vec<LiveFlow> {
        let members = self.members.iter().enumerate();
        members.flat_map(|(own, member)| member.live.list(own)).collect()
    }

    /// How many there are, with those that are on their way to a worker.
    pub(crate) fn open_flows(&self) -> usize {
        self.members.iter().map(|member| member.load.load(Ordering::Relaxed)).sum()
    }
}

/// What the others see of a worker. Each has cache lines of its own: all write here often.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Member {
    /// Flows that it serves, or that are on their way to it.
    load: AtomicUsize,
    acceptors: AtomicUsize,
    orders: UnboundedSender<Order>,
    pub(crate) live: Live,
}

impl Member {
    pub(crate) fn new(orders: UnboundedSender<Order>) -> Self {
        let (load, acceptors) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { load, acceptors, orders, live: Live::default() }
    }

    /// Has a worker accept. One that has ended need not.
    pub(crate) fn accept(&self, acceptor: Acceptor) {
        self.acceptors.fetch_add(1, Ordering::Relaxed);
        let _ = self.orders.send(Order::Accept(acceptor));
    }

    /// Has a worker look at the phase of the gate.
    pub(crate) fn check_phase(&self) {
        // One that has ended has nothing left to look after.
        let _ = self.orders.send(Order::CheckPhase);
    }

    fn is_idle(&self) -> bool {
        let load = self.load.load(Ordering::Acquire);
        load == 0 && self.acceptors.load(Ordering::Acquire) == 0
    }
}

/// A worker, in its own thread.
#[derive(Debug)]
pub(crate) struct Worker {
    team: Arc<Team>,
    own: usize,
    balance: Mutex<Balance>,
    pool: Pool,
    ticks: AtomicBool,
}

/// How often a worker that is about to end, and got one more flow, looks whether that has ended.
const LAST_LOOKS: Duration = Duration::from_millis(10);

/// How long flows may take to end when the gate stops. They wait for nothing then.
const GRACE: Duration = Duration::from_secs(5);

impl Worker {
    pub(crate) fn new(team: Arc<Team>, own: usize) -> Self {
        let balance = Mutex::new(Balance::new(Instant::now()));
        Self { team, own, balance, pool: Pool::default(), ticks: AtomicBool::new(false) }
    }

    /// Takes orders until the gate has stopped and all flows here have ended.
    pub(crate) async fn run(self: Arc<Self>, mut orders: UnboundedReceiver<Order>) {
        let mut given_up = None;
        loop {
            let until = match given_up {
                None => self.context().stop.limit(),
                given_up => given_up,
            };
            let order = match until {
                // No order will come any more when a flow has ended.
                _ if orders.is_closed() && orders.is_empty() => {
                    time::sleep(LAST_LOOKS).await;
                    None
                }
                Some(until) => time::timeout_at(until.into(), orders.recv()).await.ok().flatten(),
                None => orders.recv().await,
            };
            match order {
                Some(Order::Accept(acceptor)) => {
                    tokio::spawn(accept(Arc::clone(&self), acceptor));
                }
                Some(Order::Serve(flow)) => self.begin(flow),
                Some(Order::CheckPhase) | None => {}
            }
            let now = Instant::now();
            if self.context().stop.limit().is_some_and(|limit| limit <= now) {
                self.context().stop.stop();
            }
            match self.context().stop.phase() {
                Phase::Running => continue,
                Phase::Draining => {}
                Phase::Stopping if given_up.is_none() => {
                    given_up = Some(now + GRACE);
                    self.member().live.wake_all();
                }
                Phase::Stopping if given_up.is_some_and(|given_up| given_up <= now) => return,
                Phase::Stopping => {}
            }
            if self.member().is_idle() {
                // A flow that is handed over from now on goes back to the worker that accepted it.
                orders.close();
                match orders.try_recv() {
                    Ok(Order::Serve(flow)) => self.begin(flow),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        }
    }

    /// Begins a flow here. It is counted already.
    fn begin(self: &Arc<Self>, flow: NewFlow) {
        let NewFlow { incoming, route, number, began, at, open } = flow;
        let steps = Steps::of(number, &route.route.name);
        let notes = Notes {
            route,
            number,
            began,
            at,
            client: incoming.peer_addr(),
            progress: Arc::default(),
            connect: None,
            granted: None,
            steps,
        };
        let flow = OpenFlow { worker: Arc::clone(self), notes, place: None, open: Some(open) };
        tokio::spawn(serve(flow, incoming));
        if !self.ticks.swap(true, Ordering::Relaxed) {
            tokio::spawn(tick(Arc::clone(self)));
        }
    }

    fn context(&self) -> &Context {
        &self.team.context
    }

    fn member(&self) -> &Member {
        &self.team.members[self.own]
    }

    /// The worker that is to serve the next connection, if it is another one.
    fn less_loaded(&self) -> Option<&Member> {
        let members = &self.team.members;
        let own = self.member().load.load(Ordering::Relaxed);
        if own == 0 || members.len() == 1 {
            return None;
        }
        let load = |member: &&Member| member.load.load(Ordering::Relaxed);
        let least = members.iter().min_by_key(load)?;
        let hands_over = lock(&self.balance).hands_over(own, load(&least), Instant::now());
        // A worker that drains may have ended.
        (hands_over && self.context().stop.phase() == Phase::Running).then_some(least)
    }
}

/// A connection that a worker accepts is served by that worker, or by one with fewer flows.
struct WorkerIntake<'a>(&'a Arc<Worker>);

impl Intake for WorkerIntake<'_> {
    fn take(&self, incoming: Incoming, route: Arc<ActiveRoute>) {
        let Self(worker) = self;
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let number = worker.context().next_flow();
        route.statistics.flows_accepted.add(1);
        let open = route.statistics.flows_open.hold();
        let mut flow = NewFlow { incoming, route, number, began, at: Instant::now(), open };
        if let Some(other) = worker.less_loaded() {
            other.load.fetch_add(1, Ordering::AcqRel);
            match other.orders.send(Order::Serve(flow)) {
                Ok(()) => return,
                Err(back) => {
                    other.load.fetch_sub(1, Ordering::AcqRel);
                    let Order::Serve(back) = back.0 else { unreachable!("it is what was sent") };
                    flow = back;
                }
            }
        }
        worker.member().load.fetch_add(1, Ordering::AcqRel);
        worker.begin(flow);
    }

    fn on_pause(&self, route: &ActiveRoute, cause: SocketError) {
        self.0.context().on_pause(&route.route, cause);
    }

    fn wants_more(&self) -> bool {
        !self.0.context().stop.is_stopping()
    }

    fn has_descriptors(&self) -> bool {
        self.0.team.open_flows() < self.0.context().most_flows.load(Ordering::Relaxed)
    }
}

/// Keeps a timer while there are flows. A new timer that is due before all others wakes its event loop by a
/// system call, even from that loop's own thread: this one is always due first.
async fn tick(worker: Arc<Worker>) {
    while worker.member().load.load(Ordering::Relaxed) > 0 {
        time::sleep(TICK).await;
    }
    worker.ticks.store(false, Ordering::Relaxed);
}

/// Shorter than the time limits of flows.
const TICK: Duration = Duration::from_secs(1);

/// The task of an acceptor.
async fn accept(worker: Arc<Worker>, acceptor: Acceptor) {
    acceptor.run(&WorkerIntake(&worker)).await;
    worker.member().acceptors.fetch_sub(1, Ordering::AcqRel);
    worker.member().check_phase();
}

/// The task of a flow.
#[expect(clippy::manual_async_fn, reason = "an `async fn` stores its arguments twice")]
fn serve(mut flow: OpenFlow, incoming: Incoming) -> impl Future<Output = ()> + Send {
    async move {
        flow.notes.steps.enter(Step::Listen);
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        flow.enter(waker);
        let client = match incoming.watch() {
            Ok(client) => client,
            Err(error) => {
                let why = format!("it cannot be watched: {error}");
                return flow.leave(Err(Ended::because(Party::Gate, How::Failed, why)));
            }
        };
        let accepted = Box::new(Accepted { client });
        let OpenFlow { worker, notes, .. } = &mut flow;
        let account = flow::serve(accepted, notes, worker.context(), &worker.pool).await;
        flow.leave(Ok(account));
    }
}

/// A flow that is open. It leaves an account even if its task is dropped.
#[derive(Debug)]
struct OpenFlow {
    worker: Arc<Worker>,
    notes: Notes,
    /// Its place in the list of open flows, once its task has run.
    place: Option<Place>,
    /// Counts it among those that are open; `None` once it has ended.
    open: Option<Held>,
}

impl OpenFlow {
    fn enter(&mut self, waker: Waker) {
        let Notes { number, began, client, .. } = self.notes;
        let entry = Entry {
            flow: number,
            route: Arc::clone(&self.notes.route.route.name),
            client,
            began,
            progress: Arc::clone(&self.notes.progress),
            waker,
        };
        self.place = Some(self.worker.member().live.enter(entry));
    }

    /// The flow has ended: with its account, or, if it was not served, with the reason.
    fn leave(&mut self, account: Result<Account, Ended>) {
        let account = account.unwrap_or_else(|ended| self.notes.account(Err(ended)));
        self.notes.route.statistics.ended(&account, self.notes.progress.moved());
        self.open = None;
        let (member, context) = (self.worker.member(), self.worker.context());
        if let Some(place) = self.place {
            member.live.leave(place);
        }
        let is_last = member.load.fetch_sub(1, Ordering::AcqRel) == 1;
        if context.stop.phase() != Phase::Running {
            let stopped = account.ended.how == How::Stopped;
            let count = if stopped { &context.reset } else { &context.finished };
            count.fetch_add(1, Ordering::Relaxed);
            if is_last {
                member.check_phase();
            }
        }
        self.notes.steps.end();
        context.accounts.enter(account);
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        if self.open.is_some() {
            let stopping = self.worker.context().stop.is_stopping();
            let how = if stopping { How::Stopped } else { How::Failed };
            let why = "its task was dropped before it ended";
            self.leave(Err(Ended::because(Party::Gate, how, why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};

    use lastbyte_dial::{Dialer, Resolver};
    use lastbyte_socket::ListenOptions;
    use lastbyte_socket::blocking::Listener;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::config::{Forward, Kind, LegOptions, Route, Times};
    use crate::reports::{Accounts, Notice, Notices};

    struct Nobody;

    impl Accounts for Nobody {
        fn enter(&self, _: Account) {}
    }

    impl Notices for Nobody {
        fn notice(&self, _: Notice) {}
    }

    fn route(listen: SocketAddr) -> Route {
        Route {
            name: "db".into(),
            listen,
            kind: Kind::Forward(Forward { targets: Vec::new(), choice: Default::default() }),
            allow: Vec::new(),
            reach: Vec::new(),
            client: LegOptions::default(),
            upstream: LegOptions::default(),
            times: Times::default(),
        }
    }

    #[test]
    fn the_task_of_a_flow_is_small() {
        let resolver = Resolver::dns_from("", "").unwrap();
        let nobody = Arc::new(Nobody);
        let context = Context::new(Dialer::new(resolver), nobody.clone(), nobody);
        let (orders, _orders) = unbounded_channel();
        let members = vec![Member::new(orders)];
        let team = Arc::new(Team { context: Arc::new(context), members });
        let worker = Arc::new(Worker::new(team, 0));
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind_with(listen, &ListenOptions::default()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let incoming = listener.accept_now().unwrap();
        worker.member().load.fetch_add(1, Ordering::Relaxed);
        let route = Arc::new(route(listen));
        let route = Arc::new(ActiveRoute::new(route, worker.context()));
        let open = Some(route.statistics.flows_open.hold());
        let notes = Notes {
            route,
            number: 1,
            began: Duration::ZERO,
            at: Instant::now(),
            client: listen,
            progress: Arc::default(),
            connect: None,
            granted: None,
            steps: Steps::of(1, "db"),
        };
        let task = serve(OpenFlow { worker, notes, place: None, open }, incoming);
        let (whole, inner) = (size_of_val(&task), size_of_step(flow::serve));
        assert!(whole <= inner + 256, "{whole} bytes, of which the steps have {inner}");
        assert!(whole <= 1_280, "{whole} bytes");
    }

    /// How large the future of a function is.
    fn size_of_step<F>(
        _: fn(Box<Accepted>, &'static mut Notes, &'static Context, &'static Pool) -> F,
    ) -> usize {
        size_of::<F>()
    }
}
