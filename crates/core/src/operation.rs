//! Long-running operations of a cloud.

use std::time::Duration;

use crate::Opaque;

/// An operation that has started in the cloud and has not ended yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// ID of the operation in the cloud, or of the resource that is being changed.
    pub id: String,
    /// Human-readable description of its state: `load balancer web is not ACTIVE but PENDING_UPDATE`.
    pub description: String,
    /// One sentence with the remedy if the operation does not end; may be empty.
    pub advice: String,
    /// Interval at which the framework polls the operation.
    pub poll_interval: PollInterval,
    /// Time after which an operation that is still running counts as failed.
    pub deadline: Duration,
    /// Whether an observation of the load balancer shows if the operation has ended. If so, it is not polled after the last step of
    /// a plan.
    pub observable: bool,
}

/// Interval between two polls of an operation; it grows by a factor up to a maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PollInterval {
    /// Pause after the first poll.
    pub first: Duration,
    /// Factor by which each further pause grows; 1 for a constant interval.
    pub factor: f64,
    /// Maximum pause.
    pub max: Duration,
}

/// Progress of an operation, as returned by a poll.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<P = Opaque> {
    /// The operation has ended. The value is passed to the next step, which need not repeat the read of the poll. Report a failed
    /// operation as an error, unless the next step can handle the failure better.
    Done(P),
    /// The operation is still running.
    Running,
}

impl PollInterval {
    /// Returns a constant interval.
    pub const fn every(pause: Duration) -> PollInterval {
        PollInterval { first: pause, factor: 1.0, max: pause }
    }

    /// Returns the pause after the given number of polls.
    pub fn pause(&self, polls: u32) -> Duration {
        let grown = self.first.as_secs_f64() * self.factor.max(1.0).powf(f64::from(polls.saturating_sub(1)));
        Duration::from_secs_f64(grown.min(self.max.max(self.first).as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_maximum() {
        let poll_interval = PollInterval { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) };
        let pauses: Vec<_> = [0, 1, 2, 3, 4, 5].map(|polls| poll_interval.pause(polls).as_millis()).into();
        assert_eq!(pauses, [1000, 1000, 1200, 1440, 1728, 2073]);
        assert_eq!([14, 40, u32::MAX].map(|polls| poll_interval.pause(polls).as_secs()), [10, 10, 10]);
        let every = PollInterval::every(Duration::from_secs(3));
        assert_eq!([1, 7].map(|polls| every.pause(polls).as_secs()), [3, 3]);
    }

    #[test]
    fn an_invalid_factor_counts_as_one() {
        for factor in [0.0, -3.0, f64::NAN] {
            let poll_interval = PollInterval { first: Duration::from_secs(2), factor, max: Duration::ZERO };
            assert_eq!(poll_interval.pause(9), Duration::from_secs(2));
        }
    }
}
