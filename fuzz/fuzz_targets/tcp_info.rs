//! What the kernel says of a connection, however short or wrong, and what follows for the time between
//! two such answers.
#![no_main]

use std::time::Duration;

use lastbyte_core::sample::{Limits, Moment, TcpInfo};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let info = TcpInfo::parse(bytes);
    assert_eq!(info.is_some(), bytes.len() >= 104);
    let later = TcpInfo::parse(&bytes[bytes.len() / 2..]);
    let (Some(info), Some(later)) = (info, later) else { return };
    let [before, after] = [info, later].map(|info| Moment {
        info,
        send_buffer: info.rcv_wnd,
        queued: info.reordering_seen,
    });
    let elapsed = Duration::from_micros(info.busy_us.unwrap_or(100_000));
    let waiting = info.rwnd_limited_us.map(Duration::from_micros);
    let mut limits = Limits::default();
    limits.add(&before, &after, elapsed, waiting);
    assert_eq!(limits.times().iter().sum::<Duration>(), elapsed);
});
