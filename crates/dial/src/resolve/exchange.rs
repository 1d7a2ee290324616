//! Asks one server one question, and interprets its answer.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hickory_net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use hickory_net::tcp::TcpClientStream;
use hickory_net::udp::UdpClientStream;
use hickory_net::xfer::{DnsHandle, DnsRequestSender, FirstAnswer};
use hickory_net::{NetError, udp};
use hickory_proto::op::{DnsRequest, DnsRequestOptions, Message, MessageType, OpCode};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// After this many wrong IDs from the server's address and port, UDP is no longer trusted. Each
/// socket asks one question, so none of these is a late answer to an earlier one. Two may come from
/// a broken server. PowerDNS stops at the first.
const MOST_NEAR_MISSES: u32 = 3;
/// The most aliases of a name, as BIND follows (`max-query-restarts`).
const MOST_ALIASES: usize = 11;

/// How to ask a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Over TCP.
    pub(super) tcp: bool,
    /// With letters in random case; over UDP only.
    pub(super) random_case: bool,
    /// With EDNS (RFC 6891), so that large answers come over UDP.
    pub(super) edns: bool,
}

/// Why there is no answer from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No answer came in time.
    Silent,
    /// The kernel reports that the server is unreachable.
    Unreachable(String),
    /// The answer is invalid.
    Malformed(String),
    /// Too many answers with wrong IDs: a forger may be guessing.
    Guessed,
    /// The answer does not preserve the case of the letters.
    Case,
    /// A response code that is not an answer.
    Code(ResponseCode),
}

impl From<NetError> for Fault {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Timeout => Self::Silent,
            NetError::QueryCaseMismatch => Self::Case,
            NetError::Io(error)
                if error.get_ref().is_some_and(|inner| inner.is::<NearMisses>()) =>
            {
                Self::Guessed
            }
            NetError::Io(error) => Self::Unreachable(error.to_string()),
            error => Self::Malformed(error.to_string()),
        }
    }
}

/// Asks, and waits at most for this time. The result answers this question, with whatever content.
pub(super) async fn exchange(
    server: SocketAddr,
    query: &Query,
    way: Way,
    patience: Duration,
) -> Result<Message, Fault> {
    let mut options = DnsRequestOptions::default();
    options.use_edns = way.edns;
    options.case_randomization = way.random_case && !way.tcp;
    let request = DnsRequest::from_query(query.clone(), options);
    let response = if way.tcp {
        timeout(patience, over_tcp(server, request, patience)).await
    } else {
        timeout(patience, over_udp(server, request, patience)).await
    };
    let message = response.map_err(|_| Fault::Silent)??;
    let is_answer = message.metadata.message_type == MessageType::Response
        && message.metadata.op_code == OpCode::Query
        && message.queries.len() == 1
        && message.queries.first() == Some(query);
    if is_answer { Ok(message) } else { Err(Fault::Malformed("to another question".to_owned())) }
}

async fn over_udp(
    server: SocketAddr,
    request: DnsRequest,
    patience: Duration,
) -> Result<Message, NetError> {
    let builder = UdpClientStream::builder(server, Connecting);
    // The caller decides whether to send again, and to which server.
    let mut stream = builder.with_timeout(Some(patience)).with_max_retries(1).build();
    let response = stream.send_message(request).first_answer().await?;
    Ok(response.into_message())
}

async fn over_tcp(
    server: SocketAddr,
    request: DnsRequest,
    patience: Duration,
) -> Result<Message, NetError> {
    // It owns the task of the connection: both end with this call.
    let provider = TokioRuntimeProvider::new();
    let connect = TcpClientStream::exchange(server, None, patience, None, provider.clone());
    let response = connect.await?.send(request).first_answer().await?;
    Ok(response.into_message())
}

/// Opens UDP sockets connected to one server.
#[derive(Clone)]
struct Connecting;

