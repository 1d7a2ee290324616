//! The proxy is told to stop, or killed, in the middle of a transfer.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::MIB;
use crate::case::{self, Bytes, Case, Expected, Group, Outcome, Play};
use crate::end::Ending;
use crate::script::Step;
use crate::testbed::Testbed;

pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, does, because, play, expected| Case {
        name: format!("{}/{name}", Group::Stop),
        group: Group::Stop,
        does,
        because,
        runs: 1,
        long: false,
        play: Play::By(play),
        client: expected,
        server: expected,
    };
    vec![
        case(
            "asked",
            "64 MiB go each way when --stop is run.",
            "a FIN says that all came; what is cut off has to be a reset.",
            asked as fn(&Testbed, u64) -> Outcome,
            Expected {
                bytes: Bytes::AllBeforeFin,
                endings: &[Ending::Fin, Ending::Reset],
                write_error: false,
            },
        ),
        case(
            "killed",
            "64 MiB go each way when --kill is run; what is seen is said, and not judged.",
            "the kernel closes for a killed program: a reset only where something was unread.",
            killed as fn(&Testbed, u64) -> Outcome,
            Expected {
                bytes: Bytes::Part,
                endings: &[Ending::Fin, Ending::Reset],
                write_error: false,
            },
        ),
    ]
}

fn asked(testbed: &Testbed, run: u64) -> Outcome {
    match &testbed.setup().stop {
        Some(command) => transfer_during(testbed, run, command),
        None => Outcome::NotPlayed("--stop names no command"),
    }
}

fn killed(testbed: &Testbed, run: u64) -> Outcome {
    match &testbed.setup().kill {
        Some(command) => transfer_during(testbed, run, command),
        None => Outcome::NotPlayed("--kill names no command"),
    }
}

/// Small writes with pauses take more than a second in all, so that the command runs in the middle.
fn transfer_during(testbed: &Testbed, run: u64, command: &str) -> Outcome {
    let key = testbed.setup().seed.wrapping_add(run);
    let end = [
        Step::write_slowly(64 * MIB, 65_536, Duration::from_millis(1)),
        Step::HalfClose,
        Step::ReadToEnd,
    ];
    let Ok(streams) = testbed.pair() else {
        return Outcome::NotPlayed("no connection came through");
    };
    let (pair, ran) = thread::scope(|scope| {
        let transfer = scope.spawn(|| case::play_over(testbed, key, streams, (&end, &end)));
        thread::sleep(Duration::from_millis(300) + testbed.waits().moment);
        let ran = run_shell(command);
        (transfer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), ran)
    });
    if ran { Outcome::Pair(Box::new(pair)) } else { Outcome::NotPlayed("the command failed") }
}

fn run_shell(command: &str) -> bool {
    let mut shell = Command::new("sh");
    // stdout is for the result alone.
    let shell = shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
    shell.status().is_ok_and(|status| status.success())
}
