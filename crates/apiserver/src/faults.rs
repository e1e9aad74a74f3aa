//! Faults on demand, for tests of clients.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults {}

/// A rule.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultRule {}

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Effect {
    /// An error status.
    Status {
        /// The code.
        code: StatusCode,
        /// The message.
        message: String,
        /// Seconds for `Retry-After`.
        retry_after: Option<u32>,
    },
    /// A delay.
    Latency(Duration),
    /// The connection breaks off.
    Reset,
    /// A watch breaks off in the middle of a line.
    PartialWatchLine,
}

impl Faults {
    /// Adds a rule.
    pub fn add(&self, _rule: FaultRule) {}
    /// Removes all rules.
    pub fn clear(&self) {}
    /// The rules in force.
    pub fn list(&self) -> Vec<FaultRule> {
        Vec::new()
    }
    /// Seeds the dice.
    pub fn seed(&self, _seed: u64) {}
    pub(crate) fn decide(&self, _verb: &str, _resource: &str, _namespace: &str, _name: &str) -> Vec<Effect> {
        Vec::new()
    }
}
