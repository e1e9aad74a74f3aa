//! Annotation tables: each annotation is declared once with its key, kind, default, example and description.
//!
//! ```text
//!  annotations! { … } ──► typed constants ──► Reader::get ──► values and errors
//!                    └──► Table ──► reference page, misspelled keys, validation of the declarations
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::kinds::Kind;
use super::reader::Reader;
use super::reference;

/// Declaration of an annotation. A key with a placeholder, such as `example.com/port-<port>`, declares a family of annotations.
#[derive(Debug, Clone, Copy)]
pub struct Annotation<K> {
    /// Full key.
    pub key: &'static str,
    /// Deprecated keys with the same meaning, used if `key` is missing.
    pub aliases: &'static [&'static str],
    /// Kind of its values.
    pub kind: K,
    /// Description of the default.
    pub default: &'static str,
    /// A valid example value.
    pub example: &'static str,
    /// Description.
    pub doc: &'static str,
}

/// A table of annotations with common rules.
#[derive(Clone, Copy)]
pub struct Table {
    /// All declarations, in the order of the reference page.
    pub all: &'static [&'static dyn Declared],
    /// Prefixes of the keys. An undeclared key with one of them is reported together with the most similar declared key.
    pub prefixes: &'static [&'static str],
    /// Whether whitespace around a value is ignored and an empty value is an error.
    pub trim: bool,
    /// Formats the error message for an invalid value.
    pub message: fn(&Invalid<'_>) -> String,
    /// Heading and introduction of the reference page.
    pub head: &'static str,
}

/// An invalid value of an annotation, for error messages.
#[derive(Debug, Clone, Copy)]
pub struct Invalid<'a> {
    /// Key, as in the object.
    pub key: &'a str,
    /// Invalid value.
    pub value: &'a str,
    /// Description of the expected value.
    pub form: &'a str,
    /// Description of the default.
    pub default: &'a str,
    /// Reason, with the expected value.
    pub why: &'a str,
}

/// Declaration of an annotation, independent of its kind.
pub trait Declared: Sync {
    /// Returns the declaration without its kind.
    fn row(&self) -> Annotation<()>;
    /// Returns a description of the expected value.
    fn form(&self) -> String;
    /// Returns all errors of a value.
    fn errors(&self, value: &str) -> Vec<String>;
}

/// An undeclared annotation key with a prefix of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAnnotation {
    /// The unknown key.
    pub key: String,
    /// The most similar declared key.
    pub nearest: Option<&'static str>,
}

/// Declares annotations as typed constants, and a list of all of them for a [`Table`](crate::annotations::Table).
///
/// ```
/// use bowline_core::annotations::{Bool, Integer, Table, annotations};
/// annotations! {
///     const ALL;
///     HTTP2: Bool = Bool::Go, "example.com/http2", "false", "true", "Clients may speak HTTP/2.";
///     WEIGHT: Integer = Integer::between(0, 100), "example.com/weight" | "example.com/share", "1", "5", "Share of traffic.";
/// }
/// const TABLE: Table = Table { all: ALL, prefixes: &["example.com/"], ..Table::EMPTY };
///
/// let annotations = [("example.com/share".to_owned(), "101".to_owned()), ("example.com/htpp2".to_owned(), "t".to_owned())].into();
/// let reader = TABLE.reader(&annotations);
/// assert_eq!((reader.get(&HTTP2), reader.get(&WEIGHT)), (None, None));
/// assert_eq!(reader.into_errors()[0].to_string(), "example.com/share: \"101\" is not a whole number from 0 to 100");
/// assert_eq!(TABLE.unknown(&annotations)[0].nearest, Some("example.com/http2"));
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __annotations {
    ($(#[$meta:meta])* $vis:vis const $all:ident;
     $($name:ident: $kind:ty = $value:expr, $key:literal $(| $alias:literal)*, $default:literal, $example:literal, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            $vis const $name: $crate::annotations::Annotation<$kind> = $crate::annotations::Annotation {
                key: $key, aliases: &[$($alias),*], kind: $value, default: $default, example: $example, doc: $doc,
            };
        )*
        $(#[$meta])*
        const $all: &[&dyn $crate::annotations::Declared] = &[$(&$name),*];
    };
}

impl<K: Kind> Declared for Annotation<K> {
    fn row(&self) -> Annotation<()> {
        let Annotation { key, aliases, kind: _, default, example, doc } = *self;
        Annotation { key, aliases, kind: (), default, example, doc }
    }

    fn form(&self) -> String {
        self.kind.form()
    }

    fn errors(&self, value: &str) -> Vec<String> {
        self.kind.read(value).err().unwrap_or_default()
    }
}

/// Formats the annotation as its key.
impl<K> fmt::Display for Annotation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl<K> Annotation<K> {
    /// Returns the part of `key` that matches the placeholder, if `key` belongs to this family.
    pub(super) fn member<'a>(&self, key: &'a str) -> Option<&'a str> {
        let (before, rest) = self.key.split_once('<')?;
        let (_, after) = rest.split_once('>')?;
        key.strip_prefix(before)?.strip_suffix(after).filter(|member| !member.is_empty())
    }

    /// Returns the key and its aliases.
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key).chain(self.aliases.iter().copied())
    }
}

