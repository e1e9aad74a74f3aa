//! Durations in Go's syntax: `300ms`, `1m30s`, `2h`, `0`.
//!
//! Flag values come from manifests written for Go programs, so this parser accepts what Go accepts, with the same result to the
//! nanosecond, and rejects what Go rejects. It also rejects negative durations, which are invalid for every option of Bowline.

use std::time::Duration;

/// Longest duration that Go can represent, about 292 years.
const LONGEST: u128 = i64::MAX as u128;

/// Units in nanoseconds. Both Unicode code points for "micro" are accepted.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

const SECOND: u64 = 1_000_000_000;

const EXPECTED: &str = "expected a duration such as 300ms, 1m30s or 2h";

/// Parses a duration as Go's flag package does. The error message contains the expected syntax.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(bowline_core::parse_duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(bowline_core::parse_duration("1d").unwrap_err().contains("24h"));
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanoseconds = if rest == "0" { 0 } else { sum(rest)? };
    if negative && nanoseconds > 0 {
        return Err(format!("a duration must not be negative; {EXPECTED}"));
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Sums terms such as `1m` and `30s`; at least one is required.
fn sum(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err(EXPECTED.to_owned());
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (term, remainder) = Term::split(rest)?;
        total = total.saturating_add(term.nanoseconds()?);
        rest = remainder;
    }
    if total > LONGEST {
        return Err(too_long());
    }
    u64::try_from(total).map_err(|_| too_long())
}

fn too_long() -> String {
    format!("longer than the maximum duration, {}", format_duration(Duration::from_nanos(i64::MAX as u64)))
}

/// A number with its unit, such as `1.5h`.
struct Term<'a> {
    whole: &'a str,
    fraction: &'a str,
    unit: u64,
}

