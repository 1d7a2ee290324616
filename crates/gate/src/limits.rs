//! Admits clients: those beyond a limit are refused before they cost anything.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use lastbyte_core::account::How;
use lastbyte_sys::process;

use crate::config::{Limits, Prefix};
use crate::lock::lock;

/// Counts flows, flows of each client, and connections that are being opened. All threads share it.
///
/// A flow takes one of [`SHARDS`] locks twice, when it comes and when it goes, for one step in a hash
/// table; two flows of one client meet at one lock, of others seldom. Nothing is locked while data
/// moves. A client's entry goes with its last flow.
#[derive(Debug)]
pub(crate) struct Admission {
    most_flows: AtomicUsize,
    most_of_client: AtomicUsize,
    most_dials: AtomicUsize,
    flows: AtomicUsize,
    dials: AtomicUsize,
    clients: [Mutex<HashMap<Client, usize>>; SHARDS],
    /// Decides which lock is a client's: clients cannot choose it.
    chance: RandomState,
}

/// How many locks the clients are spread over.
const SHARDS: usize = 16;

impl Admission {
    /// Without any flow.
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let Limits { flows, flows_per_client, dials } = limits;
        Arc::new(Self {
            most_flows: flows.into(),
            most_of_client: flows_per_client.into(),
            most_dials: dials.into(),
            flows: 0.into(),
            dials: 0.into(),
            clients: Default::default(),
            chance: RandomState::new(),
        })
    }

    /// Sets other limits. Open flows stay open.
    pub(crate) fn set(&self, limits: Limits) {
        let Limits { flows, flows_per_client, dials } = limits;
        self.most_flows.store(flows, Ordering::Relaxed);
        self.most_of_client.store(flows_per_client, Ordering::Relaxed);
        self.most_dials.store(dials, Ordering::Relaxed);
    }

    /// Admits a client that has just connected, if its address is in this list; an empty list allows all.
    ///
    /// # Errors
    /// [`How::NotAllowed`], [`How::TooManyFlows`], [`How::TooManyOfClient`].
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: IpAddr,
        allow: &[Prefix],
    ) -> Result<FlowPass, How> {
        if !allow.is_empty() && !allow.iter().any(|prefix| prefix.contains(client)) {
            return Err(How::NotAllowed);
        }
        if !take_one(&self.flows, &self.most_flows) {
            return Err(How::TooManyFlows);
        }
        // From here on it is released when it is dropped.
        let mut pass = FlowPass { admission: Arc::clone(self), client: None, of_client: 0 };
        let client = Client::of(client);
        let most = self.most_of_client.load(Ordering::Relaxed);
        {
            let mut clients = self.shard(client);
            let count = clients.entry(client).or_default();
            if *count < most {
                *count += 1;
                (pass.client, pass.of_client) = (Some(client), *count);
            } else if *count == 0 {
                clients.remove(&client);
            }
        }
        if pass.client.is_some() { Ok(pass) } else { Err(How::TooManyOfClient) }
    }

    /// Allows one more connection to be opened.
    ///
    /// # Errors
    /// [`How::TooManyDials`].
    pub(crate) fn dial(self: &Arc<Self>) -> Result<DialPass, How> {
        if take_one(&self.dials, &self.most_dials) {
            Ok(DialPass(Arc::clone(self)))
        } else {
            Err(How::TooManyDials)
        }
    }

    /// Flows that are open now.
    #[cfg(test)]
    pub(crate) fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }

    /// Connections that are being opened now.
    #[cfg(test)]
    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }

    /// Clients that have a flow now.
    #[cfg(test)]
    pub(crate) fn clients(&self) -> usize {
        self.clients.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, client: Client) -> MutexGuard<'_, HashMap<Client, usize>> {
        let number = usize::try_from(self.chance.hash_one(client) % SHARDS as u64);
        lock(&self.clients[number.unwrap_or_default()])
    }
}