impl Table {
    /// Empty table with default rules, for struct update syntax: values are not trimmed, and the error message is the reason.
    pub const EMPTY: Table =
        Table { all: &[], prefixes: &[], trim: false, message: |invalid| invalid.why.to_owned(), head: "" };

    /// Returns a reader for the annotations of an object.
    pub fn reader<'a>(&'a self, annotations: &'a BTreeMap<String, String>) -> Reader<'a> {
        Reader::new(self, annotations)
    }

    /// Returns the declarations without their kinds.
    pub fn rows(&self) -> impl Iterator<Item = Annotation<()>> {
        self.all.iter().map(|declared| declared.row())
    }

    /// Returns the reference page in Markdown.
    pub fn reference(&self) -> String {
        reference::page(self)
    }

    /// Returns the keys that have a prefix of this table and are not declared.
    pub fn unknown(&self, annotations: &BTreeMap<String, String>) -> Vec<UnknownAnnotation> {
        let unknown = annotations.keys().filter(|key| !self.rows().any(|row| row.has_key(key)));
        let with_nearest = |key: &String| {
            let (prefix, name) = self.split(key)?;
            Some(UnknownAnnotation { key: key.clone(), nearest: self.nearest(prefix, name) })
        };
        unknown.filter_map(with_nearest).collect()
    }

    /// Returns the most similar declared key. Names are compared without the prefix, which would make any two short names similar.
    fn nearest(&self, prefix: &str, name: &str) -> Option<&'static str> {
        let known = || self.rows().filter_map(|row| Some((row.key, row.key.strip_prefix(prefix)?)));
        let near = crate::nearest(name, known().map(|(_, name)| name))?;
        known().find(|(_, name)| *name == near).map(|(key, _)| key)
    }

    /// Splits a key into its prefix, which is compared case-insensitively, and the rest.
    fn split<'k>(&self, key: &'k str) -> Option<(&'static str, &'k str)> {
        self.prefixes.iter().find_map(|prefix| {
            let (start, name) = key.split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some((*prefix, name))
        })
    }

    /// Checks the declarations themselves and returns all errors; for a unit test of the table.
    pub fn validate(&self) -> Vec<String> {
        let mut keys = BTreeSet::new();
        let mut errors = Vec::new();
        for declared in self.all {
            let row = declared.row();
            let mut check = |is_invalid: bool, message: &str| {
                if is_invalid {
                    errors.push(format!("{row}: {message}"));
                }
            };
            check(row.keys().any(|key| !keys.insert(key)), "is declared twice");
            check(self.split(row.key).is_none(), "has none of the prefixes");
            check(row.default.is_empty() || declared.form().is_empty(), "has no default or no form");
            check(!row.doc.ends_with('.'), "its doc is not a sentence");
            check(row.example.is_empty() || !declared.errors(row.example).is_empty(), "its example is invalid");
        }
        errors
    }
}

