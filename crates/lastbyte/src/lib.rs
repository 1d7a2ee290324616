//! Deliver every byte of a TCP connection, and prove that it arrived.
//!
//! This crate forbids code of its own: it re-exports `lastbyte-socket`, `lastbyte-tls`,
//! `lastbyte-dial` and `lastbyte-core`.
//!
//! When `write` returns, the local kernel has accepted the bytes, no more. `close` may discard
//! them: with unread input it resets the connection, and reports no error. This library proves how
//! far the bytes came:
//!
//! ```
//! # #[cfg(all(feature = "dial", feature = "tokio"))]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = lastbyte::TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! # let server = tokio::spawn(async move {
//! #     let mut stream = listener.accept().await.unwrap();
//! #     let all = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
//! #     assert_eq!((all, stream.observed_end()), (1_000_000, Some(lastbyte::End::Fin)));
//! # });
//! use std::time::Duration;
//!
//! use lastbyte::Delivery;
//! use tokio::io::AsyncWriteExt;
//!
//! let mut stream = lastbyte::connect(address).await?; // an address, or "example.org:443"
//! stream.write_all(&[0; 1_000_000]).await?; // written: nothing is proven yet
//! let receipt = stream.finish().within(Duration::from_secs(5)).want(Delivery::Closed).await?;
//! println!("{receipt}"); // closed: 1000000 of 1000000 bytes acked, peer ended with FIN, 0.1 ms
//! assert_eq!(receipt.acked, Some(1_000_000));
//! # server.await?;
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "dial", feature = "tokio")))]
//! # fn main() {}
//! ```
//!
//! Each level has one meaning, and none is reported as another:
//!
//! | [`Delivery`] | means |
//! |---|---|
//! | `Written` | the local kernel accepted the bytes |
//! | `Sent` | they left the send queue at least once |
//! | `Acked` | the peer's *kernel* acknowledged them |
//! | `Closed` | acked, and the peer's FIN came after ours was acknowledged |
//! | `Confirmed` | the peer's *program* confirmed them, by a message of its protocol |
//!
//! # Which call
//!
//! Streams over tokio are at the root of this crate; blocking ones have the same names in
//! [`blocking`]:
//!
//! | You have | Call |
//! |---|---|
//! | a host and a port | [`connect`], [`connect_with`] |
//! | an address to listen on | [`TcpListener`], [`UnixListener`] |
//! | the path of a Unix socket | [`UnixStream::connect`] |
//! | a connection that needs TLS | [`tls::TlsStream`] |
//! | a connection that other code made | [`blocking::Stream::adopt_new`] if it has not been used yet, else [`blocking::Stream::adopt`]; then [`Stream::from_blocking`] for tokio |
//! | only a descriptor | [`finish_fd`], [`info`], [`prepare`], [`observed_end`] |
//! | hyper's client | `dial::tower::Connector` (feature `tower`) |
//!
//! | You want to | Call |
//! |---|---|
//! | close, and know that all bytes arrived | [`Stream::finish`] |
//! | know it, and go on reading the response | [`Stream::prove`] with [`Drain::Keep`] |
//! | end one direction only | [`Stream::half_close`] |
//! | close so that the peer sees an incomplete stream | [`Stream::abort`]: a reset, after all written bytes |
//! | read and write at once | [`Stream::split`] in one task, [`Stream::into_split`] in two |
//!
//! A [`Stream`] is an `AsyncRead` and `AsyncWrite` of tokio, a [`blocking::Stream`] a `Read` and
//! `Write`; each error is a [`std::error::Error`], and `?` converts it to a [`std::io::Error`]. If
//! a finish could not prove the wanted level, it returns a [`FinishError`], which says why and
//! contains the [`Receipt`] of what was proven. The library never guesses: what a kind of socket
//! does not show is `None`, [`End::Unknown`] or [`PeerEnd::Unknown`].
//!
//! The examples `hyper`, `axum` and `tower` are servers that know whether each response arrived.
//!
//! # A server
//!
//! A response has arrived if a finish proves it. `Closed` needs a client that closes after the last
//! byte; for clients that keep the connection open, want `Acked`, the default.
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use lastbyte::{TcpListener, TcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
//!     let mut request = Vec::new();
//!     stream.read_to_end(&mut request).await?; // an error after a reset
//!     stream.write_all(b"response").await?;
//!     match stream.finish().within(Duration::from_secs(10)).await {
//!         Ok(receipt) => println!("arrived: {receipt}"),
//!         Err(error) => println!("not proven to have arrived: {error}"), // error.receipt: how far
//!     }
//!     Ok(())
//! }
//!
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?;
//! # let client = tokio::spawn(async move {
//! #     let mut stream = TcpStream::connect(address).await.unwrap();
//! #     stream.half_close().unwrap();
//! #     let mut response = Vec::new();
//! #     stream.read_to_end(&mut response).await.unwrap();
//! #     response
//! # });
//! let stream = listener.accept().await?;
//! serve(stream).await?;
//! # assert_eq!(client.await?, b"response");
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! A framework that takes any listener, such as axum, drops a connection when it is done with it. The
//! example `axum` wraps the streams of a [`TcpListener`] so that dropping one finishes it.
//!
//! # TLS
//!
//! A [`tls::TlsStream`] takes any [`Stream`]. Its end is `close_notify`, and its receipt counts
//! plaintext.
//!
//! ```no_run
//! # #[cfg(all(feature = "dial", feature = "tls", feature = "tokio"))]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use lastbyte::tls::{TlsStream, client_config, rustls::RootCertStore};
//! use tokio::io::AsyncWriteExt;
//!
//! let roots = RootCertStore::empty(); // add the certificates that you trust
//! let stream = lastbyte::connect("example.org:443").await?;
//! let limit = Duration::from_secs(10);
//! let mut stream = TlsStream::connect(stream, client_config(roots)?, "example.org", limit).await?;
//! stream.write_all(b"hello").await?;
//! let receipt = stream.finish().within(limit).await?;
//! assert!(receipt.all_acked());
//! # Ok(())
//! # }
//! ```
//!
//! # Unix sockets
//!
//! The kernel shows when the peer's *program* has read everything, and nothing before that. So here
//! `Acked` proves more than over TCP, and [`Receipt::acked`] of a part is `None`.
//!
//! ```
//! use std::io::{Read, Write};
//! use lastbyte::Delivery;
//! use lastbyte::blocking::UnixStream;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mut writer, mut reader) = UnixStream::pair()?; // or UnixStream::connect(path)
//! let reading = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
//! writer.write_all(b"hello")?;
//! let receipt = writer.finish().wait()?;
//! assert!(receipt.level >= Delivery::Acked);
//! assert_eq!(reading.join().unwrap()?, 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Options
//!
//! All options have defaults and setters. [`FinishOptions`] say what a finish has to prove,
//! [`SocketOptions`] are the kernel's options of a socket. [`ConnectOptions`] and [`ListenOptions`]
//! contain `SocketOptions`, and [`dial::DialOptions`] contain the `ConnectOptions` of each
//! connection attempt.
//!
//! # Without an event loop
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//! use lastbyte::blocking::{TcpListener, TcpStream};
//! use lastbyte::{Delivery, End};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let reader = std::thread::spawn(move || -> std::io::Result<_> {
//!     let mut stream = listener.accept()?;
//!     stream.write_all(b"220 welcome\r\n")?; // a greeting that the writer never reads
//!     let mut all = Vec::new();
//!     stream.read_to_end(&mut all)?; // an error after a reset
//!     Ok((all.len(), stream.observed_end()))
//! });
//!
//! let mut stream = TcpStream::connect(address)?;
//! stream.write_all(&[0; 1_000_000])?;
//! let receipt = stream.finish().within(Duration::from_secs(5)).wait()?;
//! assert!(receipt.level >= Delivery::Acked);
//! assert_eq!(reader.join().unwrap()?, (1_000_000, Some(End::Fin)));
//! # Ok(())
//! # }
//! ```
//!
//! # Dialing
//!
//! A program that tries addresses one after the other waits for the whole time-out of each dead
//! one. [`connect`] resolves both families at once, tries addresses in parallel (RFC 8305, Happy
//! Eyeballs), and remembers which worked. Its error names every attempt. A [`dial::Dialer`] has a
//! resolver and a history of its own, and returns a timeline of what happened.
//!
//! # Reading
//!
//! The kernel reports a reset once. If it reported it to a failed write, a reader of the standard
//! library gets the remaining data and then a clean end, and takes half a file for a whole one. A
//! [`Stream`] does not: its `read` returns 0 only for a FIN, and [`Stream::observed_end`] says how
//! the stream ended.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//! use lastbyte::End;
//! use lastbyte::blocking::{TcpListener, TcpStream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut client = TcpStream::connect(listener.local_addr()?)?;
//! let mut server = listener.accept()?;
//! server.write_all(b"half of an answ")?;
//! server.abort(Duration::from_secs(5))?; // the server fails in the middle, and the client learns it
//!
//! while client.write(b"more of the request").is_ok() {} // takes the kernel's report
//! assert!(client.read_to_end(&mut Vec::new()).is_err()); // std's TcpStream says Ok here
//! assert_eq!(client.observed_end(), Some(End::Reset));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(all(feature = "dial", feature = "tokio"))]
#[doc(inline)]
pub use lastbyte_dial::{connect, connect_with};
#[doc(inline)]
pub use lastbyte_socket::{
    Address, ConnectOptions, Counted, Delivery, Drain, End, Endpoints, FastOpen, Finish,
    FinishAsync, FinishBlocking, FinishError, FinishOptions, Granted, Keepalive, Kind,
    ListenOptions, Multipath, Operation, PeerEnd, Receipt, Sampler, Socket, SocketError,
    SocketOptions, State, TcpInfo, Unproven, congestion, duplicate, finish_fd, finish_fd_counted,
    finish_fd_while, info, observed_end, prepare, set_congestion,
};
#[cfg(feature = "tokio")]
#[doc(inline)]
pub use lastbyte_socket::{
    Listener, OwnedReadHalf, OwnedWriteHalf, ReadHalf, Stream, TcpListener, TcpStream,
    UnixListener, UnixStream, WriteHalf,
};
/// TLS streams, with rustls.
#[cfg(feature = "tls")]
pub mod tls {
    #[cfg(feature = "tokio")]
    #[doc(inline)]
    pub use lastbyte_tls::TlsStream;
    #[doc(no_inline)]
    pub use lastbyte_tls::rustls;
    #[doc(inline)]
    pub use lastbyte_tls::{
        Cause, Cut, Operation, TlsError, TlsFinishError, TlsReceipt, TlsUnproven, client_config,
        server_config,
    };

    /// The same without an event loop: a call returns when it is done.
    pub mod blocking {
        #[doc(inline)]
        pub use lastbyte_tls::blocking::TlsStream;
    }
}

/// What [`connect`](crate::blocking::connect) uses: name resolution, parallel attempts, and a
/// timeline.
#[cfg(feature = "dial")]
pub mod dial {
    #[cfg(feature = "tower")]
    #[doc(inline)]
    pub use lastbyte_dial::tower;
    #[doc(inline)]
    pub use lastbyte_dial::{
        Answer, Answers, BadHost, Because, Destination, DialError, DialOptions, Dialed, Dialer,
        Event, FailedAttempt, Families, Found, Host, Origin, Parameters, QueryError, Question,
        ResolvConf, Resolver, ResolverError, Timeline, ToDestination, Undialed, Veto, What,
    };

    /// The same without an event loop: a call returns when it is done.
    pub mod blocking {
        #[doc(inline)]
        pub use lastbyte_dial::blocking::Dialer;
    }
}

/// The same without an event loop: a call returns when it is done.
pub mod blocking {
    #[cfg(feature = "dial")]
    #[doc(inline)]
    pub use lastbyte_dial::blocking::{connect, connect_with};
    #[doc(inline)]
    pub use lastbyte_socket::blocking::{
        Listener, OwnedReadHalf, OwnedWriteHalf, ReadHalf, Stream, TcpListener, TcpStream,
        UnixListener, UnixStream, WriteHalf,
    };
}
