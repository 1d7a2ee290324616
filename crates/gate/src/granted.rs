//! The settings of a leg, read back: what the kernel made of those that its route asks for.

use lastbyte_socket::{Keepalive, SocketOptions, Stream};
use lastbyte_units::{BitRate, ByteSize, Span};

use crate::config::{LegOptions, Route};

/// Names of options, as in their manual, each with its value: see
/// [`Leg::granted`](lastbyte_core::account::Leg::granted).
pub(crate) type Settings = Vec<(&'static str, String)>;

/// The settings of both legs: the client's and the upstream's. Boxed, as most flows have none.
pub(crate) type Granted = Option<Box<[Settings; 2]>>;

/// The settings that a route asks for, as the kernel granted them. Where it asks for none, the kernel is
/// not asked either.
pub(crate) fn of(route: &Route, client: &Stream, upstream: &Stream) -> Granted {
    let both = [of_leg(&route.client, client), of_leg(&route.upstream, upstream)];
    both.iter().any(|settings| !settings.is_empty()).then(|| Box::new(both))
}

fn of_leg(LegOptions { tune, mptcp, .. }: &LegOptions, stream: &Stream) -> Settings {
    if *tune == SocketOptions::default() && !mptcp {
        return Vec::new();
    }
    match stream.granted() {
        Ok(granted) => shown(tune, *mptcp, &granted),
        Err(error) => vec![("unknown", error.to_string())],
    }
}

fn shown(tune: &SocketOptions, mptcp: bool, granted: &lastbyte_socket::Granted) -> Settings {
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
