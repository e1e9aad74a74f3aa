//! How the cloud goes wrong on purpose.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What goes wrong, for which calls, how often and how many times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultSpec {
    /// What goes wrong.
    pub fault: Fault,
    /// The kind of call (`find`, `list`); all if empty.
    #[serde(default)]
    pub call: String,
    /// How often, from 0 to 1.
    #[serde(default = "always")]
    pub probability: f64,
    /// How many times at most; `None` for ever.
    #[serde(default)]
    pub times: Option<u64>,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// Slow by this much.
    Slow(#[serde(with = "millis")] Duration),
    /// 429, with this in Retry-After if given.
    Throttled(#[serde(with = "optional_millis")] Option<Duration>),
    /// This HTTP status: 401, 403, 500, 503, …
    Failing(u16),
    /// Never answers.
    Hanging,
    /// Answers, and shows no machines at all.
    Empty,
    /// Answers as things were when the fault was injected.
    Stale,
    /// Answers something that makes no sense.
    Garbled,
}

fn always() -> f64 {
    1.0
}

/// Milliseconds as a number.
mod millis {
    use super::*;
    pub(super) fn serialize<S: serde::Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        (value.as_millis() as u64).serialize(serializer)
    }
    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Milliseconds as a number, or null.
mod optional_millis {
    use super::*;
    pub(super) fn serialize<S: serde::Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.as_millis() as u64).serialize(serializer)
    }
    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Option::<u64>::deserialize(deserializer).map(|value| value.map(Duration::from_millis))
    }
}
