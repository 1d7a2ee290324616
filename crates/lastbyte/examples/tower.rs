//! A tower service that takes a connection and returns the receipt of its response.
//!
//! ```text
//! cargo run --example tower -- [ADDRESS]
//! curl http://127.0.0.1:8080/1000000
//! ```
//!
//! The layers around it limit the number of connections, and the time of each. A connection that
//! takes too long is dropped, and nothing is proven.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::convert::Infallible;
use std::error::Error;
use std::future::ready;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use lastbyte::{Receipt, TcpListener, TcpStream};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

/// Connections at once.
const MOST_CONNECTIONS: usize = 1000;
/// How long a connection may take, its proof included.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// How long to pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the proof may take.
const PROOF_TIME: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut connections = ServiceBuilder::new()
        .concurrency_limit(MOST_CONNECTIONS)
        .timeout(CONNECTION_TIME)
        .service(service_fn(serve));
    loop {
        let service = connections.ready().await?;
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            // Too many open descriptors, for example: others may close soon.
            Err(error) => {
                println!("{error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let served = service.call(stream);
        tokio::spawn(async {
            match served.await {
                Ok(receipt) => println!("arrived; {receipt}"),
                Err(error) => println!("not known to have arrived; {}", with_causes(&*error)),
            }
        });
    }
}

/// Serves one connection with one response, and proves that it arrived.
async fn serve(stream: TcpStream) -> Result<Receipt, BoxError> {
    let respond = TowerToHyperService::new(service_fn(|request: Request<Incoming>| {
        let bytes = request.uri().path()[1..].parse().unwrap_or(0);
        ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(vec![b'x'; bytes]))))
    }));
    let connection =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), respond);
    // Without hyper's own shutdown, which waits for nothing. On an error the connection is dropped.
    let stream = connection.without_shutdown().await?.io.into_inner();
    Ok(stream.finish().within(PROOF_TIME).await?)
}

/// The text of an error with its causes.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| Error::source(*cause));
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
