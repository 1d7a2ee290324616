//! Parses routes, addresses and targets, as in the arguments of a command.
//!
//! A route is `LISTEN=TARGET[,TARGET...]`, or `socks5://LISTEN` or `http-connect://LISTEN`. A port
//! alone listens on loopback: `3306=db.example:3306` is `127.0.0.1:3306=db.example:3306`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use super::{Choice, Forward, Kind, LegOptions, Route, Target, Times, Users};

/// Why a text cannot be parsed: one sentence, with what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

/// The name of the route is its address; the rest is by default.
impl FromStr for Route {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (address, kind) = match text.split_once("://") {
            Some(("socks5", address)) => (address, Kind::Socks5(Users::default())),
            Some(("http-connect", address)) => (address, Kind::HttpConnect(Users::default())),
            Some((scheme, _)) => {
                return Err(ParseError(format!(
                    "{text:?}: {scheme:?} is no kind of route: write socks5://LISTEN or \
                     http-connect://LISTEN, or LISTEN=TARGET"
                )));
            }
            None => {
                let (address, targets) = text.split_once('=').ok_or_else(|| {
                    ParseError(format!(
                        "{text:?} is no route: write LISTEN=TARGET, such as \
                         127.0.0.1:3306=db.example:3306, or name a file that ends in .toml"
                    ))
                })?;
                let targets: Result<_, _> = targets.split(',').map(str::parse).collect();
                let forward = Forward { targets: targets?, choice: Choice::default() };
                (address, Kind::Forward(forward))
            }
        };
        let listen = listen(address)?;
        Ok(Self::new(listen, kind))
    }
}

impl Route {
    /// A route of this kind, with its address as its name, and the rest by default.
    #[must_use]
    pub fn new(listen: SocketAddr, kind: Kind) -> Self {
        Self {
            name: Arc::from(listen.to_string()),
            listen,
            kind,
            allow: Vec::new(),
            reach: Vec::new(),
            client: LegOptions::default(),
            upstream: LegOptions::default(),
            times: Times::default(),
        }
    }
}

/// An address to listen on: `127.0.0.1:3306`, `[::1]:3306`, or a port alone, on 127.0.0.1.
///
/// # Errors
/// The error says what would be right. Names are refused, as their addresses may change.
pub fn listen(text: &str) -> Result<SocketAddr, ParseError> {
    if !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit()) {
        let port = port(text, text)?;
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let right = match text.rsplit_once(':') {
        Some(("" | "*", port)) => {
            format!("write {port} for this machine alone, or 0.0.0.0:{port} for every address")
        }
        Some(("localhost", port)) => format!("write 127.0.0.1:{port}, or {port} alone"),
        _ if text.parse::<IpAddr>().is_ok() => "it has no port: write 127.0.0.1:3306".to_owned(),
        _ => "write an address and a port, such as 127.0.0.1:3306 or [::1]:3306, or a port alone"
            .to_owned(),
    };
    Err(ParseError(format!("{text:?} is no address to listen on: {right}")))
}

/// A host and a port: `db.example:3306`, `192.0.2.1:3306`, `[2001:db8::1]:3306`.
impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let example = "write HOST:PORT, such as db.example:3306 or [2001:db8::1]:3306";
        let (host, digits) = text
            .rsplit_once(':')
            .ok_or_else(|| ParseError(format!("{text:?} has no port: {example}")))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(ParseError(format!("{text:?}: an IPv6 address needs brackets: {example}")));
        }
        if bare
            .is_some_and(|bare| bare.split('%').next().unwrap_or(bare).parse::<IpAddr>().is_err())
        {
            return Err(ParseError(format!("{text:?} is no IPv6 address: {example}")));
        }
        let port = port(digits, text)?;
        if port == 0 {
            return Err(ParseError(format!("{text:?}: port 0 cannot be connected to")));
        }
        let host = bare.unwrap_or(host);
        let foreign = |one: char| one.is_control() || one.is_whitespace() || "/@=,[]".contains(one);
        if host.is_empty() || host.len() > LONGEST_NAME || host.contains(foreign) {
            return Err(ParseError(format!("{text:?} has no valid host: {example}")));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// The longest name that DNS has, in bytes (RFC 1035 section 2.3.4).
const LONGEST_NAME: usize = 255;

fn port(digits: &str, of: &str) -> Result<u16, ParseError> {
    let is_number = !digits.is_empty() && digits.bytes().all(|one| one.is_ascii_digit());
    let port = digits.parse().ok().filter(|_| is_number);
    port.ok_or_else(|| ParseError(format!("{of:?}: {digits:?} is no port: write 1 to 65535")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read() {
        for (word, listen, leads) in [
            ("127.0.0.1:3306=db.example:3306", "127.0.0.1:3306", "db.example:3306"),
            ("3306=db:3306", "127.0.0.1:3306", "db:3306"),
            ("[::1]:3306=[2001:db8::1]:3307", "[::1]:3306", "[2001:db8::1]:3307"),
            ("0.0.0.0:3307=127.0.0.1:3306", "0.0.0.0:3307", "127.0.0.1:3306"),
            ("80=a:1,b:2", "127.0.0.1:80", "a:1 b:2"),
            ("0=[fe80::1%2]:9", "127.0.0.1:0", "[fe80::1%2]:9"),
            ("socks5://127.0.0.1:1080", "127.0.0.1:1080", "socks5"),
            ("socks5://1080", "127.0.0.1:1080", "socks5"),
            ("http-connect://[::1]:3128", "[::1]:3128", "http-connect"),
        ] {
            let route: Route = word.parse().unwrap();
            assert_eq!((route.listen.to_string(), &*route.name), (listen.to_owned(), listen));
            let target = match &route.kind {
                Kind::Forward(forward) => {
                    let targets = forward.targets.iter().map(Target::to_string);
                    targets.collect::<Vec<_>>().join(" ")
                }
                Kind::Socks5(_) => "socks5".to_owned(),
                Kind::HttpConnect(_) => "http-connect".to_owned(),
            };
            assert_eq!(target, leads, "{word}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, expected) in [
            ("3306", "is no route: write LISTEN=TARGET"),
            ("gate.tml", "ends in .toml"),
            ("=db:1", "\"\" is no address to listen on"),
            (":80=db:1", "write 80 for this machine alone, or 0.0.0.0:80"),
            ("*:80=db:1", "0.0.0.0:80"),
            ("localhost:80=db:1", "127.0.0.1:80"),
            ("127.0.0.1=db:1", "it has no port"),
            ("::1=db:1", "no address to listen on"),
            ("99999=db:1", "\"99999\" is no port"),
            ("80=db", "\"db\" has no port"),
            ("80=db:", "is no port"),
            ("80=db:0", "port 0"),
            ("80=db:+1", "is no port"),
            ("80=:1", "no valid host"),
            ("80=a b:1", "no valid host"),
            ("80=http://a:1", "\"80=http\" is no kind"),
            ("80=2001:db8::1:80", "needs brackets"),
            ("80=[db]:80", "is no IPv6 address"),
            ("80=a:1,", "\"\" has no port"),
            ("socks4://1080", "\"socks4\""),
        ] {
            let error = text.parse::<Route>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
