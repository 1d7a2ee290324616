//! Carries packets between two hosts' devices as the model says.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use hdrhistogram::Histogram;
use lastbyte_sys::tun::VNET_HEADER;
use lastbyte_sys::{poll, process};

use crate::clock::{Clock, Nanos};
use crate::held::{self, Held, Moments, PACKET_ROOM, Room, Spare, TRAIN_ROOM};
use crate::model::{Arrival, Fate, Model, Packet, Retiming};
use crate::packet;
use crate::port::Port;
use crate::report::{DirectionReport, Report, Times};
use crate::spec::{Spec, Way};
use crate::train::Train;

/// After a delivery in one direction, the next one waits at least so long: packets that come fast
/// go on in groups, as with the interrupts of a network card. Alone a packet is not held up.
const GROUPED_WITHIN: Nanos = 100_000;
/// Packets read from one device before the other has its turn.
const BATCH: usize = 16;
/// Packets on the way in one direction, uncut ones counting as one; more are dropped unasked, which
/// voids the run. 1 s of 1 Gbit/s in packets of 1500 bytes.
const MOST_HELD: usize = 1 << 17;

/// A thread's worth of work: both directions of a link.
#[derive(Debug)]
pub(crate) struct Wire {
    lines: [Line; 2],
    lateness: Histogram<u32>,
    unread: Histogram<u32>,
    unasked: u64,
    /// Where segments are cut together that are due before those behind them.
    part: Box<[u8]>,
}

/// One direction: the device it reads from, and what is on the way. It writes to the other line's
/// device.
#[derive(Debug)]
struct Line {
    port: Port,
    model: Model,
    /// Since when packets may have waited in the device: nothing did before.
    unread_since: Nanos,
    held: VecDeque<Held>,
    /// When something was delivered last.
    delivered_at: Nanos,
    spare: Spare,
    report: DirectionReport,
    queue_delay: Histogram<u32>,
    /// Packets dropped because too many were on the way.
    too_many: u64,
    /// What a train that is being decided about has come to; empty between two of them.
    pieces: Vec<Piece>,
}

/// A part of a train.
#[derive(Debug)]
enum Piece {
    /// Segments that arrive one behind the other, as they were sent.
    Run(Range<usize>),
    /// A segment that something happened to, cut out.
    Alone(Arrival, Arc<Room>),
}

/// What a carrier is asked while it carries.
#[derive(Debug)]
pub(crate) enum Request {
    /// What it has done so far.
    Report(mpsc::Sender<io::Result<Report>>),
    /// To carry as another path would, that began when this one did.
    Become(Box<Spec>, mpsc::Sender<()>),
}

/// Where a carrier is asked.
#[derive(Debug)]
pub(crate) struct Requests {
    /// A byte for each request; its end stops the carrier.
    pub(crate) bell: PipeReader,
    pub(crate) queue: mpsc::Receiver<Request>,
}

impl Wire {
    /// A wire between the near and the far host's device.
    pub(crate) fn new((near, up): (Port, Model), (far, down): (Port, Model)) -> io::Result<Self> {
        let line = |port, model| -> io::Result<Line> {
            Ok(Line {
                port,
                model,
                unread_since: 0,
                held: VecDeque::new(),
                delivered_at: 0,
                spare: Spare::default(),
                report: DirectionReport::default(),
                queue_delay: histogram()?,
                too_many: 0,
                pieces: Vec::new(),
            })
        };
        Ok(Self {
            lines: [line(near, up)?, line(far, down)?],
            lateness: histogram()?,
            unread: histogram()?,
            unasked: 0,
            part: vec![0; TRAIN_ROOM].into(),
        })
    }

