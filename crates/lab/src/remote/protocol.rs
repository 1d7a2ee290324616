//! What two hosts say to each other on the control connection of an experiment. Nothing here does
//! I/O.
//!
//! # Protocol 1
//!
//! The near host connects to the far one by TCP. Numbers are big-endian. First, in this form in every
//! version of the protocol:
//!
//! ```text
//! near -> far   hello: "lastbyte lab" (12 bytes), protocol (u32), nonce (32 bytes)
//! far -> near   hello: the same of its own
//! near -> far   proof: HMAC-SHA256(key, "near proves" 0 near's hello, far's hello)
//! far -> near   proof: HMAC-SHA256(key, "far proves" 0 near's hello, far's hello)
//! ```
//!
//! The key is the text that `lab serve` prints, in small letters without dashes. It is never sent.
//! Either side ends the connection at a wrong proof; the far one says nothing before a right one but
//! its hello. Only then are the numbers of the protocol compared: both sides know both of them, and
//! nobody else can have made them differ.
//!
//! From then on messages, each with what proves it:
//!
//! ```text
//! length (u32), JSON of so many bytes, HMAC-SHA256(direction's key, number (u64) length JSON)
//! ```
//!
//! The number counts the messages of a direction from 0 and is not sent. The directions' keys are
//! HMAC-SHA256(key, label 0 hellos) with the labels "near to far" and "far to near", so that a message
//! that was repeated, reordered, left out, changed, or brought from another session or direction
//! proves nothing, and ends the session. The near host asks ([`Request`], at most
//! [`REQUEST_LIMIT`] bytes), the far host answers each ([`Response`], at most [`RESPONSE_LIMIT`]), in
//! turn:
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
//! Nothing is secret but the key: who listens on the way can read the messages and the load, which
//! is made up. Who can change what is on the way can cut or slow connections, take over one that
//! carries load, or claim one by its token before the host that it belongs to; that falsifies or
//! ends the one run, within its limits. It cannot command a host.

use std::fmt;
use std::str::FromStr;

use ring::hmac;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::Flow;
use crate::task::{Task, Token, random};

/// The version of the protocol that this program speaks.
pub const PROTOCOL: u32 = 1;
/// The most that the near host may say at once, in bytes of JSON.
pub const REQUEST_LIMIT: usize = 64 << 10;
/// The most that the far host may say at once, in bytes of JSON: the samples of a run.
pub const RESPONSE_LIMIT: usize = 64 << 20;

/// What the near host asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Begins an experiment, or goes on with one whose control connection was lost.
    Open {
        /// Drawn by the near host: who comes with the same goes on with the same experiment.
        experiment: String,
        /// The near host's version of the program.
        version: String,
        /// The near host's kernel.
        kernel: String,
    },
    /// Asks for an answer, and nothing else.
    Ping,
    /// Asks the far host to listen for a run.
    Run {
        /// Which run of this session, from 0.
        number: u64,
        /// What it is.
        task: Task,
    },
    /// The near host's part of the run is over.
    End {
        /// Which run.
        number: u64,
    },
    /// The experiment is over.
    Bye,
}

/// What the far host answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The experiment may begin.
    Opened(Opened),
    /// Another experiment is on.
    Busy,
    /// To [`Request::Ping`].
    Pong,
    /// The far host listens for the run.
    Listening {
        /// On the address that the control connection goes to.
        port: u16,
    },
    /// The run cannot be, and others may.
    Refused(Refusal),
    /// What the far host saw of the run.
    Done {
        /// Flows of which it knows one side.
        flows: Vec<Flow>,
    },
    /// The run came to nothing.
    Failed(Refusal),
}

/// What the far host is, and what it allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its version of the program.
    pub version: String,
    /// Its kernel's release.
    pub kernel: String,
    /// The congestion controls that it may use.
    pub congestion: Vec<String>,
    /// What is left of the bytes that it takes, over all runs.
    pub most_bytes_up: u64,
    /// What is left of the bytes that it sends, over all runs.
    pub most_bytes_down: u64,
    /// The longest run.
    pub most_seconds: u64,
}

/// Why a run cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The far host may not use a congestion control.
    Congestion {
        /// Its name.
        name: String,
        /// What to do about it.
        why: String,
    },
    /// A real path cannot be set like that.
    Unsuited(String),
    /// Anything else.
    Far(String),
}

