//! Makes untrusted text safe to print.

use std::borrow::Cow;

/// Replaces characters that control a terminal or reverse text by U+FFFD: control characters except
/// tabs and line feeds, and directional marks. Names, files, peers and other programs may contain
/// them.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    let commands = |one: char| {
        (one.is_control() && one != '\n' && one != '\t')
            || matches!(one, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(commands) { text.replace(commands, "\u{FFFD}").into() } else { text.into() }
}

/// A text that anybody may have chosen, as one line without what a terminal would obey: what is not
/// printable is escaped as in a Rust string.
#[must_use]
pub fn in_one_line(text: &str) -> String {
    let escaped = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        c => c.escape_debug().collect(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_commands_the_terminal() {
        assert_eq!(plain("a\tb\nc \u{b5}s"), "a\tb\nc \u{b5}s");
        assert_eq!(
            plain("\u{1b}]52;c;x\u{7}\r\u{9b}2J"),
            "\u{FFFD}]52;c;x\u{FFFD}\u{FFFD}\u{FFFD}2J"
        );
        assert_eq!(plain("a\u{202e}b\u{2066}c"), "a\u{FFFD}b\u{FFFD}c");
    }

    #[test]
    fn names_are_one_line_and_command_nothing() {
        assert_eq!(in_one_line("a 'b'\n\u{1b}[2J\u{202e}"), "a 'b'\\n\\u{1b}[2J\\u{202e}");
    }
}
