//! Each type against tables: what is read, how it is shown, what is refused and with which words.

use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span, UnitError};

fn rate(text: &str) -> Result<u64, String> {
    text.parse::<BitRate>().map(BitRate::bits_per_s).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>().map(ByteSize::bytes).map_err(|error| error.to_string())
}

fn nanos(text: &str) -> Result<u128, String> {
    text.parse::<Span>().map(|span| span.as_duration().as_nanos()).map_err(|e| e.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    text.parse::<Share>().map(Share::fraction).map_err(|error| error.to_string())
}

#[test]
fn rates_are_read() {
    for (text, bits) in [
        ("95mbit", 95_000_000),
        ("1gbit", 1_000_000_000),
        ("512kbit", 512_000),
        ("95 Mbit/s", 95_000_000),
        ("9600bit", 9_600),
        ("1.5mbit", 1_500_000),
        ("2TBIT/S", 2_000_000_000_000),
        ("  1 bit  ", 1),
        ("0.5bit", 1),
        ("0.0015kbit", 2),
        ("18446744073709551615bit", u64::MAX),
        ("18446744.073709551615tbit", u64::MAX),
    ] {
        assert_eq!(rate(text), Ok(bits), "{text:?}");
    }
}

#[test]
fn wrong_rates_are_refused_in_one_sentence() {
    let zero =
        "rate is 0: a link that carries nothing carries no test; write a rate such as 95mbit";
    let range = "a rate lies between 1bit and 18446744073709551615bit per second";
    let units = "bit, kbit, mbit, gbit or tbit, each with or without /s";
    let example = "write a rate such as 95mbit or 1.5gbit";
    for (text, sentence) in [
        ("", format!("nothing was given: {example}")),
        (" \t", format!("nothing was given: {example}")),
        ("0mbit", zero.to_owned()),
        ("0.4bit", zero.to_owned()),
        ("95", format!("\"95\" has no unit: {example}")),
        ("-1mbit", format!("\"-1mbit\" is negative: {range}")),
        ("18446744073709551616bit", format!("\"18446744073709551616bit\" is too large: {range}")),
        (
            "18446744.073709551616tbit",
            format!("\"18446744.073709551616tbit\" is too large: {range}"),
        ),
        ("fast", format!("\"fast\" does not begin with a number: {example}")),
        ("NaNbit", format!("\"NaNbit\" does not begin with a number: {example}")),
        (
            "95mbps",
            format!(
                "\"95mbps\" ends in \"mbps\", which is no unit of a rate: the units are {units}; \
                 {example}"
            ),
        ),
    ] {
        assert_eq!(rate(text), Err(sentence), "{text:?}");
    }
    for text in ["95MB/s", "95 M bit", "1.mbit", ".5mbit", "1e6bit", "+5mbit", "5mbit/s/s", "/s"] {
        assert!(rate(text).is_err(), "{text:?}");
    }
    assert_eq!(BitRate::from_bits_per_s(0), Err(UnitError::ZeroRate));
}

#[test]
fn rates_are_shown_in_the_largest_unit() {
    for (bits, text) in [
        (1, "1 bit/s"),
        (999, "999 bit/s"),
        (1_000, "1 kbit/s"),
        (95_000_000, "95 Mbit/s"),
        (1_500_000_000, "1.5 Gbit/s"),
        (999_999_999, "999.999999 Mbit/s"),
        (1_000_000_000_000, "1 Tbit/s"),
        (u64::MAX, "18446744.073709551615 Tbit/s"),
    ] {
        assert_eq!(BitRate::from_bits_per_s(bits).unwrap().to_string(), text);
    }
    let odd = BitRate::from_bits_per_s(94_964_999).unwrap();
    assert_eq!(format!("{odd:.1} {odd:.0} {odd:.2}"), "95 Mbit/s 95 Mbit/s 94.96 Mbit/s");
}

#[test]
fn time_to_send_is_exact_and_rounded_up() {
    let rate = |bits| BitRate::from_bits_per_s(bits).unwrap();
    for (bits, bytes, nanos) in [
        (8, 1, 1_000_000_000),
        (1_000_000_000, 1500, 12_000),
        (95_000_000, 1500, 126_316), // 126,315.789
        (3, 1, 2_666_666_667),
        (u64::MAX, 1, 1),
        (u64::MAX, u64::MAX, 8_000_000_000),
        (1, 0, 0),
    ] {
        assert_eq!(rate(bits).time_to_send(bytes), Duration::from_nanos(nanos), "{bits} {bytes}");
    }
    assert_eq!(rate(8).time_to_send(u64::MAX), Duration::from_secs(u64::MAX));
    assert_eq!(rate(7).time_to_send(u64::MAX), Duration::MAX);
}

#[test]
fn bytes_in_is_exact_and_rounded_down() {
    let rate = |bits| BitRate::from_bits_per_s(bits).unwrap();
    assert_eq!(rate(95_000_000).bytes_in(Duration::from_secs(1)), 11_875_000);
    assert_eq!(rate(95_000_000).bytes_in(Duration::from_nanos(126_316)), 1500);
    assert_eq!(rate(95_000_000).bytes_in(Duration::from_nanos(126_315)), 1499);
    assert_eq!(rate(1).bytes_in(Duration::from_nanos(7_999_999_999)), 0);
    assert_eq!(rate(1).bytes_in(Duration::from_secs(8)), 1);
    assert_eq!(rate(8).bytes_in(Duration::MAX), u64::MAX);
    assert_eq!(rate(7).bytes_in(Duration::from_secs(u64::MAX)), 16_140_901_064_495_857_663);
    assert_eq!(rate(u64::MAX).bytes_in(Duration::MAX), u64::MAX);
    assert!((rate(95_000_000).bytes_per_s() - 11_875_000.0).abs() < f64::EPSILON);
}

#[test]
fn sizes_are_read() {
    for (text, bytes) in [
        ("128KiB", 131_072),
        ("4MiB", 4_194_304),
        ("2MB", 2_000_000),
        ("4M", 4_194_304),
        ("4K", 4_096),
        ("4k", 4_096),
        ("4G", 4_294_967_296),
        ("1T", 1_099_511_627_776),
        ("1500B", 1_500),
        ("1000000", 1_000_000),
        ("0", 0),
        ("1.5 kib", 1_536),
        ("2.6 MB", 2_600_000),
        ("0.1KiB", 102),
        ("18446744073709551615", u64::MAX),
        ("16777215T", 18_446_742_974_197_923_840),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text:?}");
    }
}

