//! Changes in progress: Octavia accepts a change at once, completes it later and rejects all other changes meanwhile.

use bowline_simulator::{Job, Jobs};

use super::fault;
use crate::network;
use crate::records::{Fields, Kind, Record, Row};
use crate::simulator::State;
use crate::wire::Reply;

/// IDs of load balancers with a change in progress.
pub(crate) type Workload = Jobs<String>;

/// Rejects a change of a load balancer or its children unless the load balancer is ACTIVE.
pub(super) fn check_mutable(state: &State, balancer: &str, target: (Kind, &str)) -> Result<(), Reply> {
    if status(state, balancer) == "ACTIVE" {
        return Ok(());
    }
    let (kind, id) = target;
    Err(fault(409, &format!("{} {id} is immutable and cannot be updated.", super::nouns(kind).1)))
}

/// Rejects a change of the load balancer itself in any other status. In ERROR, only deletion is allowed.
pub(super) fn check_state(state: &State, balancer: &str, allowed: &[&str]) -> Result<(), Reply> {
    let status = status(state, balancer);
    if allowed.contains(&status) {
        return Ok(());
    }
    Err(fault(409, &format!("Invalid state {status} of loadbalancer resource {balancer}")))
}

fn status<'a>(state: &'a State, balancer: &str) -> &'a str {
    state.records.get(Kind::LoadBalancer, balancer).map_or("", |found| found.text("provisioning_status"))
}

/// Starts a change of the load balancer and sets the status of these children.
pub(super) fn begin(state: &mut State, balancer: &str, children: &[(Kind, &str)], status: &str) {
    mark(state, Kind::LoadBalancer, balancer, "PENDING_UPDATE");
    for (kind, id) in children {
        mark(state, *kind, id, status);
    }
    state.work.begin(balancer.to_owned(), state.options.work);
}

/// Makes the last change of this load balancer never complete.
pub(super) fn lose(state: &mut State, balancer: &str) {
    state.work.lose(|worked_on| worked_on == balancer);
}

/// Sets the status of a record.
pub(super) fn mark(state: &mut State, kind: Kind, id: &str, status: &str) {
    let date = state.without_zone();
    if let Some(record) = state.records.get_mut(kind, id) {
        // A record that is being created keeps its status until creation completes.
        if record.text("provisioning_status") == "PENDING_CREATE" && status != "PENDING_DELETE" {
            return;
        }
        record.set("provisioning_status", status);
        record.set("updated_at", date);
    }
}

/// Completes changes that are due.
pub(crate) fn settle(state: &mut State) {
    for job in state.work.due() {
        finish(state, &job);
    }
}

/// Completes all changes in progress, except lost ones.
pub(crate) fn finish_all(state: &mut State) {
    for job in state.work.all() {
        finish(state, &job);
    }
}

fn finish(state: &mut State, job: &Job<String>) {
    let (end, date) = (if job.fails { "ERROR" } else { "ACTIVE" }, state.without_zone());
    let deleted = status(state, &job.change) == "PENDING_DELETE" && !job.fails;
    let pools: Vec<String> = ids_owned(state, Kind::Pool, &job.change);
    for pool in &pools {
        for kind in [Kind::Member, Kind::HealthMonitor] {
            finish_owned(state, kind, pool, end, deleted);
        }
    }
    finish_owned(state, Kind::Pool, &job.change, end, deleted);
    finish_owned(state, Kind::Listener, &job.change, end, deleted);
    clean_up_pools(state, &job.change);
    if deleted {
        remove_balancer(state, &job.change);
    } else if let Some(record) = state.records.get_mut(Kind::LoadBalancer, &job.change) {
        record.set("provisioning_status", end);
        record.set("updated_at", date);
    }
}

fn ids_owned(state: &State, kind: Kind, owner: &str) -> Vec<String> {
    let rows = state.records.of(kind).owned_by(owner);
    rows.into_iter().map(|row| row.record.text("id").to_owned()).collect()
}

/// Removes children that were being deleted, and sets the final status of all others in progress.
fn finish_owned(state: &mut State, kind: Kind, owner: &str, end: &str, all: bool) {
    let deleted = |record: &Record| all || end == "ACTIVE" && record.text("provisioning_status") == "PENDING_DELETE";
    let date = state.without_zone();
    let table = state.records.of_mut(kind);
    table.retain(|row| row.owner != owner || !deleted(&row.record));
    let pending = |row: &&mut Row| row.record.text("provisioning_status").starts_with("PENDING");
    for row in table.iter_mut().filter(|row| row.owner == owner).filter(pending) {
        row.record.set("provisioning_status", end);
        row.record.set("updated_at", date.clone());
        if kind == Kind::HealthMonitor {
            row.record.set("operating_status", "ONLINE");
        }
    }
}

/// Removes references to deleted pools from listeners, and the members and health monitors of those pools.
fn clean_up_pools(state: &mut State, balancer: &str) {
    let pools: Vec<String> = state.records.of(Kind::Pool).iter().map(|row| row.record.text("id").to_owned()).collect();
    for row in state.records.of_mut(Kind::Listener).iter_mut().filter(|row| row.owner == balancer) {
        if !pools.iter().any(|pool| pool == row.record.text("default_pool_id")) {
            row.record.set("default_pool_id", serde_json::Value::Null);
        }
    }
    for kind in [Kind::Member, Kind::HealthMonitor] {
        state.records.of_mut(kind).retain(|row| pools.contains(&row.owner));
    }
}

fn remove_balancer(state: &mut State, id: &str) {
    let Some(balancer) = state.records.of_mut(Kind::LoadBalancer).remove(id) else { return };
    let port = balancer.text("vip_port_id");
    let is_octavias = |port: &Record| port.text("device_owner") == "Octavia";
    if state.records.get(Kind::Port, port).is_some_and(is_octavias) {
        network::remove_port(state, port);
    }
}
