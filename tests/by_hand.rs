//! The page for those who finish by hand, `docs/manual/by-hand.md`: it shows the code that is tested, and
//! that code does what the page says, in each language, against peers that are slow, that reset,
//! that never close and that never read.
//!
//! C and Python are quick. Go, Node and Java are looked for and never installed: `make test-real`
//! runs these three. What is not here is said, and passes.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_core::sample::TcpInfo;
use lastbyte_host::Proc;
use lastbyte_sys::{socket, tcp};

use crate::support::{Answer, LATER, Running, Scratch, answer, answer_within, wait_for};

/// What the peer says first, and the programs never read before they finish.
const GREETING: &[u8] = b"220 ready, and nobody will ever read this\r\n";
/// More than the peer's kernel takes unread, less than both kernels do.
const BYTES: u64 = 1_000_000;
/// More than both kernels take: the write is still going on.
const TOO_MANY: u64 = 50_000_000;
/// Asked of the peer's receive buffer; the kernel doubles it.
const RECEIVE_BUFFER: i32 = 65_536;
/// What a reader is sent.
const SENT: usize = 50_000;
/// A deadline that is not to be reached, and one that is, in seconds.
const ENOUGH: u32 = 15;
const SHORT: u32 = 1;

// --- the page -----------------------------------------------------------------------------------

#[test]
fn the_page_shows_the_code_that_is_tested() {
    let page = read(&root().join("docs/manual/by-hand.md"));
    for (file, fence) in [
        ("finish.c", "c"),
        ("finish.py", "python"),
        ("finish.go", "go"),
        ("finish.mjs", "js"),
        ("Finish.java", "java"),
    ] {
        let tested = shown_of(&read(&source(file)));
        let opening = format!("<!-- shown: {file} -->\n```{fence}\n");
        let (_, after) = page.split_once(&opening).unwrap_or_else(|| panic!("no {opening}"));
        let (shown, _) = after.split_once("\n```\n").expect("the code block ends");
        for (on_page, in_file) in shown.lines().zip(tested.lines()) {
            assert_eq!(
                on_page, in_file,
                "docs/manual/by-hand.md is not docs/manual/by-hand/{file}"
            );
        }
        assert_eq!(shown.lines().count(), tested.lines().count(), "{file}: lines on the page");
    }
}

/// The part of a program that the page shows, moved to the left margin.
fn shown_of(source: &str) -> String {
    let is_mark = |line: &&str| line.contains("--- on the page ---");
    let is_end = |line: &&str| line.contains("--- off the page ---");
    let after = source.lines().skip_while(|line| !is_mark(line)).skip(1);
    let lines: Vec<&str> = after.take_while(|line| !is_end(line)).collect();
    assert!(lines.iter().any(|line| line.contains("finish(")), "it shows how to finish");
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let margin = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
    let moved = lines.iter().map(|line| line.get(margin..).unwrap_or_default());
    moved.collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned()
}

// --- the programs -------------------------------------------------------------------------------

#[test]
fn c_keeps_its_word() {
    let scratch = Scratch::new();
    let program = scratch.path().join("finish");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-o"]).arg(&program);
    // The linker is there: cargo has linked this test.
    answer_within(compile.arg(source("finish.c")), LATER).with_code(0);
    keeps_its_word(&Program { words: vec![program], exact: true });
}

#[test]
fn python_keeps_its_word() {
    let enough = "import sys; sys.exit(sys.version_info < (3, 10))";
    if is_here("Python 3.10", Command::new("python3").args(["-c", enough])) {
        let words = vec!["python3".into(), source("finish.py")];
        keeps_its_word(&Program { words, exact: true });
    }
}

