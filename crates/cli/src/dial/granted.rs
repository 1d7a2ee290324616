//! What the kernel granted, next to what was asked for.

use anyhow::Result;
use lastbyte_socket::{ConnectOptions, Granted, Kind, Stream};
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
}

impl Options {
    /// Reads them back from a connection.
    pub(super) fn read(stream: &Stream, asked: &ConnectOptions) -> Result<Self> {
        let granted = stream.granted()?;
        Ok(Self::of(&granted, stream.kind(), asked))
    }

    fn of(granted: &Granted, kind: Kind, asked: &ConnectOptions) -> Self {
        let tune = &asked.tune;
        let mut options = Self {
            granted: Vec::new(),
            asked: Vec::new(),
            less: Vec::new(),
            json: GrantedPart::of(granted, kind, asked),
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
        match (asked.mptcp, kind) {
            (true, Kind::Mptcp) => options.tell("multipath TCP".to_owned(), true),
            (true, _) => {
                let why =
                    "asked for multipath TCP and got plain TCP: this kernel or the peer has none";
                options.less.push(why.to_owned());
            }
            (false, _) => {}
        }
        options
    }

    fn tell(&mut self, text: String, asked: bool) {
        if asked {
            self.asked.push(text.clone());
        }
        self.granted.push(text);
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
    fn of(granted: &Granted, kind: Kind, asked: &ConnectOptions) -> Self {
        let tune = &asked.tune;
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
            multipath: asked.mptcp.then_some(kind == Kind::Mptcp),
        }
    }
}
