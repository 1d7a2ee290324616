//! One flow, from its accept to its account.
//!
//! ```text
//! listen ----> resolve ----> dial -----> tune -----> relay -----> finish -----> account
//! Accepted     Asked         Connected   Tuned       Relay        Relayed       Account
//! ```
//!
//! Each step takes the former's value, and returns its own or why there is none. Whatever happens,
//! one account leaves.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lastbyte_core::account::{Account, Ended, How, Leg, Party};
use lastbyte_core::finish::Unproven;
use lastbyte_dial::{DialError, DialOptions, Undialed, Veto};
use lastbyte_relay::{Over, Pool, Relay, RelayTimes, Relayed, Side};
use lastbyte_socket::{FinishOptions, Stream};

use crate::config::{Route, Target, Times};
use crate::limits::FlowPass;
use crate::loops::{self, Listeners};
use crate::progress::Progress;
use crate::request::{self, Refused};
use crate::tuned;
use crate::worker::{Accepted, ActiveRoute, Context};

/// Serves one connection: the seven steps.
///
/// What a flow keeps while it is open is kept small: what is large lies apart, and is soon gone.
pub(crate) async fn serve(accepted: Box<Accepted>, context: &Context, pool: &Pool) -> Account {
    let at = accepted.at;
    let opening = Opening::of(&accepted);
    let progress = Arc::clone(&accepted.progress);
    let mut noted = Noted::default();
    let ended = async {
        // They are large, and soon over.
        let connected = Box::pin(async {
            let asked = resolve(*accepted, context).await?;
            dial(asked, context, &progress, &mut noted).await
        });
        let tuned = tune(connected.await?, &mut noted);
        let mut joined = join(tuned, pool);
        relay(&mut joined, context, &progress).await;
        Ok(Box::pin(finish(joined, context, at)).await)
    };
    let ended = ended.await;
    let mut account = opening.account();
    account.wanted = progress.wanted();
    noted.enter(&mut account);
    account.ended = match ended {
        Ok(relayed) => conclude(relayed, &mut account),
        Err(refused) => refused,
    };
    if let Some(upstream) = progress.upstream() {
        account.upstream.get_or_insert_default().peer.get_or_insert(upstream);
    }
    account.took = at.elapsed();
    account
}

/// What an account begins with. A flow keeps this instead: most of an account is about its end.
struct Opening {
    route: Arc<ActiveRoute>,
    number: u64,
    began: Duration,
    peer: Option<SocketAddr>,
}

impl Opening {
    fn of(accepted: &Accepted) -> Self {
        let Accepted { client, route, number, began, .. } = accepted;
        let (route, peer) = (Arc::clone(route), client.peer_addr().ok());
        Self { route, number: *number, began: *began, peer }
    }

    fn account(self) -> Account {
        let mut client = Leg::default();
        client.peer = self.peer;
        Account::begin(self.number, Arc::clone(&self.route.route.name), self.began, client)
    }
}

