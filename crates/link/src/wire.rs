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
use crate::gso::GsoPacket;
use crate::in_flight::{
    self, BufferPool, GSO_BUFFER_BYTES, InFlight, PACKET_BUFFER_BYTES, PacketBuffer, Timestamps,
};
use crate::model::{Arrival, Fate, Model, Packet, Retiming};
use crate::packet;
use crate::port::Port;
use crate::report::{DirectionReport, Report, Times};
use crate::spec::{Spec, Way};

/// The least time between two deliveries in one direction: packets that arrive faster are delivered in
/// groups, as with the interrupts of a network card. A packet alone is not delayed.
const GROUPED_WITHIN: Nanos = 100_000;
/// Packets read from one device before the other one gets its turn.
const BATCH: usize = 16;
/// Packets in flight in one direction, a GSO packet counting as one; more are dropped unasked, which
/// voids the run. 1 s of 1 Gbit/s in packets of 1500 bytes.
const MOST_IN_FLIGHT: usize = 1 << 17;

/// Both directions of a link, carried by one thread.
#[derive(Debug)]
pub(crate) struct Wire {
    lines: [Line; 2],
    lateness: Histogram<u32>,
    unread: Histogram<u32>,
    unasked_drops: u64,
    /// Where those segments of a GSO packet are put together that are due before the rest of it.
    split: Box<[u8]>,
}

/// One direction: the device it reads from, and the packets in flight. It writes to the other line's
/// device.
#[derive(Debug)]
struct Line {
    port: Port,
    model: Model,
    /// Since when packets may be waiting in the device: it was empty before.
    unread_since: Nanos,
    in_flight: VecDeque<InFlight>,
    /// The time of the last delivery.
    delivered_at: Nanos,
    pool: BufferPool,
    report: DirectionReport,
    queue_delay: Histogram<u32>,
    /// Packets dropped because too many were in flight.
    overflowed: u64,
    /// What the model decided about the parts of a GSO packet; empty between two of these.
    pieces: Vec<Piece>,
}

/// A part of a GSO packet.
#[derive(Debug)]
enum Piece {
    /// Segments that arrive one after the other, as they were sent.
    Run(Range<usize>),
    /// A single segment that is marked, corrupted or duplicated.
    Alone(Arrival, Arc<PacketBuffer>),
}

/// A request to the thread that carries the packets.
#[derive(Debug)]
pub(crate) enum Request {
    /// For the report so far.
    Report(mpsc::Sender<io::Result<Report>>),
    /// To become another path, which began when this one did.
    Become(Box<Spec>, mpsc::Sender<()>),
}

/// Where a carrier gets its requests.
#[derive(Debug)]
pub(crate) struct Requests {
    /// A byte for each request; end of file stops the carrier.
    pub(crate) wakeup: PipeReader,
    pub(crate) queue: mpsc::Receiver<Request>,
}

impl Wire {
    /// The wire between the near and the far host's device.
    pub(crate) fn new((near, up): (Port, Model), (far, down): (Port, Model)) -> io::Result<Self> {
        let line = |port, model| -> io::Result<Line> {
            Ok(Line {
                port,
                model,
                unread_since: 0,
                in_flight: VecDeque::new(),
                delivered_at: 0,
                pool: BufferPool::default(),
                report: DirectionReport::default(),
                queue_delay: histogram()?,
                overflowed: 0,
                pieces: Vec::new(),
            })
        };
        Ok(Self {
            lines: [line(near, up)?, line(far, down)?],
            lateness: histogram()?,
            unread: histogram()?,
            unasked_drops: 0,
            split: vec![0; GSO_BUFFER_BYTES].into(),
        })
    }

