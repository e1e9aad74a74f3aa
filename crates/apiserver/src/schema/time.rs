//! Parses and formats API times: RFC 3339 with second precision (`Time`) or exactly six fractional digits (`MicroTime`),
//! always in UTC.
//!
//! Accepted input and error messages are those of Go's `time.Parse`, which matches a layout element by element and names
//! the first element that does not match.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use serde_json::Value;

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// Go's zero time, which counts as unset.
const UNSET: DateTime = DateTime::constant(1, 1, 1, 0, 0, 0, 0);

/// Parses an RFC 3339 time and formats it in UTC with second precision.
pub(super) fn seconds(text: &str) -> Result<Value, String> {
    Ok(write_seconds(parse(text, false)?))
}

/// Parses a time with exactly six fractional digits and formats it in UTC.
pub(super) fn micros(text: &str) -> Result<Value, String> {
    Ok(write_micros(parse(text, true)?))
}

/// Formats a protobuf timestamp with second precision.
pub(super) fn seconds_from_unix(seconds: i64) -> Result<Value, String> {
    from_unix(seconds, 0).map(write_seconds)
}

/// Formats a protobuf timestamp, truncated to microseconds.
pub(super) fn micros_from_unix(seconds: i64, nanos: i32) -> Result<Value, String> {
    from_unix(seconds, nanos - nanos % 1000).map(write_micros)
}

fn from_unix(seconds: i64, nanos: i32) -> Result<DateTime, String> {
    let at = EPOCH.checked_add(SignedDuration::from_secs(seconds));
    check_year(at.and_then(|at| at.checked_add(SignedDuration::from_nanos(nanos.into()))).ok())
}

/// Rejects years that do not have four digits, because they cannot be parsed again.
fn check_year(at: Option<DateTime>) -> Result<DateTime, String> {
    at.filter(|at| at.year() >= 0).ok_or_else(|| "year is outside of range [0,9999]".to_owned())
}

fn write_seconds(at: DateTime) -> Value {
    match at {
        UNSET => Value::Null,
        at => format!("{}Z", date_and_time(at)).into(),
    }
}

fn write_micros(at: DateTime) -> Value {
    match at {
        UNSET => Value::Null,
        at => format!("{}.{:06}Z", date_and_time(at), at.subsec_nanosecond() / 1000).into(),
    }
}

fn date_and_time(at: DateTime) -> String {
    let (year, month, day) = (at.year(), at.month(), at.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())
}

fn parse(text: &str, micros: bool) -> Result<DateTime, String> {
    let mut parser = Parser { text, rest: text, layout: if micros { MICROS_LAYOUT } else { SECONDS_LAYOUT } };
    let year = parser.year()?;
    parser.literal("-")?;
    let month = parser.number("01", 2, 1..=12, "month")?;
    parser.literal("-")?;
    let day = parser.number("02", 2, 0..=99, "day")?;
    parser.literal("T")?;
    let hour = parser.number("15", 1, 0..=23, "hour")?;
    parser.literal(":")?;
    let minute = parser.number("04", 2, 0..=59, "minute")?;
    parser.literal(":")?;
    let second = parser.number("05", 2, 0..=59, "second")?;
    let nanos = if micros { parser.six_digits()? } else { parser.optional_fraction() };
    let offset = parser.offset()?;
    if !parser.rest.is_empty() {
        return Err(parser.parse_error(&format!(": extra text: {}", quote(parser.rest))));
    }
    let date = Date::new(year, month, day).map_err(|_| parser.parse_error(": day out of range"))?;
    let local = date.at(hour, minute, second, nanos);
    check_year(local.checked_sub(SignedDuration::from_secs(offset)).ok())
}

