//! What a server takes for each connection, by real ones: the process of LB301, which spins, and its healthy
//! twin (`clinic/c/lb301_writable.c`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lastbyte_doctor::{
    Doctor, ObserveError, Observer, Plan, Reader, Scope, Served, Summary, Tier, Traced, Writer,
};

/// So long a connection lasts on which nothing happens.
const LASTS: Duration = Duration::from_millis(1_500);

#[test]
fn a_server_that_spins_takes_more_for_each_connection() {
    let Some(process) = build() else { return };
    for tier in [Tier::Procfs, Tier::Tracefs, Tier::Bpf] {
        let Some(well) = served(&process, "well", tier) else { continue };
        let sick = served(&process, "sick", tier).unwrap();
        assert_eq!((well.connections, sick.connections), (1, 1), "{tier:?}");
        let [well_ms, sick_ms] = [&well, &sick].map(|one| one.cpu_ms_per_connection.unwrap());
        // A processor that others use too leaves it less than all of the time.
        assert!(sick_ms >= 200.0 && sick_ms > 4.0 * well_ms, "{tier:?} {well:#?} {sick:#?}");
        if tier == Tier::Procfs {
            assert_eq!((&sick.calls_per_connection, &sick.exchanges), (&None, &None));
            continue;
        }
        let [well, sick] = [well, sick].map(|one| (one.calls_per_connection.unwrap(), one));
        assert!(sick.0 > 100.0 * well.0, "{tier:?} {well:#?} {sick:#?}");
        assert_eq!(sick.1.top_calls.unwrap()[0].call, "epoll_wait", "{tier:?}");
        assert!(well.1.top_calls.unwrap().len() == 3, "{tier:?}");
    }
}

/// What the process took for its one connection; `None` where there is no such tier.
fn served(process: &Path, state: &str, tier: Tier) -> Option<Served> {
    let command = Command::new(process).args([state, "serve", "0"]).stdout(Stdio::piped()).spawn();
    let mut server = Ended(command.unwrap());
    let mut told = BufReader::new(server.0.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    let port: u16 = line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap();
    let scope = Scope::Process(server.0.id());
    let plan = Plan {
        scope,
        tier: Some(tier),
        traced: Traced::Watched,
        every: Duration::from_millis(100),
    };
    let observer = match Observer::start(&plan) {
        Ok((observer, _)) => observer,
        Err(ObserveError::Unavailable(why)) => {
            lastbyte_testing::not_tested!("{tier:?}: {why}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut watch =
        Watch { observer, doctor: Doctor::new(), writer: Writer::plain(Vec::new()).unwrap() };
    // What is there before is not accepted meanwhile.
    watch.turn(Duration::ZERO);
    let mut far = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let began = Instant::now();
    // Tables are looked at seldom on a slow machine.
    let is_seen = |watch: &Watch| tier > Tier::Procfs || !watch.doctor.facts().served().is_empty();
    while began.elapsed() < LASTS || (!is_seen(&watch) && began.elapsed() < 10 * LASTS) {
        watch.turn(Duration::from_millis(100));
    }
    far.write_all(b"x").unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    far.read_to_end(&mut Vec::new()).unwrap();
    // It has not been waited for: what it took is there to be read.
    for _ in 0..15 {
        watch.turn(Duration::from_millis(100));
    }
    let Watch { mut observer, mut doctor, mut writer } = watch;
    let last = observer.take_last(&mut |event| {
        writer.add(&event).unwrap();
        doctor.take(&event);
    });
    last.unwrap();
    doctor.end();
    let summary = Summary::of(&doctor, began.elapsed());
    assert_eq!(replayed(&writer.finish().unwrap()), summary.served, "a recording says the same");
    let found = |one: &Served| Scope::Process(one.pid) == scope;
    Some(
        summary
            .served
            .iter()
            .find(|one| found(one))
            .unwrap_or_else(|| panic!("{summary:#?}"))
            .clone(),
    )
}

struct Watch {
    observer: Observer,
    doctor: Doctor,
    writer: Writer<Vec<u8>>,
}

impl Watch {
    fn turn(&mut self, wait: Duration) {
        let Self { observer, doctor, writer } = self;
        let mut take = |event: lastbyte_doctor::Event| {
            writer.add(&event).unwrap();
            doctor.take(&event);
        };
        observer.take(wait, &mut take).unwrap();
    }
}

fn replayed(recording: &[u8]) -> Vec<Served> {
    let mut doctor = Doctor::new();
    for event in Reader::begin(recording).unwrap() {
        doctor.take(&event.unwrap());
    }
    doctor.end();
    doctor.facts().served()
}

/// A server that is not left behind.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clinic/c/lb301_writable.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("served-lb301");
    let built = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).output();
    if !built.is_ok_and(|told| told.status.success()) {
        lastbyte_testing::not_tested!("the clinic's programs cannot be built with cc");
        return None;
    }
    Some(program)
}
