//! Kinds of annotation values: how a value is parsed and described.
//!
//! The kind determines the Rust type of the value, so that reading an [`Annotation`](super::Annotation) returns the declared
//! type. For values that no other kind covers, use [`Parsed`] with a parser function of the provider.

use std::marker::PhantomData;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::DeserializeOwned;

use crate::service::parse_ranges;
use crate::{parse_bool, parse_duration};

/// A kind of annotation values.
pub trait Kind: Sync {
    /// Rust type of a value.
    type Value<'a>;

    /// Returns a description of the expected value, as in "expected a whole number".
    fn form(&self) -> String;

    /// Returns whether an annotation with this text counts as missing.
    fn is_absent(&self, _text: &str) -> bool {
        false
    }

    /// Parses a value, or returns all errors.
    fn read<'a>(&self, text: &'a str) -> Result<Self::Value<'a>, Vec<String>>;
}

/// Any text, including an empty one.
#[derive(Debug, Clone, Copy)]
pub struct Text;

/// Text that Bowline writes and never reads.
#[derive(Debug, Clone, Copy)]
pub struct WriteOnly;

/// Wrapper for a kind whose annotation counts as missing if its value is empty.
#[derive(Debug, Clone, Copy)]
pub struct OrNone<K>(pub K);

/// True or false.
#[derive(Debug, Clone, Copy)]
pub enum Bool {
    /// `1`, `t`, `T`, `TRUE`, `true`, `True` and their opposites, as in Go's `strconv.ParseBool`.
    Go,
    /// Only `true` and `false`.
    Exact,
}

/// A decimal integer with an optional sign, as in Go's `strconv.Atoi`.
#[derive(Debug, Clone, Copy)]
pub struct Integer {
    min: i64,
    max: i64,
}

/// One of several keywords, each with the value that it stands for.
#[derive(Debug, Clone, Copy)]
pub struct OneOf<T: 'static> {
    words: &'static [(&'static str, T)],
    any_case: bool,
}

/// Comma-separated strings.
#[derive(Debug, Clone, Copy)]
pub enum List {
    /// Whitespace around each item is removed, and empty items are dropped.
    Trimmed,
    /// Items are returned unchanged.
    Raw,
}

/// Comma-separated pairs such as `key=value`; the field is the separator. Whitespace around a pair is ignored. Without a separator,
/// the value is empty.
#[derive(Debug, Clone, Copy)]
pub struct Pairs(pub char);

/// A port number from 1 to 65535.
#[derive(Debug, Clone, Copy)]
pub struct Port;

/// Comma-separated port numbers.
#[derive(Debug, Clone, Copy)]
pub struct Ports;

/// Comma-separated CIDRs. The result is sorted, without duplicates and without host bits.
#[derive(Debug, Clone, Copy)]
pub struct Cidrs;

/// A positive duration in Go's syntax.
#[derive(Debug, Clone, Copy)]
pub struct PositiveDuration;

/// A JSON document.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(PhantomData<fn() -> T>);

/// A value that a function parses.
#[derive(Debug, Clone, Copy)]
pub struct Parsed<T> {
    /// Description of the expected value.
    pub form: &'static str,
    /// Parses a value, or returns an error message.
    pub read: fn(&str) -> Result<T, String>,
}

impl Kind for Text {
    type Value<'a> = &'a str;

    fn form(&self) -> String {
        "text".to_owned()
    }

    fn read<'a>(&self, text: &'a str) -> Result<&'a str, Vec<String>> {
        Ok(text)
    }
}

impl Kind for WriteOnly {
    type Value<'a> = ();

    fn form(&self) -> String {
        "text, set by Bowline".to_owned()
    }

    fn read(&self, _: &str) -> Result<(), Vec<String>> {
        Ok(())
    }
}

impl<K: Kind> Kind for OrNone<K> {
    type Value<'a> = K::Value<'a>;

    fn form(&self) -> String {
        self.0.form()
    }

    fn is_absent(&self, text: &str) -> bool {
        text.is_empty()
    }

    fn read<'a>(&self, text: &'a str) -> Result<K::Value<'a>, Vec<String>> {
        self.0.read(text)
    }
}

impl Kind for Bool {
    type Value<'a> = bool;

    fn form(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, text: &str) -> Result<bool, Vec<String>> {
        let read = match self {
            Bool::Go => parse_bool(text),
            Bool::Exact => text.parse().ok(),
        };
        read.ok_or_else(|| self.mismatch(text))
    }
}

impl Integer {
    /// Any 64-bit integer.
    pub const ANY: Integer = Integer::between(i64::MIN, i64::MAX);

    /// An integer from `min` to `max`, inclusive.
    pub const fn between(min: i64, max: i64) -> Integer {
        Integer { min, max }
    }
}

