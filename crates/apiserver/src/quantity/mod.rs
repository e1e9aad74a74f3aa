//! Resource quantities (`500m`, `1Gi`): parsing, canonical form and comparison.
//!
//! A quantity is a decimal number with a suffix and keeps the format it was written in:
//!
//! | format    | suffixes                        | example            |
//! |-----------|---------------------------------|--------------------|
//! | decimal   | `n u m`, none, `k M G T P E`    | `1500m` is 1.5     |
//! | binary    | `Ki Mi Gi Ti Pi Ei`             | `1Ki` is 1024      |
//! | exponent  | `e3`, `E-2`                     | `12e6`             |
//!
//! Numbers finer than a billionth are rounded away from zero; binary numbers are capped at 2^63-1. kube-apiserver keeps the
//! original text if it is "close enough" to canonical, and so does this module.

mod decimal;

use std::cmp::Ordering;

use decimal::Decimal;
use serde_json::{Map, Value};

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// The finest resolution of a quantity, as a power of ten.
const NANO: i64 = -9;
/// Maximum number of digits of a quantity whose original text may be kept.
const SHORT_DIGITS: i64 = 18;

/// The suffix format of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// A parsed quantity.
#[derive(Debug, Clone)]
pub(crate) struct Quantity {
    amount: Decimal,
    format: Format,
    /// The original text, if it counts as canonical.
    original: Option<String>,
}

/// The canonical form of a quantity in JSON, where surrounding whitespace is allowed.
pub(crate) fn canonical(text: &str) -> Result<String, String> {
    Quantity::parse(text.trim()).map(Quantity::into_text)
}

/// Whether a canonical quantity is negative; false for an invalid quantity.
pub(crate) fn is_negative(text: &str) -> bool {
    sign(text) == Ordering::Less
}

/// Compares a canonical quantity to zero; an invalid quantity counts as zero.
pub(crate) fn sign(text: &str) -> Ordering {
    Quantity::parse(text).map_or(Ordering::Equal, |q| q.amount.sign())
}

/// Compares two quantities by value; an invalid quantity counts as zero.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let amount = |text| Quantity::parse(text).map_or_else(|_| Decimal::zero(), |q| q.amount);
    amount(a).cmp(&amount(b))
}

/// Whether a quantity is an integer.
pub(crate) fn is_integer(text: &str) -> bool {
    Quantity::parse(text).is_ok_and(|quantity| !quantity.amount.finer_than(0))
}

/// upstream: defaulting rounds all quantities of a resource list away from zero to thousandths.
pub(crate) fn round_list(amounts: Option<&mut Value>) {
    for amount in amounts.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if let Some(rounded) = amount.as_str().and_then(rounded_to_milli) {
            *amount = rounded.into();
        }
    }
}

/// Rounds to thousandths; `None` if the quantity has no finer digits.
fn rounded_to_milli(text: &str) -> Option<String> {
    let mut quantity = Quantity::parse(text).ok().filter(|quantity| quantity.amount.finer_than(-3))?;
    quantity.amount = quantity.amount.rounded_to(-3);
    quantity.original = None;
    Some(quantity.into_text())
}

impl Quantity {
    /// Parses a quantity without surrounding whitespace.
    pub(crate) fn parse(text: &str) -> Result<Quantity, String> {
        let parts = Parts::split(text)?;
        let (format, exponent) = interpret(parts.suffix).ok_or(WRONG_SUFFIX)?;
        if parts.fits(format, exponent) {
            let amount = parts.amount(format, exponent);
            let original = parts.is_near_canonical(format, exponent).then(|| text.to_owned());
            return Ok(Quantity { amount, format, original });
        }
        if !parts.has_digits {
            return Err(WRONG_NUMBER.to_owned());
        }
        Ok(Quantity::bounded(parts.amount(format, exponent), format))
    }

    /// Rounds and caps a number that does not fit into 64 bits.
    fn bounded(amount: Decimal, mut format: Format) -> Quantity {
        let mut amount = amount.rounded_to(NANO);
        if format == Format::Binary {
            amount = amount.capped(&Decimal::from(i64::MAX));
            if amount.is_within(1) && !amount.is_zero() {
                format = Format::Decimal;
            }
        }
        Quantity { amount, format, original: None }
    }

    /// The text of the quantity.
    pub(crate) fn into_text(self) -> String {
        match self.original {
            Some(text) => text,
            None => self.canonical_text(),
        }
    }

