//! Programs in C, built against what `make install` would install: the examples against a listener,
//! and bad input. What needs valgrind, or takes its time, runs in `make test-real`.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What program A writes.
const WRITTEN: usize = 1_000_000;
/// For a program that takes an instant, on a machine that is busy, also under valgrind.
const LIMIT: Duration = Duration::from_secs(60);
/// By how much a deadline may be exceeded, in milliseconds; under valgrind everything is slow.
const TOLERANCE: &str = "20";
const TOLERANCE_OF_VALGRIND: &str = "1000";

const C: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
const CXX: [&str; 7] = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", "c++"];

#[test]
fn finished_programs_deliver_every_byte() {
    let Some(place) = Place::with("cc") else { return };
    for (linked, libraries) in [("shared", Libraries::Shared), ("static", Libraries::Static)] {
        let program = place.program("examples/program_a_finished.c", libraries);
        for run in 1..=20 {
            let (told, got) = run_against_a_greeter(&mut Command::new(&program), b"");
            assert!(told.status.success(), "{linked}, run {run}: {told:?}");
            assert_eq!(got.bytes, WRITTEN, "{linked}, run {run}");
            assert!(got.ended_well, "{linked}, run {run}");
        }
    }
}

/// It may win the race, so that nothing is asserted but that it says nothing.
#[test]
fn a_program_that_just_closes_loses_bytes_and_says_nothing() {
    let Some(place) = Place::with("cc") else { return };
    let program = place.program("examples/program_a.c", Libraries::Shared);
    let runs: Vec<(Output, Got)> =
        (0..20).map(|_| run_against_a_greeter(&mut Command::new(&program), b"")).collect();
    assert!(runs.iter().all(|(told, _)| told.status.success()), "no call fails");
    let mut got: Vec<usize> = runs.iter().map(|(_, got)| got.bytes).collect();
    got.sort_unstable();
    let lost = got.iter().filter(|bytes| **bytes < WRITTEN).count();
    eprintln!(
        "program A lost bytes in {lost} of 20 runs; of {WRITTEN} the reader got {} at the median, \
         {} at least",
        got[10], got[0]
    );
}

#[test]
fn the_finished_program_has_one_line_more() {
    let lines = |file: &str| {
        let text = fs::read_to_string(ours(&format!("examples/{file}.c"))).unwrap();
        let code = text.split_once("*/").unwrap().1.to_string();
        code.lines().map(String::from).collect::<Vec<_>>()
    };
    let (plain, mut finished) = (lines("program_a"), lines("program_a_finished"));
    let more: Vec<String> = finished.iter().filter(|line| !plain.contains(line)).cloned().collect();
    assert_eq!(
        more,
        [
            "#include <lastbyte.h>",
            "    if (lb_finish(fd, 10000, NULL) != 0) return failed(\"lb_finish\");",
        ]
    );
    finished.retain(|line| !more.contains(line));
    assert_eq!(finished, plain);
}

#[test]
fn the_example_shows_a_complete_receipt() {
    let Some(place) = Place::with("cc") else { return };
    let program = place.program("examples/example.c", Libraries::Shared);
    let input = vec![b'y'; 300_000];
    let (told, got) = run_against_a_greeter(&mut Command::new(&program), &input);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{text}");
    assert_eq!((got.bytes, got.ended_well), (300_000, true));
    for line in [
        "level      closed",
        "peer       FIN",
        "why        proven",
        "written    300000 bytes",
        "sent       300000 bytes",
        "acked      300000 bytes",
        "unacked    0 bytes",
        "drained    13 bytes",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} is missing in\n{text}");
    }
    assert!(text.contains("receipt    closed: 300000 of 300000 bytes acked"), "{text}");
}

#[test]
fn bad_input_has_its_errno_and_deadlines_are_kept() {
    let Some(place) = Place::with("cc") else { return };
    for libraries in [Libraries::Shared, Libraries::Static] {
        let program = place.program("tests/bad_input.c", libraries);
        let told = run(Command::new(&program).arg(TOLERANCE), b"");
        let text = String::from_utf8_lossy(&told.stdout);
        eprintln!("{text}");
        assert!(told.status.success(), "{told:?}");
    }
}

