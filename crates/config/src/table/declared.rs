//! Declaration of a configuration: sections, keys and their types.

use super::settings::View;
use super::value;
use crate::nearest;

/// Declaration of a configuration: its format, its sections, and how unknown keys are treated.
#[derive(Debug, Clone)]
pub struct Table {
    /// File format.
    pub format: Format,
    /// Treatment of undeclared keys.
    pub unknown: UnknownKeys,
    /// Sections, in the order of the reference page.
    pub sections: Vec<Section>,
}

/// Format of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// gcfg, the syntax of git's configuration. Names are case-insensitive.
    Gcfg,
    /// YAML, which includes JSON. Names are case-sensitive.
    Yaml,
    /// YAML with case-insensitive names, as in Go's JSON decoder.
    AnyCaseYaml,
}

/// Treatment of undeclared keys and sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// Ignore them with a warning.
    Warn,
    /// Report them as errors.
    Reject,
}

/// Declaration of a section.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Name, as used in messages. In YAML, the section with an empty name is the document itself.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Whether the section has a subsection name, `[Name "subsection"]`, and may appear any number of times.
    pub named: bool,
    /// Description.
    pub doc: &'static str,
    /// Keys. A section without keys is obsolete: it is ignored without a warning.
    pub keys: Vec<Key>,
    /// Obsolete keys of older files, which are ignored without a warning.
    pub obsolete_keys: &'static [&'static str],
}

/// Declaration of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Name. In YAML, `group.key` is the key `key` of the mapping `group` in the section.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Name in gcfg, for a program that reads both formats. In YAML, it is an alias.
    pub gcfg: Option<&'static str>,
    /// Environment variables, which take precedence over the file.
    pub env: &'static [&'static str],
    /// Names of the key in a second file of another format, which is used if the key is empty.
    pub second: &'static [&'static str],
    /// Type of the value.
    pub kind: Kind,
    /// Default, as it would be written in the file; the items of a list are separated by commas.
    pub default: &'static str,
    /// Description.
    pub doc: &'static str,
}

