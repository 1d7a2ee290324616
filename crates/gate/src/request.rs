//! What a client asks for, and the answer to it.
//!
//! What the bytes mean is decided in `lastbyte-core` ([`socks5`], [`http_connect`]); here they are read
//! and written. A client of a fixed target asks nothing and gets no answer: it gets data, or a reset.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_core::account::{Ended, How, Party};
use lastbyte_core::http_connect::{self, HttpConnect};
use lastbyte_core::request::{Destination, Refusal, RequestReader, Step};
use lastbyte_core::socks5::{self, Rep, Socks5};
use lastbyte_socket::Stream;
use tokio::time::{self, Instant};

use crate::config::{Kind, Target, Users};
use crate::targets::Chooser;

/// What a client asks for.
#[derive(Debug)]
pub(crate) struct Request {
    /// Where to, in the order in which they are to be tried; at least one.
    pub(crate) targets: Vec<Arc<Target>>,
    /// What the client sent behind its request, for the upstream.
    pub(crate) early: Vec<u8>,
    /// How the client is answered.
    pub(crate) reply: Reply,
}

/// How a client is answered.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Not at all: it gets data, or a reset.
    None,
    /// By a reply of SOCKS 5.
    Socks5,
    /// By a response of HTTP.
    HttpConnect,
}

/// A client that gets nothing.
#[derive(Debug)]
pub(crate) struct Refused {
    /// For the account.
    pub(crate) ended: Ended,
    /// Whether it was answered in its protocol: its connection is to be finished by a FIN then, with
    /// what it still sends read and discarded, so that the answer arrives. Otherwise it is to be reset.
    pub(crate) answered: bool,
}

impl Refused {
    fn silently(ended: Ended) -> Self {
        Self { ended, answered: false }
    }
}

/// Finds out what a client asks for. It may take `within` to ask.
///
/// What it sent behind its request is in [`Request::early`]; everything else is still in the kernel.
///
/// # Errors
/// Why there is no request; the answer that the protocol has for that is written already.
pub(crate) async fn ask(
    kind: &Kind,
    chooser: &Chooser,
    client: &mut Stream,
    within: Duration,
) -> Result<Request, Refused> {
    // On the heap, so that flows that are past it do not keep it.
    let (asked, reply) = match kind {
        Kind::Forward(_) => {
            let targets = chooser.order();
            return Ok(Request { targets, early: Vec::new(), reply: Reply::None });
        }
        Kind::Socks5(users) => {
            let machine = Socks5::new(users.are_asked());
            (Box::pin(read(machine, users, client, within)).await?, Reply::Socks5)
        }
        Kind::HttpConnect(users) => {
            let machine = HttpConnect::new(users.are_asked());
            (Box::pin(read(machine, users, client, within)).await?, Reply::HttpConnect)
        }
    };
    let (Destination { host, port }, early) = asked;
    Ok(Request { targets: vec![Arc::new(Target { host, port })], early, reply })
}

/// Reads a request: where to, and what came behind it.
async fn read<A: RequestReader>(
    mut machine: A,
    users: &Users,
    client: &mut Stream,
    within: Duration,
) -> Result<(Destination, Vec<u8>), Refused> {
    let began = Instant::now();
    let mut buffer = vec![0; A::MOST];
    loop {
        match machine.next() {
            Step::More => {
                let free = machine.capacity();
                match time::timeout(
                    within.saturating_sub(began.elapsed()),
                    client.read(&mut buffer[..free]),
                )
                .await
                {
                    Ok(Ok(0)) => return Err(Refused::silently(ended_early())),
                    Ok(Ok(read)) => machine.put(&buffer[..read]),
                    Ok(Err(cause)) => return Err(Refused::silently(broken(&cause))),
                    Err(_) => {
                        let ended = Ended::new(Party::Gate, How::RequestTimeout);
                        return Err(refuse(client, &machine.timeout_reply(), ended).await);
                    }
                };
            }
            Step::Reply(bytes) => {
                if let Err(cause) = send(client, &bytes).await {
                    return Err(Refused::silently(broken(&cause)));
                }
            }
            Step::Check(credentials) => machine.on_checked(users.admits(&credentials)),
            Step::Request(destination) => return Ok((destination, machine.into_rest())),
            Step::Refuse(Refusal { reply, how, why }) => {
                let ended = Ended::because(Party::Gate, how, why);
                return Err(refuse(client, &reply, ended).await);
            }
        }
    }
}

async fn refuse(client: &mut Stream, reply: &[u8], ended: Ended) -> Refused {
    let answered = !reply.is_empty() && send(client, reply).await.is_ok();
    Refused { ended, answered }
}

fn ended_early() -> Ended {
    Ended::because(Party::Client, How::BadRequest, "it ended before its request was complete")
}

fn broken(cause: &io::Error) -> Ended {
    let how = if is_gone(cause) { How::Reset } else { How::Failed };
    Ended::because(Party::Client, how, cause)
}

fn is_gone(cause: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
}

/// Writes a reply. It has less than a kilobyte, and little or nothing was written before: the kernel takes
/// it at once, unless its buffer was made smaller than that and the client does not read.
async fn send(client: &mut Stream, reply: &[u8]) -> io::Result<()> {
    time::timeout(REPLY, client.write_all(reply)).await?
}

/// How long a client may take to read a reply.
const REPLY: Duration = Duration::from_secs(5);

impl Reply {
    /// Answers that the client is connected; `local` is our address on the upstream's leg, which SOCKS has
    /// in its reply. Only after this may the client's data be read, and the upstream's be written to it.
    ///
    /// # Errors
    /// The connection's: the client is gone.
    pub(crate) async fn connected(
        &self,
        client: &mut Stream,
        local: Option<SocketAddr>,
    ) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Socks5 => send(client, &socks5::reply(Rep::Succeeded, local)).await,
            Self::HttpConnect => send(client, http_connect::CONNECTED).await,
        }
    }

    /// Answers that the client is not connected, and why. Returns whether it was answered: its connection
    /// is to be finished by a FIN then; otherwise by a reset.
    ///
    /// # Errors
    /// The connection's: the client is gone.
    pub(crate) async fn failed(&self, client: &mut Stream, ended: &Ended) -> io::Result<bool> {
        let reply = match self {
            Self::None => return Ok(false),
            Self::Socks5 => socks5::reply(Rep::of(ended.how), None),
            Self::HttpConnect => http_connect::failure(ended.how),
        };
        send(client, &reply).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