#[test]
fn wrong_sizes_are_refused_in_one_sentence() {
    let range = "a size lies between 0B and 18446744073709551615B";
    let example = "write a size such as 128KiB, 2MB or 1500B";
    for (text, sentence) in [
        ("", format!("nothing was given: {example}")),
        ("-1", format!("\"-1\" is negative: {range}")),
        ("18446744073709551616", format!("\"18446744073709551616\" is too large: {range}")),
        ("16777216T", format!("\"16777216T\" is too large: {range}")),
        ("big", format!("\"big\" does not begin with a number: {example}")),
    ] {
        assert_eq!(size(text), Err(sentence), "{text:?}");
    }
    let message = size("4Mbit").unwrap_err();
    assert!(message.starts_with("\"4Mbit\" ends in \"Mbit\", which is no unit of a size"));
    let long = format!("{}B", "9".repeat(1000));
    assert!(size(&long).unwrap_err().len() < 200);
}

#[test]
fn sizes_are_shown_binary_where_even_and_decimal_elsewhere() {
    for (bytes, text) in [
        (0, "0 B"),
        (512, "512 B"),
        (999, "999 B"),
        (1_000, "1 kB"),
        (1_023, "1 kB"),
        (1_024, "1 KiB"),
        (1_500, "1.5 kB"),
        (131_072, "128 KiB"),
        (4_194_304, "4 MiB"),
        (2_000_000, "2 MB"),
        (2_614_321, "2.6 MB"),
        (999_949, "999.9 kB"),
        (999_950, "1 MB"),
        (1 << 40, "1 TiB"),
        (u64::MAX, "18.4 EB"),
    ] {
        assert_eq!(ByteSize::from_bytes(bytes).to_string(), text, "{bytes}");
    }
    assert_eq!(ByteSize::from_bytes(1_000_000).grouped(), "1,000,000");
}

#[test]
fn times_are_read() {
    for (text, expected) in [
        ("217ms", 217_000_000),
        ("1.5s", 1_500_000_000),
        ("100us", 100_000),
        ("100\u{b5}s", 100_000),
        ("100\u{3bc}s", 100_000),
        ("2min", 120_000_000_000),
        ("0ms", 0),
        ("0", 0),
        (" 0 ", 0),
        ("1h", 3_600_000_000_000),
        ("7 NS", 7),
        ("0.5ns", 1),
        ("0.4ns", 0),
        ("18446744073709551615.999999999s", Duration::MAX.as_nanos()),
    ] {
        assert_eq!(nanos(text), Ok(expected), "{text:?}");
    }
}

#[test]
fn wrong_times_are_refused_in_one_sentence() {
    let range = "a time lies between 0s and 18446744073709551615s";
    let example = "write a time such as 217ms or 1.5s";
    for (text, sentence) in [
        ("217", format!("\"217\" has no unit: {example}")),
        ("0.0", format!("\"0.0\" has no unit: {example}")),
        ("-5ms", format!("\"-5ms\" is negative: {range}")),
        ("18446744073709551616s", format!("\"18446744073709551616s\" is too large: {range}")),
        ("inf", format!("\"inf\" does not begin with a number: {example}")),
        ("-", format!("\"-\" does not begin with a number: {example}")),
    ] {
        assert_eq!(nanos(text), Err(sentence), "{text:?}");
    }
    assert!(nanos("5m").unwrap_err().contains("\"m\", which is no unit of a time"));
    assert!(nanos("5 ms 3").is_err());
}

