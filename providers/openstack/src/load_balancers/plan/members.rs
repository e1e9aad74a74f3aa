//! Members of a pool.
//!
//! All members of a pool are sent in one request, and Octavia identifies them by address and port. Some releases reject a duplicate
//! in one request, others stay PENDING for ever, so only one of two nodes with the same address becomes a member.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use bowline_core::{Address, AddressType, FieldChange, PortSpec, TargetNode, Verb, Warning};
use serde_json::{Value, json};

use super::super::change::{Change, PoolRef};
use super::super::names::{Part, serial_member};
use super::super::observation::PoolState;
use super::super::settings::warning;
use super::{Context, Draft, field, monitors};
use crate::api::octavia::Member;

const KIND: &str = "members";

/// Maximum number of names in a printed list.
const SHOWN: usize = 10;

/// Desired member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DesiredMember {
    name: String,
    address: String,
    port: u16,
    monitor_port: Option<u16>,
    subnet_id: String,
}

/// Fields that identify a member.
type Key<'a> = (&'a str, String, u16, u16);

impl DesiredMember {
    pub(super) fn body(&self) -> Value {
        let mut body = json!({"name": self.name, "address": self.address, "protocol_port": self.port});
        if !self.subnet_id.is_empty() {
            body["subnet_id"] = json!(self.subnet_id);
        }
        if let Some(port) = self.monitor_port {
            body["monitor_port"] = json!(port);
        }
        body
    }

    fn key(&self) -> Key<'_> {
        (&self.name, canonical(&self.address), self.port, self.monitor_port.unwrap_or_default())
    }
}

/// Returns the members of a port's pool by name; none without a node port.
pub(super) fn desired(context: &Context<'_>, port: &PortSpec) -> Vec<DesiredMember> {
    let Some(node_port) = node_port(port) else { return Vec::new() };
    let monitor_port = monitors::desired(context, port).and_then(|monitor| monitor.port());
    let member = |node: &TargetNode| {
        Some(DesiredMember {
            name: node.node.to_string(),
            address: node.address(context.settings.family)?.to_owned(),
            port: node_port,
            monitor_port,
            subnet_id: context.member_subnet_id().to_owned(),
        })
    };
    once_each(targets(context).filter_map(member))
}

/// Returns them for providers that need one request per member.
// upstream: without subnet and monitor port.
fn desired_serially(context: &Context<'_>, port: &PortSpec) -> Vec<DesiredMember> {
    let Some(node_port) = node_port(port) else { return Vec::new() };
    let member = |node: &TargetNode| {
        let address = serial_address(node)?;
        Some(DesiredMember {
            name: serial_member(node.node.as_str(), address, node_port),
            address: address.to_owned(),
            port: node_port,
            monitor_port: None,
            subnet_id: String::new(),
        })
    };
    once_each(targets(context).filter_map(member))
}

// upstream: of any family, and a host name if there is no address.
fn serial_address(node: &TargetNode) -> Option<&str> {
    let is_internal = |address: &&Address| address.kind == AddressType::InternalIP;
    let found = node.addresses.iter().find(is_internal).or(node.addresses.first());
    found.map(|address| address.address.as_str())
}

/// Returns the node port of a port of the Service. Zero is none.
pub(super) fn node_port(port: &PortSpec) -> Option<u16> {
    port.node_port.filter(|port| *port != 0)
}

/// Returns the nodes that take traffic, by name. Octavia has no draining, so a draining node is left out.
fn targets<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a TargetNode> {
    context.spec.targets.iter().filter(|target| !target.draining)
}

fn once_each(members: impl Iterator<Item = DesiredMember>) -> Vec<DesiredMember> {
    let mut seen = BTreeSet::new();
    members.filter(|member| seen.insert((canonical(&member.address), member.port))).collect()
}

/// Returns an address in canonical form, for comparison.
fn canonical(address: &str) -> String {
    address.parse::<IpAddr>().map_or_else(|_| address.to_owned(), |ip| ip.to_string())
}

/// Returns a warning about nodes without an address.
pub(super) fn skipped(context: &Context<'_>) -> Option<Warning> {
    let skipped = targets(context).filter(|node| node.address(context.settings.family).is_none());
    let names: Vec<&str> = skipped.map(|node| node.node.as_str()).collect();
    let family = context.settings.family.map_or_else(|| "IP".to_owned(), |family| format!("{family:?}"));
    let message = format!("nodes without an {family} address get no traffic: {}", some_of(&names));
    (!names.is_empty()).then(|| warning("LoadBalancerNodeWithoutAddress", &message))
}