impl Kind for Integer {
    type Value<'a> = i64;

    fn form(&self) -> String {
        match (self.min, self.max) {
            (i64::MIN, i64::MAX) => "a whole number".to_owned(),
            (min, i64::MAX) => format!("a whole number of at least {min}"),
            (min, max) => format!("a whole number from {min} to {max}"),
        }
    }

    fn read(&self, text: &str) -> Result<i64, Vec<String>> {
        let number = text.parse().ok().filter(|number| (self.min..=self.max).contains(number));
        number.ok_or_else(|| self.mismatch(text))
    }
}

impl<T> OneOf<T> {
    /// Keywords that are compared case-sensitively.
    pub const fn exact(words: &'static [(&'static str, T)]) -> OneOf<T> {
        OneOf { words, any_case: false }
    }

    /// Keywords that are compared case-insensitively.
    pub const fn any_case(words: &'static [(&'static str, T)]) -> OneOf<T> {
        OneOf { words, any_case: true }
    }
}

impl<T: Copy + Sync> Kind for OneOf<T> {
    type Value<'a> = T;

    fn form(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|(word, _)| *word).collect();
        match words.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }

    fn read(&self, text: &str) -> Result<T, Vec<String>> {
        let is_same = |word: &str| word == text || self.any_case && word.eq_ignore_ascii_case(text);
        let found = self.words.iter().find(|(word, _)| is_same(word));
        found.map(|(_, value)| *value).ok_or_else(|| self.mismatch(text))
    }
}

impl Kind for List {
    type Value<'a> = Vec<&'a str>;

    fn form(&self) -> String {
        "comma-separated strings".to_owned()
    }

    fn read<'a>(&self, text: &'a str) -> Result<Vec<&'a str>, Vec<String>> {
        Ok(match self {
            List::Trimmed => items(text).collect(),
            List::Raw => text.split(',').collect(),
        })
    }
}

impl Kind for Pairs {
    type Value<'a> = Vec<(&'a str, &'a str)>;

    fn form(&self) -> String {
        format!("comma-separated pairs such as key{}value", self.0)
    }

    fn read<'a>(&self, text: &'a str) -> Result<Vec<(&'a str, &'a str)>, Vec<String>> {
        Ok(items(text).map(|item| item.split_once(self.0).unwrap_or((item, ""))).collect())
    }
}

impl Kind for Port {
    type Value<'a> = u16;

    fn form(&self) -> String {
        "a port from 1 to 65535".to_owned()
    }

    fn read(&self, text: &str) -> Result<u16, Vec<String>> {
        let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
        let port = text.parse().ok().filter(|port| is_number && *port > 0);
        port.ok_or_else(|| self.mismatch(text))
    }
}

impl Kind for Ports {
    type Value<'a> = Vec<u16>;

    fn form(&self) -> String {
        "comma-separated ports from 1 to 65535".to_owned()
    }

    fn read(&self, text: &str) -> Result<Vec<u16>, Vec<String>> {
        collect_all(text.split(',').map(|item| Port.read(item)))
    }
}

impl Kind for Cidrs {
    type Value<'a> = Vec<IpNet>;

    fn form(&self) -> String {
        "comma-separated CIDRs".to_owned()
    }

    fn read(&self, text: &str) -> Result<Vec<IpNet>, Vec<String>> {
        let (ranges, errors) = parse_ranges("", text.split(','));
        if errors.is_empty() {
            return Ok(ranges.into_iter().collect());
        }
        Err(errors.iter().map(|error| error.message()).collect())
    }
}

impl Kind for PositiveDuration {
    type Value<'a> = Duration;

    fn form(&self) -> String {
        "a duration longer than zero, such as 90s or 10m".to_owned()
    }

    fn read(&self, text: &str) -> Result<Duration, Vec<String>> {
        let duration = parse_duration(text).map_err(|why| vec![format!("{text:?} is not a duration: {why}")])?;
        if duration.is_zero() {
            return Err(vec![format!("{text:?} is not longer than zero; remove the annotation to get the default")]);
        }
        Ok(duration)
    }
}

impl<T> Json<T> {
    /// A document that deserialises to `T`.
    pub const fn new() -> Json<T> {
        Json(PhantomData)
    }
}

impl<T> Default for Json<T> {
    fn default() -> Json<T> {
        Json::new()
    }
}

impl<T: DeserializeOwned> Kind for Json<T> {
    type Value<'a> = T;

    fn form(&self) -> String {
        "a JSON document".to_owned()
    }

    fn read(&self, text: &str) -> Result<T, Vec<String>> {
        serde_json::from_str(text).map_err(|error| vec![format!("{text:?} is not valid JSON: {error}")])
    }
}

