//! Drives [`lastbyte_core::finish`] over a blocking descriptor.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lastbyte_core::Receipt;
use lastbyte_core::finish::{Action, Drained, Finish, FinishOptions, Unproven};
use lastbyte_sys::poll::Edges;
use lastbyte_sys::{socket, tcp};

use crate::book::{self, Book};
use crate::error::FinishError;

/// Finishes the connection behind `fd`, which stays open.
pub(crate) fn drive(
    fd: &impl AsFd,
    book: &Book,
    options: FinishOptions,
) -> Result<Receipt, FinishError> {
    let started = Instant::now();
    let mut machine = Finish::new(book.facts(), options, Duration::ZERO);
    let mut edges = None;
    loop {
        let done = match machine.next() {
            Action::Done => break,
            Action::Wait { until } => {
                let timeout = until.saturating_sub(started.elapsed());
                let woken = wait(fd, &mut edges, timeout);
                woken.map(|readable| machine.on_wake(started.elapsed(), readable))
            }
            action => step(&mut machine, action, fd),
        };
        if let Err(error) = done {
            return Err(failure(
                book,
                (Unproven::Unknowable, machine.receipt(started.elapsed())),
                Some(error),
            ));
        }
    }
    machine.outcome(started.elapsed()).map_err(|outcome| failure(book, outcome, None))
}

/// Does the one system call that the machine asks for, other than waiting, and tells the result.
pub(crate) fn step(machine: &mut Finish, action: Action, fd: &impl AsFd) -> io::Result<()> {
    match action {
        Action::Inspect => machine.on_info(&book::info(fd)?),
        Action::HalfClose => match socket::shutdown_write(fd) {
            Ok(()) => machine.on_half_close(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                machine.on_half_close(false);
            }
            Err(error) => return Err(error),
        },
        Action::CountUnacked => machine.on_unacked(tcp::unacked(fd)?),
        Action::CountUnsent => machine.on_unsent(tcp::unsent(fd)?),
        Action::Drain { limit } => machine.on_drained(drain(fd, limit)),
        Action::Wait { .. } | Action::Done => {}
    }
    Ok(())
}

pub(crate) fn failure(
    book: &Book,
    (why, receipt): (Unproven, Receipt),
    source: Option<io::Error>,
) -> FinishError {
    FinishError { why, receipt, local: book.local, peer: book.peer, source }
}

fn drain(fd: &impl AsFd, limit: u64) -> Drained {
    match socket::discard(fd, usize::try_from(limit).unwrap_or(usize::MAX).min(1 << 30)) {
        Ok(0) => Drained::End,
        Ok(bytes) => Drained::Bytes(bytes as u64),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Drained::Nothing,
        Err(_) => Drained::Failed,
    }
}

/// Waits for an edge; the registration is made at the first wait, and reports what is ready then.
fn wait(fd: &impl AsFd, edges: &mut Option<Edges>, timeout: Duration) -> io::Result<bool> {
    let edges = match edges {
        Some(edges) => edges,
        None => edges.insert(Edges::of(fd)?),
    };
    Ok(edges.wait(timeout)?.is_some_and(|edge| edge.readable))
}
