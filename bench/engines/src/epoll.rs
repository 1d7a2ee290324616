//! Copy, splice and both, one thread, edge-triggered epoll.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};

use crate::spec::{Kind, Spec};
use crate::sys::{self, Counters, add};

pub fn run(spec: &Spec, listener: &TcpListener, counters: &'static Counters) -> io::Result<()> {
    sys::exact_sleeps();
    let mut relay = Relay {
        spec: spec.clone(),
        counters,
        epoll: sys::epoll()?,
        directions: Vec::new(),
        pool: Vec::new(),
        pipes: Vec::new(),
        again: VecDeque::new(),
    };
    sys::epoll_add(relay.epoll, listener.as_raw_fd(), libc::EPOLLIN, LISTENER)?;
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
    loop {
        add(&counters.waits, 1);
        let timeout = if relay.again.is_empty() { -1 } else { 0 };
        let count = sys::epoll_wait(relay.epoll, &mut events, timeout);
        let mut moved = 0;
        for event in &events[..count] {
            if event.u64 == LISTENER {
                relay.accept(listener)?;
            } else {
                moved += relay.wake(event.u64, event.events.cast_signed());
            }
        }
        for _ in 0..relay.again.len() {
            let Some(index) = relay.again.pop_front() else { break };
            moved += relay.advance(index);
        }
        if let Some(micros) = relay.spec.nap
            && moved >= BULK
            && relay.again.is_empty()
        {
            add(&counters.others, 1);
            sys::nap(micros);
        }
    }
}

const LISTENER: u64 = u64::MAX;

/// From how many bytes on, in one wake-up, a nap is worth it.
const BULK: usize = 16 << 10;

struct Relay {
    spec: Spec,
    counters: &'static Counters,
    epoll: RawFd,
    /// Two for each connection: from the client (even), to the client (odd).
    directions: Vec<Direction>,
    /// Buffers that nobody holds; the last one given back is the warmest.
    pool: Vec<Box<[u8]>>,
    pipes: Vec<(RawFd, RawFd)>,
    /// Directions that had more to do when their turn was over.
    again: VecDeque<usize>,
}

struct Direction {
    from: RawFd,
    to: RawFd,
    splices: bool,
    readable: bool,
    writable: bool,
    /// The source's FIN was announced: a short read does not mean empty.
    ending: bool,
    done: bool,
    /// What was read and not written yet: in the buffer from `start`, or in the pipe.
    held: usize,
    start: usize,
    buffer: Option<Box<[u8]>>,
    pipe: Option<(RawFd, RawFd)>,
    total: usize,
    low_water_set: bool,
}

/// What reading came to.
enum Read {
    Some(usize),
    /// As Some, and the socket is empty.
    Last(usize),
    Empty,
    End,
}

