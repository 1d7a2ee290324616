//! An account as a line of JSON. Keys have their units, and keep their order.

use std::time::Duration;

use lastbyte_core::End;
use lastbyte_core::account::{Account, Leg, Party, Traffic};
use lastbyte_core::sample::LimitedBy;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The version of the keys: it changes when a key is removed, or changes its meaning.
const SCHEMA: u32 = 1;

pub(super) fn line(account: &Account) -> String {
    let Account { up, down, .. } = account;
    shown(&Line {
        r#type: "account",
        schema: SCHEMA,
        flow: account.flow,
        route: &account.route,
        complete: account.is_complete(),
        ended_by: match account.ended.by {
            Party::Client => "client",
            Party::Upstream => "upstream",
            Party::Gate => "gate",
        },
        ended_how: account.ended.how.word(),
        ended_detail: account.ended.detail.as_deref(),
        began_unix_s: seconds(account.began),
        took_s: seconds(account.took),
        wanted: account.wanted.as_deref(),
        connect_ms: account.connect.map(milliseconds),
        up_received_bytes: up.received,
        up_written_bytes: up.written,
        up_acked_bytes: up.acked,
        up_end: end(up),
        up_limited_by: limited_by(up),
        up_limited_s: limited_for(up),
        down_received_bytes: down.received,
        down_written_bytes: down.written,
        down_acked_bytes: down.acked,
        down_end: end(down),
        down_limited_by: limited_by(down),
        down_limited_s: limited_for(down),
        client: JsonLeg::of(&account.client),
        upstream: account.upstream.as_ref().map(JsonLeg::of),
    })
}

pub(super) fn lost(accounts: u64) -> String {
    shown(&LostLine { r#type: "lost", schema: SCHEMA, accounts })
}

/// The keys, in their order.
#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    schema: u32,
    flow: u64,
    route: &'a str,
    complete: bool,
    ended_by: &'static str,
    ended_how: &'static str,
    ended_detail: Option<&'a str>,
    began_unix_s: f64,
    took_s: f64,
    wanted: Option<&'a str>,
    connect_ms: Option<f64>,
    up_received_bytes: u64,
    up_written_bytes: u64,
    up_acked_bytes: Option<u64>,
    up_end: Option<&'static str>,
    up_limited_by: Option<&'static str>,
    up_limited_s: Option<f64>,
    down_received_bytes: u64,
    down_written_bytes: u64,
    down_acked_bytes: Option<u64>,
    down_end: Option<&'static str>,
    down_limited_by: Option<&'static str>,
    down_limited_s: Option<f64>,
    client: JsonLeg<'a>,
    upstream: Option<JsonLeg<'a>>,
}

#[derive(Serialize)]
struct JsonLeg<'a> {
    local: Option<String>,
    peer: Option<String>,
    rtt_ms: Option<f64>,
    retransmitted_segments: Option<u32>,
    #[serde(rename = "tuned", serialize_with = "as_map")]
    granted: &'a [(&'static str, String)],
}

impl<'a> JsonLeg<'a> {
    fn of(leg: &'a Leg) -> Self {
        Self {
            local: leg.local.map(|address| address.to_string()),
            peer: leg.peer.map(|address| address.to_string()),
            rtt_ms: leg.rtt.map(milliseconds),
            retransmitted_segments: leg.retransmitted_segments,
            granted: &leg.granted,
        }
    }
}

#[derive(Serialize)]
struct LostLine {
    r#type: &'static str,
    schema: u32,
    accounts: u64,
}

/// Pairs as an object, in their order.
fn as_map<S: Serializer>(
    pairs: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

fn shown(line: &impl Serialize) -> String {
    // Only a map with keys that are not text could fail, and there is none here.
    let mut json = serde_json::to_string(line).unwrap_or_default();
    if json.contains(super::text::controls) {
        let escaped = |one: char| {
            let mut units = [0; 2];
            let units = one.encode_utf16(&mut units).iter();
            units.map(|unit| format!("\\u{unit:04x}")).collect::<String>()
        };
        let plain = |one| if super::text::controls(one) { escaped(one) } else { one.to_string() };
        json = json.chars().map(plain).collect();
    }
    json + "\n"
}

fn end(traffic: &Traffic) -> Option<&'static str> {
    traffic.end.map(|end| match end {
        End::Fin => "fin",
        End::Reset => "reset",
        End::Truncated => "truncated",
        _ => "unknown",
    })
}

fn limited_by(traffic: &Traffic) -> Option<&'static str> {
    traffic.limited_by.map(|(limit, _)| match limit {
        LimitedBy::Application => "application",
        LimitedBy::SendBuffer => "send_buffer",
        LimitedBy::ReceiveWindow => "receive_window",
        LimitedBy::CongestionWindow => "congestion_window",
        LimitedBy::Pacing => "pacing",
        _ => "unknown",
    })
}

fn limited_for(traffic: &Traffic) -> Option<f64> {
    traffic.limited_by.map(|(_, time)| seconds(time))
}

/// To the microsecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// To the microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
