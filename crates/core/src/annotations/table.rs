//! Tables of annotations: each is declared once, with its key, kind, default, example and meaning.
//!
//! ```text
//!  annotations! { … } ──► typed constants ──► Reader::get ──► values and mistakes
//!                    └──► Table ──► reference page, misspelled keys, faults of the declarations themselves
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::kinds::Kind;
use super::reader::Reader;
use super::reference;

/// The declaration of an annotation. A key with a placeholder, `example.com/port-<port>`, stands for a family of annotations.
#[derive(Debug, Clone, Copy)]
pub struct Annotation<K> {
    /// The whole key.
    pub key: &'static str,
    /// Older keys with the same meaning, which count where the first one is missing.
    pub aliases: &'static [&'static str],
    /// What its values look like.
    pub kind: K,
    /// What holds without it, in words.
    pub default: &'static str,
    /// A value that makes sense.
    pub example: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// The annotations that belong together, and the rules that hold for all of them.
#[derive(Clone, Copy)]
pub struct Table {
    /// All of them, in the order of the reference.
    pub all: &'static [&'static dyn Declared],
    /// What their keys begin with. Another key that begins so is reported with the nearest one that is declared.
    pub prefixes: &'static [&'static str],
    /// Blanks around a value do not count, and an empty one is a mistake.
    pub trim: bool,
    /// The message about a value that cannot be read.
    pub message: fn(&Invalid<'_>) -> String,
    /// The heading of the reference page, and what stands before its table.
    pub head: &'static str,
}

/// A value that cannot be read.
#[derive(Debug, Clone, Copy)]
pub struct Invalid<'a> {
    /// The key, as it stands in the object.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
    /// What was expected, in words.
    pub form: &'a str,
    /// What holds without the annotation, in words.
    pub default: &'a str,
    /// What is wrong with the value, and what would be right.
    pub why: &'a str,
}

/// A declaration of any kind.
pub trait Declared: Sync {
    /// The declaration without its kind.
    fn row(&self) -> Annotation<()>;
    /// Format of a value in words.
    fn form(&self) -> String;
    /// Everything that is wrong with a value.
    fn mistakes(&self, value: &str) -> Vec<String>;
}

/// A key with a known prefix that means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The key.
    pub key: String,
    /// The known one that was probably meant.
    pub nearest: Option<&'static str>,
}

/// Declares annotations as typed constants, and the table of all of them.
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

    fn mistakes(&self, value: &str) -> Vec<String> {
        self.kind.read(value).err().unwrap_or_default()
    }
}

/// Written as its key.
impl<K> fmt::Display for Annotation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl<K> Annotation<K> {
    /// What stands for the placeholder in the key of a member of this family.
    pub(super) fn member<'a>(&self, key: &'a str) -> Option<&'a str> {
        let (before, rest) = self.key.split_once('<')?;
        let (_, after) = rest.split_once('>')?;
        key.strip_prefix(before)?.strip_suffix(after).filter(|member| !member.is_empty())
    }

    /// All its keys.
    fn keys(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.key).chain(self.aliases.iter().copied())
    }
}

impl Table {
    /// To fill up tables with: values count as they are, and a message says what is wrong with one.
    pub const EMPTY: Table =
        Table { all: &[], prefixes: &[], trim: false, message: |invalid| invalid.why.to_owned(), head: "" };

    /// Reads the annotations of an object by this table.
    pub fn reader<'a>(&'a self, annotations: &'a BTreeMap<String, String>) -> Reader<'a> {
        Reader::new(self, annotations)
    }

    /// The declarations without their kinds.
    pub fn rows(&self) -> impl Iterator<Item = Annotation<()>> {
        self.all.iter().map(|declared| declared.row())
    }

    /// The reference page.
    pub fn reference(&self) -> String {
        reference::page(self)
    }

    /// The keys that begin as those of this table do and are not declared.
    pub fn unknown(&self, annotations: &BTreeMap<String, String>) -> Vec<Unknown> {
        let unknown = annotations.keys().filter(|key| !self.rows().any(|row| row.is(key)));
        let with_nearest = |key: &String| {
            let (prefix, name) = self.split(key)?;
            Some(Unknown { key: key.clone(), nearest: self.nearest(prefix, name) })
        };
        unknown.filter_map(with_nearest).collect()
    }