#[test]
#[ignore = "looks for Go"]
fn go_keeps_its_word() {
    if !go_is_here() {
        return;
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    let scratch = Scratch::new();
    let program = scratch.path().join("finish");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(source("finish.go"));
    build.env("GOCACHE", cache.join("cache")).env("GOPATH", cache.join("path"));
    build.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    answer_within(&mut build, 2 * LATER).with_code(0);
    keeps_its_word(&Program { words: vec![program], exact: true });
}

#[test]
#[ignore = "looks for Node"]
fn node_keeps_its_word() {
    let enough = "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)";
    if is_here("Node 18", Command::new("node").args(["-e", enough])) {
        let words = vec!["node".into(), source("finish.mjs")];
        keeps_its_word(&Program { words, exact: false });
    }
}

#[test]
#[ignore = "looks for a JDK"]
fn java_keeps_its_word() {
    let scratch = Scratch::new();
    if !is_here("JDK 17", Command::new("javac").args(["--release", "17", "--version"])) {
        return;
    }
    let mut compile = Command::new("javac");
    compile.args(["--release", "17", "-Xlint:all", "-Werror", "-d"]).arg(scratch.path());
    answer_within(compile.arg(source("Finish.java")), LATER).with_code(0);
    let words = vec!["java".into(), "-cp".into(), scratch.path().into(), "Finish".into()];
    keeps_its_word(&Program { words, exact: false });
}

/// Without this the tests above would show nothing.
#[test]
fn a_plain_close_loses_bytes_at_the_same_peer() {
    let listener = listener();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = accepted(&listener);
    assert_eq!(near.peek(&mut [0]).unwrap(), 1, "the greeting is there, unread");
    near.write_all(&pattern(BYTES)).unwrap();
    drop(near);
    let received = read_slowly(far, u64::MAX);
    assert!(received.bytes < BYTES && received.end.is_err(), "{received:?}");
}

/// A program of the page, ready to run.
struct Program {
    words: Vec<PathBuf>,
    /// It asks the socket. The others ask `/proc/net/tcp`, where a reset connection is just missing.
    exact: bool,
}

/// All that the page says of its programs.
fn keeps_its_word(program: &Program) {
    delivers_all_to_a_slow_reader(program);
    does_not_take_an_early_fin_for_an_answer(program);
    reports_a_reset_after_writing(program);
    reports_a_reset_while_writing(program);
    honours_its_deadline_without_spinning(program);
    counts_what_a_peer_that_never_reads_has_not_got(program);
    knows_the_end_of_what_it_reads(program);
}

fn delivers_all_to_a_slow_reader(program: &Program) {
    for task in [acked(BYTES), closed(BYTES), closed(0)] {
        let (told, received) = program.meet(&task, |stream| read_slowly(stream, u64::MAX));
        let told = Told::by(&told.with_code(0));
        assert_eq!((told.acked, told.written), (Some(task.bytes), task.bytes));
        if task.level == Some("closed") {
            assert_eq!((told.level.as_str(), told.peer.as_str()), ("closed", "FIN"));
        } else {
            assert_ne!(told.level, "written");
        }
        assert_eq!(received.bytes, task.bytes, "{told:?}");
        assert!(received.end.is_ok(), "{received:?}");
    }
}

/// The peer half-closes first: its FIN says nothing about our bytes.
fn does_not_take_an_early_fin_for_an_answer(program: &Program) {
    let (told, received) = program.meet(&closed(BYTES), |stream| {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_slowly(stream, u64::MAX)
    });
    let told = Told::by(&told.with_code(1));
    assert_eq!((received.bytes, told.peer.as_str()), (BYTES, "FIN"), "{told:?}");
    assert_ne!(told.level, "closed");
    if program.exact {
        assert_eq!(told.acked, Some(BYTES));
    }
}

fn reports_a_reset_after_writing(program: &Program) {
    let (told, read) = program.meet(&acked(BYTES), reset_midway);
    assert_is_a_reset(program, &told, read);
}

fn reports_a_reset_while_writing(program: &Program) {
    let (told, read) = program.meet(&closed(TOO_MANY), reset_midway);
    assert!(told.stderr.contains("writing ended after"), "{told:#?}");
    assert_is_a_reset(program, &told, read);
}

/// Reads a tenth and resets.
fn reset_midway(stream: TcpStream) -> u64 {
    let copy = stream.try_clone().unwrap();
    let received = read_slowly(copy, BYTES / 10);
    reset(stream);
    received.bytes
}

#[track_caller]
fn assert_is_a_reset(program: &Program, answer: &Answer, read: u64) {
    assert_eq!(answer.code(), 1, "{answer:#?}");
    let told = Told::by(answer);
    assert_eq!(told.level, "written", "{told:?}");
    // What the peer's kernel held besides, at most, with room for what it overdrew.
    let most = read + 4 * u64::from(RECEIVE_BUFFER.unsigned_abs());
    assert!(told.acked.is_none_or(|acked| acked <= most), "{told:?}, and {read} read");
    if program.exact {
        assert_eq!(told.peer, "RST");
        assert!(told.acked.is_some(), "{told:?}");
    } else {
        assert!(["RST", "unknown"].contains(&told.peer.as_str()), "{told:?}");
    }
}

/// The peer reads all and never closes: acked is known, closed never comes.
fn honours_its_deadline_without_spinning(program: &Program) {
    let (all_read, when_all_is_read) = mpsc::channel();
    let started = Instant::now();
    let serve = move |stream: TcpStream| {
        let received = read_slowly(stream.try_clone().unwrap(), u64::MAX);
        all_read.send(()).unwrap();
        (received, stream)
    };
    let (answer, (received, stream)) =
        program.meet_watched(&Task { seconds: SHORT, ..closed(BYTES) }, serve, |running| {
            when_all_is_read.recv_timeout(LATER).expect("the peer reads to the end");
            let (pid, before) = (running.pid(), ticks(running.pid()).unwrap_or_default());
            wait_for("the deadline", LATER, || ticks(pid).is_none_or(|at_end| at_end.is_over));
            let spent = ticks(pid).unwrap_or(before).count - before.count;
            // One that spins spends all that it is given, of an idle processor 100; a virtual
            // machine that has just begun still compiles (12 seen, and 50 where others compile
            // beside it), the others hardly any (5).
            let most = if program.exact { 25 } else { 75 };
            assert!(spent < most, "it used the processor for {spent} of 100 ticks while it waited");
            running.answer_within(LATER)
        });
    assert!(started.elapsed() >= Duration::from_secs(1), "it waited for its deadline");
    let told = Told::by(&answer.with_code(1));
    assert_eq!((told.level.as_str(), told.peer.as_str()), ("acked", "open"));
    assert_eq!((told.acked, received.bytes), (Some(BYTES), BYTES));
    drop(stream);
}

fn counts_what_a_peer_that_never_reads_has_not_got(program: &Program) {
    let task = Task { seconds: SHORT, ..acked(BYTES / 3) };
    let (answer, stream) = program.meet(&task, |stream| stream);
    let told = Told::by(&answer.with_code(1));
    assert_eq!((told.level.as_str(), told.written), ("written", task.bytes));
    assert_eq!(told.peer, "open");
    let mut room = [0; tcp::INFO_ROOM];
    let length = tcp::info(&stream, &mut room).unwrap();
    let there = TcpInfo::parse(&room[..length]).unwrap().bytes_received.unwrap();
    assert!(there < told.written, "the kernel of the peer took no more than {RECEIVE_BUFFER}");
    let acked = told.acked.expect("it is known");
    // A little may have come since: the window that was left.
    assert!(acked <= there && there - acked < 1000, "{told:?}, and {there} received");
}

fn knows_the_end_of_what_it_reads(program: &Program) {
    let send = |mut stream: TcpStream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&[7; SENT]).unwrap();
        stream
    };
    let whole = format!("read: {} bytes, peer", SENT + GREETING.len());
    let (answer, _) = program.meet(&reading(1), |stream| {
        let stream = send(stream);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_slowly(stream, u64::MAX)
    });
    assert_eq!(answer.with_code(0).stdout.trim(), format!("{whole} FIN"));

    // The second of these has a failing write that takes the only report of the reset.
    for bytes in [1, TOO_MANY] {
        let (answer, ()) = program.meet(&reading(bytes), |stream| {
            let stream = send(stream);
            // The reset throws away what the program's kernel has not got yet.
            wait_for("the acks", LATER, || socket::send_queue(&stream).unwrap() == 0);
            reset(stream);
        });
        let answer = answer.with_code(1);
        assert!(answer.stdout.trim().ends_with("peer RST"), "{answer:#?}");
        if program.exact {
            assert_eq!(answer.stdout.trim(), format!("{whole} RST"));
        }
    }
}

