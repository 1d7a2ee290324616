use lastbyte_core::sample::State::{self, Close, CloseWait, Established, FinWait1, FinWait2};
use proptest::prelude::*;

use crate::event::Role;
use crate::event::{
    Actor, Changed, Counters, Counts, Ending, Event, Precision, Process, Scope, SocketId, Tier,
    What,
};
use crate::finding::{Class, Code, Evidence, Finding};
use crate::rules::Doctor;
use crate::story::{NETWORK, Story, counts};

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "198.51.100.7:80";

/// `sender` (7) with socket 1 and, on the same machine, `receiver` (9) with socket 2.
fn both(scope: Scope) -> Story {
    Story::new(scope)
        .process(7, "sender")
        .socket(1, (HERE, THERE), 7)
        .process(9, "receiver")
        .socket(2, (THERE, HERE), 9)
}

fn one(scope: Scope) -> Story {
    Story::new(scope).process(7, "sender").socket(1, (HERE, THERE), 7)
}

fn of_code(finding: &Finding) -> (u16, Class, bool, Option<u64>) {
    (finding.code.0, finding.class, finding.harmless, finding.bytes)
}

fn word(finding: &Finding, name: &str) -> Evidence {
    finding.evidence.get(name).cloned().unwrap_or_else(|| panic!("no {name}: {finding:#?}"))
}

/// A close with 5 bytes unread, of which `acked` of 100,000 written bytes were acked.
fn closed_with_unread(story: Story, start: u32, acked: u32) -> Story {
    let at_close = counts(start, [100_000, 60_000.max(acked), acked, 50, 45]);
    story
        .after(50)
        .call(1, (Established, Close), 7, Some(at_close))
        .aborts(1, "TCP_ABORT_ON_CLOSE", 7, Some(at_close))
        .gone(1)
}

#[test]
fn lb101_says_at_most_where_the_peer_is_elsewhere() {
    let finding = closed_with_unread(one(Scope::Machine), 0, 20_000).after(500).finding();
    assert_eq!(of_code(&finding), (101, Class::Loss, false, Some(80_000)));
    assert_eq!(word(&finding, "exact"), "at most".into());
    assert_eq!(word(&finding, "unsent_bytes"), 40_000_u32.into());
    assert_eq!(word(&finding, "unread_bytes"), 5_u32.into());
    assert_eq!(word(&finding, "reset_reason"), "TCP_ABORT_ON_CLOSE".into());
    assert_eq!(
        finding.sentence,
        "sender (7) closed its connection to 198.51.100.7:80 with 5 bytes of input unread, so that \
         the kernel sent a reset: of what it had written 40,000 to 80,000 bytes did not arrive; \
         the peer takes what was unread for delivered."
    );
}

#[test]
fn lb101_is_exact_where_both_ends_are_here_even_if_numbers_wrap() {
    for start in [0, u32::MAX - 55_000, u32::MAX - 99_999] {
        // What was in flight arrived: 60,000 of 100,000.
        let at_reset = counts(start, [50, 50, 50, 60_000, 10_000]);
        let story = closed_with_unread(both(Scope::Process(7)), start, 20_000)
            .after(100)
            .reset_comes(2, at_reset)
            .change(2, (Established, Close), Some(at_reset))
            .after(500);
        let finding = story.finding();
        assert_eq!(of_code(&finding), (101, Class::Loss, false, Some(40_000)));
        assert_eq!(word(&finding, "exact"), "yes".into());
    }
}

#[test]
fn the_other_end_of_a_long_path_is_waited_for() {
    let at_reset = counts(0, [50, 50, 50, 60_000, 10_000]);
    let story = closed_with_unread(both(Scope::Process(7)), 0, 20_000)
        .after(1_000)
        .reset_comes(2, at_reset)
        .change(2, (Established, Close), Some(at_reset))
        .after(500);
    assert_eq!(of_code(&story.finding()), (101, Class::Loss, false, Some(40_000)));
    assert_eq!(word(&story.finding(), "exact"), "yes".into());
}

#[test]
fn lb101_is_a_note_where_all_was_acked() {
    let finding = closed_with_unread(one(Scope::Machine), 0, 100_000).after(500).finding();
    assert_eq!(of_code(&finding), (101, Class::Note, true, Some(0)));
}

#[test]
fn lb101_is_a_note_where_only_a_farewell_was_on_its_way() {
    // An HTTPS client: its close_notify has just been sent, the server's tickets are unread.
    let at_close = counts(0, [824, 824, 800, 50, 45]);
    let story = one(Scope::Machine)
        .call(1, (Established, Close), 7, Some(at_close))
        .aborts(1, "TCP_ABORT_ON_CLOSE", 7, Some(at_close))
        .after(500);
    assert_eq!(of_code(&story.finding()), (101, Class::Note, true, Some(24)));
}

#[test]
fn the_peers_fin_is_not_unread_data() {
    // CLOSE-WAIT, the FIN not read, nothing else: Linux closes in order, and so the change is to
    // LAST-ACK. An abort there is one.
    let at_close = counts(0, [9_000, 5_000, 5_000, 51, 50]);
    let story = one(Scope::Machine)
        .change(1, (Established, CloseWait), Some(counts(0, [9_000, 5_000, 5_000, 51, 50])))
        .call(1, (CloseWait, Close), 7, Some(at_close))
        .aborts(1, "TCP_STATE", 7, Some(at_close))
        .after(500);
    let finding = story.finding();
    assert_eq!(of_code(&finding), (103, Class::Loss, false, Some(4_000)));
    assert_eq!(word(&finding, "unread_bytes"), 0_u32.into());
}

#[test]
fn the_orderly_end_is_no_finding() {
    let sent = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    let acked = counts(0, [9_001, 9_001, 9_001, 50, 50]);
    let ends = counts(0, [9_001, 9_001, 9_001, 51, 50]);
    let active = one(Scope::Machine)
        .call(1, (Established, FinWait1), 7, Some(sent))
        .after(100)
        .change(1, (FinWait1, FinWait2), Some(acked))
        .after(100)
        .change(1, (FinWait2, Close), Some(ends))
        .gone(1)
        .after(500);
    assert_eq!(active.findings(), []);
    let passive = one(Scope::Machine)
        .change(1, (Established, CloseWait), Some(counts(0, [9_000, 9_000, 5_000, 51, 50])))
        .call(1, (CloseWait, State::LastAck), 7, Some(counts(0, [9_000, 9_000, 5_000, 51, 51])))
        .after(100)
        .change(1, (State::LastAck, Close), Some(counts(0, [9_001, 9_001, 9_001, 51, 51])))
        .gone(1)
        .after(500);
    assert_eq!(passive.findings(), []);
}

