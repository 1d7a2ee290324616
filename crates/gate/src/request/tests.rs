use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use lastbyte_socket::{FinishOptions, TcpListener};

use super::*;
use crate::config::{Choice, Forward, User};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// A client, and its connection as the gate has it.
async fn pair() -> (TcpStream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    let accepted = listener.accept().await.unwrap();
    (client, accepted)
}

fn socks5() -> Kind {
    Kind::Socks5(Users::default())
}

fn http_connect() -> Kind {
    Kind::HttpConnect(Users::default())
}

fn users() -> Users {
    Users(vec![User { name: "u".to_owned(), password: "p".to_owned() }])
}

async fn ask_for(kind: &Kind, client: &mut Stream, within: Duration) -> Result<Request, Refused> {
    ask(kind, &Chooser::new(kind), client, within).await
}

/// Sends all at once, and asks.
async fn asked(kind: &Kind, sent: &[u8]) -> (TcpStream, Stream, Result<Request, Refused>) {
    let (mut client, mut gate) = pair().await;
    client.write_all(sent).unwrap();
    let result = ask_for(kind, &mut gate, LONG).await;
    (client, gate, result)
}

/// What the client has read when its connection is finished as it ought to be.
async fn finished(mut client: TcpStream, gate: Stream) -> Vec<u8> {
    let reading = thread::spawn(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).unwrap();
        read
    });
    gate.finish_with(FinishOptions::default()).await.unwrap();
    reading.join().unwrap()
}

const SOCKS5: &[u8] = b"\x05\x01\x00\x05\x01\x00\x03\x0adb.example\x0c\xea";
const CONNECT: &[u8] = b"CONNECT db.example:3306 HTTP/1.1\r\nHost: db.example:3306\r\n\r\n";

fn db() -> Arc<Target> {
    Arc::new(Target { host: "db.example".to_owned(), port: 3306 })
}

#[test]
fn a_fixed_target_is_known_before_a_byte() {
    run(async {
        let targets = vec![db(), Arc::new(Target { host: "::1".to_owned(), port: 1 })];
        let of_route = targets.iter().map(|target| Target::clone(target)).collect();
        let kind = Kind::Forward(Forward { targets: of_route, choice: Choice::RoundRobin });
        let (_client, mut gate) = pair().await;
        let request = ask_for(&kind, &mut gate, Duration::ZERO).await.unwrap();
        assert_eq!((request.targets, request.early), (targets, Vec::new()));
        let ended = Ended::new(Party::Upstream, How::Refused);
        request.reply.connected(&mut gate, None).await.unwrap();
        assert!(!request.reply.failed(&mut gate, &ended).await.unwrap());
        assert_eq!((gate.written(), gate.bytes_read()), (0, 0));
    });
}

#[test]
fn what_comes_behind_a_request_is_kept_and_counted() {
    for (kind, head, replied) in [(socks5(), SOCKS5, 2), (http_connect(), CONNECT, 0)] {
        run(async {
            let sent = [head, b"SELECT 1"].concat();
            let (client, mut gate, request) = asked(&kind, &sent).await;
            let Request { targets, early, reply } = request.unwrap();
            assert_eq!(targets, [db()]);
            let mut all = early.clone();
            // What was not taken is still to be read, and nothing is lost between.
            while all.len() < 8 {
                let mut room = [0; 64];
                let read = gate.read(&mut room).await.unwrap();
                all.extend_from_slice(&room[..read]);
            }
            assert_eq!(all, b"SELECT 1");
            assert_eq!((gate.bytes_read(), gate.written()), (sent.len() as u64, replied));
            reply.connected(&mut gate, Some("192.0.2.1:258".parse().unwrap())).await.unwrap();
            gate.write_all(b"answer").await.unwrap();
            let read = finished(client, gate).await;
            let answered: &[u8] = match kind {
                Kind::Socks5(_) => b"\x05\x00\x05\x00\x00\x01\xc0\x00\x02\x01\x01\x02",
                _ => b"HTTP/1.1 200 Connection established\r\n\r\n",
            };
            assert_eq!(read, [answered, b"answer"].concat());
        });
    }
}

#[test]
fn a_byte_at_a_time_is_as_good() {
    for (kind, head) in [(socks5(), SOCKS5), (http_connect(), CONNECT)] {
        run(async {
            let (mut client, mut gate) = pair().await;
            let sending = thread::spawn(move || {
                head.iter().for_each(|byte| client.write_all(&[*byte]).unwrap());
                client
            });
            let request = ask_for(&kind, &mut gate, LONG).await.unwrap();
            assert_eq!((request.targets, request.early), (vec![db()], Vec::new()));
            assert_eq!(gate.bytes_read(), head.len() as u64);
            drop(sending.join().unwrap());
        });
    }
}