/// Parser state: the rest of the text to match against the layout.
struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Parser<'a> {
    fn parse_error(&self, why: &str) -> String {
        format!("parsing time {}{why}", quote(self.text))
    }

    /// The error for a layout element that does not match the rest of the text.
    fn unmatched(&self, element: &str) -> String {
        let rest = quote(self.rest);
        self.parse_error(&format!(" as {}: cannot parse {rest} as {}", quote(self.layout), quote(element)))
    }

    fn literal(&mut self, element: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(element).ok_or_else(|| self.unmatched(element))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i16, String> {
        self.digits(4).and_then(|d| d.parse().ok()).ok_or_else(|| self.unmatched("2006"))
    }

    /// Parses one or two digits within a range; at least `min_digits` are required.
    fn number(
        &mut self,
        element: &str,
        min_digits: usize,
        range: std::ops::RangeInclusive<i8>,
        name: &str,
    ) -> Result<i8, String> {
        let digits = self.digits(2).or_else(|| self.digits(min_digits)).ok_or_else(|| self.unmatched(element))?;
        match digits.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(self.parse_error(&format!(": {name} out of range"))),
        }
    }

    /// Takes exactly `count` digits, if present.
    fn digits(&mut self, count: usize) -> Option<&'a str> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        self.rest = rest;
        Some(digits)
    }

    /// Parses a fraction after the seconds, which Go accepts even if the layout has none.
    fn optional_fraction(&mut self) -> i32 {
        let Some(fraction) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return 0;
        }
        let (digits, rest) = fraction.split_at(length);
        self.rest = rest;
        digits.bytes().chain(std::iter::repeat(b'0')).take(9).fold(0, |n, b| n * 10 + i32::from(b - b'0'))
    }

    fn six_digits(&mut self) -> Result<i32, String> {
        let before = self.rest;
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(rest) => {
                self.rest = rest;
                self.digits(6)
            }
            None => None,
        };
        match digits.and_then(|d| d.parse::<i32>().ok()) {
            Some(micros) => Ok(micros * 1000),
            None => {
                self.rest = before;
                Err(self.unmatched(".000000"))
            }
        }
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let (sign, hours, minutes, rest) = split_offset(self.rest).ok_or_else(|| self.unmatched("Z07:00"))?;
        // upstream: 24 hours and 60 minutes are accepted.
        let range = [(hours > 24, "hour"), (minutes > 60, "minute")];
        if let Some((_, unit)) = range.into_iter().find(|(out, _)| *out) {
            return Err(self.parse_error(&format!(": time zone offset {unit} out of range")));
        }
        self.rest = rest;
        Ok(sign * (hours * 60 + minutes) * 60)
    }
}

/// Splits `+02:00` into sign, hours, minutes and the remaining text.
fn split_offset(text: &str) -> Option<(i64, i64, i64, &str)> {
    let (offset, rest) = text.split_at_checked(6)?;
    let sign = match offset.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let two_digits = |t: &str| t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit());
    if !two_digits(hours) || !two_digits(minutes) {
        return None;
    }
    Some((sign, hours.parse().ok()?, minutes.parse().ok()?, rest))
}

/// Quotes a string byte by byte, as Go's time package does.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        for (text, want) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.999999999-00:30", "2026-01-02T03:34:05Z"),
            ("2026-01-02T3:04:05,5Z", "2026-01-02T03:04:05Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z"),
        ] {
            assert_eq!(seconds(text), Ok(want.into()), "{text}");
        }
        assert_eq!(seconds("0001-01-01T00:00:00Z"), Ok(Value::Null));
        assert_eq!(micros("2026-01-02T05:04:05.000001+02:00"), Ok("2026-01-02T03:04:05.000001Z".into()));
    }

    #[test]
    fn errors_name_the_first_element_that_does_not_match() {
        let cannot = |text: &str, layout: &str, rest: &str, element: &str| {
            Err::<Value, String>(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}"))
        };
        for (text, rest, element) in [
            ("", "", "2006"),
            ("yesterday", "yesterday", "2006"),
            ("2026/01/02", "/01/02", "-"),
            ("2026-1-02T03:04:05Z", "1-02T03:04:05Z", "01"),
            ("2026-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("2026-01-02", "", "T"),
            ("2026-01-02T03:04:05", "", "Z07:00"),
            ("2026-01-02T03:04:05+0200", "+0200", "Z07:00"),
            ("2026-01-02T03:04:05.Z", ".Z", "Z07:00"),
        ] {
            assert_eq!(seconds(text), cannot(text, SECONDS_LAYOUT, rest, element));
        }
        for (text, rest, element) in [
            ("yesterday", "yesterday", "2006"),
            ("2024-01-02T03:04:05Z", "Z", ".000000"),
            ("2024-01-02T03:04:05.123456789Z", "789Z", "Z07:00"),
            ("2024-01-02T05:04:05.5+02:00", ".5+02:00", ".000000"),
        ] {
            assert_eq!(micros(text), cannot(text, MICROS_LAYOUT, rest, element));
        }
    }

    #[test]
    fn errors_name_the_number_out_of_range() {
        for (text, why) in [
            ("2026-13-02T03:04:05Z", ": month out of range"),
            ("2026-02-30T03:04:05Z", ": day out of range"),
            ("2026-02-03T24:04:05Z", ": hour out of range"),
            ("2026-02-03T23:60:05Z", ": minute out of range"),
            ("2026-02-03T23:00:60Z", ": second out of range"),
            ("2026-02-03T23:00:00+25:00", ": time zone offset hour out of range"),
            ("2026-02-03T23:00:00Zulu", ": extra text: \"ulu\""),
        ] {
            assert_eq!(seconds(text), Err(format!("parsing time {text:?}{why}")));
        }
    }

    #[test]
    fn unix_times_are_truncated_to_the_json_precision() {
        assert_eq!(seconds_from_unix(0), Ok("1970-01-01T00:00:00Z".into()));
        assert_eq!(seconds_from_unix(-62_135_596_800), Ok(Value::Null));
        assert_eq!(micros_from_unix(1, 1999), Ok("1970-01-01T00:00:01.000001Z".into()));
        assert!(seconds_from_unix(i64::MAX).is_err());
        assert!(micros_from_unix(i64::MIN, i32::MIN).is_err());
    }
}
