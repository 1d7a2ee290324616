//! Makes a patient's program of its source, in `target/clinic`, unless it is there and newer.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use super::visit::Failure;
use crate::support::{LATER, answer_within};

/// Where the sources of the patients are.
pub(super) fn clinic() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clinic").canonicalize().unwrap()
}

/// The words that run a patient, named by its source below `clinic/`.
pub(super) fn words_for(source: &str) -> Result<Vec<String>, Failure> {
    type Built = Arc<OnceLock<Result<Vec<String>, Failure>>>;
    static BUILT: Mutex<Option<HashMap<String, Built>>> = Mutex::new(None);
    let cell = {
        let mut built = BUILT.lock().unwrap();
        Arc::clone(built.get_or_insert_default().entry(source.to_owned()).or_default())
    };
    cell.get_or_init(|| build(source)).clone()
}

/// The interpreter itself: `python3` may be a script that looks for it, each time.
pub(super) fn python() -> &'static str {
    static PYTHON: LazyLock<String> = LazyLock::new(|| {
        let ask = ["-c", "import sys; print(sys.executable)"];
        let told = answer_within(Command::new("python3").args(ask), LATER).with_code(0);
        told.stdout.trim().to_owned()
    });
    &PYTHON
}

fn build(source: &str) -> Result<Vec<String>, Failure> {
    let path = clinic().join(source);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (compiler, shared): (&[&str], _) = match path.extension().and_then(|end| end.to_str()) {
        Some("py") => return Ok(vec![python().to_owned(), text(&path)]),
        Some("c") => (&["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"], "patient.h"),
        Some("go") => (&["go", "build"], "patient.go"),
        _ => panic!("{source}: of no language that is known here"),
    };
    let shared = path.with_file_name(shared);
    let program = place(source).join(path.file_stem().unwrap());
    let made = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let sources = [made(&path), made(&shared)].into_iter().flatten().max();
    if made(&program) > sources {
        return Ok(vec![text(&program)]);
    }
    // Another run may start the old one meanwhile.
    let fresh = program.with_extension(std::process::id().to_string());
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg("-o").args([&fresh, &path]);
    if compiler[0] == "go" {
        command.arg(&shared);
    }
    if command.get_program() == "go" && Command::new("go").arg("version").output().is_err() {
        return Err(Failure::NotHere("there is no Go compiler (`go`)".to_owned()));
    }
    let told = answer_within(&mut command, LATER);
    if told.code() != 0 {
        return Err(Failure::Broken(format!("{source} is not compiled: {}", told.stderr)));
    }
    fs::rename(&fresh, &program).unwrap();
    Ok(vec![text(&program)])
}

/// A directory for each language.
fn place(source: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clinic");
    let place = place.join(source).parent().unwrap().to_owned();
    fs::create_dir_all(&place).unwrap();
    place
}