impl Annotation<()> {
    /// Returns whether this is the key, an alias or a member of the family.
    fn has_key(&self, key: &str) -> bool {
        self.keys().any(|own| own == key) || self.member(key).is_some()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows().map(|row| row.key)).finish()
    }
}

/// Formats a warning with the suggested key.
impl fmt::Display for UnknownAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown annotation {}", self.key)?;
        self.nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::annotations;
    use super::super::kinds::{Bool, Integer, OrNone, Text};
    use super::*;

    annotations! {
        const ALL;
        NAME: OrNone<Text> = OrNone(Text), "example.com/name" | "old.example.com/name", "none", "web", "Its name.";
        WEIGHT: Integer = Integer::ANY, "example.com/weight", "1", "5", "Share of traffic.";
        NO_PROBE: Bool = Bool::Exact, "example.com/port_<port>_no-probe", "false", "true", "The port is not probed.";
    }

    const TABLE: Table = Table { all: ALL, prefixes: &["example.com/"], ..Table::EMPTY };

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_alias_is_used_if_the_key_is_missing() {
        let old = ("old.example.com/name", "old");
        assert_eq!(TABLE.reader(&given(&[old])).get(&NAME), Some("old"));
        assert_eq!(TABLE.reader(&given(&[old, ("example.com/name", "new")])).get(&NAME), Some("new"));
        assert_eq!(TABLE.reader(&given(&[("example.com/name", "")])).get(&NAME), None);
        assert_eq!(TABLE.unknown(&given(&[old])), []);
    }

    #[test]
    fn errors_are_collected_and_a_provider_may_format_them() {
        let given = given(&[("example.com/weight", "many"), ("example.com/name", "web")]);
        let reader = TABLE.reader(&given);
        assert_eq!((reader.get(&WEIGHT), reader.get(&NAME)), (None, Some("web")));
        assert_eq!(reader.into_errors()[0].message, "\"many\" is not a whole number");
        let message = |invalid: &Invalid<'_>| format!("invalid value: {} ({})", invalid.value, invalid.default);
        let reader = Table { message, ..TABLE };
        let reader = reader.reader(&given);
        assert_eq!(reader.get(&WEIGHT), None);
        assert_eq!(reader.into_errors()[0].to_string(), "example.com/weight: invalid value: many (1)");
    }

    #[test]
    fn the_members_of_a_family_are_read() {
        let given = given(&[
            ("example.com/port_443_no-probe", "false"),
            ("example.com/port_80_no-probe", "true"),
            ("example.com/port_90_no-probe", "yes"),
            ("example.com/port__no-probe", "true"),
        ]);
        let reader = TABLE.reader(&given);
        assert_eq!(reader.family(&NO_PROBE), [("443", false), ("80", true)]);
        let errors = reader.into_errors();
        assert_eq!(errors[0].field, "example.com/port_90_no-probe");
        let unknown: Vec<_> = TABLE.unknown(&given).into_iter().map(|unknown| unknown.key).collect();
        assert_eq!(unknown, ["example.com/port__no-probe"]);
    }

    #[test]
    fn a_configured_key_is_read_like_the_declared_one() {
        let given = given(&[("metal.example/weight", "7"), ("metal.example/share", "x")]);
        let reader = TABLE.reader(&given);
        assert_eq!(reader.get_at("metal.example/weight", &WEIGHT), Some(7));
        assert_eq!(reader.get_at("metal.example/share", &WEIGHT), None);
        assert_eq!(reader.into_errors()[0].field, "metal.example/share");
    }

    #[test]
    fn invalid_declarations_are_found() {
        const WRONG: Annotation<Integer> =
            Annotation { key: "example.org/weight", doc: "Share", example: "x", default: "", ..WEIGHT };
        let table = Table { all: &[&WEIGHT, &WEIGHT, &WRONG], ..TABLE };
        let expected = [
            "example.com/weight: is declared twice",
            "example.org/weight: has none of the prefixes",
            "example.org/weight: has no default or no form",
            "example.org/weight: its doc is not a sentence",
            "example.org/weight: its example is invalid",
        ];
        assert_eq!(table.validate(), expected);
        assert_eq!(TABLE.validate(), [""; 0]);
    }
}
