//! A DNS server of the tests' own: scripted, over UDP and TCP on one port, with its own timer.
//!
//! It knows nothing of the resolver under test: it writes and reads the wire format (RFC 1035
//! section 4) itself. A [`Zone`] says what is answered; [`DnsServer::queries`] what was asked.
//!
//! ```ignore
//! let zone = Zone::new().a("www.test", ["192.0.2.1"]).reply("www.test", Type::Aaaa, Reply::never());
//! let server = DnsServer::start(zone);
//! let resolver = Resolver::dns_from(&server.resolv_conf(), "").unwrap();
//! ```

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// A type of question (RFC 1035 section 3.2.2, RFC 3596).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(crate) enum Type {
    A = 1,
    Aaaa = 28,
}

/// `RCODE` (RFC 1035 section 4.1.1).
pub(crate) const FORMERR: u8 = 1;
pub(crate) const SERVFAIL: u8 = 2;
pub(crate) const NXDOMAIN: u8 = 3;
pub(crate) const NOTIMP: u8 = 4;
pub(crate) const REFUSED: u8 = 5;

/// The addresses that forged answers name.
pub(crate) const FORGED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);

/// What is answered: by name, whatever its case, and type. What is not there is NXDOMAIN, or, where
/// the name has another type, NODATA.
#[derive(Clone, Default)]
pub(crate) struct Zone {
    replies: HashMap<(String, Type), Reply>,
    otherwise: Option<Reply>,
    tcp: Tcp,
    needs_no_edns: bool,
}

/// How the server is over TCP.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Tcp {
    /// As over UDP, without truncation and forgery.
    #[default]
    Answers,
    /// Nobody listens.
    Absent,
}

impl Zone {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// IPv4 addresses of a name.
    #[must_use]
    pub(crate) fn a<const N: usize>(self, name: &str, addresses: [&str; N]) -> Self {
        self.reply(name, Type::A, Reply::addresses(addresses))
    }

    /// IPv6 addresses of a name.
    #[must_use]
    pub(crate) fn aaaa<const N: usize>(self, name: &str, addresses: [&str; N]) -> Self {
        self.reply(name, Type::Aaaa, Reply::addresses(addresses))
    }

    /// Any reply to a question.
    #[must_use]
    pub(crate) fn reply(mut self, name: &str, kind: Type, reply: Reply) -> Self {
        self.replies.insert((name.to_ascii_lowercase(), kind), reply);
        self
    }

    /// The same reply to both questions about a name.
    #[must_use]
    pub(crate) fn both(self, name: &str, reply: Reply) -> Self {
        self.reply(name, Type::A, reply.clone()).reply(name, Type::Aaaa, reply)
    }

    /// The reply to all that is not there.
    #[must_use]
    pub(crate) fn otherwise(mut self, reply: Reply) -> Self {
        self.otherwise = Some(reply);
        self
    }

    /// Nobody listens on the TCP port.
    #[must_use]
    pub(crate) fn without_tcp(mut self) -> Self {
        self.tcp = Tcp::Absent;
        self
    }

    /// Queries with EDNS are answered FORMERR, as servers from before RFC 2671 do.
    #[must_use]
    pub(crate) fn without_edns(mut self) -> Self {
        self.needs_no_edns = true;
        self
    }

    fn find(&self, name: &str, kind: u16) -> Reply {
        let name = name.to_ascii_lowercase();
        let of = |kind| self.replies.get(&(name.clone(), kind));
        let (asked, other) = match kind {
            1 => (of(Type::A), of(Type::Aaaa)),
            28 => (of(Type::Aaaa), of(Type::A)),
            _ => (None, None),
        };
        match (asked, &self.otherwise, other) {
            (Some(reply), ..) | (None, Some(reply), _) => reply.clone(),
            (None, None, Some(_)) => Reply::no_data(),
            (None, None, None) => Reply::no_such_name(),
        }
    }
}