#[test]
fn the_dial_example_reaches_a_name_and_finishes() {
    let Some(place) = Place::with("cc") else { return };
    let program = place.program("examples/dial.c", Libraries::Shared);
    let input = vec![b'y'; 300_000];
    let (told, got) = run_against_a_greeter(&mut Command::new(&program), &input);
    let text = String::from_utf8(told.stdout).unwrap();
    assert!(told.status.success(), "{text}");
    assert_eq!((got.bytes, got.ended_well), (300_000, true));
    assert!(text.starts_with("connected to 127.0.0.1:"), "{text}");
    assert!(text.ends_with("attempt 1\neverything arrived\n"), "{text}");
    let told = run(Command::new(&program).args(["127.0.0.1", "1"]), b"");
    let text = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(1));
    assert!(text.starts_with("dial 127.0.0.1 port 1: "), "{text}");
}

#[test]
fn dials_keep_their_promises() {
    let Some(place) = Place::with("cc") else { return };
    for libraries in [Libraries::Shared, Libraries::Static] {
        let program = place.program("tests/dial.c", libraries);
        let told = run(Command::new(&program).arg(TOLERANCE), b"");
        let text = String::from_utf8_lossy(&told.stdout);
        eprintln!("{text}");
        assert!(told.status.success(), "{told:?}");
    }
}

#[test]
fn the_header_keeps_its_promise_in_c() {
    let Some(place) = Place::with("cc") else { return };
    for libraries in [Libraries::Shared, Libraries::Static] {
        says_the_version(&place.program("tests/abi.c", libraries));
    }
}

#[test]
fn the_header_keeps_its_promise_in_cxx() {
    let Some(place) = Place::with("c++") else { return };
    let compiler = Compiler { name: "c++", options: &CXX };
    says_the_version(&place.compiled(&compiler, "tests/abi.c", Libraries::Shared));
}

#[test]
fn another_compiler_agrees() {
    let Some(place) = Place::with("clang") else { return };
    let compiler = Compiler { name: "clang", options: &C };
    says_the_version(&place.compiled(&compiler, "tests/abi.c", Libraries::Shared));
}

#[test]
fn only_our_names_are_exported() {
    let Some(place) = Place::with("nm") else { return };
    let library = place.directory.join("lib/liblastbyte.so.0");
    let told = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library), b"");
    let text = String::from_utf8(told.stdout).unwrap();
    let exported: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().last()).collect();

    let header = fs::read_to_string(ours("include/lastbyte.h")).unwrap();
    let code = header.lines().filter(|line| !line.trim_start().starts_with("///"));
    let mut declared: Vec<&str> = code
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("lb_"))
        .collect();
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(exported, declared);
}

#[test]
#[ignore = "needs valgrind"]
fn valgrind_finds_nothing() {
    let Some(place) = Place::with("cc") else { return };
    if !is_there("valgrind") {
        return;
    }
    let program = place.program("tests/bad_input.c", Libraries::Shared);
    let told = run(valgrind(&program).arg(TOLERANCE_OF_VALGRIND), b"");
    assert_clean("bad_input", &told);
    for example in ["program_a", "program_a_finished", "example"] {
        let program = place.program(&format!("examples/{example}.c"), Libraries::Shared);
        let (told, got) = run_against_a_greeter(&mut valgrind(&program), &[b'z'; WRITTEN]);
        assert_clean(example, &told);
        assert!(example == "program_a" || got.bytes == WRITTEN, "{example}: {}", got.bytes);
    }
}

