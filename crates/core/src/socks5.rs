//! The server side of SOCKS 5 (RFC 1928), with user name and password (RFC 1929).
//!
//! ```text
//!  client                                server
//!  05 n methods ---------------------->
//!               <----------------------  05 00, or 05 02 where there are users; 05 FF: none will do
//!  01 n name n password -------------->                                          (with 02 alone)
//!               <----------------------  01 00, or 01 01: not admitted
//!  05 01 00 type address port -------->
//!               <----------------------  05 reply 00 type address port
//! ```
//!
//! The only command is CONNECT. A name is passed on unchanged: this side resolves it. A client may
//! send the next message before it has the reply to the last, and bytes after its request are kept
//! for the destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::account::How;
use crate::request::{Credentials, Destination, Refusal, RequestReader, Step};

/// Reads one request. See the [module](self).
#[derive(Clone, Debug)]
pub struct Socks5 {
    stage: Stage,
    /// Whether a client has to authenticate.
    authenticate: bool,
    buffer: Vec<u8>,
}

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Methods,
    Password,
    /// Nothing, until the credentials are checked.
    Checking,
    Admitted,
    NotAdmitted,
    Request,
    Over,
}

impl Socks5 {
    /// Reads from the first byte on. With `authenticate` a client has to send a user name and
    /// password. Without, it need not, and a client that offers only that is refused.
    #[must_use]
    pub fn new(authenticate: bool) -> Self {
        Self { stage: Stage::Methods, authenticate, buffer: Vec::new() }
    }

    /// RFC 1928 section 3: version, and the methods that the client offers.
    fn methods(&mut self) -> Step {
        match self.buffer.first() {
            Some(&VERSION) => {}
            Some(4) => return self.refuse(Vec::new(), BAD, "it speaks version 4 of SOCKS"),
            Some(_) => return self.refuse(Vec::new(), BAD, "it does not speak SOCKS 5"),
            None => return Step::More,
        }
        let Some(count) = self.buffer.get(1).copied().map(usize::from) else { return Step::More };
        let Some(offered) = self.buffer.get(2..2 + count) else { return Step::More };
        let (wanted, stage) = if self.authenticate {
            (BY_PASSWORD, Stage::Password)
        } else {
            (BY_NOTHING, Stage::Request)
        };
        if !offered.contains(&wanted) {
            let reply = vec![VERSION, NO_METHOD];
            return if self.authenticate {
                self.refuse(
                    reply,
                    How::Unauthenticated,
                    "it does not offer a user name and password",
                )
            } else {
                self.refuse(reply, BAD, "it does not offer to connect without a password")
            };
        }
        self.read(2 + count, stage);
        Step::Reply(vec![VERSION, wanted])
    }

    /// RFC 1929 section 2: version, name and password.
    fn password(&mut self) -> Step {
        if self.buffer.first().is_some_and(|version| *version != PASSWORD_VERSION) {
            let reply = vec![PASSWORD_VERSION, NOT_ADMITTED];
            return self.refuse(
                reply,
                BAD,
                "its user name and password are not in the format of RFC 1929",
            );
        }
        let Some((name, rest)) = self.buffer.get(1..).and_then(counted) else { return Step::More };
        let Some((password, _)) = counted(rest) else { return Step::More };
        let credentials = Credentials { name: name.to_vec(), password: password.to_vec() };
        let read = 3 + name.len() + password.len();
        self.read(read, Stage::Checking);
        Step::Check(credentials)
    }

    /// RFC 1928 section 4: version, command, a reserved byte that means nothing, and the destination.
    fn request(&mut self) -> Step {
        let [version, command, _, kind, rest @ ..] = &self.buffer[..] else { return Step::More };
        if *version != VERSION {
            return self.refuse_with(Rep::GeneralFailure, "its request is not one of SOCKS 5");
        }
        let (host, after) = match *kind {
            IPV4 => match rest.split_first_chunk::<4>() {
                Some((bytes, after)) => (Some(Ipv4Addr::from(*bytes).to_string()), after),
                None => return Step::More,
            },
            IPV6 => match rest.split_first_chunk::<16>() {
                Some((bytes, after)) => (Some(Ipv6Addr::from(*bytes).to_string()), after),
                None => return Step::More,
            },
            NAME => match counted(rest) {
                Some((name, after)) => (host(name), after),
                None => return Step::More,
            },
            _ => {
                let text = "its address is of a type that SOCKS 5 does not have";
                return self.refuse_with(Rep::AddressTypeNotSupported, text);
            }
        };
        let Some((port, early)) = after.split_first_chunk::<2>() else { return Step::More };
        let (port, read) = (u16::from_be_bytes(*port), self.buffer.len() - early.len());
        match (*command, host) {
            (CONNECT, Some(host)) if port != 0 => {
                self.read(read, Stage::Over);
                Step::Request(Destination { host, port })
            }
            (CONNECT, Some(_)) => self.refuse_with(Rep::GeneralFailure, "it requests port 0"),
            (CONNECT, None) => self.refuse_with(Rep::GeneralFailure, "it requests an invalid host"),
            (2 | 3, _) => {
                let text = "it requests another command than CONNECT";
                self.refuse_with(Rep::CommandNotSupported, text)
            }
            _ => self.refuse_with(Rep::CommandNotSupported, "it requests an unknown command"),
        }
    }