impl RuntimeProvider for Connecting {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = ServerSocket;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> TokioHandle {
        TokioHandle::default()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        from: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        TokioRuntimeProvider::new().connect_tcp(server, from, patience)
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<ServerSocket>>>> {
        Box::pin(async move {
            let socket = UdpSocket::bind(local).await?;
            // Then the kernel drops packets from other addresses, and reports an unreachable
            // server.
            socket.connect(server).await?;
            let socket = Arc::new(socket);
            let watched = Arc::clone(&socket);
            let failing = async move { watched.ready(Interest::ERROR).await.is_ok() };
            Ok(ServerSocket {
                socket,
                server,
                id: AtomicU32::new(0),
                misses: AtomicU32::new(0),
                failing: Mutex::new(Some(failing.boxed())),
            })
        })
    }
}

/// A connected socket that asks one question.
struct ServerSocket {
    socket: Arc<UdpSocket>,
    server: SocketAddr,
    /// The ID of our question.
    id: AtomicU32,
    misses: AtomicU32,
    /// Completes when the socket has an error, for which tokio's read does not wake up.
    failing: Mutex<Option<BoxFuture<'static, bool>>>,
}

impl ServerSocket {
    /// The kernel's report of an unreachable server (ICMP), once.
    fn poll_error(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = failing.as_mut()
            && waiting.poll_unpin(cx).is_ready()
        {
            *failing = None;
            if let Ok(Some(error)) = self.socket.take_error() {
                return Poll::Ready(error);
            }
        }
        Poll::Pending
    }
}

/// Answers with wrong IDs come from the server's address and port.
#[derive(Debug, thiserror::Error)]
#[error("answers with {MOST_NEAR_MISSES} wrong IDs")]
struct NearMisses;

impl DnsUdpSocket for ServerSocket {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        loop {
            let mut read = ReadBuf::new(buffer);
            if self.socket.poll_recv(cx, &mut read)?.is_pending() {
                return self.poll_error(cx).map(Err);
            }
            let length = read.filled().len();
            if length >= HEADER && id_of(buffer) == self.id.load(Ordering::Relaxed) {
                return Poll::Ready(Ok((length, self.server)));
            }
            if self.misses.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_NEAR_MISSES {
                return Poll::Ready(Err(io::Error::other(NearMisses)));
            }
        }
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        message: &[u8],
        _server: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.id.store(id_of(message), Ordering::Relaxed);
        self.socket.poll_send(cx, message)
    }
}

/// Bytes of a message's header (RFC 1035 section 4.1.1).
const HEADER: usize = 12;
const _: () = assert!(udp::MAX_RECEIVE_BUFFER_SIZE > HEADER);

fn id_of(message: &[u8]) -> u32 {
    message.first_chunk().map_or(u32::MAX, |id| u32::from(u16::from_be_bytes(*id)))
}

/// The meaning of an answer to a question for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// These addresses, with their time to live in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// The name is an alias of another one, for which there are no records; with its time to live
    /// in seconds.
    Elsewhere(u32),
    /// There is no such name; with the time to live in seconds, if given.
    NoSuchName(Option<u32>),
    /// There are no addresses of this family.
    NoAddresses(Option<u32>),
    /// The aliases form a loop, or are too many.
    Loop,
}

/// Reads an answer about the last name of `chain`, and appends the targets of its aliases. It uses
/// only records of these names in the answer section, since the question did not ask for others.
///
/// # Errors
/// [`Fault::Code`] for a response code that is not an answer.
pub(super) fn read(
    message: &Message,
    chain: &mut Vec<Name>,
    wanted: RecordType,
) -> Result<Meaning, Fault> {
    let code = message.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Err(Fault::Code(code));
    }
    let (mut ttl, length) = (u32::MAX, chain.len());
    while let Some(name) = chain.last() {
        let own: Vec<_> = message.answers.iter().filter(|record| record.name == *name).collect();
        let mut addresses = Vec::new();
        let mut alias = None;
        for record in own.iter().filter(|record| record.dns_class == DNSClass::IN) {
            match &record.data {
                data if data.record_type() == wanted => addresses.extend(data.ip_addr()),
                RData::CNAME(target) => alias = alias.or(Some(target)),
                _ => continue,
            }
            ttl = ttl.min(record.ttl);
        }
        if !addresses.is_empty() {
            return Ok(Meaning::Addresses(addresses, ttl));
        }
        let Some(alias) = alias else { break };
        if chain.contains(&alias.0) || chain.len() > MOST_ALIASES {
            return Ok(Meaning::Loop);
        }
        chain.push(alias.0.clone());
    }
    let keep = missing_for(message, chain.last(), ttl);
    Ok(match code {
        ResponseCode::NXDomain => Meaning::NoSuchName(keep),
        _ if chain.len() > length && keep.is_none() => Meaning::Elsewhere(ttl),
        _ => Meaning::NoAddresses(keep),
    })
}

