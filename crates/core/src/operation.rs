//! Operations: what a cloud has begun and not finished.

use std::time::Duration;

use crate::Opaque;

/// An operation that a cloud is still at work on.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The cloud's ID of the operation, or of the thing that is being changed.
    pub id: String,
    /// Its state, in words for people: `load balancer web is not ACTIVE but PENDING_UPDATE`.
    pub what: String,
    /// What people can do about one that does not end, as a sentence; may be empty.
    pub advice: String,
    /// How often it is polled.
    pub pacing: Pacing,
    /// How long it may take before that is an error.
    pub deadline: Duration,
    /// An observation of the load balancer shows whether it has ended. Then it is not polled after the last step of a plan.
    pub observable: bool,
}

/// Pauses between two polls, each longer than the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pacing {
    /// The pause after the first poll.
    pub first: Duration,
    /// How many times longer each further pause is; 1 for equal pauses.
    pub factor: f64,
    /// The longest pause.
    pub max: Duration,
}

/// Whether an operation has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<P = Opaque> {
    /// It has ended. The value is passed to the next step, so that it need not read again what the poll has read. An operation that
    /// has failed is an error, unless the next step can decide better what to do about it.
    Done(P),
    /// The cloud is still at work on it.
    Running,
}

impl Pacing {
    /// Equal pauses.
    pub const fn every(pause: Duration) -> Pacing {
        Pacing { first: pause, factor: 1.0, max: pause }
    }

    /// The pause after this many polls.
    pub fn pause(&self, polls: u32) -> Duration {
        let grown = self.first.as_secs_f64() * self.factor.max(1.0).powf(f64::from(polls.saturating_sub(1)));
        Duration::from_secs_f64(grown.min(self.max.max(self.first).as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest_one() {
        let pacing = Pacing { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) };
        let pauses: Vec<_> = [0, 1, 2, 3, 4, 5].map(|polls| pacing.pause(polls).as_millis()).into();
        assert_eq!(pauses, [1000, 1000, 1200, 1440, 1728, 2073]);
        assert_eq!([14, 40, u32::MAX].map(|polls| pacing.pause(polls).as_secs()), [10, 10, 10]);
        let every = Pacing::every(Duration::from_secs(3));
        assert_eq!([1, 7].map(|polls| every.pause(polls).as_secs()), [3, 3]);
    }

    #[test]
    fn a_factor_that_makes_no_sense_is_one() {
        for factor in [0.0, -3.0, f64::NAN] {
            let pacing = Pacing { first: Duration::from_secs(2), factor, max: Duration::ZERO };
            assert_eq!(pacing.pause(9), Duration::from_secs(2));
        }
    }
}
