//! The messages of two hosts on the control connection of an experiment. Nothing here does I/O.
//!
//! # Protocol 1
//!
//! The near host connects to the far host by TCP. Numbers are big-endian. The handshake has this
//! form in every version of the protocol:
//!
//! ```text
//! near -> far   hello: "lastbyte lab" (12 bytes), protocol (u32), nonce (32 bytes)
//! far -> near   hello: the same of its own
//! near -> far   proof: HMAC-SHA256(key, "near proves" 0 near's hello, far's hello)
//! far -> near   proof: HMAC-SHA256(key, "far proves" 0 near's hello, far's hello)
//! ```
//!
//! The key is the text that `lab serve` prints, in lower case without dashes. It is never sent.
//! Either host closes the connection at a wrong proof; before a valid proof the far host sends only
//! its hello. Then the protocol numbers are compared: both hosts know both of them, and the proofs
//! cover them.
//!
//! Then come messages, each with its proof:
//!
//! ```text
//! length (u32), JSON of so many bytes, HMAC-SHA256(direction's key, number (u64) length JSON)
//! ```
//!
//! The number counts the messages of a direction from 0 and is not sent. The directions' keys are
//! HMAC-SHA256(key, label 0 hellos) with the labels "near to far" and "far to near", so that a
//! message that was repeated, reordered, left out, changed, or copied from another session or
//! direction has a wrong proof, and ends the session. The near host sends requests ([`Request`], at
//! most [`REQUEST_LIMIT`] bytes), and the far host responds to each ([`Response`], at most
//! [`RESPONSE_LIMIT`]), in turn:
//!
//! ```text
//! open -> opened, or busy        first, and once
//! ping -> pong
//! run  -> listening, or refused  numbers count from 0
//! end  -> done, or failed        for the run that is on
//! bye                            no answer: the experiment is over
//! ```
//!
//! A run's connections go to the port that `listening` names, and begin with the run's token, which
//! both sides derive: HMAC-SHA256(data's key, number of the run (u64)), the label of that key being
//! "runs". It is good for that run alone.
//!
//! # What is not protected
//!
//! Only the key is secret: an eavesdropper on the path can read the messages and the load, which is
//! generated. An attacker on the path can reset or slow connections, take over one that carries
//! load, or claim one with its token before the near host does; that falsifies or ends one run,
//! within its limits. It cannot command a host.

use std::fmt;
use std::str::FromStr;

use ring::hmac;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::Flow;
use crate::task::{Task, Token, random};

/// This program's version of the protocol.
pub const PROTOCOL: u32 = 1;
/// The longest request, in bytes of JSON.
pub const REQUEST_LIMIT: usize = 64 << 10;
/// The longest response, in bytes of JSON: it has the samples of a run.
pub const RESPONSE_LIMIT: usize = 64 << 20;

/// A request of the near host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Opens an experiment, or resumes one whose control connection was lost.
    Open {
        /// A random number of the near host: the same number resumes the same experiment.
        experiment: String,
        /// The near host's version of the program.
        version: String,
        /// The near host's kernel.
        kernel: String,
    },
    /// Requests a response and nothing else.
    Ping,
    /// Asks the far host to listen for a run.
    Run {
        /// Which run of this session, from 0.
        number: u64,
        /// The run's task.
        task: Task,
    },
    /// The near host has ended its part of the run.
    End {
        /// Which run.
        number: u64,
    },
    /// The experiment is over.
    Bye,
}

/// A response of the far host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The experiment may begin.
    Opened(Opened),
    /// Another experiment is running.
    Busy,
    /// To [`Request::Ping`].
    Pong,
    /// The far host listens for the run.
    Listening {
        /// The port, at the address of the control connection.
        port: u16,
    },
    /// The far host refuses this run; others may be possible.
    Refused(Refusal),
    /// The far host's results of the run.
    Done {
        /// Flows, each with the far host's side only.
        flows: Vec<Flow>,
    },
    /// The run failed.
    Failed(Refusal),
}

/// The far host's version and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its version of the program.
    pub version: String,
    /// Its kernel's release.
    pub kernel: String,
    /// The congestion controls that it can use.
    pub congestion: Vec<String>,
    /// How many more bytes it will receive, over all runs.
    pub most_bytes_up: u64,
    /// How many more bytes it will send, over all runs.
    pub most_bytes_down: u64,
    /// The longest run.
    pub most_seconds: u64,
}

