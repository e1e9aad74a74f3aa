//! What a bare word means: YAML 1.1, where `yes` is a boolean and `0777` is octal.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::go_text;

const PREFIX: &str = "tag:yaml.org,2002:";
const STR_TAG: &str = "tag:yaml.org,2002:str";
const BINARY_TAG: &str = "tag:yaml.org,2002:binary";
pub(super) const MERGE_TAG: &str = "tag:yaml.org,2002:merge";

/// A resolved scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

impl Resolved {
    pub(super) fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Resolved::Null => Value::Null,
            Resolved::Bool(flag) => flag.into(),
            Resolved::Int(number) => number.into(),
            Resolved::Uint(number) => number.into(),
            Resolved::Float(number) => return float(number),
            Resolved::Text(text) => text.into(),
        })
    }
}

/// A float on its way through JSON text, where whole numbers lose their point and infinity has no form.
pub(super) fn float(number: f64) -> Result<Value, String> {
    if !number.is_finite() {
        return Err(format!("json: unsupported value: {}", go_float(number)));
    }
    // The bounds of 64-bit integers, as floats.
    const WHOLE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    match number.fract() == 0.0 && WHOLE.contains(&number) {
        true => Ok((number as i64).into()),
        false => Ok(number.into()),
    }
}

/// Resolves a scalar by its tag, or by its looks if it is plain.
pub(super) fn scalar(text: &str, plain: bool, tag: Option<&str>) -> Result<Resolved, String> {
    let kind = match tag {
        None if plain => return Ok(plain_word(text)),
        None | Some(STR_TAG) => return Ok(Resolved::Text(text.to_owned())),
        Some(BINARY_TAG) => return binary(text),
        Some(tag) => tag.strip_prefix(PREFIX).unwrap_or_default(),
    };
    let resolved = plain_word(text);
    match (kind, resolved) {
        ("bool", found @ Resolved::Bool(_))
        | ("int", found @ (Resolved::Int(_) | Resolved::Uint(_)))
        | ("float", found @ Resolved::Float(_))
        | ("null", found @ Resolved::Null) => Ok(found),
        ("float", Resolved::Int(number)) => Ok(Resolved::Float(number as f64)),
        ("timestamp", Resolved::Text(text)) if is_timestamp(&text) => Ok(Resolved::Text(text)),
        ("bool" | "int" | "float" | "null" | "timestamp", found) => {
            Err(format!("yaml: cannot decode {} `{text}` as a !!{kind}", short_tag(&found, text)))
        }
        // A tag nobody knows: text.
        _ => Ok(Resolved::Text(text.to_owned())),
    }
}

fn short_tag(found: &Resolved, text: &str) -> &'static str {
    match found {
        Resolved::Null => "!!null",
        Resolved::Bool(_) => "!!bool",
        Resolved::Int(_) | Resolved::Uint(_) => "!!int",
        Resolved::Float(_) => "!!float",
        Resolved::Text(_) if is_timestamp(text) => "!!timestamp",
        Resolved::Text(_) => "!!str",
    }
}

fn binary(text: &str) -> Result<Resolved, String> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match BASE64.decode(compact) {
        Ok(raw) => Ok(Resolved::Text(go_text::valid_text(&raw).into_owned())),
        Err(_) => Err("yaml: !!binary value contains invalid base64 data".to_owned()),
    }
}

/// Whether a word, written without quotes, would be read as something else than this text.
pub(super) fn needs_quotes(text: &str) -> bool {
    plain_word(text) != Resolved::Text(text.to_owned()) || text == "<<" || is_timestamp(text) || is_sexagesimal(text)
}

fn plain_word(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes() {
        [b'.', ..] => decimal(text).map(Resolved::Float),
        [b'+' | b'-' | b'0'..=b'9', ..] => numeric(&text.replace('_', "")),
        _ => None,
    };
    number.unwrap_or_else(|| Resolved::Text(text.to_owned()))
}

fn numeric(text: &str) -> Option<Resolved> {
    integer(text).or_else(|| decimal(text).map(Resolved::Float))
}

