//! What a client asks of a proxy, whichever protocol it asks by: the words that [`crate::socks5`] and
//! [`crate::http_connect`] share.
//!
//! Both are machines without I/O, and driven alike: bytes go in by [`RequestReader::put`], what is to be done
//! with them comes out of [`RequestReader::next`]. They keep at most [`RequestReader::MOST`] bytes, whatever is sent.

use std::fmt;

use crate::account::How;

/// A machine that reads one request.
pub trait RequestReader {
    /// The most bytes that it keeps.
    const MOST: usize;

    /// Takes bytes from the client: as many as there is room for. Returns how many. There is always
    /// room for one where [`RequestReader::next`] said [`Step::More`].
    fn put(&mut self, bytes: &[u8]) -> usize;

    /// How many bytes [`RequestReader::put`] would take.
    fn capacity(&self) -> usize;

    /// What is to be done next, after each [`RequestReader::put`] and after each step that was done.
    fn next(&mut self) -> Step;

    /// The answer to [`Step::Check`]: whether these are a user's name and password.
    fn on_checked(&mut self, admitted: bool);

    /// What the client is to be told before it is given up, because it did not ask in time. Empty
    /// where the protocol has no such words.
    fn timeout_reply(&self) -> Vec<u8>;

    /// What the client sent behind its request, as far as it was taken.
    fn into_rest(self) -> Vec<u8>;
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// More bytes are needed.
    More,
    /// These bytes are to be sent to the client.
    Reply(Vec<u8>),
    /// Somebody is to say whether these are a user's: [`RequestReader::on_checked`].
    Check(Credentials),
    /// The client asks for this. It hears of success or failure by the protocol's own reply.
    Request(Destination),
    /// There is no request, and there will be none.
    Refuse(Refusal),
}

/// Where a client wants to be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// A name or an address, without brackets, as the client wrote it: not empty, without spaces and
    /// control characters. Whether it is one is for the resolver to say.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

/// Who a client says it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub name: Vec<u8>,
    /// The password. It is never shown.
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
    /// What the client is to be told. Empty where the protocol has no words for it.
    pub reply: Vec<u8>,
    /// In one word: [`How::BadRequest`] or [`How::Unauthenticated`].
    pub how: How,
    /// In a sentence.
    pub why: &'static str,
}

#[cfg(test)]
mod tests;