    /// Names are compared without the prefix: its letters would make any two short ones alike.
    fn nearest(&self, prefix: &str, name: &str) -> Option<&'static str> {
        let known = || self.rows().filter_map(|row| Some((row.key, row.key.strip_prefix(prefix)?)));
        let near = crate::nearest(name, known().map(|(_, name)| name))?;
        known().find(|(_, name)| *name == near).map(|(key, _)| key)
    }

    /// The prefix of this key, in whatever case it is written, and the rest.
    fn split<'k>(&self, key: &'k str) -> Option<(&'static str, &'k str)> {
        self.prefixes.iter().find_map(|prefix| {
            let (start, name) = key.split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some((*prefix, name))
        })
    }

    /// Everything that is wrong with the declarations, for a test of the table.
    pub fn faults(&self) -> Vec<String> {
        let mut keys = BTreeSet::new();
        let mut faults = Vec::new();
        for declared in self.all {
            let row = declared.row();
            let mut fault = |is_wrong: bool, what: &str| {
                if is_wrong {
                    faults.push(format!("{row}: {what}"));
                }
            };
            fault(row.keys().any(|key| !keys.insert(key)), "is declared twice");
            fault(self.split(row.key).is_none(), "has none of the prefixes");
            fault(row.default.is_empty() || declared.form().is_empty(), "has no default or no form");
            fault(!row.doc.ends_with('.'), "its doc is no sentence");
            fault(row.example.is_empty() || !declared.mistakes(row.example).is_empty(), "its example cannot be read");
        }
        faults
    }
}

impl Annotation<()> {
    /// Whether this is one of its keys.
    fn is(&self, key: &str) -> bool {
        self.keys().any(|own| own == key) || self.member(key).is_some()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows().map(|row| row.key)).finish()
    }
}

/// With what was probably meant.
impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the annotation {} means nothing on a Service", self.key)?;
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
    fn an_alias_counts_where_the_key_itself_is_missing() {
        let old = ("old.example.com/name", "old");
        assert_eq!(TABLE.reader(&given(&[old])).get(&NAME), Some("old"));
        assert_eq!(TABLE.reader(&given(&[old, ("example.com/name", "new")])).get(&NAME), Some("new"));
        assert_eq!(TABLE.reader(&given(&[("example.com/name", "")])).get(&NAME), None);
        assert_eq!(TABLE.unknown(&given(&[old])), []);
    }

    #[test]
    fn mistakes_are_collected_and_may_be_put_into_the_words_of_a_cloud() {
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
    fn a_family_is_read_by_its_members() {
        let given = given(&[
            ("example.com/port_443_no-probe", "false"),
            ("example.com/port_80_no-probe", "true"),
            ("example.com/port_90_no-probe", "yes"),
            ("example.com/port__no-probe", "true"),
        ]);
        let reader = TABLE.reader(&given);
        assert_eq!(reader.family(&NO_PROBE), [("443", false), ("80", true)]);
        let mistakes = reader.into_errors();
        assert_eq!(mistakes[0].place, "example.com/port_90_no-probe");
        let unknown: Vec<_> = TABLE.unknown(&given).into_iter().map(|unknown| unknown.key).collect();
        assert_eq!(unknown, ["example.com/port__no-probe"]);
    }

    #[test]
    fn a_key_that_is_configured_is_read_like_the_declared_one() {
        let given = given(&[("metal.example/weight", "7"), ("metal.example/share", "x")]);
        let reader = TABLE.reader(&given);
        assert_eq!(reader.get_at("metal.example/weight", &WEIGHT), Some(7));
        assert_eq!(reader.get_at("metal.example/share", &WEIGHT), None);
        assert_eq!(reader.into_errors()[0].place, "metal.example/share");
    }

    #[test]
    fn declarations_that_make_no_sense_are_found() {
        const WRONG: Annotation<Integer> =
            Annotation { key: "example.org/weight", doc: "Share", example: "x", default: "", ..WEIGHT };
        let table = Table { all: &[&WEIGHT, &WEIGHT, &WRONG], ..TABLE };
        let expected = [
            "example.com/weight: is declared twice",
            "example.org/weight: has none of the prefixes",
            "example.org/weight: has no default or no form",
            "example.org/weight: its doc is no sentence",
            "example.org/weight: its example cannot be read",
        ];
        assert_eq!(table.faults(), expected);
        assert_eq!(TABLE.faults(), [""; 0]);
    }
}
