//! What watching many sockets takes: memory and processor time.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lastbyte_doctor::event::{Scope, Tier, What};
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
fn watch(observer: &mut Observer, doctor: &mut Doctor, time: Duration) -> (f64, u64, u64) {
    let (begin, used) = (Instant::now(), process::thread_cpu_time().unwrap());
    let (mut events, mut samples) = (0, 0);
    while begin.elapsed() < time {
        observer
            .take(SECOND, &mut |event| {
                events += 1;
                samples += u64::from(matches!(event.what, What::Sample(_)));
                doctor.take(&event);
            })
            .unwrap();
    }
    let used = process::thread_cpu_time().unwrap().saturating_sub(used);
    (used.as_secs_f64() / begin.elapsed().as_secs_f64(), events, samples)
}

#[test]
#[ignore = "opens 18,000 sockets"]
fn memory_is_bounded() {
    let Some(pairs) = pairs(9_000) else { return };
    let before = resident();
    let Some(mut observer) = observer(Scope::Machine, Tier::Procfs) else { return };
    let mut doctor = Doctor::new();
    let (share, events, _) = watch(&mut observer, &mut doctor, 15 * SECOND);
    let after = resident();
    eprintln!(
        "18,000 sockets: {} MiB, {:.2} % of a processor, {events} events, {:?}",
        (after - before) / 1024,
        share * 100.0,
        observer.intervals()
    );
    assert!(after - before < 64 * 1024, "{before} {after} kibibytes");
    drop(pairs);
}

#[test]
#[ignore = "measures; by itself, in a release build"]
fn cost_at_a_thousand_sockets() {
    let Some(mut pairs) = pairs(500) else { return };
    for tier in [Tier::Procfs, Tier::Tracefs] {
        // The machine's other namespaces would be looked into too, each a walk of its own.
        let scope = Scope::Process(std::process::id());
        let Some(mut observer) = observer(scope, tier) else { continue };
        let mut doctor = Doctor::new();
        // The first look is dear, and is forgotten after a while.
        watch(&mut observer, &mut doctor, 3 * SECOND);
        let (share, _, samples) = watch(&mut observer, &mut doctor, 10 * SECOND);
        eprintln!(
            "1,000 idle sockets, {tier:?}: {:.2} % of a processor, {} samples a second, {:?}",
            share * 100.0,
            samples / 10,
            observer.intervals()
        );
        // All of them have something that waits: each is told of at each look.
        for (client, _) in &mut pairs {
            std::io::Write::write_all(client, &[0; 100]).unwrap();
        }
        let (share, _, samples) = watch(&mut observer, &mut doctor, 10 * SECOND);
        eprintln!(
            "1,000 sockets, half of them with bytes that wait, {tier:?}: {:.2} %, {} samples a second",
            share * 100.0,
            samples / 10
        );
        for (_, server) in &mut pairs {
            std::io::Read::read_exact(server, &mut [0; 100]).unwrap();
        }
    }
}
