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

/// Takes a finishing to its end, on the edges that tokio is registered for. `reads` says that nobody
/// else will read from the socket, now or later.
pub(crate) async fn drive<S: Socket>(
    finishing: &mut Finishing<'_>,
    io: &Registered<S>,
    reads: bool,
) -> Outcome {
    let mut edges = Edges { io, reads, open: Some(Interest::READABLE | Interest::WRITABLE) };
    // One timer for all waits: to put it off costs next to nothing.
    let mut timer = pin!(time::sleep_until(finishing.started().into()));
    loop {
        // All that is forgotten here came before what the machine now asks.
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

/// The edges of a descriptor, out of what tokio remembers of them.
struct Edges<'a, S: Socket> {
    io: &'a Registered<S>,
    reads: bool,
    /// The directions that tokio has not seen closed.
    open: Option<Interest>,
}

impl<S: Socket> Edges<'_, S> {
    /// Forgets what tokio remembers, so that the next event wakes. Where others read, the readiness
    /// to read is theirs: cleared here, it would never come again.
    fn forget(&self) {
        self.io.clear(Interest::WRITABLE);
        if self.reads {
            self.io.clear(Interest::READABLE);
        }
    }

    /// Waits for the next edge, such as the acknowledgement of our FIN.
    ///
    /// Where the peer's answer is enough, the edge of our own half-close need not wake. A closed
    /// direction tokio never forgets, and waiting for it would spin: it is told once, then left out.
    /// With both closed there is nothing to wait for but the caller's timer.
    ///
    /// Where others read, every event of a socket that can be written to wakes a wait for that, and
    /// it is enough to ask the kernel then.
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
