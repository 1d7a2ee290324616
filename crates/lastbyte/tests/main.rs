//! The tests of the library's face from outside, one program of them all.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[cfg(feature = "tokio")]
mod http;
mod readme;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod servers;
