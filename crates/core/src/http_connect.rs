//! The proxy side of HTTP's method CONNECT: RFC 9110 section 9.3.6, RFC 9112 section 3.2.3.
//!
//! ```text
//!  CONNECT db.example:3306 HTTP/1.1              HTTP/1.1 200 Connection established
//!  Host: db.example:3306                  -->
//!  Proxy-Authorization: Basic dTpw               (then all bytes of both sides, as they are)
//!
//! ```
//!
//! A CONNECT request has no content: bytes after its head are for the destination. A head that
//! announces content is ambiguous, since one reader's data is another's second request, and is
//! refused (RFC 9112 section 11.2). A connection has one request: every response other than 200 is
//! the last.
//!
//! The status and `Proxy-Status` (RFC 9209) report a failure to the client. The details are only in
//! the log: a client need not know this side's addresses.

use std::net::Ipv6Addr;

use data_encoding::BASE64;
use httparse::{EMPTY_HEADER, Header, Request};

use crate::account::How;
use crate::request::{Credentials, Destination, Refusal, RequestReader, Step};

/// Reads one request. See the [module](self).
#[derive(Clone, Debug)]
pub struct HttpConnect {
    stage: Stage,
    /// Whether a client has to authenticate.
    authenticate: bool,
    buffer: Vec<u8>,
    /// How many bytes were searched for the end of the head.
    searched: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    /// The driver checks the credentials.
    Checking(Destination),
    Admitted(Destination),
    NotAdmitted,
    Over,
}

/// The contents of a head.
struct Head {
    destination: Destination,
    credentials: Option<Credentials>,
    bytes: usize,
}

/// The most fields that a head may have.
const MOST_FIELDS: usize = 64;

/// The most bytes of empty lines before a request: RFC 9112 section 2.2 requires accepting one
/// line.
const MOST_BLANK: usize = 4;

impl HttpConnect {
    /// Reads from the first byte on. With `authenticate` a client has to send credentials with the
    /// scheme Basic (RFC 7617).
    #[must_use]
    pub fn new(authenticate: bool) -> Self {
        Self { stage: Stage::Head, authenticate, buffer: Vec::new(), searched: 0 }
    }

    fn head(&mut self) -> Step {
        let blank = self.buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        // Other bytes are not HTTP, and may never contain an empty line.
        let first = self.buffer.get(blank);
        if blank > MOST_BLANK || first.is_some_and(|byte| !byte.is_ascii_alphabetic()) {
            return self.refuse(&NOT_HTTP);
        }
        if !self.has_end(blank) {
            let full = self.capacity() == 0;
            return if full { self.refuse(&TOO_LONG) } else { Step::More };
        }
        match parse(&self.buffer) {
            Ok(None) if self.capacity() == 0 => self.refuse(&TOO_LONG),
            Ok(None) => Step::More,
            Ok(Some(head)) => self.on_head(head),
            Err(no) => self.refuse(no),
        }
    }

    /// Whether there may be an empty line after the head. Each byte is searched once, so that a
    /// head that arrives byte by byte is parsed once.
    fn has_end(&mut self, blank: usize) -> bool {
        let from = self.searched.saturating_sub(2).max(blank);
        let rest = &self.buffer[from..];
        self.searched = self.buffer.len();
        rest.windows(2).any(|two| two == b"\n\n") || rest.windows(3).any(|three| three == b"\n\r\n")
    }

    fn on_head(&mut self, head: Head) -> Step {
        let Head { destination, credentials, bytes } = head;
        self.buffer.drain(..bytes);
        if !self.authenticate {
            self.stage = Stage::Over;
            return Step::Request(destination);
        }
        match credentials {
            Some(credentials) => {
                self.stage = Stage::Checking(destination);
                Step::Check(credentials)
            }
            None => self.refuse(&WHO),
        }
    }

    fn refuse(&mut self, no: &No) -> Step {
        self.stage = Stage::Over;
        Step::Refuse(Refusal { reply: no.response(), how: no.how, why: no.why })
    }
}

/// Parses a head; `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Head>, &'static No> {
    let mut fields = [EMPTY_HEADER; MOST_FIELDS];
    let mut request = Request::new(&mut fields);
    let bytes = match request.parse(bytes) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(&TOO_LONG),
        Err(_) => return Err(&NOT_HTTP),
    };
    match request.method {
        Some("CONNECT") => {}
        Some("HEAD") => return Err(&METHOD_OF_NO_CONTENT),
        _ => return Err(&METHOD),
    }
    let destination = request.path.and_then(authority).ok_or(&AUTHORITY)?;
    let fields = &*request.headers;
    let hosts = named(fields, "Host").count();
    if hosts > 1 || (hosts == 0 && request.version == Some(1)) {
        return Err(&HOST);
    }
    if named(fields, "Transfer-Encoding").next().is_some()
        || named(fields, "Content-Length").any(|value| value != b"0")
    {
        return Err(&CONTENT);
    }
    let mut answers = named(fields, "Proxy-Authorization");
    let credentials = answers.next().and_then(basic);
    // Two answers can be read in two ways.
    let credentials = credentials.filter(|_| answers.next().is_none());
    Ok(Some(Head { destination, credentials, bytes }))
}

fn named<'a>(fields: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| field.value)
}

/// The one form that a target of CONNECT has: `host:port`, an IPv6 address in brackets, the port never
/// left out (RFC 9112 section 3.2.3).
fn authority(text: &str) -> Option<Destination> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.to_string(),
        None if is_name(host) => host.to_owned(),
        None => return None,
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port != 0)?;
    Some(Destination { host, port })
}

/// Whether it is a name or an IPv4 address, as far as its characters go: what has a meaning in other
/// forms of a target (`@`, `/`, `?`, `#`, `%`) is none of them.
fn is_name(host: &str) -> bool {
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !host.is_empty() && host.bytes().all(is_of_a_name)
}

