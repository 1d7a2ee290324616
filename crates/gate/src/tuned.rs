//! The options of a leg: what is set, and what the kernel made of it.

use std::time::Duration;

use lastbyte_socket::{Granted, Keepalive, SocketOptions, Stream};
use lastbyte_units::{BitRate, ByteSize, Span};

/// When a flow on which nothing moves is probed: after a minute of silence, and given up after eight
/// probes in two more. The kernel's own two hours are longer than any middlebox remembers.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 8 };

/// What a leg is set to, beyond what its route says. A gate writes what it has read at once: held
/// back until the last segment is acknowledged, as without `TCP_NODELAY`, a message waits for 40 ms.
pub(crate) fn with_defaults(tune: &SocketOptions) -> SocketOptions {
    let mut tune = tune.clone();
    tune.nodelay.get_or_insert(true);
    tune.keepalive.get_or_insert(KEEPALIVE);
    tune
}

/// What a route asks of a leg, as the kernel granted it; nothing where it asks for nothing, and then
/// the kernel is not asked either.
pub(crate) fn granted(
    tune: &SocketOptions,
    mptcp: bool,
    stream: &Stream,
) -> Vec<(&'static str, String)> {
    if *tune == SocketOptions::default() && !mptcp {
        return Vec::new();
    }
    match stream.granted() {
        Ok(granted) => shown(tune, mptcp, &granted),
        Err(error) => vec![("unknown", error.to_string())],
    }
}

fn shown(tune: &SocketOptions, mptcp: bool, granted: &Granted) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let size = |bytes: u32| ByteSize::from_bytes(u64::from(bytes)).to_string();
    let mut shown = Vec::new();
    let mut show = |asked: bool, option: &'static str, value: &dyn Fn() -> String| {
        if asked {
            shown.push((option, value()));
        }
    };
    show(tune.congestion.is_some(), "TCP_CONGESTION", &|| granted.congestion.clone());
    show(tune.send_buffer.is_some(), "SO_SNDBUF", &|| size(granted.send_buffer));
    show(tune.receive_buffer.is_some(), "SO_RCVBUF", &|| size(granted.receive_buffer));
    show(tune.notsent_lowat.is_some(), "TCP_NOTSENT_LOWAT", &|| {
        granted.notsent_lowat.map_or_else(unknown, size)
    });
    show(tune.user_timeout.is_some(), "TCP_USER_TIMEOUT", &|| {
        granted.user_timeout.map_or_else(unknown, |time| Span::from(time).to_string())
    });
    show(tune.max_pacing_rate.is_some(), "SO_MAX_PACING_RATE", &|| {
        BitRate::from_bits_per_s(granted.max_pacing_rate.saturating_mul(8))
            .map_or_else(|_| unknown(), |rate| rate.to_string())
    });
    show(tune.keepalive.is_some(), "SO_KEEPALIVE", &|| {
        let times = granted.keepalive_times.filter(|_| granted.keepalive);
        times.map_or_else(unknown, |Keepalive { idle, interval, probes }| {
            format!("{} + {probes} x {}", Span::from(idle), Span::from(interval))
        })
    });
    show(tune.mark.is_some(), "SO_MARK", &|| granted.mark.to_string());
    show(tune.nodelay.is_some(), "TCP_NODELAY", &|| granted.nodelay.to_string());
    show(tune.interface.is_some(), "SO_BINDTODEVICE", &|| {
        granted.interface.clone().unwrap_or_else(unknown)
    });
    show(mptcp, "MPTCP", &|| granted.multipath.map_or_else(unknown, |path| path.to_string()));
    shown
}
