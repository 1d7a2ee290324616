//! What the kernel knows of a connection, and what can be set on it.

use std::ffi::{CStr, c_char, c_int};

use lastbyte::{State, TcpInfo, congestion, info, observed_end, prepare, set_congestion};

use crate::boundary::{answer, errno_of, lent};
use crate::receipt::{UNKNOWN, known};
use crate::types::End;

/// What the kernel reports about one TCP connection. `lb_info` fills all of it; it need not be
/// initialised. What this kernel does not report is -1, never 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The state, by the numbers of netinet/tcp.h: 1 is `TCP_ESTABLISHED`.
    pub state: i32,
    /// The segment size for sending, in bytes.
    pub snd_mss: i32,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_us: i64,
    /// The shortest recent round-trip time, in microseconds.
    pub min_rtt_us: i64,
    /// Segments in flight. A reset sets it to 0: no proof of delivery.
    pub unacked_segments: i64,
    /// The congestion window, in segments.
    pub cwnd_segments: i64,
    /// Retransmitted segments, over the life of the connection.
    pub total_retrans_segments: i64,
    /// The pacing rate in bytes per second; `INT64_MAX` without pacing.
    pub pacing_rate: i64,
    /// The recent delivery rate, in bytes per second.
    pub delivery_rate: i64,
    /// Bytes acknowledged: our SYN (where we connected) and our FIN count one each.
    pub bytes_acked: i64,
    /// Bytes received in order: the peer's FIN counts one.
    pub bytes_received: i64,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: i64,
    /// Bytes retransmitted.
    pub bytes_retrans: i64,
    /// Bytes written and not sent yet.
    pub notsent_bytes: i64,
    /// The peer's window as last advertised, in bytes.
    pub snd_wnd: i64,
    /// Microseconds with bytes to send or in flight.
    pub busy_us: i64,
    /// Microseconds limited by the peer's receive window.
    pub rwnd_limited_us: i64,
    /// Microseconds limited by our send buffer.
    pub sndbuf_limited_us: i64,
    /// For future figures: -1 each.
    pub reserved: [i64; 8],
}

/// Asks the kernel about a TCP connection (`TCP_INFO`) and fills all of `info`.
///
/// Returns 0, or -1 with `errno`: EBADF, ENOTSOCK, EOPNOTSUPP or ENOPROTOOPT (no TCP socket),
/// EFAULT (`info` is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_info(fd: c_int, info: *mut Info) -> c_int {
    answer(|| {
        if info.is_null() {
            return Err(libc::EFAULT);
        }
        let told = lent(fd, |fd| self::info(fd).map_err(|error| errno_of(&error)))?;
        // SAFETY: it is not NULL, so C promises room for it. What was there is not read.
        unsafe { info.write(Info::from(told)) };
        Ok(0)
    })
}

/// Selects the congestion control of a TCP socket by its name, such as "bbr", at any time
/// (`TCP_CONGESTION`). It governs what this side sends.
///
/// Returns 0, or -1 with `errno`: ENOENT (this kernel does not have it), EPERM (only
/// `CAP_NET_ADMIN` may use it), EBADF, ENOTSOCK, EOPNOTSUPP or ENOPROTOOPT (no TCP socket), EINVAL
/// (the name is empty), EFAULT (`name` is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_set_congestion(fd: c_int, name: *const c_char) -> c_int {
    answer(|| {
        if name.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: it is not NULL, so C promises a text that ends with NUL and stays as it is.
        let name = unsafe { CStr::from_ptr(name) };
        // The kernel's names are ASCII.
        let name = name.to_str().map_err(|_| libc::ENOENT)?;
        lent(fd, |fd| set_congestion(fd, name).map_err(|error| errno_of(&error)))?;
        Ok(0)
    })
}

