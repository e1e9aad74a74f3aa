//! Objects as they should be, and how they are merged with those that exist.
//!
//! An existing object keeps every field that this program does not manage: a weight or state of a member that a user has set, the
//! intervals of a monitor, the description. So an object of the Go manager is taken over without a write.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bowline_core::{Address, AddressType, FieldChange, FieldChanges, IpFamily, LoadBalancerSpec, PortSpec, TargetNode};
use serde_json::{Map, Value, json};

use super::names::{APP, CLASS, IP_POOL, Names, port_tag};
use crate::nsx::{Collection, MONITORS, POOLS, Record, SERVICES, Tags, VIRTUAL_SERVERS, tag_list};

/// An object as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub collection: &'static Collection,
    pub id: String,
    /// Marks without which an existing object belongs to another owner.
    pub marks: Tags,
    /// Fields of a new object.
    initial: Map<String, Value>,
    /// Fields that are kept up to date.
    managed: Map<String, Value>,
    /// Members of a pool.
    members: Option<Vec<Member>>,
}

/// Member of a pool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub name: String,
    /// Addresses under which the Node can be a member. The first one is that of a new member.
    pub addresses: Vec<String>,
}

/// Fields of a virtual server that depend on other objects.
#[derive(Debug, Clone)]
pub(super) struct VirtualServerParts<'a> {
    /// Address; `None` if NSX has not allocated it yet.
    pub address: Option<&'a str>,
    /// Application profile; `None` to keep that of the virtual server.
    pub profile: Option<&'a str>,
    /// Policy path of the server pool.
    pub pool: &'a str,
    /// `None` for a virtual server that exists.
    pub placement: Option<Placement>,
}

/// Where a new virtual server is placed.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// Policy path of the LB service.
    pub service: String,
    pub ip_pool: String,
    pub class: String,
}

impl Object {
    fn new(collection: &'static Collection, id: String, marks: Tags, tags: &Tags, name: &str, what: &str) -> Object {
        let initial = fields(
            json!({"display_name": name, "description": format!("{what} created by {APP}"), "tags": tag_list(tags)}),
        );
        Object { collection, id, marks, initial, managed: Map::new(), members: None }
    }

    /// TCP monitor of the node port.
    pub(super) fn monitor(names: &Names<'_>, port: &PortSpec, node_port: u16) -> Object {
        let (tags, id) = (names.port_tags(port, &[]), names.id(MONITORS.segment, &port_tag(port)));
        let name = format!("{}:{node_port}", names.of_service());
        let what =
            format!("tcp monitor for cluster {}, service {}, port {node_port}", names.cluster(), names.service());
        let mut object = Object::new(&MONITORS, id, names.marks(), &tags, &name, &what);
        object.initial.insert("resource_type".to_owned(), json!("LBTcpMonitorProfile"));
        object.managed = fields(json!({"monitor_port": node_port}));
        object
    }

    /// Server pool with the Nodes.
    pub(super) fn pool(
        names: &Names<'_>,
        port: &PortSpec,
        members: Vec<Member>,
        monitor: Option<&str>,
        snat_disabled: bool,
    ) -> Object {
        let (tags, id) = (names.port_tags(port, &[]), names.id(POOLS.segment, &port_tag(port)));
        let what = format!("pool for cluster {}, service {}", names.cluster(), names.service());
        let mut object = Object::new(&POOLS, id, names.marks(), &tags, &names.of_service(), &what);
        let snat = if snat_disabled { "LBSnatDisabled" } else { "LBSnatAutoMap" };
        object.initial.insert("snat_translation".to_owned(), json!({"type": snat}));
        object.initial.insert("members".to_owned(), json!([]));
        if let Some(monitor) = monitor {
            object.managed = fields(json!({"active_monitor_paths": [monitor]}));
        }
        object.members = Some(members);
        object
    }

    /// Virtual server of one port.
    pub(super) fn virtual_server(
        names: &Names<'_>,
        port: &PortSpec,
        node_port: u16,
        parts: &VirtualServerParts<'_>,
    ) -> Object {
        let placement = parts.placement.as_ref();
        let placed = placement.map(|it| [(IP_POOL, it.ip_pool.as_str()), (CLASS, it.class.as_str())]);
        let tags = names.port_tags(port, placed.as_ref().map(<[_; 2]>::as_slice).unwrap_or_default());
        let id = names.id(VIRTUAL_SERVERS.segment, &port_tag(port));
        let what = format!("virtual server for cluster {}, service {}", names.cluster(), names.service());
        let mut object = Object::new(&VIRTUAL_SERVERS, id, names.marks(), &tags, &names.of_service(), &what);
        let service = placement.map(|it| it.service.as_str());
        object.initial.extend(fields(json!({"enabled": true, "lb_service_path": service})));
        object.managed = fields(json!({
            "ports": [port.port.to_string()],
            "default_pool_member_ports": [node_port.to_string()],
            "pool_path": parts.pool,
        }));
        let optional = [("ip_address", parts.address), ("application_profile_path", parts.profile)];
        let set = optional.into_iter().filter_map(|(field, value)| Some((field.to_owned(), json!(value?))));
        object.managed.extend(set);
        object
    }

