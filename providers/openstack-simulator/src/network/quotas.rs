//! How much of each kind the project may have.

use serde_json::{Value, json};

use super::fault;
use crate::records::{Fields, Kind, Record, Row};
use crate::simulator::State;
use crate::wire::Reply;

/// What is counted.
const COUNTED: [(&str, Option<Kind>); 9] = [
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
    let limits: Record = COUNTED.iter().map(|(name, _)| ((*name).to_owned(), limit(state, name))).collect();
    Reply::json(200, json!({"quota": limits}))
}

pub(super) fn details(state: &State) -> Reply {
    let detail = |(name, kind): &(&str, Option<Kind>)| {
        let used = kind.map_or(0, |kind| used(state, kind));
        ((*name).to_owned(), json!({"limit": limit(state, name), "used": used, "reserved": 0}))
    };
    Reply::json(200, json!({"quota": COUNTED.iter().map(detail).collect::<Record>()}))
}

/// What the project itself has.
fn used(state: &State, kind: Kind) -> u64 {
    let own = |row: &&Row| row.record.text("project_id") == state.fixture.project;
    state.records.of(kind).iter().filter(own).count() as u64
}

fn limit(state: &State, name: &str) -> Value {
    // All but this one were lifted where the recordings are from.
    let usual = if name == "rbac_policy" { json!(10) } else { json!(-1) };
    state.quota(name).map_or(usual, |limit| json!(limit))
}

/// Refuses one more than there may be.
pub(super) fn check(state: &State, name: &str, kind: Kind) -> Result<(), Reply> {
    let used = used(state, kind);
    if state.quota(name).is_some_and(|limit| used >= limit) {
        return Err(fault(409, "OverQuota", &format!("Quota exceeded for resources: ['{name}'].")));
    }
    Ok(())
}