#[test]
fn lb102_follows_an_exit_to_the_last_ack() {
    let sent = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    let story = one(Scope::Process(7))
        .exit(1, (Established, FinWait1), (7, Ending::Signal(9)), Some(sent))
        .exited(7, Ending::Signal(9))
        .after(250);
    let finding = story.finding();
    assert_eq!(of_code(&finding), (102, Class::Note, false, Some(4_000)));
    assert!(finding.sentence.contains("not known yet: 4,000 bytes"), "{}", finding.sentence);

    let acked = counts(0, [9_001, 9_001, 9_001, 50, 50]);
    let finding = story.clone().change(1, (FinWait1, FinWait2), Some(acked)).after(300).finding();
    assert_eq!(of_code(&finding), (102, Class::Note, true, Some(0)));
    assert_eq!(
        finding.sentence,
        "sender (7) ended (signal 9) with 4,000 bytes to 198.51.100.7:80 not yet acked; all were \
         acked 250 ms later."
    );

    let left = counts(0, [9_001, 9_001, 6_000, 50, 50]);
    let finding =
        story.reset_comes(1, left).change(1, (FinWait1, Close), Some(left)).after(300).finding();
    assert_eq!(of_code(&finding), (102, Class::Loss, false, Some(3_000)));
    assert!(finding.sentence.contains("the peer reset the connection"), "{}", finding.sentence);
}

#[test]
fn lb102_says_that_no_answer_came() {
    let sent = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    let left = counts(0, [9_001, 9_000, 5_000, 50, 50]);
    let finding = one(Scope::Process(7))
        .exit(1, (Established, FinWait1), (7, Ending::Exit(0)), Some(sent))
        .exited(7, Ending::Exit(0))
        .after(108_000)
        .dies(1, FinWait1, 110, Some(left))
        .gone(1)
        .after(300)
        .finding();
    assert_eq!(of_code(&finding), (102, Class::Loss, false, Some(4_000)));
    assert!(finding.sentence.starts_with("sender (7) ended (exit code 0)"), "{finding:?}");
    assert!(finding.sentence.contains("108 s later"), "{}", finding.sentence);
}

#[test]
fn an_exit_while_others_hold_the_socket_is_nothing() {
    let story =
        one(Scope::Machine).process(8, "child").holds(1, 8).exited(7, Ending::Exit(0)).after(1_000);
    assert_eq!(story.findings(), []);
}

#[test]
fn lb103_a_linger_of_zero() {
    let left = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    let story = |at_close| {
        one(Scope::Machine)
            .call(1, (Established, Close), 7, Some(at_close))
            .aborts(1, "TCP_STATE", 7, Some(at_close))
            .after(500)
            .finding()
    };
    assert_eq!(of_code(&story(left)), (103, Class::Loss, false, Some(4_000)));
    let acked = counts(0, [9_000, 9_000, 9_000, 50, 50]);
    assert_eq!(of_code(&story(acked)), (103, Class::Note, true, Some(0)));
}

#[test]
fn lb103_names_another_program_that_destroyed_it() {
    let left = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    let finding = one(Scope::Machine)
        .process(66, "ss")
        .aborts(1, "TCP_STATE", 66, Some(left))
        .dies(1, Established, 103, Some(left))
        .after(500)
        .finding();
    assert_eq!((finding.code, finding.about.pid), (Code(103), Some(7)));
    assert!(
        finding.sentence.starts_with("ss (66) destroyed for sender (7)"),
        "{}",
        finding.sentence
    );
}

/// A sender of 4 MB, and a receiver that closes when 1,618,864 bytes have come, over 100 ms.
fn tail_loss(scope: Scope) -> Story {
    const START: u32 = 4_290_000_000;
    let at_close = counts(START, [100, 100, 100, 1_618_864, 1_618_864]);
    let reset = counts(START, [101, 101, 100, 1_618_864, 1_618_864]);
    let sender = counts(START, [4_194_304, 3_000_000, 1_500_000, 101, 100]);
    both(scope)
        .after(900)
        .call(2, (Established, FinWait1), 9, Some(at_close))
        .after(1)
        // The kernel ends it as if it had received a reset, then sends one.
        .reset_comes(2, reset)
        .change(2, (FinWait1, Close), Some(reset))
        .answers(2, "TCP_ABORT_ON_DATA")
        .gone(2)
        .answers(2, "NO_SOCKET")
        .answers(2, "NO_SOCKET")
        .after(100)
        .change(1, (Established, CloseWait), Some(sender))
        .reset_comes(1, sender)
        .change(1, (CloseWait, Close), Some(sender))
        .gone(1)
        .after(500)
}

#[test]
fn lb104_is_exact_for_whichever_end_is_in_scope() {
    for scope in [Scope::Process(7), Scope::Process(9), Scope::Machine, Scope::Port(80)] {
        let finding = tail_loss(scope).finding();
        assert_eq!(of_code(&finding), (104, Class::Loss, false, Some(2_575_440)), "{scope:?}");
        let about = if scope == Scope::Process(7) { 7 } else { 9 };
        assert_eq!(finding.about.pid, Some(about));
        assert_eq!(word(&finding, "exact"), "yes".into());
    }
    assert_eq!(
        tail_loss(Scope::Process(9)).finding().sentence,
        "receiver (9) closed its connection to 192.0.2.1:40000 while the peer was still sending: \
         2,575,440 bytes from the peer were discarded, and nothing that it had written was lost."
    );
}

/// A client with this many acked bytes reads the head of a response and closes; then the rest
/// comes.
fn left_answer(asked: u64, rest: u32) -> Story {
    let asked_to = |far| Counts { bytes_acked: asked, ..counts(0, far) };
    let closed = asked_to([101, 101, 100, 200, 200]);
    let answer = counts(0, [200 + rest, 200 + rest, 200, 101, 100]);
    both(Scope::Machine)
        .call(1, (Established, FinWait1), 7, Some(asked_to([100, 100, 100, 200, 200])))
        .reset_comes(1, closed)
        .change(1, (FinWait1, Close), Some(closed))
        .answers(1, "TCP_ABORT_ON_DATA")
        .gone(1)
        .reset_comes(2, answer)
        .change(2, (Established, Close), Some(answer))
        .gone(2)
        .after(500)
}

#[test]
fn lb104_is_a_note_for_who_asked_and_does_not_want_the_rest_of_a_short_answer() {
    let reported = |asked, rest| of_code(&left_answer(asked, rest).finding());
    assert_eq!(reported(101, 335), (104, Class::Note, true, Some(335)));
    // A long one, and one that came unasked: its SYN and its FIN are acked.
    assert_eq!(reported(101, 100_000), (104, Class::Loss, false, Some(100_000)));
    assert_eq!(reported(2, 335), (104, Class::Loss, false, Some(335)));
    let sentence = left_answer(101, 335).finding().sentence;
    assert!(sentence.contains("335 bytes from the peer were discarded"), "{sentence}");
}

