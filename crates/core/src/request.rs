//! What a client requests of a proxy: the types shared by [`crate::socks5`] and
//! [`crate::http_connect`].
//!
//! Both are machines without I/O, and driven alike: bytes go in by [`RequestReader::put`], what is to be done
//! with them comes out of [`RequestReader::next`]. They keep at most [`RequestReader::MOST`] bytes, whatever is sent.

use std::fmt;

use crate::account::How;

/// A machine that reads one request, without I/O.
pub trait RequestReader {
    /// The most bytes that it buffers.
    const MOST: usize;

    /// Takes bytes from the client, up to its capacity, and returns how many. After [`Step::More`]
    /// the capacity is at least 1.
    fn put(&mut self, bytes: &[u8]) -> usize;

    /// How many bytes [`RequestReader::put`] would take now.
    fn capacity(&self) -> usize;

    /// What to do next. Call it after each [`RequestReader::put`] and after each completed step.
    fn next(&mut self) -> Step;

    /// The answer to [`Step::Check`]: whether the credentials are valid.
    fn on_checked(&mut self, admitted: bool);

    /// The reply for a client that did not complete its request in time. Empty if the protocol has
    /// none.
    fn timeout_reply(&self) -> Vec<u8>;

    /// The bytes that the client sent after its request, as far as they were read.
    fn into_rest(self) -> Vec<u8>;
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Read more bytes from the client.
    More,
    /// Send these bytes to the client.
    Reply(Vec<u8>),
    /// Check these credentials, then call [`RequestReader::on_checked`].
    Check(Credentials),
    /// The client requests this destination. The protocol's own reply reports success or failure.
    Request(Destination),
    /// Refuse the client: there will be no request.
    Refuse(Refusal),
}

/// The destination that a client requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// A name or an address as the client wrote it, without brackets. It is not empty and has no
    /// spaces or control characters. The resolver decides whether it is valid.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

/// The credentials that a client sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub name: Vec<u8>,
    /// The password, left out of `Debug`.
    pub password: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credentials").field(&String::from_utf8_lossy(&self.name)).finish()
    }
}

/// Why there is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reply for the client. Empty if the protocol has none.
    pub reply: Vec<u8>,
    /// [`How::BadRequest`] or [`How::Unauthenticated`].
    pub how: How,
    /// The reason, as a sentence.
    pub why: &'static str,
}

#[cfg(test)]
mod tests;
