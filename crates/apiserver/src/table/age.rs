//! Human-readable ages for table columns, in kubectl's format.

use jiff::Timestamp;
use serde_json::Value;

use crate::value::Json;

/// Reference time for all ages of one table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Timestamp);

impl Clock {
    pub(super) fn at(now: Timestamp) -> Clock {
        Clock(now)
    }

    /// Returns the age of a timestamp, `<unknown>` if there is none.
    pub(super) fn since(self, time: &Value) -> String {
        match timestamp(time) {
            Some(then) => self.elapsed(then),
            None => "<unknown>".to_owned(),
        }
    }

    /// Returns the time since `then`.
    pub(super) fn elapsed(self, then: Timestamp) -> String {
        duration(self.0.duration_since(then).as_secs())
    }

    /// Returns the age of the object.
    pub(super) fn age(self, object: &Value) -> Value {
        self.since(object.at("metadata.creationTimestamp")).into()
    }
}

/// Parses a timestamp field. Returns `None` if it is unset or invalid.
pub(super) fn timestamp(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Formats a duration with its largest unit, and the next smaller one where that is significant.
fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        // One second of clock skew is not an error.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 8 * 24 => two_units(days, "d", hours % 24, "h"),
        () if days < 2 * 365 => format!("{days}d"),
        () if days < 8 * 365 => two_units(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

fn two_units(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_durations_have_coarser_units() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 5, "2m5s"),
            (10 * MINUTE + 5, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR + MINUTE, "8h"),
            (48 * HOUR - 1, "47h"),
            (48 * HOUR, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR + DAY, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text, "{seconds} s");
        }
    }

    #[test]
    fn unset_timestamp_has_an_unknown_age() {
        let clock = Clock::at("2024-01-01T00:01:00Z".parse().unwrap());
        assert_eq!(clock.since(&Value::Null), "<unknown>");
        assert_eq!(clock.since(&"2024-01-01T00:00:00Z".into()), "60s");
        assert_eq!(clock.since(&"2024-01-01T00:00:00.500000Z".into()), "59s");
    }
}
