//! TLS streams over [`lastbyte_socket`] streams: they distinguish a truncated stream from a
//! complete one, and can prove that written bytes arrived.
//!
//! This crate forbids a clean end without `close_notify`: anyone on the path can forge a FIN, but
//! only the peer can send `close_notify` (RFC 8446 section 6.1). A read returns `Ok(0)` only for
//! `close_notify`; every other end is an error, and [`End`](lastbyte_core::End) says which.
//!
//! - [`TlsStream`] (feature `tokio`): over tokio; [`blocking::TlsStream`]: without an event loop.
//! - [`client_config`], [`server_config`]: configurations with the built-in provider, `ring`; use
//!   [`rustls`] itself for others.
//!
//! All counts are of plaintext, except in [`TlsReceipt::transport`].
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::Duration;
//! use lastbyte_socket::blocking::{TcpListener, TcpStream};
//! use lastbyte_socket::{Delivery, End};
//! use lastbyte_tls::blocking::TlsStream;
//! use lastbyte_tls::{client_config, rustls, server_config};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
//! # let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
//! # let mut roots = rustls::RootCertStore::empty();
//! # roots.add(made.cert.der().clone())?;
//! # let (certificate, key) = (made.cert.der().clone(), key.into());
//! let server = server_config(vec![certificate], key)?;
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let reader = std::thread::spawn(move || -> std::io::Result<_> {
//!     let stream = listener.accept()?;
//!     let mut stream = TlsStream::accept(stream, server, Duration::from_secs(5))?;
//!     let mut all = Vec::new();
//!     stream.read_to_end(&mut all)?; // an error without close_notify
//!     Ok((all.len(), stream.observed_end()))
//! });
//!
//! let stream = TcpStream::connect(address)?;
//! let client = client_config(roots)?;
//! let mut stream = TlsStream::connect(stream, client, "localhost", Duration::from_secs(5))?;
//! stream.write_all(&[0; 1_000_000])?; // encrypted: nothing is proven yet
//! let receipt = stream.finish().wait()?; // flush, close_notify, FIN, proof, close
//! assert!(receipt.level >= Some(Delivery::Acked));
//! assert_eq!(receipt.written, 1_000_000);
//! assert_eq!(reader.join().unwrap()?, (1_000_000, Some(End::Fin)));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod blocking;
mod conclusion;
mod config;
mod error;
mod incoming;
mod receipt;
mod session;
#[cfg(feature = "tokio")]
mod stream;

pub use config::{client_config, server_config};
pub use error::{Cause, Cut, Operation, TlsError, TlsFinishError, TlsUnproven};
pub use receipt::TlsReceipt;
/// rustls: its configurations and errors are part of this crate's interface.
pub use rustls;
#[cfg(feature = "tokio")]
pub use stream::TlsStream;
