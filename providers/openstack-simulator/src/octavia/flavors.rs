//! Flavors and availability zones, which only administrators create: at most one of each.

use serde_json::{Value, json};

use super::{fault, no_such_path};
use crate::listing;
use crate::records::{Fields, Record, object};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

/// Profile of the flavor and the zone, visible only to administrators.
const PROFILE: &str = "5c0d1a6e-3f57-4b0c-9d4e-6a1f0f3c2b71";

/// The only flavor or availability zone.
pub(super) struct Resource {
    /// Names in request and response bodies, singular and plural.
    names: (&'static str, &'static str),
    /// Name in messages.
    noun: &'static str,
    /// Minor version that introduced the resource.
    since: u32,
    /// Field that identifies it in paths.
    key: &'static str,
    exists: bool,
    record: Record,
}

impl Resource {
    /// Whether it exists with this ID or name.
    pub(super) fn is(&self, key: &str) -> bool {
        self.exists && self.record.text(self.key) == key
    }
}

pub(super) fn flavor(state: &State) -> Resource {
    let record = json!({
        "id": state.fixture.octavia_flavor, "name": "small", "description": "", "enabled": true,
        "flavor_profile_id": PROFILE,
    });
    let (names, exists) = (("flavor", "flavors"), state.options.octavia_flavors);
    Resource { names, noun: "Flavor", since: 6, key: "id", exists, record: object(record) }
}

pub(super) fn zone(state: &State) -> Resource {
    let record = json!({
        "name": state.fixture.octavia_zone, "description": "", "enabled": true, "availability_zone_profile_id": PROFILE,
    });
    let (names, exists) = (("availability_zone", "availability_zones"), state.options.octavia_flavors);
    Resource { names, noun: "Availability Zone", since: 14, key: "name", exists, record: object(record) }
}

/// Answers a list or get request.
pub(super) fn answer(state: &State, call: &Call, resource: Resource, rest: &[&str]) -> Outcome {
    match rest {
        _ if state.options.octavia_minor < resource.since => Err(no_such_path()),
        [] => list(call, resource),
        [key] if resource.is(key) => Ok(Reply::one(200, resource.names.0, listing::select(call, resource.record))),
        [key] => Err(fault(404, &format!("{} {key} not found.", resource.noun))),
        _ => Err(no_such_path()),
    }
}

fn list(call: &Call, Resource { names: (_, plural), exists, record, .. }: Resource) -> Outcome {
    if listing::filters(call).any(|(field, _)| !record.contains_key(field)) {
        return Err(fault(400, "One or more arguments are either duplicate or invalid"));
    }
    let matches = exists && listing::filters(call).all(|(field, values)| listing::matches(&record, field, &values));
    let items: Vec<Value> = matches.then(|| listing::select(call, record)).into_iter().collect();
    let mut body = Record::new();
    body.set(plural, items);
    body.set(&format!("{plural}_links"), json!([]));
    Ok(Reply::json(200, Value::Object(body)))
}
