//! The other host of an experiment over a real path, as a word of a command line.

use lastbyte_core::text::in_one_line;

const SSH: &str = "ssh://";

/// A host that an experiment can be made with.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// One that `lab serve` runs on.
    Serving(String, u16),
    /// One that ssh leads to.
    Ssh {
        /// As ssh takes it.
        target: String,
        /// That of ssh, if it is said.
        port: Option<u16>,
    },
}

/// Why a word names no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPlace {
    /// The port is none.
    #[error("`{0}` is no port of a host")]
    Port(String),
    /// There is no host in it.
    #[error("`{0}` names no host")]
    NoHost(String),
}

impl Place {
    /// What a word of a command line means; `None` where it is no other host.
    ///
    /// # Errors
    /// It names a host wrongly.
    pub fn of(word: &str) -> Result<Option<Self>, InvalidPlace> {
        let port_of = |port: &str| match port.parse::<u16>() {
            Ok(port @ 1..) => Ok(port),
            _ => Err(InvalidPlace::Port(in_one_line(port))),
        };
        if let Some(rest) = word.strip_prefix(SSH) {
            let rest = rest.trim_end_matches('/');
            let (target, port) = match split_port(rest) {
                Some((target, port)) => (target, Some(port_of(port)?)),
                None => (rest, None),
            };
            // ssh would take it for an option.
            let host = target.rsplit('@').next().unwrap_or_default();
            if host.is_empty() || target.starts_with('-') || host.starts_with('-') {
                return Err(InvalidPlace::NoHost(in_one_line(word)));
            }
            return Ok(Some(Self::Ssh { target: target.replace(['[', ']'], ""), port }));
        }
        if word.ends_with(".toml") || word.contains('/') {
            return Ok(None);
        }
        let Some((host, port)) = split_port(word) else { return Ok(None) };
        if host.is_empty() {
            return Err(InvalidPlace::NoHost(in_one_line(word)));
        }
        Ok(Some(Self::Serving(host.replace(['[', ']'], ""), port_of(port)?)))
    }
}

/// HOST and PORT of HOST:PORT. An address of IPv6 has to stand in brackets.
pub(super) fn split_port(word: &str) -> Option<(&str, &str)> {
    let (host, port) = word.rsplit_once(':')?;
    let bracketed = host.ends_with(']') && host.contains('[');
    (bracketed || !host.contains(':')).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_scenarios() {
        let serving = |host: &str, port| Some(Place::Serving(host.to_owned(), port));
        let ssh = |target: &str, port| Some(Place::Ssh { target: target.to_owned(), port });
        for (word, expected) in [
            ("usa-malaysia", None),
            ("paths/mine:1.toml", None),
            ("host:7", serving("host", 7)),
            ("192.0.2.7:40123", serving("192.0.2.7", 40123)),
            ("[2001:db8::1]:80", serving("2001:db8::1", 80)),
            ("2001:db8::1", None),
            ("ssh://host", ssh("host", None)),
            ("ssh://me@host:2222/", ssh("me@host", Some(2222))),
            ("ssh://me@[::1]:22", ssh("me@::1", Some(22))),
        ] {
            assert_eq!(Place::of(word).unwrap(), expected, "{word}");
        }
        for wrong in [
            ":7",
            "host:0",
            "host:http",
            "host:65536",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://me@-x",
        ] {
            assert!(Place::of(wrong).is_err(), "{wrong}");
        }
    }
}
