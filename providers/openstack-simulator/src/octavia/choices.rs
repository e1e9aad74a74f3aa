//! What a balancer may be made with, and what only administrators make: one flavor and one availability zone.

use serde_json::{Value, json};

use super::{fault, no_such_path};
use crate::listing;
use crate::records::{Fields, Record, object};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

/// The profile of the flavor and of the zone, which only administrators see.
const PROFILE: &str = "5c0d1a6e-3f57-4b0c-9d4e-6a1f0f3c2b71";

/// The one thing of its kind, if there is any.
pub(super) struct Choice {
    /// What one is called in bodies, and many.
    words: (&'static str, &'static str),
    /// What one is called in prose.
    noun: &'static str,
    /// The minor version that brought the kind.
    since: u32,
    /// The field that it is asked for by.
    key: &'static str,
    is_there: bool,
    record: Record,
}

impl Choice {
    /// Whether this is its ID or name.
    pub(super) fn is(&self, wanted: &str) -> bool {
        self.is_there && self.record.text(self.key) == wanted
    }
}

pub(super) fn flavor(state: &State) -> Choice {
    let record = json!({
        "id": state.fixture.octavia_flavor, "name": "small", "description": "", "enabled": true,
        "flavor_profile_id": PROFILE,
    });
    let (words, is_there) = (("flavor", "flavors"), state.options.octavia_choices);
    Choice { words, noun: "Flavor", since: 6, key: "id", is_there, record: object(record) }
}

pub(super) fn zone(state: &State) -> Choice {
    let record = json!({
        "name": state.fixture.octavia_zone, "description": "", "enabled": true, "availability_zone_profile_id": PROFILE,
    });
    let (words, is_there) = (("availability_zone", "availability_zones"), state.options.octavia_choices);
    Choice { words, noun: "Availability Zone", since: 14, key: "name", is_there, record: object(record) }
}

/// All there are, or the one of this ID or name.
pub(super) fn answer(state: &State, call: &Call, choice: Choice, rest: &[&str]) -> Outcome {
    match rest {
        _ if state.options.octavia_minor < choice.since => Err(no_such_path()),
        [] => list(call, choice),
        [wanted] if choice.is(wanted) => Ok(Reply::one(200, choice.words.0, listing::shown(call, choice.record))),
        [wanted] => Err(fault(404, &format!("{} {wanted} not found.", choice.noun))),
        _ => Err(no_such_path()),
    }
}

fn list(call: &Call, Choice { words: (_, many), is_there, record, .. }: Choice) -> Outcome {
    if listing::filters(call).any(|(field, _)| !record.contains_key(field)) {
        return Err(fault(400, "One or more arguments are either duplicate or invalid"));
    }
    let passes = is_there && listing::filters(call).all(|(field, values)| listing::passes(&record, field, &values));
    let shown: Vec<Value> = passes.then(|| listing::shown(call, record)).into_iter().collect();
    let mut body = Record::new();
    body.set(many, shown);
    body.set(&format!("{many}_links"), json!([]));
    Ok(Reply::json(200, Value::Object(body)))
}