/// The other side did not keep to the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The first bytes are not those of a hello.
    #[error("what speaks there is no `lastbyte lab`")]
    NoHello,
    /// A proof is not made with our key.
    #[error("the key is not the same on both hosts")]
    WrongKey,
    /// Both have the key, and speak different versions.
    #[error(
        "protocol {theirs} is spoken there, and {ours} here: use the same version of lastbyte on \
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
    /// A message does not prove itself.
    #[error("a message was repeated, reordered, changed, or came from somebody else")]
    Forged,
    /// A message that proves itself means nothing.
    #[error("a message cannot be read: {0}")]
    Malformed(String),
    /// A message that means something, but not now.
    #[error("a message came out of turn")]
    UnexpectedMessage,
}

/// What both hosts know and never send: 28 letters and digits, 140 bits of chance.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

/// A key that is not written as one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is no key: it has 28 letters and digits, such as `lab serve` prints them")]
pub struct KeyError;

/// Letters and digits that are not taken for each other (Crockford's base 32): i and l are read as
/// 1, o as 0.
const SYMBOLS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const KEY_SYMBOLS: usize = 28;

impl Key {
    /// A new one, that nobody can guess.
    ///
    /// # Errors
    /// Without the kernel's source of chance.
    pub fn new() -> std::io::Result<Self> {
        // 256 is a multiple of 32: each symbol is as likely as the others.
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
        // A text without end is not read to its end.
        let key = symbols.take(KEY_SYMBOLS + 1).collect::<Result<String, KeyError>>()?;
        if key.len() == KEY_SYMBOLS { Ok(Self(key)) } else { Err(KeyError) }
    }
}

/// As it is printed and typed: in groups of four.
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
    /// It connects and asks.
    Near,
    /// It listens and answers.
    Far,
}

/// The first bytes of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of the protocol that it speaks.
    pub protocol: u32,
    nonce: [u8; 32],
}

impl Hello {
    /// How many bytes it is.
    pub const LENGTH: usize = 48;
    const MAGIC: &[u8; 12] = b"lastbyte lab";

    /// Ours, with a nonce that was never there before.
    ///
    /// # Errors
    /// Without the kernel's source of chance.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { protocol: PROTOCOL, nonce: random()? })
    }

    /// As it is sent.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..12].copy_from_slice(Self::MAGIC);
        bytes[12..16].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[16..].copy_from_slice(&self.nonce);
        bytes
    }

    /// As it came.
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

/// How long a proof is, in bytes.
pub const PROOF: usize = 32;

/// Two hellos, and a key to prove that they are both sides' own.
#[derive(Debug)]
pub struct Handshake {
    key: hmac::Key,
    role: Role,
    hellos: [u8; 2 * Hello::LENGTH],
    theirs: u32,
    ours: u32,
}

impl Handshake {
    /// That of one side, with its own hello and the other's.
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

    /// What proves to the other side that this one has the key.
    #[must_use]
    pub fn proof(&self) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(self.sign(Self::proves(self.role)).as_ref());
        proof
    }

    /// Checks the other side's proof, in a time that does not depend on where it is wrong.
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

    /// The session, once both proofs were right.
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

    /// No label has a zero in it, and the hellos have one length: no two of these are alike.
    fn labelled(&self, label: &str) -> Vec<u8> {
        [label.as_bytes(), &[0], &self.hellos].concat()
    }
}

/// What both sides have in common after the handshake.
#[derive(Debug)]
pub struct Session {
    /// What this side says.
    pub outbox: Outbox,
    /// What the other side says.
    pub inbox: Inbox,
    runs: hmac::Key,
}

impl Session {
    /// What a connection of a run must show.
    #[must_use]
    pub fn token(&self, run: u64) -> Token {
        let mut token = [0; 32];
        token.copy_from_slice(hmac::sign(&self.runs, &run.to_be_bytes()).as_ref());
        Token(token)
    }
}

/// Seals messages of one direction.
#[derive(Debug)]
pub struct Outbox {
    key: hmac::Key,
    count: u64,
}

/// What stands before the JSON of a message.
const LENGTH: usize = 4;

impl Outbox {
    /// A message, as it is sent.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] where it cannot be written as JSON, [`ProtocolError::TooLong`]
    /// where it is longer than any may be.
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

/// Takes bytes of one direction, and opens the messages in them.
///
/// It holds what came since the last whole message. Who asks [`Inbox::take`] after each piece that he
/// puts in, and stops at an error, never holds more than one message and a piece.
#[derive(Debug)]
pub struct Inbox {
    key: hmac::Key,
    count: u64,
    limit: usize,
    bytes: Vec<u8>,
    failed: Option<ProtocolError>,
}

impl Inbox {
    /// Takes what came.
    pub fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The next message; `None` until all of it is there.
    ///
    /// # Errors
    /// What is wrong with it. After that nothing more is opened.
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
        // Two parts would need a copy to be checked; the number comes first in it.
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
        // Who changes a number on the way breaks the proofs.
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
