//! Parsers for values. Errors have a hint with the expected value.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use bowline_core::IpFamily;

use super::declared::Kind;
use crate::{Secret, parse_duration};

/// Error message and hint.
pub(super) type ValueError = (String, String);

/// Type of a field in a [`keys!`](super::keys) struct.
pub trait Value: Default {
    /// Kind of the key.
    const KIND: Kind;

    /// Parses the occurrences of the key in the file; `None` is a key without a value. Returns `None` if the value is invalid.
    fn read(texts: &[Option<&str>]) -> Option<Self>;
}

/// Type of a single value.
pub trait Item: Sized {
    /// Kind of the key.
    const KIND: Kind;

    /// Parses a value; `None` if it is invalid.
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! items {
    ($($ty:ty, $kind:expr, $parse:expr;)*) => {
        $(
            impl Item for $ty {
                const KIND: Kind = $kind;

                fn parse(text: &str) -> Option<$ty> {
                    $parse(text)
                }
            }
        )*
    };
}

macro_rules! values {
    ($($ty:ty)*) => {
        $(
            impl Value for $ty {
                const KIND: Kind = <$ty as Item>::KIND;

                fn read(texts: &[Option<&str>]) -> Option<$ty> {
                    // Only a boolean key may have no value.
                    <$ty>::parse((*texts.last()?).unwrap_or("true"))
                }
            }
        )*
    };
}

items! {
    String, Kind::Text, |text: &str| Some(text.to_owned());
    Secret, Kind::Secret, |text: &str| Some(text.into());
    PathBuf, Kind::Text, |text: &str| Some(text.into());
    bool, Kind::Bool, |text| boolean(text).ok();
    i64, Kind::Integer, |text| integer(text).ok();
    u64, Kind::Unsigned, |text| unsigned(text).ok();
    usize, Kind::Unsigned, |text| unsigned(text).ok()?.try_into().ok();
    NonZeroU64, Kind::Count, |text| unsigned(text).ok().and_then(NonZeroU64::new);
    f64, Kind::Positive, |text| positive(text).ok();
    Duration, Kind::Duration, |text| duration(text).ok();
    IpFamily, Kind::OneOf(&["IPv4", "IPv6"]), ip_family;
}

values! { String Secret PathBuf bool i64 u64 usize f64 Duration }

impl<T: Item> Value for Option<T> {
    const KIND: Kind = T::KIND;

    fn read(texts: &[Option<&str>]) -> Option<Option<T>> {
        match texts.last() {
            None => Some(None),
            Some(text) => T::parse(text.unwrap_or("true")).map(Some),
        }
    }
}

impl<T: Item> Value for Vec<T> {
    const KIND: Kind = Kind::List(&T::KIND);

    fn read(texts: &[Option<&str>]) -> Option<Vec<T>> {
        let last_alone = texts.iter().rposition(Option::is_none).map_or(0, |alone| alone + 1);
        texts.iter().skip(last_alone).flatten().map(|text| T::parse(text)).collect()
    }
}

impl Value for BTreeMap<String, String> {
    const KIND: Kind = Kind::Map;

    fn read(texts: &[Option<&str>]) -> Option<BTreeMap<String, String>> {
        map((*texts.last()?)?).ok()
    }
}

fn ip_family(text: &str) -> Option<IpFamily> {
    match text {
        "IPv4" => Some(IpFamily::IPv4),
        "IPv6" => Some(IpFamily::IPv6),
        _ => None,
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, ValueError> {
    match text.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err((format!("{text:?} is neither true nor false"), "write true or false".to_owned())),
    }
}

pub(super) fn integer(text: &str) -> Result<i64, ValueError> {
    let (negative, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.trim().strip_prefix('+').unwrap_or(text.trim())),
    };
    let number = magnitude(digits).map(i128::from).map(|number| if negative { -number } else { number });
    number.and_then(|number| i64::try_from(number).ok()).ok_or_else(|| invalid_number(text))
}

// upstream: no sign at all, not even a plus.
pub(super) fn unsigned(text: &str) -> Result<u64, ValueError> {
    magnitude(text.trim()).ok_or_else(|| {
        let (message, hint) = invalid_number(text);
        (message, format!("{hint} that is not negative"))
    })
}

/// Parses a number above 0, such as a rate.
pub(super) fn positive(text: &str) -> Result<f64, ValueError> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| (format!("{text:?} is not a number above 0"), "write a number such as 2.5".to_owned()))
}

/// Parses a JSON object of strings. An empty text is an empty mapping.
pub(super) fn map(text: &str) -> Result<BTreeMap<String, String>, ValueError> {
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let hint = r#"write an object such as {\"key\": \"value\"}"#;
    serde_json::from_str(text).map_err(|_| ("is not a JSON object of strings".to_owned(), hint.to_owned()))
}

/// Parses a decimal number, or a hexadecimal one after `0x`. Leading zeros are ignored.
fn magnitude(digits: &str) -> Option<u64> {
    let (digits, base) = digits.strip_prefix("0x").map_or((digits, 10), |digits| (digits, 16));
    let is_plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base));
    is_plain.then(|| u64::from_str_radix(digits, base).ok()).flatten()
}

fn invalid_number(text: &str) -> ValueError {
    (format!("{text:?} is not a whole number, or too large"), "write a whole number".to_owned())
}

pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    parse_duration(text).map_err(|expected| match magnitude(text) {
        Some(number) => (format!("{text:?} has no unit"), format!("write {number}s for seconds")),
        None => (format!("{text:?} is not a duration"), expected),
    })
}
