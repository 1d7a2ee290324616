//! An axum server that knows whether each response arrived.
//!
//! ```text
//! cargo run --example axum -- [ADDRESS]
//! curl http://127.0.0.1:8080/1000000
//! ```
//!
//! `axum::serve` takes any listener, and drops each connection when it is done with it. So
//! [`Proving`] is a listener whose connections are finished when they are dropped. Here each
//! connection has one response, so that its receipt belongs to that response.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Path, Request};
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use axum::serve::IncomingStream;
use lastbyte::{TcpListener, TcpStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long the proof may take.
const PROOF_TIME: Duration = Duration::from_secs(10);
/// How long to pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    let requests = Requests::default();
    let noted = requests.clone();
    let note = move |peer, request, next| noted.clone().note(peer, request, next);
    let app = Router::new()
        .route("/{bytes}", get(|Path(bytes): Path<usize>| async move { vec![b'x'; bytes] }))
        .layer(middleware::from_fn(note))
        .into_make_service_with_connect_info::<Peer>();
    axum::serve(Proving { listener, requests }, app).await?;
    Ok(())
}

/// The request of each client, by its address.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<HashMap<SocketAddr, String>>>);

impl Requests {
    async fn note(
        self,
        ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
        request: Request,
        next: Next,
    ) -> Response {
        let line = format!("{} {}", request.method(), request.uri());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(peer, line);
        let mut response = next.run(request).await;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn take(&self, peer: SocketAddr) -> String {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&peer);
        line.unwrap_or_else(|| "no request".to_owned())
    }
}

/// The client's address, for axum.
#[derive(Clone)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Proving>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Proving>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A listener whose connections are finished when axum drops them.
struct Proving {
    listener: TcpListener,
    requests: Requests,
}

impl axum::serve::Listener for Proving {
    type Io = Proven;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Proven, SocketAddr) {
        loop {
            let accepted = self.listener.accept().await.map_err(io::Error::from);
            match accepted.and_then(|stream| Ok((stream.peer_addr()?, stream))) {
                Ok((peer, stream)) => {
                    let requests = self.requests.clone();
                    return (Proven { stream: Some(stream), peer, requests, whole: false }, peer);
                }
                // Too many open descriptors, for example: others may close soon.
                Err(error) => {
                    println!("{error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is finished when it is dropped.
struct Proven {
    stream: Option<TcpStream>,
    peer: SocketAddr,
    requests: Requests,
    /// Whether axum has written the whole response.
    whole: bool,
}

impl Proven {
    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("it is there until it is dropped"))
    }
}

impl Drop for Proven {
    fn drop(&mut self) {
        let (Some(stream), whole) = (self.stream.take(), self.whole) else { return };
        let request = self.requests.take(self.peer);
        tokio::spawn(async move {
            let ended = if whole {
                stream.finish().within(PROOF_TIME).await
            } else {
                // A truncated response must not look complete.
                stream.abort(PROOF_TIME).await
            };
            match ended {
                Ok(receipt) if whole => println!("{request}: arrived; {receipt}"),
                Ok(receipt) => println!("{request}: cut; {receipt}"),
                Err(error) if whole => println!("{request}: not known to have arrived; {error}"),
                Err(error) => println!("{request}: cut; {error}"),
            }
        });
    }
}

impl AsyncRead for Proven {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Proven {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    /// Sends no FIN: the finish does, and waits for the proof.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole = true;
        Poll::Ready(Ok(()))
    }
}
