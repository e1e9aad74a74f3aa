//! Quotas of Neutron.

use serde_json::{Value, json};

use super::fault;
use crate::records::{Fields, Kind, Record, Row};
use crate::simulator::State;
use crate::wire::Reply;

/// Resources with a quota.
const RESOURCES: [(&str, Option<Kind>); 9] = [
    ("network", Some(Kind::Network)),
    ("subnet", Some(Kind::Subnet)),
    ("subnetpool", None),
    ("port", Some(Kind::Port)),
    ("router", Some(Kind::Router)),
    ("floatingip", Some(Kind::FloatingIp)),
    ("rbac_policy", None),
    ("security_group", Some(Kind::SecurityGroup)),
    ("security_group_rule", Some(Kind::SecurityGroupRule)),
];

pub(super) fn limits(state: &State) -> Reply {
    let limits: Record = RESOURCES.iter().map(|(name, _)| ((*name).to_owned(), limit(state, name))).collect();
    Reply::json(200, json!({"quota": limits}))
}

pub(super) fn details(state: &State) -> Reply {
    let detail = |(name, kind): &(&str, Option<Kind>)| {
        let used = kind.map_or(0, |kind| used(state, kind));
        ((*name).to_owned(), json!({"limit": limit(state, name), "used": used, "reserved": 0}))
    };
    Reply::json(200, json!({"quota": RESOURCES.iter().map(detail).collect::<Record>()}))
}

/// Number of records that belong to the project.
fn used(state: &State, kind: Kind) -> u64 {
    let own = |row: &&Row| row.record.text("project_id") == state.fixture.project;
    state.records.of(kind).iter().filter(own).count() as u64
}

fn limit(state: &State, name: &str) -> Value {
    // The recorded cloud had no limits except this one.
    let default = if name == "rbac_policy" { json!(10) } else { json!(-1) };
    state.quota(name).map_or(default, |limit| json!(limit))
}

/// Rejects a new record that exceeds the quota.
pub(super) fn check(state: &State, name: &str, kind: Kind) -> Result<(), Reply> {
    let used = used(state, kind);
    if state.quota(name).is_some_and(|limit| used >= limit) {
        return Err(fault(409, "OverQuota", &format!("Quota exceeded for resources: ['{name}'].")));
    }
    Ok(())
}
