//! Strict reading: the first invalid value is the error of the caller, with a text of Go.
//!
//! Managers in Go read annotations one after the other and report the first error. A provider that keeps their texts reads them
//! in the same order with [`Strict`], and declares values of the kinds of this module.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use super::kinds::{Kind, Parsed};
use super::table::Annotation;
use crate::parse_bool;

/// A boolean, with the errors of Go's `strconv.ParseBool`.
pub const GO_BOOL: Parsed<bool> = Parsed { form: "true or false", read: bool };
/// A signed integer, with the errors of Go's `strconv.Atoi`.
pub const GO_INTEGER: Parsed<i64> = Parsed { form: "a whole number", read: integer };
/// Comma-separated integers without blanks, with the errors of Go's `strconv.Atoi`.
pub const GO_INTEGERS: Parsed<Vec<i64>> =
    Parsed { form: "whole numbers, separated by commas without blanks", read: integers };
/// An integer without a sign, with the errors of Go's `strconv.ParseUint`.
pub const GO_UNSIGNED: Parsed<u64> = Parsed { form: "a whole number without a sign", read: unsigned };

/// Annotations of an object, read one by one.
#[derive(Debug, Clone, Copy)]
pub struct Strict<'a>(pub &'a BTreeMap<String, String>);

impl<'a> Strict<'a> {
    /// Returns the value; `None` if the annotation is missing, or empty where that counts as missing.
    pub fn get<K: Kind>(self, annotation: &Annotation<K>) -> Result<Option<K::Value<'a>>, String> {
        self.get_or(annotation, |_, why| why.to_owned())
    }

    /// Like [`get`](Strict::get), with an error of its own, from the text of the annotation and the cause.
    pub fn get_or<K: Kind>(
        self,
        annotation: &Annotation<K>,
        error: impl FnOnce(&str, &str) -> String,
    ) -> Result<Option<K::Value<'a>>, String> {
        let Some(text) = self.0.get(annotation.key).filter(|text| !annotation.kind.is_absent(text)) else {
            return Ok(None);
        };
        annotation.kind.read(text).map(Some).map_err(|errors| error(text, &errors.join(", ")))
    }

    /// Returns a text; `None` if the annotation is missing, or empty where that counts as missing.
    pub fn text<K: Kind<Value<'a> = &'a str>>(self, annotation: &Annotation<K>) -> Option<&'a str> {
        self.get(annotation).ok().flatten()
    }
}

fn bool(text: &str) -> Result<bool, String> {
    parse_bool(text).ok_or_else(|| format!("strconv.ParseBool: parsing {text:?}: invalid syntax"))
}

fn integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|error| number_error("Atoi", text, &error))
}

fn integers(text: &str) -> Result<Vec<i64>, String> {
    text.split(',').map(integer).collect()
}

fn unsigned(text: &str) -> Result<u64, String> {
    let number = text.parse().map_err(|error| number_error("ParseUint", text, &error))?;
    if text.starts_with('+') { Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")) } else { Ok(number) }
}

fn number_error(function: &str, text: &str, error: &ParseIntError) -> String {
    let cause = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_go() {
        assert_eq!((integer("+5"), integers("1,2"), unsigned("60")), (Ok(5), Ok(vec![1, 2]), Ok(60)));
        assert_eq!(integers("80, 8080").unwrap_err(), "strconv.Atoi: parsing \" 8080\": invalid syntax");
        let huge = "9223372036854775808";
        assert_eq!(integer(huge).unwrap_err(), format!("strconv.Atoi: parsing {huge:?}: value out of range"));
        assert_eq!(unsigned("+60").unwrap_err(), "strconv.ParseUint: parsing \"+60\": invalid syntax");
        assert_eq!(bool("maybe").unwrap_err(), "strconv.ParseBool: parsing \"maybe\": invalid syntax");
    }
}
