//! Tier 3 where far more happens than can be told: it says so, and takes no more memory than it may. Needs
//! root, and says so where it is lacking.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lastbyte_doctor::{Doctor, Event, Observer, Plan, Scope, Tier, Traced, What};

/// What the doctor may take while it is flooded, bytes: the ring is 8 MiB, mapped twice; what is known of
/// sockets about 40; what one look takes 16.
const MOST_MEMORY: u64 = 80 << 20;
const LENGTH: Duration = Duration::from_secs(10);

#[test]
#[ignore = "keeps every processor busy for ten seconds"]
fn a_flood_of_events() {
    flooded_by(leave_unread);
}

#[test]
#[ignore = "keeps every processor busy for ten seconds"]
fn a_flood_of_sockets() {
    flooded_by(reset);
}

/// Bounded are what is held and what is told; what is not told is counted.
fn flooded_by(cause: fn(&AtomicBool)) {
    let plan = Plan {
        scope: Scope::Machine,
        tier: Some(Tier::Bpf),
        traced: Traced::Never,
        every: Duration::from_millis(100),
    };
    let mut observer = match Observer::start(&plan) {
        Ok((observer, _)) => observer,
        Err(why) => {
            lastbyte_testing::not_tested!("{why}");
            assert!(lastbyte_sys::process::effective_user() != 0, "root is refused: {why}");
            return;
        }
    };
    let mut doctor = Doctor::new();
    let is_over = AtomicBool::new(false);
    let (before, began) = (memory(), Instant::now());
    let (mut told, mut records, mut most) = (0_u64, 0_u64, before);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| cause(&is_over));
        }
        while began.elapsed() < LENGTH {
            let mut take = |event: Event| {
                told += 1;
                // Of packets of one byte each.
                records += match event.what {
                    What::UnixUnread { bytes, .. } => bytes,
                    What::Dropped { events } => events,
                    What::Tick => 0,
                    _ => 1,
                };
                doctor.take(&event);
            };
            observer.take(Duration::from_millis(20), &mut take).unwrap();
            most = most.max(memory());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // What was dropped since the last look.
    observer.take(Duration::ZERO, &mut |event| drop(doctor.take(&event))).unwrap();
    let dropped = doctor.facts().dropped();
    let grown = most.saturating_sub(before);
    eprintln!(
        "{} a second, {told} events told, {dropped} dropped, memory grew by {} KiB",
        records / LENGTH.as_secs(),
        grown >> 10
    );
    assert!(dropped > 0 && told > 0);
    assert!(grown < MOST_MEMORY, "{grown} bytes");

    // Afterwards all is told again.
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[1; 4711]).unwrap();
    drop(other);
    let end = Instant::now() + Duration::from_secs(10);
    let mut is_told = false;
    while !is_told {
        assert!(Instant::now() < end, "the last one is not told");
        let mut look = |event: Event| {
            is_told |= matches!(event.what, What::UnixUnread { bytes: 4711, .. });
        };
        observer.take(Duration::from_millis(20), &mut look).unwrap();
    }
}

/// Each packet that is unread in a Unix socket is an event of the kernel's.
fn leave_unread(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        while one.write(&[1]).is_ok() {}
        drop(other);
    }
}

/// Connections that end with a reset: two sockets that have to be remembered for a while.
fn reset(is_over: &AtomicBool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let client = TcpStream::connect(at).unwrap();
        let accepted = listener.accept().unwrap();
        lastbyte_sys::socket::set_linger(&client.as_fd(), Some(Duration::ZERO)).unwrap();
        drop(client);
        drop(accepted);
    }
}

/// What this process has of memory, bytes (`proc_pid_status(5)`).
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
