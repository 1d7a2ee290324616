//! C to BPF objects, in a build script.
//!
//! The compiler is `clang`, or the one that the variable `CLANG` names. Without a compiler nothing
//! is built, and the program reports that when it needs an object; with one, a source that does not
//! compile is a build error.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suffix of every source.
const SUFFIX: &str = ".bpf.c";

/// The flags of every object. `-g` keeps the description of types (BTF), which relocation in the
/// kernel needs; `-mcpu=v3` has 32-bit arithmetic (Linux 5.1).
const FLAGS: &[&str] = &["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-c"];

/// Errors of a build script.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A file could not be read, written or run.
    #[error("{what}: {error}")]
    Io {
        /// The operation, with the path.
        what: String,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// A source is wrong.
    #[error("{clang} refused {source_file}:\n{said}")]
    Refused {
        /// The compiler.
        clang: String,
        /// The source.
        source_file: String,
        /// The compiler's output.
        said: String,
    },
}

/// Compiles every `NAME.bpf.c` of a directory, and writes `FILE.rs` in the build's directory: a
/// constant `OBJECTS` of type `Result<&[(&str, &[u8])], &str>` with names and images, or the reason
/// why there are none. Also tells cargo which files to check before it runs this again.
///
/// # Errors
/// A source that does not compile, or a file that cannot be written.
pub fn folder(folder: &Path, file: &str) -> Result<(), CompileError> {
    println_for_cargo(&format!("cargo::rerun-if-changed={}", folder.display()));
    println_for_cargo("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let text = if is_there(&clang) {
        objects(folder, &out, &clang)?
    } else {
        watch_for_a_compiler();
        format!("Err({:?})", format!("there was no {} when it was built", clang.display()))
    };
    let text = format!("const OBJECTS: Result<&[(&str, &[u8])], &str> = {text};\n");
    let place = out.join(file);
    fs::write(&place, text).map_err(failed("write", &place))
}

/// Compiles all, and returns Rust code with their paths.
fn objects(folder: &Path, out: &Path, clang: &OsString) -> Result<String, CompileError> {
    let mut text = String::from("Ok(&[");
    for name in names(folder)? {
        let object = out.join(format!("{name}.bpf.o"));
        compile(folder, &name, &object, clang)?;
        text += &format!("\n    ({name:?}, include_bytes!({object:?})),");
    }
    Ok(text + "\n])")
}

/// The names of the sources, sorted.
fn names(folder: &Path) -> Result<Vec<String>, CompileError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
        let entry = entry.map_err(failed("read", folder))?;
        if let Some(name) = entry.file_name().to_str().and_then(|name| name.strip_suffix(SUFFIX)) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Compiles one, in its directory and with a relative name, so that the object is the same wherever
/// the directory is.
fn compile(folder: &Path, name: &str, object: &Path, clang: &OsString) -> Result<(), CompileError> {
    let source = format!("{name}{SUFFIX}");
    let mut command = Command::new(clang);
    command.args(FLAGS).arg("-fdebug-compilation-dir=.").arg(&source).arg("-o").arg(object);
    let output = command.current_dir(folder).output().map_err(failed("run", Path::new(clang)))?;
    if output.status.success() {
        return Ok(());
    }
    Err(CompileError::Refused {
        clang: clang.display().to_string(),
        source_file: folder.join(source).display().to_string(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Whether the compiler runs and supports BPF: some builds of clang do not.
fn is_there(clang: &OsString) -> bool {
    let targets = Command::new(clang).arg("--print-targets").output();
    targets.is_ok_and(|targets| {
        let lines = String::from_utf8_lossy(&targets.stdout).into_owned();
        lines.lines().any(|line| line.trim().starts_with("bpf "))
    })
}

/// A compiler that is installed later appears in one of these.
fn watch_for_a_compiler() {
    let path = env::var_os("PATH").unwrap_or_default();
    for folder in env::split_paths(&path).filter(|folder| folder.is_dir()) {
        println_for_cargo(&format!("cargo::rerun-if-changed={}", folder.display()));
    }
}

#[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
fn println_for_cargo(line: &str) {
    println!("{line}");
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> CompileError {
    let what = format!("cannot {what} {}", path.display());
    move |error| CompileError::Io { what, error }
}