/// Adds the steps from the observed to the desired members.
pub(super) fn steps(
    context: &Context<'_>,
    index: usize,
    port: &PortSpec,
    seen: Option<&PoolState>,
    pool: &PoolRef,
    draft: &mut Draft,
) {
    if context.config.load_balancer.serial {
        return steps_serially(context, port, seen, pool, draft);
    }
    let (wanted, existing) = (desired(context, port), seen.map_or(&[][..], |seen| &seen.members));
    let now: BTreeSet<Key<'_>> = existing.iter().map(key).collect();
    let then: BTreeSet<Key<'_>> = wanted.iter().map(DesiredMember::key).collect();
    if now == then {
        return;
    }
    let name = seen.map_or_else(|| context.names.part(Part::Pool, index), |seen| seen.pool.name.clone());
    let changes = changes(&now, &then);
    let change = Change::SetMembers { pool: pool.clone(), members: wanted.iter().map(DesiredMember::body).collect() };
    draft.octavia(Verb::Update, KIND, &name, changes, change);
}

fn key(member: &Member) -> Key<'_> {
    (&member.name, canonical(&member.address), member.protocol_port, member.monitor_port)
}

fn steps_serially(context: &Context<'_>, port: &PortSpec, seen: Option<&PoolState>, pool: &PoolRef, draft: &mut Draft) {
    let (wanted, existing) = (desired_serially(context, port), seen.map_or(&[][..], |seen| &seen.members));
    let now: HashSet<_> = existing.iter().map(|member| (canonical(&member.address), member.protocol_port)).collect();
    let then: HashSet<_> = wanted.iter().map(|wanted| (canonical(&wanted.address), wanted.port)).collect();
    for member in wanted.iter().filter(|wanted| !now.contains(&(canonical(&wanted.address), wanted.port))) {
        let changes = vec![field("address", None, Some(format!("{}:{}", member.address, member.port)))];
        let change = Change::CreateMember { pool: pool.clone(), body: member.body() };
        draft.octavia(Verb::Create, "member", &member.name, changes, change);
    }
    let Some(seen) = seen else { return };
    let is_wanted = |member: &Member| then.contains(&(canonical(&member.address), member.protocol_port));
    for member in existing.iter().filter(|member| !is_wanted(member)) {
        let change = Change::DeleteMember { pool: seen.pool.id.clone(), id: member.id.clone() };
        draft.octavia(Verb::Delete, "member", &member.name, Vec::new(), change);
    }
}

// ---- printed plan

/// Returns the added and removed members.
fn changes(now: &BTreeSet<Key<'_>>, then: &BTreeSet<Key<'_>>) -> Vec<FieldChange> {
    let shown = |keys: Vec<&Key<'_>>| {
        let texts: Vec<String> = keys.into_iter().map(shown_key).collect();
        (!texts.is_empty()).then(|| some_of(&texts))
    };
    let added = shown(then.difference(now).collect()).map(|text| field("added", None, Some(text)));
    let removed = shown(now.difference(then).collect()).map(|text| field("members", Some(text), None));
    added.into_iter().chain(removed).collect()
}

fn shown_key((name, address, port, monitor_port): &Key<'_>) -> String {
    let watched = if *monitor_port == 0 { String::new() } else { format!(", watched at {monitor_port}") };
    format!("{name} ({address}:{port}{watched})")
}

/// Returns the members of a new load balancer.
pub(super) fn described(context: &Context<'_>) -> String {
    let at =
        |node: &TargetNode| node.address(context.settings.family).map(|address| format!("{} ({address})", node.node));
    let nodes: Vec<String> = targets(context).filter_map(at).collect();
    if nodes.is_empty() { "none".to_owned() } else { some_of(&nodes) }
}

fn some_of(texts: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = texts.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match texts.len().saturating_sub(SHOWN) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use bowline_core::testing::{addresses, target};

    use super::*;

    #[test]
    fn serial_providers_take_any_address() {
        for (text, expected) in [("Hn1 I10.0.0.1", Some("10.0.0.1")), ("Hn1 E203.0.113.1", Some("n1")), ("", None)] {
            let node = TargetNode { addresses: addresses(text), ..target("n1") };
            assert_eq!(serial_address(&node), expected, "{text:?}");
        }
    }
}
