//! One flow, from its accept to its account.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use lastbyte_core::account::{Account, Ended, How, Leg, Party};
use lastbyte_dial::DialOptions;

use crate::config::{Kind, Target};
use crate::worker::{Accepted, Context};

/// What a client wants, once it is known.
#[derive(Debug)]
#[expect(dead_code, reason = "it comes with the relay")]
pub(crate) struct Request {
    /// Where to, in the order in which they are to be tried; at least one.
    pub(crate) targets: Vec<Target>,
    /// What the client sent behind its request, for the upstream.
    pub(crate) early: Vec<u8>,
    /// How the client is told what came of it.
    pub(crate) reply: Reply,
}

/// How a client is told what came of its request.
#[derive(Debug)]
#[expect(dead_code, reason = "it comes with the relay")]
pub(crate) enum Reply {
    /// Not at all: data is the answer, or a reset.
    None,
    /// By a reply of SOCKS 5.
    Socks5,
    /// By a response of HTTP.
    HttpConnect,
}

/// A PLACEHOLDER, on this branch alone: it does not relay as promised.
pub(crate) async fn serve(accepted: Accepted, context: &Context) -> Account {
    let Accepted { mut client, route, number, began, at } = accepted;
    let mut leg = Leg::default();
    leg.peer = client.peer_addr();
    let mut account = Account::begin(number, route.route.name.clone(), began, leg);
    let Kind::Forward(forward) = &route.route.kind else { return account };
    let Target { host, port } = &forward.targets[0];
    let options = DialOptions::default();
    let dialed = Box::pin(context.dialer.dial(host, *port, &options)).await;
    account.ended = match dialed {
        Ok(dialed) => {
            let mut upstream = dialed.stream;
            let both = {
                let mut both = pin!(tokio::io::copy_bidirectional(&mut client, &mut upstream));
                poll_fn(|cx| {
                    if context.stop.is_stopping() {
                        return Poll::Ready(None);
                    }
                    both.as_mut().poll(cx).map(Some)
                })
                .await
            };
            match both {
                None => {
                    upstream.discard();
                    client.discard();
                    Ended::new(Party::Gate, How::Stopped)
                }
                Some(Ok((up, down))) => {
                    account.up.received = up;
                    account.down.received = down;
                    Ended::new(Party::Client, How::Fin)
                }
                Some(Err(error)) => Ended::because(Party::Client, How::Reset, error),
            }
        }
        Err(error) => {
            client.discard();
            Ended::because(Party::Upstream, How::Refused, error)
        }
    };
    account.took = at.elapsed();
    account
}