/// What the server does about one question.
#[derive(Clone)]
pub(crate) struct Reply {
    /// How long it takes.
    delay: Duration,
    code: u8,
    /// Names that the one asked for is an alias of, in their order.
    aliases: Vec<String>,
    /// The addresses of the last name.
    addresses: Vec<IpAddr>,
    /// The time to live of all records, in seconds.
    ttl: u32,
    /// Whether a negative answer has an SOA record, as from a server that knows the zone.
    has_soa: bool,
    /// Records that answer no question: of another name among the answers, of the name asked for
    /// behind them. Both are [`FORGED`].
    has_extra: bool,
    manner: Manner,
    /// Sent over UDP before the true answer, in this order.
    forged: Vec<Forgery>,
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Plain,
    /// Not at all, by UDP or TCP.
    Never,
    /// Over UDP without records and with TC.
    Truncated,
    /// Over UDP with the question in lower case.
    LowerCase,
    /// Bytes that are no message, behind the right ID.
    Garbage,
    /// Twice over UDP.
    Twice,
    /// The forged ones alone.
    ForgedAlone,
}

/// A forged answer, from the server's own address and port unless it says otherwise, with
/// [`FORGED`] in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgery {
    /// So many, whose IDs are the true one's neighbours.
    WrongIds(u16),
    /// From another port.
    WrongPort,
    /// From this other address, which the server's host must have.
    WrongAddress(IpAddr),
    /// About another name.
    WrongName,
    /// About another type.
    WrongType,
    /// With two questions.
    TwoQuestions,
    /// Without a question.
    NoQuestion,
    /// With the case of each letter turned.
    WrongCase,
    /// With no QR bit: a query.
    Query,
    /// Shorter than a header.
    Short,
}

impl Reply {
    fn plain(code: u8) -> Self {
        Self {
            delay: Duration::ZERO,
            code,
            aliases: Vec::new(),
            addresses: Vec::new(),
            ttl: 60,
            has_soa: true,
            has_extra: false,
            manner: Manner::Plain,
            forged: Vec::new(),
        }
    }

    pub(crate) fn addresses<const N: usize>(addresses: [&str; N]) -> Self {
        let addresses = addresses.map(|address| address.parse().unwrap()).to_vec();
        Self { addresses, ..Self::plain(0) }
    }

    /// An alias of an alias of an alias, and then what `self` has.
    #[must_use]
    pub(crate) fn by_way_of<const N: usize>(self, aliases: [&str; N]) -> Self {
        Self { aliases: aliases.map(str::to_owned).to_vec(), ..self }
    }

    /// Nothing but these aliases.
    pub(crate) fn aliases<const N: usize>(aliases: [&str; N]) -> Self {
        Self { has_soa: false, ..Self::plain(0) }.by_way_of(aliases)
    }

    pub(crate) fn no_data() -> Self {
        Self::plain(0)
    }

    pub(crate) fn no_such_name() -> Self {
        Self::plain(NXDOMAIN)
    }

    /// Any response code.
    pub(crate) fn code(code: u8) -> Self {
        Self { has_soa: false, ..Self::plain(code) }
    }

    pub(crate) fn never() -> Self {
        Self { manner: Manner::Never, ..Self::plain(0) }
    }

    pub(crate) fn garbage() -> Self {
        Self { manner: Manner::Garbage, ..Self::plain(0) }
    }

    #[must_use]
    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    #[must_use]
    pub(crate) fn ttl(self, ttl: u32) -> Self {
        Self { ttl, ..self }
    }

    #[must_use]
    pub(crate) fn without_soa(self) -> Self {
        Self { has_soa: false, ..self }
    }

    #[must_use]
    pub(crate) fn truncated(self) -> Self {
        Self { manner: Manner::Truncated, ..self }
    }

    #[must_use]
    pub(crate) fn lower_case(self) -> Self {
        Self { manner: Manner::LowerCase, ..self }
    }

    #[must_use]
    pub(crate) fn twice(self) -> Self {
        Self { manner: Manner::Twice, ..self }
    }

    /// With forged records of other names and in other sections.
    #[must_use]
    pub(crate) fn with_extra(self) -> Self {
        Self { has_extra: true, ..self }
    }

