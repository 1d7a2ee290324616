//! Buffers ciphertext between the kernel and rustls, and passes it on a record at a time.

use std::ops::Range;

/// How much to read at a time: a record has at most 2^14 bytes of plaintext and some overhead (RFC
/// 8446 section 5.2), so most records fit.
const BUFFER_BYTES: usize = 17 << 10;

/// `ContentType`, `ProtocolVersion` and length (RFC 8446 section 5.1).
const HEADER_BYTES: usize = 5;

/// Ciphertext that was read and not yet passed to rustls.
///
/// rustls never gets a byte beyond the current record, so that it does not consume what comes after
/// a `close_notify`.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    buffer: Box<[u8]>,
    waiting: Range<usize>,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that were passed on.
    headed: usize,
    /// Bytes of the record still to be passed on, once its header was.
    rest: usize,
}

impl Incoming {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a record began and did not end.
    pub(crate) fn is_inside(&self) -> bool {
        self.headed > 0 || self.rest > 0
    }

    /// The buffer to read into, while it is empty; then call [`Incoming::received`].
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        debug_assert!(self.is_empty(), "what waits would be overwritten");
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        }
        &mut self.buffer
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.waiting = 0..bytes;
    }

    /// The buffered bytes of the current record.
    pub(crate) fn piece(&self) -> &[u8] {
        let waiting = &self.buffer[self.waiting.clone()];
        if self.rest > 0 {
            return &waiting[..self.rest.min(waiting.len())];
        }
        let Some(missing) = waiting.get(..HEADER_BYTES - self.headed) else {
            return waiting;
        };
        let mut header = self.header;
        header[self.headed..].copy_from_slice(missing);
        &waiting[..(missing.len() + length_in(header)).min(waiting.len())]
    }

    /// Records that this many bytes of the piece were passed on.
    pub(crate) fn given(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let at = self.waiting.start;
            let taken = if self.rest > 0 {
                let taken = bytes.min(self.rest);
                self.rest -= taken;
                taken
            } else {
                let taken = bytes.min(HEADER_BYTES - self.headed);
                let headed = self.headed + taken;
                self.header[self.headed..headed].copy_from_slice(&self.buffer[at..at + taken]);
                self.headed = headed % HEADER_BYTES;
                if headed == HEADER_BYTES {
                    self.rest = length_in(self.header);
                }
                taken
            };
            self.waiting.start += taken;
            bytes -= taken;
        }
    }
}

fn length_in(header: [u8; HEADER_BYTES]) -> usize {
    usize::from(u16::from_be_bytes([header[3], header[4]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three records, of 3, 0 and 300 bytes, and half a header.
    fn stream() -> Vec<u8> {
        let mut bytes = vec![23, 3, 3, 0, 3, 1, 2, 3, 21, 3, 3, 0, 0, 22, 3, 3, 1, 44];
        bytes.extend([7; 300]);
        bytes.extend([23, 3]);
        bytes
    }

    #[test]
    fn pieces_never_cross_the_end_of_a_record_however_bytes_arrive() {
        let ends = [8, 13, 318];
        for size in 1..=stream().len() {
            for bite in [1, 4, 5, 4096] {
                let (mut incoming, mut at) = (Incoming::default(), 0);
                for chunk in stream().chunks(size) {
                    incoming.buffer()[..chunk.len()].copy_from_slice(chunk);
                    incoming.received(chunk.len());
                    while !incoming.is_empty() {
                        let taken = incoming.piece().len().min(bite);
                        assert!(taken > 0, "size {size}, bite {bite}, at {at}");
                        let crossed = ends.iter().any(|end| at < *end && *end < at + taken);
                        assert!(!crossed, "size {size}, bite {bite}, at {at}: {taken} bytes");
                        incoming.given(taken);
                        at += taken;
                        assert_eq!(incoming.is_inside(), at > 0 && !ends.contains(&at), "{at}");
                    }
                }
                assert_eq!(at, stream().len());
            }
        }
    }
}
