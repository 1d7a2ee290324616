//! What a connection has now.

use std::io;
use std::os::fd::OwnedFd;

use lastbyte_core::sample::{State, TcpInfo};
use lastbyte_sys::socket::{self, RECEIVE_BUFFER_LOCKED, SEND_BUFFER_LOCKED};
use lastbyte_sys::tcp;

use crate::options::FixedBuffers;

/// What a connection has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which buffers are fixed; `None` before Linux 5.14.
    pub lock: Option<i32>,
    /// As the kernel counts it: twice what was asked for.
    pub send_buffer_bytes: u32,
    /// As the kernel counts it: twice what was asked for.
    pub receive_buffer_bytes: u32,
    /// The congestion control.
    pub congestion: String,
    /// `TCP_NOTSENT_LOWAT`; 0 is the system's.
    pub notsent_lowat_bytes: u32,
    /// `SO_MAX_PACING_RATE`; `u64::MAX` is none.
    pub pacing_bytes_per_s: u64,
    /// By how many bits the window that it offers is shifted: agreed on in the handshake (RFC 7323,
    /// section 2).
    pub receive_scale: u8,
}

impl Settings {
    /// Asks a socket.
    ///
    /// # Errors
    /// The kernel's, such as `EOPNOTSUPP` for one that is not TCP.
    pub fn of(fd: &OwnedFd) -> io::Result<Self> {
        let mut room = [0; tcp::INFO_ROOM];
        tcp::info(fd, &mut room)?;
        let receive_scale = room.get(SCALES).map_or(0, |scales| second_nibble(*scales));
        Ok(Self {
            lock: socket::buffer_lock(fd).ok(),
            send_buffer_bytes: socket::send_buffer(fd)?.unsigned_abs(),
            receive_buffer_bytes: socket::receive_buffer(fd)?.unsigned_abs(),
            congestion: tcp::congestion(fd)?,
            notsent_lowat_bytes: tcp::notsent_lowat(fd)?,
            pacing_bytes_per_s: socket::max_pacing_rate(fd)?,
            receive_scale,
        })
    }

    /// The buffers that are fixed; `None` where the kernel sizes both, or cannot tell.
    #[must_use]
    pub fn fixed(&self) -> Option<FixedBuffers> {
        let lock = self.lock?;
        let fixed = |bit: i32, bytes: u32| (lock & bit != 0).then_some(bytes);
        let send_bytes = fixed(SEND_BUFFER_LOCKED, self.send_buffer_bytes);
        let receive_bytes = fixed(RECEIVE_BUFFER_LOCKED, self.receive_buffer_bytes);
        let any = send_bytes.is_some() || receive_bytes.is_some();
        any.then_some(FixedBuffers { send_bytes, receive_bytes })
    }
}

/// Where the two window scales lie in `struct tcp_info`: `tcpi_snd_wscale` and `tcpi_rcv_wscale`.
const SCALES: usize = 6;

/// The second of two bit fields of four bits, counted from the end where compilers begin.
fn second_nibble(byte: u8) -> u8 {
    if cfg!(target_endian = "big") { byte & 0xF } else { byte >> 4 }
}

/// The state of a TCP socket (`tcpi_state`).
///
/// # Errors
/// As [`Settings::of`].
pub fn state(fd: &OwnedFd) -> io::Result<State> {
    Ok(info(fd)?.map_or(State::Close, |info| info.state))
}

/// `TCP_INFO` of a socket.
pub(crate) fn info(fd: &OwnedFd) -> io::Result<Option<TcpInfo>> {
    let mut room = [0; tcp::INFO_ROOM];
    let length = tcp::info(fd, &mut room)?;
    Ok(TcpInfo::parse(room.get(..length).unwrap_or_default()))
}
