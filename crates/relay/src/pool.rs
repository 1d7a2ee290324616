//! Buffers and pipes, which flows borrow while they have bytes in them.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastbyte_sys::pipe;

/// The size of a buffer in bytes. If a read fills it there is more, and from about 20 KiB on a pipe costs
/// less than a copy: see `docs/measured/relay.md`.
pub(crate) const BUFFER_BYTES: usize = 32 << 10;

/// The size of a pipe in bytes, and the second choice. A quarter has most of the gain, and may still be
/// granted where the user's limit of pipe memory is nearly used up.
const PIPE_BYTES: [i32; 2] = [1 << 20, 256 << 10];

/// A smaller pipe is not worth its system calls.
const LEAST_PIPE_BYTES: usize = 64 << 10;

/// How many unused ones are kept of each. A flow uses one only while bytes wait in it, and all flows of a
/// thread take turns.
const KEPT_BUFFERS: usize = 64;
const KEPT_PIPES: usize = 16;

/// Unused buffers and pipes. Clones share them, and are cheap. Each thread that serves flows should have a
/// pool of its own.
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

    /// An empty pipe; `None` where the kernel grants none that is large enough.
    pub(crate) fn pipe(&self) -> Option<Pipe> {
        let unused = self.unused().pipes.pop();
        unused.or_else(|| Pipe::open().ok().flatten())
    }

    /// Takes back a pipe, which must be empty: bytes left in it would appear in another flow.
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
        // Beyond the user's limit the kernel makes a new pipe of two slots, without an error.
        let granted = PIPE_BYTES.iter().find_map(|bytes| pipe::set_size(&writing, *bytes).ok());
        let size = granted.map_or_else(|| pipe::size(&writing), Ok)?;
        Ok((size >= LEAST_PIPE_BYTES).then_some(Self { reading, writing }))
    }
}
