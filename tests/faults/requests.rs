//! Clients of a proxy that say nonsense: cut, changed and invented requests, in pieces of all sizes. No
//! connection is made that was not asked for, nobody waits for longer than a request may take, and
//! whoever asks properly is served all the while.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_sys::netlink::Interface;
use lastbyte_sys::socket;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use super::streams::{assert_reset, connect, receive};
use crate::support::gate::{Gate, open_descriptors, processor_time};
use crate::support::world::alone;
use crate::support::{LATER, SOON, Scratch, holds_within, wait_for};

/// Threads that send, and what each sends.
const THREADS: u8 = 16;
const EACH: u8 = 40;
/// What a request may take, and a connect.
const TIMES: Duration = Duration::from_millis(500 + 1_000);
/// A busy machine is late.
const SLACK: Duration = Duration::from_secs(8);
/// What is said by whom a proxy connects to.
const GREETING: &[u8] = b"trap";
/// Another one: `LASTBYTE_TEST_SEED`.
const SEED: u64 = 20_261_122;

#[test]
fn nonsense_connects_to_nothing_and_keeps_nobody_waiting() {
    // In a network where no address but loopback is reached: a changed byte may ask for any.
    alone(|_| {
        Interface::named("lo").and_then(Interface::set_up).unwrap();
        storm();
    });
}

fn storm() {
    let seed = std::env::var("LASTBYTE_TEST_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    eprintln!("LASTBYTE_TEST_SEED={seed}");
    let scratch = Scratch::below(Path::new("/run/temporary"));
    let trap = Trap::open();
    let gate = Gate::with_file(&scratch, &scratch.file("gate.toml", FILE));
    let proxies = Proxies { socks5: gate.address("socks5"), http: gate.address("http") };
    assert_served(proxies, trap.address);
    // What looks names up is there from the first name on.
    let unknown = socks5_by_name("no-such-host.example", 1);
    connect(proxies.socks5).write_all(&unknown).unwrap();
    gate.accounts(3);
    let open = || open_descriptors(gate.pid());
    let descriptors = open();
    let used = processor_time(gate.pid());

    let senders: Vec<_> = (1..=THREADS)
        .map(|thread| {
            let mut random = Random(Pcg64Mcg::seed_from_u64(seed.wrapping_add(thread.into())));
            let trap = trap.address;
            thread::spawn(move || {
                // Each has an address of its own: ports are used again.
                let clients = (1..=EACH).map(|client| Ipv4Addr::new(127, 1, thread, client));
                clients.map(|client| random.attempt(client, proxies, trap)).collect::<Vec<_>>()
            })
        })
        .collect();
    while !senders.iter().all(thread::JoinHandle::is_finished) {
        // Meanwhile others are served.
        assert_served(proxies, trap.address);
        thread::sleep(Duration::from_millis(20));
    }
    let attempts: Vec<_> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();

    let longest = attempts.iter().map(|attempt| attempt.took).max().unwrap();
    assert!(longest < TIMES + SLACK, "{longest:?}");
    let is_back = holds_within(SOON, || open() == descriptors);
    assert!(is_back, "{} descriptors, at first {descriptors}", open());
    assert_served(proxies, trap.address);
    let tally = assert_accounts(&gate, &attempts, trap.address);
    eprintln!(
        "{} attempts, the longest {longest:?}, {:?} of processor time: {tally:?}",
        attempts.len(),
        processor_time(gate.pid()) - used
    );
    gate.signal("TERM");
    gate.ends_with(0);
}

const FILE: &str = "
[[route]]
name = 'socks5'
listen = '0'
socks5 = true
request_timeout = '500ms'
connect_timeout = '1s'
settle_timeout = '1s'
[[route]]
name = 'http'
listen = '0'
http_connect = true
request_timeout = '500ms'
connect_timeout = '1s'
settle_timeout = '1s'
";

/// Each attempt has its account. What was connected to stands in what was sent, and where nothing was
/// understood nothing was connected to. Returns how they ended.
#[track_caller]
fn assert_accounts(gate: &Gate, attempts: &[Attempt], trap: SocketAddr) -> HashMap<String, usize> {
    let mut of_client = HashMap::new();
    wait_for("an account of each", LATER, || {
        of_client = HashMap::new();
        for account in gate.accounts(attempts.len()) {
            let client = account["client"]["peer"].as_str().unwrap().parse::<SocketAddr>();
            of_client.insert(client.unwrap().ip(), account);
        }
        attempts.iter().all(|attempt| of_client.contains_key(&attempt.client))
    });
    let mut tally = HashMap::new();
    for attempt in attempts {
        let account = &of_client[&attempt.client];
        let how = account["ended_how"].as_str().unwrap();
        *tally.entry(how.to_owned()).or_default() += 1;
        match account["wanted"].as_str() {
            Some(wanted) => assert!(attempt.asks_for(wanted), "{account}: {attempt:?}"),
            None => assert_eq!(account["upstream"]["peer"], Value::Null, "{account}"),
        }
        if attempt.heard(GREETING) {
            let port = account["wanted"].as_str().unwrap().rsplit(':').next().unwrap();
            assert_eq!(port, trap.port().to_string(), "{account}");
        }
    }
    tally
}

/// Those who ask properly are connected.
#[track_caller]
fn assert_served(proxies: Proxies, trap: SocketAddr) {
    for (proxy, request) in [(proxies.socks5, socks5(trap)), (proxies.http, http(trap))] {
        let mut client = connect(proxy);
        client.write_all(&request).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(GREETING), "{answer:?}");
    }
}

