//! What the services say, and one function for each call that is made.
//!
//! Types mirror the wire and are tolerant: OpenStack's releases differ in what they leave out and what they say `null` for.

pub(crate) mod compute;
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
