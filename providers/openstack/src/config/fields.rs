//! The texts of `[Global]` by their keys, wherever they come from. None of them is ever printed.

use std::collections::BTreeMap;

use bowline_config::Secret;
use bowline_config::table::{Key, Keys as _, View};

use super::declaration::GlobalKeys;

/// Texts that are not empty, by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(BTreeMap<Key, Secret>);

impl Fields {
    /// What the section says.
    pub(super) fn of(view: &View<'_>) -> Fields {
        GlobalKeys::keys().into_iter().filter(|key| view.has(key)).fold(Fields::default(), |mut fields, key| {
            fields.fill(key, view.get(&key));
            fields
        })
    }

    /// Puts a text where none is yet; an empty one is none.
    pub(super) fn fill(&mut self, key: Key, value: Secret) {
        if !value.is_empty() {
            self.0.entry(key).or_insert(value);
        }
    }

    /// The text.
    pub(super) fn get(&self, key: Key) -> Option<&str> {
        self.0.get(&key).map(Secret::reveal)
    }

    /// The text as a value of its own; empty if there is none.
    pub(super) fn text(&self, key: Key) -> String {
        self.get(key).unwrap_or_default().to_owned()
    }

    /// As it came.
    pub(super) fn secret(&self, key: Key) -> Option<Secret> {
        self.0.get(&key).cloned()
    }

    /// One of them is there.
    pub(super) fn has_any(&self, keys: &[Key]) -> bool {
        keys.iter().any(|key| self.0.contains_key(key))
    }
}
