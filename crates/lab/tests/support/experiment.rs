//! An experiment out of nothing: always the same, with a little of everything.

use lastbyte_lab::page::Advice;
use lastbyte_lab::record::{About, Experiment};
use serde_json::{Value, json};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) subjects: usize,
    pub(crate) rounds: usize,
    pub(crate) samples: usize,
}

impl Default for Made {
    fn default() -> Self {
        Self { subjects: 6, rounds: 3, samples: 80 }
    }
}

pub(crate) fn experiment(made: &Made) -> Experiment {
    let subjects: Vec<Value> = (0..made.subjects).map(setting).collect();
    let run = |place: usize| run(place % made.subjects, place / made.subjects, made.samples);
    let runs: Vec<Value> = (0..made.subjects * made.rounds).map(run).collect();
    let beside: Vec<Value> =
        [(0, None, 9.0), (0, Some(1.0), 8.0), (0, Some(4.0), 2.5), (1, Some(1.0), 5.0)]
            .into_iter()
            .flat_map(|(subject, queue, share)| {
                (0..3).map(move |round| {
                    json!({
                        "subject": subject, "round": round, "queue_bdp": queue,
                        "subject_bits_per_s": (share + f64::from(round) / 5.0) * 9e6,
                        "cubic_bits_per_s": (10.0 - share - f64::from(round) / 5.0) * 9e6,
                    })
                })
            })
            .collect();
    let about: About = serde_json::from_value(about(subjects, made.rounds)).unwrap();
    serde_json::from_value(json!({
        "about": about,
        "runs": runs,
        "void": [{ "subject": 1, "round": 1, "why": "a link was late: 12 ms" }],
        "beside": beside,
        "ended": { "rounds": made.rounds, "settled": false, "cut": null },
    }))
    .unwrap()
}

pub(crate) fn advice() -> Advice {
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    Advice {
        conclusion: lines(&[
            "bbr carried 57.0 Mbit/s, 2.2 times cubic.",
            "Leave the buffers to the kernel: 4 MiB made less than 10 % difference.",
        ]),
        methods: vec![
            ("this route".to_owned(), lines(&["ip route change 10.0.0.0/8 congctl bbr"])),
            (
                "this machine, from now on".to_owned(),
                lines(&[
                    "echo 'net.ipv4.tcp_congestion_control = bbr' > /etc/sysctl.d/60-lastbyte.conf",
                    "sysctl -p /etc/sysctl.d/60-lastbyte.conf",
                ]),
            ),
        ],
        warnings: lines(&[
            "bbr resends 1.3 % of its bytes (cubic 0.035 %), and on a shared path it takes from flows that back off.",
        ]),
    }
}

fn about(subjects: Vec<Value>, rounds: usize) -> Value {
    json!({
        "schema": 2, "version": "0.1.0", "kernel": "6.18.0-test", "began_unix_s": 1_795_238_800,
        "command": ["lastbyte", "lab", "usa-malaysia", "--rounds", rounds.to_string()],
        "path": {
            "name": "usa-malaysia", "emulated": true,
            "words": "RTT 217 ms, loss 0.034 %, 95 Mbit/s, queue 2.6 MB", "rtt_s": 0.217,
            "up_bits_per_s": 95_000_000, "down_bits_per_s": 95_000_000,
            "up_limit_bits_per_s": 91.7e6, "down_limit_bits_per_s": 91.7e6,
            "up_queue_bytes": 2_576_875, "up_loss_share": 0.000_34,
        },
        "subjects": subjects, "load_s": 8.0, "load_bytes": null,
        "least_rounds": rounds, "most_rounds": rounds, "seed": 1, "parallel": 6,
    })
}

fn setting(place: usize) -> Value {
    let congestion = ["bbr", "cubic", "reno"][place % 3];
    let buffers = ["auto", "131072", "auto:8388608", "4194304"][place / 3 % 4];
    let streams = 1 + place / 12;
    json!({ "own": {
        "congestion": congestion, "buffers": buffers, "direction": "up", "streams": streams,
    }})
}

