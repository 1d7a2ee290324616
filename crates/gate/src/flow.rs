//! One flow, from its accept to its account.
//!
//! ```text
//! listen --> resolve --> dial -------> tune --> relay --> finish --> account
//! Accepted   Asked       Connected     Tuned    Joined    Relayed    Account
//! ```
//!
//! Each step takes the value of the one before, and returns its own or why there is none. Whatever
//! happens, one account leaves. `listen` is the worker's: an accepted connection begins here.

use std::future::{Future, poll_fn};
use std::io;
use std::net::Ipv6Addr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lastbyte_core::account::{Account, Ended, How, Party};
use lastbyte_dial::{DialError, Undialed};
use lastbyte_relay::{Pool, Relay, RelayTimes, Relayed};
use lastbyte_socket::{FinishOptions, Stream};

use crate::account::Notes;
use crate::config::{Route, Target, Times};
use crate::context::Context;
use crate::limits::FlowPass;
use crate::request::{self, Refused, Request};
use crate::route::ActiveRoute;
use crate::steps::Step;
use crate::{granted, loops};

/// A connection that was accepted, in the thread that serves it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) client: Stream,
}

/// Serves one connection: the seven steps.
///
/// What a flow keeps while it is open is kept small: what is large is boxed, and soon dropped.
pub(crate) async fn serve(
    accepted: Box<Accepted>,
    notes: &mut Notes,
    context: &Context,
    pool: &Pool,
) -> Account {
    let ended = async {
        let connected = Box::pin(async {
            let asked = resolve(*accepted, notes, context).await?;
            dial(asked, notes, context).await
        });
        let tuned = tune(connected.await?, notes);
        let mut joined = join(tuned, notes, pool);
        relay(&mut joined, notes, context).await;
        Ok(Box::pin(finish(joined, notes, context)).await)
    };
    let ended = ended.await;
    notes.account(ended)
}

/// A client whose request is known.
struct Asked {
    client: Stream,
    request: Request,
    pass: FlowPass,
}

/// Admits the client, and asks it where to, unless its route says so.
async fn resolve(accepted: Accepted, notes: &mut Notes, context: &Context) -> Result<Asked, Ended> {
    notes.steps.enter(Step::Resolve);
    let Accepted { mut client } = accepted;
    let ActiveRoute { route, chooser, .. } = &*notes.route;
    let from = client.peer_addr().map_or_else(|_| Ipv6Addr::UNSPECIFIED.into(), |peer| peer.ip());
    let pass = match context.admission.admit(from, &route.allow) {
        Ok(pass) => pass,
        Err(how) => {
            client.discard();
            return Err(Ended::new(Party::Gate, how));
        }
    };
    let Route { kind, times, .. } = &**route;
    let asked = {
        let asking = pin!(request::ask(kind, chooser, &mut client, times.request));
        until_stopped(context, asking).await
    };
    match asked {
        Some(Ok(request)) => Ok(Asked { client, request, pass }),
        Some(Err(Refused { ended, answered })) => {
            refuse(client, answered, times.settle).await;
            Err(ended)
        }
        None => {
            client.discard();
            Err(Ended::new(Party::Gate, How::Stopped))
        }
    }
}

/// Ends the connection of a client that gets nothing. If it was answered in its protocol, by a FIN, so
/// that the answer arrives; else by a reset.
async fn refuse(mut client: Stream, answered: bool, settle: Duration) {
    if answered {
        let _ = client.reset_when_closed(false);
        // Whether it takes the answer does not change the account.
        let _ = Box::pin(client.finish_with(FinishOptions::default().within(settle))).await;
    } else {
        client.discard();
    }
}

/// Both connections.
struct Connected {
    client: Stream,
    upstream: Stream,
    early: Vec<u8>,
    pass: FlowPass,
}

