//! The doctor in the clinic: each disease is found by every tier that can see it, by its code and with the
//! bytes that patient and peer counted, and nothing is found in the healthy twins.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lastbyte_testing::{Rule, Run, Verdict, judged};
use serde_json::Value;

use super::catalogue::{Case, Loses, catalogue};
use super::itself::chosen;
use super::tiers::{Expected, expected};
use super::visit::{Failure, Seen, State, visit};
use crate::support::{answer, lastbyte};

#[test]
fn each_loss_is_found_with_bpf() {
    each_loss_is_found("bpf");
}

#[test]
fn each_loss_is_found_with_tracefs() {
    each_loss_is_found("tracefs");
}

#[test]
#[ignore = "half an hour, with the rights to load BPF"]
fn the_doctor_finds_each_disease_with_bpf() {
    assert_complaints_empty(&complaints_with("bpf"));
}

#[test]
#[ignore = "some minutes, with the rights to use tracefs"]
fn the_doctor_finds_what_it_can_see_with_tracefs() {
    assert_complaints_empty(&complaints_with("tracefs"));
}

#[test]
#[ignore = "some minutes"]
fn the_doctor_finds_what_it_can_see_with_procfs() {
    assert_complaints_empty(&complaints_with("procfs"));
}

/// One patient of each loss, sick and well. Nothing of it is about speed, so that several are looked at
/// at once, and the first visit of each decides.
#[track_caller]
fn each_loss_is_found(tier: &str) {
    const AT_ONCE: usize = 4;
    if !has_tier(tier) {
        return;
    }
    let mut cases = Vec::<Case>::new();
    for case in catalogue() {
        let is_loss = case.disease.is_some_and(|code| code.starts_with("LB1"));
        if is_loss && !cases.iter().any(|other| other.disease == case.disease) {
            cases.push(case);
        }
    }
    assert_eq!(cases.len(), 7, "{cases:#?}");
    // The data that a peer's reset threw away are in a table alone there, for a moment.
    cases.retain(|case| tier == "bpf" || case.disease != Some("LB105"));
    let twins = cases.iter().flat_map(|case| [State::Sick, State::Well].map(|state| (case, state)));
    let (twins, next) = (Vec::from_iter(twins), AtomicUsize::new(0));
    let look = || {
        let following = || twins.get(next.fetch_add(1, Ordering::Relaxed));
        let mut complaints = Vec::new();
        while let Some((case, state)) = following() {
            complaints.extend(complaint(case, *state, tier, Rule::FirstThatCounts));
        }
        complaints
    };
    let complaints = thread::scope(|scope| {
        let looking: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(look)).collect();
        looking.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert_complaints_empty(&complaints);
}

/// What is wrong in all that the doctor says by this tier. It looks at one patient at a time: how fast
/// things go is part of what it judges. Where that is so, most visits have to come out right.
fn complaints_with(tier: &str) -> Vec<String> {
    if !has_tier(tier) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    // What takes long is worth its time where the most is seen.
    let is_looked_at = |case: &Case| tier == "bpf" || !case.is_slow;
    for case in chosen().into_iter().filter(is_looked_at) {
        for state in [State::Sick, State::Well] {
            // Tables are looked at now and then, and what comes and goes in between is not in them.
            let is_sure = !case.is_slow && tier == "bpf" || state == State::Well;
            let rule = if is_sure { Rule::FirstThatCounts } else { Rule::Mostly };
            complaints.extend(complaint(&case, state, tier, rule));
        }
    }
    complaints
}

/// What is wrong in what the doctor says of this patient.
fn complaint(case: &Case, state: State, tier: &str, rule: Rule) -> Option<String> {
    let what = format!("{tier}: {} ({}, {state:?})", case.name, case.disease.unwrap_or("nothing"));
    let verdict = judged(&what, rule, |_| match visit(case, state, Some(tier)) {
        Ok(seen) => run_of(case, state, tier, &seen),
        Err(Failure::Broken(why)) => Run::Wrong(why),
        Err(Failure::NotHere(why)) => Run::NotHere(why),
    });
    match verdict {
        Verdict::Passed(_) => None,
        Verdict::Failed(why) => Some(why),
        Verdict::NotHere(why) => {
            lastbyte_testing::not_tested!("{what}: {why}");
            None
        }
    }
}

fn run_of(case: &Case, state: State, tier: &str, seen: &Seen) -> Run {
    if let (Some(why), true) = (&seen.late, case.is_slow) {
        return Run::Void(why.clone());
    }
    let complaint = complaint_about_page(seen).or_else(|| match state {
        State::Sick => complaint_about_sick(case, tier, seen),
        State::Well => complaint_about_well(case, tier, seen),
    });
    let Some(complaint) = complaint else { return Run::Right };
    // A kernel that refuses some programs tells of less than tier bpf is to see. That is said, not passed.
    let is_partial = tier == "bpf" && end_of(seen)["sees_each_loss"] == false;
    if is_partial && state == State::Sick && losses(seen).is_empty() && case.loses_bytes() {
        return Run::NotHere(format!("this kernel does not tell of each loss: {complaint}"));
    }
    Run::Wrong(format!("{complaint}; {}", codes_in(seen).join(" ")))
}

/// The last line of the answer.
fn end_of(seen: &Seen) -> &Value {
    seen.findings.last().unwrap_or(&Value::Null)
}

/// Whether the doctor can watch from there; if not, says why. What the doctor says is to be a refusal: that
/// it does not start for another reason is a failure. Where tracefs is not mounted, this thread, and what it
/// starts, has one of its own.
#[track_caller]
pub(super) fn has_tier(tier: &str) -> bool {
    if tier == "tracefs"
        && let Err(why) = lastbyte_sys::mount::own_tracefs()
    {
        lastbyte_testing::not_tested!("no {tier} here: {why}");
        return false;
    }
    let tried = answer(&mut lastbyte(["doctor", "--json", "--tier", tier, "--", "true"]));
    if tried.code() == 0 {
        let lines = tried.json_lines();
        assert_eq!(lines.last().unwrap()["tier"], tier, "{tried:#?}");
        return true;
    }
    let is_one_sentence =
        tried.stderr.lines().count() == 1 && tried.stderr.starts_with("lastbyte: ");
    assert!(tried.code() == 2 && is_one_sentence, "{tried:#?}");
    lastbyte_testing::not_tested!("no {tier} here: {}", tried.stderr.trim());
    false
}

#[track_caller]
fn assert_complaints_empty(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// What has to be found is, with its bytes, and no other loss is.
fn complaint_about_sick(case: &Case, tier: &str, seen: &Seen) -> Option<String> {
    let wanted = case.disease.or(case.note);
    let missed = wanted.is_some_and(|code| with_code(seen, code).is_empty());
    match expected(tier, case) {
        Expected::Found | Expected::Told | Expected::Noted if missed => {
            Some(format!("not found in {}", told(seen)))
        }
        // With less to look at a loss may be no more than noted, but what is said has to be true.
        Expected::Unseen | Expected::OtherEnd | Expected::Noted if losses(seen).is_empty() => None,
        Expected::Told if is_of_unknown_size(case, seen) => None,
        Expected::Doubted if is_doubt(seen) => None,
        Expected::OtherEnd if is_of_other_end(seen) => None,
        _ if tier != "bpf" && is_about_right(case, seen) => None,
        _ => complaint_about_bytes(case, seen),
    }
}

/// Whether the disease is told, and its bytes with the word "about", which allows a hundredth.
fn is_about_right(case: &Case, seen: &Seen) -> bool {
    let losses = losses(seen);
    let (Loses::Exactly(bytes), &[finding]) = (case.loses, losses.as_slice()) else { return false };
    let told = finding["bytes"].as_u64().unwrap_or(0);
    finding["code"].as_str() == case.disease
        && finding["evidence"]["exact"] == "about"
        && told.abs_diff(bytes(seen)) <= bytes(seen) / 100
}

/// Whether the disease is told as the only loss, and that its bytes are not known.
fn is_of_unknown_size(case: &Case, seen: &Seen) -> bool {
    let losses = losses(seen);
    let &[finding] = losses.as_slice() else { return false };
    finding["code"].as_str() == case.disease
        && finding["bytes"].is_null()
        && finding["evidence"]["exact"] == "not known"
}

/// Whether the only loss is one of which neither the cause nor the bytes are known.
fn is_doubt(seen: &Seen) -> bool {
    let losses = losses(seen);
    let &[finding] = losses.as_slice() else { return false };
    finding["code"] == "LB110" && finding["bytes"].is_null()
}

/// Whether the only loss is the other end's: all that its program wrote and the patient did not read.
fn is_of_other_end(seen: &Seen) -> bool {
    let losses = losses(seen);
    let &[finding] = losses.as_slice() else { return false };
    let missing = seen.peer_count("sent").saturating_sub(seen.count("read"));
    finding["code"] == "LB105" && finding["bytes"] == missing
}

fn complaint_about_bytes(case: &Case, seen: &Seen) -> Option<String> {
    let losses = losses(seen);
    let others = losses.iter().filter(|finding| finding["code"].as_str() != case.disease);
    if others.count() > 0 {
        return Some(format!("another loss: {}", told(seen)));
    }
    let told_bytes: u64 = losses.iter().filter_map(|finding| finding["bytes"].as_u64()).sum();
    let is_right = match case.loses {
        Loses::Nothing => told_bytes == 0,
        Loses::Some => !losses.is_empty(),
        Loses::Exactly(bytes) => told_bytes == bytes(seen),
        Loses::AtLeast(bytes) => told_bytes >= bytes(seen),
    };
    let counted = match case.loses {
        Loses::Exactly(bytes) | Loses::AtLeast(bytes) => bytes(seen),
        Loses::Nothing | Loses::Some => 0,
    };
    (!is_right).then(|| format!("{:?} {counted} bytes, but: {}", case.loses, told(seen)))
}

/// No loss, and not the disease that it was healed of. A harmless reset may have its code; where no table shows
/// an end, that a connection was reset, as this one was, is all that there is to tell.
fn complaint_about_well(case: &Case, tier: &str, seen: &Seen) -> Option<String> {
    let is_ill = |code| with_code(seen, code).iter().any(|finding| finding["harmless"] != true);
    let ill = case.disease.is_some_and(is_ill);
    let is_told_truly = tier == "procfs" && seen.end() == "reset by us" && is_doubt(seen);
    let is_wrong = ill || !(losses(seen).is_empty() || is_told_truly);
    is_wrong.then(|| told(seen))
}

/// No name of a program may be more than text.
fn complaint_about_page(seen: &Seen) -> Option<String> {
    let has_markup = seen.page.contains("<b>\"") || seen.page.contains('\x1b');
    (seen.page.is_empty() || has_markup).then(|| format!("its page: {}", seen.page))
}

/// The findings that say that bytes were lost.
fn losses(seen: &Seen) -> Vec<&Value> {
    seen.findings
        .iter()
        .filter(|line| line["type"] == "finding" && line["class"] == "loss")
        .collect()
}

/// The codes of all findings, harmless ones in parentheses.
fn codes_in(seen: &Seen) -> Vec<String> {
    let findings = seen.findings.iter().filter(|line| line["type"] == "finding");
    let shown = |finding: &Value| {
        let code = finding["code"].as_str().unwrap_or("without code");
        if finding["harmless"] == true { format!("({code})") } else { code.to_owned() }
    };
    findings.map(shown).collect()
}

fn with_code<'a>(seen: &'a Seen, code: &str) -> Vec<&'a Value> {
    seen.findings.iter().filter(|line| line["type"] == "finding" && line["code"] == code).collect()
}

/// What was told by whom.
fn told(seen: &Seen) -> String {
    let findings: Vec<_> = seen.findings.iter().map(Value::to_string).collect();
    format!("patient {} peer {}\n    {}", seen.patient, seen.peer, findings.join("\n    "))
}