/// How long to cache a missing name (RFC 2308 section 5), from the SOA record of its zone.
fn missing_for(message: &Message, name: Option<&Name>, ttl: u32) -> Option<u32> {
    message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(soa) if record.name.zone_of(name?) => Some(ttl.min(record.ttl).min(soa.minimum)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Names that are aliases of each other now and then, on the wire.
    const NAMES: [&[u8]; 5] =
        [b"\x01a\x04test\0", b"\x01A\x04tEsT\0", b"\x01b\x04test\0", b"\x03\x1b.\xff\0", b"\0"];
    const A: u16 = 1;
    const CNAME: u16 = 5;
    const SOA: u16 = 6;
    const AAAA: u16 = 28;

    /// A record as it is sent: its name, type, class and time to live, and data that fit its type.
    #[derive(Clone, Debug)]
    struct Sent {
        name: usize,
        kind: u16,
        class: u16,
        ttl: u32,
        target: usize,
        address: [u8; 16],
    }

    impl Sent {
        fn write(&self, to: &mut Vec<u8>) {
            let data = match self.kind {
                A => self.address[..4].to_vec(),
                AAAA => self.address.to_vec(),
                CNAME => NAMES[self.target].to_vec(),
                SOA => [NAMES[self.target], NAMES[0], &[0, 0, 0, 9].repeat(5)].concat(),
                _ => self.address[..3].to_vec(),
            };
            to.extend_from_slice(NAMES[self.name]);
            to.extend_from_slice(&self.kind.to_be_bytes());
            to.extend_from_slice(&self.class.to_be_bytes());
            to.extend_from_slice(&self.ttl.to_be_bytes());
            to.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
            to.extend_from_slice(&data);
        }
    }

    fn sent() -> impl Strategy<Value = Sent> {
        let kind = prop_oneof![Just(A), Just(CNAME), Just(AAAA), Just(SOA), any::<u16>()];
        let class = prop_oneof![9 => Just(1_u16), 1 => any::<u16>()];
        let (name, target) = (0..NAMES.len(), 0..NAMES.len());
        (name, kind, class, any::<u32>(), target, any::<[u8; 16]>()).prop_map(
            |(name, kind, class, ttl, target, address)| Sent {
                name,
                kind,
                class,
                ttl,
                target,
                address,
            },
        )
    }

    fn message(code: u8, answers: &[Sent], authorities: &[Sent]) -> Vec<u8> {
        let mut bytes = vec![0, 7, 0x81, 0x80 | code, 0, 1, 0];
        bytes.push(u8::try_from(answers.len()).unwrap());
        bytes.extend([0, u8::try_from(authorities.len()).unwrap(), 0, 0]);
        bytes.extend_from_slice(NAMES[0]);
        bytes.extend([0, 1, 0, 1]);
        answers.iter().chain(authorities).for_each(|record| record.write(&mut bytes));
        bytes
    }

    /// Reads what came as an answer about the first name. The law: the names that it leads to are few
    /// and different ones, and the addresses are of the type that was asked for.
    fn law(bytes: &[u8], wanted: RecordType) -> Option<Meaning> {
        let message = Message::from_vec(bytes).ok()?;
        let mut chain = vec![Name::from_ascii("a.test.").unwrap()];
        let meaning = read(&message, &mut chain, wanted).ok()?;
        assert!(chain.len() <= MOST_ALIASES + 1);
        let different: HashSet<&Name> = chain.iter().collect();
        assert_eq!(different.len(), chain.len());
        assert!(chain.iter().all(|name| !name.to_ascii().contains(char::is_control)));
        if let Meaning::Addresses(addresses, _) = &meaning {
            assert!(addresses.iter().all(|ip| ip.is_ipv6() == (wanted == RecordType::AAAA)));
            assert!(!addresses.is_empty());
        }
        Some(meaning)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2048,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_bytes_are_no_panic(bytes in vec(any::<u8>(), 0..600)) {
            law(&bytes, RecordType::A);
        }

        /// What a server could send by the rules is understood; with a few bytes changed it may not be.
        #[test]
        fn any_records_keep_the_law(
            code in prop_oneof![Just(0_u8), Just(3), 0_u8..16],
            answers in vec(sent(), 0..24),
            authorities in vec(sent(), 0..3),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut bytes = message(code, &answers, &authorities);
            law(&bytes, RecordType::A);
            law(&bytes, RecordType::AAAA);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            law(&bytes, RecordType::A);
            bytes.truncate(bytes.len() * 2 / 3);
            law(&bytes, RecordType::AAAA);
        }
    }

    #[test]
    fn an_answer_is_of_the_name_and_of_its_aliases_alone() {
        let record = |name, kind, target, last| {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&[192, 0, 2, last]);
            Sent { name, kind, class: 1, ttl: 60, target, address }
        };
        let found = |answers: &[Sent]| law(&message(0, answers, &[]), RecordType::A);
        let of = |last: u8| Some(Meaning::Addresses(vec![[192, 0, 2, last].into()], 60));
        assert_eq!(found(&[record(2, A, 0, 1), record(1, A, 0, 2)]), of(2));
        assert_eq!(found(&[record(2, A, 0, 1), record(0, CNAME, 2, 0)]), of(1));
        assert_eq!(found(&[record(2, A, 0, 1)]), Some(Meaning::NoAddresses(None)));
        assert_eq!(found(&[record(0, CNAME, 1, 0)]), Some(Meaning::Loop));
        assert_eq!(found(&[record(0, CNAME, 2, 0)]), Some(Meaning::Elsewhere(60)));
    }
}
