//! Values of types. What is wrong comes with what would be right.

use std::time::Duration;

use crate::parse_duration;

/// What is wrong, and what would be right.
pub(super) type Mistake = (String, String);

pub(super) fn boolean(text: &str) -> Result<bool, Mistake> {
    match text.to_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err((format!("{text:?} is neither true nor false"), "write true or false".to_owned())),
    }
}

pub(super) fn integer(text: &str) -> Result<i64, Mistake> {
    let (negative, digits) = match text.trim().strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.trim().strip_prefix('+').unwrap_or(text.trim())),
    };
    let number = magnitude(digits).map(i128::from).map(|number| if negative { -number } else { number });
    number.and_then(|number| i64::try_from(number).ok()).ok_or_else(|| no_number(text))
}

// upstream: no sign at all, not even a plus.
pub(super) fn unsigned(text: &str) -> Result<u64, Mistake> {
    magnitude(text.trim()).ok_or_else(|| {
        let (message, hint) = no_number(text);
        (message, format!("{hint} that is not negative"))
    })
}

/// Decimal, or hexadecimal behind `0x`; leading zeros mean nothing.
fn magnitude(digits: &str) -> Option<u64> {
    let (digits, base) = digits.strip_prefix("0x").map_or((digits, 10), |digits| (digits, 16));
    let is_plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base));
    is_plain.then(|| u64::from_str_radix(digits, base).ok()).flatten()
}

fn no_number(text: &str) -> Mistake {
    (format!("{text:?} is no whole number, or too large"), "write a whole number".to_owned())
}

pub(super) fn duration(text: &str) -> Result<Duration, Mistake> {
    parse_duration(text).map_err(|expected| match magnitude(text) {
        Some(number) => (format!("{text:?} has no unit"), format!("write {number}s for seconds")),
        None => (format!("{text:?} is no duration"), expected),
    })
}
