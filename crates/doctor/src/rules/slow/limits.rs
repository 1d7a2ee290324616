//! What limited a flow over a whole window: LB201, LB202, LB203, LB204, LB208.

use lastbyte_core::sample::LimitedBy;

use super::super::figures;
use super::window::{Seen, Window};
use super::{Draft, heal};
use crate::event::Sample;
use crate::facts::{Facts, KnownSocket};
use crate::text;

/// On a path shorter than this the processors are the limit, and no window matters for long,
/// microseconds.
const SHORTEST_US: u32 = 1_000;
/// A limit that held for less of the time than this is one of several.
const MOSTLY: f64 = 0.5;
/// What autotuning would go up to (`tcp_wmem`, by default), bytes of memory.
const AUTOTUNED: u32 = 4 << 20;
/// "Nearly all the time" starts here.
const NEARLY_ALWAYS: f64 = 0.8;

/// The data that the rules judge.
pub(super) struct Case<'a> {
    pub(super) window: &'a Window,
    pub(super) now: &'a Seen,
    pub(super) sample: &'a Sample,
    pub(super) facts: &'a Facts,
}

/// All findings about a window.
pub(super) fn judge(case: &Case<'_>) -> Vec<Draft> {
    let by_rule = |rule: fn(&Case<'_>) -> Option<Draft>| rule(case);
    let rules = [send_buffer, receive_window, own_window, congestion_window, shut_out, slow_reader];
    let drafts: Vec<Draft> = rules.into_iter().filter_map(by_rule).collect();
    // A flow limited by something else does not wait for its program.
    if drafts.is_empty() { application(case).into_iter().collect() } else { drafts }
}

impl Case<'_> {
    fn share(&self, by: LimitedBy) -> f64 {
        self.window.limits.shares()[by as usize]
    }

    fn is_long_path(&self) -> bool {
        self.now.trip_us() >= SHORTEST_US
    }

    /// Whether the path was full: more bytes would have waited in a queue.
    fn is_path_full(&self) -> bool {
        self.window.share_of(self.window.queue_in) > 0.25
    }

    /// The rate, bytes per second, with this many bytes in flight.
    fn rate_of(&self, flight: u64) -> f64 {
        figures::per_second(flight, u64::from(self.now.trip_us()) * 1_000)
    }

    fn over(&self) -> String {
        text::time(self.window.ns)
    }

    fn rate(&self) -> String {
        figures::rate(self.window.rate())
    }

    fn draft(&self, code: u16, sentence: String, fix: &str) -> Draft {
        let info = self.now.info();
        let mut evidence = figures::evidence([
            ("over_seconds", (self.window.ns as f64 / 1e9).into()),
            ("acked_bytes", self.window.acked.into()),
            ("rate_bits_per_second", (self.window.rate() * 8.0).into()),
            ("rtt_us", info.rtt_us.into()),
        ]);
        for by in LimitedBy::ALL {
            let share = self.share(by);
            if share > 0.0 {
                let name = format!("limited_by_{}_percent", by.to_string().replace(' ', "_"));
                evidence.insert(name, (share * 100.0).into());
            }
        }
        if let Some(least) = info.min_rtt_us {
            evidence.insert("min_rtt_us".to_owned(), least.into());
        }
        if let Some(name) = &self.sample.congestion {
            evidence.insert("congestion_control".to_owned(), name.as_str().into());
        }
        Draft { code, sentence, fix: fix.to_owned(), heal: None, evidence, by: None }
    }

    /// The other end, if it is on this machine and was sampled.
    fn other_end(&self) -> Option<(&KnownSocket, &Sample)> {
        let other = self.facts.other_end(self.sample.socket)?;
        other.sample.as_ref().map(|(_, sample)| (other, &**sample))
    }
}

