//! Get every byte of a TCP connection to the other side, and know it.
//!
//! It forbids itself any code of its own: it is the face, `lastbyte-socket`, `lastbyte-tls`,
//! `lastbyte-dial` and `lastbyte-core` are the body. Over TLS the same is in [`tls`] (feature `tls`),
//! and [`dial`] (feature `dial`) reaches a host by its name.
//!
//! `write` returning means that the kernel took the bytes. `close` may throw them away: with unread
//! input it resets the connection, and nobody is told. This library says how far bytes came, and
//! never one level for another:
//!
//! | [`Delivery`] | means |
//! |---|---|
//! | `Written` | the local kernel accepted the bytes |
//! | `Sent` | they left the send queue at least once |
//! | `Acked` | the peer's *kernel* acknowledged them |
//! | `Closed` | acked, and the peer's FIN came after ours was acknowledged |
//! | `Confirmed` | the peer's *program* said so, in a protocol that has such an answer |
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//! use lastbyte::{Delivery, End, FinishOptions, Listener, Stream, Tune};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::listen("127.0.0.1:0".parse()?, &Tune::default())?;
//! let address = listener.local_addr();
//! let reader = std::thread::spawn(move || -> std::io::Result<_> {
//!     let mut stream = listener.accept()?;
//!     stream.write_all(b"220 welcome\r\n")?; // a greeting that the writer never reads
//!     let mut all = Vec::new();
//!     stream.read_to_end(&mut all)?; // an error, if the connection was cut
//!     Ok((all.len(), stream.ended()))
//! });
//!
//! let mut stream = Stream::connect(address, &Tune::default(), Duration::from_secs(5))?;
//! stream.write_all(&[0; 1_000_000])?; // written: nothing is proven yet
//! let receipt = stream.finish(FinishOptions::default())?; // waits for the proof, then closes
//! assert!(receipt.level >= Delivery::Acked);
//! assert_eq!(receipt.acked, Some(1_000_000));
//! assert_eq!(reader.join().unwrap()?, (1_000_000, Some(End::Fin)));
//! # Ok(())
//! # }
//! ```
//!
//! # Which call
//!
//! | You have | Call |
//! |---|---|
//! | a host and a port | [`dial::Dialer`]; over tokio [`dial::AsyncDialer`], under hyper `dial::tower` |
//! | a connection that you open or accept | [`Stream`], [`Listener`]; over tokio [`AsyncStream`], [`AsyncListener`] |
//! | a Unix socket | [`UnixStream`], [`UnixListener`] and their async twins |
//! | TLS | [`tls::TlsStream`], [`tls::AsyncTlsStream`] |
//! | a socket of somebody else's making | [`Stream::adopt_new`] where nobody has used it yet, else [`Stream::adopt`] |
//! | just a descriptor | [`finish_fd`], [`info`], [`prepare`], [`ended`] |
//!
//! | You want to | Call |
//! |---|---|
//! | end, and know that all arrived | [`Stream::finish`] |
//! | know it, and go on reading the answer | [`Stream::prove`] with [`Drain::Keep`] |
//! | end one direction only | [`Stream::half_close`] |
//! | end so that nobody takes it for complete | [`Stream::abort`]: a reset, after what was written |
//! | read and write in two threads or tasks | [`Stream::into_split`] |
//!
//! A finish that could not prove what was wanted is a [`FinishError`], which says why and holds the
//! [`Receipt`] of what was proven all the same. Nothing here guesses: what a kind of socket cannot
//! tell is `None`, [`End::Unknown`] or [`PeerEnd::Unknown`].
//!
//! # Dialing
//!
//! A dead address costs whoever tries one after the other its whole time-out. A [`dial::Dialer`] asks
//! for both families at once and tries addresses side by side (RFC 8305, Happy Eyeballs), remembers
//! what worked, and an error of it names every attempt. What it connects is a [`Stream`].
//!
//! ```
//! # #[cfg(feature = "dial")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::io::Write;
//! use lastbyte::dial::{DialOptions, Dialer, Resolver};
//! use lastbyte::{FinishOptions, Listener, Tune};
//!
//! let listener = Listener::listen("127.0.0.1:0".parse()?, &Tune::default())?;
//! let port = listener.local_addr().port();
//!
//! let dialer = Dialer::new(Resolver::dns()?)?; // one for the whole program, to be cloned
//! let dialed = dialer.dial("localhost", port, &DialOptions::default())?;
//! let mut stream = dialed.stream;
//! assert_eq!(stream.peer_addr(), Some(listener.local_addr()));
//! stream.write_all(b"hello")?;
//! stream.finish(FinishOptions::default())?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "dial"))]
//! # fn main() {}
//! ```
//!
//! # Reading
//!
//! The kernel reports a reset once. If a failed write took the report, the reader of the standard
//! library gets data and then a clean end, and calls half a file whole. A [`Stream`] does not: its
//! `read` returns 0 for a FIN alone, and [`Stream::ended`] says how the stream ended.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//! use lastbyte::{End, Listener, Stream, Tune};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::listen("127.0.0.1:0".parse()?, &Tune::default())?;
//! let mut client = Stream::connect(listener.local_addr(), &Tune::default(), Duration::from_secs(5))?;
//! let mut server = listener.accept()?;
//! server.write_all(b"half of an answ")?;
//! server.abort(Duration::from_secs(5))?; // it failed in the middle, and says so
//!
//! while client.write(b"more of the request").is_ok() {} // takes the kernel's report
//! assert!(client.read_to_end(&mut Vec::new()).is_err()); // std's TcpStream says Ok here
//! assert_eq!(client.ended(), Some(End::Reset));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "dial")]
pub use lastbyte_dial as dial;
pub use lastbyte_socket::{
    Address, Carrier, ConnectOptions, Counted, Delivery, Drain, End, Ends, FastOpen, FinishError,
    FinishOptions, Granted, Keepalive, Kind, Listener, Multipath, Operation, PeerEnd, ReadHalf,
    Receipt, Sampler, SocketError, State, Stream, TcpInfo, Tune, UnixListener, UnixStream,
    Unproven, WriteHalf, congestion, duplicate, ended, finish_fd, finish_fd_counted,
    finish_fd_while, info, prepare, set_congestion,
};
#[cfg(feature = "tokio")]
pub use lastbyte_socket::{
    AsyncListener, AsyncReadHalf, AsyncStream, AsyncUnixListener, AsyncUnixStream, AsyncWriteHalf,
};
#[cfg(feature = "tls")]
pub use lastbyte_tls as tls;
