//! Tags of ports.

use serde_json::{Value, json};

use super::{fault, not_found};
use crate::records::{Fields, Kind};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn answer(state: &mut State, call: &Call, port: &str) -> Outcome {
    let sent = call.json().unwrap_or_default();
    let record = state.records.get_mut(Kind::Port, port).ok_or_else(|| not_found(Kind::Port, port))?;
    let mut tags: Vec<String> = record.texts("tags").into_iter().map(str::to_owned).collect();
    let resource = call.resource();
    let reply = match (call.method.as_str(), resource.get(3).copied()) {
        ("GET", None) => return Ok(Reply::json(200, json!({"tags": tags}))),
        ("PUT", None) => {
            let sent = sent.get("tags").and_then(Value::as_array).into_iter().flatten();
            tags = sent.filter_map(Value::as_str).map(str::to_owned).collect();
            Reply::json(200, json!({"tags": tags}))
        }
        ("DELETE", None) => {
            tags.clear();
            Reply::empty(204)
        }
        ("PUT", Some(tag)) => {
            tags.push(tag.to_owned());
            tags.sort();
            tags.dedup();
            Reply::json(201, Value::Null)
        }
        ("DELETE", Some(tag)) if tags.iter().any(|existing| existing == tag) => {
            tags.retain(|existing| existing != tag);
            Reply::empty(204)
        }
        (_, Some(tag)) => return Err(fault(404, "TagNotFound", &format!("Tag {tag} could not be found."))),
        _ => return Err(fault(405, "HTTPMethodNotAllowed", "The method is not allowed here.")),
    };
    record.set("tags", tags);
    Ok(reply)
}
