//! Changes by tests in another process.
//!
//! | request below `/control` | effect |
//! |---|---|
//! | `GET`, `POST`, `PATCH`, `DELETE` `machines/{name}` | reads, adds, changes or deletes a machine; the body has fields of [`Machine`] |
//! | `POST tags` with `category`, `name` and `object` | attaches a tag to an object such as `HostSystem:host-12` |
//! | `DELETE sessions` | ends all sessions |
//! | `PATCH sessions` with `limit` or `endBefore` | limits SOAP sessions, ends all before the next call of a method |

use bowline_simulator::{Call, Reply};
use serde_json::{Value, json};

use super::inventory::Reference;
use super::machine::Machine;
use super::simulator::State;

pub(super) fn answer(state: &mut State, call: &Call, path: &[&str]) -> Reply {
    let body = call.json().unwrap_or_default();
    let done = match (call.method.as_str(), path) {
        ("POST", ["machines", name]) => add(state, name, body),
        ("GET", ["machines", name]) => found(state, name).and_then(|found| describe(state, &found)),
        ("PATCH", ["machines", name]) => change(state, name, body),
        ("DELETE", ["machines", name]) => found(state, name).map(|found| state.delete(&found).into()),
        ("POST", ["tags"]) => tag(state, &body),
        ("DELETE", ["sessions"]) => {
            state.end_sessions();
            Some(Value::Null)
        }
        ("PATCH", ["sessions"]) => {
            state.options.session_limit = body["limit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
            state.ends_sessions = body["endBefore"].as_str().map(str::to_owned);
            Some(Value::Null)
        }
        _ => None,
    };
    done.map_or_else(|| Reply::empty(404), |value| Reply::json(200, value))
}

fn found(state: &State, name: &str) -> Option<Reference> {
    state.inventory.find("VirtualMachine", name)
}

fn describe(state: &State, found: &Reference) -> Option<Value> {
    let mut machine = json!(state.machines.get(&found.id)?);
    machine["id"] = json!(found.id);
    Some(machine)
}

fn add(state: &mut State, name: &str, mut body: Value) -> Option<Value> {
    body.as_object_mut()?.insert("name".to_owned(), json!(name));
    let added = state.add_machine(serde_json::from_value(body).ok()?)?;
    describe(state, &added)
}

fn change(state: &mut State, name: &str, body: Value) -> Option<Value> {
    let found = found(state, name)?;
    let mut machine = json!(state.machines.get(&found.id)?);
    machine.as_object_mut()?.extend(body.as_object()?.clone());
    let machine: Machine = serde_json::from_value(machine).ok()?;
    state.change_machine(&found, machine).then(|| describe(state, &found))?
}

fn tag(state: &mut State, body: &Value) -> Option<Value> {
    let object = Reference::parse(body["object"].as_str()?)?;
    let (category, name) = (body["category"].as_str()?, body["name"].as_str()?);
    Some(json!(state.tags.attach(&mut state.ids, category, name, &object)))
}
