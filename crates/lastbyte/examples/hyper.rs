//! A hyper server that knows whether each response arrived.
//!
//! ```text
//! cargo run --example hyper -- [ADDRESS]
//! curl http://127.0.0.1:8080/1000000
//! ```
//!
//! `GET /N` returns N bytes. hyper writes the response, then this program takes the stream back and
//! finishes it. Here each connection has one response, so that its receipt belongs to that
//! response. With keep-alive, one receipt covers all responses of a connection.

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
/// How long to pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(async { println!("{}", serve(stream).await) })),
            // Too many open descriptors, for example: others may close soon.
            Err(error) => {
                println!("{error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection. Returns the request, and what became of the response.
async fn serve(stream: TcpStream) -> String {
    let request_line = Arc::new(Mutex::new("no request".to_owned()));
    let of_service = Arc::clone(&request_line);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request_line = of_service.lock().unwrap_or_else(PoisonError::into_inner);
        *request_line = format!("{} {}", request.method(), request.uri());
        ready(Ok::<_, Infallible>(respond(&request)))
    });
    let mut connection =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // Without hyper's own shutdown, which waits for nothing.
    let served = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let stream = connection.into_parts().io.into_inner();
    let ended = match served {
        Ok(()) => stream.finish().within(PROOF_TIME).await,
        // A truncated response must not look complete.
        Err(_) => stream.abort(PROOF_TIME).await,
    };
    let request_line = request_line.lock().unwrap_or_else(PoisonError::into_inner);
    match (served, ended) {
        (Ok(()), Ok(receipt)) => format!("{request_line}: arrived; {receipt}"),
        (Ok(()), Err(error)) => format!("{request_line}: not known to have arrived; {error}"),
        (Err(error), Ok(receipt)) => format!("{request_line}: cut, {error}; {receipt}"),
        (Err(error), Err(aborted)) => format!("{request_line}: cut, {error}; {aborted}"),
    }
}

/// The number of bytes that the path gives.
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
