//! io_uring: one thread, one ring that runs its work only when it is waited for.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode};

use crate::spec::{Kind, Spec};
use crate::sys::{self, Counters, add};

pub fn run(spec: &Spec, listener: &TcpListener, counters: &'static Counters) -> io::Result<()> {
    let mut relay = Relay {
        spec: spec.clone(),
        counters,
        ring: IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_cqsize(4096)
            .build(1024)?,
        directions: Vec::new(),
        buffers: None,
    };
    if spec.kind == Kind::UringRing {
        relay.buffers = Some(Buffers::new(&relay.ring, spec.buffer)?);
    }
    relay.listen(listener)?;
    let mut completions = Vec::new();
    loop {
        add(&counters.waits, 1);
        relay.ring.submit_and_wait(1)?;
        completions.extend(
            relay.ring.completion().map(|one| (one.user_data(), one.result(), one.flags())),
        );
        for (token, result, flags) in completions.drain(..) {
            if token == LISTENER {
                relay.accept(listener)?;
                relay.listen(listener)?;
            } else {
                let index = usize::try_from(token >> 8).map_err(io::Error::other)?;
                relay.completed(index, token & 0xff, result, flags)?;
            }
        }
    }
}

const LISTENER: u64 = u64::MAX;

/// The low byte of a token.
const READ: u64 = 0;
const WRITE: u64 = 1;
const POLLED: u64 = 2;

struct Relay {
    spec: Spec,
    counters: &'static Counters,
    ring: IoUring,
    directions: Vec<Direction>,
    buffers: Option<Buffers>,
}

struct Direction {
    from: RawFd,
    to: RawFd,
    /// What was read and not written: in the buffer, in the pipe.
    held: usize,
    start: usize,
    buffer: Box<[u8]>,
    pipe: Option<(RawFd, RawFd)>,
    /// SEND_ZC may still read the buffer.
    lent: usize,
    /// Of the ring: buffers received and not sent.
    queue: VecDeque<Piece>,
    sending: bool,
    armed: bool,
    ended: bool,
    message: Box<Message>,
}

struct Piece {
    id: u16,
    start: usize,
    len: usize,
}

/// What SENDMSG points to while it runs.
struct Message {
    header: libc::msghdr,
    parts: [libc::iovec; 16],
}