#[test]
fn lb104_of_a_peer_elsewhere_is_a_loss_if_many_packets_met_the_close() {
    let story = |resets: usize| {
        let at_close = counts(0, [100, 100, 100, 50, 50]);
        let acked = counts(0, [101, 101, 101, 50, 50]);
        let story = one(Scope::Machine)
            .call(1, (Established, FinWait1), 7, Some(at_close))
            .after(10)
            .change(1, (FinWait1, FinWait2), Some(acked))
            .change(1, (FinWait2, Close), Some(acked));
        let answer = |story: Story, _| story.answers(1, "TCP_TIMEWAIT_SOCKET");
        (0..resets).fold(story, answer).after(500).finding()
    };
    assert_eq!(of_code(&story(1)), (104, Class::Note, true, Some(0)));
    assert_eq!(of_code(&story(3)), (104, Class::Loss, false, None));
    assert_eq!(word(&story(3), "exact"), "at least".into());
    assert_eq!(word(&story(3), "after_close_ms"), 10.0.into());
}

#[test]
fn lb104_is_known_without_reasons_by_what_answers() {
    // As Linux 6.1: FIN-WAIT-2 becomes TIME-WAIT at once, and what comes is answered from there.
    let closed = |acked| {
        one(Scope::Machine)
            .call(1, (Established, FinWait1), 7, Some(counts(0, [100, 100, 100, 50, 50])))
            .after(10)
            .change(1, (FinWait1, FinWait2), Some(acked))
            .change(1, (FinWait2, Close), Some(acked))
            .gone(1)
    };
    let acked = counts(0, [101, 101, 101, 50, 50]);
    let reported = closed(acked).after(5).answers_unsaid(1, true).after(500).finding();
    assert_eq!(of_code(&reported), (104, Class::Note, true, Some(0)));
    let many =
        closed(acked).answers_unsaid(1, true).answers_unsaid(1, false).answers_unsaid(1, false);
    assert_eq!(of_code(&many.after(500).finding()), (104, Class::Loss, false, None));
    // After the connection is destroyed, the reset may have answered the peer's FIN alone.
    assert_eq!(closed(acked).answers_unsaid(1, false).after(500).findings(), []);
    // After the peer's FIN no data can come.
    let ended = one(Scope::Machine)
        .call(1, (Established, FinWait1), 7, Some(counts(0, [100, 100, 100, 50, 50])))
        .change(1, (FinWait1, FinWait2), Some(acked))
        .change(1, (FinWait2, State::TimeWait), Some(counts(0, [101, 101, 101, 51, 50])));
    assert_eq!(ended.answers_unsaid(1, true).after(500).findings(), []);
}

#[test]
fn lb104_without_reasons_counts_what_the_sender_has_left() {
    let acked = counts(0, [101, 101, 101, 50, 50]);
    let sender = counts(0, [10_050, 10_050, 50, 102, 101]);
    for scope in [Scope::Process(7), Scope::Machine] {
        let finding = both(scope)
            .call(1, (Established, FinWait1), 7, Some(counts(0, [100, 100, 100, 50, 50])))
            .change(1, (FinWait1, FinWait2), Some(acked))
            .change(1, (FinWait2, Close), Some(acked))
            .change(2, (Established, CloseWait), Some(counts(0, [50, 50, 50, 101, 101])))
            .after(50)
            .answers_unsaid(1, true)
            .reset_comes(2, sender)
            .change(2, (CloseWait, Close), Some(sender))
            .gone(2)
            .after(500)
            .finding();
        assert_eq!(of_code(&finding), (104, Class::Loss, false, Some(10_000)), "{scope:?}");
        assert_eq!((finding.about.pid, word(&finding, "exact")), (Some(7), "yes".into()));
    }
}

#[test]
fn a_late_end_that_meets_no_connection_is_nothing() {
    let closed = counts(0, [101, 101, 101, 50, 50]);
    let last = counts(0, [50, 50, 50, 102, 101]);
    let finished = both(Scope::Machine)
        .call(1, (Established, FinWait1), 7, Some(counts(0, [100, 100, 100, 50, 50])))
        .change(2, (Established, CloseWait), Some(counts(0, [50, 50, 50, 101, 100])))
        .change(1, (FinWait1, FinWait2), Some(closed))
        .change(1, (FinWait2, Close), Some(closed))
        .gone(1)
        .after(10);
    let late = finished
        .call(2, (CloseWait, State::LastAck), 9, Some(last))
        .answers(1, "NO_SOCKET")
        .reset_comes(2, counts(0, [51, 51, 50, 101, 101]))
        .dies(2, State::LastAck, 32, Some(counts(0, [51, 51, 50, 101, 101])))
        .gone(2)
        .after(500);
    let findings = late.findings();
    assert!(findings.iter().all(|one| one.harmless && one.code == Code(105)), "{findings:#?}");
}

#[test]
fn lb105_a_reset_comes() {
    let story = |acked: u32| {
        let left = counts(0, [9_000, 7_000.max(acked), acked, 50, 50]);
        one(Scope::Machine)
            .reset_comes(1, left)
            .dies(1, Established, 104, Some(left))
            .gone(1)
            .after(500)
            .finding()
    };
    assert_eq!(of_code(&story(5_000)), (105, Class::Loss, false, Some(4_000)));
    assert_eq!(of_code(&story(9_000)), (105, Class::Note, true, Some(0)));
}

#[test]
fn lb105_is_a_note_for_the_answer_to_a_farewell() {
    // A TLS server answers the client's end with its own; the client has closed.
    let at_fin = counts(0, [9_000, 9_000, 9_000, 51, 50]);
    let at_reset = counts(0, [9_024, 9_024, 9_000, 51, 51]);
    let client = counts(0, [51, 51, 51, 9_000, 9_000]);
    let story = both(Scope::Process(7))
        .call(2, (Established, FinWait1), 9, Some(counts(0, [50, 50, 50, 9_000, 9_000])))
        .change(1, (Established, CloseWait), Some(at_fin))
        .change(2, (FinWait1, FinWait2), Some(client))
        .change(2, (FinWait2, Close), Some(client))
        .answers(2, "TCP_TIMEWAIT_SOCKET")
        .reset_comes(1, at_reset)
        .change(1, (CloseWait, Close), Some(at_reset))
        .after(500);
    let finding = story.finding();
    assert_eq!((finding.class, finding.harmless), (Class::Note, true), "{finding:#?}");
}

