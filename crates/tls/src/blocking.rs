//! The same without an event loop: a call returns when it is done.

pub(crate) mod stream;

pub use stream::TlsStream;
