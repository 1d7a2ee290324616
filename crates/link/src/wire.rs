//! Carries packets between two hosts' devices as the model says.

use std::collections::VecDeque;
use std::io::{self, PipeReader};
use std::time::Duration;

use hdrhistogram::Histogram;
use lastbyte_sys::tun::VNET_HEADER;
use lastbyte_sys::{poll, process};

use crate::clock::{Clock, Nanos};
use crate::model::{Arrival, Fate, Model, Packet};
use crate::packet;
use crate::port::Port;
use crate::report::{DirectionReport, Report, Times};
use crate::train::Train;

/// Room for a packet of the devices' MTU, and for one that the kernel has not cut.
const PACKET_ROOM: usize = 2048;
const TRAIN_ROOM: usize = VNET_HEADER + 65_536;
/// Packets read from one device before the other has its turn.
const BATCH: usize = 64;
/// Packets on the way in one direction, uncut ones counting as one; more are dropped unasked, which
/// voids the run. 1 s of 1 Gbit/s in packets of 1500 bytes.
const MOST_HELD: usize = 1 << 17;

/// A thread's worth of work: both directions of a link.
#[derive(Debug)]
pub(crate) struct Wire {
    lines: [Line; 2],
    lateness: Histogram<u32>,
    unasked: u64,
}

/// One direction: the device it reads from, and what is on the way. It writes to the other line's
/// device.
#[derive(Debug)]
struct Line {
    port: Port,
    model: Model,
    held: VecDeque<Held>,
    /// Buffers of packets that are gone: none is allocated while packets come as fast as they go.
    spare: Vec<Box<[u8]>>,
    report: DirectionReport,
    queue_delay: Histogram<u32>,
    /// Packets dropped because too many were on the way.
    too_many: u64,
}

/// A packet on the way, with its vnet header: the first `length` bytes of the buffer.
#[derive(Debug)]
struct Held {
    due: Nanos,
    /// How many packets of the sending host it is: 0 for a second copy.
    packets: u32,
    length: usize,
    buffer: Box<[u8]>,
}

impl Wire {
    /// A wire between the near and the far host's device.
    pub(crate) fn new((near, up): (Port, Model), (far, down): (Port, Model)) -> io::Result<Self> {
        let line = |port, model| -> io::Result<Line> {
            Ok(Line {
                port,
                model,
                held: VecDeque::new(),
                spare: Vec::new(),
                report: DirectionReport::default(),
                queue_delay: histogram()?,
                too_many: 0,
            })
        };
        Ok(Self { lines: [line(near, up)?, line(far, down)?], lateness: histogram()?, unasked: 0 })
    }

    /// Carries packets until the writing end of `stop` is closed.
    pub(crate) fn carry(mut self, stop: &PipeReader) -> io::Result<Report> {
        process::exact_timers()?;
        // Without the right to it packets are later on a busy machine; the report will tell.
        let _ = process::before_ordinary_threads();
        let clock = Clock::start();
        loop {
            self.deliver_due(0, clock)?;
            self.deliver_due(1, clock)?;
            let more = self.lines[0].take_in(clock)? | self.lines[1].take_in(clock)?;
            let timeout = if more { Some(Duration::ZERO) } else { self.until_next_due(clock) };
            let [stopped, ..] = poll::wait(
                [
                    (stop, poll::READABLE),
                    (&self.lines[0].port, poll::READABLE),
                    (&self.lines[1].port, poll::READABLE),
                ],
                timeout,
            )?;
            if stopped {
                return self.report();
            }
        }
    }

    /// Writes what has arrived to the other side's device.
    fn deliver_due(&mut self, from: usize, clock: Clock) -> io::Result<()> {
        let mut now = clock.now();
        while self.lines[from].held.front().is_some_and(|held| held.due <= now) {
            let Some(held) = self.lines[from].held.pop_front() else { break };
            match self.lines[1 - from].port.write_packet(&held.buffer[..held.length]) {
                Ok(()) => self.lines[from].report.delivered += u64::from(held.packets),
                Err(error) if is_drop(&error) => self.unasked += u64::from(held.packets),
                Err(error) => return Err(error),
            }
            self.lateness.saturating_record(now - held.due);
            self.lines[from].spare.push(held.buffer);
            now = clock.now();
        }
        Ok(())
    }

    fn until_next_due(&self, clock: Clock) -> Option<Duration> {
        let next = self.lines.iter().filter_map(|line| line.held.front()).map(|held| held.due);
        next.min().map(|due| Duration::from_nanos(due.saturating_sub(clock.now())))
    }