    /// Formats the quantity with the largest suffix that needs no fraction.
    fn canonical_text(&self) -> String {
        if self.amount.is_zero() {
            return "0".to_owned();
        }
        let plain_binary = self.format == Format::Binary && !self.amount.is_within(1024) && !self.amount.finer_than(0);
        if plain_binary { self.binary_text() } else { self.decimal_text() }
    }

    fn binary_text(&self) -> String {
        let mut number = self.amount.to_i64();
        let mut suffixes = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
        let mut suffix = "";
        while number % 1024 == 0 {
            let Some(next) = suffixes.next() else { break };
            number /= 1024;
            suffix = next;
        }
        format!("{number}{suffix}")
    }

    fn decimal_text(&self) -> String {
        let (digits, exponent) = self.amount.in_thousands();
        match (self.format, exponent) {
            (Format::Exponent, 0) => digits,
            (Format::Exponent, exponent) => format!("{digits}e{exponent}"),
            // upstream: a number beyond the largest suffix loses its exponent.
            (_, exponent) => digits + decimal_suffix(exponent).unwrap_or_default(),
        }
    }
}

/// The parts of a quantity's text: sign, digits before and after the decimal point, suffix.
#[derive(Debug)]
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Parts<'a>, String> {
        if text.is_empty() {
            return Err(WRONG_FORMAT.to_owned());
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (digits, rest) = leading_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => leading_digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let power = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !power.bytes().all(|b| b.is_ascii_digit()) {
            return Err(WRONG_FORMAT.to_owned());
        }
        Ok(Parts {
            negative: text.starts_with('-'),
            whole: digits.trim_start_matches('0'),
            fraction,
            suffix,
            // upstream: a sign alone, or only zeros, never reaches the number parser.
            has_digits: !digits.is_empty() || !fraction.is_empty(),
        })
    }

    /// The number of digits. upstream: counts one zero if there are no digits before the decimal point.
    fn digit_count(&self) -> i64 {
        (self.whole.len().max(1) + self.fraction.len()) as i64
    }

    /// The power of ten of the last digit.
    fn scale(&self, exponent: i64) -> i64 {
        exponent.saturating_sub(self.fraction.len() as i64)
    }

    /// Whether the number can be represented without rounding or capping.
    fn fits(&self, format: Format, exponent: i64) -> bool {
        match format {
            Format::Binary => {
                let digits = self.whole.len().max(1) as i64;
                self.fraction.is_empty() && 14 - digits - exponent * 3 / 10 >= 0
            }
            _ => self.digit_count() <= SHORT_DIGITS && self.scale(exponent) >= NANO,
        }
    }

    fn amount(&self, format: Format, exponent: i64) -> Decimal {
        let scale = if format == Format::Binary { self.scale(0) } else { self.scale(exponent) };
        let amount = Decimal::new(self.negative, self.whole, self.fraction, scale);
        if format == Format::Binary { amount.times_1024(exponent / 10) } else { amount }
    }

    /// upstream: text that passes this quick check is kept unchanged, including `+1`, `1.500` and `1.Ki`.
    fn is_near_canonical(&self, format: Format, exponent: i64) -> bool {
        if format == Format::Binary {
            // The last three bits decide, and they depend only on the last three digits.
            let last = &self.whole[self.whole.len().saturating_sub(3)..];
            return last.parse::<u32>().is_ok_and(|n| n % 8 != 0);
        }
        let shortenable = if self.fraction.len() >= 3 {
            self.fraction.ends_with("000")
        } else {
            format!("{}{}", self.whole, self.fraction).ends_with("000")
        };
        self.scale(exponent) % 3 == 0 && !self.whole.is_empty() && !shortenable
    }
}

