//! Quotas of Octavia.

use serde_json::json;

use super::{fault, nouns};
use crate::records::{Kind, Record};
use crate::simulator::State;
use crate::wire::Reply;

const RESOURCES: [&str; 7] = ["load_balancer", "listener", "member", "pool", "health_monitor", "l7policy", "l7rule"];

pub(super) fn limits(state: &State) -> Reply {
    let limit = |name: &&str| ((*name).to_owned(), state.quota(name).map_or(json!(-1), |limit| json!(limit)));
    Reply::json(200, json!({"quota": RESOURCES.iter().map(limit).collect::<Record>()}))
}

/// Rejects a request that exceeds the quota.
pub(super) fn check(state: &State, kind: Kind, more: usize) -> Result<(), Reply> {
    let noun = nouns(kind).1;
    let name = noun.to_lowercase().replace(' ', "_");
    let total = state.records.of(kind).len() + more;
    if more > 0 && state.quota(&name).is_some_and(|limit| total as u64 > limit) {
        return Err(fault(403, &format!("Quota has been met for resources: {noun}")));
    }
    Ok(())
}