    /// Carries packets until the writing end of `wakeup` is closed.
    pub(crate) fn carry(mut self, requests: &Requests) -> io::Result<Report> {
        process::exact_timers()?;
        // Without the privilege packets are later on a busy machine, as the report then shows.
        let _ = process::before_ordinary_threads();
        let clock = Clock::start();
        loop {
            self.make_changes(clock.now());
            self.deliver_due(Way::Up, clock)?;
            self.deliver_due(Way::Down, clock)?;
            let [near, far] = &mut self.lines;
            let more = near.read_batch(clock, &mut self.unread)?
                | far.read_batch(clock, &mut self.unread)?;
            let timeout = if more { Some(Duration::ZERO) } else { self.until_next(clock) };
            let [asked, ..] = poll::wait(
                [
                    (&requests.wakeup, poll::READABLE),
                    (&self.lines[0].port, poll::READABLE),
                    (&self.lines[1].port, poll::READABLE),
                ],
                timeout,
            )?;
            if !more {
                // The thread slept until now: a packet that arrived meanwhile would have woken it.
                let now = clock.now();
                self.lines.iter_mut().for_each(|line| line.unread_since = now);
            }
            if asked && !self.answer(requests, clock)? {
                return self.report();
            }
        }
    }

    /// Answers the requests. Returns false when the carrier is to stop.
    fn answer(&mut self, requests: &Requests, clock: Clock) -> io::Result<bool> {
        if (&requests.wakeup).read(&mut [0; 64])? == 0 {
            return Ok(false);
        }
        // Whoever asked may have gone meanwhile: a failed send is ignored.
        for request in requests.queue.try_iter() {
            match request {
                Request::Report(answer) => {
                    let _ = answer.send(self.report());
                }
                Request::Become(spec, answer) => {
                    for (line, way) in self.lines.iter_mut().zip(Way::BOTH) {
                        let retiming = line.model.replace(clock.now(), &spec, way);
                        line.apply_retiming(&retiming);
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
                line.apply_retiming(&retiming);
            }
        }
    }

    /// Writes what has arrived to the other side's device. Segments of one GSO packet that are due are
    /// written as one, as a network card with GRO delivers them.
    fn deliver_due(&mut self, way: Way, clock: Clock) -> io::Result<()> {
        let [near, far] = &mut self.lines;
        let (line, port) = match way {
            Way::Up => (near, &far.port),
            Way::Down => (far, &near.port),
        };
        let mut now = clock.now();
        while let Some(group) = in_flight::next_due(&mut line.in_flight, now) {
            let (buffer, due) = (&*group.buffer, group.segments.clone());
            let written = match buffer.gso {
                Some(gso) if due.len() < buffer.times.len() => {
                    let length =
                        gso.split(&buffer.bytes[..buffer.length], due.clone(), &mut self.split);
                    port.write_packet(&self.split[..length])
                }
                _ => port.write_packet(&buffer.bytes[..buffer.length]),
            };
            match written {
                Ok(()) if group.is_copy => {}
                Ok(()) => {
                    line.report.delivered += group.packets();
                    line.report.delivered_bytes += buffer.ip_bytes(due.clone());
                }
                Err(error) if is_drop(&error) => self.unasked_drops += group.packets(),
                Err(error) => return Err(error),
            }
            for moments in &buffer.times[due] {
                self.lateness.saturating_record(now - moments.due);
            }
            line.delivered_at = now;
            line.pool.recycle(group.buffer);
            now = clock.now();
        }
        Ok(())
    }

    /// How long to wait for packets and requests; `None` where nothing else is due.
    fn until_next(&self, clock: Clock) -> Option<Duration> {
        let due = self.lines.iter().filter_map(|line| {
            let due = line.in_flight.front()?.due();
            // Without a delay not even this: TCP's rate depends on the round trip.
            let apart = if line.model.is_immediate() { 0 } else { GROUPED_WITHIN };
            Some(due.max(line.delivered_at.saturating_add(apart)))
        });
        let changes = self.lines.iter().filter_map(|line| line.model.next_change());
        let next = due.chain(changes).min();
        next.map(|next| Duration::from_nanos(next.saturating_sub(clock.now())))
    }

    /// The report so far.
    fn report(&mut self) -> io::Result<Report> {
        for line in &mut self.lines {
            self.unasked_drops += line.port.drops()?;
        }
        let overflowed: u64 = self.lines.iter().map(|line| line.overflowed).sum();
        let [up, down] = self.lines.each_ref().map(|line| DirectionReport {
            in_flight: line.in_flight.iter().map(InFlight::packets).sum(),
            queue_delay: Times::of(&line.queue_delay),
            ..line.report
        });
        Ok(Report {
            up,
            down,
            lateness: Times::of(&self.lateness),
            unread: Times::of(&self.unread),
            starved: process::thread_waiting_time(),
            device_drops: self.unasked_drops + overflowed,
            cpu: process::thread_cpu_time()?,
        })
    }
}

impl Line {
    /// Reads a batch of packets and asks the model about each. Returns whether there may be more.
    fn read_batch(&mut self, clock: Clock, unread: &mut Histogram<u32>) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut buffer = self.pool.large();
            let length = match self.port.read_packet(&mut Arc::make_mut(&mut buffer).bytes) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pool.recycle(buffer);
                    self.unread_since = clock.now();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let now = clock.now();
            unread.saturating_record(now.saturating_sub(self.unread_since));
            match GsoPacket::of(&buffer.bytes[..length]) {
                Some(gso) => self.decide_gso(now, gso, buffer, length),
                None if length <= PACKET_BUFFER_BYTES => {
                    // So that small packets do not each hold 64 KiB.
                    let small = self.pool.packet(&buffer.bytes[..length]);
                    self.pool.recycle(buffer);
                    self.decide(now, small);
                }
                None => {
                    Arc::make_mut(&mut buffer).length = length;
                    self.decide(now, buffer);
                }
            }
        }
        Ok(true)
    }

