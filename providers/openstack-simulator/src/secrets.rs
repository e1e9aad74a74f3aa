//! Barbican: secrets and containers, read-only.

use serde_json::json;

use crate::identity;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::skeletons::fields;
use crate::wire::{Call, Outcome, Reply};

pub(crate) fn answer(state: &mut State, call: &Call) -> Outcome {
    let resource = call.resource();
    identity::check_token(state, call)?;
    match (call.method.as_str(), resource.as_slice()) {
        ("GET", ["secrets", id]) => find(state, Kind::Secret, id, "Secret not found."),
        ("GET", ["containers", id]) => find(state, Kind::Container, id, "Secrets container not found."),
        _ => Err(not_found("Not Found.")),
    }
}

fn find(state: &State, kind: Kind, id: &str, missing: &str) -> Outcome {
    if !is_uuid(id) {
        let noun = if kind == Kind::Secret { "secret" } else { "container" };
        return Err(not_found(&format!("Not Found. Provided {noun} id is invalid.")));
    }
    let record = state.records.get(kind, id).ok_or_else(|| not_found(missing))?;
    let view: Record = record.iter().filter(|(field, _)| *field != "id").map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok(Reply::json(200, view.into()))
}

fn is_uuid(id: &str) -> bool {
    id.len() == 36 && id.chars().nth(14) == Some('4')
}

fn not_found(description: &str) -> Reply {
    Reply::json(404, json!({"code": 404, "title": "Not Found", "description": description}))
}

/// New secret or container.
pub(crate) fn new(kind: Kind, id: &str, name: &str, date: &str, creator: &str) -> Record {
    let (reference, collection) =
        if kind == Kind::Secret { ("secret_ref", "secrets") } else { ("container_ref", "containers") };
    let mut record = fields("barbican", kind);
    for (field, text) in [("id", id), ("name", name), ("created", date), ("updated", date), ("creator_id", creator)] {
        record.set(field, text);
    }
    record.set(reference, format!("http://openstack.invalid/key-manager/v1/{collection}/{id}"));
    record
}