#[test]
fn lb105_is_a_note_where_the_client_broke_off_what_it_had_asked_for() {
    /// A server (7) that has written 9,000 bytes, and a client (9) that closes with some of them unread.
    fn story(role: Role, written: u32, by: Option<Ending>) -> Finding {
        let at_close =
            Counts { bytes_acked: 81, ..counts(0, [written, written, 81, 7_000, 5_000]) };
        let at_reset = counts(0, [9_000, 9_000, 7_000, 81, 81]);
        let story = both(Scope::Process(7)).accepted(1).in_role(2, role);
        let story = match by {
            None => story.call(2, (Established, Close), 9, Some(at_close)),
            Some(how) => story.exit(2, (Established, Close), (9, how), Some(at_close)),
        };
        story
            .aborts(2, "TCP_ABORT_ON_CLOSE", 9, Some(at_close))
            .reset_comes(1, at_reset)
            .dies(1, Established, 104, Some(at_reset))
            .after(500)
            .finding()
    }
    let finding = story(Role::Connected, 81, None);
    assert_eq!(of_code(&finding), (105, Class::Note, false, Some(2_000)));
    assert_eq!(
        finding.sentence,
        "The connection of sender (7) was reset by receiver (9) at 198.51.100.7:80, which closed \
         with unread input: 2,000 bytes that it had written did not arrive, and 2,000 bytes that \
         had arrived were never read; it had connected and sent a request, and stopped reading the \
         response."
    );
    // The server did not ask; its own bytes are missing; it was killed.
    for not in [
        story(Role::Accepted, 81, None),
        story(Role::Unknown, 81, None),
        story(Role::Connected, 90, None),
        story(Role::Connected, 81, Some(Ending::Signal(9))),
    ] {
        assert_eq!(of_code(&not), (105, Class::Loss, false, Some(2_000)), "{}", not.sentence);
    }
}

#[test]
fn a_refused_connection_is_no_lost_one() {
    let story = one(Scope::Machine)
        .call(1, (Close, State::SynSent), 7, None)
        .reset_comes(1, counts(0, [1, 1, 0, 0, 0]))
        .dies(1, State::SynSent, 111, Some(counts(0, [1, 1, 0, 0, 0])))
        .after(500);
    assert!(story.findings().iter().all(|finding| finding.code.0 >= 400));
}

#[test]
fn a_connection_that_was_never_established_loses_nothing() {
    let new = || {
        Story::of_tier(Tier::Tracefs, Scope::Machine).process(7, "a").socket(1, (HERE, THERE), 7)
    };
    let reset = What::ResetReceived { socket: SocketId(1), counts: None };
    // The reset is reported before the state is known.
    let refused = new().with(reset.clone()).dies(1, State::SynSent, 111, None).after(500);
    assert!(refused.findings().iter().all(|one| one.code.0 >= 400), "{:?}", refused.findings());
    let failed = new().with(reset.clone()).with(What::Failed { socket: SocketId(1), errno: 111 });
    assert_eq!(failed.after(500).findings(), []);
    let half_open = new().with(reset.clone()).change(1, (State::SynRecv, Close), None);
    assert_eq!(half_open.after(500).findings(), []);
    let seen = new().with(reset.clone()).sample(1, State::SynSent, (0, 1), true);
    assert_eq!(seen.after(500).findings(), []);
    // The last sample was of the SYN; the connection was established after it.
    let open = new().sample(1, State::SynSent, (0, 1), true).after(50);
    let open = open.change(1, (State::SynSent, Established), None).after(50);
    let finding = open.with(reset).dies(1, Established, 104, None).after(500).finding();
    assert_eq!(of_code(&finding), (105, Class::Note, false, None));
}

#[test]
fn of_a_subflow_no_bytes_are_known() {
    let story = |subflow| {
        let mut story = closed_with_unread(both(Scope::Machine), 0, 20_000).after(500);
        for event in &mut story.events {
            if let What::Socket(socket) = &mut event.what {
                socket.subflow = subflow;
            }
        }
        story.finding()
    };
    assert_eq!(of_code(&story(false)), (101, Class::Loss, false, Some(80_000)));
    let finding = story(true);
    assert_eq!(of_code(&finding), (101, Class::Note, false, None));
    assert!(finding.sentence.ends_with("bytes not known: a subflow of MPTCP."), "{finding:?}");
    assert!(!finding.evidence.contains_key("unacked_bytes"), "{finding:?}");
    // One that a process left by ending, too.
    let sent = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    let mut story = one(Scope::Machine);
    for event in &mut story.events {
        if let What::Socket(socket) = &mut event.what {
            socket.subflow = true;
        }
    }
    let story = story.exit(1, (Established, FinWait1), (7, Ending::Exit(0)), Some(sent)).after(500);
    assert_eq!(story.findings(), []);
    let left = counts(0, [9_001, 9_001, 6_000, 50, 50]);
    let finding =
        story.reset_comes(1, left).dies(1, FinWait1, 104, Some(left)).after(500).finding();
    assert_eq!(of_code(&finding), (105, Class::Note, false, None));
}

#[test]
fn lb106_waits_for_an_answer_that_does_not_come() {
    let half_closed = one(Scope::Machine)
        .call(1, (Established, FinWait1), 7, Some(counts(0, [9_000, 9_000, 5_000, 50, 50])))
        .after(50)
        .change(1, (FinWait1, FinWait2), Some(counts(0, [9_001, 9_001, 9_001, 50, 50])));
    let waits = |held| half_closed.clone().after(2_000).sample(1, FinWait2, (0, 0), held);
    let finding = waits(true).after(9_000).finding();
    assert_eq!(of_code(&finding), (106, Class::Note, false, None));
    assert!(finding.sentence.contains("10 s") || finding.sentence.contains("9.9"), "{finding:?}");
    assert_eq!(waits(true).after(7_000).findings(), []);
    assert_eq!(waits(false).after(20_000).findings(), []);
    let answered = waits(true).change(1, (FinWait2, Close), None).after(20_000);
    assert_eq!(answered.findings(), []);

    // A program that is watched alone may give up earlier.
    let gives_up = |after_ms| {
        let story = one(Scope::Process(7)).change(1, (Established, FinWait2), None).after(50);
        let story = story.sample(1, FinWait2, (0, 0), true).after(after_ms);
        story.change(1, (FinWait2, Close), None).gone(1)
    };
    let finding = gives_up(6_000).finding();
    assert_eq!(of_code(&finding), (106, Class::Note, false, None));
    assert_eq!(gives_up(4_000).findings(), []);
}

#[test]
fn lb107_a_unix_socket() {
    let by = Actor { pid: 9, tid: 9, ending: None };
    let measured = |bytes, precision| {
        let path = Some("/run/a\nb".into());
        What::UnixUnread { by, bytes, precision, sender: Some(7), path }
    };
    let unread = |bytes| measured(bytes, Precision::Exact);
    let finding = both(Scope::Process(7)).with(unread(300)).finding();
    assert_eq!(of_code(&finding), (107, Class::Loss, false, Some(300)));
    assert!(finding.sentence.contains("at /run/a b with 300 bytes that sender (7)"), "{finding:?}");
    assert_eq!(both(Scope::Process(5)).with(unread(300)).findings(), []);
    // A kernel that does not tell how much of it was read.
    let finding = both(Scope::Process(7)).with(measured(300, Precision::AtMost)).finding();
    assert_eq!(word(&finding, "exact"), "at most".into());
    assert!(finding.sentence.contains("with at most 300 bytes that sender (7)"), "{finding:?}");
}

