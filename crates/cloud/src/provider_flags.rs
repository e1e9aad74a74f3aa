//! Flags of the manager, and names for `--controllers`, that providers declare.
//!
//! They exist for flags of Go managers: put settings of your own into the configuration file.

use std::collections::{BTreeMap, BTreeSet};

/// A flag that one kind of provider declares. The provider validates its values when it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderFlag {
    /// Name without dashes.
    pub name: &'static str,
    /// Placeholder of the value in `--help`.
    pub value: &'static str,
    /// Default; empty if there is none.
    pub default: &'static str,
    /// Help text.
    pub summary: &'static str,
    /// Syntax.
    pub syntax: FlagSyntax,
}

/// Syntax of a [`ProviderFlag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagSyntax {
    /// One value; the last one counts.
    Single,
    /// May be repeated.
    Repeated,
    /// `--flag` or `--flag=true|false`.
    Switch,
}

/// Values of the flags that providers declare, and the controllers of providers that `--controllers` enables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlagValues {
    values: BTreeMap<String, Vec<String>>,
    controllers: BTreeSet<String>,
}

impl FlagValues {
    /// Creates values by flag name.
    pub fn new(values: impl IntoIterator<Item = (String, Vec<String>)>) -> FlagValues {
        FlagValues { values: values.into_iter().collect(), controllers: BTreeSet::new() }
    }

    /// Enables controllers.
    pub fn with_controllers<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> FlagValues {
        self.controllers.extend(names.into_iter().map(Into::into));
        self
    }

    /// Returns all values of a flag, in order, or its default; empty without either.
    pub fn all<'a>(&'a self, flag: &'a ProviderFlag) -> Vec<&'a str> {
        match self.values.get(flag.name).filter(|values| !values.is_empty()) {
            Some(values) => values.iter().map(String::as_str).collect(),
            None => Some(flag.default).filter(|default| !default.is_empty()).into_iter().collect(),
        }
    }

    /// Returns the last value of a flag, or its default; empty without either.
    pub fn last<'a>(&'a self, flag: &'a ProviderFlag) -> &'a str {
        self.all(flag).pop().unwrap_or_default()
    }

    /// Returns whether `--controllers` enables this controller.
    pub fn has_controller(&self, name: &str) -> bool {
        self.controllers.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAGS: ProviderFlag =
        ProviderFlag { name: "tags", value: "TAGS", default: "", summary: "Tags.", syntax: FlagSyntax::Repeated };

    #[test]
    fn a_flag_has_its_values_or_its_default() {
        let values = |values: &[&str]| {
            let values = values.iter().map(ToString::to_string).collect();
            FlagValues::new([("tags".to_owned(), values)]).with_controllers(["tagging"])
        };
        assert_eq!(values(&["a", "b"]).all(&TAGS), ["a", "b"]);
        assert_eq!(values(&["a", "b"]).last(&TAGS), "b");
        assert_eq!((FlagValues::default().all(&TAGS), FlagValues::default().last(&TAGS)), (vec![], ""));
        let with_default = ProviderFlag { default: "x", ..TAGS };
        assert_eq!((values(&[]).all(&with_default), FlagValues::default().last(&with_default)), (vec!["x"], "x"));
        assert!(values(&[]).has_controller("tagging") && !values(&[]).has_controller("other"));
    }
}