/// Connects to one of the targets, and then answers the client.
async fn dial(asked: Asked, notes: &mut Notes, context: &Context) -> Result<Connected, Ended> {
    notes.steps.enter(Step::Dial);
    let Asked { mut client, request, pass } = asked;
    let Request { targets, early, reply } = request;
    let began = Instant::now();
    notes.progress.set_wanted(targets.first());
    let dialed = {
        let dialing = pin!(first_of(&targets, &notes.route, &pass, &client, context));
        let dialing = pin!(unless_client_fails(&client, dialing));
        until_stopped(context, dialing).await
    };
    notes.connect = Some(began.elapsed());
    let ended = match dialed {
        Some(Ok((upstream, number))) => {
            notes.progress.set_wanted(targets.get(number));
            notes.progress.set_upstream(upstream.peer_addr().ok());
            match reply.connected(&mut client, upstream.local_addr().ok()).await {
                Ok(()) => return Ok(Connected { client, upstream, early, pass }),
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
    // Without an answer in its protocol the client gets a reset, as it would from the target itself.
    let answered = reply.failed(&mut client, &ended).await.unwrap_or(false);
    refuse(client, answered, notes.route.route.times.settle).await;
    Err(ended)
}

/// The result of a dial, or that the client's connection has failed meanwhile: then there is no one to
/// connect for.
async fn unless_client_fails<T>(
    client: &Stream,
    mut dialing: Pin<&mut impl Future<Output = Result<T, Ended>>>,
) -> Result<T, Ended> {
    let mut failed = pin!(client.failed());
    poll_fn(|cx| {
        if let Poll::Ready(dialed) = dialing.as_mut().poll(cx) {
            return Poll::Ready(dialed);
        }
        let gone = || Err(Ended::because(Party::Client, How::Reset, "during the connect"));
        failed.as_mut().poll(cx).map(|_| gone())
    })
    .await
}

/// Tries the targets in their order, each with an equal share of the time that is left. Returns the
/// connection, and the number of its target.
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

/// Both connections, with the settings of their route.
struct Tuned(Connected);

/// Sets what was not set before the connections were made. The congestion control of an accepted
/// connection is the listener's, unless the kernel's route to the client names one (`congctl` of
/// `ip-route(8)`): so it is set once more. Then all settings are read back, for the account.
fn tune(connected: Connected, notes: &mut Notes) -> Tuned {
    notes.steps.enter(Step::Tune);
    let route = &notes.route.route;
    if let Some(congestion) = &route.client.tune.congestion {
        // Where it is refused, the account has what the connection uses instead.
        let _ = lastbyte_socket::set_congestion(&connected.client, congestion);
    }
    notes.granted = granted::of(route, &connected.client, &connected.upstream);
    Tuned(connected)
}

/// Two connections as one flow. It counts as open until both have ended.
struct Joined {
    relay: Relay,
    _pass: FlowPass,
}

fn join(Tuned(connected): Tuned, notes: &mut Notes, pool: &Pool) -> Joined {
    notes.steps.enter(Step::Relay);
    let Connected { client, upstream, early, pass } = connected;
    let Times { idle, stall, settle, .. } = notes.route.route.times;
    let relay = Relay::new(client, upstream, early, RelayTimes { idle, stall, settle }, pool);
    Joined { relay, _pass: pass }
}

/// Moves the bytes, until both directions have ended, or the gate is told to stop.
async fn relay(Joined { relay, .. }: &mut Joined, notes: &Notes, context: &Context) {
    let moving = pin!(poll_fn(|cx| {
        let ended = Pin::new(&mut *relay).poll(cx);
        if let Some(moved) = notes.progress.follow(relay) {
            notes.route.statistics.moved(moved);
        }
        ended
    }));
    if until_stopped(context, moving).await.is_none() {
        relay.stop();
    }
}

/// Ends both connections as the relay's end asks for. Where the gate has no time for that, what is known
/// already is all that there is.
async fn finish(joined: Joined, notes: &mut Notes, context: &Context) -> Relayed {
    notes.steps.enter(Step::Finish);
    let mut finishing = joined.relay.finish(notes.at.elapsed());
    match until_stopped(context, Pin::new(&mut finishing)).await {
        Some(relayed) => relayed,
        None => finishing.stop(),
    }
}

/// The result of `future`, or nothing once the gate is stopping. The gate wakes the task then.
///
/// The future is borrowed: one that is moved in would be stored twice, where it was made and where it is
/// polled.
async fn until_stopped<F: Future>(context: &Context, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        if context.stop.is_stopping() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
