//! References between objects.

use bowline_simulator::{Fields, Record, Reply};

use super::address::Address;
use super::simulator::State;
use super::wire::{error, invalid_path};

/// Fields with paths of other objects.
const REFERENCES: [&str; 8] = [
    "active_monitor_paths",
    "application_profile_path",
    "connectivity_path",
    "lb_persistence_profile_path",
    "lb_service_path",
    "passive_monitor_path",
    "pool_path",
    "sorry_pool_path",
];

/// Paths that an object refers to.
fn references(record: &Record) -> impl Iterator<Item = &str> {
    let single = |field| Some(record.text(field)).filter(|path| !path.is_empty());
    REFERENCES.into_iter().flat_map(move |field| single(field).into_iter().chain(record.texts(field)))
}

/// Rejects an object whose parent or one of whose references does not exist.
pub(crate) fn check_paths(state: &State, address: &Address, record: &Record) -> Result<(), Reply> {
    match address.parent.iter().map(String::as_str).chain(references(record)).find(|path| !exists(state, path)) {
        Some(path) => Err(invalid_path(path)),
        None => Ok(()),
    }
}

/// Whether there is an object with this path.
pub(crate) fn exists(state: &State, path: &str) -> bool {
    Address::of(path).is_some_and(|address| address.id.is_some() && state.records.get(address.kind, path).is_some())
}

/// Rejects a second load balancer service on a tier-1 gateway.
pub(crate) fn check_gateway(state: &State, address: &Address, record: &Record) -> Result<(), Reply> {
    let (path, gateway) = (address.path(), record.text("connectivity_path"));
    let mut services = state.records.of("lb-services").iter().map(|row| &row.record);
    let other = services.find(|service| service.text("connectivity_path") == gateway && service.text("id") != path);
    match other.filter(|_| address.kind == "lb-services" && !gateway.is_empty()) {
        Some(other) => {
            let message = format!("The gateway {gateway} already has the load balancer service {}", other.text("id"));
            // The code is an assumption; no client should depend on it.
            Err(error(400, 500_200, message))
        }
        None => Ok(()),
    }
}

/// Rejects the deletion of an object that has children or that another object refers to.
pub(crate) fn check_unused(state: &State, path: &str) -> Result<(), Reply> {
    let uses = |record: &Record| {
        let is_child = Address::of(record.text("id")).is_some_and(|address| address.parent.as_deref() == Some(path));
        is_child || references(record).any(|used| used == path)
    };
    match state.objects().find(|record| uses(record)) {
        Some(user) => {
            let message =
                format!("The object path=[{path}] has children or is referenced by path=[{}]", user.text("id"));
            Err(error(400, 500_030, message))
        }
        None => Ok(()),
    }
}