#[test]
fn lb107_within_a_program_is_a_note() {
    const OTHERS: &str = "ECONNRESET";
    let story = |scope, (parent, child): (u32, u32), by, sender, path: Option<&str>| {
        let (name, path) = ("manager".to_owned(), path.map(str::to_owned));
        let of = |pid, parent, name: &String| {
            What::Process(Process { pid, parent, name: name.clone(), ..Process::default() })
        };
        let story = Story::new(scope).with(of(7, parent, &name)).with(of(9, child, &name));
        let (bytes, precision) = (29, Precision::Exact);
        let unread = What::UnixUnread { by, bytes, precision, sender, path };
        let finding = story.with(unread).finding();
        let is_loss = finding.class == Class::Loss;
        assert_eq!(finding.sentence.contains(OTHERS), is_loss, "{}", finding.sentence);
        (finding.class, finding.harmless)
    };
    let calls = Actor { pid: 9, tid: 9, ending: None };
    let killed = Actor { ending: Some(Ending::Signal(9)), ..calls };
    let (loss, note) = ((Class::Loss, false), (Class::Note, false));
    let harmless = (Class::Note, true);
    // Itself, its own tree, parent and child, children of one parent.
    assert_eq!(story(Scope::Machine, (1, 1), calls, Some(9), Some("/a")), harmless);
    assert_eq!(story(Scope::Process(7), (1, 7), calls, Some(7), Some("/a")), note);
    assert_eq!(story(Scope::Machine, (1, 7), calls, Some(7), Some("/a")), note);
    assert_eq!(story(Scope::Machine, (9, 1), calls, Some(7), Some("/a")), note);
    assert_eq!(story(Scope::Machine, (5, 5), calls, Some(7), Some("/a")), note);
    // Two programs of one shell: by a name they met as strangers, what has none was given to them.
    let of_shell = |path: Option<&str>| {
        let of = |pid, name: &str| {
            What::Process(Process { pid, parent: 5, name: name.to_owned(), ..Process::default() })
        };
        let sent = (Some(7), path.map(str::to_owned));
        let (precision, sender, path) = (Precision::Exact, sent.0, sent.1);
        let sent = What::UnixUnread { by: calls, bytes: 29, precision, sender, path };
        let story = Story::new(Scope::Machine).with(of(7, "client")).with(of(9, "server"));
        let finding = story.with(sent).finding();
        (finding.class, finding.harmless)
    };
    assert_eq!((of_shell(Some("/a")), of_shell(None)), (loss, note));
    // What the first process of the machine starts is not one program.
    assert_eq!(story(Scope::Machine, (1, 1), calls, Some(7), Some("/a")), loss);
    assert_eq!(story(Scope::Process(7), (4, 5), calls, Some(7), None), loss);
    // Killed, and nobody known.
    assert_eq!(story(Scope::Machine, (4, 5), killed, Some(7), None), note);
    assert_eq!(story(Scope::Machine, (4, 5), killed, Some(7), Some("/a")), loss);
    assert_eq!(story(Scope::Machine, (4, 5), killed, None, None), note);
    assert_eq!(story(Scope::Machine, (4, 5), calls, None, None), harmless);
    assert_eq!(story(Scope::Machine, (4, 5), calls, None, Some("/a")), loss);
}

#[test]
fn lb108_no_answer() {
    let left = counts(0, [9_000, 7_000, 5_000, 50, 50]);
    let dies =
        |errno| one(Scope::Machine).dies(1, Established, errno, Some(left)).after(500).finding();
    assert_eq!(of_code(&dies(110)), (108, Class::Loss, false, Some(4_000)));
    assert!(dies(113).sentence.contains("no route led to the peer"));
}

#[test]
fn lb109_no_memory() {
    let left = counts(0, [9_001, 7_000, 5_000, 50, 50]);
    let finding = one(Scope::Machine)
        .call(1, (Established, FinWait1), 7, Some(counts(0, [9_000, 7_000, 5_000, 50, 50])))
        .call(1, (FinWait1, Close), 7, Some(left))
        .aborts(1, "TCP_ABORT_ON_MEMORY", 7, Some(left))
        .after(500)
        .finding();
    assert_eq!(of_code(&finding), (109, Class::Loss, false, Some(4_000)));
}

#[test]
fn trace_points_without_numbers_take_the_last_sample_and_say_so() {
    let story = |sample: bool| {
        let mut story = Story::of_tier(Tier::Tracefs, Scope::Machine).process(7, "a").socket(
            1,
            (HERE, THERE),
            7,
        );
        if sample {
            story = story.sample(1, Established, (5, 4_000), true).after(40);
        }
        story
            .call(1, (Established, Close), 7, None)
            .aborts(1, "TCP_ABORT_ON_CLOSE", 7, None)
            .after(500)
            .finding()
    };
    let finding = story(true);
    assert_eq!(of_code(&finding), (101, Class::Loss, false, Some(4_000)));
    assert_eq!(word(&finding, "exact"), "about".into());
    assert_eq!(word(&finding, "numbers_age_ms"), 40.0.into());
    assert_eq!(of_code(&story(false)), (101, Class::Loss, false, None));
}

/// The kernel told of the end of a socket whose program nobody had seen with it, and the other end was held by
/// the program that is asked about: both were its own.
#[test]
fn an_end_without_holder_is_reported_if_the_other_end_is_in_scope() {
    let found = |other: u32| {
        let story = Story::of_tier(Tier::Procfs, Scope::Process(7))
            .process(7, "a")
            .socket(2, (THERE, HERE), other)
            .socket_of_nobody(1, (HERE, THERE))
            .sample(1, Close, (11, 5_000), false)
            .gone(1)
            .after(900)
            .with(What::Counters(Counters {
                network: NETWORK,
                aborts_on_close: 1,
                ..Counters::default()
            }))
            .after(500);
        story.findings().iter().map(of_code).collect::<Vec<_>>()
    };
    assert_eq!(found(7), [(101, Class::Loss, false, Some(5_000))]);
    assert_eq!(found(8), []);
}

/// A program closes with unread input and unacked bytes, and the table never showed that end, or showed it
/// only before it wrote. The other end, which was reset, has unread input too, and nothing unacked.
#[test]
fn a_reset_end_is_not_taken_for_the_closer_whose_loss_was_not_seen() {
    const SAME_HOST: &str = "192.0.2.1:80";
    let found = |closer: Option<(State, (u32, u32))>| {
        let mut story = Story::of_tier(Tier::Procfs, Scope::Process(7)).process(7, "a");
        if let Some((state, queues)) = closer {
            story = story.socket(1, (HERE, SAME_HOST), 7).after(200).sample(1, state, queues, true);
        }
        let story = story.socket(2, (SAME_HOST, HERE), 7).after(50).gone(1);
        let counted = Counters {
            network: NETWORK,
            aborts_on_close: 1,
            established_resets: 2,
            ..Counters::default()
        };
        let story = story.sample(2, Close, (900_000, 0), false).gone(2).after(900);
        let found = story.with(What::Counters(counted)).after(500).findings();
        found.iter().map(of_code).collect::<Vec<_>>()
    };
    assert_eq!(found(None), [(110, Class::Loss, false, None)]);
    assert_eq!(found(Some((Established, (0, 0)))), [(110, Class::Loss, false, None)]);
    // With its last numbers the closer is known by what it left unacked.
    assert_eq!(found(Some((Close, (11, 1_000_000)))), [(101, Class::Loss, false, Some(1_000_000))]);
}

