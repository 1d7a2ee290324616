//! What a client wants, and how it is told what came of it: the first and the last word on its leg.
//!
//! What the bytes mean is decided in `lastbyte-core` ([`socks5`], [`http_connect`]); here they are read
//! and written. A client of a fixed target says nothing and is told nothing: data is the answer, or a
//! reset.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_core::account::{Ended, How, Party};
use lastbyte_core::http_connect::{self, HttpConnect};
use lastbyte_core::request::{Asking, Destination, Refusal, Step};
use lastbyte_core::socks5::{self, Rep, Socks5};
use lastbyte_socket::Stream;
use tokio::time::{self, Instant};

use crate::config::{Kind, Target, Users};
use crate::flow::{Reply, Request};
use crate::targets::Chooser;

/// A client that gets nothing.
#[derive(Debug)]
pub(crate) struct Refused {
    /// For the account.
    pub(crate) ended: Ended,
    /// Whether it was told so in its protocol: its connection is to be finished by a FIN then, with
    /// what it still sends read and thrown away, so that the words arrive. Otherwise it is to be reset.
    pub(crate) told: bool,
}

impl Refused {
    fn silently(ended: Ended) -> Self {
        Self { ended, told: false }
    }
}

/// Finds out what a client wants. It may take `within` to say so.
///
/// What it sent behind its request is in [`Request::early`]; everything else is still in the kernel.
///
/// # Errors
/// Why there is no request; what the protocol says to that is written already.
pub(crate) async fn ask(
    kind: &Kind,
    chooser: &Chooser,
    client: &mut Stream,
    within: Duration,
) -> Result<Request, Refused> {
    // On the heap, so that it takes no room in flows that are past it.
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
async fn read<A: Asking>(
    mut machine: A,
    users: &Users,
    client: &mut Stream,
    within: Duration,
) -> Result<(Destination, Vec<u8>), Refused> {
    let began = Instant::now();
    let mut room = vec![0; A::MOST];
    loop {
        match machine.next() {
            Step::More => {
                let free = machine.room();
                match time::timeout(
                    within.saturating_sub(began.elapsed()),
                    client.read(&mut room[..free]),
                )
                .await
                {
                    Ok(Ok(0)) => return Err(Refused::silently(left())),
                    Ok(Ok(read)) => machine.put(&room[..read]),
                    Ok(Err(cause)) => return Err(Refused::silently(broken(&cause))),
                    Err(_) => {
                        let ended = Ended::new(Party::Gate, How::RequestTimeout);
                        return Err(refuse(client, &machine.too_late(), ended).await);
                    }
                };
            }
            Step::Reply(bytes) => {
                if let Err(cause) = say(client, &bytes).await {
                    return Err(Refused::silently(broken(&cause)));
                }
            }
            Step::Check(credentials) => machine.on_checked(users.admits(&credentials)),
            Step::Request(destination) => return Ok((destination, machine.into_early())),
            Step::Refuse(Refusal { reply, how, why }) => {
                let ended = Ended::because(Party::Gate, how, why);
                return Err(refuse(client, &reply, ended).await);
            }
        }
    }
}

async fn refuse(client: &mut Stream, reply: &[u8], ended: Ended) -> Refused {
    let told = !reply.is_empty() && say(client, reply).await.is_ok();
    Refused { ended, told }
}

fn left() -> Ended {
    Ended::because(Party::Client, How::BadRequest, "it ended before it had asked")
}

fn broken(cause: &io::Error) -> Ended {
    let how = if is_gone(cause) { How::Reset } else { How::Failed };
    Ended::because(Party::Client, how, cause)
}

fn is_gone(cause: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
}

/// Writes a reply. It has less than a kilobyte, and nothing or next to nothing was written before: the
/// kernel takes it at once, but where its buffer was made smaller than that and the client does not
/// read.
async fn say(client: &mut Stream, reply: &[u8]) -> io::Result<()> {
    time::timeout(REPLY, client.write_all(reply)).await?
}

/// How long a client may take no reply.
const REPLY: Duration = Duration::from_secs(5);

impl Reply {
    /// Tells the client that it is connected; `local` is our address on the upstream's leg, which SOCKS
    /// has in its reply. Only after this its data may be read, and the upstream's be written to it.
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
            Self::Socks5 => say(client, &socks5::reply(Rep::Succeeded, local)).await,
            Self::HttpConnect => say(client, http_connect::CONNECTED).await,
        }
    }

    /// Tells the client that it is not connected, and why. Returns whether it was told: its connection
    /// is to be finished by a FIN then; otherwise by a reset, which is all that it can be told.
    ///
    /// # Errors
    /// The connection's: the client is gone.
    pub(crate) async fn failed(&self, client: &mut Stream, ended: &Ended) -> io::Result<bool> {
        let reply = match self {
            Self::None => return Ok(false),
            Self::Socks5 => socks5::reply(Rep::of(ended.how), None),
            Self::HttpConnect => http_connect::failure(ended.how),
        };
        say(client, &reply).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
