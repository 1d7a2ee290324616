//! Loading and unloading while connections run: nothing is said by the kernel, nothing is left in it.
//!
//! `make test-real` runs these.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lastbyte_bpf::{StructOps, programs};
use lastbyte_congestion::{Algorithm, Given, ability, all, available, find, load};
use lastbyte_sys::tcp;

use crate::names;

/// How often one is loaded and taken away again.
const CYCLES: usize = 1000;
/// Connections at once.
const FLOWS: usize = 500;
/// How much goes over one connection of the traffic beside, in parts of 50 kB: few connections, as each
/// leaves a port that nobody may have for a minute.
const EXCHANGES: usize = 2000;
/// The kernel frees what is no longer used a while later (RCU).
const SOON: Duration = Duration::from_secs(30);
/// `O_NONBLOCK`, so that the log ends where it ends.
const WITHOUT_WAITING: i32 = 0o4000;

#[test]
#[ignore = "takes a minute"]
fn a_thousand_cycles_with_traffic_leave_nothing() {
    let Some((_alone, algorithm)) = subject("reno") else { return };
    let log = Log::from_now_on();
    let before = Left::by(algorithm);
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut chosen = 0;
    thread::scope(|scope| {
        scope.spawn(|| keep_sending(algorithm, &stop, &moved));
        for _ in 0..CYCLES {
            let registered = load(algorithm, Given::default()).unwrap();
            // One connection of this very load, which outlives it by a byte.
            let (mut near, mut far) = pair();
            tcp::set_congestion(&near, algorithm.name).unwrap();
            chosen += 1;
            drop(registered);
            near.write_all(b"!").unwrap();
            far.read_exact(&mut [0]).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let moved = moved.load(Ordering::Relaxed);
    assert!(moved > 0, "there was traffic");
    eprintln!("{CYCLES} cycles, {chosen} connections, {moved} bytes beside them");
    before.is_reached_again(algorithm);
    log.has_no_complaint();
}

#[test]
#[ignore = "takes a minute"]
fn five_hundred_flows_of_each_at_once() {
    for algorithm in all() {
        let Some((_alone, algorithm)) = subject(algorithm.plain) else { return };
        let log = Log::from_now_on();
        let before = Left::by(algorithm);
        let registered = load(algorithm, Given::default()).unwrap();
        let mut flows: Vec<(TcpStream, TcpStream)> = (0..FLOWS).map(|_| pair()).collect();
        for (near, _) in &flows {
            tcp::set_congestion(near, algorithm.name).unwrap();
        }
        let mut block = vec![0; 100_000];
        for (near, far) in &mut flows {
            // No more than a kernel takes unread.
            near.write_all(&block[..50_000]).unwrap();
            far.read_exact(&mut block[..50_000]).unwrap();
        }
        let meanwhile = Left::by(algorithm);
        // Of loads before, some may be left that a connection still has which nobody waits for.
        let one_more = before.struct_ops + 1;
        assert!(meanwhile.programs > before.programs, "{meanwhile:?} after {before:?}");
        assert!((1..=one_more).contains(&meanwhile.struct_ops), "{meanwhile:?} after {before:?}");
        drop(registered);
        // All of them outlive it.
        for (near, far) in &mut flows {
            near.write_all(&block[..50_000]).unwrap();
            far.read_exact(&mut block[..50_000]).unwrap();
            assert_eq!(tcp::congestion(near).unwrap(), algorithm.name);
        }
        drop(flows);
        before.is_reached_again(algorithm);
        log.has_no_complaint();
    }
}

#[test]
#[ignore = "looks for Python"]
fn a_flow_of_another_process_outlives_the_loader() {
    let Some((_alone, algorithm)) = subject("reno") else { return };
    let log = Log::from_now_on();
    let before = Left::by(algorithm);
    let registered = load(algorithm, Given::default()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let program = format!(
        "import socket, sys\n\
         s = socket.create_connection(('127.0.0.1', {port}))\n\
         s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'{}')\n\
         s.sendall(b'1')\n\
         assert s.recv(1) == b'2'\n\
         s.sendall(b'3' * 1000000)\n",
        algorithm.name
    );
    let started = Command::new("python3").args(["-c", &program]).stdin(Stdio::null()).spawn();
    let Ok(mut child) = started else {
        lastbyte_testing::not_tested!("there is no python3 here");
        return;
    };
    let (mut far, _) = listener.accept().unwrap();
    far.read_exact(&mut [0]).unwrap();
    drop(registered);
    assert!(!available().unwrap().iter().any(|name| name == algorithm.name));
    far.write_all(b"2").unwrap();
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 1_000_000);
    assert!(child.wait().unwrap().success());
    drop((far, listener));
    before.is_reached_again(algorithm);
    log.has_no_complaint();
}

/// An algorithm that may be loaded here and that nobody else has loaded; says so if not.
fn subject(plain: &str) -> Option<(names::Turn, &'static Algorithm)> {
    if lastbyte_sys::process::effective_user() != 0 {
        lastbyte_testing::not_tested!("only root may load a congestion control");
        return None;
    }
    if let Err(error) = ability() {
        lastbyte_testing::not_tested!("{error}");
        return None;
    }
    Some((names::turn()?, find(plain).unwrap()))
}

/// Sends over one connection after the other, with the algorithm wherever it is loaded.
fn keep_sending(algorithm: &Algorithm, stop: &AtomicBool, moved: &AtomicU64) {
    let mut block = vec![0; 100_000];
    while !stop.load(Ordering::Relaxed) {
        let (mut near, mut far) = pair();
        // It may just not be there.
        let _ = tcp::set_congestion(&near, algorithm.name);
        for _ in 0..EXCHANGES {
            near.write_all(&block[..50_000]).unwrap();
            far.read_exact(&mut block[..50_000]).unwrap();
            moved.fetch_add(50_000, Ordering::Relaxed);
        }
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// What is there of an algorithm in the kernel, and how many descriptors this process has.
#[derive(Debug)]
struct Left {
    programs: usize,
    struct_ops: usize,
    descriptors: usize,
}

impl Left {
    fn by(algorithm: &Algorithm) -> Self {
        // Of the functions in C, each begins with the plain name.
        let start = format!("{}_", algorithm.plain);
        let programs = programs().iter().filter(|name| name.starts_with(&start)).count();
        let all = StructOps::all();
        let struct_ops = all.iter().filter(|one| one.name == algorithm.name).count();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        Self { programs, struct_ops, descriptors }
    }

    /// No more than before; less, where a connection of others has ended meanwhile.
    fn is_within(&self, before: &Self) -> bool {
        self.programs <= before.programs
            && self.struct_ops <= before.struct_ops
            && self.descriptors <= before.descriptors
    }

    fn is_reached_again(&self, algorithm: &Algorithm) {
        let deadline = Instant::now() + SOON;
        let mut now = Self::by(algorithm);
        while !now.is_within(self) {
            assert!(Instant::now() < deadline, "{now:?} are left, and there were {self:?}");
            thread::yield_now();
            now = Self::by(algorithm);
        }
    }
}

/// The kernel's log, from some time on.
struct Log(fs::File);

impl Log {
    fn from_now_on() -> Self {
        let mut options = OpenOptions::new();
        let mut log = options.read(true).custom_flags(WITHOUT_WAITING).open("/dev/kmsg").unwrap();
        lines(&mut log);
        Self(log)
    }

    fn has_no_complaint(mut self) {
        let complaints = ["WARNING", "BUG", "refcount", "Call Trace", "use-after-free", "stall"];
        let said = lines(&mut self.0);
        let bad: Vec<&String> =
            said.iter().filter(|line| complaints.iter().any(|word| line.contains(word))).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

/// What is there to be read: one line a read.
fn lines(log: &mut fs::File) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = vec![0; 8192];
    loop {
        match log.read(&mut line) {
            Ok(0) => return lines,
            Ok(length) => lines.push(String::from_utf8_lossy(&line[..length]).into_owned()),
            // Older lines were overwritten meanwhile.
            Err(error) if error.raw_os_error() == Some(32) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return lines,
            Err(error) => panic!("{error}"),
        }
    }
}
