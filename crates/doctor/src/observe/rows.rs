//! Sockets as last seen, with indexes.

use std::collections::HashMap;
use std::net::SocketAddr;

use lastbyte_core::diag;
use lastbyte_core::sample::{Progress, State};

use crate::address_pair::AddressPair;
use crate::event::{Info, Role, Sample, Socket, SocketId};

/// Limit on sockets; others are ignored.
const MAX_ROWS: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Boxed, since half of the map's slots are empty.
    pub(super) all: HashMap<SocketId, Box<Row>>,
    by_inode: HashMap<u32, SocketId>,
    by_addresses: HashMap<AddressPair, SocketId>,
    /// Listening ones, by their port.
    listening: HashMap<u16, Vec<SocketId>>,
    /// Whether there is a socket that is open in an unknown process.
    pub(super) has_unsearched: bool,
    /// Sockets that disappeared at this scan or the one before, for sources that report them later.
    pub(super) removed: HashMap<(SocketAddr, SocketAddr), RemovedRow>,
}

/// A socket that has disappeared.
#[derive(Debug)]
pub(super) struct RemovedRow {
    pub(super) row: Box<Row>,
    /// Its last sample, if that is still to be reported.
    pub(super) last: Option<Sample>,
    /// The scan that found it missing.
    pub(super) round: u32,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) socket: Socket,
    pub(super) inode: u32,
    pub(super) state: State,
    /// The last scan that showed it.
    pub(super) round: u32,
    /// Whether it was reported as in scope.
    pub(super) is_reported: bool,
    pub(super) holders: Vec<(u32, Option<i32>)>,
    pub(super) moved: Moved,
    pub(super) sampled_ns: u64,
    /// `tcpi_total_rto`, and whether it grew at the last scan.
    pub(super) time_outs: u16,
    pub(super) timed_out: bool,
    pub(super) locks: Option<u8>,
    pub(super) locks_ns: u64,
}

/// Values that change with every activity on a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) receive_queue: u32,
    pub(super) send_queue: u32,
    acked: u64,
    received: u64,
    sent: u64,
}

impl Moved {
    pub(super) fn of((receive_queue, send_queue): (u32, u32), progress: &Progress) -> Self {
        Self {
            receive_queue,
            send_queue,
            acked: progress.bytes_acked.unwrap_or_default(),
            received: progress.bytes_received.unwrap_or_default(),
            sent: progress.bytes_sent.unwrap_or_default(),
        }
    }

    /// Whether both queues are empty. A listening socket's send queue is its backlog limit.
    pub(super) fn is_idle(self, state: State) -> bool {
        self.receive_queue == 0 && (self.send_queue == 0 || state == State::Listen)
    }
}

impl Rows {
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= MAX_ROWS
    }

    pub(super) fn add(&mut self, row: Row) {
        let id = row.socket.id;
        if row.inode != 0 {
            self.has_unsearched = true;
            self.by_inode.insert(row.inode, id);
        }
        if row.state == State::Listen {
            self.listening.entry(row.socket.local.port()).or_default().push(id);
        } else {
            self.by_addresses.insert(AddressPair::of(row.socket.local, row.socket.peer), id);
        }
        self.all.insert(id, Box::new(row));
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<Box<Row>> {
        let row = self.all.remove(&id)?;
        if self.by_inode.get(&row.inode) == Some(&id) {
            self.by_inode.remove(&row.inode);
        }
        let addresses = AddressPair::of(row.socket.local, row.socket.peer);
        if self.by_addresses.get(&addresses) == Some(&id) {
            self.by_addresses.remove(&addresses);
        }
        let port = row.socket.local.port();
        if let Some(listening) = self.listening.get_mut(&port) {
            listening.retain(|one| *one != id);
            if listening.is_empty() {
                self.listening.remove(&port);
            }
        }
        Some(row)
    }

    /// The row of a socket, with its current inode number: a connection has none until a program
    /// accepts it.
    pub(super) fn known(&mut self, id: SocketId, inode: u32) -> Option<&mut Row> {
        let row = self.all.get_mut(&id)?;
        if row.inode != inode && inode != 0 {
            self.by_inode.insert(inode, id);
            self.has_unsearched = true;
        }
        row.inode = inode;
        Some(row)
    }

    pub(super) fn of_inode(&mut self, inode: u32) -> Option<&mut Row> {
        self.all.get_mut(self.by_inode.get(&inode)?).map(|row| &mut **row)
    }

    pub(super) fn at(&self, local: SocketAddr, peer: SocketAddr) -> Option<SocketId> {
        self.by_addresses.get(&AddressPair::of(local, peer)).copied()
    }

    pub(super) fn other_end(&self, socket: &Socket) -> Option<&Row> {
        self.all.get(&self.at(socket.peer, socket.local)?).map(|row| &**row)
    }

    /// The listening socket that a connection with this local address came to, if any.
    pub(super) fn listener(&self, socket: &Socket) -> Option<&Row> {
        let local = socket.local;
        let listening = self.listening.get(&local.port())?.iter();
        let candidates = listening.filter_map(|id| self.all.get(id)).map(|row| &**row);
        let here = candidates.filter(|row| row.socket.network == socket.network);
        let fits = |row: &&Row| {
            let ip = row.socket.local.ip();
            ip == local.ip() || ip.is_unspecified()
        };
        here.filter(fits).max_by_key(|row| row.socket.local.ip() == local.ip())
    }
}

impl Row {
    /// A process holds it with this descriptor, if known.
    pub(super) fn add_holder(&mut self, pid: u32, fd: Option<i32>) {
        // Most sockets only ever have one holder.
        self.holders.reserve_exact(1);
        self.holders.push((pid, fd));
    }
}

/// The sample of a socket from a dump.
pub(super) fn sample(id: SocketId, socket: diag::Socket, info: Option<&[u8]>) -> Sample {
    Sample {
        socket: id,
        state: socket.state,
        receive_queue: socket.receive_queue,
        send_queue: socket.send_queue,
        receive_buffer: socket.memory.map(|memory| memory.receive_buffer),
        send_buffer: socket.memory.map(|memory| memory.send_buffer),
        queued: socket.memory.map(|memory| memory.queued),
        locks: None,
        held: socket.inode != 0,
        congestion: socket.congestion,
        info: Info(info.filter(|_| socket.state != State::Listen).map(Box::from)),
    }
}

/// The role of a newly seen socket. `was_there`: it existed before the observation.
pub(super) fn role(rows: &Rows, socket: &Socket, state: State, was_there: bool) -> Role {
    match state {
        State::Listen => Role::Listens,
        State::SynSent => Role::Connected,
        State::SynRecv => Role::Accepted,
        _ if rows.listener(socket).is_some() => Role::Accepted,
        _ if was_there => Role::Unknown,
        _ => Role::Connected,
    }
}
