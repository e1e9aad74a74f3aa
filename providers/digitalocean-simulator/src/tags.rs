//! Tags of Droplets and load balancers.

use bowline_simulator::{Call, Fields, Record, Reply, object};
use serde_json::json;

use crate::fixture::{items, toggle};
use crate::simulator::State;
use crate::wire::{Outcome, error, not_found, require, sent, singular};

/// Kinds that can have tags.
const TAGGED: [&str; 2] = ["droplets", "load_balancers"];

/// Creates a tag; an existing one stays as it is.
pub(crate) fn create(state: &mut State, call: &Call) -> Outcome {
    let body = sent(call)?;
    let name = body.text("name");
    let is_legal = |c: char| c.is_ascii_alphanumeric() || ":-_".contains(c);
    require(!name.is_empty() && name.len() <= 255 && name.chars().all(is_legal), "name is invalid")?;
    state.put("tags", object(json!({"id": name})));
    Ok(Reply::one(201, "tag", view(state, name)))
}

/// Creates the tags of a record; existing ones stay as they are.
pub(crate) fn create_all(state: &mut State, record: &Record) {
    for tag in record.texts("tags") {
        state.put("tags", object(json!({"id": tag})));
    }
}

/// Removes a deleted tag from all resources.
pub(crate) fn remove_from_all(state: &mut State, name: &str) {
    for kind in TAGGED {
        for row in state.records.of_mut(kind).iter_mut() {
            toggle(&mut row.record, "tags", &json!(name), false);
        }
    }
}

/// Adds a tag to the resources in the request, or removes it from them.
pub(crate) fn change_resources(state: &mut State, call: &Call, name: &str) -> Outcome {
    state.records.get("tags", name).ok_or_else(|| not_found("tags"))?;
    let body = sent(call)?;
    require(!items(&body, "resources").is_empty(), "resources must not be empty")?;
    for resource in items(&body, "resources").iter().cloned().map(object) {
        let kind = kind(&resource).ok_or_else(|| error(422, "resource_type is invalid"))?;
        let record = state.records.get_mut(kind, resource.text("resource_id")).ok_or_else(|| not_found(kind))?;
        toggle(record, "tags", &json!(name), call.method == "POST");
    }
    Ok(Reply::empty(204))
}

/// Kind of a resource in a tagging request.
pub(crate) fn kind(resource: &Record) -> Option<&'static str> {
    TAGGED.into_iter().find(|kind| singular(kind) == resource.text("resource_type"))
}

/// Tag with the number of its resources.
pub(crate) fn view(state: &State, name: &str) -> Record {
    let [droplets, load_balancers] = TAGGED.map(|kind| {
        let rows = state.records.of(kind).iter();
        rows.filter(|row| row.record.texts("tags").contains(&name)).count()
    });
    object(json!({"name": name, "resources": {"count": droplets + load_balancers, "droplets": {"count": droplets}}}))
}