impl<T> Kind for Parsed<T> {
    type Value<'a> = T;

    fn form(&self) -> String {
        self.form.to_owned()
    }

    fn read(&self, text: &str) -> Result<T, Vec<String>> {
        (self.read)(text).map_err(|why| vec![why])
    }
}

/// Error message for a value of the wrong kind.
trait Mismatch: Kind {
    fn mismatch(&self, text: &str) -> Vec<String> {
        vec![format!("{text:?} is not {}", self.form())]
    }
}

impl<K: Kind> Mismatch for K {}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Returns all values, or all errors.
fn collect_all<T>(read: impl Iterator<Item = Result<T, Vec<String>>>) -> Result<Vec<T>, Vec<String>> {
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for item in read {
        match item {
            Ok(value) => values.push(value),
            Err(messages) => errors.extend(messages),
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use super::*;

    /// Checks that each text parses to the expected value, or fails with a message that starts as expected.
    fn check<'a, K: Kind>(kind: K, cases: &[(&'a str, Result<K::Value<'a>, &str>)])
    where
        K::Value<'a>: Debug + PartialEq,
    {
        for (text, expected) in cases {
            match (kind.read(text), expected) {
                (Ok(value), Ok(expected)) => assert_eq!(value, *expected, "{text:?}"),
                (Err(errors), Err(start)) => assert!(errors[0].starts_with(start), "{text:?}: {errors:?}"),
                (read, _) => panic!("{text:?}: got {read:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn booleans_are_parsed_as_in_go_or_exactly() {
        check(
            Bool::Go,
            &[("T", Ok(true)), ("0", Ok(false)), ("yes", Err("\"yes\" is not true or false")), ("", Err(""))],
        );
        check(
            Bool::Exact,
            &[("true", Ok(true)), ("false", Ok(false)), ("True", Err("")), (" true", Err("")), ("1", Err(""))],
        );
    }

    #[test]
    fn integers_are_parsed_as_in_go_and_checked_against_their_bounds() {
        let huge = "9223372036854775808";
        check(
            Integer::ANY,
            &[("+5", Ok(5)), ("-1", Ok(-1)), (" 5", Err("\" 5\" is not a whole number")), (huge, Err(""))],
        );
        let low = "\"2\" is not a whole number from 3 to 300";
        check(Integer::between(3, 300), &[("3", Ok(3)), ("300", Ok(300)), ("2", Err(low)), ("301", Err(""))]);
        assert_eq!(Integer::between(1, i64::MAX).form(), "a whole number of at least 1");
    }

    #[test]
    fn keywords_are_case_sensitive_unless_declared_otherwise() {
        const WORDS: &[(&str, u8)] = &[("on", 1), ("off", 0), ("auto", 2)];
        check(OneOf::exact(WORDS), &[("on", Ok(1)), ("On", Err("\"On\" is not on, off or auto")), ("", Err(""))]);
        check(OneOf::any_case(WORDS), &[("AUTO", Ok(2)), ("never", Err(""))]);
        check(OrNone(OneOf::exact(WORDS)), &[("off", Ok(0)), ("of", Err("\"of\" is not on, off or auto"))]);
        assert!(OrNone(OneOf::exact(WORDS)).is_absent("") && !OneOf::exact(WORDS).is_absent(""));
    }

    #[test]
    fn lists_are_trimmed_or_returned_unchanged() {
        check(List::Trimmed, &[(" a ,,b,", Ok(vec!["a", "b"])), ("", Ok(vec![]))]);
        check(List::Raw, &[("a, b,", Ok(vec!["a", " b", ""]))]);
        check(Pairs('='), &[("a=b=c, d=,e", Ok(vec![("a", "b=c"), ("d", ""), ("e", "")]))]);
        check(Pairs(':'), &[("https:443,http:80", Ok(vec![("https", "443"), ("http", "80")]))]);
    }

    #[test]
    fn ports_are_checked() {
        check(
            Port,
            &[("1", Ok(1)), ("65535", Ok(65535)), ("0", Err("\"0\" is not a port from 1 to 65535")), ("+1", Err(""))],
        );
        check(
            Ports,
            &[("80,443", Ok(vec![80, 443])), ("80, 443", Err("\" 443\" is not a port")), ("80,", Err("\"\" is not"))],
        );
        assert_eq!(Ports.read("a,80,b").unwrap_err().len(), 2);
    }

    #[test]
    fn json_is_deserialised() {
        let tags = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let message = "\"{\" is not valid JSON: EOF";
        check(
            Json::<BTreeMap<String, String>>::new(),
            &[("{\"k\": \"v\"}", Ok(tags)), ("{", Err(message)), ("[]", Err(""))],
        );
    }
}