/// Writes the name of the congestion control that a TCP socket uses, with its final NUL. 16 bytes
/// of `room` are always enough.
///
/// Returns 0, or -1 with `errno`: ERANGE (not enough room; nothing was written), EBADF, ENOTSOCK,
/// EOPNOTSUPP or ENOPROTOOPT (no TCP socket), EFAULT (`name` is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_congestion(fd: c_int, name: *mut c_char, room: usize) -> c_int {
    answer(|| {
        if name.is_null() {
            return Err(libc::EFAULT);
        }
        let told = lent(fd, |fd| congestion(fd).map_err(|error| errno_of(&error)))?;
        let mut bytes = told.into_bytes();
        bytes.push(0);
        if bytes.len() > room {
            return Err(libc::ERANGE);
        }
        // SAFETY: `bytes` is at most `room` long, and C promises so much room at `name`, which is
        // not NULL; our own vector does not overlap it.
        unsafe { name.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        Ok(0)
    })
}

/// Lets `lb_ended` distinguish a FIN from a reset: call it before the first read. It keeps urgent
/// bytes in the stream (`SO_OOBINLINE`).
///
/// Returns 0, or -1 with `errno`: EBADF, ENOTSOCK.
#[unsafe(no_mangle)]
pub extern "C" fn lb_prepare(fd: c_int) -> c_int {
    answer(|| {
        lent(fd, |fd| prepare(fd).map_err(|error| errno_of(&error)))?;
        Ok(0)
    })
}

/// How the stream ended after a `read` returned 0; `bytes_read` is how many bytes were read over
/// the life of the connection. Linux reports a reset once: if a failed write or `SO_ERROR` took the
/// report, the end looks clean to the reader.
///
/// If our own direction of a TCP connection is still open, the connection's state shows it.
/// Otherwise the count shows it, if `lb_prepare` was called. In all other cases, and for other
/// sockets than TCP, the result is `LB_END_UNKNOWN`.
///
/// Returns an `enum lb_end`, or -1 with `errno`: EBADF, ENOTSOCK, EINVAL (it is listening).
#[unsafe(no_mangle)]
pub extern "C" fn lb_ended(fd: c_int, bytes_read: u64) -> c_int {
    answer(|| {
        let end = lent(fd, |fd| observed_end(fd, bytes_read).map_err(|error| errno_of(&error)))?;
        Ok(End::from(end) as c_int)
    })
}

/// The version of the library that is in use, such as "0.1.0". Not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn lb_version() -> *const c_char {
    VERSION.as_ptr()
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

impl From<TcpInfo> for Info {
    fn from(info: TcpInfo) -> Self {
        let small = |number: Option<u32>| number.map_or(UNKNOWN, i64::from);
        Self {
            state: number_of(info.state),
            snd_mss: i32::try_from(info.snd_mss).unwrap_or(i32::MAX),
            rtt_us: i64::from(info.rtt_us),
            min_rtt_us: small(info.min_rtt_us),
            unacked_segments: i64::from(info.unacked_segments),
            cwnd_segments: i64::from(info.cwnd_segments),
            total_retrans_segments: i64::from(info.total_retrans_segments),
            pacing_rate: known(info.pacing_rate),
            delivery_rate: known(info.delivery_rate),
            bytes_acked: known(info.bytes_acked),
            bytes_received: known(info.bytes_received),
            bytes_sent: known(info.bytes_sent),
            bytes_retrans: known(info.bytes_retrans),
            notsent_bytes: small(info.notsent_bytes),
            snd_wnd: small(info.snd_wnd),
            busy_us: known(info.busy_us),
            rwnd_limited_us: known(info.rwnd_limited_us),
            sndbuf_limited_us: known(info.sndbuf_limited_us),
            reserved: [UNKNOWN; 8],
        }
    }
}

/// The kernel's number (`include/net/tcp_states.h`).
fn number_of(state: State) -> i32 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynRecv => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Close => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
        State::Other(number) => i32::from(number),
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_the_kernels_number() {
        for number in (1..=11).chain([13, 200]) {
            assert_eq!(number_of(State::from(number)), i32::from(number));
        }
    }

    #[test]
    fn the_version_is_that_of_cargo_toml() {
        assert_eq!(VERSION.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}
