use lastbyte_core::sample::State::{Close, Established, Listen, SynSent};
use proptest::prelude::*;

use crate::event::{Again, Calls, Counters, Event, Role, Scope, Socket, SocketId, What};
use crate::finding::{Class, Code, Finding};
use crate::rules::Doctor;
use crate::story::{NETWORK, Story, address};

const HERE6: &str = "[2001:db8::1]:40000";
const THERE6: &str = "[2001:db8::7]:443";
const HERE4: &str = "192.0.2.1:40001";
const THERE4: &str = "198.51.100.7:443";

fn begin() -> Story {
    Story::new(Scope::Process(7)).process(7, "client")
}

fn connects(story: Story, id: u64, addresses: (&str, &str)) -> Story {
    story.socket(id, addresses, 7).call(id, (Close, SynSent), 7, None)
}

fn of_code(finding: &Finding) -> (u16, Class, bool) {
    (finding.code.0, finding.class, finding.harmless)
}

#[test]
fn a_connect_that_succeeds_is_nothing() {
    let story = connects(begin(), 1, (HERE4, THERE4)).after(217);
    assert_eq!(story.change(1, (SynSent, Established), None).after(3_000).findings(), []);
}

#[test]
fn lb401_the_first_family_does_not_answer() {
    // One after the other: the program waits for the first until it fails.
    let story = connects(begin(), 1, (HERE6, THERE6)).after(3_000).dies(1, SynSent, 113, None);
    let finding = connects(story, 2, (HERE4, THERE4))
        .after(20)
        .change(2, (SynSent, Established), None)
        .after(3_000)
        .finding();
    assert_eq!(of_code(&finding), (401, Class::Connect, false));
    assert_eq!(
        finding.sentence,
        "client (7) tried [2001:db8::7]:443 over IPv6 first, which could not be reached, known \
         after 3.0 s, and lost 3.0 s before it connected to 198.51.100.7:443 over IPv4."
    );
}

#[test]
fn lb401_beside_each_other_costs_the_delay_alone() {
    let story = |delay_ms| {
        let story = connects(begin(), 1, (HERE6, THERE6)).after(delay_ms);
        connects(story, 2, (HERE4, THERE4))
            .after(20)
            .change(2, (SynSent, Established), None)
            .call(1, (SynSent, Close), 7, None)
            .after(3_000)
    };
    assert_eq!(story(200).findings(), []);
    let finding = story(400).finding();
    assert_eq!((finding.code, finding.evidence["cost_ms"].clone()), (Code(401), 400.0.into()));
}

#[test]
fn lb402_a_syn_is_lost() {
    let lost = connects(begin(), 1, (HERE4, THERE4)).after(1_010).with(What::Retransmitted {
        socket: SocketId(1),
        why: Again::Syn,
        segments: 1,
    });
    let finding = lost.clone().after(10).change(1, (SynSent, Established), None).finding();
    assert_eq!(of_code(&finding), (402, Class::Connect, false));
    assert!(finding.sentence.contains("needed 1.0 s") && finding.sentence.contains("once more"));
    let finding = lost.clone().after(130_000).dies(1, SynSent, 110, None).after(3_000).finding();
    assert!(finding.sentence.contains("no answer from 198.51.100.7:443 in 131 s"), "{finding:?}");
    assert_eq!(lost.finding().code, Code(402));
}

#[test]
fn lb403_dead_addresses_first() {
    let refused = |story: Story, id: u64, took_ms| {
        connects(story, id, (HERE4, &format!("198.51.100.{id}:443")))
            .after(took_ms)
            .dies(id, SynSent, 111, None)
    };
    let finding = |story: Story| {
        connects(story, 9, (HERE4, "198.51.100.99:443"))
            .after(20)
            .change(9, (SynSent, Established), None)
            .after(3_000)
            .finding()
    };
    let two = finding(refused(refused(begin(), 1, 40), 2, 40));
    assert_eq!(of_code(&two), (403, Class::Connect, false));
    assert!(two.sentence.contains("2 dead addresses") && two.sentence.contains("lost 80 ms"));
    // `localhost`: no program listens on IPv6.
    let one = finding(refused(begin(), 1, 0));
    assert_eq!(of_code(&one), (403, Class::Note, true));
}