/// Counts one more, if there is room.
fn take_one(count: &AtomicUsize, most: &AtomicUsize) -> bool {
    let most = most.load(Ordering::Relaxed);
    let more = |count: usize| (count < most).then_some(count + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// How many flows the descriptors of this process allow: two for each, after those that are open now and
/// some for the resolver, the control socket and racing connects. To be called before there are flows.
/// Where it cannot be known there is no limit, and the kernel reports when descriptors have run out.
pub(crate) fn flows_by_descriptors() -> usize {
    /// Descriptors that are open only now and then.
    const OTHERS: usize = 16;
    let open = fs::read_dir("/proc/self/fd").map(Iterator::count);
    let most = process::descriptor_limits().map(|(own, _)| usize::try_from(own));
    match (most, open) {
        // One flow is always admitted: the kernel knows better than this estimate.
        (Ok(Ok(most)), Ok(open)) => (most.saturating_sub(open + OTHERS) / 2).max(1),
        _ => usize::MAX,
    }
}

/// An admitted flow. It counts until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct FlowPass {
    admission: Arc<Admission>,
    /// `None` while it does not count as its client's.
    client: Option<Client>,
    of_client: usize,
}

impl FlowPass {
    /// How many flows its client had when it was admitted, with this one.
    pub(crate) fn of_client(&self) -> usize {
        self.of_client
    }
}

impl Drop for FlowPass {
    fn drop(&mut self) {
        if let Some(client) = self.client {
            let mut clients = self.admission.shard(client);
            match clients.get_mut(&client) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    clients.remove(&client);
                }
            }
        }
        self.admission.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection that may be opened. It counts until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct DialPass(Arc<Admission>);

impl Drop for DialPass {
    fn drop(&mut self) {
        self.0.dials.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The client that a flow counts for: an IPv4 address, or the first 64 bits of an IPv6 address. A host can
/// choose its addresses from such a whole network (RFC 4291 section 2.5.1, RFC 8981), so that a limit for
/// each address would be none. All clients with link-local addresses count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    V4(u32),
    V6(u64),
}

impl Client {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments().map(u64::from);
                Self::V6(a << 48 | b << 32 | c << 16 | d)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn admission(flows: usize, flows_per_client: usize, dials: usize) -> Arc<Admission> {
        Admission::new(Limits { flows, flows_per_client, dials })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(text: &str) -> Prefix {
        let (address, bits) = text.split_once('/').unwrap();
        Prefix { address: address.parse().unwrap(), bits: bits.parse().unwrap() }
    }

    fn refused(admission: &Arc<Admission>, client: &str) -> How {
        admission.admit(address(client), &[]).unwrap_err()
    }

    #[test]
    fn what_is_over_a_bound_is_refused_and_comes_in_when_others_have_gone() {
        let admission = admission(3, 2, 1);
        let let_in = |client: &str| admission.admit(address(client), &[]).unwrap();
        let (first, second) = (let_in("192.0.2.1"), let_in("192.0.2.1"));
        assert_eq!((first.of_client(), second.of_client()), (1, 2));
        assert_eq!(refused(&admission, "192.0.2.1"), How::TooManyOfClient);
        assert_eq!(admission.flows(), 2, "who is turned away does not count");
        let third = let_in("192.0.2.2");
        assert_eq!(refused(&admission, "192.0.2.3"), How::TooManyFlows);
        assert_eq!((admission.flows(), admission.clients()), (3, 2));
        drop(first);
        assert_eq!(let_in("192.0.2.1").of_client(), 2);
        drop((second, third));
        assert_eq!((admission.flows(), admission.clients()), (0, 0), "nothing is left");

        let dial = admission.dial().unwrap();
        assert_eq!(admission.dial().unwrap_err(), How::TooManyDials);
        drop(dial);
        let dial = admission.dial().unwrap();
        assert_eq!(admission.dials(), 1);
        drop(dial);
        assert_eq!(admission.dials(), 0);
    }

    #[test]
    fn other_bounds_hold_from_now_on() {
        let admission = admission(1, 1, 1);
        let first = admission.admit(address("192.0.2.1"), &[]).unwrap();
        admission.set(Limits { flows: 2, flows_per_client: 2, dials: 0 });
        let second = admission.admit(address("192.0.2.1"), &[]).unwrap();
        assert_eq!(admission.dial().unwrap_err(), How::TooManyDials);
        admission.set(Limits { flows: 1, flows_per_client: 0, dials: 0 });
        drop(first);
        assert_eq!(refused(&admission, "192.0.2.1"), How::TooManyFlows);
        drop(second);
        assert_eq!(refused(&admission, "192.0.2.1"), How::TooManyOfClient);
        assert_eq!((admission.flows(), admission.clients()), (0, 0));
    }

    #[test]
    fn a_client_of_ipv6_is_its_network() {
        let admission = admission(10, 1, 1);
        let _held = admission.admit(address("2001:db8:0:1::1"), &[]).unwrap();
        assert_eq!(refused(&admission, "2001:db8:0:1:ffff::2"), How::TooManyOfClient);
        let _next = admission.admit(address("2001:db8:0:2::1"), &[]).unwrap();
        let _v4 = admission.admit(address("192.0.2.1"), &[]).unwrap();
        assert_eq!(refused(&admission, "::ffff:192.0.2.1"), How::TooManyOfClient);
    }

    #[test]
    fn only_those_on_the_list_are_let_in() {
        let admission = admission(10, 10, 1);
        let list = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"].map(prefix);
        for (client, allowed) in [
            ("10.255.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.6", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
            ("::1", false),
        ] {
            let pass = admission.admit(address(client), &list);
            assert_eq!(pass.is_ok(), allowed, "{client}");
            if let Err(how) = pass {
                assert_eq!(how, How::NotAllowed);
            }
        }
    }

    #[test]
    fn prefixes_are_of_their_family() {
        for (text, client, contained) in [
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("0.0.0.0/0", "::ffff:1.2.3.4", true),
            ("::/0", "2001:db8::1", true),
            ("::/0", "1.2.3.4", false),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "11.9.9.9", false),
            ("::ffff:0.0.0.0/96", "1.2.3.4", true),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("192.0.2.128/25", "192.0.2.127", false),
            ("2001:db8::1/128", "2001:db8::1", true),
            ("2001:db8::1/128", "2001:db8::", false),
            ("192.0.2.1/255", "192.0.2.1", true),
            ("192.0.2.1/255", "192.0.2.2", false),
        ] {
            assert_eq!(prefix(text).contains(address(client)), contained, "{client} in {text}");
        }
    }

    #[test]
    fn threads_never_let_in_too_many() {
        let admission = admission(50, 20, 5);
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                let admission = &admission;
                scope.spawn(move || {
                    let client = IpAddr::from([192, 0, 2, thread % 4]);
                    for _ in 0..2_000 {
                        let passes: Vec<_> =
                            (0..9).filter_map(|_| admission.admit(client, &[]).ok()).collect();
                        let dial = admission.dial();
                        assert!(admission.flows() <= 50 && admission.dials() <= 5);
                        assert!(passes.iter().all(|pass| (1..=20).contains(&pass.of_client())));
                        drop((passes, dial));
                    }
                });
            }
        });
        assert_eq!((admission.flows(), admission.dials(), admission.clients()), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn a_prefix_contains_what_begins_alike(
            own in any::<u128>(),
            other in any::<u128>(),
            bits in 0..=128_u8,
        ) {
            let contains = |own: IpAddr, bits: u8, other: IpAddr| {
                Prefix { address: own, bits }.contains(other)
            };
            let (own, other) = (own | 1 << 127, other | 1 << 127);
            let alike = (own ^ other).leading_zeros() >= u32::from(bits);
            let [a, b] = [own, other].map(|bits| IpAddr::V6(bits.into()));
            prop_assert_eq!(contains(a, bits, b), alike);
            let [own, other] = [own, other].map(|bits| (bits >> 96) as u32);
            let bits = bits % 33;
            let alike = (own ^ other).leading_zeros() >= u32::from(bits);
            let [a, b] = [own, other].map(|bits| IpAddr::V4(bits.into()));
            prop_assert_eq!(contains(a, bits, b), alike);
        }
    }
}
