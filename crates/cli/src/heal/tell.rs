//! What is about to be changed, and what came of it, in words and as JSON.

use std::fmt::Write;

use anyhow::Result;
use lastbyte_changes::{Outcome, Tuning};
use lastbyte_core::text::in_one_line;
use lastbyte_heal::{FixedBuffers, Gain, SocketChanges, Was, Way, lowat_in_words, pacing_in_words};
use lastbyte_host::Holder;
use lastbyte_units::grouped;
use serde::Serialize;

use super::{HealArgs, Patient};
use crate::output::{mbit, percent, say, say_json};

/// Says which connection, and for each option what it is and what it is to become.
pub(super) fn say_plan(patient: &Patient, unlock: bool) {
    let Tuning { target, before, changes, .. } = &patient.tuning;
    let SocketChanges { buffers, congestion, notsent_lowat_bytes, pacing_bytes_per_s } = changes;
    say(&format!(
        "socket {:#x} of {}, {} to {}",
        target.cookie,
        holders_in_words(&target.holders),
        target.local,
        target.peer
    ));
    let line = |what: &str, text: &str| say(&format!("  {what}: {text}"));
    match buffers {
        Some(FixedBuffers { send_bytes, receive_bytes }) => {
            let fixed = |bytes: &u32, most: Option<u64>| {
                let most = most
                    .map_or_else(String::new, |most| format!(", up to {} bytes", grouped(most)));
                let bytes = grouped((*bytes).into());
                format!("{bytes} bytes, fixed by the program -> sized by the kernel{most}")
            };
            if let Some(bytes) = send_bytes {
                line("send buffer", &fixed(bytes, target.network.most_send));
            }
            if let Some(bytes) = receive_bytes {
                let most_window = u64::from(u16::MAX) << before.receive_scale.min(14);
                line(
                    "receive buffer",
                    &format!(
                        "{}; the handshake bounds the window at {} bytes",
                        fixed(bytes, target.network.most_receive),
                        grouped(most_window)
                    ),
                );
            }
        }
        None if unlock => line("buffers", "not fixed, the kernel sizes both: nothing to unlock"),
        None => {}
    }
    if let Some(Was { before, after }) = congestion {
        line("congestion control", &format!("{before} -> {after}"));
    }
    if let Some(Was { before, after }) = notsent_lowat_bytes {
        let [before, after] = [before, after].map(|bytes| lowat_in_words(*bytes));
        line("limit of unsent bytes", &format!("{before} -> {after}"));
    }
    if let Some(Was { before, after }) = pacing_bytes_per_s {
        let [before, after] = [before, after].map(|rate| pacing_in_words(*rate));
        line("pacing", &format!("{before} -> {after}"));
    }
    if changes.is_nothing() && !unlock {
        line("as it is", "it has what is asked for already");
    }
}

/// `nginx (process 7, descriptor 4) and nginx (process 8, descriptor 4)`.
fn holders_in_words(holders: &[Holder]) -> String {
    /// More would hide the rest.
    const MOST: usize = 4;
    let one = |holder: &Holder| {
        let Holder { pid, fd, program } = holder;
        format!("{} (process {pid}, descriptor {fd})", in_one_line(program))
    };
    let shown: Vec<String> = holders.iter().take(MOST).map(one).collect();
    let more = holders.len().saturating_sub(MOST);
    let mut text = shown.join(" and ");
    if more > 0 {
        let _ = write!(text, " and {} more", grouped(more as u64));
    }
    text
}