    /// Carries packets until the bell's writing end is closed.
    pub(crate) fn carry(mut self, requests: &Requests) -> io::Result<Report> {
        process::exact_timers()?;
        // Without the right to it packets are later on a busy machine; the report will tell.
        let _ = process::before_ordinary_threads();
        let clock = Clock::start();
        loop {
            self.make_changes(clock.now());
            self.deliver_due(Way::Up, clock)?;
            self.deliver_due(Way::Down, clock)?;
            let [near, far] = &mut self.lines;
            let more =
                near.take_in(clock, &mut self.unread)? | far.take_in(clock, &mut self.unread)?;
            let timeout = if more { Some(Duration::ZERO) } else { self.until_next(clock) };
            let [asked, ..] = poll::wait(
                [
                    (&requests.bell, poll::READABLE),
                    (&self.lines[0].port, poll::READABLE),
                    (&self.lines[1].port, poll::READABLE),
                ],
                timeout,
            )?;
            if !more {
                // Asleep until now: what came meanwhile has woken us.
                let now = clock.now();
                self.lines.iter_mut().for_each(|line| line.unread_since = now);
            }
            if asked && !self.answer(requests, clock)? {
                return self.report();
            }
        }
    }

    /// Does what was asked. Returns false when it is to stop.
    fn answer(&mut self, requests: &Requests, clock: Clock) -> io::Result<bool> {
        if (&requests.bell).read(&mut [0; 64])? == 0 {
            return Ok(false);
        }
        // Who has asked may have gone meanwhile.
        for request in requests.queue.try_iter() {
            match request {
                Request::Report(answer) => {
                    let _ = answer.send(self.report());
                }
                Request::Become(spec, answer) => {
                    for (line, way) in self.lines.iter_mut().zip(Way::BOTH) {
                        let retiming = line.model.replace(clock.now(), &spec, way);
                        line.settle(&retiming);
                    }
                    let _ = answer.send(());
                }
            }
        }
        Ok(true)
    }

    /// Makes the changes of the path whose time has come.
    fn make_changes(&mut self, now: Nanos) {
        for line in &mut self.lines {
            while let Some(retiming) = line.model.make_change(now) {
                line.settle(&retiming);
            }
        }
    }

    /// Writes what has arrived to the other side's device. Segments that came as one and are due go on
    /// as one, as a receiving network card hands them over.
    fn deliver_due(&mut self, way: Way, clock: Clock) -> io::Result<()> {
        let [near, far] = &mut self.lines;
        let (line, port) = match way {
            Way::Up => (near, &far.port),
            Way::Down => (far, &near.port),
        };
        let mut now = clock.now();
        while let Some(group) = held::next_due(&mut line.held, now) {
            let (room, due) = (&*group.room, group.segments.clone());
            let written = match room.train {
                Some(train) if due.len() < room.times.len() => {
                    let length = train.cut(&room.bytes[..room.length], due.clone(), &mut self.part);
                    port.write_packet(&self.part[..length])
                }
                _ => port.write_packet(&room.bytes[..room.length]),
            };
            match written {
                Ok(()) if group.is_copy => {}
                Ok(()) => {
                    line.report.delivered += group.packets();
                    line.report.delivered_bytes += room.ip_bytes(due.clone());
                }
                Err(error) if is_drop(&error) => self.unasked += group.packets(),
                Err(error) => return Err(error),
            }
            for moments in &room.times[due] {
                self.lateness.saturating_record(now - moments.due);
            }
            line.delivered_at = now;
            line.spare.take_back(group.room);
            now = clock.now();
        }
        Ok(())
    }

    /// How long there is nothing to do but to wait for packets and requests.
    fn until_next(&self, clock: Clock) -> Option<Duration> {
        let due = self.lines.iter().filter_map(|line| {
            let due = line.held.front()?.due();
            // Where nothing takes time, neither does this: TCP's rate goes with the round trip.
            let apart = if line.model.is_immediate() { 0 } else { GROUPED_WITHIN };
            Some(due.max(line.delivered_at.saturating_add(apart)))
        });
        let changes = self.lines.iter().filter_map(|line| line.model.next_change());
        let next = due.chain(changes).min();
        next.map(|next| Duration::from_nanos(next.saturating_sub(clock.now())))
    }

