//! Management calls: faults, counters, latency.

use std::time::Duration;

use bowline_agent_client::Change;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cloud::LocalCloud;
use crate::faults::{Fault, FaultSpec};
use crate::{pod_cidrs, routes};

use super::reply::{ApiError, ApiResult, created, empty};

/// Kinds of read calls that faults can affect.
const READ_CALLS: [&str; 6] = ["find", "list", "get", "observe-balancers", "list-balancers", routes::LIST];

/// Latency of user calls.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latency {
    pub(crate) millis: u64,
}

/// Number of a fault.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FaultNumber {
    pub(crate) number: u64,
}

/// Fault in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultInForce {
    /// Number that identifies the fault.
    pub number: u64,
    /// Specification.
    pub spec: FaultSpec,
    /// Remaining number of affected calls; `None` for no limit.
    pub left: Option<u64>,
}

pub(super) fn inject(cloud: &LocalCloud, spec: FaultSpec) -> ApiResult {
    let calls = [&READ_CALLS[..], &Change::KINDS, &routes::WRITE_CALLS, &[pod_cidrs::ASSIGN]].concat();
    if !spec.call.is_empty() && !calls.contains(&spec.call.as_str()) {
        return Err(ApiError::invalid(format!("call {:?}: must be one of {}", spec.call, calls.join(", "))));
    }
    if !(0.0..=1.0).contains(&spec.probability) {
        return Err(ApiError::invalid(format!("probability {}: must be a number from 0 to 1", spec.probability)));
    }
    if let Fault::Failing(status) = spec.fault
        && !(400..=599).contains(&status)
    {
        return Err(ApiError::invalid(format!("failing {status}: must be a status from 400 to 599")));
    }
    created(&FaultNumber { number: cloud.inject(spec) })
}

pub(super) fn repair(cloud: &LocalCloud, number: u64) -> ApiResult {
    if cloud.repair(number) { empty(Ok(())) } else { Err(ApiError::no_fault(&number.to_string())) }
}

pub(super) fn repair_all(cloud: &LocalCloud) -> ApiResult {
    cloud.repair_all();
    empty(Ok(()))
}

pub(super) fn reset_calls(cloud: &LocalCloud) -> ApiResult {
    cloud.reset_calls();
    empty(Ok(()))
}

pub(super) fn set_latency(cloud: &LocalCloud, latency: &Latency) -> ApiResult {
    cloud.set_latency(Duration::from_millis(latency.millis));
    empty(Ok(()))
}

pub(super) fn faults_in_force(cloud: &LocalCloud) -> Value {
    let faults = cloud.injected().into_iter();
    let faults = faults.map(|fault| FaultInForce { number: fault.number, left: fault.left, spec: fault.spec });
    json!({ "faults": faults.collect::<Vec<_>>() })
}