#[derive(Clone, Copy)]
struct Proxies {
    socks5: SocketAddr,
    http: SocketAddr,
}

/// The one listener of this network beside the gate: it greets and closes.
struct Trap {
    address: SocketAddr,
}

impl Trap {
    /// In a network of its own it can be where it was the last time: it stands in what is sent.
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:20173").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let _ = stream.write_all(GREETING);
                    let _ = stream.shutdown(Shutdown::Write);
                    let _ = stream.read_to_end(&mut Vec::new());
                });
            }
        });
        Self { address }
    }
}

// --- what is sent -------------------------------------------------------------------------------

/// What somebody has sent, and what came of it.
#[derive(Debug)]
struct Attempt {
    client: IpAddr,
    sent: Vec<u8>,
    answer: Vec<u8>,
    took: Duration,
}

impl Attempt {
    fn heard(&self, words: &[u8]) -> bool {
        self.answer.ends_with(words)
    }

    /// Whether this destination stands in what was sent: as text, or as bytes of SOCKS.
    fn asks_for(&self, wanted: &str) -> bool {
        let (host, port) = wanted.rsplit_once(':').unwrap();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let number: u16 = port.parse().unwrap();
        let sent = self.sent.to_ascii_lowercase();
        let has = |bytes: &[u8]| {
            let bytes = bytes.to_ascii_lowercase();
            sent.windows(bytes.len()).any(|window| window == bytes)
        };
        let behind = |host: &[u8]| has(&[host, &number.to_be_bytes()].concat());
        // A port is a number: zeros before it say nothing (RFC 3986 section 3.2.3).
        let in_text = |host: &str| {
            (0..4).any(|zeros| has(format!("{host}:{}{port}", "0".repeat(zeros)).as_bytes()))
        };
        let as_address = match host.parse() {
            Ok(IpAddr::V4(ip)) => behind(&ip.octets()),
            Ok(IpAddr::V6(ip)) => {
                behind(&ip.octets()) || in_text(&format!("[{}]", written(ip, &sent)))
            }
            Err(_) => false,
        };
        as_address || behind(host.as_bytes()) || in_text(host)
    }
}

/// An address as it was written there, if it was.
fn written(ip: Ipv6Addr, sent: &[u8]) -> String {
    let text = String::from_utf8_lossy(sent);
    let inside = text.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    let mut same = inside.filter(|text| text.parse() == Ok(ip));
    same.next().unwrap_or_default().to_owned()
}

/// How somebody goes on when all is sent.
#[derive(Clone, Copy, Debug)]
enum Afterwards {
    Waits,
    Ends,
    Resets,
}