fn run(subject: usize, round: usize, samples: usize) -> Value {
    let mut noise = (subject * 1000 + round) as u64 + 1;
    let mut noisy = |least: f64, greatest: f64| {
        noise =
            noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (greatest - least) * ((noise >> 40) as f64 / (1 << 24) as f64)
    };
    let share = [0.9, 0.35, 0.25][subject % 3] / (1 + subject / 3) as f64;
    let tenths: Vec<u64> = (0..samples).map(|_| whole(1.14e6 * share * noisy(0.3, 1.7))).collect();
    let bytes: u64 = tenths.iter().sum();
    let words = [
        "pacing",
        "congestion_window",
        "congestion_window",
        "send_buffer",
        "receive_window",
        "application",
    ];
    let sample = |place: usize| {
        json!({
            "at_s": place as f64 / 10.0 + 0.1,
            "cwnd_bytes": whole(2.6e6 * share * noisy(0.7, 1.3)),
            "unacked_bytes": whole(2.4e6 * share * noisy(0.5, 1.0)),
            "rtt_us": whole(noisy(217e3, 330e3)),
            "notsent_bytes": 1, "pacing_bytes_per_s": null, "delivery_bytes_per_s": null,
            "resent_bytes": 0, "peer_window_bytes": null,
            "limited_by": words[(subject + place / 20) % words.len()],
        })
    };
    let samples_of_run: Vec<Value> = (0..samples).map(sample).collect();
    json!({
        "subject": subject, "round": round,
        "flows": [{
            "way": "up", "stream": 0,
            "received": {
                "received_bytes": bytes, "began_s": 2.28, "received_s": samples as f64 / 10.0,
                "end": "fin", "received_bytes_per_100_ms": tenths, "receive_buffer_bytes": null,
            },
            "sent": {
                "written_bytes": bytes, "writing_s": samples as f64 / 10.5, "level": "closed",
                "acked_bytes": bytes, "failure": null, "congestion": "bbr", "send_buffer_bytes": 4_194_304,
                "send_buffer_fixed": false, "sent_bytes": bytes + bytes / 100,
                "resent_bytes": bytes / 100, "min_rtt_s": 0.217,
                "limited_share": {
                    "application": 0.01, "send_buffer": 0.1 * (subject % 4) as f64, "receive_window": 0.05,
                    "congestion_window": 0.4, "pacing": 0.3, "unknown": 0.02,
                },
                "samples": samples_of_run,
            },
        }],
        "latency": latency(samples as f64 / 10.5, 0.23 + 0.02 * (subject % 5) as f64),
        "link": {
            "up": way(), "down": way(), "device_drops_packets": 0, "late_p50_ms": 0.007, "late_p99_ms": 0.05,
            "late_max_ms": 0.9, "cpu_s": 0.5,
        },
    })
}

fn latency(load_s: f64, took_s: f64) -> Value {
    let trips = |factor: f64| -> Vec<Value> {
        let trip = |place: usize| json!({ "at_s": place as f64 / 4.0, "took_s": took_s * factor });
        (0..32).map(trip).collect()
    };
    json!({
        "idle_s": [0.217, 0.218], "load_s": load_s, "handshakes": trips(1.0), "beside": trips(1.1),
        "inside": trips(2.0), "unanswered": 0,
    })
}

fn whole(figure: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "small and positive, by the figures above")]
    let whole = figure as u64;
    whole
}

fn way() -> Value {
    json!({
        "arrived_packets": 40_000, "arrived_bytes": 60_000_000, "lost_packets": 11, "dropped_packets": 5, "policed_packets": 0,
        "marked_packets": 0, "queued_p50_ms": 1.0, "queued_p99_ms": 2.0,
    })
}