    /// Drops the bytes of the message, and goes on.
    fn read(&mut self, bytes: usize, next: Stage) {
        self.buffer.drain(..bytes);
        self.stage = next;
    }

    fn refuse_with(&mut self, rep: Rep, why: &'static str) -> Step {
        self.refuse(reply(rep, None), BAD, why)
    }

    fn refuse(&mut self, reply: Vec<u8>, how: How, why: &'static str) -> Step {
        self.stage = Stage::Over;
        Step::Refuse(Refusal { reply, how, why })
    }
}

const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
/// The methods: none, and that of RFC 1929.
const BY_NOTHING: u8 = 0;
const BY_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xFF;
const NOT_ADMITTED: u8 = 1;
const CONNECT: u8 = 1;
/// The types of addresses.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const BAD: How = How::BadRequest;

/// What is counted by the byte in front of it, and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

/// A host's name: not empty, in UTF-8, without control characters and spaces.
fn host(bytes: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(bytes).ok()?;
    let is_of_none = |char: char| char.is_control() || char.is_whitespace();
    (!name.is_empty() && !name.contains(is_of_none)).then(|| name.to_owned())
}

impl RequestReader for Socks5 {
    /// The longest message: a name and a password of 255 bytes each.
    const MOST: usize = 513;

    fn put(&mut self, bytes: &[u8]) -> usize {
        let taken = &bytes[..bytes.len().min(self.capacity())];
        self.buffer.extend_from_slice(taken);
        taken.len()
    }

    fn capacity(&self) -> usize {
        Self::MOST - self.buffer.len()
    }

    fn next(&mut self) -> Step {
        match self.stage {
            Stage::Methods => self.methods(),
            Stage::Password => self.password(),
            Stage::Request => self.request(),
            Stage::Admitted => {
                self.stage = Stage::Request;
                Step::Reply(vec![PASSWORD_VERSION, 0])
            }
            Stage::NotAdmitted => {
                let reply = vec![PASSWORD_VERSION, NOT_ADMITTED];
                self.refuse(reply, How::Unauthenticated, "its name and password are no user's")
            }
            Stage::Checking | Stage::Over => Step::More,
        }
    }

    fn on_checked(&mut self, admitted: bool) {
        if self.stage == Stage::Checking {
            self.stage = if admitted { Stage::Admitted } else { Stage::NotAdmitted };
        }
    }

    /// Only a request has an answer that says something else than yes.
    fn timeout_reply(&self) -> Vec<u8> {
        match self.stage {
            Stage::Request => reply(Rep::GeneralFailure, None),
            _ => Vec::new(),
        }
    }

    fn into_rest(self) -> Vec<u8> {
        self.buffer
    }
}

/// What a reply says (RFC 1928 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rep {
    /// Connected.
    Succeeded = 0,
    /// Something else.
    GeneralFailure = 1,
    /// "Connection not allowed by ruleset".
    NotAllowed = 2,
    /// No way led there.
    NetworkUnreachable = 3,
    /// There is no such host.
    HostUnreachable = 4,
    /// It refused.
    ConnectionRefused = 5,
    /// Nobody answered in time. "TTL expired" is what other servers too say for it, and nothing else
    /// can be meant: no client sets a TTL.
    TtlExpired = 6,
    /// BIND and UDP ASSOCIATE.
    CommandNotSupported = 7,
    /// An address of no type that there is.
    AddressTypeNotSupported = 8,
}

impl Rep {
    /// What is said to a client of a flow that ended so before it was connected.
    #[must_use]
    pub fn of(how: How) -> Self {
        match how {
            How::Refused => Self::ConnectionRefused,
            How::Unreachable => Self::NetworkUnreachable,
            How::Unresolved => Self::HostUnreachable,
            How::ConnectTimeout => Self::TtlExpired,
            How::NotAllowed | How::Loop => Self::NotAllowed,
            _ => Self::GeneralFailure,
        }
    }
}

/// The reply to a request, with the address that we connected from, where there is one.
#[must_use]
pub fn reply(rep: Rep, bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into());
    let mut bytes = vec![VERSION, rep as u8, 0];
    match bound.ip().to_canonical() {
        IpAddr::V4(address) => {
            bytes.push(IPV4);
            bytes.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(IPV6);
            bytes.extend_from_slice(&address.octets());
        }
    }
    bytes.extend_from_slice(&bound.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
