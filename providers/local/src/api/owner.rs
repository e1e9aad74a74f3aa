//! What only the owner does: faults, counts, latency.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::balancers::Change;
use crate::cloud::LocalCloud;
use crate::faults::{Fault, FaultSpec};
use crate::{pod_ranges, routes};

use super::reply::{Outcome, Refusal, done, made};

/// The kinds of reading calls that faults can strike.
const READING: [&str; 6] = ["find", "list", "get", "observe-balancers", "list-balancers", routes::LIST];

/// How long every call takes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latency {
    pub(crate) millis: u64,
}

/// The number of a fault.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FaultNumber {
    pub(crate) number: u64,
}

/// A fault in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultInForce {
    /// What takes it back.
    pub number: u64,
    /// As it was asked for.
    pub spec: FaultSpec,
    /// How many times it still strikes; `None` for ever.
    pub left: Option<u64>,
}

pub(super) fn inject(cloud: &LocalCloud, spec: FaultSpec) -> Outcome {
    let calls = [&READING[..], &Change::KINDS, &routes::WRITING, &[pod_ranges::ASSIGN]].concat();
    if !spec.call.is_empty() && !calls.contains(&spec.call.as_str()) {
        return Err(Refusal::invalid(format!("call {:?}: one of {} is wanted", spec.call, calls.join(", "))));
    }
    if !(0.0..=1.0).contains(&spec.probability) {
        return Err(Refusal::invalid(format!("probability {}: a number from 0 to 1 is wanted", spec.probability)));
    }
    if let Fault::Failing(status) = spec.fault
        && !(400..=599).contains(&status)
    {
        return Err(Refusal::invalid(format!("failing {status}: a status from 400 to 599 is wanted")));
    }
    made(&FaultNumber { number: cloud.inject(spec) })
}

pub(super) fn repair(cloud: &LocalCloud, number: u64) -> Outcome {
    if cloud.repair(number) { done(Ok(())) } else { Err(Refusal::no_fault(&number.to_string())) }
}

pub(super) fn repair_all(cloud: &LocalCloud) -> Outcome {
    cloud.repair_all();
    done(Ok(()))
}

pub(super) fn reset_calls(cloud: &LocalCloud) -> Outcome {
    cloud.reset_calls();
    done(Ok(()))
}

pub(super) fn set_latency(cloud: &LocalCloud, latency: &Latency) -> Outcome {
    cloud.set_latency(Duration::from_millis(latency.millis));
    done(Ok(()))
}

pub(super) fn faults_in_force(cloud: &LocalCloud) -> Value {
    let faults = cloud.injected().into_iter();
    let faults = faults.map(|fault| FaultInForce { number: fault.number, left: fault.left, spec: fault.spec });
    json!({ "faults": faults.collect::<Vec<_>>() })
}
