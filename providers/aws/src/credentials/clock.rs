//! Clock for signatures, corrected by the time of AWS.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};

/// Difference from which on a rejected signature is taken for an effect of the clock, as in the AWS SDKs.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(4);

/// Codes of errors that a wrong clock can cause.
const CODES: [&str; 6] = [
    "AuthFailure",
    "InvalidSignatureException",
    "RequestExpired",
    "RequestInTheFuture",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
];

/// The clock of this machine with a correction. Clones share the correction.
#[derive(Clone, Default)]
pub(super) struct Clock {
    /// Seconds to add.
    offset: Arc<AtomicI64>,
}

impl Clock {
    /// Returns the time by the clock of AWS, as far as it is known.
    pub(super) fn now(&self) -> Timestamp {
        self.corrected(Timestamp::now())
    }

    /// Sets the clock to the time of a response, if this code of an error may come from a clock that differs much. Returns whether
    /// it was set.
    pub(super) fn correct(&self, code: Option<&str>, date: Option<SystemTime>) -> bool {
        let Some(date) = date.and_then(|date| Timestamp::try_from(date).ok()) else { return false };
        if !code.is_some_and(|code| CODES.contains(&code)) || date.duration_since(self.now()).abs() <= MAX_SKEW {
            return false;
        }
        let offset = date.duration_since(Timestamp::now()).as_secs();
        self.offset.store(offset, Ordering::Relaxed);
        tracing::warn!(
            seconds = offset,
            "the clock of this machine differs from that of AWS; requests are signed with the time of AWS"
        );
        true
    }

    fn corrected(&self, time: Timestamp) -> Timestamp {
        let offset = SignedDuration::from_secs(self.offset.load(Ordering::Relaxed));
        time.checked_add(offset).unwrap_or(time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_large_difference_behind_a_rejected_time_corrects_the_clock() {
        let clock = Clock::default();
        let (near, far) = (SystemTime::now() + Duration::from_secs(200), SystemTime::now() - Duration::from_secs(3600));
        assert!(!clock.correct(Some("RequestExpired"), Some(near)));
        assert!(!clock.correct(Some("ExpiredToken"), Some(far)), "another cause");
        assert!(!clock.correct(Some("RequestExpired"), None) && !clock.correct(None, Some(far)));
        assert!(clock.correct(Some("RequestExpired"), Some(far)));
        let difference = Timestamp::now().duration_since(clock.now());
        assert!((3595..=3605).contains(&difference.as_secs()), "{difference:?}");
        assert!(!clock.correct(Some("RequestExpired"), Some(far)), "the corrected clock is right");
        assert!(clock.correct(Some("SignatureDoesNotMatch"), Some(SystemTime::now())), "the machine was corrected");
    }
}
