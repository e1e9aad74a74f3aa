//! Texts of `[Global]` by key, whatever their source. They are never printed.

use std::collections::BTreeMap;

use bowline_config::Secret;
use bowline_config::table::{Key, Keys as _, View};

use super::declaration::GlobalKeys;

/// Non-empty texts by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(BTreeMap<Key, Secret>);

impl Fields {
    /// Reads the section.
    pub(super) fn of(view: &View<'_>) -> Fields {
        GlobalKeys::keys().into_iter().filter(|key| view.has(key)).fold(Fields::default(), |mut fields, key| {
            fields.fill(key, view.get(&key));
            fields
        })
    }

    /// Sets a text unless one exists; an empty one is none.
    pub(super) fn fill(&mut self, key: Key, value: Secret) {
        if !value.is_empty() {
            self.0.entry(key).or_insert(value);
        }
    }

    /// Returns the text.
    pub(super) fn get(&self, key: Key) -> Option<&str> {
        self.0.get(&key).map(Secret::reveal)
    }

    /// Returns the text as an owned value; empty if there is none.
    pub(super) fn text(&self, key: Key) -> String {
        self.get(key).unwrap_or_default().to_owned()
    }

    /// Returns the value as a secret.
    pub(super) fn secret(&self, key: Key) -> Option<Secret> {
        self.0.get(&key).cloned()
    }

    /// Returns whether one of them is set.
    pub(super) fn has_any(&self, keys: &[Key]) -> bool {
        keys.iter().any(|key| self.0.contains_key(key))
    }
}