/// A key in a template, with its example value.
#[derive(Debug, Clone, Copy)]
pub enum Example {
    /// A key that is set in the template.
    Set(Key, &'static str),
    /// An optional key, which is commented out.
    Optional(Key, &'static str),
}

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Any string.
    Text,
    /// A string that is never printed.
    Secret,
    /// `true`, `yes`, `on` or their opposites, case-insensitive. In gcfg also `1` and `0`, and a key without a value as `true`.
    Bool,
    /// A decimal integer, or a hexadecimal one with `0x`.
    Integer,
    /// An integer without a sign.
    Unsigned,
    /// An integer without a sign, where 0 means the default. In gcfg, the value may be empty as well.
    Count,
    /// A number above 0, such as a rate: `2.5`.
    Positive,
    /// A duration in Go's syntax, such as `1m30s`; only 0 needs no unit.
    Duration,
    /// One of these keywords.
    OneOf(&'static [&'static str]),
    /// A list of values: in gcfg one item per occurrence of the key; a key without a value clears the list.
    List(&'static Kind),
    /// A mapping from strings to strings, which is a JSON object in gcfg.
    Map,
}

/// A struct whose fields are configuration keys, declared with [`keys!`](super::keys).
pub trait Keys: Sized {
    /// Returns the keys, including those of its groups.
    fn keys() -> Vec<Key>;
    /// Returns the nested sections.
    fn sections() -> Vec<Section>;
    /// Reads the fields from a section.
    fn read(view: &View<'_>) -> Self;
}

/// Declares a struct whose fields are configuration keys; see [`table`](crate::table). The declaration of each key is
/// an associated constant with the name of its field, for error messages. A field may also be a group of keys in the same section
/// (`..field: Type;`) or a nested section (`["name"] field: Type, "Description.";`), in this order.
#[macro_export]
#[doc(hidden)]
macro_rules! __keys {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field:ident: $ty:ty = $key:literal $(| $alias:literal)* $(gcfg $gcfg:literal)? $(env $env:literal)* $(or $second:literal)*, $default:literal, $doc:literal;)*
        $(..$(#[$group_meta:meta])* $group:ident: $group_ty:ty;)*
        $([$below_name:literal] $below:ident: $below_ty:ty, $below_doc:literal;)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $(#[doc = $doc] $vis $field: $ty,)*
            $($(#[$group_meta])* $vis $group: $group_ty,)*
            $(#[doc = $below_doc] $vis $below: $below_ty,)*
        }

        #[allow(non_upper_case_globals, reason = "a key has the name of its field")]
        impl $name {
            $(#[doc = $doc] $vis const $field: $crate::table::Key = $crate::table::Key {
                name: $key,
                aliases: &[$($alias),*],
                gcfg: [$(Some($gcfg),)? None][0],
                env: &[$($env),*],
                second: &[$($second),*],
                kind: <$ty as $crate::table::Value>::KIND,
                default: $default,
                doc: $doc,
            };)*
        }

        impl $crate::table::Keys for $name {
            fn keys() -> Vec<$crate::table::Key> {
                let groups: &[fn() -> Vec<$crate::table::Key>] = &[$(<$group_ty as $crate::table::Keys>::keys),*];
                [$(Self::$field),*].into_iter().chain(groups.iter().flat_map(|keys| keys())).collect()
            }

            fn sections() -> Vec<$crate::table::Section> {
                vec![$($crate::table::Section::of::<$below_ty>($below_name, $below_doc)),*]
            }

            fn read(view: &$crate::table::View<'_>) -> Self {
                Self {
                    $($field: view.get(&Self::$field),)*
                    $($group: $crate::table::Keys::read(view),)*
                    $($below: $crate::table::Keys::read(&view.below($below_name)),)*
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $crate::table::Settings::default().section("")
            }
        }
    };
}

impl Table {
    /// Returns the declaration of a section in a file.
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        let mut in_files = self.sections.iter().filter(|section| !section.is_environment());
        in_files.find(|section| self.format.has(section.name, section.aliases, name))
    }

    /// Returns the declaration of a key of a section.
    pub(super) fn key<'s>(&self, section: &'s Section, name: &str) -> Option<&'s Key> {
        section.keys.iter().find(|key| {
            let is_gcfg = || self.format != Format::Gcfg && key.gcfg.is_some_and(|gcfg| self.format.same(gcfg, name));
            self.format.has(key.name_in(self.format), key.aliases, name) || is_gcfg()
        })
    }

    /// Returns whether this is a mapping with keys of a section.
    pub(super) fn is_group(&self, section: &Section, name: &str) -> bool {
        let groups = section.keys.iter().filter_map(|key| key.name.split_once('.'));
        groups.into_iter().any(|(group, _)| self.format.same(group, name))
    }

    /// Returns whether this key is obsolete.
    pub(super) fn is_obsolete(&self, section: &Section, name: &str) -> bool {
        section.keys.is_empty() || section.obsolete_keys.iter().any(|key| self.format.same(key, name))
    }
}

impl Key {
    /// Returns the name in files of a format.
    pub fn name_in(&self, format: Format) -> &'static str {
        self.gcfg.filter(|_| format == Format::Gcfg).unwrap_or(self.name)
    }
}

impl Format {
    pub(super) fn has(self, name: &str, aliases: &[&str], given: &str) -> bool {
        self.same(name, given) || aliases.iter().any(|alias| self.same(alias, given))
    }

    fn same(self, one: &str, other: &str) -> bool {
        one == other || self != Format::Yaml && one.to_lowercase() == other.to_lowercase()
    }