impl<'a> Term<'a> {
    /// Splits off the first term of `text` and returns it with the remainder.
    fn split(text: &'a str) -> Result<(Term<'a>, &'a str), String> {
        let (whole, rest) = split_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        let end = rest.find(|next: char| next == '.' || next.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        Ok((Term { whole, fraction, unit: nanoseconds_of(unit)? }, rest))
    }

    fn nanoseconds(&self) -> Result<u128, String> {
        let digits = self.whole.bytes().map(|digit| u128::from(digit - b'0'));
        let whole = digits.fold(0_u128, |all, digit| all.saturating_mul(10).saturating_add(digit));
        if whole > LONGEST {
            return Err(too_long());
        }
        Ok(whole * u128::from(self.unit) + u128::from(self.fraction_nanoseconds()))
    }

    // upstream: Go computes the fraction in floating point, from as many digits as fit in 63 bits, and truncates the result.
    // Computed exactly, 0.3333333333333333333h would be a nanosecond short of 20m.
    fn fraction_nanoseconds(&self) -> u64 {
        const FITS: u64 = i64::MAX as u64;
        let (mut value, mut scale) = (0_u64, 1_f64);
        for digit in self.fraction.bytes().map(|digit| u64::from(digit - b'0')) {
            let Some(next) =
                value.checked_mul(10).and_then(|value| value.checked_add(digit)).filter(|all| *all <= FITS)
            else {
                break;
            };
            (value, scale) = (next, scale * 10.0);
        }
        (value as f64 * (self.unit as f64 / scale)) as u64
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanoseconds_of(unit: &str) -> Result<u64, String> {
    if let Some((_, nanoseconds)) = UNITS.iter().find(|(name, _)| *name == unit) {
        return Ok(*nanoseconds);
    }
    Err(match unit {
        "" => "missing unit; write 30s for thirty seconds, or 5m for five minutes".to_owned(),
        "d" => "unknown unit \"d\"; write 24h for a day".to_owned(),
        "w" => "unknown unit \"w\"; write 168h for a week".to_owned(),
        _ => format!("unknown unit {unit:?}; the units are ns, us, ms, s, m and h"),
    })
}

/// Formats a duration as Go does: `1m30s`, `12h0m0s`, `0s`.
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let second = u128::from(SECOND);
    match nanoseconds {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanoseconds, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanoseconds, 1_000_000)),
        _ => {
            let (minutes, rest) = (nanoseconds / (60 * second), nanoseconds % (60 * second));
            let seconds = format!("{}s", decimal(rest, second));
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

/// Formats `value / unit` as an exact decimal; `unit` is a power of ten.
fn decimal(value: u128, unit: u128) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let places = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{fraction:0places$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;

    #[test]
    fn durations_are_parsed_as_by_go_to_the_nanosecond() {
        let cases = [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("-0s", 0),
            ("5s", 5 * SECOND),
            ("+5s", 5 * SECOND),
            ("300ms", 300_000_000),
            ("1m30s", 90 * SECOND),
            ("2h", 2 * HOUR),
            ("1.5h", 90 * MINUTE),
            ("5.s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("3h30m", 3 * HOUR + 30 * MINUTE),
            ("10.5s4m", 4 * MINUTE + 10 * SECOND + SECOND / 2),
            ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4_005_006),
            ("52763797000ns", 52_763_797_000),
            ("0.3333333333333333333h", 20 * MINUTE),
            ("0.100000000000000000000h", 6 * MINUTE),
            ("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372_539_827),
            ("0.9223372036854775807h", 55 * MINUTE + 20 * SECOND + 413_933_267),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", i64::MAX as u64),
            ("9223372036854775.807us", i64::MAX as u64),
            ("9223372036s854ms775us807ns", i64::MAX as u64),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_rejected_with_the_expected_syntax() {
        let cases = [
            ("", "such as 300ms, 1m30s or 2h"),
            ("3", "missing unit; write 30s"),
            ("1m30", "missing unit"),
            ("-", "such as 300ms"),
            ("+", "such as 300ms"),
            ("s", "such as 300ms"),
            (".", "such as 300ms"),
            (".s", "such as 300ms"),
            ("+.s", "such as 300ms"),
            ("--1s", "such as 300ms"),
            ("five minutes", "such as 300ms"),
            (" 5s", "such as 300ms"),
            ("5s ", "unknown unit \"s \""),
            ("1d", "unknown unit \"d\"; write 24h"),
            ("1w", "write 168h"),
            ("3S", "the units are ns, us, ms, s, m and h"),
            ("\u{85}\u{85}", "such as 300ms"),
            ("-1s", "must not be negative"),
            ("-1m30s", "must not be negative"),
            ("9223372036854775808ns", "longer than the maximum"),
            ("9223372036854775.808us", "longer than the maximum"),
            ("9223372036854ms775us808ns", "longer than the maximum"),
            ("3000000h", "longer than the maximum"),
            ("99999999999999999999999999999999999999999999h", "longer than the maximum"),
        ];
        for (text, expected) in cases {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: expected {expected:?} in {error:?}");
        }
    }

    #[test]
    fn durations_are_formatted_as_by_go() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (300_000_000, "300ms"),
            (3_300_000_000, "3.3s"),
            (90 * SECOND, "1m30s"),
            (5 * MINUTE, "5m0s"),
            (4 * MINUTE + 5_001_000_000, "4m5.001s"),
            (5 * HOUR + 6 * MINUTE + 7_001_000_000, "5h6m7.001s"),
            (12 * HOUR, "12h0m0s"),
            (8 * MINUTE + 1, "8m0.000000001s"),
            (i64::MAX as u64, "2562047h47m16.854775807s"),
        ];
        for (nanoseconds, text) in cases {
            assert_eq!(format_duration(Duration::from_nanos(nanoseconds)), text);
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanoseconds)),
                "{text} parses to the same duration"
            );
        }
        assert!(format_duration(Duration::MAX).ends_with("15.999999999s"), "formatted although Go cannot represent it");
    }
}
