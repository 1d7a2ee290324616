//! An account as a line of text.

use std::fmt::Write;
use std::time::Duration;

use lastbyte_core::account::{Account, Leg, Traffic};
use lastbyte_core::sample::LimitedBy;
use lastbyte_units::{Span, grouped};

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

/// A time since 1970 as date and time (UTC).
fn at(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The date of a day since 1970-01-01, by eras of 400 years, which all have the same length: in a year
/// that begins in March the leap day comes last.
fn date(day: u64) -> (u64, u64, u64) {
    let day = day + DAYS_FROM_MARCH_0000;
    let (era, day) = (day / DAYS_OF_ERA, day % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, over) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + over, month, day_of_month)
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_FROM_MARCH_0000: u64 = 719_468;
const DAYS_OF_ERA: u64 = 146_097;

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
    fn dates_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00.000Z"),
            (951_782_399, "2000-02-28 23:59:59.000Z"),
            (951_782_400, "2000-02-29 00:00:00.000Z"),
            (1_709_164_800, "2024-02-29 00:00:00.000Z"),
            (4_107_542_399, "2100-02-28 23:59:59.000Z"),
            (4_107_542_400, "2100-03-01 00:00:00.000Z"),
        ] {
            assert_eq!(at(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn a_terminal_obeys_nothing_that_is_plain() {
        assert_eq!(plain("a\u{1b}[31m\n\u{9b}b\u{202e}", 99), "a\\u{1b}[31m\\n\\u{9b}b\\u{202e}");
        assert_eq!(plain("ümläut", 3), "üml...");
    }
}