    /// These first.
    #[must_use]
    pub(crate) fn forged<const N: usize>(self, forged: [Forgery; N]) -> Self {
        Self { forged: forged.to_vec(), ..self }
    }

    /// The forged ones alone, over UDP.
    #[must_use]
    pub(crate) fn forged_alone(self) -> Self {
        Self { manner: Manner::ForgedAlone, ..self }
    }
}

/// A query as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// The name, in the case that it came in, without a final dot.
    pub(crate) name: String,
    /// The type's number.
    pub(crate) kind: u16,
    /// The ID.
    pub(crate) id: u16,
    /// Who asked.
    pub(crate) from: SocketAddr,
    /// Not over UDP.
    pub(crate) tcp: bool,
    /// With an OPT record (RFC 6891).
    pub(crate) edns: bool,
    /// When it came.
    pub(crate) at: Instant,
}

/// A running server. Dropped, it and its sockets are gone.
pub(crate) struct DnsServer {
    address: SocketAddr,
    queries: Arc<Mutex<Vec<Query>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    /// A server on a loopback port that the kernel chooses.
    pub(crate) fn start(zone: Zone) -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), zone)
    }

    /// A server at an address of this thread's network namespace; with port 0 on a port that the
    /// kernel chooses.
    pub(crate) fn start_on(address: SocketAddr, zone: Zone) -> Self {
        // A port that is free for UDP may be taken for TCP.
        let bound = (0..100).find_map(|_| bind(address, zone.tcp).ok());
        let (udp, tcp) = bound.expect("no port is free for both UDP and TCP");
        let address = udp.local_addr().unwrap();
        let queries = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let zone = Arc::new(Service { zone, queries: Arc::clone(&queries) });
        // Here, so that all descriptors are there when this returns.
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let serve = move || {
            runtime.block_on(async {
                let udp = Arc::new(UdpSocket::from_std(udp).unwrap());
                if let Some(tcp) = tcp {
                    let tcp = TcpListener::from_std(tcp).unwrap();
                    tokio::spawn(Arc::clone(&zone).serve_tcp(tcp));
                }
                tokio::spawn(zone.serve_udp(udp));
                let _ = stopped.await;
            });
        };
        let thread = thread::Builder::new().name("dns-server".to_owned()).spawn(serve).unwrap();
        Self { address, queries, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A configuration that names this server alone, and waits a second for it.
    pub(crate) fn resolv_conf(&self) -> String {
        format!("nameserver {}\noptions timeout:1 attempts:1\n", self.address)
    }

    /// What was asked so far.
    pub(crate) fn queries(&self) -> Vec<Query> {
        self.queries.lock().unwrap().clone()
    }

    /// How many queries there were about a name.
    pub(crate) fn count(&self, name: &str) -> usize {
        let queries = self.queries.lock().unwrap();
        queries.iter().filter(|query| query.name.eq_ignore_ascii_case(name)).count()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind(
    address: SocketAddr,
    tcp: Tcp,
) -> io::Result<(std::net::UdpSocket, Option<std::net::TcpListener>)> {
    let udp = std::net::UdpSocket::bind(address)?;
    udp.set_nonblocking(true)?;
    let tcp = match tcp {
        Tcp::Absent => None,
        Tcp::Answers => {
            let tcp = std::net::TcpListener::bind(udp.local_addr()?)?;
            tcp.set_nonblocking(true)?;
            Some(tcp)
        }
    };
    Ok((udp, tcp))
}

struct Service {
    zone: Zone,
    queries: Arc<Mutex<Vec<Query>>>,
}

impl Service {
    async fn serve_udp(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = [0; 4096];
        loop {
            // An ICMP error of an answer to a socket that is gone.
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
            let Some(asked) = Asked::read(&buffer[..length]) else { continue };
            let reply = self.enter(&asked, from, false);
            tokio::spawn(answer_udp(Arc::clone(&socket), asked, reply, from));
        }
    }

    async fn serve_tcp(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, from)) = listener.accept().await {
            tokio::spawn(Arc::clone(&self).serve_connection(stream, from));
        }
    }

    async fn serve_connection(self: Arc<Self>, mut stream: TcpStream, from: SocketAddr) {
        let mut buffer = [0; 4096];
        while let Ok(length) = stream.read_u16().await {
            let message = &mut buffer[..usize::from(length).min(4096)];
            if stream.read_exact(message).await.is_err() {
                return;
            }
            let Some(asked) = Asked::read(message) else { return };
            let reply = self.enter(&asked, from, true);
            pause(reply.delay).await;
            let message = match reply.manner {
                Manner::Never => continue,
                Manner::Garbage => garbage(&asked),
                _ => asked.answer(&reply),
            };
            let mut framed = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
            framed.extend(message);
            if stream.write_all(&framed).await.is_err() {
                return;
            }
        }
    }

    fn enter(&self, asked: &Asked, from: SocketAddr, tcp: bool) -> Reply {
        self.queries.lock().unwrap().push(Query {
            name: asked.name.clone(),
            kind: asked.kind,
            id: asked.id,
            from,
            tcp,
            edns: asked.edns,
            at: Instant::now(),
        });
        if asked.edns && self.zone.needs_no_edns {
            return Reply::code(FORMERR);
        }
        self.zone.find(&asked.name, asked.kind)
    }
}

async fn answer_udp(socket: Arc<UdpSocket>, asked: Asked, reply: Reply, to: SocketAddr) {
    for forgery in &reply.forged {
        forge(&socket, &asked, *forgery, to).await;
    }
    pause(reply.delay).await;
    let message = match reply.manner {
        Manner::Never | Manner::ForgedAlone => return,
        Manner::Plain | Manner::Twice => asked.answer(&reply),
        Manner::Truncated => {
            let mut message = asked.answer(&Reply::code(0));
            message[2] |= 0x02;
            message
        }
        Manner::LowerCase => asked.lower_case().answer(&reply),
        Manner::Garbage => garbage(&asked),
    };
    // A client that is gone is no fault of the server's.
    let _ = socket.send_to(&message, to).await;
    if reply.manner == Manner::Twice {
        let _ = socket.send_to(&message, to).await;
    }
}

/// The timer counts whole milliseconds: no delay is none at all.
async fn pause(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn garbage(asked: &Asked) -> Vec<u8> {
    let mut message = asked.id.to_be_bytes().to_vec();
    message.extend([0xff; 40]);
    message
}

async fn forge(socket: &UdpSocket, asked: &Asked, forgery: Forgery, to: SocketAddr) {
    let forged = Reply { addresses: vec![FORGED.into()], ttl: 86_400, ..Reply::plain(0) };
    let forged =
        if asked.kind == 28 { Reply { addresses: vec![v6_forged()], ..forged } } else { forged };
    let mut asked = asked.clone();
    match forgery {
        Forgery::WrongIds(count) => {
            let id = asked.id;
            for distance in 1..=count {
                asked.id = id.wrapping_add(distance);
                let _ = socket.send_to(&asked.answer(&forged), to).await;
            }
            return;
        }
        Forgery::WrongPort => {
            let own = SocketAddr::new(socket.local_addr().unwrap().ip(), 0);
            let other = UdpSocket::bind(own).await.unwrap();
            let _ = other.send_to(&asked.answer(&forged), to).await;
            return;
        }
        Forgery::WrongAddress(address) => {
            let own = SocketAddr::new(address, socket.local_addr().unwrap().port());
            let other = UdpSocket::bind(own).await.unwrap();
            let _ = other.send_to(&asked.answer(&forged), to).await;
            return;
        }
        Forgery::WrongName => {
            asked.question = question("evil.test", asked.kind);
            asked.name = "evil.test".to_owned();
        }
        Forgery::WrongType => {
            asked.kind = if asked.kind == 28 { 1 } else { 28 };
            asked.question = question(&asked.name, asked.kind);
        }
        Forgery::TwoQuestions => {
            asked.questions = 2;
            asked.question.extend(question("evil.test", asked.kind));
        }
        Forgery::NoQuestion => {
            asked.questions = 0;
            asked.question.clear();
        }
        Forgery::WrongCase => {
            let turned = asked
                .name
                .bytes()
                .map(|byte| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte });
            asked.name = String::from_utf8(turned.collect()).unwrap();
            asked.question = question(&asked.name, asked.kind);
        }
        Forgery::Query => {
            let mut message = asked.answer(&forged);
            message[2] &= 0x7f;
            let _ = socket.send_to(&message, to).await;
            return;
        }
        Forgery::Short => {
            let _ = socket.send_to(&asked.id.to_be_bytes(), to).await;
            return;
        }
    }
    let _ = socket.send_to(&asked.answer(&forged), to).await;
}

fn v6_forged() -> IpAddr {
    FORGED.to_ipv6_mapped().into()
}

/// A query, taken apart.
#[derive(Clone)]
struct Asked {
    id: u16,
    name: String,
    kind: u16,
    /// How many questions the answer shall say that there are.
    questions: u16,
    /// The question section as it came.
    question: Vec<u8>,
    edns: bool,
}

impl Asked {
    /// Reads a query with one question; anything else is none.
    fn read(message: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        if word(2)? & 0x8000 != 0 || word(4)? != 1 {
            return None;
        }
        let mut at = 12;
        let mut labels = Vec::new();
        loop {
            let length = usize::from(*message.get(at)?);
            if length == 0 {
                break;
            }
            let label = message.get(at + 1..at + 1 + length)?;
            labels.push(String::from_utf8(label.to_vec()).ok()?);
            at += 1 + length;
        }
        let kind = word(at + 1)?;
        let question = message.get(12..at + 5)?.to_vec();
        let edns = word(10)? > 0;
        Some(Self { id: word(0)?, name: labels.join("."), kind, questions: 1, question, edns })
    }

    fn lower_case(&self) -> Self {
        let name = self.name.to_ascii_lowercase();
        Self { question: question(&name, self.kind), name, ..self.clone() }
    }

    /// The message (RFC 1035 section 4.1), without compression.
    fn answer(&self, reply: &Reply) -> Vec<u8> {
        let mut records = Vec::new();
        let mut owner = self.name.as_str();
        for alias in &reply.aliases {
            push_record(&mut records, owner, 5, reply.ttl, &encode(alias));
            owner = alias;
        }
        for address in &reply.addresses {
            match address {
                IpAddr::V4(v4) => push_record(&mut records, owner, 1, reply.ttl, &v4.octets()),
                IpAddr::V6(v6) => push_record(&mut records, owner, 28, reply.ttl, &v6.octets()),
            }
        }
        let mut answers = reply.aliases.len() + reply.addresses.len();
        if reply.has_extra {
            push_record(&mut records, "evil.test", 1, 86_400, &FORGED.octets());
            answers += 1;
        }
        let has_soa = reply.has_soa && reply.addresses.is_empty();
        if has_soa {
            let mut soa = [encode("ns.test"), encode("root.test")].concat();
            for number in [1, 3600, 600, 86_400, reply.ttl] {
                soa.extend(u32::to_be_bytes(number));
            }
            let zone = owner.rsplit('.').next().unwrap_or_default();
            push_record(&mut records, zone, 6, reply.ttl, &soa);
        }
        if reply.has_extra {
            push_record(&mut records, &self.name, 1, 86_400, &FORGED.octets());
        }
        let mut message = self.id.to_be_bytes().to_vec();
        // QR, RD; RA.
        message.extend([0x81, 0x80 | reply.code]);
        let counts = [
            self.questions,
            u16::try_from(answers).unwrap(),
            u16::from(has_soa),
            u16::from(reply.has_extra),
        ];
        message.extend(counts.into_iter().flat_map(u16::to_be_bytes));
        message.extend(&self.question);
        message.extend(records);
        message
    }
}

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut question = encode(name);
    question.extend(kind.to_be_bytes());
    question.extend(1_u16.to_be_bytes());
    question
}

fn push_record(records: &mut Vec<u8>, owner: &str, kind: u16, ttl: u32, data: &[u8]) {
    records.extend(question(owner, kind));
    records.extend(ttl.to_be_bytes());
    records.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    records.extend(data);
}

fn encode(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label.bytes());
    }
    wire.push(0);
    wire
}
