//! A value that nobody gets to see by accident.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is printed in its place.
const REDACTED: &str = "***";

/// A token, a password or a key. Printed, logged or serialised it is `***`; only [`reveal`](Secret::reveal) gives it away.
///
/// ```
/// use bowline_config::Secret;
///
/// let token = Secret::from("s3cr3t");
/// assert_eq!(format!("{token} {token:?}"), "*** ***");
/// assert_eq!(token.reveal(), "s3cr3t");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value, for whoever sends it where it belongs.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// There is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Secret {
        Secret(value)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Secret {
        Secret(value.to_owned())
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// Of a wrong value, not even the kind is quoted: it may be the secret.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let text = String::deserialize(deserializer);
        text.map(Secret).map_err(|_| serde::de::Error::custom("a text is wanted; put it in quotes"))
    }
}
