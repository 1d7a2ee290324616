//! The colours and the style sheet of the page.

/// The style sheet, with the colours of light, dark and paper.
pub(super) fn sheet() -> String {
    let root = |colours: &dyn Fn(&Colour) -> &'static str| {
        let each = COLOURS.iter().map(|colour| format!("--{}:{};", colour.name, colours(colour)));
        format!(":root{{{}}}", each.collect::<String>())
    };
    let (light, dark) = (root(&|colour| colour.light), root(&|colour| colour.dark));
    format!(
        "{light}\n@media (prefers-color-scheme:dark){{{dark}}}\n@media print{{{light}}}\n{}",
        include_str!("style.css")
    )
}

/// A colour in light and in dark.
struct Colour {
    name: &'static str,
    light: &'static str,
    dark: &'static str,
}

const fn colour(name: &'static str, light: &'static str, dark: &'static str) -> Colour {
    Colour { name, light, dark }
}

const COLOURS: [Colour; 19] = [
    colour("ground", "#ffffff", "#14171a"),
    colour("raised", "#f3f5f7", "#1e2327"),
    colour("ink", "#16191d", "#e9e7e3"),
    colour("soft", "#545b63", "#a9b0b7"),
    colour("grid", "#dde1e5", "#333a41"),
    colour("border", "#c3c9cf", "#4a525a"),
    // The bytes received.
    colour("bar", "#2b6cb0", "#6aa9ee"),
    colour("limit", "#16191d", "#e9e7e3"),
    colour("claim", "#b03a2e", "#f0876f"),
    colour("cwnd", "#2b6cb0", "#6aa9ee"),
    colour("flight", "#a85b00", "#eba447"),
    colour("rtt", "#7b4fa3", "#c6a2e6"),
    // The limits.
    colour("application", "#70777e", "#98a0a8"),
    colour("send-buffer", "#a85b00", "#eba447"),
    colour("receive-window", "#7b4fa3", "#c6a2e6"),
    colour("congestion-window", "#2b6cb0", "#6aa9ee"),
    colour("pacing", "#00735a", "#3cc79f"),
    colour("unknown", "#4d4d4d", "#c4c4c4"),
    colour("warn", "#8a4b00", "#f0b35e"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2.2, "relative luminance".
    fn luminance(colour: &str) -> f64 {
        let part = |place: usize| {
            let value = u8::from_str_radix(&colour[place..place + 2], 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    /// WCAG 2.2, "contrast ratio".
    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn named(name: &str) -> &'static Colour {
        COLOURS.iter().find(|colour| colour.name == name).unwrap()
    }

    /// Criteria 1.4.3 (text, 4.5) and 1.4.11 (what must be seen to understand, 3), level AA. All but
    /// the grounds, the grid and the borders of boxes may be text.
    #[test]
    fn every_colour_can_be_told_from_every_ground() {
        for colour in &COLOURS {
            if ["ground", "raised", "grid", "border"].contains(&colour.name) {
                continue;
            }
            for ground in ["ground", "raised"] {
                let ground = named(ground);
                for ratio in
                    [contrast(colour.light, ground.light), contrast(colour.dark, ground.dark)]
                {
                    let least = if colour.name == "application" { 3.0 } else { 4.5 };
                    assert!(ratio >= least, "{} on {}: {ratio:.2}", colour.name, ground.name);
                }
            }
        }
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
    }

    #[test]
    fn every_colour_of_the_sheet_is_there() {
        let sheet = sheet();
        for used in sheet.split("var(--").skip(1) {
            let name = used.split(')').next().unwrap();
            assert!(COLOURS.iter().any(|colour| colour.name == name), "{name}");
        }
        for forbidden in ["url(", "@import", "http", "</"] {
            assert!(!include_str!("style.css").contains(forbidden), "{forbidden}");
        }
    }
}
