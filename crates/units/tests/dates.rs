//! Moments as dates and times of UTC.

use std::time::{Duration, UNIX_EPOCH};

use lastbyte_units::UtcTime;

#[test]
fn dates_to_the_minute_follow_the_calendar() {
    for (seconds, shown) in [
        (0, "1970-01-01 00:00 UTC"),
        (951_782_400, "2000-02-29 00:00 UTC"),
        (951_868_800, "2000-03-01 00:00 UTC"),
        (1_767_225_599, "2025-12-31 23:59 UTC"),
        (1_767_225_600, "2026-01-01 00:00 UTC"),
        (4_107_542_400, "2100-03-01 00:00 UTC"),
        (253_402_300_799, "9999-12-31 23:59 UTC"),
    ] {
        let time = Duration::from_secs(seconds);
        assert_eq!(UtcTime::since_1970(time).unwrap().to_string(), shown);
        assert_eq!(UtcTime::of(UNIX_EPOCH + time), UtcTime::since_1970(time));
    }
}

#[test]
fn dates_to_the_millisecond_follow_the_calendar() {
    for (millis, shown) in [
        (0, "1970-01-01 00:00:00.000Z"),
        (951_782_399_999, "2000-02-28 23:59:59.999Z"),
        (951_782_400_000, "2000-02-29 00:00:00.000Z"),
        (1_709_164_800_000, "2024-02-29 00:00:00.000Z"),
        (4_107_542_399_000, "2100-02-28 23:59:59.000Z"),
        (4_107_542_400_000, "2100-03-01 00:00:00.000Z"),
    ] {
        let time = UtcTime::since_1970(Duration::from_millis(millis)).unwrap();
        assert_eq!(time.with_millis(), shown);
    }
}

#[test]
fn times_after_the_year_9999_have_no_date() {
    for seconds in [253_402_300_800, i64::MAX as u64, u64::MAX] {
        assert_eq!(UtcTime::since_1970(Duration::from_secs(seconds)), None);
    }
}