/// What all dials share is never freed: it can still be reached, and nothing else is left.
#[test]
#[ignore = "needs valgrind"]
fn valgrind_finds_nothing_lost_by_dials() {
    let Some(place) = Place::with("cc") else { return };
    if !is_there("valgrind") {
        return;
    }
    let program = place.program("tests/dial.c", Libraries::Shared);
    let mut command = Command::new("valgrind");
    command.args(["--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    command.arg(format!("--suppressions={}", ours("tests/valgrind.supp").display()));
    let told = run(command.arg(&program).args([TOLERANCE_OF_VALGRIND, "alone"]), b"");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

/// What the files of `make install` are called, and what a program needs to be linked to them.
#[test]
fn make_installs_what_a_program_needs_and_takes_it_away() {
    let Some(place) = Place::with("make") else { return };
    let Some(_) = Place::with("cc") else { return };
    place.add_static_library();
    let built = place.directory.join("built");
    fs::create_dir(&built).unwrap();
    fs::write(built.join("lastbyte"), "the program").unwrap();
    for (from, to) in [("so", "liblastbyte_c.so"), ("a", "liblastbyte_c.a")] {
        fs::copy(place.directory.join(format!("lib/liblastbyte.{from}")), built.join(to)).unwrap();
    }
    let root = place.directory.join("with space");
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.env_remove("MAKEFLAGS").arg("-C").arg(ours("../..")).arg(target).arg("PREFIX=/opt/it");
        make.arg(format!("BUILT={}", built.display())).arg(format!("DESTDIR={}", root.display()));
        let told = run(&mut make, b"");
        assert!(told.status.success(), "{told:?}");
    };

    make("install");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        files_below(&root),
        [
            "opt/it/bin/lastbyte".to_string(),
            "opt/it/include/lastbyte.h".to_string(),
            "opt/it/lib/liblastbyte.a".to_string(),
            "opt/it/lib/liblastbyte.so -> liblastbyte.so.0".to_string(),
            format!("opt/it/lib/liblastbyte.so.0 -> liblastbyte.so.{version}"),
            format!("opt/it/lib/liblastbyte.so.{version}"),
            "opt/it/lib/pkgconfig/lastbyte.pc".to_string(),
        ]
    );
    let pc = fs::read_to_string(root.join("opt/it/lib/pkgconfig/lastbyte.pc")).unwrap();
    assert!(pc.starts_with("prefix=/opt/it\nlibdir=/opt/it/lib\nincludedir=/opt/it/include\n"));
    assert!(pc.contains(&format!("Version: {version}\n")), "{pc}");
    assert!(!pc.contains('@'), "{pc}");

    let installed = Place { directory: root.join("opt/it") };
    for libraries in [Libraries::Shared, Libraries::Static] {
        says_the_version(&installed.program("tests/abi.c", libraries));
        fs::remove_file(installed.directory.join("abi")).unwrap();
    }
    std::mem::forget(installed);
    make("uninstall");
    assert_eq!(files_below(&root), [""; 0]);
}

// --- programs ------------------------------------------------------------------------------------

/// A directory as `make install` leaves it, removed when dropped.
struct Place {
    directory: PathBuf,
}

#[derive(Clone, Copy)]
enum Libraries {
    Shared,
    Static,
}

struct Compiler {
    name: &'static str,
    options: &'static [&'static str],
}

