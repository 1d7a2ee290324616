//! What to dial: an address, or a name to ask for.

use std::net::{IpAddr, SocketAddr};

/// A host as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address; the port is the one to dial. IPv6 with its scope, where one was given.
    Literal(SocketAddr),
    /// A name to resolve.
    Name(String),
}

impl Host {
    /// Reads a host: `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]`, `fe80::1%eth0`, or a name.
    ///
    /// # Errors
    /// Says what no name can be.
    pub fn parse(text: &str, port: u16) -> Result<Self, BadHost> {
        if text.is_empty() {
            return Err(BadHost::Empty);
        }
        Ok(match text.parse::<IpAddr>() {
            Ok(address) => Self::Literal(SocketAddr::new(address, port)),
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

/// Why a text is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHost {
    /// There is nothing.
    #[error("the host is empty: give a name or an address")]
    Empty,
}
