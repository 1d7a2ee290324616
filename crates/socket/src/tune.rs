//! Options of a connection, set before it is there, and what the kernel granted.

use std::io;
use std::os::fd::AsFd;

use lastbyte_sys::{socket, tcp};

use crate::carrier::Ends;
use crate::error::{Operation, SocketError};

/// Options to set before `connect` or `listen`. What is `None` stays the kernel's own choice, and
/// that is right for nearly all programs: a buffer set by hand is never sized by the kernel again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tune {
    /// The congestion control's name (`TCP_CONGESTION`). Only the sender's counts.
    pub congestion: Option<String>,
    /// The send buffer in bytes (`SO_SNDBUF`). The kernel doubles it and caps it at
    /// `net.core.wmem_max`: see [`Granted`].
    pub send_buffer: Option<u32>,
    /// The receive buffer in bytes (`SO_RCVBUF`), capped at `net.core.rmem_max`.
    pub receive_buffer: Option<u32>,
}

impl Tune {
    /// Sets the options on a socket that is not yet connected.
    pub(crate) fn apply(&self, fd: &impl AsFd) -> Result<(), SocketError> {
        let set = |option, result: io::Result<()>| {
            result.map_err(|cause| SocketError::new(Operation::Set(option), Ends::default(), cause))
        };
        let size = |bytes: u32| i32::try_from(bytes).unwrap_or(i32::MAX);
        if let Some(name) = &self.congestion {
            set("TCP_CONGESTION", tcp::set_congestion(fd, name))?;
        }
        if let Some(bytes) = self.send_buffer {
            set("SO_SNDBUF", socket::set_send_buffer(fd, size(bytes)))?;
        }
        if let Some(bytes) = self.receive_buffer {
            set("SO_RCVBUF", socket::set_receive_buffer(fd, size(bytes)))?;
        }
        Ok(())
    }
}

/// What the kernel granted, read back from a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The congestion control in use.
    pub congestion: String,
    /// The send buffer in bytes, the kernel's own overhead included.
    pub send_buffer: u32,
    /// The receive buffer in bytes, the kernel's own overhead included.
    pub receive_buffer: u32,
    /// Whether the send buffer is fixed, so that the kernel will not size it. `None` where the
    /// kernel cannot say (before 5.14).
    pub send_buffer_fixed: Option<bool>,
    /// Whether the receive buffer is fixed.
    pub receive_buffer_fixed: Option<bool>,
}

impl Granted {
    pub(crate) fn read(fd: &impl AsFd) -> io::Result<Self> {
        let lock = socket::buffer_lock(fd).ok();
        let fixed = |bit: i32| lock.map(|lock| lock & bit != 0);
        Ok(Self {
            congestion: tcp::congestion(fd)?,
            send_buffer: socket::send_buffer(fd)?.unsigned_abs(),
            receive_buffer: socket::receive_buffer(fd)?.unsigned_abs(),
            send_buffer_fixed: fixed(socket::SEND_BUFFER_LOCKED),
            receive_buffer_fixed: fixed(socket::RECEIVE_BUFFER_LOCKED),
        })
    }
}