fn leading_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Format and exponent of a suffix: a power of ten, or of two for binary suffixes.
fn interpret(suffix: &str) -> Option<(Format, i64)> {
    let found = match suffix {
        "Ki" => (Format::Binary, 10),
        "Mi" => (Format::Binary, 20),
        "Gi" => (Format::Binary, 30),
        "Ti" => (Format::Binary, 40),
        "Pi" => (Format::Binary, 50),
        "Ei" => (Format::Binary, 60),
        _ => match (-3..=6).map(|i| i * 3).find(|e| decimal_suffix(*e) == Some(suffix)) {
            Some(exponent) => (Format::Decimal, exponent),
            None => (Format::Exponent, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        },
    };
    Some(found)
}

/// The suffix for a power of ten.
fn decimal_suffix(exponent: i64) -> Option<&'static str> {
    Some(match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn canonical_of(text: &str) -> String {
        canonical(text).unwrap_or_else(|e| e)
    }

    #[test]
    fn the_largest_suffix_without_a_fraction_is_used() {
        for (text, want) in [
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("4000m", "4"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("1000M", "1G"),
            ("1024Mi", "1Gi"),
            ("16Gi", "16Gi"),
            ("8Gi", "8Gi"),
            ("1000Mi", "1000Mi"),
            ("16384Ki", "16Mi"),
            ("0.5Ki", "512"),
            ("512Mi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.05Gi", "53687091200m"),
            (".001Ki", "1024m"),
            (".000001Ki", "1024u"),
            (".000000001Ki", "1024n"),
            ("100.0350k", "100035"),
            ("50k", "50k"),
            ("0.0005k", "500m"),
            ("1e3", "1e3"),
            ("1e14", "100e12"),
            ("0.5e-1", "50e-3"),
            ("1.3E+6", "1300e3"),
            ("12E", "12E"),
            (" 5 ", "5"),
        ] {
            assert_eq!(canonical_of(text), want, "{text}");
            if want != "0" && !text.starts_with(['-', ' ']) {
                assert_eq!(canonical_of(&format!("-{text}")), format!("-{want}"), "-{text}");
            }
        }
    }

    #[test]
    fn too_fine_numbers_are_rounded_away_from_zero() {
        for (text, want) in [
            ("3.001n", "4n"),
            ("1.1E-9", "2e-9"),
            ("0.0000000001", "1n"),
            ("0.5e-9", "1e-9"),
            ("0.00000012345", "124n"),
            ("0.000000000001Ki", "2n"),
            ("1e-2147483648", "1e-9"),
            ("0.1234567890123456789", "123456790n"),
        ] {
            assert_eq!(canonical_of(text), want, "{text}");
        }
    }

    #[test]
    fn binary_numbers_are_capped_at_63_bits_and_decimal_ones_are_not() {
        assert_eq!(canonical_of("9Ei"), "9223372036854775807");
        assert_eq!(canonical_of("9223372036854775807Ki"), "9223372036854775807");
        assert_eq!(canonical_of("-9Ei"), "-9223372036854775807");
        assert_eq!(canonical_of("123456789012345678901234567890"), "123456789012345678901234567890");
        assert_eq!(canonical_of("1000000000000000000000"), "1");
        assert_eq!(canonical_of("1e100"), "10e99");
    }

    #[test]
    fn near_canonical_text_is_kept_unchanged() {
        for text in ["+5", "05", "1.500", "1.G", "1.Ki", "1E3", "100m", "2e6", "100.035k"] {
            assert_eq!(canonical_of(text), text);
        }
        assert_eq!(canonical_of("1.000"), "1");
        assert_eq!(canonical_of("1000"), "1k");
    }

    #[test]
    fn invalid_quantities_are_rejected_with_upstream_messages() {
        for text in ["", "lots", "1.1.M", "1+1.0M", "0.1am", "1 2", "1e3x", "e3.5"] {
            assert_eq!(canonical(text), Err(WRONG_FORMAT.to_owned()), "{text}");
        }
        for text in ["0.1mi", ".5i", "1i", "-3.01e-", "1K", "e"] {
            assert_eq!(canonical(text), Err(WRONG_SUFFIX.to_owned()), "{text}");
        }
        assert_eq!(canonical(".e-20"), Err(WRONG_NUMBER.to_owned()));
        assert_eq!(canonical_of("."), "0");
        assert_eq!(canonical_of("-"), "0");
    }

    #[test]
    fn quantities_compare_by_value() {
        assert_eq!(compare("1Gi", "1G"), Ordering::Greater);
        assert_eq!(compare("1000m", "1"), Ordering::Equal);
        assert_eq!(compare("-1", "1n"), Ordering::Less);
        assert_eq!(compare("1e10", "1e11"), Ordering::Less);
        assert!(is_negative("-1m"));
        assert!(!is_negative("0"));
    }

    #[test]
    fn integers_are_distinguished_from_fractions() {
        assert!(is_integer("1Gi") && is_integer("1.000") && is_integer("-3"));
        assert!(!is_integer("1.500") && !is_integer("1m") && !is_integer("1e-3"));
    }

    #[test]
    fn resource_lists_are_rounded_to_thousandths() {
        let mut list = json!({"a": "1n", "b": "1500001u", "c": "999999999n", "d": "1.500", "e": "16Gi"});
        round_list(Some(&mut list));
        assert_eq!(list, json!({"a": "1m", "b": "1501m", "c": "1", "d": "1.500", "e": "16Gi"}));
    }
}
