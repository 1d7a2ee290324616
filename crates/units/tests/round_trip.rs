//! What is shown can be read again, and no text whatsoever makes reading panic.

use std::time::Duration;

use lastbyte_units::{BitRate, ByteSize, Share, Span};
use proptest::prelude::*;

/// Texts that look like values more often than arbitrary ones do.
const NEARLY: &str = "-?[0-9]{0,45}\\.?[0-9]{0,30} ?[kmgtuµ]?(bit|bit/s|B|iB|s|min|%|e9)?";

fn parse_all(text: &str) {
    let _ = text.parse::<BitRate>().map_err(|error| error.to_string());
    let _ = text.parse::<ByteSize>().map_err(|error| error.to_string());
    let _ = text.parse::<Share>().map_err(|error| error.to_string());
    let _ = text.parse::<Span>().map_err(|error| error.to_string());
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        parse_all(&text);
    }

    #[test]
    fn no_nearly_right_text_panics(text in NEARLY) {
        parse_all(&text);
    }

    #[test]
    fn a_rate_comes_back_exactly(bits in 1..=u64::MAX, shift in 0..63_u32) {
        let rate = BitRate::from_bits_per_s((bits >> shift).max(1)).unwrap();
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
    }

    #[test]
    fn a_span_comes_back_exactly(seconds: u64, nanos in 0..1_000_000_000_u32, shift in 0..64_u32) {
        let span = Span::from(Duration::new(seconds >> shift, nanos));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
    }

    /// One digit after the point of at least one: half a tenth is at most 5 % of it.
    #[test]
    fn a_size_comes_back_within_its_last_digit(bytes: u64, shift in 0..64_u32) {
        let size = ByteSize::from_bytes(bytes >> shift);
        let read: ByteSize = size.to_string().parse().unwrap();
        let error = read.bytes().abs_diff(size.bytes());
        prop_assert!(error as f64 <= size.bytes() as f64 * 0.05, "{} {}", size.bytes(), size);
    }

    #[test]
    fn an_even_size_comes_back_exactly(count in 1..=1_u64 << 24, unit in 1..=4_u32) {
        let bytes = count.checked_mul(1 << (10 * unit));
        prop_assume!(bytes.is_some());
        let size = ByteSize::from_bytes(bytes.unwrap());
        prop_assert_eq!(size.to_string().parse(), Ok(size));
    }

    #[test]
    fn a_share_comes_back_to_twelve_digits(fraction in 0.0..=1.0_f64, scale in 0..20_i32) {
        let share = Share::from_fraction(fraction * 10_f64.powi(-scale)).unwrap();
        let read: Share = share.to_string().parse().unwrap();
        let error = (read.fraction() - share.fraction()).abs();
        prop_assert!(error <= share.fraction() * 1e-11, "{:?} {}", share, share);
    }

    /// Sending never takes less time than it must, and never a whole nanosecond more.
    #[test]
    fn sending_and_its_time_fit(bits in 1..=1_u64 << 50, bytes in 0..1_u64 << 40) {
        let rate = BitRate::from_bits_per_s(bits).unwrap();
        let time = rate.time_to_send(bytes);
        prop_assert!(rate.bytes_in(time) >= bytes);
        if let Some(less) = time.checked_sub(Duration::from_nanos(1)) {
            prop_assert!(rate.bytes_in(less) < bytes || bytes == 0);
        }
    }
}
