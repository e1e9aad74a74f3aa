//! Records as responses show them, with references to related records.

use serde_json::{Value, json};

use crate::records::{Fields, Kind, Record, Row};
use crate::simulator::State;
use crate::wire::{Outcome, Reply};

use super::not_found;

/// Record as get and list responses show it.
pub(crate) fn view(state: &State, kind: Kind, record: &Record) -> Record {
    let (mut view, id) = (record.clone(), record.text("id"));
    let owner = state.records.of(kind).row(id).map(|row| row.owner.clone()).unwrap_or_default();
    match kind {
        Kind::LoadBalancer => {
            view.set("listeners", owned(state, Kind::Listener, id));
            view.set("pools", owned(state, Kind::Pool, id));
        }
        Kind::Listener => view.set("loadbalancers", json!([{"id": owner}])),
        Kind::Pool => {
            view.set("loadbalancers", json!([{"id": owner}]));
            view.set("listeners", listeners_of(state, id));
            view.set("members", owned(state, Kind::Member, id));
            // Octavia omits the field if there is no health monitor.
            view.remove("healthmonitor_id");
            if let Some(monitor) = state.records.of(Kind::HealthMonitor).owned_by(id).first() {
                view.set("healthmonitor_id", monitor.record.text("id"));
            }
        }
        Kind::HealthMonitor => view.set("pools", json!([{"id": owner}])),
        _ => {}
    }
    view
}

/// New load balancer with all its children, as the create response shows it.
pub(super) fn tree(state: &State, balancer: &Record) -> Record {
    let mut view = view(state, Kind::LoadBalancer, balancer);
    let id = balancer.text("id");
    let listeners = state.records.of(Kind::Listener).owned_by(id);
    let listeners: Vec<Value> = listeners.into_iter().map(|row| without(&row.record, &["loadbalancers"])).collect();
    let pools = state.records.of(Kind::Pool).owned_by(id).into_iter().map(|row| pool_tree(state, row));
    view.set("pools", pools.collect::<Vec<_>>());
    view.set("listeners", listeners);
    view
}

fn pool_tree(state: &State, row: &Row) -> Value {
    let mut pool = view(state, Kind::Pool, &row.record);
    let members = state.records.of(Kind::Member).owned_by(row.record.text("id"));
    pool.set("members", members.into_iter().map(|row| row.record.clone().into()).collect::<Vec<Value>>());
    // Octavia has not reloaded it at this point.
    pool.set("healthmonitor", Value::Null);
    without(&pool, &["loadbalancers", "healthmonitor_id"])
}

/// Status tree: the load balancer and its children with name and status only.
pub(super) fn statuses(state: &State, id: &str) -> Outcome {
    let balancer = state.records.get(Kind::LoadBalancer, id).ok_or_else(|| not_found(Kind::LoadBalancer, id))?;
    let listeners = state.records.of(Kind::Listener).owned_by(id).into_iter().map(|row| {
        let pool = state.records.of(Kind::Pool).row(row.record.text("default_pool_id"));
        let mut view = brief(&row.record, &[]);
        view["pools"] = pool.into_iter().map(|pool| pool_status(state, &pool.record)).collect();
        view
    });
    let mut view = brief(balancer, &[]);
    view["listeners"] = listeners.collect();
    Ok(Reply::json(200, json!({"statuses": {"loadbalancer": view}})))
}

fn pool_status(state: &State, pool: &Record) -> Value {
    let id = pool.text("id");
    let mut view = brief(pool, &[]);
    let members = state.records.of(Kind::Member).owned_by(id);
    view["members"] = members.into_iter().map(|row| brief(&row.record, &["address", "protocol_port"])).collect();
    if let Some(monitor) = state.records.of(Kind::HealthMonitor).owned_by(id).first() {
        view["health_monitor"] = brief(&monitor.record, &["type"]);
    }
    view
}

fn brief(record: &Record, more: &[&str]) -> Value {
    let common = ["id", "name", "operating_status", "provisioning_status"];
    let fields = common.iter().chain(more);
    fields.map(|field| ((*field).to_owned(), record.get(*field).cloned().unwrap_or_default())).collect()
}

fn without(record: &Record, fields: &[&str]) -> Value {
    record.iter().filter(|(field, _)| !fields.contains(&field.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn owned(state: &State, kind: Kind, owner: &str) -> Vec<Value> {
    let rows = state.records.of(kind).owned_by(owner);
    rows.into_iter().map(|row| json!({"id": row.record.text("id")})).collect()
}

fn listeners_of(state: &State, pool: &str) -> Vec<Value> {
    let rows = state.records.of(Kind::Listener).oldest_first().into_iter();
    let with_pool = rows.filter(|row| row.record.text("default_pool_id") == pool);
    with_pool.map(|row| json!({"id": row.record.text("id")})).collect()
}
