//! Call budgets: the number of calls that a cloud still accepts, as its responses report it.
//!
//! While more than a tenth of a budget remains, calls are not delayed. After that they are spread over the time until the cloud
//! resets the budget, so that it is never used up and no call is rejected.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{CheckResult, Error, ErrorKind, Result};

/// Share of a budget below which calls are delayed.
const RESERVE: u64 = 10;

/// Maximum time until a reset that is believed: the clocks of cloud and manager may differ.
const MAX_RESET: Duration = Duration::from_secs(3600);

/// Rate limit of a service, as a response reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBudget {
    /// Number of calls between two resets.
    pub limit: u64,
    /// Number of calls that remain.
    pub remaining: u64,
    /// Time until the cloud resets the budget.
    pub resets_in: Duration,
}

impl CallBudget {
    /// Whether so few calls remain that further ones are delayed.
    pub fn is_low(&self) -> bool {
        self.remaining.saturating_mul(RESERVE) <= self.limit
    }

    /// Returns the budget for `bowline check`; an error if it is low.
    pub(super) fn check(&self, service: &str) -> CheckResult {
        let minutes = self.resets_in.as_secs().div_ceil(60);
        let text = format!("{} of {} calls remain for {minutes} min", self.remaining, self.limit);
        let outcome: Result<String> = match self.is_low() {
            true => {
                let message = format!("{text}; other clients use the same credentials, too");
                Err(Error::new(ErrorKind::RateLimited, "read the rate limit", message))
            }
            false => Ok(text),
        };
        CheckResult::new(format!("rate limit of {service}"), outcome)
    }
}

/// Last known budget of each service.
#[derive(Default)]
pub(super) struct Budgets(Mutex<BTreeMap<&'static str, Known>>);

struct Known {
    budget: CallBudget,
    resets_at: Instant,
    /// Earliest time of the next call.
    next: Instant,
}

impl Budgets {
    /// Records the budget of a response.
    pub(super) fn record(&self, service: &'static str, budget: CallBudget) {
        let now = Instant::now();
        let resets_at = now + budget.resets_in.min(MAX_RESET);
        let mut known = self.known();
        let next = known.get(service).map_or(now, |known| known.next);
        known.insert(service, Known { budget, resets_at, next });
    }

    /// Returns the budget of a service, unless it has been reset since.
    pub(super) fn get(&self, service: &str) -> Option<CallBudget> {
        let known = self.known();
        let known = known.get(service)?;
        let resets_in = known.resets_at.saturating_duration_since(Instant::now());
        (!resets_in.is_zero()).then_some(CallBudget { resets_in, ..known.budget })
    }

    /// Returns the budgets of all services.
    pub(super) fn all(&self) -> BTreeMap<&'static str, CallBudget> {
        let services: Vec<_> = self.known().keys().copied().collect();
        services.into_iter().filter_map(|service| Some((service, self.get(service)?))).collect()
    }

    /// Returns the budgets that have not been reset since, each with the time of its reset.
    pub(super) fn with_resets(&self) -> BTreeMap<&'static str, (CallBudget, Instant)> {
        let now = Instant::now();
        let known = self.known();
        let current = known.iter().filter(|(_, known)| known.resets_at > now);
        current.map(|(service, known)| (*service, (known.budget, known.resets_at))).collect()
    }

    /// Reserves a call, and returns the time until it may be made. Fails with that time if it is longer than `max`.
    pub(super) fn reserve(&self, service: &str, max: Duration) -> std::result::Result<Duration, Duration> {
        let now = Instant::now();
        let mut all = self.known();
        let Some(known) = all.get_mut(service).filter(|known| known.is_low(now)) else { return Ok(Duration::ZERO) };
        let remaining = u32::try_from(known.budget.remaining).unwrap_or(u32::MAX);
        let at = if remaining == 0 { known.resets_at } else { known.next.max(now) };
        let wait = at.saturating_duration_since(now);
        if wait > max {
            return Err(wait);
        }
        known.next = at + known.resets_at.saturating_duration_since(now) / remaining.max(1);
        Ok(wait)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<&'static str, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_low(&self, now: Instant) -> bool {
        self.resets_at > now && self.budget.is_low()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(10);

    fn budget(remaining: u64, seconds: u64) -> CallBudget {
        CallBudget { limit: 5000, remaining, resets_in: Duration::from_secs(seconds) }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_spread_over_the_rest_of_the_hour_once_a_tenth_of_the_budget_remains() {
        let budgets = Budgets::default();
        assert_eq!(budgets.reserve("api", MAX), Ok(Duration::ZERO), "unknown");
        budgets.record("api", budget(501, 600));
        assert_eq!([budgets.reserve("api", MAX), budgets.reserve("api", MAX)], [Ok(Duration::ZERO); 2]);
        budgets.record("api", budget(200, 600));
        let waits = [0, 3, 6, 9].map(|wait| Ok(Duration::from_secs(wait)));
        assert_eq!([(); 4].map(|()| budgets.reserve("api", MAX)), waits);
        assert_eq!(budgets.reserve("api", MAX), Err(Duration::from_secs(12)));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(budgets.reserve("api", MAX), Ok(Duration::from_secs(6)));
    }

    #[test]
    fn a_check_fails_if_a_tenth_or_less_of_the_budget_remains() {
        let result = budget(501, 61).check("api");
        assert_eq!(
            (result.subject.as_str(), result.outcome.ok()),
            ("rate limit of api", Some("501 of 5000 calls remain for 2 min".into()))
        );
        let error = budget(500, 60).check("api").outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.to_string().contains("500 of 5000 calls remain for 1 min"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_up_budget_waits_for_its_reset() {
        let budgets = Budgets::default();
        budgets.record("api", budget(0, 90));
        assert_eq!(budgets.reserve("api", MAX), Err(Duration::from_secs(90)));
        assert_eq!(budgets.get("api"), Some(budget(0, 90)));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(budgets.reserve("api", MAX), Ok(Duration::ZERO));
        assert_eq!((budgets.get("api"), budgets.all().len()), (None, 0));
    }
}
