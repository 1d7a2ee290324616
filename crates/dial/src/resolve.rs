//! Resolves the addresses of a name.
//!
//! ```text
//!  name -> hosts(5), localhost -> search list -> cache -> flights -> servers -> exchange
//!          files                  dns            cache    dns        servers    exchange
//! ```
//!
//! All questions about a name are asked at once, and each answer is reported as it arrives. hickory
//! encodes the messages and makes one exchange with one server. This module decides which server to
//! ask when, in which order to search names, and what to cache. hickory's own pool would not do for
//! a dial: it reports both families together, does not notice that a server is down, and leaves
//! tasks in the event loop of the first caller.
//!
//! # Protection against forged answers
//!
//! | Measure | Holds | By |
//! |---|---|---|
//! | random ID, all 16 bits (RFC 5452 section 9.2) | yes, a new one for each packet | hickory: ChaCha, seeded by the system |
//! | random source port, 1024 to 65535 (section 9.2) | yes, a new socket for each packet | hickory; the kernel's choice after 10 ports in use |
//! | answer from the server's address and port (section 9.1) | yes | the kernel: the socket is connected |
//! | answer to the question asked: name, type, class (section 9.1) | yes | hickory; here for TCP |
//! | letters in random case (draft-vixie-dnsext-dns0x20) | yes, over UDP | hickory |
//! | one question outstanding per name and type (section 5) | yes, but see below | the flights here |
//! | not many tries to guess an ID (section 9.3) | yes: the third wrong ID ends it, TCP goes on | the socket here |
//! | records of the name asked for alone, by its aliases (section 6) | yes | `exchange` here |
//! | cookies (RFC 7873), DNSSEC (RFC 4033) | no | |
//!
//! An unanswered question is sent again, from another port and with another ID, while the earlier
//! sockets stay open: up to five with the default time-outs and one server. Each is a separate
//! target with its own ID, so a blind guess succeeds at most five times as likely as with one.
//!
//! An answer with the right ID to another question is ignored, however many come: its sender knows
//! the ID already, and the question is no secret.
//!
//! A server that does not preserve the case of letters is asked over TCP, which cannot be forged
//! blindly, and remembered for ten minutes. It is asked without random case only if it does not
//! answer over TCP either: a forger who wants that must guess ID and port once, and then again.

mod cache;
mod dns;
mod exchange;
mod files;
mod servers;
mod system;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lastbyte_core::race::Question;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::host::{BadHost, Host};
pub use files::ResolvConf;

/// Resolves names. Cheap to clone: clones share their cache.
///
/// A separate thread does DNS. It starts with the first question and ends with the last clone, so
/// resolving needs no event loop, and none has to go on after a dial. It uses the network namespace
/// of the thread that asked first.
#[derive(Clone, Debug)]
pub struct Resolver(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Dns(Arc<dns::Client>),
    System(system::Calls),
}

impl Resolver {
    /// A DNS client that follows `/etc/resolv.conf` and `/etc/hosts`. Without the first it asks a
    /// server on this host; without the second it acts as if that were empty. When one of them
    /// changes, it reads it again within a second and empties the cache.
    ///
    /// # Errors
    /// When one of these files cannot be read or is invalid.
    pub fn dns() -> Result<Self, ResolverError> {
        Self::dns_at("/etc/resolv.conf", "/etc/hosts")
    }

    /// As [`Resolver::dns`], with other files.
    ///
    /// # Errors
    /// As [`Resolver::dns`].
    pub fn dns_at(
        resolv_conf: impl Into<PathBuf>,
        hosts: impl Into<PathBuf>,
    ) -> Result<Self, ResolverError> {
        let client = dns::Client::of_files(resolv_conf.into(), hosts.into())?;
        Ok(Self(Kind::Dns(Arc::new(client))))
    }

    /// As [`Resolver::dns`], with the texts of these files: see [`ResolvConf::parse`].
    ///
    /// # Errors
    /// When the first makes no sense.
    pub fn dns_from(resolv_conf: &str, hosts: &str) -> Result<Self, ResolverError> {
        Ok(Self::dns_with(ResolvConf::parse(resolv_conf)?, hosts))
    }

    /// As [`Resolver::dns`], with this configuration, and the text of a hosts file (`hosts(5)`).
    #[must_use]
    pub fn dns_with(configuration: ResolvConf, hosts: &str) -> Self {
        Self(Kind::Dns(Arc::new(dns::Client::fixed(configuration, hosts))))
    }