#[test]
fn attempts_of_others_or_long_ago_do_not_belong_together() {
    let story = connects(begin(), 1, (HERE6, THERE6)).after(400).dies(1, SynSent, 113, None);
    let later = connects(story.clone().after(1_500), 2, (HERE4, THERE4));
    assert_eq!(later.change(2, (SynSent, Established), None).after(3_000).findings(), []);
    let other = connects(story, 2, (HERE4, "198.51.100.7:80"));
    assert_eq!(other.change(2, (SynSent, Established), None).after(3_000).findings(), []);
}

fn listening() -> Story {
    let socket = Socket {
        id: SocketId(3),
        local: address("0.0.0.0:443"),
        peer: address("0.0.0.0:0"),
        mapped: false,
        network: Some(NETWORK),
        role: Role::Listens,
        subflow: false,
        earlier: false,
    };
    begin().with(What::Socket(socket)).holds(3, 7)
}

#[test]
fn lb404_a_full_listen_queue() {
    let overflows =
        |network| What::Counters(Counters { network, listen_overflows: 12, ..Counters::default() });
    let seen = |queue| listening().sample(3, Listen, (queue, 128), true).after(500);
    let finding = seen(129).with(overflows(NETWORK)).finding();
    assert_eq!(of_code(&finding), (404, Class::Connect, false));
    assert!(
        finding.sentence.contains("129 connections wait in an accept queue for 128"),
        "{finding:?}"
    );
    assert_eq!(seen(128).findings(), []);
    assert_eq!(seen(100).with(overflows(5)).findings(), []);
    // The only one that listens there.
    assert_eq!(seen(100).with(overflows(NETWORK)).finding().evidence["overflows"], 12_u64.into());
    // Full again and again: reported now and then.
    let again =
        (0..50).fold(listening(), |story, _| story.sample(3, Listen, (129, 128), true).after(100));
    assert_eq!(again.finding().times, 1);
}

#[test]
fn lb405_no_local_port_is_free() {
    let fails = |peer: &str| What::NotConnected { pid: 7, peer: address(peer), errno: 99 };
    let finding = (0..3).fold(begin(), |story, _| story.with(fails(THERE4))).finding();
    assert_eq!(of_code(&finding), (405, Class::Connect, false));
    assert_eq!(finding.evidence["failed_connects"], 3_u64.into());
    // A machine without IPv6.
    assert_eq!(begin().with(fails("[::1]:443")).findings(), []);
    let calls = |times| {
        let errors = vec![(115, 9), (99, times)];
        What::Calls(Calls { pid: 7, call: "connect".to_owned(), errors, ..Calls::default() })
    };
    assert_eq!(begin().with(calls(1)).findings(), []);
    assert_eq!(begin().with(calls(5)).finding().code, Code(405));
    // Each is reported: counted once.
    let both = begin().with(fails(THERE4)).with(calls(1)).finding();
    assert_eq!(both.evidence["failed_connects"], 1_u64.into());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Events in any order, twice or not at all: no panic, and nothing of any other class.
    #[test]
    fn no_order_of_events_confuses_the_rules(
        order in proptest::collection::vec((any::<proptest::sample::Index>(), 0_u64..3_000), 0..40),
    ) {
        let story = connects(begin(), 1, (HERE6, THERE6)).after(300);
        let story = connects(story, 2, (HERE4, THERE4))
            .change(2, (SynSent, Established), None)
            .dies(1, SynSent, 110, None)
            .with(What::NotConnected { pid: 7, peer: address(THERE4), errno: 99 })
            .with(What::Retransmitted { socket: SocketId(1), why: Again::Syn, segments: u32::MAX })
            .gone(1)
            .gone(2);
        let mut doctor = Doctor::new();
        let mut at_ns = 0;
        for (index, later_ms) in order {
            at_ns += later_ms * 1_000_000;
            doctor.take(&Event { at_ns, what: index.get(&story.events).what.clone() });
        }
        doctor.end();
        for finding in doctor.findings() {
            prop_assert!(finding.class != Class::Loss, "{:?}", finding);
        }
    }
}