/// Of a program's connection it may not be known that it was the program's.
#[test]
fn an_end_of_which_no_holder_is_known_does_not_explain_a_counter() {
    let counted = Counters { network: NETWORK, aborts_on_close: 1, ..Counters::default() };
    let finding = Story::of_tier(Tier::Procfs, Scope::Process(7))
        .process(7, "a")
        .socket_of_nobody(1, (HERE, THERE))
        .sample(1, Close, (11, 5_000), false)
        .gone(1)
        .after(900)
        .with(What::Counters(counted))
        .after(500)
        .finding();
    assert_eq!(of_code(&finding), (110, Class::Loss, false, None));
}

/// The end that closed is known, and nothing that it wrote was lost.
#[test]
fn a_close_with_unread_input_and_all_acked_is_harmless_by_its_last_numbers() {
    let counted = |resets| Counters {
        network: NETWORK,
        aborts_on_close: 1,
        established_resets: resets,
        ..Counters::default()
    };
    assert_eq!(
        of_code(&vanished(counted(1), Some((6, 0))).finding()),
        (101, Class::Note, true, Some(0))
    );
    let finding = Story::of_tier(Tier::Procfs, Scope::Machine)
        .process(7, "a")
        .socket(1, (HERE, "192.0.2.1:80"), 7)
        .socket(2, ("192.0.2.1:80", HERE), 7)
        .after(200)
        .sample(1, Close, (6, 0), false)
        .gone(1)
        .sample(2, Close, (0, 0), false)
        .gone(2)
        .after(900)
        .with(What::Counters(counted(2)))
        .after(500)
        .finding();
    assert_eq!(of_code(&finding), (101, Class::Note, true, Some(0)));
}

/// A look at a connection's beginning shows nothing of what it wrote until its end.
#[test]
fn a_connection_sampled_only_at_its_beginning_is_not_called_harmless() {
    let found = |age_ms: u64, state: State, unacked: u32| {
        let story = Story::of_tier(Tier::Tracefs, Scope::Machine)
            .process(7, "a")
            .socket(1, (HERE, THERE), 7)
            .after(age_ms)
            .sample(1, state, (5, unacked), true)
            .after(40)
            .call(1, (Established, Close), 7, None)
            .aborts(1, "TCP_ABORT_ON_CLOSE", 7, None)
            .after(500);
        of_code(&story.finding())
    };
    assert_eq!(found(10, Established, 0), (101, Class::Loss, false, None));
    // The few bytes of a request say nothing of what followed.
    assert_eq!(found(10, Established, 37), (101, Class::Loss, false, None));
    assert_eq!(found(200, Established, 0), (101, Class::Note, true, Some(0)));
    // The last numbers of a socket that is destroyed are its last.
    assert_eq!(found(10, Close, 0), (101, Class::Note, true, Some(0)));
}

/// The peer's kernel acks late: what it has is not lost.
#[test]
fn bytes_that_a_sample_shows_at_the_other_end_are_not_lost() {
    // 1,000 acked and the SYN, 4,000 not; of these 3,000 have come.
    let found = |role: Role, acked: u64| {
        let finding = Story::of_tier(Tier::Tracefs, Scope::Machine)
            .process(7, "a")
            .socket(1, (HERE, THERE), 7)
            .in_role(1, role)
            .socket(2, (THERE, HERE), 7)
            .sample_with(1, (5, 4_000), (acked, 0))
            .sample_with(2, (0, 0), (0, 4_000))
            .after(40)
            .call(1, (Established, Close), 7, None)
            .aborts(1, "TCP_ABORT_ON_CLOSE", 7, None)
            .after(500)
            .finding();
        assert_eq!(word(&finding, "exact"), "about".into());
        (finding.bytes, finding.sentence.contains("had not come to the peer at the last sample"))
    };
    assert_eq!(found(Role::Connected, 1_001), (Some(1_000), true));
    assert_eq!(found(Role::Accepted, 1_000), (Some(1_000), true));
    assert_eq!(found(Role::Unknown, 1_001), (Some(1_001), true));
}

/// What tables show of a socket with 4,000 bytes unacked and 5 unread that is gone at the next look.
fn vanished(counters: Counters, last: Option<(u32, u32)>) -> Story {
    let mut story = Story::of_tier(Tier::Procfs, Scope::Machine)
        .process(7, "a")
        .socket(1, (HERE, THERE), 7)
        .sample(1, Established, (5, 4_000), true)
        .after(100);
    if let Some(queues) = last {
        story = story.sample(1, Close, queues, false);
    }
    story.gone(1).after(900).with(What::Counters(counters)).after(500)
}

#[test]
fn tables_alone_need_a_counter_that_grew() {
    let none = Counters { network: NETWORK, ..Counters::default() };
    assert_eq!(vanished(none, None).findings(), []);
    let elsewhere = Counters { network: 1, aborts_on_close: 1, ..none };
    let finding = vanished(elsewhere, None).finding();
    assert_eq!((finding.code, finding.about.network), (Code(110), Some(1)), "{finding:#?}");
    let finding = vanished(Counters { aborts_on_close: 1, ..none }, None).finding();
    assert_eq!(of_code(&finding), (101, Class::Loss, false, Some(4_000)));
    let finding = vanished(Counters { aborts_on_timeout: 1, ..none }, None).finding();
    assert_eq!(of_code(&finding), (108, Class::Loss, false, Some(4_000)));
}

#[test]
fn the_last_sample_of_a_destroyed_socket_counts_more() {
    let none = Counters { network: NETWORK, ..Counters::default() };
    let aborted = Counters { aborts_on_close: 1, established_resets: 1, ..none };
    // An orderly end: at most the FINs are left. Another one was counted.
    for orderly in [(0, 0), (1, 0)] {
        let finding = vanished(aborted, Some(orderly)).finding();
        assert_eq!(of_code(&finding), (110, Class::Loss, false, None));
    }
    let finding = vanished(aborted, Some((6, 5_000))).finding();
    assert_eq!(of_code(&finding), (101, Class::Loss, false, Some(5_000)));
    let reset = Counters { established_resets: 1, ..none };
    let finding = vanished(reset, Some((0, 5_000))).finding();
    assert_eq!(of_code(&finding), (105, Class::Loss, false, Some(5_000)));
    // Nothing says how: no cause is made up.
    let finding = vanished(none, Some((6, 5_000))).finding();
    assert_eq!(of_code(&finding), (110, Class::Loss, false, Some(5_000)));
    assert!(finding.sentence.contains("how it ended was not seen: about 5,000"), "{finding:#?}");
}

