//! What a configuration may say.

use super::settings::View;
use super::value;
use crate::nearest;

/// The sections of a configuration, and the rules for reading it.
#[derive(Debug, Clone)]
pub struct Table {
    /// How a file is written.
    pub format: Format,
    /// What happens to keys that are not declared.
    pub unknown: Unknown,
    /// The sections, in the order of the reference.
    pub sections: Vec<Section>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The dialect of git's configuration. Names are compared in any case.
    Gcfg,
    /// YAML, and JSON with it.
    Yaml,
    /// The same, with names in any case, as Go's JSON decoder has it.
    AnyCaseYaml,
}

/// What happens to keys that are not declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// They are ignored with a warning.
    Warn,
    /// They are an error.
    Refuse,
}

/// A section that a configuration may have.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Its name, as it is written in messages. In YAML, the section without a name is the document itself.
    pub name: &'static str,
    /// Other names with the same meaning.
    pub aliases: &'static [&'static str],
    /// Whether it comes with a name of its own: `[Name "own"]`, any number of them.
    pub named: bool,
    /// What it is for.
    pub doc: &'static str,
    /// Its keys. A section without any is one that old files have: it is ignored without a warning.
    pub keys: Vec<Key>,
    /// Keys that old files have and that mean nothing any more: they are ignored without a warning.
    pub former: &'static [&'static str],
}

/// The declaration of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its name. In YAML, `group.key` is a key of the mapping `group` in its section.
    pub name: &'static str,
    /// Other names with the same meaning.
    pub aliases: &'static [&'static str],
    /// The environment variables that go before the file.
    pub env: &'static [&'static str],
    /// Names in a second file, of another format, which fills the key where it is empty.
    pub second: &'static [&'static str],
    /// What it takes.
    pub kind: Kind,
    /// What holds without it, as it would be written; a list has commas between its items.
    pub default: &'static str,
    /// What it is for.
    pub doc: &'static str,
}

/// A key in a template, with the value that it shows.
#[derive(Debug, Clone, Copy)]
pub enum Example {
    /// A key that is set.
    Set(Key, &'static str),
    /// A key that may be left out: a comment.
    Optional(Key, &'static str),
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that is never printed.
    Secret,
    /// `true`, `yes`, `on` or their opposites, in gcfg also `1` and `0`, in any case, and the key alone as `true`.
    Bool,
    /// A whole number, or with `0x` a hexadecimal one.
    Integer,
    /// The same without a sign.
    Unsigned,
    /// A Go duration such as `1m30s`; only 0 needs no unit.
    Duration,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any number of these: in gcfg one for each time that the key is there, and the key alone empties the list.
    List(&'static Kind),
}

/// A struct whose fields are keys, made by [`keys!`](super::keys).
pub trait Keys: Sized {
    /// Its keys, with those of the groups in it.
    fn keys() -> Vec<Key>;
    /// The sections below it.
    fn sections() -> Vec<Section>;
    /// Its fields, as a section says.
    fn read(view: &View<'_>) -> Self;
}

/// Declares a struct whose fields are configuration keys; see [`table`](crate::table). The key of a field is a constant of the field's
/// name, for messages about it. A field may also be a group of keys in the same section (`..field: Type;`), or a section of its own below
/// this one (`["name"] field: Type, "What it is for.";`), in this order.
#[macro_export]
#[doc(hidden)]
macro_rules! __keys {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($field:ident: $ty:ty = $key:literal $(| $alias:literal)* $(env $env:literal)* $(or $second:literal)*, $default:literal, $doc:literal;)*
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
    /// The declaration of a section that a file may have.
    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        let mut in_files = self.sections.iter().filter(|section| !section.is_environment());
        in_files.find(|section| self.format.has(section.name, section.aliases, name))
    }

    /// The declaration of a key of a section.
    pub(super) fn key<'s>(&self, section: &'s Section, name: &str) -> Option<&'s Key> {
        section.keys.iter().find(|key| self.format.has(key.name, key.aliases, name))
    }

    /// Whether this is a mapping with keys of a section in it.
    pub(super) fn is_group(&self, section: &Section, name: &str) -> bool {
        let groups = section.keys.iter().filter_map(|key| key.name.split_once('.'));
        groups.into_iter().any(|(group, _)| self.format.same(group, name))
    }

    /// Whether old files have this key.
    pub(super) fn is_former(&self, section: &Section, name: &str) -> bool {
        section.keys.is_empty() || section.former.iter().any(|former| self.format.same(former, name))
    }
}

impl Format {
    pub(super) fn has(self, name: &str, aliases: &[&str], given: &str) -> bool {
        self.same(name, given) || aliases.iter().any(|alias| self.same(alias, given))
    }

