//! An account as a line of text.

use std::fmt::Write;
use std::time::Duration;

use lastbyte_core::account::{Account, Leg, Traffic};
use lastbyte_core::sample::LimitedBy;
use lastbyte_units::{Span, UtcTime, grouped};

/// `2026-11-22 03:45:53.123Z db 192.0.2.7:51234 -> db.far:3306 (198.51.100.7:3306) complete, ended by
/// client; 12.3 s; up 1,234 all acked; down 99,000 all acked; ...`
pub(super) fn line(account: &Account) -> String {
    let mut line = at(account.began + account.took);
    let _ = write!(line, " {} ", plain(&account.route, LONGEST_NAME));
    match account.client.peer {
        Some(peer) => {
            let _ = write!(line, "{peer}");
        }
        None => line.push('?'),
    }
    match &account.wanted {
        Some(wanted) => {
            let _ = write!(line, " -> {}", plain(wanted, LONGEST_NAME));
        }
        None => line.push_str(" -> ?"),
    }
    if let Some(peer) = account.upstream.as_ref().and_then(|leg| leg.peer)
        && account.wanted.as_deref() != Some(peer.to_string().as_str())
    {
        let _ = write!(line, " ({peer})");
    }
    line.push_str(if account.is_complete() { " complete, " } else { " not complete, " });
    let ended = &account.ended;
    let _ = write!(line, "{} by {}", ended.how, ended.by);
    if let Some(detail) = &ended.detail {
        let _ = write!(line, ": {}", plain(detail, LONGEST_DETAIL));
    }
    let _ = write!(line, "; {}", time(account.took));
    for (name, traffic) in [("up", &account.up), ("down", &account.down)] {
        let _ = write!(line, "; {name} {}", bytes(traffic));
    }
    if let Some(connect) = account.connect {
        let _ = write!(line, "; connect {}", time(connect));
    }
    limits(&mut line, account);
    granted(&mut line, "client", &account.client);
    if let Some(leg) = &account.upstream {
        granted(&mut line, "upstream", leg);
    }
    line.push('\n');
    line
}

pub(super) fn lost(accounts: u64) -> String {
    format!("{} accounts were lost here: the log was not written in time\n", grouped(accounts))
}

/// The most of a name that is shown, in characters; JSON has all of it.
const LONGEST_NAME: usize = 64;
/// The most of an error that is shown, in characters.
const LONGEST_DETAIL: usize = 100;

fn bytes(traffic: &Traffic) -> String {
    let Traffic { received, acked, .. } = traffic;
    let all = grouped(*received);
    match acked {
        _ if *received == 0 => all,
        Some(acked) if acked == received => format!("{all} all acked"),
        Some(acked) => format!("{all}, {} acked", grouped(*acked)),
        None => format!("{all}, acked unknown"),
    }
}

/// What limited a direction, unless that was the sender.
fn limits(line: &mut String, account: &Account) {
    for (name, traffic) in [("up", &account.up), ("down", &account.down)] {
        if let Some((limit, lasted)) = traffic.limited_by
            && limit != LimitedBy::Application
            && !lasted.is_zero()
        {
            let _ = write!(line, "; {name} held back by {limit} {}", time(lasted));
        }
    }
}

fn granted(line: &mut String, name: &str, leg: &Leg) {
    for (index, (option, value)) in leg.granted.iter().enumerate() {
        let begin = if index == 0 { format!("; {name}") } else { ",".to_owned() };
        let _ = write!(line, "{begin} {option}={}", plain(value, LONGEST_NAME));
    }
}

fn time(time: Duration) -> String {
    format!("{:.1}", Span::from(time))
}

/// A time since 1970 as date and time.
fn at(since_1970: Duration) -> String {
    let seconds = || format!("{:.3} s since 1970", since_1970.as_secs_f64());
    UtcTime::since_1970(since_1970).map_or_else(seconds, UtcTime::with_millis)
}

/// Text from outside, with control characters escaped, and truncated where it is very long.
fn plain(text: &str, longest: usize) -> String {
    let mut plain = String::with_capacity(text.len());
    for (index, one) in text.chars().enumerate() {
        if index == longest {
            plain.push_str("...");
            break;
        }
        if one.is_control() || controls(one) {
            plain.extend(one.escape_default());
        } else {
            plain.push(one);
        }
    }
    plain
}

/// Whether a character controls a terminal or the direction of text, and is not escaped by JSON.
pub(super) fn controls(one: char) -> bool {
    matches!(one, '\u{7F}'..='\u{9F}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_is_plain() {
        assert_eq!(plain("a\u{1b}[31m\n\u{9b}b\u{202e}", 99), "a\\u{1b}[31m\\n\\u{9b}b\\u{202e}");
        assert_eq!(plain("ümläut", 3), "üml...");
    }
}
