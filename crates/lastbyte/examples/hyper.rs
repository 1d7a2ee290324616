//! A server on hyper that knows of each response whether it arrived.
//!
//! ```text
//! cargo run --example hyper -- [ADDRESS]
//! curl http://127.0.0.1:8080/1000000
//! ```
//!
//! `GET /N` is answered with N bytes. hyper writes the response; then its stream is taken back and
//! finished. A connection carries one response here, so that its receipt is that response's. With
//! keep-alive one receipt is for all responses of its connection.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::convert::Infallible;
use std::error::Error;
use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use lastbyte::{TcpListener, TcpStream};

/// How long the proof may take.
const PROOF_TIME: Duration = Duration::from_secs(10);
/// How long no connection is accepted after one that could not be.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(async { println!("{}", serve(stream).await) })),
            // Of too many descriptors, say: there may be fewer soon.
            Err(error) => {
                println!("{error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection; says what was asked, and what became of the response.
async fn serve(stream: TcpStream) -> String {
    let asked = Arc::new(Mutex::new("no request".to_owned()));
    let of_service = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut asked = of_service.lock().unwrap_or_else(PoisonError::into_inner);
        *asked = format!("{} {}", request.method(), request.uri());
        ready(Ok::<_, Infallible>(respond(&request)))
    });
    let mut connection =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // Without hyper's own end, which waits for nothing.
    let served = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let stream = connection.into_parts().io.into_inner();
    let ended = match served {
        Ok(()) => stream.finish().within(PROOF_TIME).await,
        // Half a response must not look like a whole one.
        Err(_) => stream.abort(PROOF_TIME).await,
    };
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    match (served, ended) {
        (Ok(()), Ok(receipt)) => format!("{asked}: arrived; {receipt}"),
        (Ok(()), Err(error)) => format!("{asked}: not known to have arrived; {error}"),
        (Err(error), Ok(receipt)) => format!("{asked}: cut, {error}; {receipt}"),
        (Err(error), Err(aborted)) => format!("{asked}: cut, {error}; {aborted}"),
    }
}

/// As many bytes as the path says.
fn respond(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    match request.uri().path()[1..].parse() {
        Ok(bytes) => Response::new(vec![b'x'; bytes].into()),
        Err(_) => {
            let mut response = Response::new("ask for a number of bytes\n".into());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}
