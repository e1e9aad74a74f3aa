//! Pools.

use serde_json::{Value, json};

use super::{
    change, checks, fault, listeners, members, monitors, not_found, owner_of, quotas, sent, skeletons, view, work,
};
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    let mut sent = sent(call, Kind::Pool)?;
    checks::new_fields(state, Kind::Pool, &sent)?;
    let listener = sent.remove("listener_id").and_then(|id| id.as_str().map(str::to_owned));
    let balancer = balancer_for(state, &mut sent, listener.as_deref())?;
    checks::pool(state, &sent, &listeners::provider(state, &balancer))?;
    work::check_mutable(state, &balancer, (Kind::LoadBalancer, &balancer))?;
    quotas::check(state, Kind::Pool, 1)?;
    let before = state.records.clone();
    let pool = add(state, &balancer, sent).inspect_err(|_| state.records = before)?;
    if let Some(listener) = &listener {
        set_default_pool(state, listener, &pool)?;
    }
    let children: Vec<_> = listener.as_deref().map(|id| (Kind::Listener, id)).into_iter().collect();
    work::begin(state, &balancer, &children, "PENDING_UPDATE");
    Ok(Reply::one(201, "pool", view(state, Kind::Pool, &pool)))
}

/// Load balancer of a new pool: the one in the request, or the listener's.
fn balancer_for(state: &State, sent: &mut Record, listener: Option<&str>) -> Result<String, Reply> {
    let named = sent.remove("loadbalancer_id").and_then(|id| id.as_str().map(str::to_owned));
    let Some(listener) = listener else {
        let named = named.ok_or_else(|| {
            fault(400, "Validation failure: Must provide at least one of: loadbalancer_id, listener_id")
        })?;
        let found = state.records.get(Kind::LoadBalancer, &named);
        return found.map(|_| named.clone()).ok_or_else(|| not_found(Kind::LoadBalancer, &named));
    };
    let row = state.records.of(Kind::Listener).row(listener).ok_or_else(|| not_found(Kind::Listener, listener))?;
    checks::pair(row.record.text("protocol"), sent.text("protocol"))?;
    if !row.record.text("default_pool_id").is_empty() {
        return Err(fault(409, "This listener already has a default pool"));
    }
    Ok(row.owner.clone())
}

fn set_default_pool(state: &mut State, listener: &str, pool: &Record) -> Result<(), Reply> {
    let found = state.records.get_mut(Kind::Listener, listener).ok_or_else(|| not_found(Kind::Listener, listener))?;
    found.set("default_pool_id", pool.text("id"));
    Ok(())
}

/// Creates a pool, with the members and the health monitor in the request.
pub(super) fn add(state: &mut State, balancer: &str, mut sent: Record) -> Result<Record, Reply> {
    let provider = listeners::provider(state, balancer);
    let (new_members, monitor) = (sent.remove("members"), sent.remove("healthmonitor").map(object));
    let mut pool = skeletons::new(state, Kind::Pool);
    pool.extend(sent);
    complete_persistence(&mut pool);
    let id = pool.text("id").to_owned();
    state.records.of_mut(Kind::Pool).insert(balancer, pool.clone());
    for member in new_members.as_ref().and_then(Value::as_array).into_iter().flatten() {
        members::add(state, &id, object(member.clone()))?;
    }
    if let Some(monitor) = monitor {
        checks::monitor(state, &monitor, &provider)?;
        monitors::add(state, &id, monitor);
    }
    Ok(pool)
}

/// Sets omitted fields of `session_persistence` to null.
fn complete_persistence(pool: &mut Record) {
    let Some(Value::Object(sent)) = pool.get("session_persistence") else { return };
    let mut complete = object(json!({
        "type": null, "cookie_name": null, "persistence_timeout": null, "persistence_granularity": null,
    }));
    complete.extend(sent.clone());
    pool.set("session_persistence", complete);
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let mut sent = sent(call, Kind::Pool)?;
    checks::changed_fields(state, Kind::Pool, &sent)?;
    let balancer = owner_of(state, Kind::Pool, id)?;
    checks::pool(state, &sent, &listeners::provider(state, &balancer))?;
    work::check_mutable(state, &balancer, (Kind::LoadBalancer, &balancer))?;
    work::begin(state, &balancer, &[(Kind::Pool, id)], "PENDING_UPDATE");
    complete_persistence(&mut sent);
    change(state, Kind::Pool, id, sent)
}