/// LB201: the program fixed the send buffer, and the path would carry more.
///
/// The kernel's own clock for the send buffer (`tcpi_sndbuf_limited`) does not run in the plainest
/// cases. This rule uses the lock, a full buffer with all its bytes sent, and a path without a
/// queue.
fn send_buffer(case: &Case<'_>) -> Option<Draft> {
    /// A buffer counts memory, up to twice the bytes in it.
    const OVERHEAD: u64 = 2;
    let (window, size) = (case.window, case.sample.send_buffer?);
    let full = Some(window.share_of(window.full_in)).filter(|share| *share >= NEARLY_ALWAYS);
    let share = case.share(LimitedBy::SendBuffer).max(full.unwrap_or_default());
    // If a write waited while the windows were open, only the buffer explains the unexplained
    // share.
    let is_overfull = window.share_of(window.overfull_in) >= MOSTLY && share >= MOSTLY / 2.0;
    let unknown = if is_overfull { case.share(LimitedBy::Unknown) } else { 0.0 };
    let is_fixed = match case.sample.locks {
        Some(locks) => locks & 1 != 0 && share + unknown >= MOSTLY,
        // The lock is not readable: take a buffer that is always full and does not grow.
        None => share >= NEARLY_ALWAYS && window.buffer_least == window.buffer_most,
    };
    if !is_fixed || size >= AUTOTUNED || !case.is_long_path() || case.is_path_full() {
        return send_buffer_with_bursts(case);
    }
    let most = u64::from(AUTOTUNED) / OVERHEAD;
    let flight = window.flight_most.max(1);
    let allowed =
        case.now.info().snd_wnd.map_or_else(|| flight.saturating_mul(2), u64::from).min(most);
    if allowed < flight.saturating_add(flight / 4) {
        // The peer's window would be the next limit, and at once.
        return None;
    }
    let needed = allowed * OVERHEAD;
    let who = match case.sample.locks {
        Some(_) => "which the program fixed at",
        None => "which seems to be fixed at",
    };
    let sentence = format!(
        "the send buffer, {who} {} bytes, was full for {} of {} with all of it in flight: {} at a \
         round trip of {}, where the peer's window allows {}, for which about {} bytes are needed",
        text::count(size.into()),
        figures::percent(share),
        case.over(),
        case.rate(),
        figures::microseconds(case.now.trip_us()),
        figures::rate(case.rate_of(allowed)),
        text::count(needed),
    );
    let fix = "Do not set SO_SNDBUF, so that the kernel sizes the buffer by what the path takes; \
               or set it to twice the bandwidth-delay product.";
    let mut draft = case.draft(201, sentence, fix);
    draft.heal = Some(heal(case.sample.socket, "--unlock-buffers"));
    let lock = case.sample.locks.map_or("not readable", |_| "send buffer");
    draft.evidence.extend(figures::evidence([
        ("send_buffer_bytes", size.into()),
        ("needed_send_buffer_bytes", needed.into()),
        ("allowed_rate_bits_per_second", (case.rate_of(allowed) * 8.0).into()),
        ("most_in_flight_bytes", flight.into()),
        ("so_buf_lock", lock.into()),
    ]));
    Some(draft)
}

/// LB201 without pacing. Such a flow was observed with up to ten times its buffer in flight at some
/// moments, in bursts that wait in a queue, and almost nothing at others; perhaps because the
/// kernel checks for free memory only before it makes a new segment.
///
/// The rate of a burst shows that the path is not always full. Moments with an open congestion
/// window show that this window was not the limit.
fn send_buffer_with_bursts(case: &Case<'_>) -> Option<Draft> {
    /// The healthy recordings reach at least 90 % of what their path delivers, the others at most
    /// half.
    const CARRIED: f64 = 0.6;
    /// The share and number of moments at which only the buffer can have been the limit.
    const STARVED: f64 = 0.1;
    const FEWEST: u32 = 3;
    let (window, size) = (case.window, case.sample.send_buffer?);
    let is_fixed = case.sample.locks.is_some_and(|locks| locks & 1 != 0) && size < AUTOTUNED;
    let share = window.share_of(window.overfull_in);
    let is_starved = window.starved_in >= FEWEST && window.share_of(window.starved_in) >= STARVED;
    let could = window.delivered_most as f64;
    let carries_more = window.rate() < could * CARRIED;
    if !is_fixed || share < NEARLY_ALWAYS || !is_starved || !carries_more || !case.is_long_path() {
        return None;
    }
    let sentence = format!(
        "the send buffer, which the program fixed at {} bytes, was full in {} of the samples in \
         {}, also when all of it was in flight and the windows had room: {}, where the path \
         delivered up to {}",
        text::count(size.into()),
        figures::percent(share),
        case.over(),
        case.rate(),
        figures::rate(could),
    );
    let fix = "Do not set SO_SNDBUF, so that the kernel sizes the buffer by what the path takes; \
               or set it to twice the bandwidth-delay product.";
    let mut draft = case.draft(201, sentence, fix);
    draft.heal = Some(heal(case.sample.socket, "--unlock-buffers"));
    draft.evidence.extend(figures::evidence([
        ("send_buffer_bytes", size.into()),
        ("delivered_rate_bits_per_second", (could * 8.0).into()),
        ("most_in_flight_bytes", window.flight_most.into()),
        ("so_buf_lock", "send buffer".into()),
    ]));
    Some(draft)
}