/// What a program is to do: write so many bytes, and then as `level` says.
struct Task {
    bytes: u64,
    seconds: u32,
    level: Option<&'static str>,
}

fn acked(bytes: u64) -> Task {
    Task { bytes, seconds: ENOUGH, level: None }
}

fn closed(bytes: u64) -> Task {
    Task { level: Some("closed"), ..acked(bytes) }
}

fn reading(bytes: u64) -> Task {
    Task { level: Some("read"), ..acked(bytes) }
}

impl Program {
    /// Runs it against a peer that greets it and then does as `serve` says.
    #[track_caller]
    fn meet<T: Send>(&self, task: &Task, serve: impl FnOnce(TcpStream) -> T + Send) -> (Answer, T) {
        self.meet_watched(task, serve, |running| running.answer_within(LATER))
    }

    #[track_caller]
    fn meet_watched<T: Send>(
        &self,
        task: &Task,
        serve: impl FnOnce(TcpStream) -> T + Send,
        watch: impl FnOnce(Running) -> Answer,
    ) -> (Answer, T) {
        let listener = listener();
        let port = listener.local_addr().unwrap().port();
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).args(["127.0.0.1", &port.to_string()]);
        command.args([task.bytes.to_string(), task.seconds.to_string()]).args(task.level);
        thread::scope(|scope| {
            let peer = scope.spawn(|| serve(accepted(&listener)));
            let answer = watch(Running::start(&mut command));
            (answer, peer.join().expect("the peer does its part"))
        })
    }
}

