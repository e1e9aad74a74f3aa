//! How long to wait after how many failures.

use std::time::Duration;

/// Waits that double: `first`, 2·`first`, 4·`first`, … up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
}

impl Backoff {
    /// The wait after this many failures in a row, the present one included; none without a failure.
    pub fn after(&self, failures: u32) -> Duration {
        let _ = failures;
        todo!()
    }
}
