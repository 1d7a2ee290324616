//! The names of congestion controls are those of the whole machine: tests that load one take turns,
//! also those of other packages, and of other copies of this tree.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

/// The turn of whoever holds it.
#[derive(Debug)]
pub(crate) struct Turn(#[allow(dead_code, reason = "open, it is locked")] File);

/// Waits for it, and says so and gives up if others have it for very long.
pub(crate) fn turn() -> Option<Turn> {
    let path = std::env::temp_dir().join("lastbyte-test-congestion.lock");
    // Who did not make it may be kept from making it again (fs.protected_regular).
    let file = File::open(&path).or_else(|_| {
        let made = fs::OpenOptions::new().create(true).append(true).open(&path);
        made.and_then(|_| File::open(&path))
    });
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let begin = Instant::now();
    while !lastbyte_sys::file::try_lock_exclusive(&file).expect("it can be locked") {
        if begin.elapsed() > PATIENCE {
            lastbyte_testing::not_tested!("other tests have the names of congestion controls");
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
    Some(Turn(file))
}

/// Longer than all tests of one package together take.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);
