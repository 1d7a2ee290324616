//! A connector for hyper's client, and for other users of a [`tower_service::Service`] over URIs.
//!
//! ```no_run
//! use http_body_util::Empty;
//! use hyper::body::Bytes;
//! use hyper_util::client::legacy::Client;
//! use hyper_util::rt::TokioExecutor;
//! use lastbyte_dial::tower::Connector;
//! use lastbyte_dial::{Dialer, Resolver};
//!
//! # async fn get() -> Result<(), Box<dyn std::error::Error>> {
//! let connector = Connector::new(Dialer::new(Resolver::dns()?));
//! let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
//! let response = client.get("http://www.example.org/".parse()?).await?;
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use lastbyte_socket::Stream;
use tower_service::Service;

use crate::dialer::Dialer;
use crate::error::DialError;
use crate::options::{DialOptions, Dialed};
use crate::timeline::Timeline;

/// Connects to the host of a URI. Cheap to clone: clones share the dialer's history.
#[derive(Clone, Debug)]
pub struct Connector {
    dialer: Dialer,
    options: Arc<DialOptions>,
    http_alone: bool,
}

impl Connector {
    /// A connector for `http` only, with default options.
    #[must_use]
    pub fn new(dialer: Dialer) -> Self {
        Self { dialer, options: Arc::default(), http_alone: true }
    }

    /// Dials with these options.
    #[must_use]
    pub fn with_options(mut self, options: DialOptions) -> Self {
        self.options = Arc::new(options);
        self
    }

    /// Sets whether to refuse URIs of other schemes than `http`, as by default: this connector does
    /// not speak TLS. A TLS connector around it has to switch that off.
    #[must_use]
    pub fn enforce_http(mut self, yes: bool) -> Self {
        self.http_alone = yes;
        self
    }
}

impl Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = ConnectError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let Self { dialer, options, http_alone } = self.clone();
        Connecting(Box::pin(async move {
            let (host, port) = destination(&uri, http_alone)?;
            let Dialed { stream, timeline } = dialer.dial((host, port), &options).await?;
            Ok(HttpStream { io: TokioIo::new(stream), timeline })
        }))
    }
}

/// A connection in progress. If it is dropped, no socket is left.
pub struct Connecting(Pin<Box<dyn Future<Output = Result<HttpStream, ConnectError>> + Send>>);

impl Future for Connecting {
    type Output = Result<HttpStream, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connecting")
    }
}

/// Why a connector could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The scheme is not `http`: it needs another connector around this one, such as TLS.
    #[error("{0} is not for this connector, which speaks plain http")]
    NotHttp(String),
    /// The URI has no host.
    #[error("the URI {0} names no host")]
    NoHost(Uri),
    /// The URI has no port, and its scheme no default port.
    #[error("the URI {0} names no port")]
    NoPort(Uri),
    /// The host could not be reached.
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// The host and port of a URI.
fn destination(uri: &Uri, http_alone: bool) -> Result<(&str, u16), ConnectError> {
    let scheme = uri.scheme();
    if let Some(other) = scheme.filter(|scheme| http_alone && **scheme != Scheme::HTTP) {
        return Err(ConnectError::NotHttp(other.to_string()));
    }
    let host = uri.host().ok_or_else(|| ConnectError::NoHost(uri.clone()))?;
    // RFC 9110 sections 4.2.1 and 4.2.2.
    let default = match scheme.map(Scheme::as_str) {
        None | Some("http" | "ws") => Some(80),
        Some("https" | "wss") => Some(443),
        Some(_) => None,
    };
    let port = uri.port_u16().or(default).ok_or_else(|| ConnectError::NoPort(uri.clone()))?;
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok((address.unwrap_or(host), port))
}

/// A connection for hyper. Each response over it has the [`Timeline`] of the dial among its
/// extensions.
#[derive(Debug)]
pub struct HttpStream {
    io: TokioIo<Stream>,
    timeline: Timeline,
}

impl HttpStream {
    /// The connection, and the timeline of its dial.
    #[must_use]
    pub fn into_dialed(self) -> Dialed<Stream> {
        Dialed { stream: self.io.into_inner(), timeline: self.timeline }
    }
}

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.timeline.clone())
    }
}

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str, http_alone: bool) -> Result<(String, u16), String> {
        let uri = uri.parse().unwrap();
        let found = destination(&uri, http_alone);
        found.map(|(host, port)| (host.to_owned(), port)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_uri_means_a_host_and_a_port() {
        let found = |host: &str, port| Ok((host.to_owned(), port));
        assert_eq!(of("http://example.org/x", true), found("example.org", 80));
        assert_eq!(of("http://example.org:8080", true), found("example.org", 8080));
        assert_eq!(of("http://[2001:db8::1]:81/", true), found("2001:db8::1", 81));
        assert_eq!(of("example.org:90", true), found("example.org", 90));
        assert_eq!(of("https://example.org/", false), found("example.org", 443));
        assert_eq!(of("gopher://example.org:70/", false), found("example.org", 70));
    }

    #[test]
    fn what_is_not_for_it_is_refused() {
        let refused = "https is not for this connector, which speaks plain http";
        assert_eq!(of("https://example.org/", true), Err(refused.to_owned()));
        assert_eq!(of("/path", true), Err("the URI /path names no host".to_owned()));
        let unknown = "the URI gopher://example.org/ names no port";
        assert_eq!(of("gopher://example.org/", false), Err(unknown.to_owned()));
    }
}