impl Relay {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        let (near, _) = listener.accept()?;
        let near = sys::released(near);
        let far = sys::released(sys::connect(self.spec.to)?);
        sys::prepare(near)?;
        for fd in [near, far] {
            sys::set_nonblocking(fd)?;
            if let Some(size) = self.spec.receive_buffer {
                sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size)?;
            }
            if let Some(size) = self.spec.send_buffer {
                sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size)?;
            }
        }
        let first = self.directions.len() as u64;
        let splices = self.spec.kind == Kind::Splice;
        self.directions.push(Direction::new(near, far, splices));
        self.directions.push(Direction::new(far, near, splices && !self.spec.copy_back));
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        sys::epoll_add(self.epoll, near, interest, first)?;
        sys::epoll_add(self.epoll, far, interest, first + 1)
    }

    /// The socket that direction `token` reads from has news, which may be about writing too.
    fn wake(&mut self, token: u64, events: i32) -> usize {
        let Ok(index) = usize::try_from(token) else { return 0 };
        let gone = events & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
        let mut moved = 0;
        if gone || events & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0 {
            let direction = &mut self.directions[index];
            direction.readable = true;
            direction.ending |= gone || events & libc::EPOLLRDHUP != 0;
            moved += self.advance(index);
        }
        if gone || events & libc::EPOLLOUT != 0 {
            let back = &mut self.directions[index ^ 1];
            let was_blocked = !back.writable;
            back.writable = true;
            if was_blocked {
                moved += self.advance(index ^ 1);
            }
        }
        moved
    }

    /// Moves what can be moved, but leaves the others their turn. Returns how many bytes.
    fn advance(&mut self, index: usize) -> usize {
        let mut direction = std::mem::take(&mut self.directions[index]);
        let mut moved = 0;
        while !direction.done {
            let before = direction.held;
            if direction.held > 0 && !self.write(&mut direction) {
                moved += before - direction.held;
                break;
            }
            moved += before;
            if moved >= TURN {
                self.again.push_back(index);
                break;
            }
            if !direction.readable || !self.read(&mut direction) {
                break;
            }
        }
        self.rest(&mut direction);
        let finished = direction.done && self.directions[index ^ 1].done;
        self.directions[index] = direction;
        if finished {
            sys::close(self.directions[index].from);
            sys::close(self.directions[index].to);
        }
        moved
    }

    /// Gives back what an idle direction need not hold.
    fn rest(&mut self, direction: &mut Direction) {
        if direction.held > 0 {
            return;
        }
        self.pool.extend(direction.buffer.take());
        self.pipes.extend(direction.pipe.take());
    }

    /// Whether all that was held is gone.
    fn write(&mut self, direction: &mut Direction) -> bool {
        while direction.held > 0 {
            if !direction.writable {
                return false;
            }
            add(&self.counters.writes, 1);
            let wrote = match (direction.pipe, &direction.buffer) {
                (Some((out, _)), _) => {
                    sys::splice(out, direction.to, direction.held, self.spec.flags)
                }
                (None, Some(buffer)) => {
                    let end = direction.start + direction.held;
                    sys::send(direction.to, &buffer[direction.start..end])
                }
                (None, None) => unreachable!("something is held, so it is somewhere"),
            };
            match wrote {
                Ok(count) => {
                    add(&self.counters.bytes, count as u64);
                    direction.held -= count;
                    direction.start += count;
                    direction.total += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    add(&self.counters.blocked, 1);
                    direction.writable = false;
                }
                Err(_) => direction.fail(),
            }
        }
        true
    }

    /// Whether there is something to write now.
    fn read(&mut self, direction: &mut Direction) -> bool {
        if direction.splices { self.splice_in(direction) } else { self.recv(direction) }
    }

    fn recv(&mut self, direction: &mut Direction) -> bool {
        let size = self.spec.buffer;
        self.pipes.extend(direction.pipe.take());
        let buffer = direction.buffer.get_or_insert_with(|| {
            self.pool.pop().unwrap_or_else(|| vec![0; size].into_boxed_slice())
        });
        add(&self.counters.reads, 1);
        let read = sys::recv(direction.from, buffer);
        direction.start = 0;
        let trust = self.spec.trust_short && !direction.ending;
        match understood(read, size, trust) {
            Read::Some(count) | Read::Last(count)
                if count == size && self.spec.kind == Kind::Hybrid =>
            {
                // The socket may have more than a buffer takes: this is bulk.
                direction.held = count;
                direction.splices = true;
            }
            Read::Some(count) => direction.held = count,
            Read::Last(count) => {
                direction.held = count;
                direction.readable = false;
            }
            Read::Empty => {
                add(&self.counters.idle, 1);
                direction.readable = false;
            }
            Read::End => direction.end(),
        }
        direction.held > 0
    }

    fn splice_in(&mut self, direction: &mut Direction) -> bool {
        if direction.buffer.is_some() {
            self.pool.extend(direction.buffer.take());
        }
        if direction.pipe.is_none() {
            direction.pipe = self.pipes.pop().or_else(|| sys::pipe(self.spec.pipe).ok());
        }
        let Some((_, into)) = direction.pipe else { return false };
        self.low_water(direction);
        loop {
            add(&self.counters.reads, 1);
            let read = sys::splice(direction.from, into, self.spec.len, self.spec.flags);
            // Short of what was asked does not mean that the socket is empty: the pipe has so many
            // slots, and one may hold a byte or 32 KiB.
            match understood(read, self.spec.len, false) {
                Read::Some(count) | Read::Last(count) => direction.held += count,
                // Of a pipe that holds something it is not known who blocks: socket or pipe.
                Read::Empty if direction.held > 0 => {
                    add(&self.counters.idle, 1);
                    return true;
                }
                Read::Empty => {
                    add(&self.counters.idle, 1);
                    direction.readable = false;
                }
                Read::End => {
                    if direction.held == 0 {
                        direction.end();
                    }
                    return direction.held > 0;
                }
            }
            if self.spec.kind == Kind::Hybrid && direction.held < self.spec.after {
                direction.splices = false;
            }
            if !self.spec.fill || !direction.readable {
                return direction.held > 0;
            }
        }
    }

    fn low_water(&mut self, direction: &mut Direction) {
        if direction.low_water_set || direction.total < 1 << 20 {
            return;
        }
        direction.low_water_set = true;
        let fd = direction.from;
        if let Some(mark) = self.spec.low_water {
            add(&self.counters.others, 1);
            let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, mark);
        }
        if let Some(value) = self.spec.quick_ack {
            add(&self.counters.others, 1);
            let _ = sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, value);
        }
    }
}

/// How much one direction may move before the others have their turn.
const TURN: usize = 4 << 20;

fn understood(read: io::Result<usize>, asked: usize, trust_short: bool) -> Read {
    match read {
        Ok(0) => Read::End,
        Ok(count) if count < asked && trust_short => Read::Last(count),
        Ok(count) => Read::Some(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Read::Empty,
        Err(_) => Read::End,
    }
}

impl Direction {
    fn new(from: RawFd, to: RawFd, splices: bool) -> Self {
        Self { from, to, splices, writable: true, ..Self::default() }
    }

    fn end(&mut self) {
        sys::shutdown_write(self.to);
        self.done = true;
    }

    fn fail(&mut self) {
        self.held = 0;
        self.done = true;
    }
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            from: -1,
            to: -1,
            splices: false,
            readable: false,
            writable: false,
            ending: false,
            done: false,
            held: 0,
            start: 0,
            buffer: None,
            pipe: None,
            total: 0,
            low_water_set: false,
        }
    }
}
