//! Environment variables, read once and passed on as a value, so that other code does not depend on the process.

use std::collections::BTreeMap;

/// Environment variables. The debug output omits the values, which may contain credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Reads the environment of this process. Variables that are not valid UTF-8 are skipped.
    pub fn from_process() -> Environment {
        let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    /// Returns the value of a variable; `None` if it is not set or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns whether a variable is set, even to an empty value.
    pub fn is_set(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the variables whose name begins with a prefix, without it, sorted by name. Empty ones count as unset.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let variables = self.0.iter().filter(|(_, value)| !value.is_empty());
        variables.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Environment {
        Environment(variables.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_counts_as_unset_and_values_are_not_printed() {
        let environment = Environment::from_iter([("OS_CLOUD", "harbour"), ("OS_EMPTY", "")]);
        assert_eq!((environment.get("OS_CLOUD"), environment.get("OS_EMPTY")), (Some("harbour"), None));
        assert_eq!(format!("{environment:?}"), r#"{"OS_CLOUD", "OS_EMPTY"}"#);
        assert!(environment.is_set("OS_EMPTY") && !environment.is_set("OS_NONE"));
        assert_eq!(environment.with_prefix("OS_").collect::<Vec<_>>(), [("CLOUD", "harbour")]);
    }
}
