//! `GET /metrics` over HTTP/1.1, for a collector of OpenMetrics.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::{task, time};

use crate::gate::View;

/// How many connections are served at once. Others wait in the listener's queue.
const AT_ONCE: usize = 16;
/// How long a request's head may take to arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may last: it serves one request.
const ALL_WITHIN: Duration = Duration::from_secs(30);
/// About how many bytes a request's head may have.
const HEAD_BYTES: usize = 16 * 1024;
/// The interval between attempts where accepting fails, such as without descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Answers for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, view: View) {
    let seats = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(RETRY).await;
            continue;
        };
        let view = view.clone();
        task::spawn(async move {
            let _ = time::timeout(ALL_WITHIN, converse(stream, view)).await;
            drop(seat);
        });
    }
}

async fn converse(stream: TcpStream, view: View) {
    let service = service_fn(|request| {
        let response = respond(&request, &view);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A failure here is the client's.
    let _ = connection.await;
}

fn respond(request: &Request<impl Body>, view: &View) -> Response<Full<Bytes>> {
    let (status, text) = match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET | &Method::HEAD) => (StatusCode::OK, view.open_metrics()),
        ("/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there is /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    let what = if status == StatusCode::OK {
        lastbyte_metrics::CONTENT_TYPE
    } else {
        "text/plain; charset=utf-8"
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(what));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    *response.status_mut() = status;
    response
}
