//! The REST API: sessions and tags.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_simulator::{Call, Reply};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::inventory::{Access, Reference};
use super::simulator::State;
use super::sts;

/// Header with the session.
const SESSION: &str = "vmware-api-session-id";

/// Common prefix of all paths.
const PREFIX: [&str; 3] = ["com", "vmware", "cis"];

/// Kind of request: the path after the prefix, and the action.
pub(super) fn template(call: &Call, path: &[&str]) -> String {
    let path = path.strip_prefix(&PREFIX).unwrap_or(path).iter();
    let names = path.map(|segment| if segment.starts_with("id:") { "{id}" } else { segment });
    names.chain(call.value("~action")).collect::<Vec<_>>().join("/")
}

/// Answers a request; the path is that below `/rest`.
pub(super) fn answer(state: &mut State, call: &Call, path: &[&str]) -> Reply {
    let Some(path) = path.strip_prefix(&PREFIX) else { return error(404, "not_found") };
    if (call.method.as_str(), path) == ("POST", &["session"][..]) {
        return log_in(state, call);
    }
    let session = call.header(SESSION).unwrap_or_default();
    if !use_session(state, session) {
        return error(401, "unauthenticated");
    }
    match (call.method.as_str(), path, call.value("~action")) {
        ("DELETE", ["session"], None) => {
            state.rest_sessions.remove(session);
            Reply::empty(200)
        }
        ("GET", ["tagging", "category"], None) => value(state.tags.categories.keys().cloned().collect()),
        ("GET", ["tagging", "tag"], None) => value(state.tags.tags.keys().cloned().collect()),
        ("GET", ["tagging", "category", id], None) => one(state.tags.categories.get(id.trim_start_matches("id:"))),
        ("GET", ["tagging", "tag", id], None) => one(state.tags.tags.get(id.trim_start_matches("id:"))),
        ("POST", ["tagging", "tag", id], Some("list-tags-for-category")) => {
            let category = id.trim_start_matches("id:");
            match state.tags.categories.contains_key(category) {
                true => value(state.tags.in_category(category).cloned().collect()),
                false => error(404, "not_found"),
            }
        }
        ("POST", ["tagging", "tag-association"], Some(action)) => list(state, call, action),
        _ => error(404, "not_found"),
    }
}

fn log_in(state: &mut State, call: &Call) -> Reply {
    let authorization = call.header("authorization").unwrap_or_default();
    let credentials =
        authorization.strip_prefix("Basic ").and_then(|encoded| String::from_utf8(STANDARD.decode(encoded).ok()?).ok());
    let is_accepted = credentials
        .as_deref()
        .and_then(|credentials| credentials.split_once(':'))
        .is_some_and(|(user, password)| state.accepts(user, password));
    if !is_accepted && !sts::accepts(state, authorization) {
        return error(401, "unauthenticated");
    }
    let id = state.ids.hex();
    state.rest_sessions.insert(id.clone(), Instant::now());
    value(id.into())
}

/// Records the use of a session; `false` if it does not exist.
fn use_session(state: &mut State, id: &str) -> bool {
    if let Some(used) = state.rest_sessions.get_mut(id) {
        *used = Instant::now();
        return true;
    }
    state.touch(id);
    state.options.shared_sessions && state.sessions.contains_key(id)
}

fn list(state: &State, call: &Call, action: &str) -> Reply {
    let body = call.json().unwrap_or_default();
    match action {
        "list-attached-tags" => match object(&body["object_id"]) {
            Some(object) if is_hidden(state, &object) => error(403, "unauthorized"),
            Some(object) => value(json!(state.tags.of(&object))),
            None => error(400, "invalid_argument"),
        },
        "list-attached-tags-on-objects" => match body["object_ids"].as_array() {
            // One hidden object makes the whole call fail.
            Some(objects) if objects.iter().filter_map(object).any(|object| is_hidden(state, &object)) => {
                error(403, "unauthorized")
            }
            Some(objects) => value(objects.iter().filter_map(|id| tags(state, id)).collect()),
            None => error(400, "invalid_argument"),
        },
        _ => error(404, "not_found"),
    }
}

/// An object with its tags; `None` if the object does not exist.
fn tags(state: &State, id: &Value) -> Option<Value> {
    let object = object(id).filter(|object| state.inventory.get(object).is_some())?;
    Some(json!({"object_id": id, "tag_ids": state.tags.of(&object)}))
}

fn is_hidden(state: &State, object: &Reference) -> bool {
    state.inventory.access(object) != Access::Full
}

fn object(id: &Value) -> Option<Reference> {
    Some(Reference::new(id["type"].as_str()?, id["id"].as_str()?))
}

fn value(value: Value) -> Reply {
    Reply::one(200, "value", value)
}

fn one(found: Option<&Value>) -> Reply {
    found.cloned().map_or_else(|| error(404, "not_found"), value)
}

fn error(status: u16, name: &str) -> Reply {
    Reply::json(status, json!({"type": format!("com.vmware.vapi.std.errors.{name}"), "value": {"messages": []}}))
}
