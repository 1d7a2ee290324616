//! Drives a finish on the edges that tokio is registered for.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lastbyte_core::finish::Wake;
use lastbyte_sys::poll::{self, Ready};
use tokio::io::Interest;
use tokio::time;

use crate::address::Socket;
use crate::finish::{Finishing, Outcome};
use crate::watched::Registered;

/// Drives a finish to its end on the edges that tokio is registered for. `reads` means that no
/// other code reads from the socket, now or later.
pub(crate) async fn drive<S: Socket>(
    finishing: &mut Finishing<'_>,
    io: &Registered<S>,
    reads: bool,
) -> Outcome {
    let mut edges = Edges { io, reads, open: Some(Interest::READABLE | Interest::WRITABLE) };
    // One timer for all waits: moving it costs almost nothing.
    let mut timer = pin!(time::sleep_until(finishing.started().into()));
    loop {
        // The events cleared here came before the machine's next checks.
        edges.forget();
        let Some((until, wake)) = finishing.advance(io)? else {
            return finishing.outcome();
        };
        timer.as_mut().reset((finishing.started() + until).into());
        let woken = {
            let mut event = pin!(edges.next(wake));
            let first = poll_fn(|cx| match event.as_mut().poll(cx) {
                Poll::Pending => timer.as_mut().poll(cx).map(|()| Ok(Ready::default())),
                event => event,
            });
            first.await
        };
        finishing.on_wake(woken, edges.open.is_none())?;
    }
}

/// The edges of a descriptor, derived from the readiness that tokio stores.
struct Edges<'a, S: Socket> {
    io: &'a Registered<S>,
    reads: bool,
    /// The directions that are not closed as far as tokio knows.
    open: Option<Interest>,
}

impl<S: Socket> Edges<'_, S> {
    /// Clears tokio's readiness, so that the next event wakes this task. If other code reads, the
    /// read readiness is left to it: cleared here, it would not be set again.
    fn forget(&self) {
        self.io.clear(Interest::WRITABLE);
        if self.reads {
            self.io.clear(Interest::READABLE);
        }
    }

    /// Waits for the next edge, such as the acknowledgement of our FIN.
    ///
    /// If the peer's FIN is enough, the edge of our own half-close need not wake this task. tokio
    /// never clears a closed direction, and waiting for one would spin: it is reported once, then
    /// left out. With both closed, only the caller's timer is left.
    ///
    /// If other code reads, each event of a writable socket wakes a wait for writability, and then
    /// it is enough to ask the kernel.
    async fn next(&mut self, wake: Wake) -> io::Result<Ready> {
        let Some(open) = self.open else {
            return pending().await;
        };
        let interest = match wake {
            _ if !self.reads => Interest::WRITABLE,
            Wake::Level { .. } if open.is_readable() => Interest::READABLE,
            Wake::Level { .. } | Wake::Edge => open,
        };
        let ready = self.io.ready(interest).await?;
        if ready.is_write_closed() {
            self.open = self.open.and_then(|open| open.remove(Interest::WRITABLE));
            self.open = self.open.filter(|_| self.reads);
        }
        if ready.is_read_closed() {
            self.open = self.open.and_then(|open| open.remove(Interest::READABLE));
        }
        if !self.reads {
            return poll::wait_for(self.io, poll::READABLE | poll::PEER_END, Duration::ZERO);
        }
        let ended = ready.is_read_closed() || ready.is_write_closed();
        Ok(Ready { readable: ready.is_readable() || ended, ended, ..Ready::default() })
    }
}