/// Whole numbers with the prefixes of Go: `0x`, `0o`, `0b`, and a plain `0` for octal.
fn integer(text: &str) -> Option<Resolved> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    match (negative, i64::try_from(number)) {
        (false, Ok(number)) => Some(Resolved::Int(number)),
        (true, Ok(number)) => Some(Resolved::Int(-number)),
        (true, Err(_)) => (number == i64::MIN.unsigned_abs()).then_some(Resolved::Int(i64::MIN)),
        // upstream: only an unsigned text can be a number past 63 bits.
        (false, Err(_)) => (!text.starts_with('+')).then_some(Resolved::Uint(number)),
    }
}

/// `1`, `1.5`, `.5`, `1.`, with or without an exponent; nothing that overflows.
fn decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().any(|b| b.is_ascii_digit());
    let plain = unsigned.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let number: f64 = (digits && plain).then(|| text.parse().ok()).flatten()?;
    number.is_finite().then_some(number)
}

/// The forms of a date or time: `2001-1-2`, with a time after a blank, or with `T`, a time and a zone.
fn is_timestamp(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return false };
    if year.len() != 4 || !digits(year, 4..=4) || !digits(month, 1..=2) {
        return false;
    }
    let day_length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (day, rest) = rest.split_at(day_length);
    let ranges = in_range(month, 1..=12) && digits(day, 1..=2) && day_exists(year, month, day);
    ranges
        && match rest.as_bytes() {
            [] => true,
            [b' ', ..] => clock(rest.trim_start_matches(' ')) == Some(""),
            [b'T' | b't', ..] => clock(&rest[1..]).is_some_and(is_zone),
            _ => false,
        }
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> bool {
    length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn in_range(text: &str, range: std::ops::RangeInclusive<u8>) -> bool {
    text.parse().is_ok_and(|number| range.contains(&number))
}

fn day_exists(year: &str, month: &str, day: &str) -> bool {
    match (year.parse(), month.parse(), day.parse()) {
        (Ok(year), Ok(month), Ok(day)) => jiff::civil::Date::new(year, month, day).is_ok(),
        _ => false,
    }
}

/// What follows a time of day, `15:4:5` with or without a fraction.
fn clock(text: &str) -> Option<&str> {
    let (hour, rest) = text.split_once(':')?;
    let (minute, rest) = rest.split_once(':')?;
    let second_length = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let (second, rest) = rest.split_at(second_length);
    let ranges = [(hour, 23), (minute, 59), (second, 59)];
    if !ranges.iter().all(|(text, max)| digits(text, 1..=2) && in_range(text, 0..=*max)) {
        return None;
    }
    let Some(fraction) = rest.strip_prefix(['.', ',']) else { return Some(rest) };
    let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if length == 0 { Some(rest) } else { fraction.get(length..) }
}

fn is_zone(text: &str) -> bool {
    let Some(offset) = text.strip_prefix(['+', '-']) else { return text == "Z" };
    let two_digits = |text, max| digits(text, 2..=2) && in_range(text, 0..=max);
    offset.split_once(':').is_some_and(|(hours, minutes)| two_digits(hours, 24) && two_digits(minutes, 60))
}

/// Numbers to the base of 60 (`1:30`) are never read as numbers, but quoted for the sake of others.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut groups = whole.split(':');
    let first = groups.next().unwrap_or_default();
    let mut groups = groups.peekable();
    let more = |b: u8| b.is_ascii_digit() || b == b'_';
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(more)
        && groups.peek().is_some()
        && groups.all(|group| digits(group, 1..=2) && in_range(group, 0..=59))
        && fraction.bytes().all(more)
}

/// A float as Go prints it: the fewest digits that tell it apart.
pub(super) fn go_float(number: f64) -> String {
    match number {
        n if n.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        n => shortest(format!("{n:e}")),
    }
}

