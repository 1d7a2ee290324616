//! The system calls, and a count of those that the relay makes.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the relay counts, in memory that the bench sees too.
#[repr(C)]
#[derive(Default)]
pub struct Counters {
    /// Calls of recv, or of splice from a socket; with io_uring completions of those.
    pub reads: AtomicU64,
    /// Calls of send, or of splice to a socket.
    pub writes: AtomicU64,
    /// Calls of epoll_wait or io_uring_enter.
    pub waits: AtomicU64,
    /// Other calls while bytes move: sleeps, socket options.
    pub others: AtomicU64,
    /// Reads that found nothing (EAGAIN).
    pub idle: AtomicU64,
    /// Writes that found no room (EAGAIN), and a ring of buffers that was empty (ENOBUFS).
    pub blocked: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
}

impl Counters {
    /// The counters in the shared memory behind `fd`, for as long as the process lives.
    pub fn mapped(fd: RawFd) -> io::Result<&'static Self> {
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Self>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a page, aligned and zeroed, never unmapped; atomics may be shared.
        Ok(unsafe { &*at.cast::<Self>() })
    }

    pub fn values(&self) -> [u64; 7] {
        [
            &self.reads,
            &self.writes,
            &self.waits,
            &self.others,
            &self.idle,
            &self.bytes,
            &self.blocked,
        ]
        .map(|counter| counter.load(Ordering::Relaxed))
    }
}

/// Only one thread counts.
pub fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// An anonymous file as large as the counters, which children inherit.
pub fn shared_memory() -> io::Result<RawFd> {
    // SAFETY: the name is a C string.
    let fd = checked(unsafe { libc::memfd_create(c"counters".as_ptr(), 0) })?;
    // SAFETY: no memory is passed.
    checked(unsafe { libc::ftruncate(fd, 4096) })?;
    Ok(fd)
}

pub fn recv(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most the length of the buffer.
    sized(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) })
}

pub fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads at most the length of the slice.
    sized(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// One end has to be a pipe. Never with `SPLICE_F_MORE`: it holds the last piece for 200 ms.
pub fn splice(from: RawFd, to: RawFd, len: usize, flags: u32) -> io::Result<usize> {
    // SAFETY: no offsets are passed.
    sized(unsafe {
        libc::splice(
            from,
            std::ptr::null_mut(),
            to,
            std::ptr::null_mut(),
            len,
            libc::SPLICE_F_NONBLOCK | flags,
        )
    })
}

/// A nonblocking pipe of at least `size` bytes: its end to read, its end to write.
pub fn pipe(size: usize) -> io::Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    let size = i32::try_from(size).map_err(io::Error::other)?;
    // SAFETY: no memory is passed.
    checked(unsafe { libc::fcntl(ends[0], libc::F_SETPIPE_SZ, size) })?;
    Ok((ends[0], ends[1]))
}

pub fn shutdown_write(fd: RawFd) {
    // SAFETY: no memory is passed. An error means that the peer is gone, which the other direction
    // hears of.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

pub fn close(fd: RawFd) {
    // SAFETY: the callers own what they close.
    unsafe { libc::close(fd) };
}

pub fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Asks for cubic: the machine's default may be anything.
pub fn prepare(fd: RawFd) -> io::Result<()> {
    set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic")?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
}

pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }).map(drop)
}

fn set_bytes(fd: RawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `length` bytes.
    checked(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), length) }).map(drop)
}

/// Listens on a free port of 0.0.0.0; `receive_buffer` is set before, so that its window counts.
pub fn listen(receive_buffer: Option<i32>) -> io::Result<(TcpListener, u16)> {
    // SAFETY: no memory is passed.
    let fd =
        checked(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: just made, owned by nothing else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    prepare(fd)?;
    if let Some(size) = receive_buffer {
        set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size)?;
    }
    // SAFETY: no memory is passed. Never bound: the kernel chooses a port.
    checked(unsafe { libc::listen(fd, 1024) })?;
    let listener = TcpListener::from(socket);
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    prepare(stream.as_raw_fd())?;
    Ok(stream)
}

pub fn epoll() -> io::Result<RawFd> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

pub fn epoll_add(epoll: RawFd, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
    // SAFETY: the kernel reads one event.
    checked(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// How many events came within `timeout` milliseconds; -1 waits for ever.
pub fn epoll_wait(epoll: RawFd, events: &mut [libc::epoll_event], timeout: i32) -> usize {
    let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
    // SAFETY: the kernel writes at most `room` events.
    let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, timeout) };
    usize::try_from(count).unwrap_or(0)
}

/// Sleeps without the kernel's slack of 50 microseconds, if `exact_sleeps` was called.
pub fn nap(micros: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(micros) * 1000 };
    // SAFETY: the kernel reads one time and writes nothing.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

pub fn exact_sleeps() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// The descriptor of a stream that now nothing closes by itself.
pub fn released(stream: TcpStream) -> RawFd {
    stream.into_raw_fd()
}

pub fn sized(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

pub fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