    fn same(self, one: &str, other: &str) -> bool {
        one == other || self != Format::Yaml && one.to_lowercase() == other.to_lowercase()
    }

    /// How a key is named in messages.
    pub(super) fn field(self, section: &str, own_name: Option<&str>, key: &str) -> String {
        match self {
            Format::Gcfg if key.is_empty() => head(section, own_name),
            Format::Gcfg => format!("{} {key}", head(section, own_name)),
            _ => [section, own_name.unwrap_or_default(), key]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("."),
        }
    }
}

/// The head of a section, as it is written in gcfg.
fn head(name: &str, own_name: Option<&str>) -> String {
    match own_name {
        None => format!("[{name}]"),
        Some(own) => format!("[{name} \"{}\"]", own.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

impl Section {
    /// The section with these keys.
    pub fn of<K: Keys>(name: &'static str, doc: &'static str) -> Section {
        Section { name, doc, keys: K::keys(), ..Section::default() }
    }

    /// The document itself, with the sections below it.
    pub fn document<K: Keys>() -> Vec<Section> {
        let mut sections = K::sections();
        sections.insert(0, Section::of::<K>("", ""));
        sections
    }

    /// Name of the section of environment variables. No file has it.
    pub const ENVIRONMENT: &'static str = "environment variables";

    /// Environment variables, each of which is a key by its own name.
    pub fn environment<K: Keys>(doc: &'static str) -> Section {
        Section::of::<K>(Section::ENVIRONMENT, doc)
    }

    pub(super) fn is_environment(&self) -> bool {
        self.name == Section::ENVIRONMENT
    }

    /// The keys of this section as a second file has them, each with the key that it fills; of two for one key, the first counts.
    pub fn second(&self) -> impl Iterator<Item = (Key, Key)> {
        let names = |key: &Key| {
            key.second.iter().map({
                let key = *key;
                move |name| (name, key)
            })
        };
        let key = |(name, key): (&&'static str, Key)| (Key { name, aliases: &[], env: &[], default: "", ..key }, key);
        self.keys.iter().flat_map(names).map(key)
    }

    /// A section that old files have.
    pub fn retired(name: &'static str) -> Section {
        Section { name, ..Section::default() }
    }
}

impl Kind {
    /// What is wrong with such a value, and what would be right; `None` stands for a key alone.
    pub(super) fn mistake(self, value: Option<&str>) -> Option<(String, String)> {
        match (self, value) {
            (Kind::Bool | Kind::List(_), None) => None,
            (_, None) => Some(("has no value".to_owned(), format!("write = and {}", self.description()))),
            (Kind::Text | Kind::Secret, Some(_)) => None,
            (Kind::Bool, Some(text)) => value::boolean(text).err(),
            (Kind::Integer, Some(text)) => value::integer(text).err(),
            (Kind::Unsigned, Some(text)) => value::unsigned(text).err(),
            (Kind::Duration, Some(text)) => value::duration(text).err(),
            (Kind::OneOf(words), Some(text)) => (!words.contains(&text)).then(|| no_choice(text, words)),
            (Kind::List(item), Some(_)) => item.mistake(value),
        }
    }

    /// In words, for messages.
    pub(super) fn description(self) -> String {
        match self {
            Kind::Text | Kind::Secret => "a text".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Integer => "a whole number".to_owned(),
            Kind::Unsigned => "a whole number that is not negative".to_owned(),
            Kind::Duration => "a duration such as 30s".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::List(item) => format!("{}; may be there several times", item.description()),
        }
    }
}

fn no_choice(text: &str, words: &'static [&'static str]) -> (String, String) {
    (format!("{text:?} is no choice here"), suggestion(text, words.iter().copied()))
}

/// The nearest of the known names, or all of them.
pub(super) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    }
}