impl Place {
    /// `None`, said aloud, where the tool is not there.
    fn with(tool: &str) -> Option<Self> {
        static PLACES: AtomicU32 = AtomicU32::new(0);
        if !is_there(tool) {
            return None;
        }
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("c-{}-{number}", std::process::id());
        let place = Self { directory: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name) };
        let library = place.directory.join("lib");
        fs::create_dir_all(&library).unwrap();
        fs::create_dir(place.directory.join("include")).unwrap();
        fs::copy(ours("include/lastbyte.h"), place.directory.join("include/lastbyte.h")).unwrap();
        // Not a link: cargo may replace what it built while this test runs.
        fs::copy(lastbyte_testing::built("liblastbyte_c.so"), library.join("liblastbyte.so.0"))
            .unwrap();
        symlink("liblastbyte.so.0", library.join("liblastbyte.so")).unwrap();
        Some(place)
    }

    /// It is large: only where it is needed.
    fn add_static_library(&self) -> PathBuf {
        let library = self.directory.join("lib/liblastbyte.a");
        if !library.exists() {
            fs::copy(lastbyte_testing::built("liblastbyte_c.a"), &library).unwrap();
        }
        library
    }

    /// Compiles a file of this crate.
    fn program(&self, source: &str, libraries: Libraries) -> PathBuf {
        self.compiled(&Compiler { name: "cc", options: &C }, source, libraries)
    }

    fn compiled(&self, compiler: &Compiler, source: &str, libraries: Libraries) -> PathBuf {
        let source = ours(source);
        let program = self.directory.join(source.file_stem().unwrap());
        let library = self.directory.join("lib");
        let mut command = Command::new(compiler.name);
        command.args(compiler.options).arg("-I").arg(self.directory.join("include"));
        command.arg(&source).args(["-x", "none", "-pthread", "-o"]).arg(&program);
        match libraries {
            Libraries::Shared => {
                command.arg("-L").arg(&library).arg("-llastbyte");
                command.arg("-Xlinker").arg("-rpath").arg("-Xlinker").arg(&library);
            }
            Libraries::Static => {
                command.arg(self.add_static_library()).args(private_libraries());
            }
        }
        let told = run(&mut command, b"");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        program
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What a program that contains the library needs too.
fn private_libraries() -> Vec<String> {
    let pc = fs::read_to_string(ours("lastbyte.pc.in")).unwrap();
    let line = pc.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    line.split(' ').map(String::from).collect()
}

/// Whether a program is there; if not, that is said aloud.
fn is_there(tool: &str) -> bool {
    let mut command = Command::new(tool);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let found = command.status().is_ok();
    if !found {
        lastbyte_testing::not_tested!("{tool} is missing");
    }
    found
}

fn says_the_version(program: &Path) {
    let told = run(&mut Command::new(program), b"");
    assert!(told.status.success(), "{told:?}");
    assert_eq!(told.stdout, format!("{}\n", env!("CARGO_PKG_VERSION")).as_bytes());
}

fn valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--error-exitcode=99", "--leak-check=full", "--track-fds=yes"]);
    command.arg(format!("--suppressions={}", ours("tests/valgrind.supp").display()));
    command.arg(program);
    command
}

/// No error, no leak, no descriptor left but those that the program was started with.
fn assert_clean(what: &str, told: &Output) {
    let text = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{what}: {}\n{text}", told.status);
    assert!(text.contains("All heap blocks were freed -- no leaks are possible"), "{what}: {text}");
    let lines: Vec<&str> = text.lines().collect();
    let left: Vec<&str> = lines
        .windows(2)
        .filter(|pair| pair[0].contains("Open ") && !pair[1].contains("<inherited from parent>"))
        .map(|pair| pair[0])
        .collect();
    assert!(text.contains("FILE DESCRIPTORS:"), "{what}: {text}");
    assert_eq!(left, [""; 0], "{what}");
}

// --- running -------------------------------------------------------------------------------------

/// What the peer of a program read.
struct Got {
    bytes: usize,
    ended_well: bool,
}

/// Runs a program, its last words HOST PORT, against a peer that greets it, reads to the end, and
/// closes.
fn run_against_a_greeter(command: &mut Command, input: &[u8]) -> (Output, Got) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"220 welcome\r\n").unwrap();
        let (mut bytes, mut room) = (0, vec![0; 1 << 16]);
        loop {
            match stream.read(&mut room) {
                Ok(0) => return Got { bytes, ended_well: true },
                Ok(more) => bytes += more,
                Err(_) => return Got { bytes, ended_well: false },
            }
        }
    });
    let told = run(command.arg("127.0.0.1").arg(port.to_string()), input);
    // Should the program not have connected, the peer waits no longer.
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
    (told, peer.join().unwrap())
}

/// Runs a program to its end, at most until the limit.
fn run(command: &mut Command, input: &[u8]) -> Output {
    let what = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It ends with an error where the program does not read.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let pid = child.id();
    let reader = thread::spawn(move || child.wait_with_output().unwrap());
    let until = Instant::now() + LIMIT;
    while !reader.is_finished() {
        if Instant::now() > until {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            panic!("{what} ran for more than {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
    let _ = writer.join().unwrap();
    reader.join().unwrap()
}

// --- files ---------------------------------------------------------------------------------------

/// A file of this crate.
fn ours(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// What is not a directory, named from `root`, a link with where it leads; in order.
fn files_below(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            match fs::read_link(&path) {
                Ok(to) => files.push(format!("{name} -> {}", to.display())),
                Err(_) if path.is_dir() => open.push(path),
                Err(_) => files.push(name),
            }
        }
    }
    files.sort();
    files
}
