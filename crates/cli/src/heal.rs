//! `lastbyte heal`: changes options of a live connection of another program, enters that into the
//! ledger first, and shows what came of it.

mod tell;
mod words;

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::{Context, Result, anyhow, ensure};
use lastbyte_changes::{Ledger, Outcome, Tuning, tune};
use lastbyte_core::text::in_one_line;
use lastbyte_heal::{Asked, Course, Found, Gain, Target, WINDOW, Wanted, find, offered, watch};
use lastbyte_host::Proc;
use lastbyte_sys::process::effective_user;
use lastbyte_units::grouped;

use crate::ends::Ends;
use crate::output::{Progress, left_alone, say, talk};
use crate::verdict::Verdict;
use tell::{say_plan, tell};

pub(crate) use words::HealArgs;
use words::{PacingWord, SocketWord};

/// A connection that is to be changed, and what came of that.
#[derive(Debug)]
struct Patient {
    tuning: Tuning,
    gain: Option<Gain>,
}

/// Finds connections, says what would be changed, asks, changes it, and measures.
pub(crate) fn run(args: &HealArgs) -> Result<Verdict> {
    let asked = asked(args)?;
    let found = find(wanted(args))?;
    let is_none = found.targets.is_empty();
    say_left_out(&found, args)?;
    if is_none {
        return Ok(Verdict::No);
    }
    let mut patients = examine(&found.targets, &asked)?;
    for patient in patients.iter().filter(|_| !args.json) {
        say_plan(patient, asked.unlock);
    }
    let is_planned = |patient: &&Patient| patient.tuning.outcome == Outcome::Planned;
    let planned = patients.iter().filter(is_planned).count();
    if planned == 0 {
        patients.iter().try_for_each(|patient| tell(patient, args))?;
        return Ok(Verdict::No);
    }
    if let Err(refused) = agree(planned, args) {
        patients.iter().filter(|_| args.json).try_for_each(|patient| tell(patient, args))?;
        return Err(refused);
    }
    let ended = treat(&mut patients, &asked, args)?;
    patients.iter().try_for_each(|patient| tell(patient, args))?;
    if let Some(signal) = ended {
        return Ok(Verdict::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX)));
    }
    let any =
        |outcome: fn(&Outcome) -> bool| patients.iter().any(|one| outcome(&one.tuning.outcome));
    Ok(if any(|outcome| matches!(outcome, Outcome::Failed(_))) {
        Verdict::Failed
    } else {
        any(|outcome| matches!(outcome, Outcome::Changed(_))).into()
    })
}

/// What is to be different.
///
/// # Errors
/// Nothing is asked for; a congestion control that the kernel does not have.
fn asked(args: &HealArgs) -> Result<Asked> {
    let asked = Asked {
        unlock: args.unlock_buffers,
        congestion: args.congestion.as_deref().map(offered).transpose()?,
        notsent_lowat_bytes: args.notsent_lowat.map(|size| lowat(size.bytes())).transpose()?,
        pacing_bytes_per_s: args.pacing.map(PacingWord::bytes_per_s),
    };
    ensure!(
        !asked.is_nothing(),
        "what is to be changed? Say --unlock-buffers, --congestion NAME, --notsent-lowat BYTES or \
         --pacing RATE"
    );
    Ok(asked)
}

fn lowat(bytes: u64) -> Result<u32> {
    u32::try_from(bytes).context("--notsent-lowat: the kernel takes at most 4,294,967,295 bytes")
}

fn wanted(args: &HealArgs) -> Wanted {
    match (args.pid, args.port, args.socket) {
        (Some(pid), _, _) => Wanted::Process { pid, fd: args.fd },
        (_, Some(port), _) => Wanted::Port(port),
        (_, _, Some(SocketWord::Cookie(cookie))) => Wanted::Cookie(cookie),
        (_, _, Some(SocketWord::Between(local, peer))) => Wanted::Between(local, peer),
        // Clap wants one of them.
        (None, None, None) => Wanted::Port(0),
    }
}