    /// The system's resolver (`getaddrinfo(3)`, in a thread per question), for names that only
    /// `nsswitch.conf` leads to. A running call cannot be cancelled: at most 32 run at once for
    /// this resolver and its clones, the others wait. They delay neither a dial's deadline nor the
    /// end of the program.
    #[must_use]
    pub fn system() -> Self {
        Self(Kind::System(system::Calls::default()))
    }

    /// Asks all questions at once. An address resolves to itself.
    #[must_use]
    pub fn ask(&self, name: &str, questions: &[Question]) -> Answers {
        let (sender, receiver) = unbounded_channel();
        let answers = Answers {
            receiver,
            name: name.to_owned(),
            open: questions.to_vec(),
            _resolver: self.clone(),
        };
        let asked = Asked { name: name.to_owned(), questions: questions.to_vec(), sender };
        match Host::parse(name, 0) {
            Err(bad) => asked.refuse(&QueryError::BadHost(bad)),
            Ok(Host::Literal(address)) => asked.tell(&[address], Origin::Literal),
            Ok(Host::Name(name)) => match &self.0 {
                Kind::Dns(client) => client.ask(&name, asked),
                Kind::System(calls) => calls.ask(&name, &asked),
            },
        }
        answers
    }

    /// Whether the name is resolved on this host or its links: it is an address, is in
    /// `/etc/hosts`, or means this host (`localhost`, RFC 6761). For the system's resolver only the
    /// last is known, and that it may ask the links for names in `local` (RFC 6762).
    #[must_use]
    pub fn is_local(&self, name: &str) -> bool {
        match (Host::parse(name, 0), &self.0) {
            (Err(_), _) => false,
            (Ok(Host::Literal(_)), _) => true,
            (Ok(Host::Name(name)), Kind::Dns(client)) => client.is_local(&name),
            (Ok(Host::Name(name)), Kind::System(_)) => {
                files::is_localhost(&name) || files::is_of_links(&name)
            }
        }
    }
}

/// A request for addresses, and where its answers go.
#[derive(Debug)]
struct Asked {
    /// The name as it was given.
    name: String,
    questions: Vec<Question>,
    sender: UnboundedSender<Answer>,
}

impl Asked {
    /// Answers all questions from these addresses of both families.
    fn tell(&self, addresses: &[SocketAddr], origin: Origin) {
        for question in &self.questions {
            let addresses: Vec<SocketAddr> =
                addresses.iter().filter(|of| is_of(of, *question)).copied().collect();
            let found = if addresses.is_empty() {
                Err(QueryError::NoAddresses { server: None })
            } else {
                Ok(Found::new(addresses, origin))
            };
            self.send(*question, &self.name, found);
        }
    }

    fn refuse(&self, error: &QueryError) {
        for question in &self.questions {
            self.send(*question, &self.name, Err(error.clone()));
        }
    }

    fn send(&self, question: Question, name: &str, found: Result<Found, QueryError>) {
        let name = name.strip_suffix('.').unwrap_or(name).to_owned();
        // The receiver may be gone.
        let _ = self.sender.send(Answer { question, name, found });
    }
}

fn is_of(address: &SocketAddr, question: Question) -> bool {
    match question {
        Question::A => address.is_ipv4(),
        Question::Aaaa => address.is_ipv6(),
        _ => false,
    }
}

/// The answers of a request, as they arrive. If it is dropped, the questions go on for at most a
/// second, so that the next dial finds their answers in the cache (RFC 8305 section 3).
#[derive(Debug)]
pub struct Answers {
    receiver: UnboundedReceiver<Answer>,
    name: String,
    open: Vec<Question>,
    _resolver: Resolver,
}

