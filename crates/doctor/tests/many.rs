//! What watching many sockets takes: memory and processor time.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lastbyte_doctor::event::{Scope, Tier};
use lastbyte_doctor::{Doctor, Observer, Plan, Traced};
use lastbyte_sys::process;

const SECOND: Duration = Duration::from_secs(1);

fn observer(scope: Scope, tier: Tier) -> Option<Observer> {
    let every = Duration::from_millis(100);
    let plan = Plan { scope, tier: Some(tier), traced: Traced::Never, every };
    match Observer::start(&plan) {
        Ok((observer, _)) => Some(observer),
        Err(error) => {
            lastbyte_testing::not_tested!("{error}");
            None
        }
    }
}

/// So many connections, both ends of each; `None`, aloud, where so many descriptors are not allowed.
fn pairs(count: usize) -> Option<Vec<(TcpStream, TcpStream)>> {
    let (_, most) = process::descriptor_limits().unwrap();
    let needed = u64::try_from(2 * count + 200).unwrap();
    if most < needed {
        lastbyte_testing::not_tested!("{needed} descriptors, {most} are allowed");
        return None;
    }
    process::set_descriptor_limit(most, most).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pair = |_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
    Some((0..count).map(pair).collect())
}

/// What this process has in memory, kibibytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Watches for a time; returns the share of a processor that it took, and the events.
fn watch(observer: &mut Observer, doctor: &mut Doctor, time: Duration) -> (f64, u64) {
    let (begin, used) = (Instant::now(), process::thread_cpu_time().unwrap());
    let mut events = 0;
    while begin.elapsed() < time {
        observer
            .take(SECOND, &mut |event| {
                events += 1;
                doctor.take(&event);
            })
            .unwrap();
    }
    let used = process::thread_cpu_time().unwrap().saturating_sub(used);
    (used.as_secs_f64() / begin.elapsed().as_secs_f64(), events)
}

#[test]
#[ignore = "opens 18,000 sockets"]
fn memory_is_bounded() {
    let Some(pairs) = pairs(9_000) else { return };
    let before = resident();
    let Some(mut observer) = observer(Scope::Machine, Tier::Procfs) else { return };
    let mut doctor = Doctor::new();
    let (share, events) = watch(&mut observer, &mut doctor, 15 * SECOND);
    let after = resident();
    eprintln!(
        "18,000 sockets: {} MiB, {:.2} % of a processor, {events} events, {:?}",
        (after - before) / 1024,
        share * 100.0,
        observer.intervals()
    );
    assert!(events >= 18_000, "{events} events: not each socket was seen");
    assert!(after - before < 64 * 1024, "{before} {after} kibibytes");
    drop(pairs);
}