#[test]
fn a_counter_explains_one_end() {
    let none = Counters { network: NETWORK, ..Counters::default() };
    let reset = Counters { established_resets: 1, ..none };
    let closed = Counters { aborts_on_close: 1, ..none };
    for (counters, unread, code) in [(reset, 0, 105), (closed, 6, 101)] {
        let mut story = Story::of_tier(Tier::Procfs, Scope::Machine).process(7, "a");
        for (id, there) in [(1, THERE), (2, "198.51.100.8:80")] {
            story = story.socket(id, (HERE, there), 7).sample(id, Established, (6, 4_000), true);
        }
        story = story.after(100);
        for id in [1, 2] {
            story = story.sample(id, Close, (unread, 5_000), false).gone(id);
        }
        let story = story.after(900).with(What::Counters(counters)).after(500);
        let mut codes: Vec<u16> = story.findings().iter().map(|one| one.code.0).collect();
        codes.sort_unstable();
        assert_eq!(codes, [code, 110]);
    }
}

/// A program in the story's namespace, and counters that grew while no connection was seen.
fn unseen(tier: Tier, scope: Scope, counters: &[Counters]) -> Story {
    let story = Story::of_tier(tier, scope).process(7, "a").after(200);
    let add = |story: Story, grown: &Counters| story.with(What::Counters(*grown)).after(1_000);
    counters.iter().fold(story, add).after(500)
}

#[test]
fn lb110_counts_what_no_table_showed() {
    let closed = |times, resets| Counters {
        network: NETWORK,
        aborts_on_close: times,
        established_resets: resets,
        ..Counters::default()
    };
    // Both ends are here; and it goes on for some seconds.
    let grown = [closed(3, 6), closed(1, 2), closed(0, 0), closed(1, 2)];
    for scope in [Scope::Process(7), Scope::Machine] {
        let finding = unseen(Tier::Procfs, scope, &grown).finding();
        assert_eq!(of_code(&finding), (110, Class::Loss, false, None));
        assert_eq!((finding.times, finding.about.network), (5, Some(NETWORK)));
        assert_eq!(word(&finding, "tcp_abort_on_close"), 5_u64.into());
        assert_eq!(finding.precision(), Precision::AtLeast);
        assert_eq!(
            finding.sentence,
            "5 connections in this network namespace were reset locally with unread input \
             (TCPAbortOnClose +5) while this ran; the tables, which are only sampled, do not show \
             which, or whether bytes were lost."
        );
    }
    let finding = unseen(Tier::Procfs, Scope::Machine, &[closed(0, 2)]).finding();
    assert_eq!(of_code(&finding), (110, Class::Note, false, None));
    assert!(finding.sentence.contains("were reset by the peer (EstabResets +2)"), "{finding:#?}");
    let both = Counters { aborts_on_data: 2, ..closed(1, 0) };
    let finding = unseen(Tier::Tracefs, Scope::Machine, &[both]).finding();
    assert!(finding.sentence.contains("were reset, 1 reset locally with unread"), "{finding:#?}");
    assert!(finding.fix.contains("--tier bpf"), "{finding:#?}");
}

#[test]
fn lb110_is_about_namespaces_in_scope() {
    let grown = |network| Counters { network, aborts_on_close: 1, ..Counters::default() };
    let others = unseen(Tier::Procfs, Scope::Process(7), &[grown(1)]);
    assert_eq!(others.findings(), []);
    let two = unseen(Tier::Procfs, Scope::Machine, &[grown(1), grown(2)]).findings();
    assert_eq!(two.iter().map(|one| one.about.network).collect::<Vec<_>>(), [Some(1), Some(2)]);
}

#[test]
fn lb110_is_not_reported_if_each_loss_is_seen() {
    let grown = Counters { network: NETWORK, aborts_on_close: 1, ..Counters::default() };
    let story = unseen(Tier::Bpf, Scope::Process(7), &[grown]);
    assert_eq!(story.findings(), []);
    let finding = story.with(What::Dropped { events: 1 }).finding();
    assert_eq!((finding.code, finding.class), (Code(110), Class::Loss));
    let mut refused = unseen(Tier::Bpf, Scope::Process(7), &[grown]);
    let What::Began(began) = &mut refused.events[0].what else { panic!("no beginning") };
    began.sees_each_loss = Some(false);
    assert_eq!(refused.finding().code, Code(110));
}

#[test]
fn each_count_explains_one_end_whenever_it_is_judged() {
    let grown = |times| Counters {
        network: NETWORK,
        aborts_on_close: times,
        established_resets: 2 * times,
        ..Counters::default()
    };
    // The count of this end comes before a second one, and the end is judged after that.
    let story = vanished(grown(1), Some((6, 5_000)));
    let found = story.with(What::Counters(grown(2))).after(2_000).findings();
    let reported: Vec<_> = found.iter().map(|one| (one.code.0, one.times)).collect();
    assert_eq!(reported, [(101, 1), (110, 2)], "{found:#?}");
}

#[test]
fn tables_follow_an_exit_too() {
    let change = |from, to| {
        What::Changed(Changed {
            socket: SocketId(1),
            from,
            to,
            by: None,
            counts: None,
            errno: 0,
            held: Some(false),
        })
    };
    let finding = Story::of_tier(Tier::Procfs, Scope::Process(7))
        .process(7, "a")
        .socket(1, (HERE, THERE), 7)
        .sample(1, Established, (0, 4_000), true)
        .after(100)
        .exited(7, Ending::Exit(3))
        .with(change(Established, FinWait1))
        .sample(1, FinWait1, (0, 4_001), false)
        .after(200)
        .sample(1, Close, (0, 0), false)
        .gone(1)
        .after(2_000)
        .finding();
    assert_eq!(of_code(&finding), (102, Class::Note, true, Some(0)));
    assert_eq!(word(&finding, "exit_code"), 3.0.into());
}

#[test]
fn one_end_is_explained_once() {
    let story = closed_with_unread(one(Scope::Machine), 0, 20_000)
        .after(500)
        .answers(1, "NO_SOCKET")
        .answers(1, "NO_SOCKET")
        .after(1_000)
        .answers(1, "NO_SOCKET")
        .after(1_000);
    let finding = story.finding();
    assert_eq!((finding.code, finding.times), (Code(101), 1));
}

