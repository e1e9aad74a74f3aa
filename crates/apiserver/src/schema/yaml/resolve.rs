//! Resolves scalars as YAML 1.1 does, where `yes` is a boolean and `0777` is octal.

use serde_json::Value;

const CORE_TAGS: &str = "tag:yaml.org,2002:";
const STR_TAG: &str = "tag:yaml.org,2002:str";

/// A resolved scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

impl Scalar {
    pub(super) fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(flag) => flag.into(),
            Scalar::Int(number) => number.into(),
            Scalar::Uint(number) => number.into(),
            Scalar::Float(number) => return float(number),
            Scalar::Text(text) => text.into(),
        })
    }
}

/// Converts a float to JSON: integers lose their decimal point, and infinity is an error.
pub(super) fn float(number: f64) -> Result<Value, String> {
    if !number.is_finite() {
        return Err(format!("json: unsupported value: {number}"));
    }
    // The bounds of 64-bit integers, as floats.
    const WHOLE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    match number.fract() == 0.0 && WHOLE.contains(&number) {
        true => Ok((number as i64).into()),
        false => Ok(number.into()),
    }
}

/// Resolves a scalar by its tag, or by its text if it is plain. A tag that is not a core tag makes it a string.
pub(super) fn scalar(text: &str, is_plain: bool, tag: Option<&str>) -> Scalar {
    match tag {
        None if is_plain => plain(text),
        Some(tag) if tag != STR_TAG && tag.starts_with(CORE_TAGS) => plain(text),
        _ => Scalar::Text(text.to_owned()),
    }
}

/// Whether a string needs quotes because parsers would read it as a number, date, boolean or null.
pub(super) fn is_ambiguous(text: &str) -> bool {
    let numeric = text.strip_prefix(['+', '-', '.']).unwrap_or(text).starts_with(|c: char| c.is_ascii_digit());
    numeric || plain(text) != Scalar::Text(text.to_owned()) || text == "<<" || text.starts_with("...")
}

fn plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes() {
        [b'.', ..] => decimal(text).map(Scalar::Float),
        [b'+' | b'-' | b'0'..=b'9', ..] => numeric(&text.replace('_', "")),
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.to_owned()))
}

fn numeric(text: &str) -> Option<Scalar> {
    integer(text).or_else(|| decimal(text).map(Scalar::Float))
}

/// Parses integers with Go's prefixes: `0x`, `0o`, `0b`, and a leading `0` for octal.
fn integer(text: &str) -> Option<Scalar> {
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
        (false, Ok(number)) => Some(Scalar::Int(number)),
        (true, Ok(number)) => Some(Scalar::Int(-number)),
        (true, Err(_)) => (number == i64::MIN.unsigned_abs()).then_some(Scalar::Int(i64::MIN)),
        // upstream: only a number without a sign can exceed 63 bits.
        (false, Err(_)) => (!text.starts_with('+')).then_some(Scalar::Uint(number)),
    }
}

/// Parses `1`, `1.5`, `.5` and `1.`, with or without an exponent; `None` on overflow.
fn decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().any(|b| b.is_ascii_digit());
    let plain = unsigned.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let number: f64 = (digits && plain).then(|| text.parse().ok()).flatten()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_resolved_as_yaml_1_1() {
        for (text, want) in [
            ("yes", Scalar::Bool(true)),
            ("Off", Scalar::Bool(false)),
            ("y", Scalar::Bool(true)),
            ("~", Scalar::Null),
            ("0777", Scalar::Int(511)),
            ("0o17", Scalar::Int(15)),
            ("0x1F", Scalar::Int(31)),
            ("-0b11", Scalar::Int(-3)),
            ("1_000", Scalar::Int(1000)),
            ("08", Scalar::Float(8.0)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("1.", Scalar::Float(1.0)),
            ("18446744073709551615", Scalar::Uint(u64::MAX)),
            ("-9223372036854775808", Scalar::Int(i64::MIN)),
        ] {
            assert_eq!(plain(text), want, "{text}");
        }
        for text in ["yEs", "1e999", "+", "-", ".", "0x", "1.2.3", "2001-01-01", "0-5", "infinity", "nan", "1e"] {
            assert_eq!(plain(text), Scalar::Text(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn ambiguous_strings_need_quotes() {
        for text in ["", "true", "no", "5", "1.5", "null", "2001-1-2", "2026-01-02T03:04:05Z", "1:30", "<<", "1_0"] {
            assert!(is_ambiguous(text), "{text}");
        }
        for text in ["a", "v1", "example.com", "fe80::1", "-a"] {
            assert!(!is_ambiguous(text), "{text}");
        }
    }

    #[test]
    fn tags_override_the_resolved_type() {
        assert_eq!(scalar("5", true, Some(STR_TAG)), Scalar::Text("5".into()));
        assert_eq!(scalar("5", false, Some("tag:yaml.org,2002:int")), Scalar::Int(5));
        assert_eq!(scalar("5", true, Some("!mine")), Scalar::Text("5".into()));
    }

    #[test]
    fn integral_floats_become_integers() {
        assert_eq!(float(1e3), Ok(1000.into()));
        assert!(float(f64::NEG_INFINITY).is_err());
    }
}