/// LB202: the peer's window is full, and stays as it is. LB208 where it moves with a slow reader.
fn receive_window(case: &Case<'_>) -> Option<Draft> {
    let window = case.window;
    let now = case.now.info().snd_wnd?;
    let share = case.share(LimitedBy::ReceiveWindow);
    let is_growing = window.peer_first.is_some_and(|first| now > first.saturating_add(first / 4));
    let was_shut = window.share_of(window.shut_out_in) > 0.2;
    if share < MOSTLY || is_growing || !case.is_long_path() {
        return None;
    }
    let other = case.other_end();
    let is_fixed = other.and_then(|(_, sample)| sample.locks).map(|locks| locks & 2 != 0);
    if window.peer_least < window.peer_most / 2 && is_fixed != Some(true) {
        // It closes and opens: the reader is slow. If the reader is on this machine, its own
        // finding reports that.
        let is_far = other.is_none() && window.share_of(window.shut_out_in) < NEARLY_ALWAYS;
        return is_far.then(|| far_reader_is_slow(case, share));
    }
    if was_shut || case.is_path_full() {
        return None;
    }
    let (why, fix) = match is_fixed {
        Some(true) => (
            "its program fixed the receive buffer",
            "Do not set SO_RCVBUF at the receiver, so that its kernel sizes the buffer by what \
             comes.",
        ),
        Some(false) => (
            "its kernel does not open it further",
            "Raise the last number of net.ipv4.tcp_rmem at the receiver.",
        ),
        None => (
            "its program fixed the receive buffer, or its kernel may not open it further",
            "At the receiver, do not set SO_RCVBUF, and raise the last number of \
             net.ipv4.tcp_rmem.",
        ),
    };
    let sentence = format!(
        "the peer's receive window of {} bytes was full for {} of {}: {} at a round trip of {}, \
         and {why}",
        text::count(window.peer_most.into()),
        figures::percent(share),
        case.over(),
        case.rate(),
        figures::microseconds(case.now.trip_us()),
    );
    let mut draft = case.draft(202, sentence, fix);
    draft.evidence.insert("peer_window_bytes".to_owned(), window.peer_most.into());
    if let Some((known, sample)) = other.filter(|_| is_fixed == Some(true)) {
        draft.heal = Some(heal(known.socket.id, "--unlock-buffers"));
        if let Some(size) = sample.receive_buffer {
            draft.evidence.insert("peer_receive_buffer_bytes".to_owned(), size.into());
        }
    }
    Some(draft)
}

/// LB202 as the receiver sees it: its program fixed the buffer, and in each round trip as much comes as
/// the window allows.
fn own_window(case: &Case<'_>) -> Option<Draft> {
    /// What autotuning would go up to (`tcp_rmem`, by default), bytes of memory.
    const AUTOTUNED: u32 = 6 << 20;
    /// This share of the window came in the shortest round trip. In a longer one, perhaps with
    /// queueing, it is more.
    const USED: f64 = 0.75;
    let (window, size) = (case.window, case.sample.receive_buffer?);
    let is_fixed = case.sample.locks.is_some_and(|locks| locks & 2 != 0) && size < AUTOTUNED;
    let flows = window.share_of(window.received_in) >= NEARLY_ALWAYS;
    let reads = window.share_of(window.unread_in) < 0.2;
    if !is_fixed || !flows || !reads || !case.is_long_path() || window.offered_most == 0 {
        return None;
    }
    // If the sender is in scope as well, its own finding reports it.
    let other = case.facts.other_end(case.sample.socket);
    if other
        .is_some_and(|known| known.sample.is_some() && case.facts.socket_in_scope(known.socket.id))
    {
        return None;
    }
    let could = case.rate_of(window.offered_most.into());
    let share = window.receive_rate() / could;
    if share < USED {
        return None;
    }
    let rate = figures::rate(window.receive_rate());
    let sentence = format!(
        "the receive buffer, which the program fixed at {} bytes, lets the peer send {} bytes in a \
         round trip of {}, and {} of that came for {}: {rate}",
        text::count(size.into()),
        text::count(window.offered_most.into()),
        figures::microseconds(case.now.trip_us()),
        figures::percent(share.min(1.0)),
        case.over(),
    );
    let fix = "Do not set SO_RCVBUF, so that the kernel sizes the buffer by what comes; or set it \
               to twice the bandwidth-delay product.";
    let mut draft = case.draft(202, sentence, fix);
    draft.heal = Some(heal(case.sample.socket, "--unlock-buffers"));
    draft.evidence.retain(|name, _| !matches!(name.as_str(), "acked_bytes" | "congestion_control"));
    draft.evidence.extend(figures::evidence([
        ("received_bytes", window.received.into()),
        ("rate_bits_per_second", (window.receive_rate() * 8.0).into()),
        ("receive_buffer_bytes", size.into()),
        ("receive_window_bytes", window.offered_most.into()),
        ("so_buf_lock", "receive buffer".into()),
    ]));
    Some(draft)
}