#[test]
fn the_corpus_has_these_stories() {
    let elsewhere = closed_with_unread(one(Scope::Process(7)), 0, 20_000).after(300);
    elsewhere.is_in_corpus_as("loss-unread-elsewhere");
    let at_reset = counts(0, [50, 50, 50, 60_000, 10_000]);
    closed_with_unread(both(Scope::Machine), 0, 20_000)
        .after(100)
        .reset_comes(2, at_reset)
        .dies(2, Established, 104, Some(at_reset))
        .gone(2)
        .after(500)
        .is_in_corpus_as("loss-unread-both-ends");
    tail_loss(Scope::Process(7)).is_in_corpus_as("loss-data-after-close");
    let sent = counts(0, [9_000, 9_000, 5_000, 50, 50]);
    one(Scope::Process(7))
        .exit(1, (Established, FinWait1), (7, Ending::Signal(9)), Some(sent))
        .exited(7, Ending::Signal(9))
        .after(50)
        .change(1, (FinWait1, FinWait2), Some(counts(0, [9_001, 9_001, 9_001, 50, 50])))
        .after(300)
        .is_in_corpus_as("loss-not-killed-and-delivered");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Events in any order, twice or not at all, with any numbers: no panic, and no loss without a sign
    /// of one: a reset, an error, a change to CLOSED that is not the orderly one.
    #[test]
    fn no_order_of_events_invents_a_loss(
        start: u32,
        order in proptest::collection::vec((any::<proptest::sample::Index>(), 0_u64..3_000), 0..40),
        scope in prop_oneof![Just(Scope::Machine), Just(Scope::Process(7)), Just(Scope::Port(80))],
    ) {
        let known = both(scope);
        let stories = [tail_loss(scope), closed_with_unread(both(scope), start, 20_000)];
        let all: Vec<Event> = stories.iter().flat_map(|story| story.events.clone()).collect();
        let mut reported = known.events.clone();
        let mut at_ns = 2_000_000_000;
        for (index, later_ms) in order {
            at_ns += later_ms * 1_000_000;
            reported.push(Event { at_ns, what: index.get(&all).what.clone() });
        }
        let mut doctor = Doctor::new();
        for event in &reported {
            doctor.take(event);
        }
        doctor.end();
        for finding in doctor.findings().iter().filter(|finding| finding.class == Class::Loss) {
            let is_sign = |event: &Event| match &event.what {
                What::ResetSent(_) | What::ResetReceived { .. } => true,
                What::Changed(changed) => changed.to == Close,
                _ => false,
            };
            prop_assert!(reported.iter().any(is_sign), "{finding:?}");
        }
    }

    /// Whatever part of an orderly end is reported, in whatever order and however often: no loss.
    #[test]
    fn no_part_of_an_orderly_end_is_a_loss(
        start: u32,
        written in 0_u32..1_000_000,
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..40),
    ) {
        let open = counts(start, [written, written, written / 2, 50, 50]);
        let fin = written.wrapping_add(1);
        let acked = counts(start, [fin, fin, fin, 50, 50]);
        let story = both(Scope::Machine)
            .call(1, (Established, FinWait1), 7, Some(open))
            .change(1, (FinWait1, FinWait2), Some(acked))
            .sample(1, FinWait2, (0, 0), false)
            .change(1, (FinWait2, Close), Some(acked))
            .with(What::Gone { socket: SocketId(1), counts: Some(acked) })
            .after(300);
        let mut doctor = Doctor::new();
        let mut at_ns = 0;
        for index in order {
            at_ns += 10_000_000;
            doctor.take(&Event { at_ns, what: index.get(&story.events).what.clone() });
        }
        doctor.end();
        prop_assert!(doctor.findings().iter().all(|finding| finding.class != Class::Loss));
    }
}

/// Tier tracefs shows how a connection ended, and no bytes if no scan came in between.
#[test]
fn an_abort_with_unknown_bytes_is_a_loss() {
    for (reason, code) in
        [("TCP_ABORT_ON_CLOSE", 101), ("TCP_STATE", 103), ("TCP_ABORT_ON_MEMORY", 109)]
    {
        let story = Story::of_tier(Tier::Tracefs, Scope::Process(7))
            .process(7, "sender")
            .socket(1, (HERE, THERE), 7)
            .call(1, (Established, Close), 7, None)
            .aborts(1, reason, 7, None);
        let counters = Counters { network: NETWORK, aborts_on_data: 1, ..Counters::default() };
        let counted = story.clone().after(900);
        let counted = if code == 103 { counted.with(What::Counters(counters)) } else { counted };
        let finding = counted.after(3_000).finding();
        assert_eq!((finding.code, finding.class), (Code(code), Class::Loss), "{finding:?}");
        // The kernel aborts what nobody accepted, and counts none of those.
        let class = if code == 103 { Class::Note } else { Class::Loss };
        assert_eq!(story.after(3_000).finding().class, class);
        assert_eq!((finding.bytes, finding.harmless), (None, false), "{finding:?}");
        assert_eq!(finding.evidence["exact"], "not known".into());
    }
    // What a peer resets has mostly arrived.
    let story = Story::of_tier(Tier::Tracefs, Scope::Process(7))
        .process(7, "sender")
        .socket(1, (HERE, THERE), 7)
        .with(What::ResetReceived { socket: SocketId(1), counts: None })
        .change(1, (Established, Close), None)
        .after(3_000);
    let finding = story.finding();
    assert_eq!((finding.code, finding.class, finding.bytes), (Code(105), Class::Note, None));
}

/// No scan came between the last write and the exit; the kernel still sends at the next one.
#[test]
fn the_next_sample_shows_what_an_exit_left() {
    let left = |queue| {
        Story::of_tier(Tier::Tracefs, Scope::Process(7))
            .process(7, "sender")
            .socket(1, (HERE, THERE), 7)
            .exit(1, (Established, FinWait1), (7, Ending::Exit(0)), None)
            .after(80)
            .sample(1, FinWait1, (0, queue), false)
            .after(300)
            .answers(1, "TCP_ABORT_ON_DATA")
            .change(1, (FinWait1, Close), None)
            .gone(1)
            .after(3_000)
    };
    let finding = left(9_001).finding();
    assert_eq!((finding.code, finding.class), (Code(102), Class::Loss), "{finding:?}");
    assert_eq!(finding.bytes, Some(9_000));
    // The FIN alone: it was no exit that left bytes.
    assert!(left(1).findings().iter().all(|finding| finding.code != Code(102)));
}

/// An abort with counts is reported before the counter that counts it.
#[test]
fn a_counter_that_comes_after_its_abort_is_of_no_other() {
    let counters = Counters {
        network: NETWORK,
        aborts_on_data: 1,
        established_resets: 1,
        ..Counters::default()
    };
    let finding = Story::of_tier(Tier::Tracefs, Scope::Process(7))
        .process(7, "sender")
        .socket(1, (HERE, THERE), 7)
        .sample(1, Established, (0, 4_000), true)
        .after(40)
        .call(1, (Established, Close), 7, None)
        .aborts(1, "TCP_STATE", 7, None)
        .after(600)
        .with(What::Counters(counters))
        .after(2_000)
        .finding();
    assert_eq!(of_code(&finding), (103, Class::Loss, false, Some(4_000)));
}
