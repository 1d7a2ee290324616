//! The experiment as JSON Lines: the plan, each run with all its samples as it ends, the summary.
//! Keys carry their units.

use anyhow::Result;
use lastbyte_lab::{Event, Experiment, Findings, Load, Plan, Row, Run, Sample};
use serde::Serialize;

use crate::output::say_json;

const SCHEMA: u32 = 1;

/// Makes the runs of a plan and prints them.
pub(super) fn run(plan: Plan) -> Result<Experiment> {
    let plan_line = PlanLine::of(&plan);
    let subjects = plan.subjects.clone();
    let mut failed = None;
    let mut watch = |event: Event<'_>| {
        let said = match event {
            Event::Begun => say_json(&plan_line),
            Event::Counted(run) => say_json(&RunLine::of(run, &subjects[run.subject])),
            _ => Ok(()),
        };
        failed = failed.take().or_else(|| said.err());
    };
    let experiment = lastbyte_lab::experiment(plan, &mut watch)?;
    if let Some(error) = failed {
        return Err(error);
    }
    for row in &Findings::of(&experiment).rows {
        say_json(&SummaryLine::of(row))?;
    }
    Ok(experiment)
}

#[derive(Serialize)]
struct PlanLine {
    r#type: &'static str,
    schema: u32,
    path: String,
    rtt_ms: Option<f64>,
    rate_bits_per_s: Option<u64>,
    loss_share: Option<f64>,
    queue_bytes: Option<u64>,
    subjects: Vec<String>,
    rounds: u32,
    load_s: Option<f64>,
    load_bytes: Option<u64>,
    seed: u64,
    parallel: usize,
}

impl PlanLine {
    fn of(plan: &Plan) -> Self {
        let spec = plan.path.scenario().map(|scenario| &scenario.spec);
        let (load_s, load_bytes) = match plan.load {
            Load::Time(time) => (Some(time.as_secs_f64()), None),
            Load::Bytes(bytes) => (None, Some(bytes)),
        };
        Self {
            r#type: "plan",
            schema: SCHEMA,
            path: plan.path.scenario().map_or("loopback", |scenario| &scenario.name).to_owned(),
            rtt_ms: spec.map(|spec| spec.rtt().as_secs_f64() * 1e3),
            rate_bits_per_s: spec.and_then(|spec| spec.up.rate).map(|rate| rate.bits_per_s()),
            loss_share: spec.and_then(|spec| spec.up.loss).map(|loss| loss.fraction()),
            queue_bytes: spec.and_then(|spec| spec.queue_bytes(&spec.up)),
            subjects: plan.subjects.iter().map(ToString::to_string).collect(),
            rounds: plan.rounds,
            load_s,
            load_bytes,
            seed: plan.seed,
            parallel: plan.parallel,
        }
    }
}

#[derive(Serialize)]
struct RunLine {
    r#type: &'static str,
    schema: u32,
    congestion: String,
    buffers: String,
    round: u32,
    received_bytes: u64,
    received_s: f64,
    received_bits_per_s: f64,
    reader_saw: Option<String>,
    written_bytes: u64,
    writing_s: f64,
    claimed_bits_per_s: f64,
    level: String,
    acked_bytes: Option<u64>,
    failure: Option<String>,
    complete: bool,
    send_buffer_granted_bytes: u32,
    receive_buffer_granted_bytes: u32,
    limited_share: Limits,
    link: Option<LinkPart>,
    received_bytes_per_100_ms: Vec<u64>,
    samples: Vec<SamplePart>,
}

#[derive(Serialize)]
struct Limits {
    application: f64,
    send_buffer: f64,
    receive_window: f64,
    congestion_window: f64,
    pacing: f64,
    unknown: f64,
}

#[derive(Serialize)]
struct LinkPart {
    up_packets: u64,
    up_lost_packets: u64,
    up_dropped_packets: u64,
    up_policed_packets: u64,
    up_marked_packets: u64,
    up_queued_p50_ms: f64,
    up_queued_p99_ms: f64,
    device_drops_packets: u64,
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    cpu_s: f64,
}