    /// Asks the model about one packet.
    fn decide(&mut self, now: Nanos, buffer: Arc<PacketBuffer>) {
        let packet = &buffer.bytes[..buffer.length];
        let bytes = packet.len().saturating_sub(VNET_HEADER);
        let ecn_capable = packet::is_ecn_capable(packet);
        self.report.packets += 1;
        self.report.bytes += bytes as u64;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.model.offer(now, Packet { bytes, ecn_capable }) {
            Fate::Deliver(arrival) => {
                self.queue_delay.saturating_record(arrival.queued);
                self.deliver(&arrival, buffer);
            }
            fate => {
                self.count(fate);
                self.pool.recycle(buffer);
            }
        }
    }

    /// Asks the model about a GSO packet. Segments that arrive in a row stay together, and are delivered
    /// together where they are due at the same time.
    fn decide_gso(
        &mut self,
        now: Nanos,
        gso: GsoPacket,
        mut buffer: Arc<PacketBuffer>,
        length: usize,
    ) {
        let segments = gso.segments();
        self.report.packets += segments as u64;
        self.report.bytes += gso.ip_bytes(0..segments);
        let inner = Arc::make_mut(&mut buffer);
        (inner.length, inner.gso) = (length, Some(gso));
        inner.times.resize(segments, Timestamps::default());
        if self.model.takes_batches() {
            self.pass_batch(now, inner);
        } else {
            self.decide_segments(now, gso, inner);
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in pieces.drain(..) {
            match piece {
                Piece::Run(segments) => {
                    self.schedule(InFlight {
                        buffer: Arc::clone(&buffer),
                        segments,
                        is_copy: false,
                    });
                }
                Piece::Alone(arrival, buffer) => self.deliver(&arrival, buffer),
            }
        }
        self.pieces = pieces;
        self.pool.recycle(buffer);
    }

    /// Where nothing but delay and independent loss happens: asks for the next loss only.
    fn pass_batch(&mut self, now: Nanos, buffer: &mut PacketBuffer) {
        let segments = buffer.times.len();
        let mut start = 0;
        while start < segments {
            let left = u32::try_from(segments - start).unwrap_or(u32::MAX);
            let run = self.model.offer_batch(now, left);
            let end = start + run.passed as usize;
            buffer.times[start..end].fill(Timestamps { sent: now, due: run.at });
            if start < end {
                self.pieces.push(Piece::Run(start..end));
            }
            self.report.lost += u64::from(end < segments);
            self.queue_delay.saturating_record_n(0, run.passed);
            start = end + 1;
        }
    }

    /// Asks the model about each segment. One that is not delivered as it was sent is cut out; where
    /// order is not kept, each waits by itself.
    fn decide_segments(&mut self, now: Nanos, gso: GsoPacket, buffer: &mut PacketBuffer) {
        let whole = &buffer.bytes[..buffer.length];
        let ecn_capable = packet::is_ecn_capable(whole);
        let together = self.model.keeps_order();
        for segment in 0..buffer.times.len() {
            let bytes = gso.ip_bytes(segment..segment + 1);
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
                let part = self.pool.segment(gso, whole, segment);
                self.pieces.push(Piece::Alone(arrival, part));
                continue;
            }
            buffer.times[segment] = Timestamps { sent: arrival.sent, due: arrival.at };
            match self.pieces.last_mut() {
                Some(Piece::Run(run)) if together && run.end == segment => run.end += 1,
                _ => self.pieces.push(Piece::Run(segment..segment + 1)),
            }
        }
    }

