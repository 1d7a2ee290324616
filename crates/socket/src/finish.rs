//! Drives [`lastbyte_core::finish`] over a blocking descriptor.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lastbyte_core::finish::{
    Action, Drain, Drained, Facts, Finish, FinishOptions, Unproven, Wake, Woken,
};
use lastbyte_core::{Delivery, End, Kind, PeerEnd, Receipt, Report};
use lastbyte_sys::poll::{self, Edges, Ready};
use lastbyte_sys::{socket, tcp};

use crate::address::Endpoints;
use crate::error::{FinishError, Operation};
use crate::shared::{self, ReadSide, WriteSide};

/// How much to read at a time if the kernel cannot discard it.
const SCRATCH_BYTES: usize = 4 << 10;

/// A finish in progress: the machine, and when it began.
pub(crate) struct Finishing<'a> {
    machine: Finish,
    kind: Kind,
    started: Instant,
    operation: Operation,
    /// Receives what is read; without it, that is discarded.
    rest: Option<Rest<'a>>,
    /// Where a concurrent reader learns of a reset: over a Unix socket the kernel reports it once.
    report: Option<&'a Report>,
}

/// Receives what the peer still sends.
pub(crate) type Rest<'a> = &'a mut (dyn FnMut(&[u8]) + Send);

/// The result of a finish, without the addresses of the connection.
pub(crate) type Outcome = Result<Receipt, Failure>;

/// Why it failed, what was proven nevertheless, and the kernel's error.
pub(crate) type Failure = (Unproven, Receipt, Option<io::Error>);

impl<'a> Finishing<'a> {
    pub(crate) fn finish(facts: Facts, options: FinishOptions) -> Self {
        let machine = Finish::new(facts, options, Duration::ZERO);
        let (kind, started) = (facts.kind, Instant::now());
        Self { machine, kind, started, operation: Operation::Finish, rest: None, report: None }
    }

    pub(crate) fn abort(facts: Facts, deadline: Duration) -> Self {
        Self::abort_with(facts, FinishOptions::default().within(deadline))
    }

    pub(crate) fn abort_with(facts: Facts, options: FinishOptions) -> Self {
        let machine = Finish::abort_with(facts, options, Duration::ZERO);
        let (kind, started) = (facts.kind, Instant::now());
        Self { machine, kind, started, operation: Operation::Abort, rest: None, report: None }
    }

    /// Passes what is read to `rest`.
    pub(crate) fn passing_to(self, rest: Rest<'a>) -> Self {
        Self { rest: Some(rest), ..self }
    }

    /// Records in `report` what the kernel reports, for concurrent and later reads.
    pub(crate) fn reporting_to(self, report: &'a Report) -> Self {
        Self { report: Some(report), ..self }
    }

    /// Drives it to its end, waiting with `poll` and, where that is not enough, on edges.
    pub(crate) fn drive(&mut self, fd: &impl AsFd) -> Outcome {
        self.drive_while(fd, Duration::MAX, || true)
    }

    /// As [`Finishing::drive`], and calls `keep_going` whenever `slice` has passed.
    pub(crate) fn drive_while(
        &mut self,
        fd: &impl AsFd,
        slice: Duration,
        mut keep_going: impl FnMut() -> bool,
    ) -> Outcome {
        let mut edges = None;
        let mut asked = Duration::ZERO;
        while let Some((until, wake)) = self.advance(fd)? {
            // The end of a slice is no event for the machine: it goes on waiting.
            let woken = loop {
                let timeout = until.saturating_sub(self.started.elapsed()).min(slice);
                let woken = wait(fd, wake, &mut edges, timeout);
                let now = self.started.elapsed();
                if now.saturating_sub(asked) >= slice {
                    if !keep_going() {
                        return Err((Unproven::Stopped, self.machine.receipt(now), None));
                    }
                    asked = self.started.elapsed();
                }
                let nothing = woken.as_ref().is_ok_and(|ready| *ready == Ready::default());
                if !nothing || self.started.elapsed() >= until {
                    break woken;
                }
            };
            self.on_wake(woken, false)?;
        }
        self.outcome()
    }

