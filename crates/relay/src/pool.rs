//! What flows borrow while they hold bytes: buffers and pipes.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastbyte_sys::pipe;

/// Bytes of a buffer. Where a read fills it there is more, and from about 20 KiB on moving it
/// through a pipe costs less than copying it: see `docs/measured/relay.md`.
pub(crate) const BUFFER_BYTES: usize = 32 << 10;

/// Bytes that a pipe is asked to hold. A quarter of it has most of the gain, and is what is left
/// where a user's share of memory for pipes is used up.
const PIPE_BYTES: [i32; 2] = [1 << 20, 256 << 10];

/// A pipe that holds less is not worth its calls.
const LEAST_PIPE_BYTES: usize = 64 << 10;

/// How many of each are kept when nobody uses them. A flow holds some only while bytes wait in them,
/// and all flows of a thread take turns.
const KEPT_BUFFERS: usize = 64;
const KEPT_PIPES: usize = 16;

/// Buffers and pipes that are not in use. Cheap to clone: clones share them. Each thread that carries
/// flows is best given one of its own.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Unused>>);

#[derive(Default)]
struct Unused {
    buffers: Vec<Box<[u8]>>,
    pipes: Vec<Pipe>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unused = self.unused();
        let (buffers, pipes) = (unused.buffers.len(), unused.pipes.len());
        f.debug_struct("Pool").field("buffers", &buffers).field("pipes", &pipes).finish()
    }
}

impl Pool {
    fn unused(&self) -> MutexGuard<'_, Unused> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn buffer(&self) -> Box<[u8]> {
        let unused = self.unused().buffers.pop();
        unused.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    pub(crate) fn give_buffer(&self, buffer: Box<[u8]>) {
        let buffers = &mut self.unused().buffers;
        if buffers.len() < KEPT_BUFFERS {
            buffers.push(buffer);
        }
    }

    /// An empty pipe; `None` where the kernel gives none that is worth it.
    pub(crate) fn pipe(&self) -> Option<Pipe> {
        let unused = self.unused().pipes.pop();
        unused.or_else(|| Pipe::open().ok().flatten())
    }

    /// Takes a pipe back that is empty: what is left in one would come out in another flow.
    pub(crate) fn give_pipe(&self, pipe: Pipe) {
        let pipes = &mut self.unused().pipes;
        if pipes.len() < KEPT_PIPES {
            pipes.push(pipe);
        }
    }
}

/// A pipe, to be filled at one end and emptied at the other.
pub(crate) struct Pipe {
    pub(crate) reading: OwnedFd,
    pub(crate) writing: OwnedFd,
}

impl Pipe {
    fn open() -> io::Result<Option<Self>> {
        let (reading, writing) = pipe::open()?;
        // Past the user's share a new pipe has two slots, and says nothing.
        let granted = PIPE_BYTES.iter().find_map(|bytes| pipe::set_size(&writing, *bytes).ok());
        let size = granted.map_or_else(|| pipe::size(&writing), Ok)?;
        Ok((size >= LEAST_PIPE_BYTES).then_some(Self { reading, writing }))
    }
}
