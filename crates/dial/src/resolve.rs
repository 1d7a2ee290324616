//! Asks for the addresses of a name.
//!
//! ```text
//!  name -> hosts(5), localhost -> search list -> cache -> flights -> servers -> exchange
//!          files                  dns            cache    dns        servers    exchange
//! ```
//!
//! All questions about a name are asked at once, and each answer is told as it comes. What hickory
//! does here is one exchange with one server, and the messages; which server is asked when, in which
//! order names are searched, and what is kept, is decided here, because a dial must not wait for what
//! it does not need: its pool tells both families together, does not see that a server is down, and
//! leaves tasks in whatever event loop asked first.
//!
//! # What holds against forged answers
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
//! A question that is not answered is sent again, from another port and with another ID, while the
//! sockets before it stay open: up to five at the default time-outs and one server. Each is a target
//! of its own, with its own ID, so that the odds of a blind guess are at most five times those of one.
//!
//! An answer with the right ID about another question is passed over, however many come: who sends it
//! knows the ID already, and the question is no secret.
//!
//! A server that does not keep the case of letters is asked over TCP, where nobody can forge blindly,
//! and remembered for ten minutes. Only if it does not talk TCP either is it asked without random case:
//! to be told so, a forger must have guessed ID and port once, and must then guess both again.

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

/// Whom to ask for addresses. Cheap to clone: clones share their cache.
///
/// DNS is asked by a thread of its own, which begins with the first question and ends with the last
/// clone; so no event loop is needed, and none has to go on after a dial. It asks from the network
/// namespace of the thread that asked first.
#[derive(Clone, Debug)]
pub struct Resolver(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Dns(Arc<dns::Client>),
    System(system::Calls),
}

impl Resolver {
    /// DNS, as `/etc/resolv.conf` and `/etc/hosts` say. Without the first, a server on this host is
    /// asked; without the second, it is as if it were empty. When one of them changes it is read
    /// again, within a second, and the cache is emptied.
    ///
    /// # Errors
    /// When these cannot be read or make no sense.
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

    /// The system's own (`getaddrinfo(3)`, in a thread per question), for what only `nsswitch.conf`
    /// knows. A call that has begun cannot be ended: at most 32 go on at once for this resolver and its
    /// clones, the others wait. They hold up neither a dial's deadline nor the end of a program.
    #[must_use]
    pub fn system() -> Self {
        Self(Kind::System(system::Calls::default()))
    }

    /// Asks all questions at once. An address is answered with itself.
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

    /// Whether the answer for a name is known on this host or its links: it is an address, in
    /// `/etc/hosts`, or stands for the host itself (`localhost`, RFC 6761). Of the system's resolver
    /// only the last is known, and that it may ask its links for names in `local` (RFC 6762).
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

/// What was asked, and where the answers go.
#[derive(Debug)]
struct Asked {
    /// The name as it was given.
    name: String,
    questions: Vec<Question>,
    sender: UnboundedSender<Answer>,
}

impl Asked {
    /// Answers all questions with what is known of both families.
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
        // Nobody may be waiting any more.
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

/// The answers to come, each as it comes. Dropped, the questions go on for a second at most, so that
/// their answers are kept for the next dial (RFC 8305 section 3), and then end.
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
            // Who was to answer is gone: there were no descriptors or threads left.
            None => self.open.pop().map(|question| {
                let text = "the resolver could not go on".to_owned();
                let found = Err(QueryError::System { text });
                Answer { question, name: self.name.clone(), found }
            }),
        })
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
    /// The DNS server that said so.
    pub server: Option<SocketAddr>,
    /// They were known from an answer before.
    pub cached: bool,
}

impl Found {
    fn new(addresses: Vec<SocketAddr>, origin: Origin) -> Self {
        Self { addresses, origin, aliases: Vec::new(), ttl: None, server: None, cached: false }
    }
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
    /// There is no such name (NXDOMAIN).
    #[error("no such name (NXDOMAIN){}", said(server.as_ref()))]
    NoSuchName {
        /// Who said so; nobody has to for a name that is reserved (RFC 6761, RFC 7686).
        server: Option<SocketAddr>,
    },
    /// The name has no addresses of this family (NODATA).
    #[error("no address of this family{}", said(server.as_ref()))]
    NoAddresses {
        /// Who said so, where it was a DNS server.
        server: Option<SocketAddr>,
    },
    /// The server could not find out (SERVFAIL).
    #[error("server failure (SERVFAIL), said {server}")]
    ServerFailure {
        /// Which one.
        server: SocketAddr,
    },
    /// The server does not answer us (REFUSED).
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
        /// Who was asked.
        servers: Vec<SocketAddr>,
        /// How long it was waited for them.
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

/// Why there is nobody to ask.
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
