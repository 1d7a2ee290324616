//! What the kernel granted, next to what was asked for.

use anyhow::Result;
use lastbyte_core::sample::FastOpen;
use lastbyte_socket::blocking::Stream;
use lastbyte_socket::{ConnectOptions, Granted, Multipath};
use lastbyte_units::{ByteSize, Span};
use serde::Serialize;

/// The options of a connection.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The congestion control, the buffers, and all that was asked for, in words.
    pub(super) granted: Vec<String>,
    /// What was asked for, as granted, in words.
    pub(super) asked: Vec<String>,
    /// Where less was granted than asked for, a sentence.
    pub(super) less: Vec<String>,
    pub(super) json: GrantedPart,
}

/// In JSON; what was not asked for is null, but for the congestion control and the buffers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GrantedPart {
    congestion: String,
    send_buffer_bytes: u32,
    receive_buffer_bytes: u32,
    user_timeout_ms: Option<f64>,
    keepalive_idle_s: Option<f64>,
    keepalive_interval_s: Option<f64>,
    mark: Option<String>,
    interface: Option<String>,
    multipath: Option<bool>,
    fast_open: Option<&'static str>,
}

impl Options {
    /// Reads them back from a connection.
    pub(super) fn read(stream: &Stream, asked: &ConnectOptions) -> Result<Self> {
        let granted = stream.granted()?;
        Ok(Self::of(&granted, asked))
    }

    fn of(granted: &Granted, asked: &ConnectOptions) -> Self {
        let tune = &asked.socket;
        let mut options = Self {
            granted: Vec::new(),
            asked: Vec::new(),
            less: Vec::new(),
            json: GrantedPart::of(granted, asked),
        };
        let congestion = format!("congestion control {}", granted.congestion);
        options.tell(congestion, tune.congestion.is_some());
        options.buffer(("send", "net.core.wmem_max"), granted.send_buffer, tune.send_buffer);
        let receive = ("receive", "net.core.rmem_max");
        options.buffer(receive, granted.receive_buffer, tune.receive_buffer);
        if tune.user_timeout.is_some() {
            let timeout = granted.user_timeout.map(Span::from);
            options.tell(format!("user timeout {}", known(timeout)), true);
        }
        if tune.keepalive.is_some() {
            let every = granted.keepalive_times.map(|times| Span::from(times.idle));
            options.tell(format!("probed after {}", known(every)), true);
        }
        if tune.mark.is_some() {
            options.tell(format!("mark {}", granted.mark), true);
        }
        if tune.interface.is_some() {
            options.tell(format!("interface {}", known(granted.interface.as_ref())), true);
        }
        if asked.mptcp {
            options.multipath(granted.multipath);
        }
        if !asked.early.is_empty() {
            options.fast_open(granted.fast_open);
        }
        options
    }

    fn tell(&mut self, text: String, asked: bool) {
        if asked {
            self.asked.push(text.clone());
        }
        self.granted.push(text);
    }

    fn multipath(&mut self, multipath: Option<Multipath>) {
        let why = match multipath {
            Some(Multipath::InUse) => return self.tell("multipath TCP".to_owned(), true),
            Some(Multipath::Absent) => "this kernel has none, or it is off (net.mptcp.enabled)",
            Some(Multipath::FellBack) => "the peer or something on the way has none",
            _ => return self.tell("multipath TCP, or plain TCP".to_owned(), true),
        };
        self.less.push(format!("asked for multipath TCP and got plain TCP: {why}"));
    }

    fn fast_open(&mut self, fast_open: Option<FastOpen>) {
        let what = match fast_open {
            Some(FastOpen::Acked) => "the SYN had the first bytes",
            Some(FastOpen::NoCookie) => "none yet, as the peer is new: the next SYN may have bytes",
            Some(FastOpen::NotAcked) => "the peer did not take the bytes of the SYN",
            Some(FastOpen::SynRetransmitted) => "the SYN was sent again, without bytes",
            _ => "not used, by the peer or here (net.ipv4.tcp_fastopen)",
        };
        self.tell(format!("fast open: {what}"), true);
    }

    /// The kernel doubles what is asked for, for its own overhead (`socket(7)`).
    fn buffer(&mut self, (name, limit): (&str, &str), granted: u32, asked: Option<u32>) {
        let size = |bytes: u32| ByteSize::from_bytes(bytes.into());
        let Some(asked) = asked else {
            return self.tell(format!("{name} buffer {}", size(granted)), false);
        };
        self.tell(format!("{name} buffer {} and as much for overhead", size(granted / 2)), true);
        if granted / 2 < asked {
            let (asked, got) = (size(asked), size(granted / 2));
            self.less.push(format!(
                "asked for a {name} buffer of {asked} and got {got}: {limit} allows no more"
            ));
        }
    }
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

impl GrantedPart {
    fn of(granted: &Granted, asked: &ConnectOptions) -> Self {
        let tune = &asked.socket;
        let probed = granted.keepalive_times.filter(|_| tune.keepalive.is_some());
        let user_timeout = granted.user_timeout.filter(|_| tune.user_timeout.is_some());
        Self {
            congestion: granted.congestion.clone(),
            send_buffer_bytes: granted.send_buffer,
            receive_buffer_bytes: granted.receive_buffer,
            user_timeout_ms: user_timeout.map(super::words::ms),
            keepalive_idle_s: probed.map(|times| times.idle.as_secs_f64()),
            keepalive_interval_s: probed.map(|times| times.interval.as_secs_f64()),
            mark: tune.mark.map(|_| granted.mark.to_string()),
            interface: tune.interface.as_ref().and_then(|_| granted.interface.clone()),
            multipath: asked.mptcp.then_some(granted.multipath == Some(Multipath::InUse)),
            fast_open: (!asked.early.is_empty()).then(|| fast_open_word(granted.fast_open)),
        }
    }
}

fn fast_open_word(fast_open: Option<FastOpen>) -> &'static str {
    match fast_open {
        Some(FastOpen::Unused) => "unused",
        Some(FastOpen::Acked) => "acked",
        Some(FastOpen::NoCookie) => "no_cookie",
        Some(FastOpen::NotAcked) => "not_acked",
        Some(FastOpen::SynRetransmitted) => "syn_retransmitted",
        _ => "unknown",
    }
}
