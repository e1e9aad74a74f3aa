//! Barbican: secrets and containers, which are only ever looked up.

use serde_json::json;

use crate::identity;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
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
    let found = state.records.get(kind, id).ok_or_else(|| not_found(missing))?;
    let shown: Record = found.iter().filter(|(field, _)| *field != "id").map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok(Reply::json(200, shown.into()))
}

fn is_uuid(id: &str) -> bool {
    id.len() == 36 && id.chars().nth(14) == Some('4')
}

fn not_found(description: &str) -> Reply {
    Reply::json(404, json!({"code": 404, "title": "Not Found", "description": description}))
}

/// A secret or container of this ID.
pub(crate) fn blank(kind: Kind, id: &str, name: &str, date: &str, creator: &str) -> Record {
    let collection = if kind == Kind::Secret { "secrets" } else { "containers" };
    let mut record = crate::records::object(json!({
        "id": id, "name": name, "status": "ACTIVE", "created": date, "updated": date, "creator_id": creator,
    }));
    let reference = format!("http://openstack.invalid/key-manager/v1/{collection}/{id}");
    match kind {
        Kind::Secret => {
            record.set("secret_ref", reference);
            record.set("secret_type", "opaque");
            for nothing in ["algorithm", "bit_length", "mode", "expiration"] {
                record.set(nothing, serde_json::Value::Null);
            }
            record.set("content_types", json!({"default": "application/octet-stream"}));
        }
        _ => {
            record.set("container_ref", reference);
            record.set("type", "certificate");
            record.set("secret_refs", json!([]));
            record.set("consumers", json!([]));
        }
    }
    record
}
