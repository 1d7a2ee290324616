//! The bytes of one way that were read and not yet written, and how they are moved.

use std::io;

use lastbyte_socket::{Read, Stream};

use crate::pool::{Pipe, Pool};

/// The length of one splice. A pipe of 1 MiB can hold more than its size: a slot of 4 KiB takes up to 32 KiB
/// of a socket's memory in one piece.
const SPLICE_BYTES: usize = 1 << 20;

/// A splice that moves less costs more than a copy.
const LEAST_SPLICE_BYTES: usize = 16 << 10;

/// After so many small splices in a row the way is copied again.
const SMALL_SPLICES: u8 = 8;

/// The bytes that a way has read and not yet written. A way that waits has none: buffers and pipes go back
/// to the pool at once.
#[derive(Default)]
pub(crate) enum Buffered {
    #[default]
    Nothing,
    Bytes {
        buffer: Box<[u8]>,
        from: usize,
        to: usize,
        urgent: bool,
    },
    Pipe {
        pipe: Pipe,
        bytes: usize,
    },
    /// Bytes that were read before the relay began.
    Early {
        bytes: Vec<u8>,
        from: usize,
    },
}

/// How the bytes of a way are moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// Through a pipe, without copying.
    splices: bool,
    small: u8,
}

impl Transfer {
    fn on_splice(&mut self, bytes: usize) {
        self.small = if bytes < LEAST_SPLICE_BYTES { self.small + 1 } else { 0 };
        self.splices = self.small < SMALL_SPLICES;
    }
}

impl Buffered {
    pub(crate) fn early(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Nothing } else { Self::Early { bytes, from: 0 } }
    }

    /// Reads some bytes of `source`; it must be empty before. Returns how many; 0 is the end of the stream.
    pub(crate) fn fill(
        &mut self,
        transfer: &mut Transfer,
        source: &mut Stream,
        pool: &Pool,
    ) -> io::Result<usize> {
        if transfer.splices
            && !source.has_urgent()
            && let Some(pipe) = pool.pipe()
        {
            match source.splice_out(&pipe.writing, SPLICE_BYTES) {
                Ok(bytes @ 1..) => {
                    transfer.on_splice(bytes);
                    *self = Self::Pipe { pipe, bytes };
                    return Ok(bytes);
                }
                // The stream has ended, is at an urgent mark, or cannot be spliced: a read tells which, and
                // nothing was moved that it would miss.
                Ok(_) => pool.give_pipe(pipe),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => pool.give_pipe(pipe),
                Err(error) => {
                    pool.give_pipe(pipe);
                    return Err(error);
                }
            }
        }
        let mut buffer = pool.buffer();
        match source.read_now(&mut buffer, transfer.splices) {
            Ok(Read { bytes: to @ 1.., urgent }) => {
                *transfer = Transfer { splices: to == buffer.len(), small: 0 };
                *self = Self::Bytes { buffer, from: 0, to, urgent };
                Ok(to)
            }
            ended => {
                pool.give_buffer(buffer);
                ended.map(|read| read.bytes)
            }
        }
    }

    /// Writes some of it to `sink`, and returns an empty buffer or pipe to the pool. Returns how many bytes.
    pub(crate) fn drain(&mut self, sink: &mut Stream, pool: &Pool) -> io::Result<usize> {
        let written = match self {
            Self::Nothing => return Ok(0),
            Self::Bytes { buffer, from, to, urgent } => {
                let rest = &buffer[*from..*to];
                let written =
                    if *urgent { sink.write_urgent_now(rest)? } else { sink.write_now(rest)? };
                *from += written;
                written
            }
            Self::Pipe { pipe, bytes } => {
                let written = sink.splice_in(&pipe.reading, *bytes)?;
                *bytes -= written;
                written
            }
            Self::Early { bytes, from } => {
                let written = sink.write_now(&bytes[*from..])?;
                *from += written;
                written
            }
        };
        match std::mem::take(self) {
            Self::Bytes { buffer, from, to, .. } if from == to => pool.give_buffer(buffer),
            Self::Pipe { pipe, bytes: 0 } => pool.give_pipe(pipe),
            Self::Early { bytes, from } if from == bytes.len() => {}
            rest => *self = rest,
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_small_splices_in_a_row_a_way_is_copied() {
        let mut transfer = Transfer { splices: true, small: 0 };
        for small in 1..SMALL_SPLICES {
            transfer.on_splice(LEAST_SPLICE_BYTES - 1);
            assert!(transfer.splices, "after {small}");
        }
        // A large one restarts the count.
        transfer.on_splice(LEAST_SPLICE_BYTES);
        for small in 1..=SMALL_SPLICES {
            transfer.on_splice(1);
            assert_eq!(transfer.splices, small < SMALL_SPLICES, "after {small}");
        }
    }
}