    /// Makes the machine's system calls, up to its next wait; `None` when it is done.
    pub(crate) fn advance(&mut self, fd: &impl AsFd) -> Result<Option<(Duration, Wake)>, Failure> {
        loop {
            match self.machine.next() {
                Action::Done => return Ok(None),
                Action::Wait { until, wake } => return Ok(Some((until, wake))),
                action => self.step(action, fd).map_err(|error| self.refused(error))?,
            }
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn on_wake(&mut self, woken: io::Result<Ready>, blind: bool) -> Result<(), Failure> {
        let ready = woken.map_err(|error| self.refused(error))?;
        let woken = Woken { readable: ready.readable, ended: ready.ended, blind };
        self.machine.on_wake(self.started.elapsed(), woken);
        Ok(())
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let outcome = self.machine.outcome(self.started.elapsed());
        outcome.map_err(|(why, receipt)| (why, receipt, None))
    }

    /// Records in the stream's state what the finish learned.
    pub(crate) fn record(
        &self,
        receipt: &Receipt,
        reading: &mut ReadSide,
        writing: &mut WriteSide,
    ) {
        reading.read += receipt.drained;
        reading.observed_end = match receipt.peer {
            // Only an end that was read counts: one behind unread bytes has not been reached yet.
            PeerEnd::Reset => Some(End::Reset),
            _ => reading.observed_end,
        };
        writing.half_closed |= self.machine.fin_queued();
    }

    /// Makes the one system call that the machine asks for, and reports the result.
    fn step(&mut self, action: Action, fd: &impl AsFd) -> io::Result<()> {
        let machine = &mut self.machine;
        match action {
            Action::Inspect => machine.on_info(&shared::info(fd)?),
            Action::LookForEnd => {
                let ready = poll::wait_for(fd, poll::PEER_END, Duration::ZERO)?;
                machine.on_look(ready.ended);
            }
            Action::HalfClose => match socket::shutdown_write(fd) {
                Ok(()) => machine.on_half_close(true),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    machine.on_half_close(false);
                }
                Err(error) => return Err(error),
            },
            Action::CountUnacked => machine.on_unacked(tcp::unacked(fd)?),
            Action::CountUnsent => machine.on_unsent(tcp::unsent(fd)?),
            Action::CountUnread => machine.on_unread(tcp::unread(fd)?),
            Action::TakeError => machine.on_error(take_error(fd, self.report)?),
            Action::Drain { limit } => {
                machine.on_drained(drain(self.kind, fd, limit, &mut self.rest));
            }
            Action::Wait { .. } | Action::Done => {}
        }
        Ok(())
    }

    fn refused(&self, error: io::Error) -> Failure {
        let receipt = self.machine.receipt(self.started.elapsed());
        (Unproven::Refused, receipt, Some(error))
    }

    /// Adds the addresses of the connection to an error.
    pub(crate) fn with_endpoints(
        &self,
        outcome: Outcome,
        endpoints: impl FnOnce() -> Endpoints,
    ) -> Finished {
        outcome.map_err(|(why, receipt, source)| {
            let endpoints = Box::new(endpoints());
            FinishError { operation: self.operation, why, receipt, endpoints, source }
        })
    }
}

pub(crate) type Finished = Result<Receipt, FinishError>;

/// The receipt of a success or a failure.
pub(crate) fn receipt_of(finished: &Finished) -> &Receipt {
    match finished {
        Ok(receipt) => receipt,
        Err(error) => &error.receipt,
    }
}

/// The part of the options that the writing half alone can fulfil.
pub(crate) fn of_one_direction(options: FinishOptions) -> FinishOptions {
    options.want(options.want.min(Delivery::Acked)).drain(Drain::Keep)
}

/// Takes the pending error, and returns whether there was one.
fn take_error(fd: &impl AsFd, report: Option<&Report>) -> io::Result<bool> {
    let Some(report) = report else {
        return Ok(socket::take_error(fd)?.is_some());
    };
    let taken = report.during(|| match socket::take_error(fd) {
        Ok(Some(error)) => Err(error),
        Ok(None) => Ok(Ok(false)),
        Err(refused) => Ok(Err(refused)),
    });
    taken.unwrap_or(Ok(true))
}

fn drain(kind: Kind, fd: &impl AsFd, limit: u64, rest: &mut Option<Rest<'_>>) -> Drained {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(1 << 30);
    let result = if kind == Kind::Tcp && rest.is_none() {
        socket::discard(fd, limit)
    } else {
        let mut scratch = [0; SCRATCH_BYTES];
        let read = socket::receive_now(fd, &mut scratch[..limit.min(SCRATCH_BYTES)]);
        if let (Ok(bytes @ 1..), Some(rest)) = (&read, rest) {
            rest(&scratch[..*bytes]);
        }
        read
    };
    match result {
        Ok(0) => Drained::End,
        Ok(bytes) => Drained::Bytes(bytes as u64),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Drained::Nothing,
        // Nothing was read; the next wake-up tries again.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Drained::Nothing,
        Err(_) => Drained::Failed,
    }
}

fn wait(
    fd: &impl AsFd,
    wake: Wake,
    edges: &mut Option<Edges>,
    timeout: Duration,
) -> io::Result<Ready> {
    match wake {
        Wake::Level { data } => {
            let wanted = if data { poll::READABLE } else { 0 } | poll::PEER_END;
            poll::wait_for(fd, wanted, timeout)
        }
        Wake::Edge => wait_for_edge(fd, edges, timeout),
    }
}

/// Waits for an edge. The first wait registers the descriptor, which reports what is ready then.
fn wait_for_edge(
    fd: &impl AsFd,
    edges: &mut Option<Edges>,
    timeout: Duration,
) -> io::Result<Ready> {
    let edges = match edges {
        Some(edges) => edges,
        None => edges.insert(Edges::of(fd)?),
    };
    Ok(edges.wait(timeout)?.unwrap_or_default())
}

/// Makes the following close reset the connection.
pub(crate) fn reset(fd: &impl AsFd, aborted: Finished) -> Finished {
    let Err(error) = socket::set_linger(fd, Some(Duration::ZERO)) else {
        return aborted;
    };
    let (endpoints, receipt) = match aborted {
        Ok(receipt) => (Box::default(), receipt),
        Err(FinishError { endpoints, receipt, .. }) => (endpoints, receipt),
    };
    let (operation, why) = (Operation::Abort, Unproven::Refused);
    Err(FinishError { operation, why, receipt, endpoints, source: Some(error) })
}