/// What an account has to tell of the steps before the relay.
#[derive(Default)]
struct Noted {
    connect: Option<Duration>,
    tuned: [Vec<(&'static str, String)>; 2],
}

impl Noted {
    fn enter(self, account: &mut Account) {
        account.connect = self.connect;
        let [client, upstream] = self.tuned;
        account.client.tuned = client;
        if !upstream.is_empty() {
            account.upstream.get_or_insert_default().tuned = upstream;
        }
    }
}

/// What a client wants, once it is known.
#[derive(Debug)]
pub(crate) struct Request {
    /// Where to, in the order in which they are to be tried; at least one.
    pub(crate) targets: Vec<Arc<Target>>,
    /// What the client sent behind its request, for the upstream.
    pub(crate) early: Vec<u8>,
    /// How the client is told what came of it.
    pub(crate) reply: Reply,
}

/// How a client is told what came of its request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Not at all: data is the answer, or a reset.
    None,
    /// By a reply of SOCKS 5.
    Socks5,
    /// By a response of HTTP.
    HttpConnect,
}

/// A client whose wish is known.
struct Asked {
    client: Stream,
    route: Arc<ActiveRoute>,
    request: Request,
    pass: FlowPass,
}

/// Lets the client in, and asks it where to, unless its route says so.
async fn resolve(accepted: Accepted, context: &Context) -> Result<Asked, Ended> {
    let Accepted { mut client, route, .. } = accepted;
    let from = client.peer_addr().map_or_else(|_| Ipv6Addr::UNSPECIFIED.into(), |peer| peer.ip());
    let pass = match context.admission.admit(from, &route.route.allow) {
        Ok(pass) => pass,
        Err(how) => {
            client.discard();
            return Err(Ended::new(Party::Gate, how));
        }
    };
    let Route { kind, times, .. } = &*route.route;
    let asked = {
        let asking = pin!(request::ask(kind, &route.chooser, &mut client, times.request));
        until_stopped(context, asking).await
    };
    match asked {
        Some(Ok(request)) => Ok(Asked { client, route, request, pass }),
        Some(Err(Refused { ended, told })) => {
            refuse(client, told, times.settle).await;
            Err(ended)
        }
        None => {
            client.discard();
            Err(Ended::new(Party::Gate, How::Stopped))
        }
    }
}

/// Ends the connection of a client that gets nothing: if it was told so in its protocol, so that it
/// hears that; else by a reset.
async fn refuse(mut client: Stream, told: bool, settle: Duration) {
    if told {
        let _ = client.reset_when_closed(false);
        // Whether it took the words is its own affair.
        let _ = Box::pin(client.finish_with(FinishOptions::default().within(settle))).await;
    } else {
        client.discard();
    }
}

/// Both connections.
struct Connected {
    client: Stream,
    upstream: Stream,
    route: Arc<ActiveRoute>,
    early: Vec<u8>,
    pass: FlowPass,
}

/// Connects to one of the targets, and tells the client, who hears of it only then.
async fn dial(
    asked: Asked,
    context: &Context,
    progress: &Progress,
    noted: &mut Noted,
) -> Result<Connected, Ended> {
    let Asked { mut client, route, request, pass } = asked;
    let Request { targets, early, reply } = request;
    let began = Instant::now();
    progress.set_wanted(targets.first());
    let dialed = {
        let dialing = pin!(first_of(&targets, &route, &pass, &client, context));
        let dialing = pin!(unless_it_leaves(&client, dialing));
        until_stopped(context, dialing).await
    };
    noted.connect = Some(began.elapsed());
    let ended = match dialed {
        Some(Ok((upstream, number))) => {
            progress.set_wanted(targets.get(number));
            progress.set_upstream(upstream.peer_addr().ok());
            let told = reply.connected(&mut client, upstream.local_addr().ok()).await;
            match told {
                Ok(()) => return Ok(Connected { client, upstream, route, early, pass }),
                Err(cause) => {
                    upstream.discard();
                    client.discard();
                    return Err(Ended::because(Party::Client, How::Reset, cause));
                }
            }
        }
        Some(Err(ended)) => ended,
        None => Ended::new(Party::Gate, How::Stopped),
    };
    // Without words of its own the client sees that nobody is there, as it would without a gate.
    let told = reply.failed(&mut client, &ended).await.unwrap_or(false);
    refuse(client, told, route.route.times.settle).await;
    Err(ended)
}

/// What comes of a dial, or that the client is gone: nobody is to be connected then.
async fn unless_it_leaves<T>(
    client: &Stream,
    mut dialing: Pin<&mut impl Future<Output = Result<T, Ended>>>,
) -> Result<T, Ended> {
    let mut failed = pin!(client.failed());
    poll_fn(|cx| {
        if let Poll::Ready(dialed) = dialing.as_mut().poll(cx) {
            return Poll::Ready(dialed);
        }
        let left = || Err(Ended::because(Party::Client, How::Reset, "while it was connected to"));
        failed.as_mut().poll(cx).map(|_| left())
    })
    .await
}

/// Tries the targets in their order, each with an equal share of the time that is left. Returns the
/// connection, and which one it leads to.
async fn first_of(
    targets: &[Arc<Target>],
    route: &ActiveRoute,
    pass: &FlowPass,
    client: &Stream,
    context: &Context,
) -> Result<(Stream, usize), Ended> {
    let by_gate = |how| Ended::new(Party::Gate, how);
    let _dialing = context.admission.dial().map_err(by_gate)?;
    let hop_limit = loops::hop_limit_for(pass, client).map_err(by_gate)?;
    let began = Instant::now();
    let whole = route.route.times.connect;
    let mut failed = by_gate(How::Failed);
    for (number, target) in targets.iter().enumerate() {
        let left = u32::try_from(targets.len() - number).unwrap_or(u32::MAX);
        let mut options = route.dial.clone();
        options.race.deadline = whole.saturating_sub(began.elapsed()) / left;
        options.connect.hop_limit = hop_limit;
        let dialed = context.dialer.dial((&*target.host, target.port), &options).await;
        match dialed {
            Ok(dialed) => {
                route.chooser.report(target, true);
                return Ok((dialed.stream, number));
            }
            Err(error) => failed = not_connected(&error, &route.route),
        }
        // What failed here says nothing about the target.
        if failed.by == Party::Upstream {
            route.chooser.report(target, false);
        }
    }
    Err(failed)
}

/// Who is to blame that there is no connection, and how.
fn not_connected(error: &DialError, route: &Route) -> Ended {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let first = error.first().map(|first| (first.cause.kind(), first.cause.raw_os_error()));
    let (by, how) = match (&error.why, first) {
        (Undialed::BadHost(_) | Undialed::BadPort, _) => (Party::Client, How::BadRequest),
        (Undialed::Runtime(_), _) => (Party::Gate, How::Failed),
        (Undialed::Vetoed(all), _) if all.iter().all(|one| route.may_reach(one.ip())) => {
            (Party::Gate, How::Loop)
        }
        (Undialed::Vetoed(_), _) => (Party::Gate, How::NotAllowed),
        _ if error.is_unresolved() => (Party::Upstream, How::Unresolved),
        (Undialed::TimedOut, _) | (_, Some((TimedOut, _))) => {
            (Party::Upstream, How::ConnectTimeout)
        }
        (_, Some((ConnectionRefused | ConnectionReset, _))) => (Party::Upstream, How::Refused),
        (_, Some((HostUnreachable | NetworkUnreachable, _))) => (Party::Upstream, How::Unreachable),
        (_, Some((_, Some(code)))) if NO_DESCRIPTORS.contains(&code) => {
            (Party::Gate, How::NoDescriptors)
        }
        _ => (Party::Gate, How::Failed),
    };
    Ended::because(by, how, error)
}

/// `ENFILE` and `EMFILE`.
const NO_DESCRIPTORS: [i32; 2] = [23, 24];

/// Both connections, and what is read from them goes on.
struct Tuned(Connected);

/// Reads back what was asked of both legs: it was set before they were connected. The congestion
/// control of an accepted connection is the listener's, but where the kernel's way to the client asks
/// for one (`congctl` of `ip-route(8)`): it is asked for once more.
fn tune(connected: Connected, noted: &mut Noted) -> Tuned {
    let route = &connected.route.route;
    if let Some(congestion) = &route.client.tune.congestion {
        // What became of it is in the account.
        let _ = lastbyte_socket::set_congestion(&connected.client, congestion);
    }
    noted.tuned = [
        tuned::granted(&route.client.tune, route.client.mptcp, &connected.client),
        tuned::granted(&route.upstream.tune, route.upstream.mptcp, &connected.upstream),
    ];
    Tuned(connected)
}

/// Two connections as one flow. It counts as open until both have ended.
struct Joined {
    relay: Relay,
    route: Arc<ActiveRoute>,
    _pass: FlowPass,
}

fn join(Tuned(connected): Tuned, pool: &Pool) -> Joined {
    let Connected { client, upstream, route, early, pass } = connected;
    let Times { idle, stall, settle, .. } = route.route.times;
    let relay = Relay::new(client, upstream, early, RelayTimes { idle, stall, settle }, pool);
    Joined { relay, route, _pass: pass }
}

/// Moves the bytes, until both directions are over, or the gate is told to stop.
async fn relay(Joined { relay, route, .. }: &mut Joined, context: &Context, progress: &Progress) {
    let moving = pin!(poll_fn(|cx| {
        let over = Pin::new(&mut *relay).poll(cx);
        progress.follow(relay, &route.statistics);
        over
    }));
    if until_stopped(context, moving).await.is_none() {
        relay.stop();
    }
}

/// Ends both connections as what happened asks for. Where the gate has no time for that, what is known
/// already is all that there is.
async fn finish(joined: Joined, context: &Context, at: Instant) -> Relayed {
    let mut finishing = joined.relay.finish(at.elapsed());
    match until_stopped(context, Pin::new(&mut finishing)).await {
        Some(relayed) => relayed,
        None => finishing.stop(),
    }
}

/// Enters what came of it in the account, and says who ended it and how.
fn conclude(relayed: Relayed, account: &mut Account) -> Ended {
    let Relayed { over, up, down, unacked, client, upstream, .. } = relayed;
    (account.up, account.down) = (up, down);
    for (leg, seen) in
        [(&mut account.client, client), (account.upstream.get_or_insert_default(), upstream)]
    {
        let tuned = std::mem::take(&mut leg.tuned);
        *leg = seen;
        leg.tuned = tuned;
    }
    match (over, unacked) {
        (Over::Fin(_), Some((side, Unproven::Reset))) => Ended::because(
            party(side),
            How::Reset,
            "after both ends were passed on, before all was acknowledged",
        ),
        (Over::Fin(_), Some((side, why))) => Ended::because(party(side), How::Unacked, why),
        (Over::Fin(side), None) => Ended::new(party(side), How::Fin),
        (Over::Cut(side), Some((other, why))) if other != side => {
            let detail = format!("what came before did not all reach the {other}: {why}");
            Ended::because(party(side), How::Reset, detail)
        }
        (Over::Cut(side), _) => Ended::new(party(side), How::Reset),
        (Over::Idle, _) => Ended::new(Party::Gate, How::Idle),
        (Over::Stalled { side, cut_by: Some(by) }, _) => {
            let detail = format!("the {side} took no more of what came before");
            Ended::because(party(by), How::Reset, detail)
        }
        (Over::Stalled { side, .. }, _) => {
            Ended::because(Party::Gate, How::Stalled, format!("the {side} took nothing"))
        }
        (_, _) => Ended::new(Party::Gate, How::Stopped),
    }
}

fn party(side: Side) -> Party {
    match side {
        Side::Client => Party::Client,
        Side::Upstream => Party::Upstream,
    }
}

/// What comes of `future`, or nothing once the gate has no time left. The gate wakes the task then.
///
/// It is lent: a future that is given is kept twice, where it was given and where it is polled.
async fn until_stopped<F: Future>(context: &Context, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        if context.stop.is_stopping() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// How the upstream of a route is connected to, by a gate that listens on `own`.
pub(crate) fn dial_options(route: &Arc<Route>, own: &Arc<Listeners>) -> DialOptions {
    let (own, proxy) = (Arc::clone(own), Arc::clone(route));
    let mut options = DialOptions::default();
    options.connect.socket = tuned::with_defaults(&route.upstream.tune);
    options.connect.mptcp = route.upstream.mptcp;
    options.connect.any_port = true;
    options.connect.sources.clone_from(&route.upstream.sources);
    options.veto =
        Some(Veto::new(move |address| !proxy.may_reach(address.ip()) || own.is_own(address)));
    options
}