/// LB208 as the sender sees it: the window moves, and is full.
fn far_reader_is_slow(case: &Case<'_>, share: f64) -> Draft {
    let window = case.window;
    let sentence = format!(
        "the peer's receive window was full for {} of {} and went from {} to {} bytes and back: \
         its program seems to read no faster than {}",
        figures::percent(share),
        case.over(),
        text::count(window.peer_least.into()),
        text::count(window.peer_most.into()),
        case.rate(),
    );
    let fix =
        "Look at what the receiving program does between its reads; nothing at this end fixes it.";
    let mut draft = case.draft(208, sentence, fix);
    draft.evidence.extend(figures::evidence([
        ("peer_window_least_bytes", window.peer_least.into()),
        ("peer_window_most_bytes", window.peer_most.into()),
    ]));
    draft
}

/// LB203: a congestion control takes each loss for congestion, and losses without a queue keep its
/// window small.
fn congestion_window(case: &Case<'_>) -> Option<Draft> {
    /// Congestion controls that reduce their window at each loss.
    const BY_LOSS: [&str; 12] = [
        "reno",
        "cubic",
        "bic",
        "htcp",
        "highspeed",
        "hybla",
        "illinois",
        "scalable",
        "westwood",
        "veno",
        "yeah",
        "lp",
    ];
    /// One or two may come from the end of slow start.
    const FEWEST: u64 = 3;
    /// With more losses bbr is no faster (its limit is 2 % in a round trip), and the path is
    /// broken.
    const MOST_LOST: f64 = 0.03;
    /// On a shorter path the window soon recovers, microseconds.
    const SHORTEST_US: u32 = 5_000;
    let window = case.window;
    let name = case.sample.congestion.as_deref()?;
    let share = case.share(LimitedBy::CongestionWindow);
    let mss = u64::from(case.now.info().snd_mss.max(1));
    let lost = figures::share(window.again, window.again.saturating_add(window.acked / mss));
    let unqueued = figures::share(window.again_unqueued, window.again);
    let is_random = window.again >= FEWEST && window.again_in >= 2 && unqueued >= NEARLY_ALWAYS;
    let is_small = case.now.trip_us() >= SHORTEST_US && share >= MOSTLY && lost < MOST_LOST;
    if !BY_LOSS.contains(&name) || !is_random || !is_small || case.is_path_full() {
        return None;
    }
    let sentence = format!(
        "{name} took {} lost segments ({}) in {} for congestion, while the round trip stayed at {} \
         as without a queue: its window was full for {} of the time, at {}",
        text::count(window.again),
        figures::percent(lost),
        case.over(),
        figures::microseconds(case.now.info().rtt_us),
        figures::percent(share),
        case.rate(),
    );
    let fix = "Use a congestion control that measures the path and does not take each loss for \
               congestion: bbr, or lb_bbr of lastbyte cc.";
    let mut draft = case.draft(203, sentence, fix);
    draft.heal = Some(heal(case.sample.socket, "--congestion bbr"));
    draft.evidence.extend(figures::evidence([
        ("retransmitted_segments", window.again.into()),
        ("retransmitted_percent", (lost * 100.0).into()),
        ("retransmitted_without_queue_percent", (unqueued * 100.0).into()),
        ("congestion_window_segments", case.now.info().cwnd_segments.into()),
    ]));
    Some(draft)
}

