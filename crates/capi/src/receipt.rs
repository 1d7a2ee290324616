//! A receipt, as C sees it.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::io;
use std::time::Duration;

use crate::boundary::{Errno, answer};
use crate::types::{Level, Peer, Why};

/// What a finish proved about a connection's outgoing bytes. `lb_finish` fills all of it; it need
/// not be initialised. An unknown count is -1, never 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    /// The highest level that all written bytes reached: an `enum lb_level`.
    pub level: i32,
    /// How the peer ended: an `enum lb_peer`.
    pub peer: i32,
    /// Why less than the wanted level was proven: an `enum lb_why`, 0 if it was proven.
    pub why: i32,
    /// The `errno` of this finish; 0 if it was proven.
    pub error: i32,
    /// Bytes that the local kernel accepted over the life of the connection. -1: not known
    /// (`written` of `lb_options`).
    pub written: i64,
    /// Of those, bytes that left the send queue at least once.
    pub sent: i64,
    /// Of those, bytes that the peer's kernel acknowledged.
    pub acked: i64,
    /// Bytes written and not acknowledged. -1 if the kernel does not count them: Unix sockets,
    /// MPTCP. What you wrote minus this has arrived.
    pub unacked: i64,
    /// Bytes from the peer that arrived while finishing and were discarded.
    pub drained: i64,
    /// From the start of the finish to this receipt, in microseconds.
    pub took_us: i64,
    /// For future counts: -1 each.
    pub reserved: [i64; 6],
}

/// Writes a receipt as text, such as "acked: 0 bytes left unacked, peer still connected, 0.3 ms",
/// and as `snprintf` does: at most `room` bytes with the final NUL, and returns the length of the
/// whole text without it. `buffer` may be NULL if `room` is 0.
///
/// Returns -1 with `errno` EFAULT if `receipt` is NULL, or if `buffer` is NULL and `room` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lb_receipt_text(
    receipt: *const Receipt,
    buffer: *mut c_char,
    room: usize,
) -> c_int {
    answer(|| {
        if receipt.is_null() || (buffer.is_null() && room > 0) {
            return Err(libc::EFAULT);
        }
        // SAFETY: it is not NULL, so C promises a receipt; any numbers in it are valid.
        let text = unsafe { receipt.read() }.text();
        let mut bytes = text.clone().into_bytes();
        bytes.truncate(room.saturating_sub(1));
        bytes.push(0);
        if room > 0 {
            // SAFETY: `bytes` is at most `room` long, and C promises so much room at `buffer`,
            // which is not NULL; our own vector does not overlap it.
            unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        }
        c_int::try_from(text.len()).map_err(|_| libc::EOVERFLOW)
    })
}

impl Receipt {
    /// The receipt of a finish that did nothing.
    pub(crate) fn nothing(why: Why, error: Errno) -> Self {
        Self {
            level: Level::None as i32,
            peer: Peer::Unknown as i32,
            why: why as i32,
            error,
            written: UNKNOWN,
            sent: UNKNOWN,
            acked: UNKNOWN,
            unacked: UNKNOWN,
            drained: 0,
            took_us: 0,
            reserved: [UNKNOWN; 6],
        }
    }

