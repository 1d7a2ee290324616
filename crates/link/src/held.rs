//! Packets on their way: parts of what was read from a device, without a copy where they stay whole.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use lastbyte_sys::tun::VNET_HEADER;

use crate::clock::Nanos;
use crate::train::Train;

/// Room for a packet of an Ethernet's length, and for one that the kernel has not cut.
pub(crate) const PACKET_ROOM: usize = 2048;
pub(crate) const TRAIN_ROOM: usize = VNET_HEADER + 65_536;

/// What was read from a device: a packet, or several segments that came as one, and when each of them
/// is due. Packets on the way are parts of it.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// The first `length` bytes are the packet with its vnet header.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) length: usize,
    /// Of a packet that is to be cut.
    pub(crate) train: Option<Train>,
    /// Of each segment; one for a packet that is none.
    pub(crate) times: Vec<Moments>,
}

/// When a packet leaves its transmitter, and when it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    pub(crate) sent: Nanos,
    pub(crate) due: Nanos,
}

/// Segments of one room that are on the way, in order of their times.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) room: Arc<Room>,
    pub(crate) segments: Range<usize>,
    /// A second copy of a packet that is counted already.
    pub(crate) is_copy: bool,
}

/// Rooms that are empty: none is allocated while packets come as fast as they go.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    packets: Vec<Arc<Room>>,
    trains: Vec<Arc<Room>>,
}

/// Takes out the next packets that are due: as many as lie behind each other in one room.
pub(crate) fn next_due(held: &mut VecDeque<Held>, now: Nanos) -> Option<Held> {
    let take = |first: &mut Held| first.take_due(now);
    let mut group = held.front_mut().and_then(take)?;
    while held.front().is_some_and(|front| front.segments.is_empty()) {
        held.pop_front();
        let Some(next) = held.front_mut().filter(|next| next.continues(&group)) else { break };
        let Some(more) = next.take_due(now) else { break };
        group.segments.end = more.segments.end;
    }
    Some(group)
}

impl Held {
    /// Takes its first packets as far as they are due; `None` if none is.
    fn take_due(&mut self, now: Nanos) -> Option<Self> {
        let until = self.due_until(now);
        let segments = self.segments.start..until;
        self.segments.start = until;
        let Self { room, is_copy, .. } = self;
        (!segments.is_empty()).then(|| Self { room: Arc::clone(room), segments, is_copy: *is_copy })
    }

    /// Whether it begins where another ends.
    fn continues(&self, other: &Self) -> bool {
        let in_one_room = Arc::ptr_eq(&self.room, &other.room);
        in_one_room && self.segments.start == other.segments.end && !self.is_copy
    }

    /// When its first packet is due.
    pub(crate) fn due(&self) -> Nanos {
        self.room.times.get(self.segments.start).map_or(0, |moments| moments.due)
    }

    /// The end of those that are due.
    fn due_until(&self, now: Nanos) -> usize {
        let times = &self.room.times[self.segments.clone()];
        let due = times.iter().take_while(|moments| moments.due <= now).count();
        self.segments.start + due
    }

    /// The same, one by one.
    pub(crate) fn into_singles(self) -> impl Iterator<Item = Self> {
        let Self { room, segments, is_copy } = self;
        segments.map(move |one| Self { room: Arc::clone(&room), segments: one..one + 1, is_copy })
    }

    /// How many packets of the sending host it is.
    pub(crate) fn packets(&self) -> u64 {
        if self.is_copy { 0 } else { self.segments.len() as u64 }
    }
}

impl Spare {
    /// Room for whatever a device gives.
    pub(crate) fn train(&mut self) -> Arc<Room> {
        self.trains.pop().unwrap_or_else(|| Arc::new(Room::new(TRAIN_ROOM)))
    }

    /// A room with a copy of a packet of at most [`PACKET_ROOM`] bytes.
    pub(crate) fn packet(&mut self, packet: &[u8]) -> Arc<Room> {
        let mut room = self.small();
        let inner = Arc::make_mut(&mut room);
        inner.length = packet.len();
        inner.bytes[..packet.len()].copy_from_slice(packet);
        room
    }

    /// A room with a copy of one segment of a train.
    pub(crate) fn part(&mut self, train: Train, whole: &[u8], segment: usize) -> Arc<Room> {
        let mut room =
            if train.longest_part() <= PACKET_ROOM { self.small() } else { self.train() };
        let inner = Arc::make_mut(&mut room);
        inner.length = train.cut(whole, segment..segment + 1, &mut inner.bytes);
        inner.train = None;
        room
    }

    fn small(&mut self) -> Arc<Room> {
        self.packets.pop().unwrap_or_else(|| Arc::new(Room::new(PACKET_ROOM)))
    }

    #[cfg(test)]
    pub(crate) fn rooms(&self) -> usize {
        self.packets.len() + self.trains.len()
    }

    /// Keeps a room for what comes, unless something in it is still on its way.
    pub(crate) fn take_back(&mut self, mut room: Arc<Room>) {
        let Some(inner) = Arc::get_mut(&mut room) else { return };
        inner.train = None;
        let rooms =
            if inner.bytes.len() > PACKET_ROOM { &mut self.trains } else { &mut self.packets };
        rooms.push(room);
    }
}

impl Room {
    /// The IP bytes of some of its packets.
    pub(crate) fn ip_bytes(&self, packets: Range<usize>) -> u64 {
        let alone = || self.length.saturating_sub(VNET_HEADER) as u64;
        self.train.map_or_else(alone, |train| train.ip_bytes(packets))
    }

    fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes].into(), length: 0, train: None, times: Vec::new() }
    }
}