/// Why the far host refuses a run, or a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The far host cannot use a congestion control.
    Congestion {
        /// Its name.
        name: String,
        /// The reason, and what to do about it.
        why: String,
    },
    /// The settings do not suit a real path.
    Unsuited(String),
    /// Anything else.
    Far(String),
}

/// The peer violated the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The first bytes are not those of a hello.
    #[error("the peer is no `lastbyte lab`")]
    NoHello,
    /// A proof is not made with our key.
    #[error("the key is not the same on both hosts")]
    WrongKey,
    /// Both have the key, and speak different versions.
    #[error(
        "the peer speaks protocol {theirs}, this host {ours}: use the same version of lastbyte on \
         both hosts"
    )]
    Version {
        /// Ours.
        ours: u32,
        /// The other side's.
        theirs: u32,
    },
    /// A message would be longer than is allowed.
    #[error("a message of {length} bytes was announced, and {limit} are allowed")]
    TooLong {
        /// In bytes.
        length: u64,
        /// In bytes.
        limit: usize,
    },
    /// A message has a wrong proof.
    #[error(
        "a message has a wrong proof: it was repeated, reordered, changed, or is not the peer's"
    )]
    Forged,
    /// A message has a valid proof and cannot be parsed.
    #[error("a message cannot be read: {0}")]
    Malformed(String),
    /// A valid message was not expected now.
    #[error("a message was not expected now")]
    UnexpectedMessage,
}

/// The secret that both hosts know and never send: 28 letters and digits, 140 random bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

/// Text that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is no key: it has 28 letters and digits, such as `lab serve` prints them")]
pub struct KeyError;

/// Letters and digits that are not easily confused (Crockford's base 32): i and l are read as 1, o
/// as 0.
const SYMBOLS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const KEY_SYMBOLS: usize = 28;

impl Key {
    /// A new one, from the kernel's random source.
    ///
    /// # Errors
    /// If the kernel's random source fails.
    pub fn new() -> std::io::Result<Self> {
        // 256 is a multiple of 32, so that all symbols are equally likely.
        let symbol = |byte: u8| char::from(SYMBOLS[usize::from(byte) % SYMBOLS.len()]);
        Ok(Self(random::<KEY_SYMBOLS>()?.map(symbol).iter().collect()))
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes())
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let symbols =
            text.trim().chars().filter(|c| *c != '-').map(|c| match c.to_ascii_lowercase() {
                'i' | 'l' => Ok('1'),
                'o' => Ok('0'),
                c if c.is_ascii() && SYMBOLS.contains(&(c as u8)) => Ok(c),
                _ => Err(KeyError),
            });
        // Stops at the first symbol too many, so that long text is not read to its end.
        let key = symbols.take(KEY_SYMBOLS + 1).collect::<Result<String, KeyError>>()?;
        if key.len() == KEY_SYMBOLS { Ok(Self(key)) } else { Err(KeyError) }
    }
}

/// Prints the key in groups of four, as it is typed.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, symbol) in self.0.chars().enumerate() {
            let dash = if place > 0 && place % 4 == 0 { "-" } else { "" };
            write!(f, "{dash}{symbol}")?;
        }
        Ok(())
    }
}

/// A secret is not for logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A side of the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connects and sends requests.
    Near,
    /// It listens and responds.
    Far,
}

/// The first message of each host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The host's version of the protocol.
    pub protocol: u32,
    nonce: [u8; 32],
}

impl Hello {
    /// Its length in bytes.
    pub const LENGTH: usize = 48;
    const MAGIC: &[u8; 12] = b"lastbyte lab";

    /// Our hello, with a fresh nonce.
    ///
    /// # Errors
    /// If the kernel's random source fails.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { protocol: PROTOCOL, nonce: random()? })
    }

    /// The hello as bytes to send.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..12].copy_from_slice(Self::MAGIC);
        bytes[12..16].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[16..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Parses a hello.
    ///
    /// # Errors
    /// [`ProtocolError::NoHello`].
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Result<Self, ProtocolError> {
        let (magic, rest) = bytes.split_at(12);
        let (protocol, nonce) = rest.split_at(4);
        if magic != Self::MAGIC {
            return Err(ProtocolError::NoHello);
        }
        let none = |_| ProtocolError::NoHello;
        Ok(Self {
            protocol: u32::from_be_bytes(protocol.try_into().map_err(none)?),
            nonce: nonce.try_into().map_err(none)?,
        })
    }
}

