//! Watches all TCP connections of a host, in a thread.

use std::io::{self, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lastbyte_core::diag::Socket;
use lastbyte_host::SocketTable;
use lastbyte_link::{LinkError, Namespace};
use lastbyte_sys::sock_diag::{CONNECTED, Destroyed, LISTENING};
use lastbyte_sys::{poll, process};

use super::connections::{Activity, Connection, Connections};
use super::counters::Counters;

/// Watches the TCP connections of a host until it is stopped.
///
/// It scans all sockets four times for each sample, and ten times while no connection has carried
/// anything; and the kernel reports each destroyed socket with its last counts, also one that no
/// scan saw. UDP is not seen, nor are connections within the host.
#[derive(Debug)]
pub struct Watch {
    thread: JoinHandle<Result<io::Result<Observed>, LinkError>>,
    connections: Arc<Mutex<Connections>>,
    /// Closing it stops the thread.
    stop: PipeWriter,
}

/// What a watch saw.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Observed {
    /// Connections with other hosts, the earliest first.
    pub connections: Vec<Connection>,
    /// What the host's kernel counted during the watch.
    pub counters: Counters,
    /// How often the kernel's report of destroyed sockets overflowed, or a scan was incomplete:
    /// some connections may be missing, or incomplete.
    pub overflows: u64,
    /// Connections left out at the limit.
    pub left_out: u64,
}

impl Watch {
    /// Starts a watch, with a sample of each connection every 100 ms and times that count from now.
    ///
    /// # Errors
    /// If the host cannot be entered, or its kernel does not report sockets.
    pub fn start(host: &Namespace) -> Result<Self, WatchError> {
        Self::start_from(host, Instant::now(), Duration::from_millis(100))
    }

    /// Starts a watch, with a sample of each connection `every` so often, and times that count from
    /// `began`.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn start_from(
        host: &Namespace,
        began: Instant,
        every: Duration,
    ) -> Result<Self, WatchError> {
        let (stopped, stop) = io::pipe()?;
        let connections = Arc::new(Mutex::new(Connections::new(every)));
        let shared = Arc::clone(&connections);
        // Opened before this returns, so that nothing later is missed.
        let mut watcher = host.run(|| Watcher::open(began, every, shared))??;
        watcher.scan()?;
        let thread = host.spawn("watch", move || watcher.watch(&stopped))?;
        Ok(Self { thread, connections, stop })
    }

    /// Ends the watch and returns what it observed. Open sockets are counted as they are.
    ///
    /// # Errors
    /// If the kernel stopped reporting sockets.
    pub fn stop(self) -> Result<Observed, WatchError> {
        drop(self.stop);
        let seen = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(seen??)
    }

    /// What a caller may wait for.
    pub(super) fn activity(&self) -> Activity {
        lock(&self.connections).activity()
    }
}

/// Watching a host failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The host could not be entered.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The kernel does not report sockets.
    #[error("asking the kernel for its sockets: {0}")]
    Kernel(#[from] io::Error),
}

/// The state of the thread.
struct Watcher {
    table: SocketTable,
    destroyed: Destroyed,
    sockets: Vec<Socket>,
    connections: Arc<Mutex<Connections>>,
    before: Counters,
    began: Instant,
    every: Duration,
    overflows: u64,
}

impl Watcher {
    /// In the calling thread's namespace.
    fn open(
        began: Instant,
        every: Duration,
        connections: Arc<Mutex<Connections>>,
    ) -> io::Result<Self> {
        /// Space for the reports of some ten thousand sockets.
        const BUFFER: i32 = 16 << 20;
        Ok(Self {
            destroyed: Destroyed::open(BUFFER)?,
            table: SocketTable::open()?,
            sockets: Vec::new(),
            connections,
            before: Counters::read()?,
            began,
            every,
            overflows: 0,
        })
    }

    fn watch(mut self, stopped: &PipeReader) -> io::Result<Observed> {
        /// A scan is slow with many sockets, or with a large socket table of the machine: scans
        /// take no more than a twentieth of a core.
        const COST: u32 = 20;
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let wanted: [(&dyn poll::AsFdDyn, i16); 2] =
                [(&self.destroyed, poll::READABLE), (stopped, poll::READABLE)];
            let ready = poll::wait(wanted, Some(wait))?;
            if ready[0] {
                self.read_destroyed()?;
            }
            if ready[1] {
                break;
            }
            if Instant::now() >= next {
                next = Instant::now()
                    + self.every
                        / if lock(&self.connections).expects_connection() { 10 } else { 4 };
                // Processor time, so that waiting for a processor does not make scans rarer.
                let before = process::thread_cpu_time()?;
                self.scan()?;
                let cost = process::thread_cpu_time()?.saturating_sub(before);
                next = next.max(Instant::now() + cost * COST);
            }
        }
        self.scan()?;
        self.flush_destroyed()?;
        let counters = Counters::read()?.since(self.before);
        let connections =
            std::mem::replace(&mut *lock(&self.connections), Connections::new(self.every));
        let (connections, left_out) = connections.into_connections();
        Ok(Observed { connections, counters, overflows: self.overflows, left_out })
    }

    /// Scans all sockets.
    fn scan(&mut self) -> io::Result<()> {
        const TRIES: u32 = 3;
        match self.table.list(CONNECTED | LISTENING, TRIES, &mut self.sockets) {
            Ok(()) => lock(&self.connections).scan(&self.sockets, self.began.elapsed()),
            // The table changed too much during the scan.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.overflows += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads the reports of destroyed sockets. Returns their ports.
    fn read_destroyed(&mut self) -> io::Result<Vec<u16>> {
        let mut sockets = std::mem::take(&mut self.sockets);
        sockets.clear();
        let read = self.destroyed.receive(&mut |body| sockets.extend(Socket::parse(body)));
        let at = self.began.elapsed();
        let mut connections = lock(&self.connections);
        sockets.iter().for_each(|socket| connections.destroyed(socket, at));
        drop(connections);
        let ports = sockets.iter().map(|socket| socket.local.port()).collect();
        self.sockets = sockets;
        match read {
            // An overflow: later reports are readable already.
            Err(error) if error.raw_os_error() == Some(NO_ROOM) => {
                self.overflows += 1;
                Ok(ports)
            }
            result => result.map(|()| ports),
        }
    }

    /// Waits until the kernel has reported all sockets destroyed before now. Each processor reports
    /// a moment later, from its work queue: so this destroys a socket of its own on each, whose
    /// reports come after the others.
    fn flush_destroyed(&mut self) -> io::Result<()> {
        /// A time-out, since one of these reports may be lost in an overflow.
        const TIMEOUT: Duration = Duration::from_secs(2);
        let mut own = destroy_on_each_processor()?;
        let began = Instant::now();
        while !own.is_empty() {
            let left = TIMEOUT.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            poll::wait_for(&self.destroyed, poll::READABLE, left)?;
            let read = self.read_destroyed()?;
            own.retain(|port| !read.contains(port));
        }
        Ok(())
    }
}

/// Destroys a socket on each processor that this thread may use, and leaves the thread on the last.
/// Returns their ports.
fn destroy_on_each_processor() -> io::Result<Vec<u16>> {
    const MAX: usize = 1024;
    let mut sockets = vec![TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?];
    let mut ports = vec![sockets[0].local_addr()?.port()];
    for number in 0..MAX {
        if process::run_on_processor(number).is_err() {
            continue;
        }
        drop(sockets.pop());
        sockets.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        ports.push(sockets[0].local_addr()?.port());
    }
    Ok(ports)
}

/// `ENOBUFS`.
const NO_ROOM: i32 = 105;

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
