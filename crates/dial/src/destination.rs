//! Destinations, as programs write them.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::error::Undialed;
use crate::host::{BadHost, Host};

/// A host and port in one of several forms: `"example.org:443"`, `("example.org", 443)`, or a
/// socket address. Like [`std::net::ToSocketAddrs`], but it does not resolve names.
///
/// In a string an IPv6 address needs brackets: `[2001:db8::1]:443`.
pub trait ToDestination {
    /// The host and the port.
    fn to_destination(&self) -> Destination<'_>;
}

/// A host and a port to connect to: see [`ToDestination`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination<'a>(Written<'a>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Written<'a> {
    Address(SocketAddr),
    Host(&'a str, u16),
    Text(&'a str),
}

impl<'a> Destination<'a> {
    /// A host, by its name or address, and a port.
    #[must_use]
    pub fn new(host: &'a str, port: u16) -> Self {
        Self(Written::Host(host, port))
    }

    /// The host as written, and the port.
    ///
    /// # Errors
    /// When a string has no port, or an IPv6 address without brackets.
    pub(crate) fn parts(&self) -> Result<(Cow<'_, str>, u16), Undialed> {
        match self.0 {
            Written::Address(address) => Ok((host_of(address), address.port())),
            Written::Host(host, port) => Ok((host.into(), port)),
            Written::Text(text) => {
                let (host, port) = text.rsplit_once(':').ok_or(Undialed::NoPort)?;
                let port = port.parse().map_err(|_| Undialed::NoPort)?;
                if host.contains(':') && !host.starts_with('[') {
                    return Err(BadHost::Brackets.into());
                }
                Ok((host.into(), port))
            }
        }
    }

    /// The address, if it is one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        if let Written::Address(address) = self.0 {
            return Some(address);
        }
        let (host, port) = self.parts().ok()?;
        match Host::parse(&host, port) {
            Ok(Host::Literal(address)) => Some(address),
            Ok(Host::Name(_)) | Err(_) => None,
        }
    }

    /// Host and port for an error message; port 0 if there is none.
    pub(crate) fn shown(&self) -> (Cow<'_, str>, u16) {
        match (self.parts(), &self.0) {
            (Ok(parts), _) => parts,
            (Err(_), Written::Text(text)) => ((*text).into(), 0),
            (Err(_), _) => (Cow::default(), 0),
        }
    }
}

/// The text of an IP address, without a port.
fn host_of(address: SocketAddr) -> Cow<'static, str> {
    match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            format!("{}%{}", address.ip(), address.scope_id()).into()
        }
        address => address.ip().to_string().into(),
    }
}

impl<T: ToDestination + ?Sized> ToDestination for &T {
    fn to_destination(&self) -> Destination<'_> {
        (**self).to_destination()
    }
}

impl ToDestination for str {
    fn to_destination(&self) -> Destination<'_> {
        Destination(Written::Text(self))
    }
}

impl ToDestination for String {
    fn to_destination(&self) -> Destination<'_> {
        Destination(Written::Text(self))
    }
}

impl ToDestination for (&str, u16) {
    fn to_destination(&self) -> Destination<'_> {
        Destination(Written::Host(self.0, self.1))
    }
}

impl ToDestination for (String, u16) {
    fn to_destination(&self) -> Destination<'_> {
        Destination(Written::Host(&self.0, self.1))
    }
}

impl ToDestination for Destination<'_> {
    fn to_destination(&self) -> Destination<'_> {
        self.clone()
    }
}

/// What std can make an address of.
macro_rules! address {
    ($($kind:ty),*) => {$(
        impl ToDestination for $kind {
            fn to_destination(&self) -> Destination<'_> {
                Destination(Written::Address((*self).into()))
            }
        }
    )*};
}

address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(to: impl ToDestination) -> Result<(String, u16), Undialed> {
        let to = to.to_destination();
        to.parts().map(|(host, port)| (host.into_owned(), port))
    }

    #[test]
    fn a_host_and_a_port_are_written_in_many_ways() {
        let name = Ok(("example.org".to_owned(), 443));
        assert_eq!(parts("example.org:443"), name);
        assert_eq!(parts("example.org:443".to_owned()), name);
        assert_eq!(parts(("example.org", 443)), name);
        assert_eq!(parts(("example.org".to_owned(), 443)), name);
        let address = Ok(("192.0.2.1".to_owned(), 80));
        assert_eq!(parts("192.0.2.1:80"), address);
        assert_eq!(parts((Ipv4Addr::new(192, 0, 2, 1), 80)), address);
        assert_eq!(parts(SocketAddr::from(([192, 0, 2, 1], 80))), address);
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, 7);
        assert_eq!(parts(scoped), Ok(("fe80::1%7".to_owned(), 80)));
        assert_eq!(scoped.to_destination().address(), Some(scoped.into()));
    }

    #[test]
    fn an_ipv6_address_in_a_text_stands_in_brackets() {
        let there = "[2001:db8::1]:80".to_destination();
        assert_eq!(there.address(), Some("[2001:db8::1]:80".parse().unwrap()));
        assert_eq!(parts("2001:db8::1:80"), Err(BadHost::Brackets.into()));
    }

    #[test]
    fn a_text_without_a_port_is_refused_and_shown_whole() {
        for text in ["example.org", "example.org:", "example.org:https", "example.org:65536"] {
            assert_eq!(parts(text), Err(Undialed::NoPort), "{text}");
            assert_eq!(text.to_destination().shown().0, text);
        }
    }
}