#[test]
fn users_say_who_they_are() {
    let request = &SOCKS5[3..];
    let good = [b"\x05\x01\x02\x01\x01u\x01p", request].concat();
    let wrong = [b"\x05\x01\x02\x01\x01u\x01q", request].concat();
    let field = |value: &str| {
        let head = String::from_utf8(CONNECT.to_vec()).unwrap();
        head.replace("\r\n\r\n", &format!("\r\nProxy-Authorization: Basic {value}\r\n\r\n"))
    };
    let (socks5, http) = (Kind::Socks5(users()), Kind::HttpConnect(users()));
    run(async {
        for (kind, sent) in [(&socks5, &good[..]), (&http, field("dTpw").as_bytes())] {
            let (_client, _gate, request) = asked(kind, sent).await;
            assert_eq!(request.unwrap().targets, [db()]);
        }
        for (kind, sent, begins) in [
            (&socks5, &wrong[..], &b"\x05\x02\x01\x01"[..]),
            (&socks5, SOCKS5, b"\x05\xff"),
            (&http, field("dTpx").as_bytes(), b"HTTP/1.1 407 "),
            (&http, CONNECT, b"HTTP/1.1 407 "),
        ] {
            let (client, gate, request) = asked(kind, sent).await;
            let Refused { ended, answered } = request.unwrap_err();
            assert_eq!((ended.by, ended.how, answered), (Party::Gate, How::Unauthenticated, true));
            let read = finished(client, gate).await;
            assert!(read.starts_with(begins), "{read:?}");
        }
    });
}

/// The refusal arrives though the client sent a megabyte that nobody wanted.
#[test]
fn garbage_is_refused_and_the_answer_arrives() {
    run(async {
        let (mut client, mut gate) = pair().await;
        let sending = thread::spawn(move || {
            let _ = client.write_all(&vec![b'A'; 1 << 20]);
            client
        });
        let refused = ask_for(&http_connect(), &mut gate, LONG).await.unwrap_err();
        assert_eq!((refused.ended.how, refused.answered), (How::BadRequest, true));
        assert!(gate.bytes_read() <= 8192, "{}", gate.bytes_read());
        let finishing = gate.finish_with(FinishOptions::default());
        let reading = thread::spawn(move || {
            let mut read = Vec::new();
            let mut client = sending.join().unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client.read_to_end(&mut read).unwrap();
            read
        });
        finishing.await.unwrap();
        assert!(reading.join().unwrap().starts_with(b"HTTP/1.1 431 "));

        let (_client, _gate, refused) = asked(&socks5(), &[b'A'; 10_000]).await;
        let Refused { ended, answered } = refused.unwrap_err();
        assert_eq!((ended.how, answered), (How::BadRequest, false), "it speaks no SOCKS");
    });
}

#[test]
fn a_client_without_a_request_in_time_is_answered_where_the_protocol_can() {
    run(async {
        for (kind, sent, answered) in [
            (socks5(), &b""[..], false),
            (socks5(), b"\x05\x01", false),
            (socks5(), b"\x05\x01\x00\x05", true),
            (http_connect(), b"", false),
            (http_connect(), b"CONNECT", true),
        ] {
            let (mut client, mut gate) = pair().await;
            client.write_all(sent).unwrap();
            let within = if sent.is_empty() { Duration::ZERO } else { SECOND };
            let refused = ask_for(&kind, &mut gate, within).await.unwrap_err();
            assert_eq!(
                (refused.ended.how, refused.answered),
                (How::RequestTimeout, answered),
                "{sent:?}"
            );
        }
    });
}

#[test]
fn a_client_that_leaves_ends_by_fin_or_reset_in_the_account() {
    run(async {
        let (client, mut gate) = pair().await;
        client.shutdown(Shutdown::Write).unwrap();
        let Refused { ended, answered } = ask_for(&socks5(), &mut gate, LONG).await.unwrap_err();
        assert_eq!((ended.by, ended.how, answered), (Party::Client, How::BadRequest, false));

        let (client, mut gate) = pair().await;
        lastbyte_sys::socket::set_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        let Refused { ended, answered } = ask_for(&socks5(), &mut gate, LONG).await.unwrap_err();
        assert_eq!((ended.by, ended.how, answered), (Party::Client, How::Reset, false));
    });
}

#[test]
fn failures_are_answered_in_the_protocol() {
    run(async {
        for (kind, head, begins) in [
            (socks5(), SOCKS5, &b"\x05\x00\x05\x05\x00\x01"[..]),
            (
                http_connect(),
                CONNECT,
                b"HTTP/1.1 502 Bad Gateway\r\nProxy-Status: lastbyte; error=",
            ),
        ] {
            let (client, mut gate, request) = asked(&kind, head).await;
            let ended = Ended::because(Party::Upstream, How::Refused, "connect -> 10.0.0.1:3306");
            assert!(request.unwrap().reply.failed(&mut gate, &ended).await.unwrap());
            let read = finished(client, gate).await;
            assert!(read.starts_with(begins), "{read:?}");
            let says_address = read.windows(8).any(|bytes| bytes == b"10.0.0.1");
            assert!(!says_address, "the detail is for the log alone");
        }
    });
}
