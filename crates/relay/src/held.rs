//! The bytes of one way that were read and not yet written, and how more of them are moved.

use std::io;

use lastbyte_socket::{Read, Stream};

use crate::pool::{Pipe, Pool};

/// How much is asked of one splice. More than a pipe of 1 MiB in slots of 4 KiB could hold, as a slot
/// takes up to 32 KiB of a socket's memory in one piece.
const SPLICE_BYTES: usize = 1 << 20;

/// A splice that moved less cost more than a copy.
const LEAST_SPLICE_BYTES: usize = 16 << 10;

/// So many of them in a row, and the way is copied again.
const SMALL_SPLICES: u8 = 8;

/// What a way holds. Nothing, where it waits: buffers and pipes go back to the pool at once.
#[derive(Default)]
pub(crate) enum Held {
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
    /// What was read before there was a relay.
    Early {
        bytes: Vec<u8>,
        from: usize,
    },
}

/// How a way is moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// Through a pipe, without copying.
    splices: bool,
    small: u8,
}

impl Manner {
    fn on_splice(&mut self, bytes: usize) {
        self.small = if bytes < LEAST_SPLICE_BYTES { self.small + 1 } else { 0 };
        self.splices = self.small < SMALL_SPLICES;
    }
}

impl Held {
    pub(crate) fn early(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Self::Nothing } else { Self::Early { bytes, from: 0 } }
    }

    /// Reads some bytes of `source`; nothing is held before. Returns how many; 0 is its end.
    pub(crate) fn fill(
        &mut self,
        manner: &mut Manner,
        source: &mut Stream,
        pool: &Pool,
    ) -> io::Result<usize> {
        if manner.splices
            && !source.has_urgent()
            && let Some(pipe) = pool.pipe()
        {
            match source.splice_out(&pipe.writing, SPLICE_BYTES) {
                Ok(bytes @ 1..) => {
                    manner.on_splice(bytes);
                    *self = Self::Pipe { pipe, bytes };
                    return Ok(bytes);
                }
                // It has ended, stands at an urgent mark, or cannot be spliced: a read tells, and
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
        match source.read_now(&mut buffer, manner.splices) {
            Ok(Read { bytes: to @ 1.., urgent }) => {
                *manner = Manner { splices: to == buffer.len(), small: 0 };
                *self = Self::Bytes { buffer, from: 0, to, urgent };
                Ok(to)
            }
            ended => {
                pool.give_buffer(buffer);
                ended.map(|read| read.bytes)
            }
        }
    }

    /// Writes some of what is held to `sink`, and gives back what is empty. Returns how many bytes.
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
    fn small_packets_one_after_the_other_are_copied_from_then_on() {
        let mut manner = Manner { splices: true, small: 0 };
        for small in 1..SMALL_SPLICES {
            manner.on_splice(LEAST_SPLICE_BYTES - 1);
            assert!(manner.splices, "after {small}");
        }
        // One that is large enough begins the count again.
        manner.on_splice(LEAST_SPLICE_BYTES);
        for small in 1..=SMALL_SPLICES {
            manner.on_splice(1);
            assert_eq!(manner.splices, small < SMALL_SPLICES, "after {small}");
        }
    }
}