/// RFC 7617: the scheme, and name and password in base64, with a colon between.
fn basic(value: &[u8]) -> Option<Credentials> {
    let (scheme, rest) = value.split_at_checked("Basic ".len())?;
    let encoded = rest.trim_ascii();
    let decoded = BASE64.decode(encoded).ok()?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (name, password) = decoded.split_at(colon);
    Some(Credentials { name: name.to_vec(), password: password[1..].to_vec() })
}

impl RequestReader for HttpConnect {
    /// The longest head. What a client sends with it counts as long as it is not complete.
    const MOST: usize = 8192;

    fn put(&mut self, bytes: &[u8]) -> usize {
        let taken = &bytes[..bytes.len().min(self.capacity())];
        self.buffer.extend_from_slice(taken);
        taken.len()
    }

    fn capacity(&self) -> usize {
        Self::MOST - self.buffer.len()
    }

    fn next(&mut self) -> Step {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Head => {
                self.stage = Stage::Head;
                self.head()
            }
            Stage::Admitted(destination) => Step::Request(destination),
            Stage::NotAdmitted => self.refuse(&NOT_ADMITTED),
            stage @ (Stage::Checking(_) | Stage::Over) => {
                self.stage = stage;
                Step::More
            }
        }
    }

    fn on_checked(&mut self, admitted: bool) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Checking(destination) if admitted => Stage::Admitted(destination),
            Stage::Checking(_) => Stage::NotAdmitted,
            other => other,
        };
    }

    /// RFC 9110 section 15.5.9; a client that said nothing is owed nothing.
    fn timeout_reply(&self) -> Vec<u8> {
        if self.buffer.is_empty() { Vec::new() } else { TOO_LATE.response() }
    }

    fn into_rest(self) -> Vec<u8> {
        self.buffer
    }
}

/// The answer to a client that is connected. It has no content: the tunnel begins behind its head.
pub const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The answer to a client whose flow ended so before it was connected.
#[must_use]
pub fn failure(how: How) -> Vec<u8> {
    let (status, error) = match how {
        How::Refused => ("502 Bad Gateway", "connection_refused"),
        How::Unreachable => ("502 Bad Gateway", "destination_ip_unroutable"),
        How::Unresolved => ("502 Bad Gateway", "dns_error"),
        How::ConnectTimeout => ("504 Gateway Timeout", "connection_timeout"),
        How::NotAllowed => ("403 Forbidden", "http_request_denied"),
        How::Loop => ("502 Bad Gateway", "proxy_loop_detected"),
        How::TooManyFlows | How::TooManyOfClient | How::TooManyDials | How::NoDescriptors => {
            ("503 Service Unavailable", "connection_limit_reached")
        }
        How::Stopped => ("503 Service Unavailable", "destination_unavailable"),
        How::RequestTimeout => ("408 Request Timeout", "http_request_error"),
        How::BadRequest => ("400 Bad Request", "http_request_error"),
        _ => ("502 Bad Gateway", "proxy_internal_error"),
    };
    response(status, error, "", &format!("{how}\n"))
}

/// A refusal of a request, before anything was tried.
struct No {
    status: &'static str,
    /// A registered type of error (RFC 9209 section 2.3).
    error: &'static str,
    /// Fields of its own, each with its end of line.
    fields: &'static str,
    how: How,
    why: &'static str,
    has_content: bool,
}

impl No {
    const fn bad(status: &'static str, why: &'static str) -> Self {
        let error = "http_request_error";
        Self { status, error, fields: "", how: How::BadRequest, why, has_content: true }
    }

    const fn who(why: &'static str) -> Self {
        // RFC 7617 section 2.1.
        let fields = "Proxy-Authenticate: Basic realm=\"lastbyte\", charset=\"UTF-8\"\r\n";
        let how = How::Unauthenticated;
        let status = "407 Proxy Authentication Required";
        Self { fields, how, ..Self::bad(status, why) }
    }

    fn response(&self) -> Vec<u8> {
        let text = if self.has_content { format!("{}\n", self.why) } else { String::new() };
        response(self.status, self.error, self.fields, &text)
    }
}

const NOT_HTTP: No = No::bad("400 Bad Request", "this is no request of HTTP/1.1 or HTTP/1.0");
const TOO_LONG: No = No::bad(
    "431 Request Header Fields Too Large",
    "a request may have 8192 bytes and 64 fields, and this has more",
);
const METHOD: No = No {
    fields: "Allow: CONNECT\r\n",
    ..No::bad("405 Method Not Allowed", "this proxy makes tunnels, by the method CONNECT alone")
};
/// An answer to HEAD has no content (RFC 9110 section 9.3.2).
const METHOD_OF_NO_CONTENT: No = No { has_content: false, ..METHOD };
const AUTHORITY: No = No::bad(
    "400 Bad Request",
    "the target of CONNECT is host:port, the port from 1 to 65535, IPv6 in brackets",
);
/// RFC 9112 section 3.2.
const HOST: No = No::bad("400 Bad Request", "a request of HTTP/1.1 has one field Host");
const CONTENT: No = No::bad("400 Bad Request", "a request of CONNECT has no content");
const WHO: No = No::who("this proxy asks for a name and a password, by the scheme Basic");
const NOT_ADMITTED: No = No::who("the name and the password are no user's");
const TOO_LATE: No = No::bad("408 Request Timeout", "the request did not come in time");

fn response(status: &str, error: &str, fields: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!(
        "HTTP/1.1 {status}\r\n\
         Proxy-Status: lastbyte; error={error}\r\n\
         {fields}\
         Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\n\
         Connection: close\r\n\
         \r\n\
         {text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;