    /// The receipt of what was proven, with the reason if that is less than was wanted.
    pub(crate) fn of(receipt: &lastbyte::Receipt, why: Why, error: Errno) -> Self {
        Self {
            level: Level::from(receipt.level) as i32,
            peer: Peer::from(receipt.peer) as i32,
            written: known(receipt.written),
            sent: known(receipt.sent),
            acked: known(receipt.acked),
            unacked: known(receipt.unacked),
            drained: known(Some(receipt.drained)),
            took_us: i64::try_from(receipt.took.as_micros()).unwrap_or(i64::MAX),
            ..Self::nothing(why, error)
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let why = Why::numbered(self.why);
        if let Some(why) = why.filter(|why| *why != Why::Proven) {
            text.push_str(&why.name().to_string_lossy());
            if why == Why::Refused {
                // Writing to a String does not fail.
                let _ = write!(text, " ({})", io::Error::from_raw_os_error(self.error));
            }
        }
        if let Some(receipt) = self.proven() {
            let between = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{between}{receipt}");
        } else if text.is_empty() {
            text.push_str("nothing proven");
        }
        text
    }

    /// The same in Rust, if something was done.
    fn proven(&self) -> Option<lastbyte::Receipt> {
        let count = |number: i64| u64::try_from(number).ok();
        let mut receipt = lastbyte::Receipt::new(Level::numbered(self.level)?.delivery()?);
        receipt.written = count(self.written);
        receipt.sent = count(self.sent);
        receipt.acked = count(self.acked);
        receipt.unacked = count(self.unacked);
        receipt.drained = count(self.drained).unwrap_or(0);
        receipt.peer = Peer::numbered(self.peer).unwrap_or(Peer::Unknown).end();
        receipt.took = Duration::from_micros(count(self.took_us).unwrap_or(0));
        Some(receipt)
    }
}

/// What stands for an unknown number.
pub(crate) const UNKNOWN: i64 = -1;

/// A count for C.
pub(crate) fn known(count: Option<u64>) -> i64 {
    count.map_or(UNKNOWN, |count| i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use lastbyte::{Delivery, PeerEnd};

    use super::*;

    const PROVEN: lastbyte::Receipt = proven();

    const fn proven() -> lastbyte::Receipt {
        let mut receipt = lastbyte::Receipt::new(Delivery::Acked);
        receipt.unacked = Some(0);
        receipt.drained = 13;
        receipt.peer = PeerEnd::Open;
        receipt.took = Duration::from_micros(1234);
        receipt
    }

    #[test]
    fn what_is_unknown_is_minus_one() {
        let receipt = Receipt::of(&PROVEN, Why::Proven, 0);
        assert_eq!((receipt.written, receipt.sent, receipt.acked), (-1, -1, -1));
        assert_eq!((receipt.unacked, receipt.drained, receipt.took_us), (0, 13, 1234));
        assert_eq!(receipt.reserved, [-1; 6]);
        assert_eq!(known(Some(u64::MAX)), i64::MAX);
    }

    #[test]
    fn a_receipt_crosses_and_comes_back() {
        assert_eq!(Receipt::of(&PROVEN, Why::Proven, 0).proven(), Some(PROVEN));
        assert_eq!(Receipt::nothing(Why::NotOpen, libc::EBADF).proven(), None);
    }

    #[test]
    fn texts_say_the_reason_first() {
        assert_eq!(Receipt::of(&PROVEN, Why::Proven, 0).text(), PROVEN.to_string());
        assert_eq!(
            Receipt::of(&PROVEN, Why::Deadline, libc::ETIMEDOUT).text(),
            format!("the deadline passed; {PROVEN}")
        );
        assert_eq!(
            Receipt::nothing(Why::NoSocket, libc::ENOTSOCK).text(),
            "the descriptor is not a socket"
        );
        let refused = Receipt::nothing(Why::Refused, libc::ENOMEM).text();
        assert!(refused.starts_with("a system call failed (Cannot allocate memory"), "{refused}");
    }

    #[test]
    fn a_receipt_of_nonsense_has_a_text() {
        let nonsense =
            Receipt { level: 99, peer: -7, why: 1000, ..Receipt::nothing(Why::Proven, 0) };
        assert_eq!(nonsense.text(), "nothing proven");
        let nonsense = Receipt { level: 3, took_us: i64::MIN, ..nonsense };
        assert_eq!(nonsense.text(), "acked: acked bytes unknown, peer's end unknown, 0.0 ms");
    }

    fn text_in(receipt: &Receipt, room: usize) -> (c_int, Vec<u8>) {
        let mut buffer = vec![b'#'; 64];
        // SAFETY: `room` is at most the length of the buffer, both are ours.
        let length = unsafe { lb_receipt_text(receipt, buffer.as_mut_ptr().cast(), room) };
        (length, buffer)
    }

    #[test]
    fn a_text_is_cut_as_snprintf_cuts_it() {
        let receipt = Receipt::nothing(Why::NoSocket, libc::ENOTSOCK);
        let whole = "the descriptor is not a socket";
        for room in 0..=40 {
            let (length, buffer) = text_in(&receipt, room);
            assert_eq!(usize::try_from(length), Ok(whole.len()));
            let told = room.saturating_sub(1).min(whole.len());
            if room > 0 {
                let text = CStr::from_bytes_until_nul(&buffer).unwrap();
                assert_eq!(text.to_str().unwrap(), &whole[..told]);
            }
            let touched = if room == 0 { 0 } else { told + 1 };
            assert!(buffer[touched..].iter().all(|byte| *byte == b'#'), "room {room}");
        }
    }

    #[test]
    fn null_is_refused() {
        let receipt = Receipt::nothing(Why::NoSocket, libc::ENOTSOCK);
        let fault = |length: c_int| {
            assert_eq!(length, -1);
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        };
        // SAFETY: NULL is what is tested.
        fault(unsafe { lb_receipt_text(std::ptr::null(), std::ptr::null_mut(), 0) });
        // SAFETY: NULL is what is tested.
        fault(unsafe { lb_receipt_text(&raw const receipt, std::ptr::null_mut(), 1) });
        // SAFETY: nothing is written where there is no room.
        let length = unsafe { lb_receipt_text(&raw const receipt, std::ptr::null_mut(), 0) };
        assert_eq!(length, 30);
    }
}