    /// LB service of the cluster at a tier-1 gateway.
    pub(super) fn lb_service(names: &Names<'_>, tier1: &str, size: &str) -> Object {
        let (tags, id) = (names.cluster_tags(), names.lb_service_id(tier1));
        let what = format!("virtual server pool for cluster {}", names.cluster());
        let mut object = Object::new(&SERVICES, id, names.cluster_marks(), &tags, &names.of_cluster(), &what);
        object.initial.extend(fields(json!({"size": size, "enabled": true, "connectivity_path": tier1})));
        object
    }

    /// Policy path of a new object.
    pub(super) fn path(&self) -> String {
        self.collection.policy_path(&self.id)
    }

    pub(super) fn name(&self) -> &str {
        self.initial.get("display_name").and_then(Value::as_str).unwrap_or(&self.id)
    }

    /// Sets the address that NSX has allocated.
    pub(super) fn set_address(&mut self, address: &str) {
        self.managed.insert("ip_address".to_owned(), json!(address));
    }

    /// Returns the object to write: the new one, or the existing one with the managed fields as they should be.
    pub(super) fn merged(&self, current: Option<&Record>) -> Record {
        let mut record = current.cloned().unwrap_or_else(|| Record::from(self.initial.clone()));
        for (field, value) in &self.managed {
            record.set(field, value.clone());
        }
        if let Some(members) = &self.members {
            record.set("members", merged_members(record.list("members"), members));
        }
        record
    }

    /// Returns the fields of an existing object that differ, or the most important ones of a new object, for display.
    pub(super) fn changes(&self, current: Option<&Record>) -> Vec<FieldChange> {
        let new = self.merged(current);
        let mut changes = FieldChanges::default();
        let managed = self.managed.keys().map(String::as_str);
        for field in managed.chain(self.members.is_some().then_some("members")) {
            match current {
                Some(current) => changes.compare(field, &shown(current, field), &shown(&new, field)),
                None => changes.set(field, &shown(&new, field)),
            }
        }
        changes.into_vec()
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Returns a field for display: the addresses of members, or the value without quotes.
fn shown(record: &Record, field: &str) -> String {
    let text = |value: &Value| match (value.get("ip_address"), value) {
        (Some(Value::String(text)), _) | (None, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    };
    match record.get(field) {
        None => "none".to_owned(),
        Some(Value::Array(items)) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Some(value) => text(value),
    }
}

/// Returns the members: those that exist as they are, without those that are no longer wanted, and then the new ones. An address is a
/// member once, and a Node has one member.
fn merged_members(current: &[Value], wanted: &[Member]) -> Value {
    let (mut waiting, mut used): (Vec<&Member>, BTreeSet<&str>) = (wanted.iter().collect(), BTreeSet::new());
    let mut members = Vec::new();
    for member in current {
        let address = member.get("ip_address").and_then(Value::as_str).unwrap_or_default();
        let node = waiting.iter().position(|one| one.addresses.iter().any(|own| own == address));
        if let Some(node) = node.filter(|_| used.insert(address)) {
            waiting.remove(node);
            members.push(member.clone());
        }
    }
    for Member { name, addresses } in waiting {
        if let Some(address) = addresses.first().filter(|address| used.insert(address.as_str())) {
            members.push(json!({"admin_state": "ENABLED", "display_name": name, "ip_address": address}));
        }
    }
    members.into()
}

/// Returns the members of a pool for a load balancer with an address of this family: NSX rejects members of the other one. Until the
/// family is known, the first internal IP of each Node counts.
// upstream: the first internal IP, whatever its family.
pub(super) fn members(names: &Names<'_>, spec: &LoadBalancerSpec, family: Option<IpFamily>) -> Vec<Member> {
    let targets = spec.targets.iter().filter(|target| !target.draining);
    let member = |target: &TargetNode| {
        let addresses = internal_ips(target, family);
        (!addresses.is_empty()).then(|| Member { name: names.of_member(target.node.as_str()), addresses })
    };
    targets.filter_map(member).collect()
}

fn internal_ips(target: &TargetNode, family: Option<IpFamily>) -> Vec<String> {
    let internal = target.addresses.iter().filter(|address| address.kind == AddressType::InternalIP);
    let of_address = |address: &Address| address.ip().map(|ip| family_of(&ip));
    let family = family.or_else(|| internal.clone().find_map(of_address));
    internal
        .filter(|address| family.is_some() && of_address(address) == family)
        .map(|address| address.address.clone())
        .collect()
}

pub(super) fn family_of(address: &IpAddr) -> IpFamily {
    if address.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 }
}
