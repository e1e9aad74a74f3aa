//! What the services say, and one function for each call that is made.
//!
//! Types mirror the wire and are tolerant: OpenStack's releases differ in what they leave out and what they say `null` for.
//! Bodies are handed over without their envelope. A list has all its pages; deleting what is not there is a success.

pub(crate) mod compute;
pub(crate) mod key_manager;
pub(crate) mod network;
pub(crate) mod octavia;

use serde::{Deserialize, Deserializer, Serialize};

/// A reference to something.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
}

/// `null` is as if it were not there.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Text, which some write as a number.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(serde_json::Number),
    }
    Ok(match Option::deserialize(from)? {
        None => String::new(),
        Some(Written::Text(text)) => text,
        Some(Written::Number(number)) => number.to_string(),
    })
}
