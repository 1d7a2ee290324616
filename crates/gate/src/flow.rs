//! One flow, from its accept to its account.

use lastbyte_core::account::Account;

use crate::config::{Route, Target};
use lastbyte_socket::AsyncStream;

/// What a client wants, once it is known.
#[derive(Debug)]
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
pub(crate) enum Reply {
    /// Not at all: data is the answer, or a reset.
    None,
    /// By a reply of SOCKS 5.
    Socks5,
    /// By a response of HTTP.
    HttpConnect,
}

/// Serves one connection: the seven steps.
pub(crate) async fn serve(client: AsyncStream, route: &Route) -> Account {
    let _ = (client, route);
    todo!("the steps come with the relay")
}