impl Relay {
    fn listen(&mut self, listener: &TcpListener) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(listener.as_raw_fd()), POLLIN).build();
        self.push(&[entry.user_data(LISTENER)])
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        let (near, _) = listener.accept()?;
        let near = sys::released(near);
        sys::prepare(near)?;
        let far = sys::released(sys::connect(self.spec.to)?);
        for (from, to) in [(near, far), (far, near)] {
            let mut direction = Direction::new(from, to);
            match self.spec.kind {
                Kind::UringSplice => {
                    // The workers of io_uring would wait, one for each idle direction.
                    sys::set_nonblocking(from)?;
                    direction.pipe = Some(sys::pipe(self.spec.pipe)?);
                }
                Kind::UringRing => {}
                _ => direction.buffer = vec![0; self.spec.buffer].into_boxed_slice(),
            }
            self.directions.push(direction);
            self.read(self.directions.len() - 1)?;
        }
        Ok(())
    }

    fn completed(&mut self, index: usize, what: u64, result: i32, flags: u32) -> io::Result<()> {
        match (self.spec.kind, what) {
            (_, POLLED) => Ok(()),
            (Kind::UringRing, READ) => self.ring_received(index, result, flags),
            (Kind::UringRing, _) => self.ring_sent(index, result),
            (Kind::UringSplice, READ) => {
                self.spliced_in(index, result);
                Ok(())
            }
            (Kind::UringSplice, _) => self.spliced_out(index, result),
            (_, READ) => self.received(index, result),
            (_, _) => self.sent(index, result, flags),
        }
    }

    fn read(&mut self, index: usize) -> io::Result<()> {
        let direction = &mut self.directions[index];
        let token = (index as u64) << 8;
        let from = Fd(direction.from);
        match self.spec.kind {
            Kind::UringRing => {
                direction.armed = true;
                let entry = if self.spec.bundle {
                    opcode::RecvMultiBundle::new(from, 0).build()
                } else {
                    opcode::RecvMulti::new(from, 0).build()
                };
                self.push(&[entry.user_data(token | READ)])
            }
            Kind::UringSplice => {
                let Some((out, into)) = direction.pipe else { return Ok(()) };
                let to = Fd(direction.to);
                let len = u32::try_from(self.spec.len).unwrap_or(u32::MAX);
                // Hard links: a splice that came short breaks a soft one.
                self.push(&[
                    opcode::PollAdd::new(from, POLLIN)
                        .build()
                        .user_data(token | POLLED)
                        .flags(Flags::IO_HARDLINK),
                    opcode::Splice::new(from, -1, Fd(into), -1, len)
                        .flags(libc::SPLICE_F_NONBLOCK)
                        .build()
                        .user_data(token | READ)
                        .flags(Flags::IO_HARDLINK),
                    opcode::Splice::new(Fd(out), -1, to, -1, len)
                        .flags(libc::SPLICE_F_NONBLOCK)
                        .build()
                        .user_data(token | WRITE),
                ])
            }
            _ => {
                let buffer = &mut direction.buffer;
                let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
                let entry = opcode::Recv::new(from, buffer.as_mut_ptr(), len)
                    .ioprio(if self.spec.poll_first { POLL_FIRST } else { 0 })
                    .build();
                self.push(&[entry.user_data(token | READ)])
            }
        }
    }

    // --- RECV, SEND and SEND_ZC -------------------------------------------------------------------

    fn received(&mut self, index: usize, result: i32) -> io::Result<()> {
        add(&self.counters.reads, 1);
        let direction = &mut self.directions[index];
        match usize::try_from(result) {
            Ok(count) if count > 0 => {
                direction.start = 0;
                direction.held = count;
                self.send(index)
            }
            _ => {
                sys::shutdown_write(direction.to);
                Ok(())
            }
        }
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        let direction = &mut self.directions[index];
        let token = (index as u64) << 8 | WRITE;
        let to = Fd(direction.to);
        let bytes = &direction.buffer[direction.start..direction.start + direction.held];
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = if self.spec.kind == Kind::UringZeroCopy {
            opcode::SendZc::new(to, bytes.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build()
        } else {
            opcode::Send::new(to, bytes.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build()
        };
        self.push(&[entry.user_data(token)])
    }

    fn sent(&mut self, index: usize, result: i32, flags: u32) -> io::Result<()> {
        let direction = &mut self.directions[index];
        if cqueue::notif(flags) {
            direction.lent -= 1;
        } else {
            add(&self.counters.writes, 1);
            if cqueue::more(flags) {
                direction.lent += 1;
            }
            let Ok(count) = usize::try_from(result) else { return Ok(()) };
            add(&self.counters.bytes, count as u64);
            direction.held -= count;
            direction.start += count;
            if direction.held > 0 {
                return self.send(index);
            }
        }
        if direction.lent == 0 && direction.held == 0 { self.read(index) } else { Ok(()) }
    }

    // --- Multishot RECV and SENDMSG ---------------------------------------------------------------

    fn ring_received(&mut self, index: usize, result: i32, flags: u32) -> io::Result<()> {
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        let direction = &mut self.directions[index];
        if !cqueue::more(flags) {
            direction.armed = false;
        }
        match usize::try_from(result) {
            Ok(0) => direction.ended = true,
            Ok(count) => {
                add(&self.counters.reads, 1);
                let Some(first) = cqueue::buffer_select(flags) else { return Ok(()) };
                buffers.take(first, count, &mut direction.queue);
                if !direction.armed {
                    self.read(index)?;
                }
            }
            // All buffers are in use; what is sent gives back some.
            Err(_) if result == -libc::ENOBUFS => add(&self.counters.blocked, 1),
            Err(_) => direction.ended = true,
        }
        self.ring_send(index)
    }

    fn ring_send(&mut self, index: usize) -> io::Result<()> {
        let Some(buffers) = &self.buffers else { return Ok(()) };
        let direction = &mut self.directions[index];
        if direction.sending {
            return Ok(());
        }
        if direction.queue.is_empty() {
            if direction.ended {
                sys::shutdown_write(direction.to);
            } else if !direction.armed {
                return self.read(index);
            }
            return Ok(());
        }
        let message = &mut *direction.message;
        let mut count = 0;
        for (part, piece) in message.parts.iter_mut().zip(&direction.queue) {
            part.iov_base = buffers.at(piece).cast();
            part.iov_len = piece.len;
            count += 1;
        }
        message.header.msg_iov = message.parts.as_mut_ptr();
        message.header.msg_iovlen = count;
        direction.sending = true;
        let entry = opcode::SendMsg::new(Fd(direction.to), &raw const message.header)
            .flags(libc::MSG_NOSIGNAL.cast_unsigned())
            .build();
        self.push(&[entry.user_data((index as u64) << 8 | WRITE)])
    }

    fn ring_sent(&mut self, index: usize, result: i32) -> io::Result<()> {
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        let direction = &mut self.directions[index];
        add(&self.counters.writes, 1);
        direction.sending = false;
        let Ok(mut count) = usize::try_from(result) else { return Ok(()) };
        add(&self.counters.bytes, count as u64);
        while count > 0 {
            let Some(piece) = direction.queue.front_mut() else { break };
            let part = count.min(piece.len);
            piece.start += part;
            piece.len -= part;
            count -= part;
            if piece.len == 0 {
                buffers.give(piece.id);
                direction.queue.pop_front();
            }
        }
        buffers.publish();
        if !direction.armed && !direction.ended {
            self.read(index)?;
        }
        self.ring_send(index)
    }

    // --- SPLICE -----------------------------------------------------------------------------------

    fn spliced_in(&mut self, index: usize, result: i32) {
        add(&self.counters.reads, 1);
        let direction = &mut self.directions[index];
        match usize::try_from(result) {
            Ok(0) => direction.ended = true,
            Ok(count) => direction.held += count,
            Err(_) => add(&self.counters.idle, 1),
        }
    }

    fn spliced_out(&mut self, index: usize, result: i32) -> io::Result<()> {
        add(&self.counters.writes, 1);
        let direction = &mut self.directions[index];
        if let Ok(count) = usize::try_from(result) {
            add(&self.counters.bytes, count as u64);
            direction.held -= count;
        } else if result != -libc::EAGAIN {
            return Ok(());
        }
        let Some((out, _)) = direction.pipe else { return Ok(()) };
        if direction.held > 0 {
            let token = (index as u64) << 8;
            let len = u32::try_from(direction.held).unwrap_or(u32::MAX);
            let to = Fd(direction.to);
            return self.push(&[
                opcode::PollAdd::new(to, POLLOUT)
                    .build()
                    .user_data(token | POLLED)
                    .flags(Flags::IO_HARDLINK),
                opcode::Splice::new(Fd(out), -1, to, -1, len)
                    .flags(libc::SPLICE_F_NONBLOCK)
                    .build()
                    .user_data(token | WRITE),
            ]);
        }
        if direction.ended {
            sys::shutdown_write(direction.to);
            return Ok(());
        }
        self.read(index)
    }

    /// Entries that are linked go in together.
    fn push(&mut self, entries: &[Entry]) -> io::Result<()> {
        loop {
            // SAFETY: what the entries point to is boxed in a direction or in the ring of buffers,
            // and neither is freed.
            let pushed = unsafe { self.ring.submission().push_multiple(entries) };
            if pushed.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

#[allow(clippy::cast_sign_loss, reason = "a bit of poll")]
const POLLIN: u32 = libc::POLLIN as u32;
#[allow(clippy::cast_sign_loss, reason = "a bit of poll")]
const POLLOUT: u32 = libc::POLLOUT as u32;

/// IORING_RECVSEND_POLL_FIRST.
const POLL_FIRST: u16 = 1;

impl Direction {
    fn new(from: RawFd, to: RawFd) -> Self {
        Self {
            from,
            to,
            held: 0,
            start: 0,
            buffer: Box::default(),
            pipe: None,
            lent: 0,
            queue: VecDeque::new(),
            sending: false,
            armed: false,
            ended: false,
            // SAFETY: a msghdr and iovecs of zeros are valid, and empty.
            message: Box::new(unsafe { std::mem::zeroed() }),
        }
    }
}

/// A ring of provided buffers, group 0, that all directions share.
struct Buffers {
    ring: *mut BufRingEntry,
    memory: Box<[u8]>,
    size: usize,
    count: usize,
    tail: u16,
    /// Which buffer lies at which place of the ring, and the other way round: a bundle names only
    /// its first buffer.
    order: Vec<u16>,
    places: Vec<usize>,
}

impl Buffers {
    fn new(uring: &IoUring, size: usize) -> io::Result<Self> {
        let count = ((4 << 20) / size).clamp(16, 1024).next_power_of_two();
        let length = count * size_of::<BufRingEntry>();
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let entries = u16::try_from(count).map_err(io::Error::other)?;
        // SAFETY: the mapping is that long, and is never unmapped.
        unsafe { uring.submitter().register_buf_ring_with_flags(ring as u64, entries, 0, 0) }?;
        let mut buffers = Self {
            ring: ring.cast(),
            memory: vec![0; count * size].into_boxed_slice(),
            size,
            count,
            tail: 0,
            order: vec![0; count],
            places: vec![0; count],
        };
        for id in 0..entries {
            buffers.give(id);
        }
        buffers.publish();
        Ok(buffers)
    }

    fn give(&mut self, id: u16) {
        let place = usize::from(self.tail) & (self.count - 1);
        self.order[place] = id;
        self.places[usize::from(id)] = place;
        let at = self.memory[usize::from(id) * self.size..].as_ptr() as u64;
        // SAFETY: the place is inside the ring; the kernel reads it only after `publish`.
        let entry = unsafe { &mut *self.ring.add(place) };
        entry.set_addr(at);
        entry.set_len(u32::try_from(self.size).unwrap_or(u32::MAX));
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies in the first entry of the ring.
        let tail = unsafe { BufRingEntry::tail(self.ring) }.cast::<AtomicU16>();
        // SAFETY: aligned, and the kernel too uses it as an atomic.
        unsafe { &*tail }.store(self.tail, Ordering::Release);
    }

    fn at(&self, piece: &Piece) -> *mut u8 {
        self.memory[usize::from(piece.id) * self.size + piece.start..].as_ptr().cast_mut()
    }

    /// The buffers, from `first` on, that `bytes` bytes lie in.
    fn take(&self, first: u16, mut bytes: usize, into: &mut VecDeque<Piece>) {
        let mut place = self.places[usize::from(first)];
        while bytes > 0 {
            let len = bytes.min(self.size);
            into.push_back(Piece { id: self.order[place], start: 0, len });
            bytes -= len;
            place = (place + 1) & (self.count - 1);
        }
    }
}