/// Says what was found and cannot be changed, and that nothing was found.
///
/// # Errors
/// There is something, and all of it is out of this user's sight.
fn say_left_out(found: &Found, args: &HealArgs) -> Result<()> {
    let Found { targets, out_of_sight, orphans, multipath, some_left_out } = found;
    let out_of_sight: Vec<String> = out_of_sight.iter().map(|one| format!("{one:#x}")).collect();
    if !out_of_sight.is_empty() {
        let what = format!(
            "socket {} is open in a process that this user cannot see: that needs CAP_SYS_PTRACE, \
             such as with sudo",
            out_of_sight.join(", ")
        );
        if targets.is_empty() {
            return Err(anyhow!(what));
        }
        talk(&format!("heal: {what}"));
    }
    for cookie in orphans {
        talk(&format!(
            "heal: socket {cookie:#x} no program has open any more: the kernel sends what is left of \
             it, and nobody can change it"
        ));
    }
    for cookie in multipath {
        talk(&format!(
            "heal: socket {cookie:#x} is a path of Multipath TCP, whose options cannot be changed so"
        ));
    }
    if targets.is_empty() {
        let what = match (args.pid, args.port, args.socket) {
            (Some(pid), _, _) => format!(
                "{} (process {pid}) has no TCP connection",
                in_one_line(&Proc::default().name(pid))
            ),
            (_, Some(port), _) => format!("no program has a TCP connection with port {port}"),
            (_, _, Some(socket)) => format!("{socket} is no TCP connection of a program"),
            (None, None, None) => String::new(),
        };
        if args.json {
            talk(&format!("heal: {what}"));
        } else {
            say(&what);
        }
        if *some_left_out {
            let advice =
                if effective_user() == 0 { "" } else { ": as root, such as with sudo, it can" };
            talk(&format!(
                "heal: not every process, or not its network namespace, can be looked into by this \
                 user{advice}"
            ));
        }
    }
    Ok(())
}

/// Asks each connection what it has, and says what would be different.
fn examine(targets: &[Target], asked: &Asked) -> Result<Vec<Patient>> {
    let mut patients = Vec::new();
    for target in targets {
        match Tuning::of(target, asked)? {
            Some(tuning) => patients.push(Patient { tuning, gain: None }),
            None => talk(&format!("heal: socket {:#x} has ended meanwhile", target.cookie)),
        }
    }
    Ok(patients)
}

/// Asks for leave, unless it was given.
///
/// # Errors
/// It was not given, or there is nobody to ask.
fn agree(connections: usize, args: &HealArgs) -> Result<()> {
    if args.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(anyhow!(
            "there is no terminal to ask on: say --yes to change it; nothing was changed"
        ));
    }
    let what = match connections {
        1 => "this connection".to_owned(),
        many => format!("these {} connections", grouped(many as u64)),
    };
    talk(&format!("heal: change {what}? [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().take(64).read_line(&mut answer).context("cannot read the answer")?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(anyhow!("nothing was changed"))
}

/// Measures, changes, and measures again. Returns the signal that ended it, if one did.
fn treat(patients: &mut [Patient], asked: &Asked, args: &HealArgs) -> Result<Option<i32>> {
    let time = args.measure.as_duration();
    let ends = Ends::new()?;
    let progress = Progress::new();
    let chosen = |patient: &&mut Patient| patient.tuning.outcome == Outcome::Planned;
    let mut chosen: Vec<&mut Patient> = patients.iter_mut().filter(chosen).collect();
    let mut before = vec![Course::default(); chosen.len()];
    if !time.is_zero() {
        progress.show("heal: measures how fast it is");
        let (courses, signal) =
            watch(&targets(&chosen), WINDOW, &mut |until| ends.wait(Some(until)))?;
        if signal.is_some() {
            progress.wipe();
            talk("heal: nothing was changed");
            return Ok(signal);
        }
        before = courses;
    }
    let mut tunings: Vec<&mut Tuning> =
        chosen.iter_mut().map(|patient| &mut patient.tuning).collect();
    tune(&mut tunings, asked, &Ledger::of_this_user()?, &mut left_alone)?;
    if time.is_zero() {
        return Ok(None);
    }
    let mut ended = None;
    if chosen.iter().any(|patient| matches!(patient.tuning.outcome, Outcome::Changed(_))) {
        progress.show("heal: changed; measures how fast it is now");
        let (after, signal) = watch(&targets(&chosen), time, &mut |until| ends.wait(Some(until)))?;
        ended = signal;
        if signal.is_some() {
            progress.wipe();
            talk("heal: interrupted: what was changed stays");
        }
        for ((patient, before), after) in chosen.iter_mut().zip(&before).zip(&after) {
            patient.gain = Some(Gain::of(before, after));
            patient.tuning.look_again();
        }
    }
    progress.wipe();
    Ok(ended)
}

fn targets<'a>(patients: &'a [&mut Patient]) -> Vec<&'a Target> {
    patients.iter().map(|patient| &patient.tuning.target).collect()
}
