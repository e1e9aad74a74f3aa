//! How the cloud goes wrong on purpose.
//!
//! Every fault has a source of chance of its own, made from the cloud's seed and the fault's number: the same seed, faults
//! and calls give the same mishaps, whatever other faults there are.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cloud::World;

/// What goes wrong, for which calls, how often and how many times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultSpec {
    /// What goes wrong.
    pub fault: Fault,
    /// The kind of call (`find`, `list`, `get`, `create-balancer`, …); all but `get` if empty.
    #[serde(default)]
    pub call: String,
    /// How many such calls it lets pass first. "From the third call on nothing works" is a crash after two.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u64,
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
    /// Answers, and shows nothing at all.
    Empty,
    /// Answers questions as things were when the fault was injected; what is written is written.
    Stale,
    /// Does as it is told, and the answer never arrives.
    AnswerLost,
    /// Answers something that makes no sense.
    Garbled,
    /// Something in front of the cloud answers in its place, with this status and body.
    Foreign(u16, String),
}

/// A fault in force.
#[derive(Debug, Clone)]
pub(crate) struct Injected {
    /// What takes it back.
    pub(crate) number: u64,
    /// As it was asked for.
    pub(crate) spec: FaultSpec,
    /// How many times it still strikes; `None` for ever.
    pub(crate) left: Option<u64>,
    /// How many calls it still lets pass.
    passing: u64,
    /// What there was when it was injected, if it is about that.
    past: Option<Arc<World>>,
    chance: fastrand::Rng,
}

/// All faults in force, oldest first.
#[derive(Debug)]
pub(crate) struct Faults {
    seed: u64,
    last: u64,
    injected: Vec<Injected>,
}

/// What becomes of one call.
#[derive(Debug, Default)]
pub(crate) struct Mishap {
    /// It takes this long.
    pub(crate) delay: Duration,
    /// And ends like this instead of well.
    pub(crate) ending: Option<Ending>,
}

/// How a call ends instead of well.
#[derive(Debug)]
pub(crate) enum Ending {
    /// 429.
    Throttled(Option<Duration>),
    /// This status.
    Failing(u16),
    /// Never.
    Hanging,
    /// Without anything.
    Empty,
    /// With what there was.
    Stale(Arc<World>),
    /// Well, and nobody hears of it.
    AnswerLost,
    /// With nonsense, of which there are several kinds.
    Garbled(usize),
    /// By something else, with this status and body.
    Foreign(u16, String),
}

impl FaultSpec {
    /// This fault, for all calls but `get`, always and for ever.
    pub fn always(fault: Fault) -> FaultSpec {
        FaultSpec { fault, call: String::new(), after: 0, probability: 1.0, times: None }
    }

    /// Only once so many calls have passed.
    pub fn after(mut self, calls: u64) -> FaultSpec {
        self.after = calls;
        self
    }

    /// For this kind of call only.
    pub fn on(mut self, call: &str) -> FaultSpec {
        call.clone_into(&mut self.call);
        self
    }

    /// This many times at most.
    pub fn times(mut self, times: u64) -> FaultSpec {
        self.times = Some(times);
        self
    }

    /// This often, from 0 to 1.
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
        // Neighbouring seeds give unlike sequences, so a sum is enough.
        let chance = fastrand::Rng::with_seed(self.seed.wrapping_add(number));
        self.injected.push(Injected { number, left: spec.times, passing: spec.after, spec, past, chance });
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

    /// What becomes of a call of this kind: delays add up, and the oldest fault that ends it wins.
    pub(crate) fn strike(&mut self, call: &str) -> Mishap {
        let mut mishap = Mishap::default();
        for fault in &mut self.injected {
            // Each counts the calls that it lets pass, whatever the others make of them.
            if !fault.is_concerned(call) || fault.lets_pass() || mishap.ending.is_some() || !fault.strikes() {
                continue;
            }
            match fault.ending() {
                Ok(delay) => mishap.delay = mishap.delay.saturating_add(delay),
                Err(ending) => mishap.ending = Some(ending),
            }
        }
        self.injected.retain(|fault| fault.left != Some(0));
        mishap
    }
}

impl Injected {
    /// Whether it is about such calls, and not used up.
    fn is_concerned(&self, call: &str) -> bool {
        let meant = if self.spec.call.is_empty() { call != "get" } else { self.spec.call == call };
        meant && self.left != Some(0)
    }

    /// Whether it lets this call pass because it comes too early; if so, one fewer is too early.
    fn lets_pass(&mut self) -> bool {
        let early = self.passing > 0;
        self.passing = self.passing.saturating_sub(1);
        early
    }

    /// Whether chance has it strike; if so, one time fewer is left.
    fn strikes(&mut self) -> bool {
        if self.chance.f64() >= self.spec.probability {
            return false;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        true
    }

    /// How it makes a call end, or by how much it delays it.
    fn ending(&mut self) -> Result<Duration, Ending> {
        Err(match &self.spec.fault {
            Fault::Slow(delay) => return Ok(*delay),
            Fault::Throttled(after) => Ending::Throttled(*after),
            Fault::Failing(status) => Ending::Failing(*status),
            Fault::Hanging => Ending::Hanging,
            Fault::Empty => Ending::Empty,
            Fault::Stale => Ending::Stale(self.past.clone().unwrap_or_default()),
            Fault::AnswerLost => Ending::AnswerLost,
            Fault::Garbled => Ending::Garbled(self.chance.usize(..)),
            Fault::Foreign(status, body) => Ending::Foreign(*status, body.clone()),
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

    /// What becomes of calls, as letters: `.` well, `f`ailing, `l`ost.
    fn ended(faults: &mut Faults, calls: &[&str]) -> String {
        let letter = |call: &&str| match faults.strike(call).ending {
            None => '.',
            Some(Ending::Failing(_)) => 'f',
            Some(Ending::AnswerLost) => 'l',
            other => panic!("{other:?}"),
        };
        calls.iter().map(letter).collect()
    }

    #[test]
    fn a_crash_lets_calls_pass_loses_one_answer_and_lets_nothing_pass_then() {
        let mut faults = Faults::new(0);
        faults.inject(FaultSpec::always(Fault::AnswerLost).after(2).times(1), &World::default());
        faults.inject(FaultSpec::always(Fault::Failing(500)).after(3), &World::default());
        assert_eq!(ended(&mut faults, &["find", "get", "delete-address", "list", "list", "get", "find"]), "...lf.f");
    }

    #[test]
    fn only_calls_of_its_kind_count_for_a_fault() {
        let mut faults = Faults::new(0);
        faults.inject(FaultSpec::always(Fault::Failing(500)).on("update-targets").after(1), &World::default());
        assert_eq!(ended(&mut faults, &["find", "update-targets", "find", "update-targets"]), "...f");
    }
}
