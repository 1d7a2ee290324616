//! The clinic itself, without the doctor: what the patients and their peers count is what each disease
//! promises, and everybody is in the catalogue.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::build::clinic;
use super::catalogue::{Case, catalogue};
use super::visit::{Failure, State, visit};

#[test]
fn the_clinic_is_as_sick_as_it_says() {
    let quick = chosen().into_iter().filter(|case| !case.is_slow).collect();
    assert_as_sick_as_they_say(quick, 8);
}

#[test]
#[ignore = "a minute of slow transfers over emulated paths"]
fn the_slow_clinic_is_as_sick_as_it_says() {
    let slow = chosen().into_iter().filter(|case| case.is_slow).collect();
    assert_as_sick_as_they_say(slow, 2);
}

#[test]
fn each_disease_has_a_patient_and_each_program_a_case() {
    let cases = catalogue();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    let seen: BTreeSet<_> = cases.iter().filter_map(|case| case.disease).collect();
    assert_eq!(seen, DISEASES.into_iter().collect());

    let used: BTreeSet<_> = cases.iter().map(|case| case.source.to_owned()).collect();
    let there = ["c", "python", "go"].into_iter().flat_map(|language| {
        let entries = fs::read_dir(clinic().join(language)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let programs = names.filter(|name| !name.starts_with("patient.") && !name.starts_with('_'));
        programs.map(move |name| format!("{language}/{name}")).collect::<Vec<_>>()
    });
    assert_eq!(used, there.collect());
}

#[test]
fn each_program_says_its_disease_first() {
    for case in catalogue() {
        let source = fs::read_to_string(clinic().join(case.source)).unwrap();
        let file = case.source.rsplit('/').next().unwrap();
        let Some(code) = file.get(..5).filter(|code| code.starts_with("lb")) else { continue };
        let first = source.lines().next().unwrap();
        let said = first.trim_start_matches(['/', '"', ' ']);
        assert!(said.starts_with(&code.to_uppercase()), "{}: {first}", case.source);
    }
}

/// All that the doctor knows.
const DISEASES: [&str; 26] = [
    "LB101", "LB102", "LB103", "LB104", "LB105", "LB106", "LB107", "LB201", "LB202", "LB203",
    "LB204", "LB205", "LB206", "LB207", "LB208", "LB209", "LB301", "LB302", "LB303", "LB304",
    "LB305", "LB401", "LB402", "LB403", "LB404", "LB405",
];

/// The cases that are asked for by `LASTBYTE_CLINIC`, or all.
pub(super) fn chosen() -> Vec<Case> {
    let word = std::env::var("LASTBYTE_CLINIC").unwrap_or_default();
    let asked = |case: &Case| {
        let code = case.disease.unwrap_or_default();
        case.name.contains(&word) || case.source.contains(&word) || code.contains(&word)
    };
    catalogue().into_iter().filter(asked).collect()
}

#[track_caller]
fn assert_as_sick_as_they_say(cases: Vec<Case>, at_once: usize) {
    let twins = cases.iter().flat_map(|case| [State::Sick, State::Well].map(|state| (case, state)));
    let visits: Vec<_> = twins.collect();
    let complaints = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((case, state)) = visits.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let complaint = complaint_about(case, *state);
                    complaints.lock().unwrap().extend(complaint);
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// What is not as promised.
fn complaint_about(case: &Case, state: State) -> Option<String> {
    let promise = if state == State::Sick { case.sick } else { case.well };
    match visit(case, state, None) {
        Ok(seen) if promise(&seen) => None,
        Ok(seen) => Some(format!("{} ({state:?}): {} {}", case.name, seen.patient, seen.peer)),
        Err(Failure::NotHere(why)) => {
            lastbyte_testing::not_tested!("{} ({state:?}): {why}", case.name);
            None
        }
        Err(Failure::Broken(why)) => Some(format!("{} ({state:?}): {why}", case.name)),
    }
}
