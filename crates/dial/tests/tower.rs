//! The connector under hyper's client, against servers on this machine.

use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lastbyte_dial::tower::{ConnectError, Connector};
use lastbyte_dial::{DialOptions, Dialer, Resolver, Timeline, What};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_service::Service;

/// For what should take no time.
const LIMIT: Duration = Duration::from_secs(20);

type HttpClient = Client<Connector, Empty<Bytes>>;

fn connector() -> Connector {
    Connector::new(Dialer::new(Resolver::system()))
}

fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build(connector())
}

/// Answers every request with its path; counts its connections.
async fn server() -> (SocketAddr, Arc<AtomicU32>) {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = service_fn(|request: Request<Incoming>| async move {
                let body = Full::new(Bytes::from(request.uri().path().to_owned()));
                Ok::<_, Infallible>(Response::new(body))
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(socket), answer));
        }
    });
    (address, accepted)
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.unwrap()
}

#[tokio::test]
async fn a_client_gets_its_answer_over_one_connection() {
    let (address, accepted) = server().await;
    let client = client();
    for round in 0..3 {
        let url = format!("http://localhost:{}/round/{round}", address.port());
        let response = within(client.get(url.parse().unwrap())).await.unwrap();
        assert_eq!(response.status(), 200);
        let timeline = response.extensions().get::<Timeline>().unwrap();
        let connected =
            |event: &&lastbyte_dial::Event| matches!(event.what, What::Connected { .. });
        assert_eq!(timeline.events.iter().filter(connected).count(), 1);
        let body = within(response.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(body, format!("/round/{round}"));
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1, "the client keeps its connection");
}

#[tokio::test]
async fn a_client_works_against_a_server_of_the_standard_library() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end of the stream";
        socket.write_all(answer).unwrap();
        String::from_utf8(request).unwrap()
    });
    let response = within(client().get(url.parse().unwrap())).await.unwrap();
    let body = within(response.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body, "to the end of the stream");
    assert!(serving.join().unwrap().starts_with("GET / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn an_address_of_ipv6_is_in_brackets() {
    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        lastbyte_testing::not_tested!("there is no IPv6 here");
        return;
    };
    let address = listener.local_addr().unwrap();
    let connection = within(connector().call(format!("http://{address}/").parse().unwrap())).await;
    assert_eq!(connection.unwrap().into_dialed().stream.peer_addr().unwrap(), address);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let error = within(client().get(format!("http://{gone}/").parse().unwrap())).await.unwrap_err();
    assert!(error.is_connect());
    let cause = error.source().unwrap().downcast_ref::<ConnectError>().unwrap();
    let ConnectError::Dial(dial) = cause else { panic!("{cause:?}") };
    assert_eq!((dial.host.as_str(), dial.port), ("127.0.0.1", gone.port()));
}

#[tokio::test]
async fn https_is_left_to_who_speaks_it() {
    let (address, _) = server().await;
    let url = format!("https://{address}/");
    let error = within(client().get(url.parse().unwrap())).await.unwrap_err();
    let cause = error.source().unwrap().downcast_ref::<ConnectError>().unwrap();
    assert!(matches!(cause, ConnectError::NotHttp(_)), "{cause:?}");

    let mut connector = connector().enforce_http(false);
    let connection = within(connector.call(url.parse().unwrap())).await.unwrap();
    assert_eq!(connection.into_dialed().stream.peer_addr().unwrap(), address);
}

#[tokio::test]
async fn options_reach_the_dial() {
    let mut options = DialOptions::default();
    options.connect.socket.send_buffer = Some(40_000);
    let (address, _) = server().await;
    let mut connector = connector().with_options(options);
    let connection = within(connector.call(format!("http://{address}").parse().unwrap())).await;
    let granted = connection.unwrap().into_dialed().stream.granted().unwrap();
    assert_eq!(granted.send_buffer_fixed, Some(true), "{granted:?}");
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    let (address, accepted) = server().await;
    let client = client();
    for _ in 0..2 {
        let requests: Vec<_> = (0..200)
            .map(|number| {
                let url = format!("http://localhost:{}/{number}", address.port());
                let client = client.clone();
                tokio::spawn(async move {
                    let response = client.get(url.parse().unwrap()).await.unwrap();
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body, format!("/{number}"));
                })
            })
            .collect();
        for request in requests {
            within(request).await.unwrap();
        }
    }
    eprintln!("{} connections for 400 requests", accepted.load(Ordering::Relaxed));
}

/// It answers, and resets each connection while the client keeps it for the next request.
#[tokio::test]
async fn a_server_that_dies_between_requests_is_dialed_again() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    let client = client();
    for round in 0..10 {
        let serving = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(socket.read_u8().await.unwrap());
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody";
            socket.write_all(answer).await.unwrap();
            socket
        };
        let asking = async {
            let response = client.get(url.parse().unwrap()).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        };
        let (socket, body) = within(async { tokio::join!(serving, asking) }).await;
        assert_eq!(body, "body", "round {round}");
        socket.set_zero_linger().unwrap();
        drop(socket);
        // The client's side of it sees the end before the next request.
        tokio::task::yield_now().await;
    }
}