#[test]
fn times_are_shown_exactly_or_as_asked() {
    for (nanos, text) in [
        (0, "0 ms"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (217_000_000, "217 ms"),
        (108_500_000, "108.5 ms"),
        (999_999_999, "999.999999 ms"),
        (1_500_000_000, "1.5 s"),
        (1_000_000_001, "1.000000001 s"),
        (120_000_000_000, "120 s"),
    ] {
        assert_eq!(Span::from(Duration::from_nanos(nanos)).to_string(), text);
    }
    let span = Span::from(Duration::from_nanos(217_049_999));
    assert_eq!(format!("{span:.1} {span:.0} {span:.3}"), "217 ms 217 ms 217.05 ms");
    assert_eq!(Span::from(Duration::MAX).to_string(), "18446744073709551615.999999999 s");
}

#[test]
fn shares_are_read() {
    for (text, fraction) in [
        ("0%", 0.0),
        ("0.034%", 0.00034),
        ("1 %", 0.01),
        ("50%", 0.5),
        ("100%", 1.0),
        ("100.000%", 1.0),
        ("99.99%", 0.9999),
    ] {
        assert_eq!(share(text), Ok(fraction), "{text:?}");
    }
}

#[test]
fn wrong_shares_are_refused_in_one_sentence() {
    let range = "a share lies between 0% and 100%";
    let example = "write a share such as 0.034%";
    for (text, sentence) in [
        ("-1%", format!("\"-1%\" is negative: {range}")),
        ("100.01%", format!("\"100.01%\" is too large: {range}")),
        ("100.00000000000000001%", format!("\"100.00000000000000001%\" is too large: {range}")),
        ("0.5", format!("\"0.5\" has no unit: {example}")),
        ("NaN%", format!("\"NaN%\" does not begin with a number: {example}")),
        ("%", format!("\"%\" does not begin with a number: {example}")),
    ] {
        assert_eq!(share(text), Err(sentence), "{text:?}");
    }
    for (fraction, sentence) in [
        (-0.01, "\"-1%\" is negative: a share lies between 0% and 100%"),
        (1.5, "\"150%\" is too large: a share lies between 0% and 100%"),
        (f64::INFINITY, "\"inf%\" is too large: a share lies between 0% and 100%"),
        (f64::NEG_INFINITY, "\"-inf%\" is negative: a share lies between 0% and 100%"),
        (f64::NAN, "\"NaN%\" does not begin with a number: write a share such as 0.034%"),
    ] {
        assert_eq!(Share::from_fraction(fraction).unwrap_err().to_string(), sentence);
    }
}

#[test]
fn shares_are_shown_without_trailing_zeros() {
    for (fraction, text) in [
        (0.0, "0 %"),
        (-0.0, "0 %"),
        (0.00034, "0.034 %"),
        (0.1, "10 %"),
        (0.07, "7 %"),
        (1.0, "100 %"),
        (1e-9, "0.0000001 %"),
        (1.0 / 3.0, "33.3333333333 %"),
    ] {
        assert_eq!(Share::from_fraction(fraction).unwrap().to_string(), text);
    }
    let third = Share::from_fraction(1.0 / 3.0).unwrap();
    assert_eq!(format!("{third:.1} {third:.0}"), "33.3 % 33 %");
    assert_eq!(format!("{:.2} {:.0}", Share::ALL, Share::ALL), "100 % 100 %");
}

#[test]
fn serde_uses_the_text() {
    let rate: BitRate = serde_json::from_str("\"95mbit\"").unwrap();
    assert_eq!(serde_json::to_string(&rate).unwrap(), "\"95 Mbit/s\"");
    let share: Share = serde_json::from_str("\"0.034%\"").unwrap();
    assert_eq!(serde_json::to_string(&share).unwrap(), "\"0.034 %\"");
    let span: Span = serde_json::from_str("\"217 ms\"").unwrap();
    assert_eq!(serde_json::to_string(&span).unwrap(), "\"217 ms\"");
    let size: ByteSize = serde_json::from_str("\"4M\"").unwrap();
    assert_eq!(serde_json::to_string(&size).unwrap(), "\"4 MiB\"");

    let error = serde_json::from_str::<BitRate>("95").unwrap_err().to_string();
    assert!(error.contains("expected a rate in quotation marks, such as \"95mbit\""), "{error}");
    let error = serde_json::from_str::<Span>("\"217\"").unwrap_err().to_string();
    assert!(error.contains("\"217\" has no unit"), "{error}");
}
