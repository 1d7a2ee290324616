//! The tests of streams over TLS, one program of them all.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[cfg(feature = "tokio")]
mod descriptors;
mod finish;
#[cfg(feature = "tokio")]
mod over_tokio;
mod stream_end;
mod support;