    fn report(mut self) -> io::Result<Report> {
        let at_ports = self.lines[0].port.drops()? + self.lines[1].port.drops()?;
        let too_many: u64 = self.lines.iter().map(|line| line.too_many).sum();
        let [up, down] = self.lines.map(|line| DirectionReport {
            in_flight: line.held.iter().map(|held| u64::from(held.packets)).sum(),
            queue_delay: Times::of(&line.queue_delay),
            ..line.report
        });
        Ok(Report {
            up,
            down,
            lateness: Times::of(&self.lateness),
            device_drops: self.unasked + too_many + at_ports,
            cpu: process::thread_cpu_time()?,
        })
    }
}

impl Line {
    /// Reads a batch of packets and decides about each. Returns whether there may be more.
    fn take_in(&mut self, clock: Clock) -> io::Result<bool> {
        for _ in 0..BATCH {
            let mut buffer = self.buffer();
            let length = match self.port.read_packet(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spare.push(buffer);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let now = clock.now();
            match Train::of(&buffer[..length]) {
                Some(train) => self.decide_train(now, train, buffer, length),
                None => self.decide(now, buffer, length),
            }
        }
        Ok(true)
    }

    /// Decides about one packet.
    fn decide(&mut self, now: Nanos, mut buffer: Box<[u8]>, length: usize) {
        let bytes = length.saturating_sub(VNET_HEADER);
        self.report.packets += 1;
        self.report.bytes += bytes as u64;
        let fate = self.model.offer(
            now,
            Packet {
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                ecn_capable: packet::is_ecn_capable(&buffer[..length]),
            },
        );
        let count = match fate {
            Fate::Deliver(arrival) => {
                self.change(&arrival, &mut buffer[..length]);
                if arrival.duplicated {
                    let mut copy = self.buffer();
                    copy[..length].copy_from_slice(&buffer[..length]);
                    self.hold(Held { due: arrival.at, packets: 1, length, buffer });
                    self.hold(Held { due: arrival.at, packets: 0, length, buffer: copy });
                } else {
                    self.hold(Held { due: arrival.at, packets: 1, length, buffer });
                }
                return;
            }
            Fate::Lost => &mut self.report.lost,
            Fate::Dropped => &mut self.report.dropped,
            Fate::Policed => &mut self.report.policed,
        };
        *count += 1;
        self.spare.push(buffer);
    }

    /// Does to a packet what the model decided, and counts it.
    fn change(&mut self, arrival: &Arrival, packet: &mut [u8]) {
        self.queue_delay.saturating_record(arrival.queued);
        if arrival.marked {
            packet::mark(packet);
        }
        if let Some(place) = arrival.corrupted {
            packet::corrupt(packet, place);
        }
        self.report.marked += u64::from(arrival.marked);
        self.report.corrupted += u64::from(arrival.corrupted.is_some());
        self.report.duplicated += u64::from(arrival.duplicated);
    }

    /// Decides about segments that came as one. Whole they stay unless one of them is lost: then
    /// those before and those behind it go on as two.
    fn decide_train(&mut self, now: Nanos, train: Train, buffer: Box<[u8]>, length: usize) {
        let segments = train.segments();
        self.report.packets += u64::from(segments);
        self.report.bytes += train.ip_bytes();
        let mut run = self.model.offer_train(now, segments);
        if run.passed == segments {
            self.hold(Held { due: run.at, packets: segments, length, buffer });
            return;
        }
        let mut next = 0;
        loop {
            if run.passed > 0 {
                let mut part = self.buffer();
                let length = train.cut(&buffer, next..next + run.passed, &mut part);
                self.hold(Held { due: run.at, packets: run.passed, length, buffer: part });
            }
            next += run.passed;
            if next == segments {
                break;
            }
            self.report.lost += 1;
            next += 1;
            if next == segments {
                break;
            }
            run = self.model.offer_train(now, segments - next);
        }
        self.spare.push(buffer);
    }

    fn hold(&mut self, held: Held) {
        if self.held.len() >= MOST_HELD {
            self.too_many += u64::from(held.packets);
            self.spare.push(held.buffer);
        } else if self.held.back().is_none_or(|last| last.due <= held.due) {
            self.held.push_back(held);
        } else {
            // It overtakes: few do, and not far.
            let place = self.held.partition_point(|earlier| earlier.due <= held.due);
            self.held.insert(place, held);
        }
    }

    fn buffer(&mut self) -> Box<[u8]> {
        let room = if self.model.takes_trains() { TRAIN_ROOM } else { PACKET_ROOM };
        self.spare.pop().unwrap_or_else(|| vec![0; room].into_boxed_slice())
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
