//! The keys of a configuration file, each with its meaning. Reading, suggestions and the table of the
//! manual all use this list.

use std::fmt::Write;

/// A key of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The table that it belongs to.
    pub table: Table,
    /// Its name.
    pub name: &'static str,
    /// An example of its value, as written in the file.
    pub example: &'static str,
    /// The default.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
}

/// A table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The file itself, before its first table.
    Gate,
    /// `[limits]`.
    Limits,
    /// `[[route]]`.
    Route,
    /// `[route.client]` and `[route.upstream]`.
    Leg,
    /// `[route.upstream]` alone.
    Upstream,
    /// `keepalive` of a leg.
    Keepalive,
}

impl Table {
    /// All of them, in the order of the manual.
    pub const ALL: [Self; 6] =
        [Self::Gate, Self::Limits, Self::Route, Self::Leg, Self::Upstream, Self::Keepalive];

    /// Its heading in a file.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Gate => "the top of the file",
            Self::Limits => "[limits]",
            Self::Route => "[[route]]",
            Self::Leg => "[route.client] and [route.upstream]",
            Self::Upstream => "[route.upstream]",
            Self::Keepalive => "keepalive = { ... }",
        }
    }
}

/// All keys.
pub const KEYS: &[Key] = &[
    key(
        Table::Gate,
        "control",
        r#""/run/lastbyte/gate.sock""#,
        "one in its user's directory",
        "A Unix socket, for its own user alone, on which the gate answers `lastbyte gate stat`.",
    ),
    key(
        Table::Gate,
        "metrics",
        r#""127.0.0.1:9464""#,
        "none",
        "The address where `GET /metrics` is answered over HTTP, for a collector. A port alone is on loopback.",
    ),
    key(
        Table::Gate,
        "drain",
        r#""60s""#,
        "60s",
        "How long open flows may continue when the gate is told to stop; it resets the rest then.",
    ),
    key(Table::Gate, "workers", "2", "one for each processor", "Threads that relay flows."),
    key(
        Table::Limits,
        "flows",
        "8000",
        "100000",
        "Flows that are open at once; the gate resets any more, with an account.",
    ),
    key(Table::Limits, "flows_per_client", "1000", "50000", "The same for one client's address."),
    key(Table::Limits, "dials", "256", "4096", "The most connects in progress at once."),
    key(
        Table::Route,
        "name",
        r#""db""#,
        "its address",
        "Its name in accounts and statistics: letters, digits and . _ - : [ ]",
    ),
    key(
        Table::Route,
        "listen",
        r#""127.0.0.1:3306""#,
        "must be given",
        "The address to listen on. A port alone, `\"3306\"`, is on 127.0.0.1.",
    ),
    key(
        Table::Route,
        "forward",
        r#""db.far.example:3306""#,
        "one of these three",
        "The target: a host and a port, or a list of them. The gate resolves names for each flow.",
    ),
    key(
        Table::Route,
        "socks5",
        "true",
        "one of these three",
        "The client chooses the target by SOCKS 5 (RFC 1928); the gate resolves names.",
    ),
    key(
        Table::Route,
        "http_connect",
        "true",
        "one of these three",
        "The client chooses the target by HTTP's CONNECT (RFC 9110, section 9.3.6).",
    ),
    key(
        Table::Route,
        "choice",
        r#""first-healthy""#,
        r#""round-robin""#,
        "Which of several targets comes first: `round-robin` is each in turn, `first-healthy` the first that did not fail lately. If it fails, the gate tries the others.",
    ),
    key(
        Table::Route,
        "users",
        r#"{ alice = "secret" }"#,
        "no authentication",
        "The users of a proxy, and their passwords. Anybody who can read the file has them.",
    ),
    key(
        Table::Route,
        "users_file",
        r#""/etc/lastbyte/users""#,
        "none",
        "The same from a file: lines of `name:password`, in a file that other users cannot read. A relative path begins beside this file.",
    ),
    key(
        Table::Route,
        "allow",
        r#"["192.0.2.0/24", "2001:db8::/32"]"#,
        "everybody",
        "Addresses and prefixes of clients that may connect; the gate resets others.",
    ),
    key(
        Table::Route,
        "reach",
        r#"["10.0.0.0/8", "2001:db8::/32"]"#,
        "all; off loopback all but loopback and link-local addresses",
        "Destinations that a proxy may connect to: addresses and prefixes, by whatever name. It refuses others in the client's protocol.",
    ),
    key(
        Table::Route,
        "request_timeout",
        r#""10s""#,
        "10s",
        "How long a client of a proxy may take to send its request.",
    ),
    key(
        Table::Route,
        "connect_timeout",
        r#""10s""#,
        "10s",
        "How long a connect may take, with name resolution and all addresses.",
    ),
    key(
        Table::Route,
        "idle_timeout",
        r#""2h""#,
        "none",
        "How long a flow may be idle, with no bytes waiting in either direction.",
    ),
    key(
        Table::Route,
        "stall_timeout",
        r#""5min""#,
        "none",
        "How long a side may accept nothing while bytes wait for it.",
    ),
    key(
        Table::Route,
        "settle_timeout",
        r#""30s""#,
        "30s",
        "How long a side may take to acknowledge the next bytes, once the flow is to end.",
    ),
    key(
        Table::Leg,
        "congestion",
        r#""bbr""#,
        "the machine's",
        "The congestion control (`TCP_CONGESTION`) of what this host sends on this leg.",
    ),
    key(
        Table::Leg,
        "send_buffer",
        r#""4 MiB""#,
        "sized by the kernel",
        "A fixed send buffer (`SO_SNDBUF`).",
    ),
    key(
        Table::Leg,
        "receive_buffer",
        r#""4 MiB""#,
        "sized by the kernel",
        "A fixed receive buffer (`SO_RCVBUF`), for what this host receives on this leg.",
    ),
    key(
        Table::Leg,
        "notsent_lowat",
        r#""128 KiB""#,
        "the machine's",
        "How many bytes may be written and not yet sent (`TCP_NOTSENT_LOWAT`).",
    ),
    key(
        Table::Leg,
        "pacing",
        r#""95mbit""#,
        "none",
        "The highest payload rate at which this host sends, for each flow (`SO_MAX_PACING_RATE`).",
    ),
    key(
        Table::Leg,
        "user_timeout",
        r#""30s""#,
        "about 15 min, by net.ipv4.tcp_retries2",
        "How long bytes may stay unacknowledged before the kernel gives up the connection (`TCP_USER_TIMEOUT`).",
    ),
    key(
        Table::Leg,
        "keepalive",
        r#""60s""#,
        "60s, then 8 probes 15s apart",
        "The silence after which the kernel probes a side, and the interval (`SO_KEEPALIVE`); or a table.",
    ),
    key(
        Table::Leg,
        "mptcp",
        "true",
        "false",
        "Multipath TCP, if both sides have it. Over it nobody can know what was acknowledged.",
    ),
    key(
        Table::Leg,
        "mark",
        "7",
        "none",
        "The mark of its packets (`SO_MARK`); needs CAP_NET_ADMIN.",
    ),
    key(
        Table::Leg,
        "interface",
        r#""eth0""#,
        "any",
        "The one interface that its packets may use (`SO_BINDTODEVICE`).",
    ),
    key(
        Table::Leg,
        "nodelay",
        "false",
        "true",
        "Whether a partial segment is sent at once (`TCP_NODELAY`).",
    ),
    key(
        Table::Upstream,
        "source",
        r#"["192.0.2.1"]"#,
        "the kernel's choice",
        "The address to connect from, or one for each family.",
    ),
    key(
        Table::Keepalive,
        "idle",
        r#""60s""#,
        "must be given",
        "Silence before the first probe (`TCP_KEEPIDLE`).",
    ),
    key(
        Table::Keepalive,
        "interval",
        r#""10s""#,
        "as idle",
        "Time between two unanswered probes (`TCP_KEEPINTVL`).",
    ),
    key(
        Table::Keepalive,
        "probes",
        "6",
        "9",
        "Unanswered probes after which the kernel gives up the connection (`TCP_KEEPCNT`).",
    ),
];

