//! The nodes behind a pool.
//!
//! All of a pool's members go in one request, which Octavia compares by address and port. The same pair twice in one request is
//! refused by some releases and blocks the balancer for ever with others, so that of two nodes with one address only one is a member.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use bowline_core::{Address, AddressType, FieldChange, PortSpec, TargetNode, Verb, Warning};
use serde_json::{Map, Value, json};

use super::super::change::{Change, PoolRef};
use super::super::names::{Part, serial_member};
use super::super::observation::SeenPool;
use super::super::settings::warning;
use super::{Context, Draft, field, monitors};
use crate::api::octavia::Member;

const KIND: &str = "members";

/// As many names are shown of a list.
const SHOWN: usize = 10;

/// A member as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    name: String,
    address: String,
    port: u16,
    monitor_port: Option<u16>,
    subnet_id: String,
}

/// What makes a member another one.
type Key<'a> = (&'a str, String, u16, u16);

impl Wanted {
    pub(super) fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("name".to_owned(), json!(self.name));
        body.insert("address".to_owned(), json!(self.address));
        body.insert("protocol_port".to_owned(), json!(self.port));
        if !self.subnet_id.is_empty() {
            body.insert("subnet_id".to_owned(), json!(self.subnet_id));
        }
        if let Some(port) = self.monitor_port {
            body.insert("monitor_port".to_owned(), json!(port));
        }
        Value::Object(body)
    }

    fn key(&self) -> Key<'_> {
        (&self.name, canonical(&self.address), self.port, self.monitor_port.unwrap_or_default())
    }
}

/// The members of a port's pool, by name; none without a node port.
pub(super) fn wanted(context: &Context<'_>, port: &PortSpec) -> Vec<Wanted> {
    let Some(node_port) = node_port(port) else { return Vec::new() };
    let monitor_port = monitors::wanted(context, port).and_then(|monitor| monitor.port());
    let member = |node: &TargetNode| {
        Some(Wanted {
            name: node.node.to_string(),
            address: node.address(context.settings.family)?.to_owned(),
            port: node_port,
            monitor_port,
            subnet_id: context.member_subnet_id().to_owned(),
        })
    };
    once_each(targets(context).filter_map(member))
}

/// The same where they are made one by one.
// upstream: without subnet and port of the monitor.
fn wanted_serially(context: &Context<'_>, port: &PortSpec) -> Vec<Wanted> {
    let Some(node_port) = node_port(port) else { return Vec::new() };
    let member = |node: &TargetNode| {
        let address = serial_address(node)?;
        Some(Wanted {
            name: serial_member(node.node.as_str(), address, node_port),
            address: address.to_owned(),
            port: node_port,
            monitor_port: None,
            subnet_id: String::new(),
        })
    };
    once_each(targets(context).filter_map(member))
}

// upstream: of whatever family, and a name if there is nothing else.
fn serial_address(node: &TargetNode) -> Option<&str> {
    let is_internal = |address: &&Address| address.kind == AddressType::InternalIP;
    let found = node.addresses.iter().find(is_internal).or(node.addresses.first());
    found.map(|address| address.address.as_str())
}

/// Where nodes listen for a port of the Service. Zero is none.
pub(super) fn node_port(port: &PortSpec) -> Option<u16> {
    port.node_port.filter(|port| *port != 0)
}

/// The nodes that take traffic, by name. There is no draining: one that is leaving is left out.
fn targets<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a TargetNode> {
    context.spec.targets.iter().filter(|target| !target.draining)
}

fn once_each(members: impl Iterator<Item = Wanted>) -> Vec<Wanted> {
    let mut seen = BTreeSet::new();
    members.filter(|member| seen.insert((canonical(&member.address), member.port))).collect()
}

/// An address in the one way in which it can be compared.
fn canonical(address: &str) -> String {
    address.parse::<IpAddr>().map_or_else(|_| address.to_owned(), |ip| ip.to_string())
}

/// The nodes that nobody can send to.
pub(super) fn skipped(context: &Context<'_>) -> Option<Warning> {
    let skipped = targets(context).filter(|node| node.address(context.settings.family).is_none());
    let names: Vec<&str> = skipped.map(|node| node.node.as_str()).collect();
    let family = context.settings.family.map_or_else(|| "IP".to_owned(), |family| format!("{family:?}"));
    let message = format!("these nodes have no {family} address and get no traffic: {}", some_of(&names));
    (!names.is_empty()).then(|| warning("LoadBalancerNodeWithoutAddress", &message))
}

/// What is there becomes what is wanted.
pub(super) fn steps(
    context: &Context<'_>,
    index: usize,
    port: &PortSpec,
    seen: Option<&SeenPool>,
    pool: &PoolRef,
    draft: &mut Draft,
) {
    if context.config.load_balancer.serial {
        return steps_serially(context, port, seen, pool, draft);
    }
    let (wanted, there) = (wanted(context, port), seen.map_or(&[][..], |seen| &seen.members));
    let now: BTreeSet<Key<'_>> = there.iter().map(key).collect();
    let then: BTreeSet<Key<'_>> = wanted.iter().map(Wanted::key).collect();
    if now == then {
        return;
    }
    let name = seen.map_or_else(|| context.names.part(Part::Pool, index), |seen| seen.pool.name.clone());
    let changes = changes(&now, &then);
    let change = Change::SetMembers { pool: pool.clone(), members: wanted.iter().map(Wanted::body).collect() };
    draft.octavia(Verb::Update, KIND, &name, changes, change);
}

fn key(member: &Member) -> Key<'_> {
    (&member.name, canonical(&member.address), member.protocol_port, member.monitor_port)
}

fn steps_serially(context: &Context<'_>, port: &PortSpec, seen: Option<&SeenPool>, pool: &PoolRef, draft: &mut Draft) {
    let (wanted, there) = (wanted_serially(context, port), seen.map_or(&[][..], |seen| &seen.members));
    let now: HashSet<_> = there.iter().map(|member| (canonical(&member.address), member.protocol_port)).collect();
    let then: HashSet<_> = wanted.iter().map(|wanted| (canonical(&wanted.address), wanted.port)).collect();
    for member in wanted.iter().filter(|wanted| !now.contains(&(canonical(&wanted.address), wanted.port))) {
        let changes = vec![field("address", None, Some(format!("{}:{}", member.address, member.port)))];
        let change = Change::CreateMember { pool: pool.clone(), body: member.body() };
        draft.octavia(Verb::Create, "member", &member.name, changes, change);
    }
    let Some(seen) = seen else { return };
    let is_wanted = |member: &Member| then.contains(&(canonical(&member.address), member.protocol_port));
    for member in there.iter().filter(|member| !is_wanted(member)) {
        let change = Change::DeleteMember { pool: seen.pool.id.clone(), id: member.id.clone() };
        draft.octavia(Verb::Delete, "member", &member.name, Vec::new(), change);
    }
}

// ---- for people

/// Who comes and who goes.
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

/// Who is behind a new balancer.
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
    fn one_by_one_any_address_will_do() {
        for (text, expected) in [("Hn1 I10.0.0.1", Some("10.0.0.1")), ("Hn1 E203.0.113.1", Some("n1")), ("", None)] {
            let node = TargetNode { addresses: addresses(text), ..target("n1") };
            assert_eq!(serial_address(&node), expected, "{text:?}");
        }
    }
}
