//! Secret values that are never printed by accident.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text that is printed in place of a secret.
const REDACTED: &str = "***";

/// A token, a password or a key. It is printed, logged and serialised as `***`; only [`reveal`](Secret::reveal) returns the value.
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
    /// Returns the value, for use as a credential.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns whether the value is empty.
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
    /// Deserialises a string. The error does not quote anything of an invalid value, because it may be the secret.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let text = String::deserialize(deserializer);
        text.map(Secret).map_err(|_| serde::de::Error::custom("expected a string; put it in quotes"))
    }
}