/// Says what came of it.
pub(super) fn tell(patient: &Patient, args: &HealArgs) -> Result<()> {
    if args.json {
        return say_json(&Line::of(patient));
    }
    let cookie = patient.tuning.target.cookie;
    match &patient.tuning.outcome {
        // Its plan has said so.
        Outcome::Planned | Outcome::Nothing => {}
        Outcome::Over => say(&format!("socket {cookie:#x}: it ended before it could be changed")),
        Outcome::Failed(why) => say(&format!("socket {cookie:#x}: not changed: {why}")),
        Outcome::Changed(id) => {
            let mut text = format!("socket {cookie:#x}: changed");
            if let Some(gain) = &patient.gain {
                let _ = write!(text, "; {}", gain_in_words(gain));
            }
            if let Some(growth) = growth_in_words(&patient.tuning) {
                let _ = write!(text, "; {growth}");
            }
            let _ = write!(text, "; `lastbyte undo {id}` takes it back");
            say(&text);
        }
    }
    Ok(())
}

/// `was 83.1 Mbit/s, is 114.0 Mbit/s after 10 s, 37 % more`.
pub(super) fn gain_in_words(gain: &Gain) -> String {
    let seconds = gain.after.as_secs_f64();
    let after = if seconds < 9.95 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") };
    if gain.is_idle() {
        let ended = if gain.is_over {
            format!(", and ended {after} after the change")
        } else {
            String::new()
        };
        return format!("it was idle{ended}: nothing moved, so there is no gain to see");
    }
    let way = match gain.way {
        Way::Sent => "",
        Way::Received => " received",
    };
    let rate = |bits_per_s: f64| format!("{} Mbit/s{way}", mbit(bits_per_s));
    let was = gain
        .before_bits_per_s
        .map_or_else(|| "was not measured".to_owned(), |then| format!("was {}", rate(then)));
    let Some(now) = gain.after_bits_per_s else {
        return format!("{was}; it ended {after} after the change, too soon to measure it");
    };
    if gain.is_over {
        return format!("{was}, then {} until it ended {after} after the change", rate(now));
    }
    let gained = gain.before_bits_per_s.map_or_else(String::new, |then| in_comparison(then, now));
    format!("{was}, is {} after {after}{gained}", rate(now))
}

/// How a rate compares to one before it.
fn in_comparison(then: f64, now: f64) -> String {
    /// Two windows of one connection differ by that much by themselves.
    const SAME: f64 = 0.05;
    /// From here on a factor is easier to grasp than a share.
    const TWICE: f64 = 2.0;
    if then <= 0.0 {
        return String::new();
    }
    if now / then >= TWICE {
        return format!(", {:.1} times as much", now / then);
    }
    let change = now / then - 1.0;
    if change.abs() < SAME {
        return ", about the same".to_owned();
    }
    let more = if change > 0.0 { "more" } else { "less" };
    format!(", {} {more}", percent(change.abs()))
}

/// What the kernel made of buffers that were unlocked.
fn growth_in_words(tuning: &Tuning) -> Option<String> {
    let FixedBuffers { send_bytes, receive_bytes } = tuning.changes.buffers?;
    let after = tuning.after.as_ref()?;
    let grown = |which: &str, then: Option<u32>, now: u32| {
        let then = then.filter(|then| *then != now)?;
        let [then, now] = [then, now].map(|bytes| grouped(bytes.into()));
        Some(format!("its {which} buffer went from {then} to {now} bytes"))
    };
    let send = grown("send", send_bytes, after.send_buffer_bytes);
    let receive = grown("receive", receive_bytes, after.receive_buffer_bytes);
    let all: Vec<String> = [send, receive].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// A connection. Keys carry their units.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// As `doctor` prints it.
    socket: String,
    cookie: u64,
    local: String,
    peer: String,
    /// The inode number of its namespace's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<u64>,
    holders: &'a [Holder],
    /// `planned`, `nothing to do`, `changed`, `over` or `failed`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// Its number in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    #[serde(flatten)]
    changes: &'a SocketChanges,
    send_buffer_bytes: u32,
    receive_buffer_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
}

/// How fast it was and is.
#[derive(Debug, Serialize)]
struct Measured {
    /// `sent` or `received`.
    way: &'static str,
    before_bits_per_s: Option<f64>,
    after_bits_per_s: Option<f64>,
    after_s: f64,
    idle: bool,
    ended: bool,
}

