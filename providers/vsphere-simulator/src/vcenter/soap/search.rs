//! The search index, which searches machines below a datacenter.

use serde_json::Value;

use super::{Fault, Outcome, Request, Returned};
use crate::vcenter::inventory::{Key, Reference};
use crate::vcenter::schema::Type;
use crate::vcenter::simulator::State;

pub(super) fn find(state: &State, request: &Request) -> Outcome {
    if !request.arguments.flag("vmSearch") {
        // The simulator does not search hosts.
        return Err(Fault::not_supported());
    }
    let datacenter = request.reference("datacenter");
    if let Some(datacenter) = datacenter.as_ref().filter(|datacenter| state.inventory.get(datacenter).is_none()) {
        return Err(Fault::not_found(datacenter));
    }
    let found = key(request).map(|key| state.inventory.search(&key, datacenter.as_ref())).unwrap_or_default();
    let limit = if request.method.starts_with("FindAll") { usize::MAX } else { 1 };
    let found: Vec<Value> = found.iter().take(limit).map(Reference::to_value).collect();
    Ok(Returned::Value(Type::of("ManagedEntity[]"), found.into()))
}

/// Criterion of a search; `None` if nothing has it.
fn key(request: &Request) -> Option<Key> {
    let text = |name| request.arguments.text(name).to_lowercase();
    match request.method.trim_start_matches("FindAll").trim_start_matches("Find") {
        "ByUuid" if request.arguments.flag("instanceUuid") => Some(Key::InstanceUuid(text("uuid"))),
        "ByUuid" => Some(Key::Uuid(text("uuid"))),
        "ByDnsName" => Some(Key::HostName(text("dnsName"))),
        _ => text("ip").parse().ok().map(Key::Address),
    }
}