/// A float as a key of a map: with the digits of a 32-bit number, and infinities as YAML writes them.
pub(super) fn short_float(number: f64) -> String {
    match go_float(f64::from(number as f32)).as_str() {
        "NaN" => ".nan".to_owned(),
        "+Inf" => ".inf".to_owned(),
        "-Inf" => "-.inf".to_owned(),
        _ => shortest(format!("{:e}", number as f32)),
    }
}

/// Rewrites Rust's exponent form: plain digits for small exponents, else a sign and at least two digits.
fn shortest(scientific: String) -> String {
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..6).contains(&exponent) {
        return plain_digits(mantissa, exponent);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn plain_digits(mantissa: &str, exponent: i32) -> String {
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let whole = usize::try_from(exponent + 1).unwrap_or(0);
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        return format!("{sign}0.{zeros}{digits}");
    }
    match digits.split_at_checked(whole) {
        Some((head, "")) => format!("{sign}{head}"),
        Some((head, tail)) => format!("{sign}{head}.{tail}"),
        None => format!("{sign}{digits}{}", "0".repeat(whole - digits.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_follow_yaml_1_1() {
        for (text, want) in [
            ("yes", Resolved::Bool(true)),
            ("Off", Resolved::Bool(false)),
            ("y", Resolved::Bool(true)),
            ("~", Resolved::Null),
            ("0777", Resolved::Int(511)),
            ("0o17", Resolved::Int(15)),
            ("0x1F", Resolved::Int(31)),
            ("-0b11", Resolved::Int(-3)),
            ("1_000", Resolved::Int(1000)),
            ("08", Resolved::Float(8.0)),
            ("1e3", Resolved::Float(1000.0)),
            (".5", Resolved::Float(0.5)),
            ("1.", Resolved::Float(1.0)),
            ("18446744073709551615", Resolved::Uint(u64::MAX)),
            ("-9223372036854775808", Resolved::Int(i64::MIN)),
        ] {
            assert_eq!(plain_word(text), want, "{text}");
        }
        for text in ["yEs", "1e999", "+", "-", ".", "0x", "1.2.3", "2001-01-01", "0-5", "infinity", "nan", "1e"] {
            assert_eq!(plain_word(text), Resolved::Text(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn quotes_are_needed_where_a_word_means_something() {
        for text in [
            "",
            "true",
            "no",
            "5",
            "1.5",
            "null",
            "2001-1-2",
            "2026-01-02T03:04:05Z",
            "2001-01-02 3:4:5",
            "1:30",
            "<<",
            "1_0",
        ] {
            assert!(needs_quotes(text), "{text}");
        }
        for text in ["a", "10.0.0.1", "v1", "2001-13-02", "1:75", "2026-01-02T03:04:05", "0.0.0.0/0", "5m", "1:30a"] {
            assert!(!needs_quotes(text), "{text}");
        }
    }

    #[test]
    fn tags_decide() {
        assert_eq!(scalar("5", true, Some(STR_TAG)), Ok(Resolved::Text("5".into())));
        assert_eq!(scalar("5", true, Some("tag:yaml.org,2002:float")), Ok(Resolved::Float(5.0)));
        assert_eq!(scalar("YQ==", true, Some(BINARY_TAG)), Ok(Resolved::Text("a".into())));
        assert_eq!(scalar("x", true, Some("!mine")), Ok(Resolved::Text("x".into())));
        assert_eq!(
            scalar("x", true, Some("tag:yaml.org,2002:int")),
            Err("yaml: cannot decode !!str `x` as a !!int".into())
        );
    }

    #[test]
    fn floats_print_as_in_go() {
        for (number, want) in [
            (1.5, "1.5"),
            (100.0, "100"),
            (1e5, "100000"),
            (1e6, "1e+06"),
            (1234567.5, "1.2345675e+06"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-0.25, "-0.25"),
        ] {
            assert_eq!(go_float(number), want);
        }
        assert_eq!(float(1e3), Ok(1000.into()));
        assert_eq!(float(f64::NEG_INFINITY), Err("json: unsupported value: -Inf".into()));
        assert_eq!(short_float(0.1), "0.1");
    }
}