/// The length of a proof, in bytes.
pub const PROOF: usize = 32;

/// Two hellos, and the key that authenticates them.
#[derive(Debug)]
pub struct Handshake {
    key: hmac::Key,
    role: Role,
    hellos: [u8; 2 * Hello::LENGTH],
    theirs: u32,
    ours: u32,
}

impl Handshake {
    /// The handshake of one host, with its own hello and its peer's.
    #[must_use]
    pub fn new(key: &Key, role: Role, own: Hello, other: Hello) -> Self {
        let (near, far) = match role {
            Role::Near => (own, other),
            Role::Far => (other, own),
        };
        let mut hellos = [0; 2 * Hello::LENGTH];
        hellos[..Hello::LENGTH].copy_from_slice(&near.to_bytes());
        hellos[Hello::LENGTH..].copy_from_slice(&far.to_bytes());
        Self { key: key.hmac(), role, hellos, theirs: other.protocol, ours: own.protocol }
    }

    /// Proves to the peer that this host has the key.
    #[must_use]
    pub fn proof(&self) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(self.sign(Self::proves(self.role)).as_ref());
        proof
    }

    /// Checks the peer's proof, in constant time.
    ///
    /// # Errors
    /// [`ProtocolError::WrongKey`].
    pub fn check(&self, proof: &[u8; PROOF]) -> Result<(), ProtocolError> {
        let other = match self.role {
            Role::Near => Role::Far,
            Role::Far => Role::Near,
        };
        hmac::verify(&self.key, &self.labelled(Self::proves(other)), proof)
            .map_err(|_| ProtocolError::WrongKey)
    }

    /// The session, after both proofs were checked.
    ///
    /// # Errors
    /// [`ProtocolError::Version`].
    pub fn session(&self) -> Result<Session, ProtocolError> {
        if self.ours != self.theirs {
            return Err(ProtocolError::Version { ours: self.ours, theirs: self.theirs });
        }
        let key = |label| hmac::Key::new(hmac::HMAC_SHA256, self.sign(label).as_ref());
        let (up, down) = (key("near to far"), key("far to near"));
        let (send, receive, limit) = match self.role {
            Role::Near => (up, down, RESPONSE_LIMIT),
            Role::Far => (down, up, REQUEST_LIMIT),
        };
        Ok(Session {
            outbox: Outbox { key: send, count: 0 },
            inbox: Inbox { key: receive, count: 0, limit, bytes: Vec::new(), failed: None },
            runs: key("runs"),
        })
    }

    fn proves(role: Role) -> &'static str {
        match role {
            Role::Near => "near proves",
            Role::Far => "far proves",
        }
    }

    fn sign(&self, label: &str) -> hmac::Tag {
        hmac::sign(&self.key, &self.labelled(label))
    }

    /// Labels contain no zero byte, and the length of hellos is fixed, so that no two inputs are
    /// equal.
    fn labelled(&self, label: &str) -> Vec<u8> {
        [label.as_bytes(), &[0], &self.hellos].concat()
    }
}

/// The state of a connection after the handshake.
#[derive(Debug)]
pub struct Session {
    /// The messages to the peer.
    pub outbox: Outbox,
    /// The messages of the peer.
    pub inbox: Inbox,
    runs: hmac::Key,
}

impl Session {
    /// The token that a connection of a run must send.
    #[must_use]
    pub fn token(&self, run: u64) -> Token {
        let mut token = [0; 32];
        token.copy_from_slice(hmac::sign(&self.runs, &run.to_be_bytes()).as_ref());
        Token(token)
    }
}

/// Adds proofs to the messages of one direction.
#[derive(Debug)]
pub struct Outbox {
    key: hmac::Key,
    count: u64,
}

/// The length of a message's length field, in bytes.
const LENGTH: usize = 4;

impl Outbox {
    /// A message as bytes to send, with its proof.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] if it cannot be written as JSON, [`ProtocolError::TooLong`] if
    /// it is longer than the limit.
    pub fn seal(&mut self, message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
        let mut bytes = vec![0; LENGTH];
        serde_json::to_writer(&mut bytes, message)
            .map_err(|error| ProtocolError::Malformed(error.to_string()))?;
        let length = bytes.len() - LENGTH;
        let too_long = ProtocolError::TooLong { length: length as u64, limit: RESPONSE_LIMIT };
        if length > RESPONSE_LIMIT {
            return Err(too_long);
        }
        let length = u32::try_from(length).map_err(|_| too_long)?;
        bytes[..LENGTH].copy_from_slice(&length.to_be_bytes());
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.count.to_be_bytes());
        context.update(&bytes);
        bytes.extend_from_slice(context.sign().as_ref());
        self.count += 1;
        Ok(bytes)
    }
}