    /// Puts a packet in flight as the model decided.
    fn deliver(&mut self, arrival: &Arrival, mut buffer: Arc<PacketBuffer>) {
        let inner = Arc::make_mut(&mut buffer);
        inner.times.clear();
        inner.times.push(Timestamps { sent: arrival.sent, due: arrival.at });
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
            let buffer = Arc::clone(&buffer);
            self.schedule(InFlight { buffer, segments: 0..1, is_copy: false });
        }
        self.schedule(InFlight { buffer, segments: 0..1, is_copy: arrival.duplicated });
    }

    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Deliver(_) => {}
            Fate::Lost => self.report.lost += 1,
            Fate::Dropped => self.report.dropped += 1,
            Fate::Policed => self.report.policed += 1,
        }
    }

    fn schedule(&mut self, in_flight: InFlight) {
        if self.in_flight.len() >= MOST_IN_FLIGHT {
            self.overflowed += in_flight.packets();
            self.pool.recycle(in_flight.buffer);
        } else if self.in_flight.back().is_none_or(|last| last.due() <= in_flight.due()) {
            self.in_flight.push_back(in_flight);
        } else {
            // It overtakes others: few packets do, and not by much.
            let place = self.in_flight.partition_point(|earlier| earlier.due() <= in_flight.due());
            self.in_flight.insert(place, in_flight);
        }
    }

    /// After a change of the model: packets that wait for their transmission get new times.
    fn apply_retiming(&mut self, retiming: &Retiming) {
        let keeps_order = self.model.keeps_order();
        if !keeps_order {
            // Later packets may arrive between the segments of a run.
            self.in_flight = self.in_flight.drain(..).flat_map(InFlight::into_singles).collect();
        }
        if retiming.is_empty() {
            return;
        }
        let mut last = 0;
        for in_flight in &mut self.in_flight {
            // A duplicate, and other parts of the same buffer, keep times of their own.
            let buffer = Arc::make_mut(&mut in_flight.buffer);
            for moments in &mut buffer.times[in_flight.segments.clone()] {
                let sent = retiming.of(moments.sent);
                let due = sent.saturating_add(moments.due.saturating_sub(moments.sent));
                *moments = Timestamps { sent, due: if keeps_order { due.max(last) } else { due } };
                last = last.max(due);
            }
        }
        self.in_flight.make_contiguous().sort_by_key(InFlight::due);
        self.model.set_last_arrival(last);
    }
}

/// Nanoseconds up to a minute, to 1 %.
fn histogram() -> io::Result<Histogram<u32>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).map_err(io::Error::other)
}

/// Whether the kernel took the packet and had no room for it (`ENOBUFS`, `ENOMEM`), or the device is
/// going down (`EIO`).
fn is_drop(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(5 | 12 | 105))
}

#[cfg(test)]
mod tests;
