//! Each algorithm, built for the host, on random walks through what a kernel may ask of it: see
//! `native/walk.c`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lastbyte_congestion::all;

/// Some tenths of a second for all algorithms together.
const SEEDS: u64 = 8;
const STEPS: u64 = 50_000;
/// The bits above those that an argument has.
const NONE: u64 = 0;
const SOME: u64 = 0xdead_beef;

/// Those that may grow by more than some packets for each that is acknowledged.
const UNBOUNDED: &[&str] = &["bic", "brutal", "highspeed", "htcp", "hybla", "nv"];
/// It takes more of the kernel than the walk has.
const LEFT_OUT: &str = "bbr";

#[test]
fn windows_stay_within_sense_and_nothing_divides_by_zero() {
    for algorithm in all().iter().filter(|one| one.plain != LEFT_OUT) {
        let Some(program) = built(algorithm.plain) else { return };
        for seed in 0..SEEDS {
            let sum = walk(&program, seed, NONE);
            let name = algorithm.plain;
            assert_eq!(sum, walk(&program, seed, SOME), "{name}, seed {seed}: a bit too many");
        }
        fs::remove_file(program).unwrap();
    }
}

/// The algorithm as a program of the host, if there is a compiler; says so if not.
fn built(plain: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("walk-{plain}"));
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-o"]).arg(&program).arg("-I").arg(folder.join("bpf"));
    command.arg(format!("-DALGORITHM=\"{plain}.bpf.c\"")).arg(format!("-DTABLE=lb_{plain}"));
    command.arg(format!("-DBOUNDED={}", u8::from(!UNBOUNDED.contains(&plain))));
    match command.arg(folder.join("tests/native/walk.c")).output() {
        Err(error) => {
            lastbyte_testing::not_tested!("no C compiler for the host: {error}");
            None
        }
        Ok(told) => {
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            Some(program)
        }
    }
}

/// A walk. Returns what it prints.
fn walk(program: &Path, seed: u64, above: u64) -> String {
    let words = [seed, STEPS, above].map(|word| word.to_string());
    let told = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success(), "{}, seed {seed}: {}: {said}", program.display(), told.status);
    said
}