struct Random(Pcg64Mcg);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound as u64).unwrap()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.0.next_u64().to_le_bytes());
        words.flatten().take(count).collect()
    }

    /// Sends a request or what is none, in pieces, and listens until the end.
    fn attempt(&mut self, client: Ipv4Addr, proxies: Proxies, trap: SocketAddr) -> Attempt {
        let is_socks = self.below(2) == 0;
        let sent = self.request(is_socks, trap);
        let most = [1, 3, 64, usize::MAX][self.below(4)];
        let is_slow = self.below(3) == 0;
        let afterwards = [Afterwards::Waits, Afterwards::Ends, Afterwards::Resets];
        let afterwards = afterwards[[0, 0, 1, 2][self.below(4)]];
        let began = Instant::now();
        let proxy = if is_socks { proxies.socks5 } else { proxies.http };
        let mut stream = connect_from(client, proxy);
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let length = rest.len().min(1 + self.below(most.min(rest.len())));
            // It may have heard enough.
            if stream.write_all(&rest[..length]).is_err() {
                break;
            }
            rest = &rest[length..];
            if is_slow && sent.len() < 200 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let answer = listen(stream, afterwards);
        Attempt { client: client.into(), sent, answer, took: began.elapsed() }
    }

    fn request(&mut self, is_socks: bool, trap: SocketAddr) -> Vec<u8> {
        let whole = match (is_socks, self.below(3)) {
            (true, 0) => socks5(trap),
            (true, 1) => socks5_by_name("localhost", trap.port()),
            (true, _) => [&[5, 2, 0, 2, 5, 1, 0, 4][..], &[0; 15], &[1], &port(trap)].concat(),
            (false, 0) => http(trap),
            (false, 1) => format!("CONNECT localhost:{} HTTP/1.0\r\n\r\n", trap.port()).into(),
            (false, _) => {
                let head =
                    format!("CONNECT [::1]:{0} HTTP/1.1\r\nHost: [::1]:{0}\r\n", trap.port());
                format!("{head}Proxy-Authorization: Basic dTpw\r\n\r\n").into()
            }
        };
        self.changed(whole)
    }

    fn changed(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self.below(8) {
            0 => bytes.truncate(self.below(bytes.len())),
            1 => {
                for _ in 0..=self.below(4) {
                    let at = self.below(bytes.len());
                    bytes[at] ^= 1 << self.below(8);
                }
            }
            2 => {
                let at = self.below(bytes.len());
                bytes[at] = self.bytes(1)[0];
            }
            3 => {
                let length = 1 + self.below(300);
                bytes = self.bytes(length);
            }
            4 => {
                let (at, length) = (self.below(bytes.len()), self.below(40));
                let more = self.bytes(length);
                bytes.splice(at..at, more);
            }
            5 => drop(bytes.remove(self.below(bytes.len()))),
            6 => {
                // Longer than any request is.
                let at = self.below(bytes.len());
                let more = bytes[..=at].repeat(20_000 / (at + 1));
                bytes.splice(at..at, more);
            }
            // As it was, with something behind it.
            _ => bytes.extend(self.bytes(5)),
        }
        bytes
    }
}

fn connect_from(client: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket::open_tcp(to).unwrap();
    socket::bind_source(&socket, (client, 0).into()).unwrap();
    socket::connect(&socket, to, SOON).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads to the end, whichever that is.
fn listen(mut stream: TcpStream, afterwards: Afterwards) -> Vec<u8> {
    match afterwards {
        Afterwards::Waits => {}
        // It may be over.
        Afterwards::Ends => drop(stream.shutdown(Shutdown::Write)),
        Afterwards::Resets => {
            socket::set_linger(&stream, Some(Duration::ZERO)).unwrap();
            return Vec::new();
        }
    }
    let mut answer = Vec::new();
    let mut room = [0; 1024];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return answer,
            Ok(read) => answer.extend_from_slice(&room[..read]),
            Err(error) => {
                let is_late = error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!is_late, "nobody ended it");
                return answer;
            }
        }
    }
}

fn port(of: SocketAddr) -> [u8; 2] {
    of.port().to_be_bytes()
}

fn socks5(to: SocketAddr) -> Vec<u8> {
    [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port(to)].concat()
}

pub(super) fn socks5_by_name(host: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(host.len()).unwrap();
    [&[5, 1, 0, 5, 1, 0, 3, length], host.as_bytes(), &port.to_be_bytes()].concat()
}

pub(super) fn http(to: SocketAddr) -> Vec<u8> {
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").into()
}

// --- slow ones ----------------------------------------------------------------------------------

/// A byte in time does not buy more time: the limit is for the whole request.
#[test]
fn a_request_that_trickles_in_is_cut_at_its_limit() {
    let scratch = Scratch::new();
    let gate = Gate::with_file(&scratch, &scratch.file("gate.toml", FILE));
    let clients: Vec<_> = ["socks5", "http"]
        .into_iter()
        .map(|route| {
            let client = connect(gate.address(route));
            let words = if route == "http" {
                b"CONNECT localhost:80 HTTP/1.1\r\nA: "
            } else {
                &[5, 255][..]
            };
            let is_over = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&is_over);
            let mut sender = client.try_clone().unwrap();
            sender.write_all(words).unwrap();
            thread::spawn(move || {
                while seen.load(Ordering::Relaxed) == 0 && sender.write_all(b"a").is_ok() {
                    thread::sleep(Duration::from_millis(50));
                }
            });
            (client, is_over, Instant::now())
        })
        .collect();
    for (client, is_over, began) in clients {
        let mut answer = Vec::new();
        let _ = (&client).read_to_end(&mut answer);
        is_over.store(1, Ordering::Relaxed);
        let took = began.elapsed();
        assert!(took < TIMES + SLACK, "{took:?}");
        eprintln!("a request of a byte every 50 ms was cut after {took:?}");
    }
    for account in gate.accounts(2) {
        assert_eq!(account["ended_how"], "request_timeout", "{account}");
    }
    let silent = connect(gate.address("socks5"));
    assert_eq!(assert_reset(receive(&silent, 0, 1)), 0);
}
