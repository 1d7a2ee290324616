//! The order of a host's addresses: RFC 6724 section 6, rules 1 to 8.
//!
//! Rules 9 (longest matching prefix) and 10 (keep the order) are left out on purpose: rule 9 made
//! all clients of a site connect to the same one of several equal addresses. Addresses that tie
//! under rules 1 to 8 are put in random order: see [`crate::race`].
//!
//! - [`compare`]: the rules, over the source address that the kernel would use for each destination.
//! - [`PolicyTable`]: precedences, labels and scopes, also from `gai.conf`.
//! - [`LocalAddresses`]: this host's own IPv6 addresses, as the kernel reports them.

mod local;
mod policy;
#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::net::IpAddr;

pub use local::{LocalAddress, LocalAddresses, is_tunnel};
pub use policy::{BadLine, MOST_RULES, PolicyTable, Problem};

/// An address to connect to, and the source address that the kernel would use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The address to connect to.
    pub address: IpAddr,
    /// The source address; `None` if there is no route to the destination (rule 1: it is unusable).
    pub source: Option<Source>,
}

/// A source address, with the properties that the rules compare.
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
    /// A source address without special properties.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self { address, deprecated: false, care_of: false, tunnel: false }
    }
}

/// Which of two destinations comes first under rules 1 to 8; `Equal` if they tie.
///
/// This is a total preorder, so it can sort a list: each rule compares one value of each
/// destination. Taken literally, rule 4 would break that: an address that is neither home nor
/// care-of would tie with both. Here such an address counts as home.
#[must_use]
pub fn compare(policy: &PolicyTable, a: &Destination, b: &Destination) -> Ordering {
    rank(policy, a).cmp(&rank(policy, b))
}

/// What the rules compare, in their order: the smaller value comes first, `false` before `true`.
/// Without a source, the rules that need one tie (RFC 6724, section 6).
fn rank(policy: &PolicyTable, destination: &Destination) -> impl Ord + use<> {
    let Destination { address, source } = *destination;
    let with_source = |is: fn(&Source) -> bool| source.as_ref().is_some_and(is);
    let differs = |attribute: fn(&PolicyTable, IpAddr) -> u32| {
        source.is_some_and(|source| attribute(policy, source.address) != attribute(policy, address))
    };
    (
        // Rule 1: Avoid unusable destinations. "If DB is known to be unreachable or if Source(DB) is
        // undefined, then prefer DA."
        source.is_none(),
        // Rule 2: Prefer matching scope. "If Scope(DA) = Scope(Source(DA)) and Scope(DB) <>
        // Scope(Source(DB)), then prefer DA."
        differs(PolicyTable::scope),
        // Rule 3: Avoid deprecated addresses. "If Source(DA) is deprecated and Source(DB) is not, then
        // prefer DB."
        with_source(|source| source.deprecated),
        // Rule 4: Prefer home addresses. "If Source(DA) is just a home address and Source(DB) is just a
        // care-of address, then prefer DA."
        with_source(|source| source.care_of),
        // Rule 5: Prefer matching label. "If Label(Source(DA)) = Label(DA) and Label(Source(DB)) <>
        // Label(DB), then prefer DA."
        differs(PolicyTable::label),
        // Rule 6: Prefer higher precedence. "If Precedence(DA) > Precedence(DB), then prefer DA."
        Reverse(policy.precedence(address)),
        // Rule 7: Prefer native transport. "If DA is reached via an encapsulating transition mechanism
        // (e.g., IPv6 in IPv4) and DB is not, then prefer DB."
        with_source(|source| source.tunnel),
        // Rule 8: Prefer smaller scope. "If Scope(DA) < Scope(DB), then prefer DA."
        policy.scope(address),
    )
}
