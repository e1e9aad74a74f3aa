//! What a file may say.

use super::value;

/// A section that a file may have.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its name, as it is written in messages.
    pub name: &'static str,
    /// Whether it comes with a name of its own: `[Name "own"]`, any number of them.
    pub named: bool,
    /// What it is for.
    pub meaning: &'static str,
    /// What may stand in it.
    pub keys: &'static [Key],
    /// Keys that old files have and that mean nothing any more: they are ignored without a word.
    pub former: &'static [&'static str],
}

/// A key that a section may have.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it, as it would be written; a list has none.
    pub default: &'static str,
    /// What it is for.
    pub meaning: &'static str,
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A text that is never printed.
    Secret,
    /// `true`, `yes`, `on`, `1` or their opposites, in any case; the key alone is `true`.
    Bool,
    /// A whole number, or with `0x` a hexadecimal one.
    Integer,
    /// The same without a sign.
    Unsigned,
    /// A Go duration such as `1m30s`; only 0 needs no unit.
    Duration,
    /// Texts, one for each time that the key is there; the key alone empties the list.
    List,
}

impl Section {
    /// To fill up declarations with: nothing may stand in it. A section that old files have is declared as this.
    pub const EMPTY: Section = Section { name: "", named: false, meaning: "", keys: &[], former: &[] };

    /// The declaration of a key.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| same(key.name, name))
    }

    /// What old files have is known, too.
    pub(super) fn is_former(&self, name: &str) -> bool {
        self.keys.is_empty() || self.former.iter().any(|former| same(former, name))
    }
}

impl Kind {
    /// What is wrong with such a value, and what would be right; `None` stands for a key alone.
    pub(super) fn mistake(self, value: Option<&str>) -> Option<(String, String)> {
        match (self, value) {
            (Kind::Bool | Kind::List, None) => None,
            (_, None) => Some(("has no value".to_owned(), format!("write = and {}", self.description()))),
            (Kind::Text | Kind::Secret | Kind::List, Some(_)) => None,
            (Kind::Bool, Some(text)) => value::boolean(text).err(),
            (Kind::Integer, Some(text)) => value::integer(text).err(),
            (Kind::Unsigned, Some(text)) => value::unsigned(text).err(),
            (Kind::Duration, Some(text)) => value::duration(text).err(),
        }
    }

    /// In words, for messages.
    fn description(self) -> &'static str {
        match self {
            Kind::Text | Kind::Secret => "a text",
            Kind::Bool => "true or false",
            Kind::Integer => "a whole number",
            Kind::Unsigned => "a whole number that is not negative",
            Kind::Duration => "a duration such as 30s",
            Kind::List => "a text; may be there several times",
        }
    }
}

/// Names are the same in any case.
pub(super) fn same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}
