//! A ring buffer: the records of programs in the kernel, in their order.

use std::sync::{Arc, Mutex};

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::error::BpfError;
use crate::messages::with_messages;

/// Limit on records read at once, so that memory is bounded.
const AT_ONCE: usize = 16_384;

/// Records of one length that programs write.
pub struct Ring {
    ring: RingBuffer<'static>,
    taken: Arc<Mutex<Vec<u8>>>,
    record: usize,
}

impl Ring {
    pub(crate) fn over(map: &dyn MapCore, name: &str, record: usize) -> Result<Self, BpfError> {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let room = Arc::clone(&taken);
        let take = move |bytes: &[u8]| {
            if let (Some(bytes), Ok(mut room)) = (bytes.get(..record), room.lock()) {
                room.extend_from_slice(bytes);
            }
            0
        };
        let ring = with_messages("read", name, || {
            let mut builder = RingBufferBuilder::new();
            builder.add(map, take)?;
            builder.build()
        })?;
        Ok(Self { ring, taken, record })
    }

    /// Hands out the available records without waiting, up to a limit. Returns their number.
    pub fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> usize {
        // The result is the number of records; the callback, the only possible cause of an error,
        // returns none.
        let _ = self.ring.consume_raw_n(AT_ONCE);
        let taken = self.taken.lock().map(|mut taken| std::mem::take(&mut *taken));
        let mut taken = taken.unwrap_or_default();
        taken.chunks_exact(self.record).for_each(&mut *each);
        let count = taken.len() / self.record;
        taken.clear();
        if let Ok(mut room) = self.taken.lock() {
            *room = taken;
        }
        count
    }
}