/// What a program said: `LEVEL: ACKED of WRITTEN bytes acked, peer PEER`.
#[derive(Debug)]
struct Told {
    level: String,
    acked: Option<u64>,
    written: u64,
    peer: String,
}

impl Told {
    #[track_caller]
    fn by(answer: &Answer) -> Self {
        let line = answer.stdout.strip_suffix('\n').unwrap_or_else(|| panic!("{answer:#?}"));
        let words: Vec<&str> =
            line.split([' ', ':', ',']).filter(|word| !word.is_empty()).collect();
        let [level, acked, "of", written, "bytes", "acked", "peer", peer] = words[..] else {
            panic!("{answer:#?}");
        };
        Self {
            level: level.to_owned(),
            acked: acked.parse().ok(),
            written: written.parse().unwrap(),
            peer: peer.to_owned(),
        }
    }
}

// --- the peer -----------------------------------------------------------------------------------

fn listener() -> TcpListener {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let fd = socket::open_tcp(address).unwrap();
    // Before it listens: connections take it over.
    socket::set_receive_buffer(&fd, RECEIVE_BUFFER).unwrap();
    socket::bind(&fd, address).unwrap();
    socket::listen(&fd, 1).unwrap();
    TcpListener::from(fd)
}

/// The one connection that comes, greeted.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    wait_for("a connection", LATER, || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (mut stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(LATER)).unwrap();
    stream.write_all(GREETING).unwrap();
    stream
}

#[derive(Debug)]
struct Received {
    bytes: u64,
    end: io::Result<()>,
}

/// Reads to the end of the stream, or until so many bytes have come, no faster than 16 KiB in a
/// millisecond; each byte has to be the right one.
fn read_slowly(mut stream: TcpStream, enough: u64) -> Received {
    let mut block = [0; 16_384];
    let mut bytes = 0;
    while bytes < enough {
        let count = match stream.read(&mut block) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Received { bytes, end: Err(error) },
        };
        let right =
            (bytes..).zip(&block[..count]).all(|(place, byte)| u64::from(*byte) == place % 251);
        assert!(right, "a wrong byte after {bytes}");
        bytes += count as u64;
        thread::sleep(Duration::from_millis(1));
    }
    Received { bytes, end: Ok(()) }
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    socket::set_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Byte number n is n modulo 251.
fn pattern(bytes: u64) -> Vec<u8> {
    (0..=250).cycle().take(usize::try_from(bytes).unwrap()).collect()
}

// --- the machine --------------------------------------------------------------------------------

/// Whether a language is here; says so if not.
fn is_here(what: &str, probe: &mut Command) -> bool {
    let there = probe.output().is_ok() && answer(probe).code() == 0;
    if !there {
        lastbyte_testing::not_tested!("there is no {what} or later here");
    }
    there
}

fn go_is_here() -> bool {
    let mut probe = Command::new("go");
    probe.args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local");
    let version = probe.output().map_or_else(|_| String::new(), |_| answer(&mut probe).stdout);
    let minor = version.strip_prefix("go1.").and_then(|rest| rest.trim().split('.').next());
    let enough = minor.and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor >= 21);
    if !enough {
        lastbyte_testing::not_tested!("there is no Go 1.21 or later here");
    }
    enough
}

/// Processor time of a process, in hundredths of a second; none once it is gone.
fn ticks(pid: u32) -> Option<Ticks> {
    let stat = Proc::default().stat(pid)?;
    Some(Ticks { count: stat.user + stat.system, is_over: stat.has_ended() })
}

#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    count: u64,
    is_over: bool,
}

/// A file of the page's directory.
fn source(file: &str) -> PathBuf {
    root().join("docs/manual/by-hand").join(file)
}

fn root() -> PathBuf {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    cli.ancestors().nth(2).expect("crates/cli is two below the root").to_path_buf()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
