//! Lists and tags in XML responses.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// A list of EC2: `<item>` elements.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Items<T> {
    #[serde(rename = "item", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

/// A list of the other APIs: `<member>` elements.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Members<T> {
    #[serde(rename = "member", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { items: Vec::new() }
    }
}

impl<T> Default for Members<T> {
    fn default() -> Members<T> {
        Members { items: Vec::new() }
    }
}

/// Reads a list of EC2 as a vector: `#[serde(default, deserialize_with = "items")]`.
pub(crate) fn items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Items::deserialize(from).map(|list| list.items)
}

/// Reads a list of the other APIs as a vector.
pub(crate) fn members<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Members::deserialize(from).map(|list| list.items)
}

/// Tags by key.
pub(crate) type Tags = BTreeMap<String, String>;

/// One tag. EC2 writes the names of its elements with a small first letter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Tag {
    #[serde(alias = "Key")]
    key: String,
    #[serde(alias = "Value", default)]
    value: String,
}

/// Reads tags of EC2.
pub(crate) fn item_tags<'de, D: Deserializer<'de>>(from: D) -> Result<Tags, D::Error> {
    items::<D, Tag>(from).map(by_key)
}

/// Reads tags of the other APIs.
pub(crate) fn member_tags<'de, D: Deserializer<'de>>(from: D) -> Result<Tags, D::Error> {
    members::<D, Tag>(from).map(by_key)
}

fn by_key(tags: Vec<Tag>) -> Tags {
    tags.into_iter().map(|tag| (tag.key, tag.value)).collect()
}

/// Treats an empty token of a next page as none: the last page may have an empty element.
pub(crate) fn token<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|token| !token.is_empty()))
}
