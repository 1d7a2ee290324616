//! Packets in flight: parts of what was read from a device, not copied as long as they stay whole.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use lastbyte_sys::tun::VNET_HEADER;

use crate::clock::Nanos;
use crate::gso::GsoPacket;

/// Bytes of a buffer for a packet of an Ethernet's length, and for a GSO packet, which the kernel has
/// not segmented.
pub(crate) const PACKET_BUFFER_BYTES: usize = 2048;
pub(crate) const GSO_BUFFER_BYTES: usize = VNET_HEADER + 65_536;

/// What was read from a device: a packet, or a GSO packet of several segments, and when each of them
/// is due. Packets in flight are parts of it.
#[derive(Clone, Debug)]
pub(crate) struct PacketBuffer {
    /// The first `length` bytes are the packet with its vnet header.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) length: usize,
    /// Set for a GSO packet.
    pub(crate) gso: Option<GsoPacket>,
    /// One for each segment; a single one for a packet that is not segmented.
    pub(crate) times: Vec<Timestamps>,
}

/// When a packet leaves its transmitter, and when it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timestamps {
    pub(crate) sent: Nanos,
    pub(crate) due: Nanos,
}

/// Segments of one buffer that are in flight, in order of their times.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) buffer: Arc<PacketBuffer>,
    pub(crate) segments: Range<usize>,
    /// Whether it is the duplicate of a packet that is counted already.
    pub(crate) is_copy: bool,
}

/// Empty buffers, for reuse: none is allocated while packets arrive as fast as they leave.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    small: Vec<Arc<PacketBuffer>>,
    large: Vec<Arc<PacketBuffer>>,
}

/// Takes out the next packets that are due: as many as follow each other in one buffer.
pub(crate) fn next_due(in_flight: &mut VecDeque<InFlight>, now: Nanos) -> Option<InFlight> {
    let take = |first: &mut InFlight| first.take_due(now);
    let mut group = in_flight.front_mut().and_then(take)?;
    while in_flight.front().is_some_and(|front| front.segments.is_empty()) {
        in_flight.pop_front();
        let Some(next) = in_flight.front_mut().filter(|next| next.continues(&group)) else { break };
        let Some(more) = next.take_due(now) else { break };
        group.segments.end = more.segments.end;
    }
    Some(group)
}

impl InFlight {
    /// Takes its first packets as far as they are due; `None` if none is.
    fn take_due(&mut self, now: Nanos) -> Option<Self> {
        let until = self.due_until(now);
        let segments = self.segments.start..until;
        self.segments.start = until;
        let Self { buffer, is_copy, .. } = self;
        (!segments.is_empty()).then(|| Self {
            buffer: Arc::clone(buffer),
            segments,
            is_copy: *is_copy,
        })
    }

    /// Whether it begins where another ends.
    fn continues(&self, other: &Self) -> bool {
        let in_one_room = Arc::ptr_eq(&self.buffer, &other.buffer);
        in_one_room && self.segments.start == other.segments.end && !self.is_copy
    }

    /// When its first packet is due.
    pub(crate) fn due(&self) -> Nanos {
        self.buffer.times.get(self.segments.start).map_or(0, |moments| moments.due)
    }

    /// The end of those that are due.
    fn due_until(&self, now: Nanos) -> usize {
        let times = &self.buffer.times[self.segments.clone()];
        let due = times.iter().take_while(|moments| moments.due <= now).count();
        self.segments.start + due
    }

    /// The same packets, one by one.
    pub(crate) fn into_singles(self) -> impl Iterator<Item = Self> {
        let Self { buffer, segments, is_copy } = self;
        segments.map(move |one| Self {
            buffer: Arc::clone(&buffer),
            segments: one..one + 1,
            is_copy,
        })
    }

    /// How many packets of the sending host it stands for.
    pub(crate) fn packets(&self) -> u64 {
        if self.is_copy { 0 } else { self.segments.len() as u64 }
    }
}

impl BufferPool {
    /// A buffer for whatever a device gives.
    pub(crate) fn large(&mut self) -> Arc<PacketBuffer> {
        self.large.pop().unwrap_or_else(|| Arc::new(PacketBuffer::new(GSO_BUFFER_BYTES)))
    }

    /// A buffer with a copy of a packet of at most [`PACKET_BUFFER_BYTES`] bytes.
    pub(crate) fn packet(&mut self, packet: &[u8]) -> Arc<PacketBuffer> {
        let mut buffer = self.small();
        let inner = Arc::make_mut(&mut buffer);
        inner.length = packet.len();
        inner.bytes[..packet.len()].copy_from_slice(packet);
        buffer
    }

    /// A buffer with a copy of one segment of a GSO packet.
    pub(crate) fn segment(
        &mut self,
        gso: GsoPacket,
        whole: &[u8],
        segment: usize,
    ) -> Arc<PacketBuffer> {
        let mut buffer =
            if gso.longest_segment() <= PACKET_BUFFER_BYTES { self.small() } else { self.large() };
        let inner = Arc::make_mut(&mut buffer);
        inner.length = gso.split(whole, segment..segment + 1, &mut inner.bytes);
        inner.gso = None;
        buffer
    }

    fn small(&mut self) -> Arc<PacketBuffer> {
        self.small.pop().unwrap_or_else(|| Arc::new(PacketBuffer::new(PACKET_BUFFER_BYTES)))
    }

    #[cfg(test)]
    pub(crate) fn buffers(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Keeps a buffer for reuse, unless a part of it is still in flight.
    pub(crate) fn recycle(&mut self, mut buffer: Arc<PacketBuffer>) {
        let Some(inner) = Arc::get_mut(&mut buffer) else { return };
        inner.gso = None;
        let buffers =
            if inner.bytes.len() > PACKET_BUFFER_BYTES { &mut self.large } else { &mut self.small };
        buffers.push(buffer);
    }
}

impl PacketBuffer {
    /// The IP bytes of some of its packets.
    pub(crate) fn ip_bytes(&self, packets: Range<usize>) -> u64 {
        let alone = || self.length.saturating_sub(VNET_HEADER) as u64;
        self.gso.map_or_else(alone, |gso| gso.ip_bytes(packets))
    }

    fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes].into(), length: 0, gso: None, times: Vec::new() }
    }
}