/// Receives the bytes of one direction, and checks and parses the messages in them.
///
/// It buffers the bytes since the last whole message. A caller that calls [`Inbox::take`] after
/// each [`Inbox::put`], and stops at an error, never buffers more than a message and a read.
#[derive(Debug)]
pub struct Inbox {
    key: hmac::Key,
    count: u64,
    limit: usize,
    bytes: Vec<u8>,
    failed: Option<ProtocolError>,
}

impl Inbox {
    /// Adds received bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Takes the next message; `None` until it has arrived completely.
    ///
    /// # Errors
    /// Why it is invalid. After an error no message is accepted.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ProtocolError> {
        match self.failed.clone().map_or_else(|| self.open(), Err) {
            Err(error) => {
                self.bytes = Vec::new();
                self.failed = Some(error.clone());
                Err(error)
            }
            message => message,
        }
    }

    fn open<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ProtocolError> {
        let Some((length, _)) = self.bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        let (limit, too_long) = (self.limit, u64::from(length));
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= limit)
            .ok_or(ProtocolError::TooLong { length: too_long, limit })?;
        let whole = LENGTH + length + PROOF;
        if self.bytes.len() < whole {
            return Ok(None);
        }
        let (sealed, proof) = self.bytes[..whole].split_at(LENGTH + length);
        // The proof covers the number and the bytes, and `verify` wants them in one slice.
        let numbered = [&self.count.to_be_bytes(), sealed].concat();
        hmac::verify(&self.key, &numbered, proof).map_err(|_| ProtocolError::Forged)?;
        let message = serde_json::from_slice(&sealed[LENGTH..])
            .map_err(|error| ProtocolError::Malformed(error.to_string()))?;
        self.count += 1;
        self.bytes.drain(..whole);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> (Session, Session) {
        let key = Key::new().unwrap();
        let (near, far) = (Hello::new().unwrap(), Hello::new().unwrap());
        let at_near = Handshake::new(&key, Role::Near, near, far);
        let at_far = Handshake::new(&key, Role::Far, far, near);
        at_far.check(&at_near.proof()).unwrap();
        at_near.check(&at_far.proof()).unwrap();
        (at_near.session().unwrap(), at_far.session().unwrap())
    }

    fn end(number: u64) -> Request {
        Request::End { number }
    }

    #[test]
    fn keys_are_typed_as_they_are_printed() {
        let key = Key::new().unwrap();
        let text = key.to_string();
        assert_eq!(text.len(), 34);
        assert_eq!(text.parse(), Ok(key.clone()));
        assert_eq!(text.to_uppercase().replace('-', "").replace('1', "l").parse(), Ok(key.clone()));
        assert_ne!(Key::new().unwrap(), key);
        let long = "0".repeat(29);
        let endless = "0".repeat(1 << 20);
        for wrong in ["", "-", "short", &text[1..], &long, &endless, &text.replace('-', "u")] {
            assert_eq!(wrong.parse::<Key>(), Err(KeyError), "{wrong}");
        }
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        let hello = Hello::new().unwrap();
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
        assert_eq!(Hello::from_bytes(&[0; Hello::LENGTH]), Err(ProtocolError::NoHello));
    }

    #[test]
    fn a_wrong_key_proves_nothing() {
        let (near, far) = (Hello::new().unwrap(), Hello::new().unwrap());
        let [right, wrong] = [Key::new().unwrap(), Key::new().unwrap()];
        let at_near = Handshake::new(&wrong, Role::Near, near, far);
        let at_far = Handshake::new(&right, Role::Far, far, near);
        assert_eq!(at_far.check(&at_near.proof()), Err(ProtocolError::WrongKey));
        assert_eq!(at_near.check(&at_far.proof()), Err(ProtocolError::WrongKey));
        // Its own proof, sent back, is none.
        assert_eq!(at_far.check(&at_far.proof()), Err(ProtocolError::WrongKey));
        // A proof made for another nonce is none.
        let before = Handshake::new(&right, Role::Near, near, Hello::new().unwrap());
        assert_eq!(at_far.check(&before.proof()), Err(ProtocolError::WrongKey));
    }

    #[test]
    fn versions_are_compared_after_the_proofs() {
        let key = Key::new().unwrap();
        let near = Hello::new().unwrap();
        let far = Hello { protocol: 7, ..Hello::new().unwrap() };
        let at_near = Handshake::new(&key, Role::Near, near, far);
        let at_far = Handshake::new(&key, Role::Far, far, near);
        assert_eq!(at_far.check(&at_near.proof()), Ok(()));
        assert_eq!(at_near.check(&at_far.proof()), Ok(()));
        let version = |ours, theirs| ProtocolError::Version { ours, theirs };
        assert_eq!(at_near.session().unwrap_err(), version(PROTOCOL, 7));
        assert_eq!(at_far.session().unwrap_err(), version(7, PROTOCOL));
        // A number changed on the path makes the proofs wrong.
        let lied = Handshake::new(&key, Role::Near, near, Hello { protocol: PROTOCOL, ..far });
        assert_eq!(at_far.check(&lied.proof()), Err(ProtocolError::WrongKey));
    }

    #[test]
    fn messages_come_whole_in_any_pieces() {
        let (mut near, mut far) = sessions();
        let sent: Vec<_> = (0..3).map(end).collect();
        let bytes: Vec<u8> =
            sent.iter().flat_map(|message| near.outbox.seal(message).unwrap()).collect();
        for size in [1, 7, bytes.len()] {
            let mut inbox = Inbox { count: 0, bytes: Vec::new(), failed: None, ..far.inbox };
            let mut came = Vec::new();
            for buffer in bytes.chunks(size) {
                inbox.put(buffer);
                while let Some(message) = inbox.take::<Request>().unwrap() {
                    came.push(message);
                }
            }
            assert_eq!(came, sent, "in pieces of {size}");
            far.inbox = inbox;
        }
    }

    #[test]
    fn messages_prove_their_place() {
        let refused = |bytes: &[&[u8]], far: &mut Session| {
            far.inbox.put(&bytes.concat());
            loop {
                match far.inbox.take::<Request>() {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error),
                }
            }
        };
        let forged = Some(ProtocolError::Forged);
        let (mut near, mut far) = sessions();
        let first = near.outbox.seal(&end(0)).unwrap();
        assert_eq!(refused(&[&first, &first], &mut far), forged, "repeated");
        assert_eq!(far.inbox.take::<Request>().unwrap_err(), ProtocolError::Forged, "and ended");

        let (mut near, mut far) = sessions();
        let others = near.outbox.seal(&end(0)).unwrap();
        assert_eq!(refused(&[&first], &mut far), forged, "of another session");
        let (mut near, mut far) = sessions();
        drop(near.outbox.seal(&end(0)).unwrap());
        assert_eq!(refused(&[&near.outbox.seal(&end(1)).unwrap()], &mut far), forged, "left out");
        let (_, mut far) = sessions();
        let own = far.outbox.seal(&end(0)).unwrap();
        assert_eq!(refused(&[&own], &mut far), forged, "sent back");
        for place in 0..others.len() {
            let (mut near, mut far) = sessions();
            let mut changed = near.outbox.seal(&end(0)).unwrap();
            changed[place] ^= 1;
            far.inbox.put(&changed);
            // A length that was made longer waits for the rest.
            let opened = far.inbox.take::<Request>();
            assert!(!matches!(opened, Ok(Some(_))), "changed at {place}");
        }
    }

    #[test]
    fn a_length_alone_ends_the_session() {
        let (mut near, mut far) = sessions();
        far.inbox.put(&u32::MAX.to_be_bytes());
        let too_long = |limit| ProtocolError::TooLong { length: u32::MAX.into(), limit };
        assert_eq!(far.inbox.take::<Request>().unwrap_err(), too_long(REQUEST_LIMIT));
        near.inbox.put(&u32::MAX.to_be_bytes());
        assert_eq!(near.inbox.take::<Response>().unwrap_err(), too_long(RESPONSE_LIMIT));
        assert_eq!(far.inbox.bytes.capacity(), 0);
    }

    #[test]
    fn each_run_has_a_token_of_its_own() {
        let (near, far) = sessions();
        let (others, _) = sessions();
        assert!(near.token(3) == far.token(3));
        assert!(near.token(3) != near.token(4));
        assert!(near.token(3) != others.token(3));
    }
}