    /// Formats the path of a key for messages.
    pub(super) fn field(self, section: &str, subsection: Option<&str>, key: &str) -> String {
        match self {
            Format::Gcfg if key.is_empty() => header(section, subsection),
            Format::Gcfg => format!("{} {key}", header(section, subsection)),
            _ => [section, subsection.unwrap_or_default(), key]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("."),
        }
    }
}

/// Formats the header of a section in gcfg.
pub(super) fn header(name: &str, subsection: Option<&str>) -> String {
    match subsection {
        None => format!("[{name}]"),
        Some(subsection) => format!("[{name} \"{}\"]", subsection.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

impl Section {
    /// Creates a section with the keys of `K`.
    pub fn of<K: Keys>(name: &'static str, doc: &'static str) -> Section {
        Section { name, doc, keys: K::keys(), ..Section::default() }
    }

    /// Creates the sections of a YAML document: the document itself and its nested sections.
    pub fn document<K: Keys>() -> Vec<Section> {
        let mut sections = K::sections();
        sections.insert(0, Section::of::<K>("", ""));
        sections
    }

    /// Name of the section of environment variables, which no file has.
    pub const ENVIRONMENT: &'static str = "environment variables";

    /// Creates the section of environment variables; the keys of `K` are their names.
    pub fn environment<K: Keys>(doc: &'static str) -> Section {
        Section::of::<K>(Section::ENVIRONMENT, doc)
    }

    pub(super) fn is_environment(&self) -> bool {
        self.name == Section::ENVIRONMENT
    }

    /// Returns the keys of this section under their names in a second file, each with the key that it fills. Of several names for
    /// one key, the first takes precedence.
    pub fn second(&self) -> impl Iterator<Item = (Key, Key)> {
        let names = |key: &Key| {
            key.second.iter().map({
                let key = *key;
                move |name| (name, key)
            })
        };
        let key = |(name, key): (&&'static str, Key)| {
            (Key { name, aliases: &[], gcfg: None, env: &[], default: "", ..key }, key)
        };
        self.keys.iter().flat_map(names).map(key)
    }

    /// Creates an obsolete section, which is ignored without a warning.
    pub fn obsolete(name: &'static str) -> Section {
        Section { name, ..Section::default() }
    }
}

impl Kind {
    /// Validates a value and returns an error message with a hint. `None` is a key without a value.
    pub(super) fn error(self, value: Option<&str>) -> Option<(String, String)> {
        match (self, value) {
            (Kind::Bool | Kind::List(_), None) => None,
            (Kind::Map, None) => {
                Some(("is not a mapping of strings".to_owned(), "write key: value below it".to_owned()))
            }
            (_, None) => Some(("has no value".to_owned(), format!("write = and {}", self.description()))),
            (Kind::Text | Kind::Secret, Some(_)) => None,
            (Kind::Bool, Some(text)) => value::boolean(text).err(),
            (Kind::Integer, Some(text)) => value::integer(text).err(),
            (Kind::Count, Some("")) => None,
            (Kind::Unsigned | Kind::Count, Some(text)) => value::unsigned(text).err(),
            (Kind::Positive, Some(text)) => value::positive(text).err(),
            (Kind::Duration, Some(text)) => value::duration(text).err(),
            (Kind::OneOf(words), Some(text)) => (!words.contains(&text)).then(|| invalid_keyword(text, words)),
            (Kind::List(item), Some(_)) => item.error(value),
            (Kind::Map, Some(text)) => value::map(text).err(),
        }
    }

    /// Returns a description for messages.
    pub(super) fn description(self) -> String {
        match self {
            Kind::Text | Kind::Secret => "a string".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Integer => "a whole number".to_owned(),
            Kind::Unsigned | Kind::Count => "a whole number that is not negative".to_owned(),
            Kind::Positive => "a number above 0".to_owned(),
            Kind::Duration => "a duration such as 30s".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::List(item) => format!("{}; may be repeated", item.description()),
            Kind::Map => "a mapping of strings".to_owned(),
        }
    }
}

fn invalid_keyword(text: &str, words: &'static [&'static str]) -> (String, String) {
    (format!("{text:?} is not a valid value"), suggestion(text, words.iter().copied()))
}

/// Suggests the most similar known name, or lists all of them.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("expected one of {}", known.collect::<Vec<_>>().join(", ")),
    }
}