impl<'a> Line<'a> {
    fn of(patient: &'a Patient) -> Self {
        let Patient { tuning, gain } = patient;
        let Tuning { target, before, changes, outcome, after } = tuning;
        let now = after.as_ref().unwrap_or(before);
        let (outcome, error, change) = match outcome {
            Outcome::Planned => ("planned", None, None),
            Outcome::Nothing => ("nothing to do", None, None),
            Outcome::Changed(id) => ("changed", None, Some(*id)),
            Outcome::Over => ("over", None, None),
            Outcome::Failed(why) => ("failed", Some(why.as_str()), None),
        };
        Self {
            socket: format!("{:#x}", target.cookie),
            cookie: target.cookie,
            local: target.local.to_string(),
            peer: target.peer.to_string(),
            network: target.network.inode,
            holders: &target.holders,
            outcome,
            error,
            change,
            changes,
            send_buffer_bytes: now.send_buffer_bytes,
            receive_buffer_bytes: now.receive_buffer_bytes,
            measured: gain.as_ref().map(Measured::of),
        }
    }
}

impl Measured {
    fn of(gain: &Gain) -> Self {
        Self {
            way: match gain.way {
                Way::Sent => "sent",
                Way::Received => "received",
            },
            before_bits_per_s: gain.before_bits_per_s,
            after_bits_per_s: gain.after_bits_per_s,
            after_s: gain.after.as_secs_f64(),
            idle: gain.is_idle(),
            ended: gain.is_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn gain(before: Option<f64>, after: Option<f64>, is_over: bool) -> String {
        gain_in_words(&Gain {
            way: Way::Sent,
            before_bits_per_s: before,
            after_bits_per_s: after,
            after: Duration::from_secs(10),
            is_over,
        })
    }

    #[test]
    fn a_gain_is_told_as_it_is() {
        let told = gain(Some(83.1e6), Some(114e6), false);
        assert_eq!(told, "was 83.1 Mbit/s, is 114.0 Mbit/s after 10 s, 37 % more");
        let told = gain(Some(100e6), Some(50e6), false);
        assert_eq!(told, "was 100.0 Mbit/s, is 50.0 Mbit/s after 10 s, 50 % less");
        let told = gain(Some(100e6), Some(104e6), false);
        assert_eq!(told, "was 100.0 Mbit/s, is 104.0 Mbit/s after 10 s, about the same");
        let told = gain(Some(0.0), Some(104e6), false);
        assert_eq!(told, "was 0.00 Mbit/s, is 104.0 Mbit/s after 10 s");
        let told = gain(Some(20e6), Some(600e6), false);
        assert_eq!(told, "was 20.0 Mbit/s, is 600.0 Mbit/s after 10 s, 30.0 times as much");
        assert!(gain(Some(0.0), Some(0.0), false).contains("idle"));
        assert!(gain(Some(0.0), None, true).contains("idle, and ended 10 s after"));
        let told = gain(Some(83.1e6), Some(114e6), true);
        assert_eq!(told, "was 83.1 Mbit/s, then 114.0 Mbit/s until it ended 10 s after the change");
        assert!(gain(Some(83.1e6), None, true).contains("too soon"));
        assert!(gain(None, Some(114e6), false).starts_with("was not measured, is 114.0"));
    }

    #[test]
    fn many_holders_are_summed_up() {
        let holder = |pid| Holder { pid, fd: 3, program: "a\nb".to_owned() };
        let two = holders_in_words(&[holder(1), holder(2)]);
        assert_eq!(two, "a\\nb (process 1, descriptor 3) and a\\nb (process 2, descriptor 3)");
        let many: Vec<Holder> = (1..7).map(holder).collect();
        assert!(holders_in_words(&many).ends_with("(process 4, descriptor 3) and 2 more"));
    }
}
