//! `lastbyte cc load`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use lastbyte_changes::{Ledger, NotPinned, pin};
use lastbyte_congestion::{Algorithm, BPFFS, CongestionError, Given, Registered};
use lastbyte_sys::process;
use lastbyte_units::BitRate;
use serde::Serialize;

use super::names;
use super::status::connections_with;
use super::unloading::{connections, say_default};
use super::words::LoadArgs;
use crate::ends::Ends;
use crate::output::{left_alone, say, say_json, talk};
use crate::verdict::Verdict;

/// Loads what is named, and holds or keeps it.
pub(super) fn load(args: &LoadArgs) -> Result<Verdict> {
    let algorithms = names::in_catalogue(&args.names)?;
    check_rate(&algorithms, args.rate)?;
    // Before there is anything that an early end would leave.
    let ends = if args.keep { None } else { Some(Ends::new()?) };
    let loaded = load_all(&algorithms, args.rate)?;
    match ends {
        None => keep(loaded, args),
        Some(ends) => hold(loaded, args, &ends),
    }
}

/// A rate is for one that takes it; one that takes it goes without, too.
fn check_rate(algorithms: &[&Algorithm], rate: Option<BitRate>) -> Result<()> {
    let wants = algorithms.iter().find(|one| one.wants_rate);
    match (wants, rate) {
        (None, Some(_)) => {
            let plain = algorithms.first().map_or("it", |one| one.plain);
            Err(CongestionError::TakesNoRate(plain).into())
        }
        (Some(one), None) => {
            talk(&format!(
                "cc: {} has no rate: each socket's SO_MAX_PACING_RATE decides, and one without sends \
                 slowly; --rate 80mbit is for all",
                one.name
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// An algorithm that this process has in the kernel, with what it was given.
struct Loaded {
    algorithm: &'static Algorithm,
    registered: Registered,
    rate: Option<BitRate>,
}

impl Loaded {
    /// Unloads it, by going.
    fn let_go(self) {}
}

/// Loads all. If one cannot be, those before it go again.
fn load_all(algorithms: &[&'static Algorithm], rate: Option<BitRate>) -> Result<Vec<Loaded>> {
    let one = |algorithm: &&'static Algorithm| {
        let rate = rate.filter(|_| algorithm.wants_rate);
        // A byte a second is the least that can be said.
        let given = Given { rate: rate.map(|rate| (rate.bits_per_s() / 8).max(1)) };
        let registered = lastbyte_congestion::load(algorithm, given)?;
        Ok(Loaded { algorithm, registered, rate })
    };
    algorithms.iter().map(one).collect()
}

// --- held ------------------------------------------------------------------------------------------

/// Holds them until somebody says that it is enough, or the time is over.
fn hold(loaded: Vec<Loaded>, args: &LoadArgs, ends: &Ends) -> Result<Verdict> {
    let until = args.for_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let lines: Vec<Line> = loaded.iter().map(|one| Line::of(one, args)).collect();
    tell(&lines, args)?;
    if loaded.iter().any(|one| !one.registered.ends_with_process()) {
        talk(
            "cc: before Linux 6.4 a kill leaves them in the kernel: `lastbyte cc unload` takes them \
             away then",
        );
    }
    let told = ends.wait(until)?;
    for one in loaded {
        let name = one.registered.name();
        let in_use = connections_with(name).unwrap_or_default();
        one.let_go();
        talk(&format!("cc: {name} is unloaded{}", connections(in_use)));
        say_default(name);
    }
    Ok(match told {
        None | Some(process::SIGTERM) => Verdict::Done,
        // 128 and the number of the signal, as a shell has it.
        Some(signal) => Verdict::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
    })
}

// --- kept ------------------------------------------------------------------------------------------

/// Keeps them all beyond this process, each entered into the ledger before; or none of them.
fn keep(loaded: Vec<Loaded>, args: &LoadArgs) -> Result<Verdict> {
    let ledger = Ledger::of_this_user()?;
    let lines: Vec<Line> = loaded.iter().map(|one| Line::of(one, args)).collect();
    let algorithms = loaded.into_iter().map(|one| (one.registered, one.rate)).collect();
    let say_mounted = &mut |id| {
        talk(&format!("cc: bpffs was not mounted: it is now, at {BPFFS} (change {id})"));
    };
    if let Err(NotPinned { error, left }) = pin(&ledger, algorithms, say_mounted) {
        left.iter().for_each(|left| left_alone(&left.to_string()));
        return Err(error.into());
    }
    tell(&lines, args)?;
    Ok(Verdict::Done)
}

// --- what is told ----------------------------------------------------------------------------------

/// An algorithm that was loaded. Keys carry their units.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    plain_name: &'static str,
    /// `process` or `file`.
    held_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_s: Option<u64>,
}

impl Line {
    fn of(one: &Loaded, args: &LoadArgs) -> Self {
        let Loaded { algorithm, registered, rate } = one;
        Self {
            name: algorithm.name,
            plain_name: algorithm.plain,
            held_by: if args.keep { "file" } else { "process" },
            pid: (!args.keep).then(std::process::id),
            file: args.keep.then(|| registered.file()),
            for_s: args.for_seconds,
            rate_bits_per_s: rate.map(BitRate::bits_per_s),
        }
    }
}

/// Says what is loaded, for how long, and how it is chosen.
fn tell(lines: &[Line], args: &LoadArgs) -> Result<()> {
    let how_long = match args.for_seconds {
        _ if args.keep => "until the next boot, `cc unload` or `undo`".to_owned(),
        Some(1) => "for 1 second".to_owned(),
        Some(seconds) => format!("for {seconds} seconds"),
        None => "until Ctrl-C".to_owned(),
    };
    for line in lines {
        if args.json {
            say_json(line)?;
            continue;
        }
        let rate = line.rate_bits_per_s.and_then(|rate| BitRate::from_bits_per_s(rate).ok());
        let rate = rate.map_or_else(String::new, |rate| format!(" at {rate}"));
        say(&format!("{}{rate} is loaded {how_long}", line.name));
    }
    let Some(first) = lines.first() else { return Ok(()) };
    talk(&format!(
        "cc: a program chooses it by setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, \"{}\", {}), a \
         route by `congctl {0}`",
        first.name,
        first.name.len()
    ));
    Ok(())
}
