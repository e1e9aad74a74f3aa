//! Exponential back-off.

use std::time::Duration;

/// After this number of doublings every non-zero [`Duration`] has reached its maximum, so further ones change nothing.
const DOUBLINGS: u32 = 128;

/// Delays that double: `first`, 2·`first`, 4·`first`, … up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Maximum delay.
    pub max: Duration,
}

impl Backoff {
    /// Returns the delay after this number of consecutive failures; zero without a failure.
    pub fn after(&self, failures: u32) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        (1..failures.min(DOUBLINGS)).fold(self.first, |delay, _| delay.saturating_mul(2)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let upstream = Backoff { first: Duration::from_millis(5), max: Duration::from_secs(1000) };
        for (failures, wait) in
            [(0, 0), (1, 5), (2, 10), (3, 20), (18, 655_360), (19, 1_000_000), (u32::MAX, 1_000_000)]
        {
            assert_eq!(upstream.after(failures), Duration::from_millis(wait), "after {failures} failures");
        }
    }

    #[test]
    fn extreme_bounds_do_not_overflow() {
        let widest = Backoff { first: Duration::from_nanos(1), max: Duration::MAX };
        assert_eq!(widest.after(u32::MAX), Duration::MAX);
        let none = Backoff { first: Duration::ZERO, max: Duration::MAX };
        assert_eq!(none.after(u32::MAX), Duration::ZERO);
        let inverted = Backoff { first: Duration::from_secs(2), max: Duration::from_secs(1) };
        assert_eq!(inverted.after(1), Duration::from_secs(1));
    }
}
