//! Fault injection.
//!
//! Every fault has its own random number generator, seeded with the seed of the cloud and the number of the fault: the same seed,
//! faults and calls have the same effects, whatever other faults there are.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cloud::World;

/// Fault, with the calls it affects, its probability and its limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultSpec {
    /// The fault.
    pub fault: Fault,
    /// Kind of call (`find`, `list`, `get`, `create-balancer`, …); all except `get` if empty.
    #[serde(default)]
    pub call: String,
    /// Number of such calls that succeed first. "From the third call on, everything fails" is a crash after two.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u64,
    /// Probability, from 0 to 1.
    #[serde(default = "always")]
    pub probability: f64,
    /// Maximum number of affected calls; `None` for no limit.
    #[serde(default)]
    pub times: Option<u64>,
}

/// Kind of fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// Additional latency.
    Slow(#[serde(with = "millis")] Duration),
    /// Status 429, with this `Retry-After` if set.
    Throttled(#[serde(with = "optional_millis")] Option<Duration>),
    /// This HTTP status: 401, 403, 500, 503, …
    Failing(u16),
    /// No response, ever.
    Hanging,
    /// Empty response.
    Empty,
    /// Reads return the resources as they were when the fault was injected; writes are applied.
    Stale,
    /// The call is applied, but its response is lost.
    AnswerLost,
    /// Invalid response.
    Garbled,
    /// Response of a proxy in front of the cloud, with this status and body.
    Foreign(u16, String),
}

/// A fault in force.
#[derive(Debug, Clone)]
pub(crate) struct Injected {
    /// Number that identifies the fault.
    pub(crate) number: u64,
    /// Specification.
    pub(crate) spec: FaultSpec,
    /// Remaining number of affected calls; `None` for no limit.
    pub(crate) left: Option<u64>,
    /// Remaining number of calls that succeed first.
    passing: u64,
    /// Resources at the time of the injection, for [`Fault::Stale`].
    past: Option<Arc<World>>,
    rng: fastrand::Rng,
}

/// All faults in force, oldest first.
#[derive(Debug)]
pub(crate) struct Faults {
    seed: u64,
    last: u64,
    injected: Vec<Injected>,
}

/// Effect of the faults on one call.
#[derive(Debug, Default)]
pub(crate) struct FaultEffect {
    /// Latency.
    pub(crate) delay: Duration,
    /// Failure, if any.
    pub(crate) failure: Option<InjectedFailure>,
}

/// Failure of a call.
#[derive(Debug)]
pub(crate) enum InjectedFailure {
    /// Status 429.
    Throttled(Option<Duration>),
    /// HTTP status.
    Failing(u16),
    /// No response.
    Hanging,
    /// Empty response.
    Empty,
    /// Response from past resources.
    Stale(Arc<World>),
    /// Applied, with a lost response.
    AnswerLost,
    /// Invalid response, of several kinds.
    Garbled(usize),
    /// Response of a proxy, with this status and body.
    Foreign(u16, String),
}

impl FaultSpec {
    /// Fault for all calls except `get`, with probability 1 and no limit.
    pub fn always(fault: Fault) -> FaultSpec {
        FaultSpec { fault, call: String::new(), after: 0, probability: 1.0, times: None }
    }

    /// Lets this number of calls succeed first.
    pub fn after(mut self, calls: u64) -> FaultSpec {
        self.after = calls;
        self
    }

    /// Affects this kind of call only.
    pub fn on(mut self, call: &str) -> FaultSpec {
        call.clone_into(&mut self.call);
        self
    }

    /// Limits the number of affected calls.
    pub fn times(mut self, times: u64) -> FaultSpec {
        self.times = Some(times);
        self
    }

    /// Sets the probability, from 0 to 1.
    pub fn probability(mut self, probability: f64) -> FaultSpec {
        self.probability = probability;
        self
    }
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Faults {
        Faults { seed, last: 0, injected: Vec::new() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Injected> {
        self.injected.iter()
    }

    pub(crate) fn inject(&mut self, spec: FaultSpec, world: &World) -> u64 {
        self.last += 1;
        let number = self.last;
        let past = (spec.fault == Fault::Stale).then(|| Arc::new(world.clone()));
        // Adjacent seeds give unrelated sequences, so a sum is enough.
        let rng = fastrand::Rng::with_seed(self.seed.wrapping_add(number));
        self.injected.push(Injected { number, left: spec.times, passing: spec.after, spec, past, rng });
        number
    }

    pub(crate) fn repair(&mut self, number: u64) -> bool {
        let before = self.injected.len();
        self.injected.retain(|fault| fault.number != number);
        self.injected.len() < before
    }

    pub(crate) fn repair_all(&mut self) {
        self.injected.clear();
    }

    /// Returns the effect on a call of this kind: delays add up, and the oldest fault that fails the call wins.
    pub(crate) fn apply(&mut self, call: &str) -> FaultEffect {
        let mut effect = FaultEffect::default();
        for fault in &mut self.injected {
            // Each fault counts the calls before its start, whatever the other faults do.
            if !fault.matches(call) || fault.is_before_start() || effect.failure.is_some() || !fault.fires() {
                continue;
            }
            match fault.effect() {
                Ok(delay) => effect.delay = effect.delay.saturating_add(delay),
                Err(failure) => effect.failure = Some(failure),
            }
        }
        self.injected.retain(|fault| fault.left != Some(0));
        effect
    }
}

impl Injected {
    /// Whether the fault applies to this kind of call and has not reached its limit.
    fn matches(&self, call: &str) -> bool {
        let matches = if self.spec.call.is_empty() { call != "get" } else { self.spec.call == call };
        matches && self.left != Some(0)
    }

    /// Whether this call is one of those that succeed first; counts it.
    fn is_before_start(&mut self) -> bool {
        let early = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        early
    }

    /// Whether the fault affects this call, by its probability; counts it.
    fn fires(&mut self) -> bool {
        if self.rng.f64() >= self.spec.probability {
            return false;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        true
    }

    /// Failure of the call, or its delay.
    fn effect(&mut self) -> Result<Duration, InjectedFailure> {
        Err(match &self.spec.fault {
            Fault::Slow(delay) => return Ok(*delay),
            Fault::Throttled(after) => InjectedFailure::Throttled(*after),
            Fault::Failing(status) => InjectedFailure::Failing(*status),
            Fault::Hanging => InjectedFailure::Hanging,
            Fault::Empty => InjectedFailure::Empty,
            Fault::Stale => InjectedFailure::Stale(self.past.clone().unwrap_or_default()),
            Fault::AnswerLost => InjectedFailure::AnswerLost,
            Fault::Garbled => InjectedFailure::Garbled(self.rng.usize(..)),
            Fault::Foreign(status, body) => InjectedFailure::Foreign(*status, body.clone()),
        })
    }
}

fn always() -> f64 {
    1.0
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of calls, as letters: `.` success, `f`ailing, `l`ost.
    fn results(faults: &mut Faults, calls: &[&str]) -> String {
        let letter = |call: &&str| match faults.apply(call).failure {
            None => '.',
            Some(InjectedFailure::Failing(_)) => 'f',
            Some(InjectedFailure::AnswerLost) => 'l',
            other => panic!("{other:?}"),
        };
        calls.iter().map(letter).collect()
    }

    #[test]
    fn a_crash_lets_calls_succeed_then_loses_one_answer_then_fails_all() {
        let mut faults = Faults::new(0);
        faults.inject(FaultSpec::always(Fault::AnswerLost).after(2).times(1), &World::default());
        faults.inject(FaultSpec::always(Fault::Failing(500)).after(3), &World::default());
        assert_eq!(results(&mut faults, &["find", "get", "delete-address", "list", "list", "get", "find"]), "...lf.f");
    }

    #[test]
    fn a_fault_counts_only_calls_of_its_kind() {
        let mut faults = Faults::new(0);
        faults.inject(FaultSpec::always(Fault::Failing(500)).on("update-targets").after(1), &World::default());
        assert_eq!(results(&mut faults, &["find", "update-targets", "find", "update-targets"]), "...f");
    }
}