impl Answers {
    /// The next answer; `None` once all questions are answered.
    pub async fn next(&mut self) -> Option<Answer> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next answer; `None` once all questions are answered.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        if self.open.is_empty() {
            return Poll::Ready(None);
        }
        self.receiver.poll_recv(cx).map(|answer| match answer {
            Some(answer) => {
                self.open.retain(|question| *question != answer.question);
                Some(answer)
            }
            // The resolver's thread is gone: no descriptor or thread was left.
            None => self.open.pop().map(|question| {
                let text = "the resolver could not go on".to_owned();
                let found = Err(QueryError::System { text });
                Answer { question, name: self.name.clone(), found }
            }),
        })
    }
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// The name that was resolved in the end, with the domain of the search list.
    pub name: String,
    /// The addresses, or why there are none.
    pub found: Result<Found, QueryError>,
}

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The addresses, in the order of the answer; IPv6 with its scope if known. Their ports are 0.
    pub addresses: Vec<SocketAddr>,
    /// Where they come from.
    pub origin: Origin,
    /// The aliases that led to them (CNAME), in order.
    pub aliases: Vec<String>,
    /// How long they may be cached, if known.
    pub ttl: Option<Duration>,
    /// The DNS server that answered.
    pub server: Option<SocketAddr>,
    /// Whether they come from the cache.
    pub cached: bool,
}

impl Found {
    fn new(addresses: Vec<SocketAddr>, origin: Origin) -> Self {
        Self { addresses, origin, aliases: Vec::new(), ttl: None, server: None, cached: false }
    }
}

/// Where addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The name is an address.
    Literal,
    /// `/etc/hosts`, or a name that means this host (RFC 6761).
    Hosts,
    /// A DNS server, or the cache of its answers.
    Dns,
    /// The system's resolver.
    System,
}

/// Why there are no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The name does not exist (NXDOMAIN).
    #[error("no such name (NXDOMAIN){}", said(server.as_ref()))]
    NoSuchName {
        /// The server that answered; `None` for a reserved name (RFC 6761, RFC 7686).
        server: Option<SocketAddr>,
    },
    /// The name has no addresses of this family (NODATA).
    #[error("no address of this family{}", said(server.as_ref()))]
    NoAddresses {
        /// The DNS server that answered, if one did.
        server: Option<SocketAddr>,
    },
    /// The server failed to resolve it (SERVFAIL).
    #[error("server failure (SERVFAIL), said {server}")]
    ServerFailure {
        /// The server.
        server: SocketAddr,
    },
    /// The server refuses to answer us (REFUSED).
    #[error("refused (REFUSED), said {server}")]
    Refused {
        /// Which one.
        server: SocketAddr,
    },
    /// Another response code.
    #[error("response code {code}, said {server}")]
    Response {
        /// Its name, or number.
        code: String,
        /// Who sent it.
        server: SocketAddr,
    },
    /// No server answered in time.
    #[error("no answer from {} within {after:?}", listed(servers))]
    TimedOut {
        /// The servers that were asked.
        servers: Vec<SocketAddr>,
        /// How long the resolver waited for them.
        after: Duration,
    },
    /// No server could be reached.
    #[error("no DNS server at {}: {problem}", listed(servers))]
    Unreachable {
        /// Who was asked.
        servers: Vec<SocketAddr>,
        /// What the kernel said of the last one.
        problem: String,
    },
    /// The answer makes no sense.
    #[error("unusable answer from {server}: {problem}")]
    Malformed {
        /// Whose.
        server: SocketAddr,
        /// What is wrong with it.
        problem: String,
    },
    /// The name's aliases lead back to one of them, or are too many.
    #[error("its aliases (CNAME) go round in a circle, or are more than {}", .aliases.len())]
    AliasLoop {
        /// The aliases so far.
        aliases: Vec<String>,
    },
    /// The system's resolver knows no such name, or no address of this family that it has
    /// (`EAI_NONAME`).
    #[error("{text}")]
    NotKnown {
        /// What it says (`gai_strerror(3)`).
        text: String,
    },
    /// The system's resolver has none, or there are no means to ask anybody.
    #[error("{text}")]
    System {
        /// What it says (`gai_strerror(3)`).
        text: String,
    },
    /// Too many questions wait for the system's resolver.
    #[error("{waiting} questions wait for the system's resolver already")]
    TooMany {
        /// How many.
        waiting: usize,
    },
    /// The name is none.
    #[error("{0}")]
    BadHost(#[from] BadHost),
    /// Nobody is asked this question yet.
    #[error("this question is not asked yet")]
    Unsupported,
}

fn said(server: Option<&SocketAddr>) -> String {
    server.map(|server| format!(", said {server}")).unwrap_or_default()
}

fn listed(servers: &[SocketAddr]) -> impl fmt::Display {
    servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Why there is no resolver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolverError {
    /// A file of the system's configuration.
    #[error("{file}: {problem}")]
    Configuration {
        /// Its path.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
}
