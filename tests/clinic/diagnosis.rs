//! The doctor in the clinic: each disease is found, by its code and with the bytes that patient and peer
//! counted, and nothing is found in the healthy twins.

use serde_json::Value;

use super::catalogue::{Case, Loses};
use super::itself::chosen;
use super::visit::{Failure, Seen, State, visit};
use crate::support::{answer, lastbyte};

#[test]
#[ignore = "some minutes, with the rights to load BPF"]
fn the_doctor_finds_each_disease_with_bpf() {
    assert_complaints_empty(&complaints_with("bpf", complaint_about_sick));
}

#[test]
#[ignore = "some minutes, with the rights to use tracefs"]
fn the_doctor_says_nothing_wrong_with_tracefs() {
    assert_complaints_empty(&complaints_with("tracefs", complaint_about_lower_tier));
}

#[test]
#[ignore = "some minutes"]
fn the_doctor_says_nothing_wrong_with_procfs() {
    assert_complaints_empty(&complaints_with("procfs", complaint_about_lower_tier));
}

type Judge = fn(&Case, &Seen) -> Option<String>;

/// What is wrong in all that the doctor says by this tier. It looks at one patient at a time: how fast
/// things go is part of what it judges.
fn complaints_with(tier: &str, judge: Judge) -> Vec<String> {
    if !has_tier(tier) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    // What takes long is worth its time where the most is seen.
    let is_looked_at = |case: &Case| tier == "bpf" || !case.is_slow;
    for case in chosen().into_iter().filter(is_looked_at) {
        for state in [State::Sick, State::Well] {
            let judge = if state == State::Sick { judge } else { complaint_about_well };
            complaints.extend(complaint_after_tries(&case, state, tier, judge));
        }
    }
    complaints
}

/// What is wrong each time. Speed is part of what is judged, and a machine that is busy with other things
/// is slow by itself: it has to come out right once.
fn complaint_after_tries(case: &Case, state: State, tier: &str, judge: Judge) -> Option<String> {
    const TRIES: u32 = 3;
    let code = case.disease.unwrap_or("nothing");
    let mut complaint = None;
    for attempt in 1..=TRIES {
        let mut found = Vec::new();
        complaint = match visit(case, state, Some(tier)) {
            Ok(seen) => {
                found = codes_in(&seen);
                complaint_about_page(&seen).or_else(|| judge(case, &seen))
            }
            Err(Failure::Broken(why)) => Some(why),
            Err(Failure::NotHere(why)) => {
                lastbyte_testing::not_tested!("{} ({state:?}): {why}", case.name);
                None
            }
        };
        let verdict = if complaint.is_none() { "right" } else { "WRONG" };
        let found = found.join(" ");
        eprintln!("{tier}: {} ({code}, {state:?}), try {attempt}: {verdict}: {found}", case.name);
        if complaint.is_none() {
            break;
        }
    }
    complaint.map(|it| format!("{} ({code}, {state:?}): {it}", case.name))
}

/// Whether the doctor can watch from there. If not, says why, and that something was left out.
pub(super) fn has_tier(tier: &str) -> bool {
    let tried = answer(&mut lastbyte(["doctor", "--tier", tier, "--", "true"]));
    if tried.code() != 0 {
        lastbyte_testing::not_tested!("no {tier} here: {}", tried.stderr.trim());
    }
    tried.code() == 0
}

#[track_caller]
fn assert_complaints_empty(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The disease has to be found, with its bytes, and no other loss.
fn complaint_about_sick(case: &Case, seen: &Seen) -> Option<String> {
    let missed = case.disease.or(case.note).is_some_and(|code| with_code(seen, code).is_empty());
    if missed {
        Some(format!("not found in {}", told(seen)))
    } else {
        complaint_about_bytes(case, seen)
    }
}

/// With less to look at a disease may be missed, but what is said has to be true.
fn complaint_about_lower_tier(case: &Case, seen: &Seen) -> Option<String> {
    if losses(seen).is_empty() || is_about_right(case, seen) {
        None
    } else {
        complaint_about_bytes(case, seen)
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

/// No loss, and not the disease that it was healed of. A harmless reset may have its code.
fn complaint_about_well(case: &Case, seen: &Seen) -> Option<String> {
    let is_ill = |code| with_code(seen, code).iter().any(|finding| finding["harmless"] != true);
    let ill = case.disease.is_some_and(is_ill);
    (ill || !losses(seen).is_empty()).then(|| told(seen))
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
