//! What flows leave to a flow of cubic beside them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use lastbyte_lab::fairness::{beside, fairness};
use lastbyte_lab::{
    Buffers, Direction, Event, Fairness, LabError, Load, Path, Plan, Rounds, Settings, Share,
    Subject,
};
use lastbyte_link::{LinkError, Scenario};

fn plan(path: &str, settings: &[Settings], seconds: f64) -> Plan {
    let path = Path::Link(Box::new(Scenario::parse("test", path).unwrap()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Plan {
        command: Vec::new(),
        parallel: Plan::parallel_for(&path, Direction::Up, cores).min(4),
        path,
        subjects: settings.iter().map(|one| Arc::new(one.clone()) as Arc<dyn Subject>).collect(),
        load: Load::time(Duration::from_secs_f64(seconds)),
        rounds: Rounds::exactly(3),
        latency: false,
        fairness: Fairness::Always,
        seed: 1,
        port: 0,
    }
}

fn named(congestion: &str) -> Settings {
    Settings::new(congestion, Buffers::Auto)
}

#[test]
fn two_flows_share_what_the_link_carries() {
    let both = Settings { direction: Direction::Both, ..named("reno") };
    let plan = plan("rtt = '20ms'\nrate = '20mbit'", &[named("cubic"), both], 2.0);
    for (subject, queue, ways) in [(0, Some(1.0), 1.0), (1, Some(4.0), 2.0)] {
        let one = match beside(&plan, subject, queue, 0) {
            Ok(one) => one,
            Err(LabError::Link(error @ LinkError::Rights { .. })) => {
                return lastbyte_testing::not_tested!("{error}");
            }
            Err(error) => panic!("{error}"),
        };
        eprintln!("{one:?}");
        let sum = one.subject_bits_per_s + one.cubic_bits_per_s;
        let carries = 20e6 * 1448.0 / 1500.0 * ways;
        // What waits in the queue when a flow's two seconds begin comes on top.
        let most = 1.03 + queue.unwrap_or(0.0) * 0.02 / 2.0;
        assert!((0.85..most).contains(&(sum / carries)), "{sum} of {carries}");
        assert!(one.subject_bits_per_s > 0.0 && one.cubic_bits_per_s > 0.0);
        assert_eq!((one.subject, one.round, one.queue_bdp), (subject, 0, queue));
    }
}

#[test]
#[ignore = "takes a minute"]
fn who_takes_what_at_which_queue() {
    let subjects = ["cubic", "bbr"].map(named);
    let plan = plan("rtt = '40ms'\nrate = '20mbit'", &subjects, 15.0);
    let mut watch = |event: Event<'_>| {
        if let Event::Void(void) = event {
            eprintln!("void: {void:?}");
        }
        ControlFlow::Continue(())
    };
    let all = match fairness(&plan, &[0, 1], &mut watch) {
        Ok(all) => all,
        Err(LabError::Link(error @ LinkError::Rights { .. })) => {
            return lastbyte_testing::not_tested!("{error}");
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(all.len(), 12);
    let median = |subject: usize, queue: usize| Share::of(&all, subject)[queue].share.median;
    for queue in [0, 1] {
        assert!((0.35..0.65).contains(&median(0, queue)), "{all:?}");
    }
    // What does not back off at loss takes nearly all of a short queue; what keeps its own queue
    // short gets little beside one that fills a long one.
    assert!(median(1, 0) > 0.7 && median(1, 1) < 0.5, "{all:?}");
}

#[test]
#[ignore = "takes minutes: figures to look at"]
fn table() {
    if std::env::var_os("LASTBYTE_TABLES").is_none() {
        return lastbyte_testing::not_tested!(
            "figures to look at, by LASTBYTE_TABLES=1 or make bench-lab"
        );
    }
    let subjects = ["cubic", "reno", "bbr"].map(named);
    for (path, seconds, rounds) in [
        ("rtt = '40ms'\nrate = '20mbit'", 10.0, 5),
        ("rtt = '40ms'\nrate = '50mbit'", 10.0, 5),
        ("rtt = '40ms'\nrate = '20mbit'", 30.0, 3),
    ] {
        let plan = Plan { rounds: Rounds::exactly(rounds), ..plan(path, &subjects, seconds) };
        let mut watch = |event: Event<'_>| {
            match event {
                Event::Void(void) => eprintln!("void: {void:?}"),
                Event::Repeating { subject, why } => eprintln!("again {subject}: {why}"),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let all = match fairness(&plan, &[0, 1, 2], &mut watch) {
            Ok(all) => all,
            Err(LabError::Link(error @ LinkError::Rights { .. })) => {
                return lastbyte_testing::not_tested!("{error}");
            }
            Err(error) => panic!("{error}"),
        };
        for (subject, settings) in subjects.iter().enumerate() {
            for share in Share::of(&all, subject) {
                let each: Vec<String> = all
                    .iter()
                    .filter(|one| one.subject == subject && one.queue_bdp == share.queue_bdp)
                    .map(|one| {
                        let mbit = |rate: f64| rate / 1e6;
                        format!(
                            "{:.1}/{:.1}",
                            mbit(one.subject_bits_per_s),
                            mbit(one.cubic_bits_per_s)
                        )
                    })
                    .collect();
                eprintln!(
                    "{path:?} {seconds} s {settings:12} {:?} bdp: {:4.1} % ({:4.1} to {:4.1}) {each:?}",
                    share.queue_bdp,
                    share.share.median * 1e2,
                    share.share.min * 1e2,
                    share.share.max * 1e2,
                );
            }
        }
    }
}
