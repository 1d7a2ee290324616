//! Carries packets between two TUN devices as the model says.

use std::collections::VecDeque;
use std::io::{self, PipeReader};
use std::time::Duration;

use hdrhistogram::Histogram;
use lastbyte_sys::tun::Tun;
use lastbyte_sys::{poll, process};

use crate::clock::{Clock, Nanos};
use crate::model::{Fate, Model};
use crate::report::{DirectionReport, Lateness, Report};

/// Room for a packet: more than the devices' MTU.
const PACKET_ROOM: usize = 2048;
/// Packets read from one device before the other has its turn.
const BATCH: usize = 64;
/// Packets on the way in one direction; more are dropped unasked, which voids the run. 2 GiB of
/// packets: 16 s of 1 Gbit/s.
const MOST_HELD: usize = 1 << 20;

/// A thread's worth of work: both directions of a link.
#[derive(Debug)]
pub(crate) struct Wire {
    lines: [Line; 2],
    lateness: Histogram<u32>,
    spare: Vec<Vec<u8>>,
    unasked: u64,
}

/// One direction: the device it reads from, and what is on the way. It writes to the other line's
/// device.
#[derive(Debug)]
struct Line {
    tun: Tun,
    model: Model,
    held: VecDeque<Held>,
    report: DirectionReport,
}

#[derive(Debug)]
struct Held {
    due: Nanos,
    packet: Vec<u8>,
}

impl Wire {
    /// A wire between the near and the far host's device.
    pub(crate) fn new((near, up): (Tun, Model), (far, down): (Tun, Model)) -> io::Result<Self> {
        let line = |tun, model| Line {
            tun,
            model,
            held: VecDeque::new(),
            report: DirectionReport::default(),
        };
        Ok(Self {
            lines: [line(near, up), line(far, down)],
            lateness: Histogram::new_with_bounds(1, 60_000_000_000, 2).map_err(io::Error::other)?,
            spare: Vec::new(),
            unasked: 0,
        })
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
            let more = self.take_in(0, clock)? | self.take_in(1, clock)?;
            let timeout = if more { Some(Duration::ZERO) } else { self.until_next_due(clock) };
            let [stopped, ..] = poll::wait(
                [
                    (stop, poll::READABLE),
                    (&self.lines[0].tun, poll::READABLE),
                    (&self.lines[1].tun, poll::READABLE),
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
            match self.lines[1 - from].tun.write_packet(&held.packet) {
                Ok(()) => self.lines[from].report.delivered += 1,
                Err(error) if is_drop(&error) => self.unasked += 1,
                Err(error) => return Err(error),
            }
            self.lateness.saturating_record(now - held.due);
            self.spare.push(held.packet);
            now = clock.now();
        }
        Ok(())
    }

    /// Reads a batch of packets and decides about each. Returns whether there may be more.
    fn take_in(&mut self, from: usize, clock: Clock) -> io::Result<bool> {
        let line = &mut self.lines[from];
        for _ in 0..BATCH {
            let mut packet = self.spare.pop().unwrap_or_default();
            packet.resize(PACKET_ROOM, 0);
            let bytes = match line.tun.read_packet(&mut packet) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spare.push(packet);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            packet.truncate(bytes);
            line.report.packets += 1;
            line.report.bytes += bytes as u64;
            let length = u32::try_from(bytes).unwrap_or(u32::MAX);
            match line.model.offer(clock.now(), length) {
                Fate::Deliver { .. } if line.held.len() >= MOST_HELD => {
                    self.unasked += 1;
                    self.spare.push(packet);
                }
                Fate::Deliver { at } => line.held.push_back(Held { due: at, packet }),
                Fate::Lost => {
                    line.report.lost += 1;
                    self.spare.push(packet);
                }
                Fate::Dropped => {
                    line.report.dropped += 1;
                    self.spare.push(packet);
                }
            }
        }
        Ok(true)
    }

    fn until_next_due(&self, clock: Clock) -> Option<Duration> {
        let next = self.lines.iter().filter_map(|line| line.held.front()).map(|held| held.due);
        next.min().map(|due| Duration::from_nanos(due.saturating_sub(clock.now())))
    }

    fn report(self) -> io::Result<Report> {
        let [up, down] = self
            .lines
            .map(|line| DirectionReport { in_flight: line.held.len() as u64, ..line.report });
        Ok(Report {
            up,
            down,
            lateness: Lateness::of(&self.lateness),
            device_drops: self.unasked,
            cpu: process::thread_cpu_time()?,
        })
    }
}

/// The kernel took the packet and had no room for it (`ENOBUFS`, `ENOMEM`), or the device is going
/// down (`EIO`).
fn is_drop(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(5 | 12 | 105))
}
