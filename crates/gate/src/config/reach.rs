//! Where a proxy may connect to.

use std::net::IpAddr;

use super::{Kind, Route};

impl Route {
    /// Whether a flow of this route may connect to this address, whatever name it was found by.
    ///
    /// A fixed target was chosen by the operator. A proxy on loopback may reach everything: its clients are
    /// on this host, and could connect themselves. A proxy for other hosts may reach what the network has,
    /// but not what trusts connections from this host: loopback, and link-local addresses. A list in
    /// [`Route::reach`] overrides this, in both directions.
    #[must_use]
    pub fn may_reach(&self, address: IpAddr) -> bool {
        if matches!(self.kind, Kind::Forward(_)) {
            return true;
        }
        if self.reach.is_empty() {
            return self.listen.ip().to_canonical().is_loopback() || !is_near(address);
        }
        self.reach.iter().any(|prefix| prefix.contains(address))
    }
}

/// Whether an address is this host's own or its link's, by its form: loopback, link-local (RFC 3927, RFC
/// 4291 section 2.5.6; 169.254.169.254 is the metadata service of clouds), and this network (0.0.0.0/8,
/// `::`), which Linux treats as loopback.
pub(super) fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: [&str; 9] = [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "fe80::1",
        "0.1.2.3",
    ];
    const FAR: [&str; 4] = ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"];

    fn reached(word: &str, reach: &[&str], addresses: &[&str]) -> Vec<bool> {
        let mut route: Route = word.parse().unwrap();
        route.reach = reach.iter().map(|prefix| prefix.parse().unwrap()).collect();
        addresses.iter().map(|address| route.may_reach(address.parse().unwrap())).collect()
    }

    #[test]
    fn a_proxy_that_others_reach_keeps_what_is_near_to_itself() {
        for word in ["socks5://0.0.0.0:1080", "http-connect://192.0.2.7:3128", "socks5://[::]:1"] {
            assert_eq!(reached(word, &[], &NEAR), [false; 9]);
            assert_eq!(reached(word, &[], &FAR), [true; 4]);
        }
    }

    #[test]
    fn on_loopback_all_is_reached_and_fixed_targets_always_are() {
        for word in ["socks5://[::1]:1080", "http-connect://3128", "0.0.0.0:1=127.0.0.1:2"] {
            assert_eq!(reached(word, &[], &NEAR), [true; 9]);
            assert_eq!(reached(word, &[], &FAR), [true; 4]);
        }
        assert_eq!(reached("0.0.0.0:1=127.0.0.1:2", &["10.0.0.0/8"], &FAR), [true; 4]);
    }

    #[test]
    fn a_list_is_all_that_is_reached() {
        let reach = ["127.0.0.0/8", "10.0.0.0/8"];
        for word in ["socks5://0.0.0.0:1080", "http-connect://3128"] {
            assert_eq!(reached(word, &reach, &FAR), [false, true, false, false]);
            let near = [true, true, false, true, false, false, false, false, false];
            assert_eq!(reached(word, &reach, &NEAR), near);
        }
    }
}