const fn key(
    table: Table,
    name: &'static str,
    example: &'static str,
    default: &'static str,
    about: &'static str,
) -> Key {
    Key { table, name, example, default, about }
}

/// The tables of the manual, in Markdown.
#[must_use]
pub fn manual() -> String {
    let mut text = String::new();
    for table in Table::ALL {
        let _ = write!(text, "\n**{}**\n\n", table.heading());
        text.push_str("| Key | Example | Default | Meaning |\n| --- | --- | --- | --- |\n");
        for Key { name, example, default, about, .. } in keys_of(table) {
            let _ = writeln!(text, "| `{name}` | `{example}` | {default} | {about} |");
        }
    }
    text
}

/// The keys of a table.
pub(super) fn keys_of(table: Table) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

/// A suggestion for a key that these tables do not have: the second half of a sentence.
pub(super) fn suggestion(name: &str, tables: &[Table]) -> String {
    let here: Vec<&str> = tables.iter().flat_map(|table| keys_of(*table)).map(|k| k.name).collect();
    if let Some(elsewhere) = KEYS.iter().find(|key| key.name == name) {
        return format!("it belongs in {}", elsewhere.table.heading());
    }
    let near = here.iter().map(|key| (distance(name, key), *key)).min();
    match near {
        Some((off, key)) if off <= 1 + key.len() / 4 => format!("did you mean `{key}`?"),
        _ => format!("there are {}", here.join(", ")),
    }
}

/// Levenshtein's distance: how many letters have to be changed, inserted or removed to make one word of
/// the other. `-` and `_` count as the same.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, a) in one.chars().map(|a| if a == '-' { '_' } else { a }).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (at, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_every_key() {
        let file = include_str!("../../../../docs/manual/gate.md");
        let (_, rest) = file.split_once("<!-- keys -->\n").unwrap();
        let (table, _) = rest.split_once("<!-- /keys -->").unwrap();
        let right = manual();
        assert!(
            table.trim() == right.trim(),
            "docs/manual/gate.md should have, between its marks:\n{right}"
        );
    }

    #[test]
    fn near_keys_are_suggested() {
        let suggested = |name| suggestion(name, &[Table::Leg, Table::Upstream]);
        assert_eq!(
            suggested("congestion_control"),
            "there are congestion, send_buffer, receive_buffer, \
            notsent_lowat, pacing, user_timeout, keepalive, mptcp, mark, interface, nodelay, source"
        );
        assert_eq!(suggested("congestin"), "did you mean `congestion`?");
        assert_eq!(suggested("send-buffer"), "did you mean `send_buffer`?");
        assert_eq!(suggested("connect_timeout"), "it belongs in [[route]]");
    }

    #[test]
    fn distances_are_counted() {
        for (one, other, off) in
            [("", "", 0), ("a", "", 1), ("allow", "alow", 1), ("ab", "ba", 2), ("a-b", "a_b", 0)]
        {
            assert_eq!(distance(one, other), off, "{one} {other}");
        }
    }
}