#[derive(Serialize)]
struct SamplePart {
    at_ms: f64,
    cwnd_segments: u32,
    unacked_segments: u32,
    rtt_us: u32,
    notsent_bytes: Option<u32>,
    pacing_bytes_per_s: Option<u64>,
    retrans_bytes: Option<u64>,
    peer_window_bytes: Option<u32>,
}

impl RunLine {
    fn of(run: &Run, subject: &lastbyte_lab::Subject) -> Self {
        let (receipt, failure) = match &run.sent.receipt {
            Ok(receipt) => (receipt, None),
            Err(error) => (&error.receipt, Some(error.to_string())),
        };
        let [application, send_buffer, receive_window, congestion_window, pacing, unknown] =
            run.sent.limits.shares();
        Self {
            r#type: "run",
            schema: SCHEMA,
            congestion: subject.congestion.clone(),
            buffers: subject.buffers.to_string(),
            round: run.round,
            received_bytes: run.received.bytes,
            received_s: run.received.time.as_secs_f64(),
            received_bits_per_s: run.received_bits_per_s(),
            reader_saw: run.received.end.map(|end| end.to_string()),
            written_bytes: run.sent.written,
            writing_s: run.sent.writing.as_secs_f64(),
            claimed_bits_per_s: run.claimed_bits_per_s(),
            level: receipt.level.to_string(),
            acked_bytes: receipt.acked,
            failure,
            complete: run.is_complete(),
            send_buffer_granted_bytes: run.sent.granted.send_buffer,
            receive_buffer_granted_bytes: run.received.granted.receive_buffer,
            limited_share: Limits {
                application,
                send_buffer,
                receive_window,
                congestion_window,
                pacing,
                unknown,
            },
            link: run.link.as_ref().map(LinkPart::of),
            received_bytes_per_100_ms: run.received.tenths.clone(),
            samples: run.sent.samples.iter().map(SamplePart::of).collect(),
        }
    }
}

impl LinkPart {
    fn of(report: &lastbyte_link::Report) -> Self {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        Self {
            up_packets: report.up.packets,
            up_lost_packets: report.up.lost,
            up_dropped_packets: report.up.dropped,
            up_policed_packets: report.up.policed,
            up_marked_packets: report.up.marked,
            up_queued_p50_ms: ms(report.up.queue_delay.p50),
            up_queued_p99_ms: ms(report.up.queue_delay.p99),
            device_drops_packets: report.device_drops,
            late_p50_ms: ms(report.lateness.p50),
            late_p99_ms: ms(report.lateness.p99),
            late_max_ms: ms(report.lateness.max),
            cpu_s: report.cpu.as_secs_f64(),
        }
    }
}

impl SamplePart {
    fn of(sample: &Sample) -> Self {
        let info = &sample.info;
        Self {
            at_ms: sample.at.as_secs_f64() * 1e3,
            cwnd_segments: info.cwnd_segments,
            unacked_segments: info.unacked_segments,
            rtt_us: info.rtt_us,
            notsent_bytes: info.notsent_bytes,
            pacing_bytes_per_s: info.pacing_rate,
            retrans_bytes: info.bytes_retrans,
            peer_window_bytes: info.snd_wnd,
        }
    }
}

#[derive(Serialize)]
struct SummaryLine {
    r#type: &'static str,
    schema: u32,
    congestion: String,
    buffers: String,
    runs: usize,
    complete_runs: usize,
    median_bits_per_s: f64,
    min_bits_per_s: f64,
    max_bits_per_s: f64,
    claimed_bits_per_s: f64,
    resent_share: Option<f64>,
    buffer_cap_bits_per_s: Option<f64>,
}

impl SummaryLine {
    fn of(row: &Row) -> Self {
        Self {
            r#type: "summary",
            schema: SCHEMA,
            congestion: row.subject.congestion.clone(),
            buffers: row.subject.buffers.to_string(),
            runs: row.samples.len(),
            complete_runs: row.complete,
            median_bits_per_s: row.received.median,
            min_bits_per_s: row.received.min,
            max_bits_per_s: row.received.max,
            claimed_bits_per_s: row.claimed,
            resent_share: row.resent,
            buffer_cap_bits_per_s: row.cap,
        }
    }
}
