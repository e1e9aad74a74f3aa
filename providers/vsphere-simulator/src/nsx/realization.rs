//! Realization of changes: addresses of allocations, realized entities, and the search index.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bowline_simulator::{Call, Fields, Record, Reply, object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::address::Address;
use super::rules;
use super::simulator::State;
use super::wire::{Outcome, check_parameters, invalid, not_found};

/// Completes the changes that are due.
pub(crate) fn settle(state: &mut State) {
    for job in state.realizations.due() {
        realize(state, &job.change, job.fails);
    }
    for job in state.indexing.due() {
        index(state, job.change);
    }
    for job in state.purges.due() {
        purge(state, job.change);
    }
}

/// Completes all changes.
pub(crate) fn finish_all(state: &mut State) {
    for job in state.realizations.all() {
        realize(state, &job.change, job.fails);
    }
    for job in state.purges.all() {
        purge(state, job.change);
    }
    for job in state.indexing.all() {
        index(state, job.change);
    }
}

/// Makes search show an object in this state, or not at all.
pub(crate) fn index(state: &mut State, (path, shown): (String, Option<Record>)) {
    let table = state.records.of_mut("index");
    match shown {
        // The table needs the path as its key; the object in the answer is below `object`.
        Some(shown) => table.insert("", object(json!({"id": path, "object": shown}))),
        None => drop(table.remove(&path)),
    }
}

fn purge(state: &mut State, path: String) {
    state.records.of_mut("purging").remove(&path);
    state.records.of_mut("realized").remove(&path);
    state.indexing.begin((path, None), state.options.index_lag);
}

impl State {
    /// Starts to realize a new or changed object.
    pub(crate) fn begin_realization(&mut self, path: String) {
        if self.options.unrealized_visible && self.records.get("realized", &path).is_none() {
            self.set_realized(&path, "UNREALIZED", &[], None);
        }
        self.realizations.begin(path, self.options.realization);
    }

    /// Sets the realized state of an object, with the messages and codes of alarms, and the address of an allocation.
    pub(crate) fn set_realized(&mut self, path: &str, state: &str, alarms: &[(&str, u32)], address: Option<IpAddr>) {
        let alarm = |(message, code): &(&str, u32)| {
            let details = json!({"error_code": code, "module_name": "id-allocation service", "error_message": message});
            json!({"message": message, "error_details": details})
        };
        let attribute = |address: IpAddr| json!({"data_type": "STRING", "multivalue": false, "key": "allocation_ip", "values": [address.to_string()]});
        let mut entity = object(json!({
            "id": path,
            "resource_type": "GenericPolicyRealizedResource",
            "intent_paths": [path],
            "state": state,
            "runtime_status": "UNINITIALIZED",
            "alarms": alarms.iter().map(alarm).collect::<Vec<_>>(),
            "extended_attributes": address.map(attribute).into_iter().collect::<Vec<_>>(),
        }));
        if path.contains("/ip-allocations/") {
            entity.set("entity_type", "AllocationIpAddress");
        }
        self.records.of_mut("realized").insert("", entity);
    }

    /// Realized addresses of the allocations of an IP pool.
    fn allocated(&self, pool: &str) -> BTreeSet<IpAddr> {
        let rows = self.records.of("ip-allocations").owned_by(pool);
        rows.iter().filter_map(|row| self.allocated_address(row.record.text("id"))).collect()
    }

    /// Notes the time at which the address of a deleted allocation is released.
    pub(crate) fn release(&mut self, path: &str) {
        if let Some(address) = self.allocated_address(path) {
            self.released.insert(address, Instant::now());
        }
    }

    /// Whether a released address is not free yet.
    fn is_held(&self, address: IpAddr) -> bool {
        self.released.get(&address).is_some_and(|released| released.elapsed() < self.options.release_delay)
    }

    /// Realized address of an allocation.
    pub(crate) fn allocated_address(&self, path: &str) -> Option<IpAddr> {
        let entity = self.records.get("realized", path)?;
        let attributes = entity.get("extended_attributes").and_then(Value::as_array);
        attributes.into_iter().flatten().find_map(|attribute| attribute["values"][0].as_str()?.parse().ok())
    }
}

/// Completes the change of an object.
pub(crate) fn realize(state: &mut State, path: &str, fails: bool) {
    let Some(address) = Address::of(path) else { return };
    let Some(record) = state.records.get(address.kind, path) else { return };
    let requested = record.text("allocation_ip").to_owned();
    if fails {
        return state.set_realized(path, "ERROR", &[("The realization failed.", 500_100)], None);
    }
    match address.parent.filter(|_| address.kind == "ip-allocations") {
        Some(pool) => allocate(state, path, &pool, &requested),
        None => state.set_realized(path, "REALIZED", &[], None),
    }
}

/// Gives an allocation the requested address, or else the lowest free one of its pool.
fn allocate(state: &mut State, path: &str, pool: &str, requested: &str) {
    if state.allocated_address(path).is_some() {
        return;
    }
    let taken = state.allocated(pool);
    let addresses = state.addresses.get(pool).into_iter().flatten().copied();
    let mut free = addresses.filter(|address| !taken.contains(address) && !state.is_held(*address));
    let found = match requested.parse::<IpAddr>() {
        Ok(requested) => free.find(|address| *address == requested),
        Err(_) => free.next(),
    };
    match found {
        Some(address) => state.set_realized(path, "REALIZED", &[], Some(address)),
        None if requested.is_empty() => {
            state.set_realized(path, "ERROR", &[("Insufficient free IP addresses.", 5109)], None);
        }
        None => {
            let message = format!("The IP address {requested} is not free in the pool.");
            state.set_realized(path, "ERROR", &[(&message, 5110)], None);
        }
    }
}

/// Realized entities of one object below this root. The list is empty until the realization begins, and remains until a deleted object is
/// removed.
pub(crate) fn answer(state: &State, call: &Call, root: &str) -> Outcome {
    check_parameters(call, &["intent_path", "site_path"])?;
    let path = call.value("intent_path").ok_or_else(|| invalid("query parameter intent_path is missing"))?;
    let entity = state.records.get("realized", path);
    if !path.starts_with(&format!("{root}/")) || entity.is_none() && !rules::exists(state, path) {
        return Err(not_found(path));
    }
    let found: Vec<Value> = entity.map(|entity| render(path, entity)).into_iter().collect();
    Ok(Reply::json(200, json!({"result_count": found.len(), "results": found})))
}

fn render(path: &str, entity: &Record) -> Value {
    let mut entity = entity.clone();
    let id = path.rsplit('/').next().unwrap_or_default();
    entity.set("id", id);
    entity.set("display_name", id);
    entity.set("path", format!("/infra/realized-state/enforcement-points/default/{id}"));
    entity.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    entity.into()
}