    /// What was done so far.
    fn report(&mut self) -> io::Result<Report> {
        for line in &mut self.lines {
            self.unasked += line.port.drops()?;
        }
        let too_many: u64 = self.lines.iter().map(|line| line.too_many).sum();
        let [up, down] = self.lines.each_ref().map(|line| DirectionReport {
            in_flight: line.held.iter().map(Held::packets).sum(),
            queue_delay: Times::of(&line.queue_delay),
            ..line.report
        });
        Ok(Report {
            up,
            down,
            lateness: Times::of(&self.lateness),
            unread: Times::of(&self.unread),
            starved: process::thread_waiting_time(),
            device_drops: self.unasked + too_many,
            cpu: process::thread_cpu_time()?,
        })
    }
}

impl Line {
    /// Reads a batch of packets and decides about each. Returns whether there may be more.
    fn take_in(&mut self, clock: Clock, unread: &mut Histogram<u32>) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut room = self.spare.train();
            let length = match self.port.read_packet(&mut Arc::make_mut(&mut room).bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spare.take_back(room);
                    self.unread_since = clock.now();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let now = clock.now();
            unread.saturating_record(now.saturating_sub(self.unread_since));
            match Train::of(&room.bytes[..length]) {
                Some(train) => self.decide_train(now, train, room, length),
                None if length <= PACKET_ROOM => {
                    // Small ones do not each keep 64 KiB.
                    let small = self.spare.packet(&room.bytes[..length]);
                    self.spare.take_back(room);
                    self.decide(now, small);
                }
                None => {
                    Arc::make_mut(&mut room).length = length;
                    self.decide(now, room);
                }
            }
        }
        Ok(true)
    }

    /// Decides about one packet.
    fn decide(&mut self, now: Nanos, room: Arc<Room>) {
        let packet = &room.bytes[..room.length];
        let bytes = packet.len().saturating_sub(VNET_HEADER);
        let ecn_capable = packet::is_ecn_capable(packet);
        self.report.packets += 1;
        self.report.bytes += bytes as u64;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.model.offer(now, Packet { bytes, ecn_capable }) {
            Fate::Deliver(arrival) => {
                self.queue_delay.saturating_record(arrival.queued);
                self.deliver(&arrival, room);
            }
            fate => {
                self.count(fate);
                self.spare.take_back(room);
            }
        }
    }

    /// Decides about segments that came as one. Those that arrive in a row stay together, and go on
    /// together where they are due at once.
    fn decide_train(&mut self, now: Nanos, train: Train, mut room: Arc<Room>, length: usize) {
        let segments = train.segments();
        self.report.packets += segments as u64;
        self.report.bytes += train.ip_bytes(0..segments);
        let inner = Arc::make_mut(&mut room);
        (inner.length, inner.train) = (length, Some(train));
        inner.times.resize(segments, Moments::default());
        if self.model.takes_trains() {
            self.pass_train(now, inner);
        } else {
            self.decide_segments(now, train, inner);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.drain(..) {
            match piece {
                Piece::Run(segments) => {
                    self.hold(Held { room: Arc::clone(&room), segments, is_copy: false });
                }
                Piece::Alone(arrival, room) => self.deliver(&arrival, room),
            }
        }
        self.pieces = pieces;
        self.spare.take_back(room);
    }

    /// Where nothing but delay and independent loss happens: looks for the next loss alone.
    fn pass_train(&mut self, now: Nanos, room: &mut Room) {
        let segments = room.times.len();
        let mut start = 0;
        while start < segments {
            let left = u32::try_from(segments - start).unwrap_or(u32::MAX);
            let run = self.model.offer_train(now, left);
            let end = start + run.passed as usize;
            room.times[start..end].fill(Moments { sent: now, due: run.at });
            if start < end {
                self.pieces.push(Piece::Run(start..end));
            }
            self.report.lost += u64::from(end < segments);
            self.queue_delay.saturating_record_n(0, run.passed);
            start = end + 1;
        }
    }

    /// Asks the model about each. What is damaged goes on alone; what may overtake waits alone.
    fn decide_segments(&mut self, now: Nanos, train: Train, room: &mut Room) {
        let whole = &room.bytes[..room.length];
        let ecn_capable = packet::is_ecn_capable(whole);
        let together = self.model.keeps_order();
        for segment in 0..room.times.len() {
            let bytes = train.ip_bytes(segment..segment + 1);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let arrival = match self.model.offer(now, Packet { bytes, ecn_capable }) {
                Fate::Deliver(arrival) => arrival,
                fate => {
                    self.count(fate);
                    continue;
                }
            };
            self.queue_delay.saturating_record(arrival.queued);
            if !arrival.is_unharmed() {
                let part = self.spare.part(train, whole, segment);
                self.pieces.push(Piece::Alone(arrival, part));
                continue;
            }
            room.times[segment] = Moments { sent: arrival.sent, due: arrival.at };
            match self.pieces.last_mut() {
                Some(Piece::Run(run)) if together && run.end == segment => run.end += 1,
                _ => self.pieces.push(Piece::Run(segment..segment + 1)),
            }
        }
    }

    /// Sends a packet on its way as the model decided.
    fn deliver(&mut self, arrival: &Arrival, mut room: Arc<Room>) {
        let inner = Arc::make_mut(&mut room);
        inner.times.clear();
        inner.times.push(Moments { sent: arrival.sent, due: arrival.at });
        let packet = &mut inner.bytes[..inner.length];
        if arrival.marked {
            packet::mark(packet);
        }
        if let Some(place) = arrival.corrupted {
            packet::corrupt(packet, place);
        }
        self.report.marked += u64::from(arrival.marked);
        self.report.corrupted += u64::from(arrival.corrupted.is_some());
        self.report.duplicated += u64::from(arrival.duplicated);
        if arrival.duplicated {
            let room = Arc::clone(&room);
            self.hold(Held { room, segments: 0..1, is_copy: false });
        }
        self.hold(Held { room, segments: 0..1, is_copy: arrival.duplicated });
    }

    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Deliver(_) => {}
            Fate::Lost => self.report.lost += 1,
            Fate::Dropped => self.report.dropped += 1,
            Fate::Policed => self.report.policed += 1,
        }
    }

    fn hold(&mut self, held: Held) {
        if self.held.len() >= MOST_HELD {
            self.too_many += held.packets();
            self.spare.take_back(held.room);
        } else if self.held.back().is_none_or(|last| last.due() <= held.due()) {
            self.held.push_back(held);
        } else {
            // It overtakes: few do, and not far.
            let place = self.held.partition_point(|earlier| earlier.due() <= held.due());
            self.held.insert(place, held);
        }
    }

    /// The model has changed: packets that waited for a transmission get their new times.
    fn settle(&mut self, retiming: &Retiming) {
        let keeps_order = self.model.keeps_order();
        if !keeps_order {
            // What comes may arrive between the segments of a run.
            self.held = self.held.drain(..).flat_map(Held::into_singles).collect();
        }
        if retiming.is_empty() {
            return;
        }
        let mut last = 0;
        for held in &mut self.held {
            // A second copy, and other parts of the same room, have times of their own.
            let room = Arc::make_mut(&mut held.room);
            for moments in &mut room.times[held.segments.clone()] {
                let sent = retiming.of(moments.sent);
                let due = sent.saturating_add(moments.due.saturating_sub(moments.sent));
                *moments = Moments { sent, due: if keeps_order { due.max(last) } else { due } };
                last = last.max(due);
            }
        }
        self.held.make_contiguous().sort_by_key(Held::due);
        self.model.set_last_arrival(last);
    }
}

/// Nanoseconds up to a minute, to 1 %.
fn histogram() -> io::Result<Histogram<u32>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).map_err(io::Error::other)
}

/// The kernel took the packet and had no room for it (`ENOBUFS`, `ENOMEM`), or the device is going
/// down (`EIO`).
fn is_drop(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(5 | 12 | 105))
}

#[cfg(test)]
mod tests;