/// LB204: a steady flow in one direction that the program feeds slower than the path would take it.
fn application(case: &Case<'_>) -> Option<Draft> {
    /// Nobody waits for a transfer slower than this, bytes per second.
    const SLOWEST: f64 = 64.0 * 1024.0;
    let (window, info) = (case.window, case.now.info());
    // If a program had waited for the buffer, the samples would have shown it full.
    let had_room = window.fullest > 0.0 && window.fullest < 0.9;
    let all_sent = window.share_of(window.all_sent_in);
    let share = case.share(LimitedBy::Application).max(if had_room { all_sent } else { 0.0 });
    let is_steady = window.share_of(window.acked_in) >= 0.9;
    let is_one_way = window.share_of(window.received_in) <= 0.1;
    if share < NEARLY_ALWAYS || !is_steady || !is_one_way || !case.is_long_path() {
        return None;
    }
    let congestion = u64::from(info.cwnd_segments) * u64::from(info.snd_mss);
    let allowed = info.snd_wnd.map_or(congestion, |room| congestion.min(room.into()));
    let (rate, could) = (window.rate(), case.rate_of(allowed));
    if rate < SLOWEST || could < rate * 1.5 || case.is_path_full() {
        return None;
    }
    let sentence = format!(
        "the network waited for the program in {} of {}: it wrote {}, and the windows allow {} \
         already",
        figures::percent(share),
        case.over(),
        case.rate(),
        figures::rate(could),
    );
    let fix = "If it is not meant to be that slow, look at what the program waits for before it \
               writes: its source, its disk, or a processor.";
    let mut draft = case.draft(204, sentence, fix);
    draft.evidence.insert("allowed_rate_bits_per_second".to_owned(), (could * 8.0).into());
    Some(draft)
}

/// LB208 as the sender sees it: the window is closed, and stays so.
fn shut_out(case: &Case<'_>) -> Option<Draft> {
    let window = case.window;
    let share = window.share_of(window.shut_out_in);
    // If the reader is on this machine, its own finding reports it.
    if share < NEARLY_ALWAYS || case.other_end().is_some() {
        return None;
    }
    let waiting = case.now.send_queue;
    let sentence = format!(
        "the peer's program does not read: its window was closed for {} of {}, and {} bytes wait \
         here",
        figures::percent(share),
        case.over(),
        text::count(waiting.into()),
    );
    let fix =
        "Look at what the receiving program does instead of reading; nothing at this end fixes it.";
    let mut draft = case.draft(208, sentence, fix);
    draft.evidence.extend(figures::evidence([
        ("waiting_bytes", waiting.into()),
        ("window_closed_percent", (share * 100.0).into()),
    ]));
    Some(draft)
}

/// LB208 as the receiver sees it: bytes are unread in its buffer, and its program reads few or
/// none.
fn slow_reader(case: &Case<'_>) -> Option<Draft> {
    let (window, info) = (case.window, case.now.info());
    if window.share_of(window.unread_in) < NEARLY_ALWAYS {
        return None;
    }
    let (unread, mss) = (case.now.receive_queue, info.snd_mss);
    let is_closed = info.rcv_wnd.is_none_or(|room| room <= mss.saturating_mul(2).max(unread / 8));
    let read = figures::per_second(window.read, window.ns);
    let what = match window.read {
        0 if is_closed => "read nothing".to_owned(),
        0 => return None,
        // It stopped reading early, and the peer is waiting for it now.
        _ if is_closed && window.share_of(window.read_in) < 0.1 => {
            format!("read {} bytes", text::count(window.read))
        }
        // It stopped or began reading: the next window will show which.
        _ if window.share_of(window.read_in) < 0.3 => return None,
        // A sender on the same machine is nearly always faster than a reader.
        _ if !case.is_long_path() || window.received_in == 0 => return None,
        _ => format!("read {} only", figures::rate(read)),
    };
    let sentence = format!(
        "the program {what} for {}, while {} bytes were unread in its receive buffer and the peer \
         had to wait",
        case.over(),
        text::count(unread.into()),
    );
    let fix = "Read as soon as there is something to read, in a thread or task of its own if the \
               work on it takes long; it is harmless if it is meant to slow the peer down.";
    let mut draft = case.draft(208, sentence, fix);
    draft.evidence.extend(figures::evidence([
        ("unread_bytes", unread.into()),
        ("read_bytes", window.read.into()),
    ]));
    Some(draft)
}
