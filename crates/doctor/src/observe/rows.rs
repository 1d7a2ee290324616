//! Sockets as last seen, and the ways to find them.

use std::collections::HashMap;
use std::net::SocketAddr;

use lastbyte_core::diag;
use lastbyte_core::sample::{Progress, State};

use crate::address_pair::AddressPair;
use crate::event::{Info, Role, Sample, Socket, SocketId};

/// So many sockets at most; of others nothing is told but that they are there.
const MAX_ROWS: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct Rows {
    /// In boxes: half of the map's places are empty.
    pub(super) all: HashMap<SocketId, Box<Row>>,
    by_inode: HashMap<u32, SocketId>,
    by_addresses: HashMap<AddressPair, SocketId>,
    /// Listening ones, by their port.
    listening: HashMap<u16, Vec<SocketId>>,
    /// Whether there is one that a program has, it is not known which.
    pub(super) has_unsearched: bool,
    /// Those that went at the last look or the one before, for whoever hears of them later.
    pub(super) removed: HashMap<(SocketAddr, SocketAddr), RemovedRow>,
}

/// One that is gone.
#[derive(Debug)]
pub(super) struct RemovedRow {
    pub(super) row: Box<Row>,
    /// Its last numbers, if they are still to be told.
    pub(super) last: Option<Sample>,
    /// The look that found it gone.
    pub(super) round: u32,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) socket: Socket,
    pub(super) inode: u32,
    pub(super) state: State,
    /// The look that saw it last.
    pub(super) round: u32,
    /// What it is asked about.
    pub(super) is_reported: bool,
    pub(super) holders: Vec<(u32, Option<i32>)>,
    pub(super) moved: Moved,
    pub(super) sampled_ns: u64,
    /// `tcpi_total_rto`, and whether it has grown at the last look.
    pub(super) time_outs: u16,
    pub(super) timed_out: bool,
    pub(super) locks: Option<u8>,
    pub(super) locks_ns: u64,
}

/// What changes when anything happens to a socket.
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

    /// Nothing waits anywhere. Of a listening socket the second queue is its limit.
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

    /// The row of a socket that has this inode number now: one that came to a program was made before
    /// by the kernel alone.
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

    /// The listening socket that a connection of this address came to, if one did.
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
    /// A process has it by this descriptor, where known.
    pub(super) fn add_holder(&mut self, pid: u32, fd: Option<i32>) {
        // Most have one for ever.
        self.holders.reserve_exact(1);
        self.holders.push((pid, fd));
    }
}

/// The event of what a dump says of a socket.
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

/// How a socket that is seen for the first time came to be. `was_there`: watching had not begun.
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
