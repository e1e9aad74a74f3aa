//! Load balancers, optionally created together with their listeners and pools.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    change, checks, fault, flavors, listeners, not_found, pools, quotas, sent, server_fault, skeletons, views, work,
};
use crate::network::addresses::{self, AddressError};
use crate::network::skeletons as neutron;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

/// Creates a load balancer and, in the same request, its children. The request succeeds or fails as a whole.
pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    add(state, sent(call, Kind::LoadBalancer)?)
}

/// Creates a load balancer from the fields of a create request.
pub(crate) fn add(state: &mut State, mut sent: Record) -> Outcome {
    checks::new_fields(state, Kind::LoadBalancer, &sent)?;
    check_references(state, &sent)?;
    let vip = check_vip(state, &sent)?;
    quotas::check(state, Kind::LoadBalancer, 1)?;
    let (listeners, pools) = (list(&mut sent, "listeners"), list(&mut sent, "pools"));
    check_children(state, &sent, &listeners, &pools)?;
    let before = state.records.clone();
    create_all(state, sent, vip, listeners, pools).inspect_err(|_| state.records = before)
}

fn create_all(state: &mut State, sent: Record, vip: Vip, listeners: Vec<Record>, pools: Vec<Record>) -> Outcome {
    let mut balancer = skeletons::new(state, Kind::LoadBalancer);
    balancer.extend(sent);
    let id = balancer.text("id").to_owned();
    assign_vip(state, &mut balancer, vip)?;
    state.records.of_mut(Kind::LoadBalancer).insert("", balancer.clone());
    for pool in pools {
        pools::add(state, &id, pool)?;
    }
    for listener in listeners {
        listeners::add(state, &id, listener)?;
    }
    work::begin(state, &id, &[], "PENDING_CREATE");
    Ok(Reply::one(201, "loadbalancer", views::tree(state, &balancer)))
}

fn list(sent: &mut Record, field: &str) -> Vec<Record> {
    match sent.remove(field) {
        Some(Value::Array(items)) => items.into_iter().map(crate::records::object).collect(),
        _ => Vec::new(),
    }
}

/// Checks that provider, flavor and availability zone exist.
fn check_references(state: &State, sent: &Record) -> Result<(), Reply> {
    let provider = sent.text("provider");
    if !provider.is_empty() && !state.options.octavia_providers.iter().any(|known| known == provider) {
        return Err(fault(400, &format!("Provider '{provider}' is not enabled.")));
    }
    let (flavor, zone) = (sent.text("flavor_id"), sent.text("availability_zone"));
    if !flavor.is_empty() && !flavors::flavor(state).is(flavor) {
        return Err(fault(400, "Validation failure: Invalid flavor_id."));
    }
    if !zone.is_empty() && !flavors::zone(state).is(zone) {
        return Err(fault(400, "Validation failure: Invalid availability zone."));
    }
    Ok(())
}

/// Requested location of the VIP.
enum Vip {
    Port(String),
    Subnet { subnet: String, address: Option<IpAddr> },
}

fn check_vip(state: &State, sent: &Record) -> Result<Vip, Reply> {
    let [port, subnet, network] = ["vip_port_id", "vip_subnet_id", "vip_network_id"].map(|field| sent.text(field));
    let address = sent.text("vip_address").parse().ok();
    if !port.is_empty() {
        state.records.get(Kind::Port, port).ok_or_else(|| fault(400, &format!("Port {port} not found.")))?;
        return Ok(Vip::Port(port.to_owned()));
    }
    if !subnet.is_empty() {
        state.records.get(Kind::Subnet, subnet).ok_or_else(|| fault(400, &format!("Subnet {subnet} not found.")))?;
        return Ok(Vip::Subnet { subnet: subnet.to_owned(), address });
    }
    if network.is_empty() {
        let message = "Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.";
        return Err(fault(400, message));
    }
    state.records.get(Kind::Network, network).ok_or_else(|| fault(400, &format!("Network {network} not found.")))?;
    let subnet = subnet_of(state, network, address);
    let none = || fault(400, "Validation failure: Supplied network does not contain a subnet.");
    Ok(Vip::Subnet { subnet: subnet.ok_or_else(none)?, address })
}

/// Subnet of the network that contains the address; otherwise the first IPv4 subnet, or any.
fn subnet_of(state: &State, network: &str, address: Option<IpAddr>) -> Option<String> {
    let subnets = state.records.of(Kind::Subnet).oldest_first().into_iter().map(|row| &row.record);
    let mut subnets: Vec<_> = subnets.filter(|subnet| subnet.text("network_id") == network).collect();
    if let Some(address) = address {
        subnets.retain(|subnet| addresses::net(subnet).is_some_and(|net| net.contains(&address)));
    }
    let v4 = subnets.iter().find(|subnet| subnet.get("ip_version") == Some(&json!(4)));
    v4.or(subnets.first()).map(|subnet| subnet.text("id").to_owned())
}

fn assign_vip(state: &mut State, balancer: &mut Record, vip: Vip) -> Result<(), Reply> {
    let port = match vip {
        Vip::Port(port) => state.records.get(Kind::Port, &port).cloned().unwrap_or_default(),
        Vip::Subnet { subnet, address } => make_port(state, balancer.text("id"), &subnet, address)?,
    };
    let first = port.get("fixed_ips").and_then(|ips| ips.get(0)).cloned().unwrap_or_default();
    balancer.set("vip_port_id", port.text("id"));
    balancer.set("vip_network_id", port.text("network_id"));
    balancer.set("vip_address", first.get("ip_address").cloned().unwrap_or_default());
    balancer.set("vip_subnet_id", first.get("subnet_id").cloned().unwrap_or_default());
    Ok(())
}

/// Creates a VIP port as Octavia does: down, because no server is attached.
fn make_port(state: &mut State, balancer: &str, subnet_id: &str, requested: Option<IpAddr>) -> Result<Record, Reply> {
    let subnet = state.records.get(Kind::Subnet, subnet_id).cloned().unwrap_or_default();
    let ip = addresses::allocate(state, &subnet, requested);
    let ip = ip.map_err(|error| no_address(error, &subnet, requested))?;
    let mut port = neutron::new(state, Kind::Port);
    port.set("name", format!("octavia-lb-{balancer}"));
    port.set("device_id", format!("lb-{balancer}"));
    port.set("device_owner", "Octavia");
    port.set("admin_state_up", false);
    port.set("network_id", subnet.text("network_id"));
    port.set("mac_address", state.ids.mac());
    port.set("fixed_ips", json!([addresses::fixed_ip(&subnet, ip)]));
    // Octavia's own security group, which the project does not see.
    port.set("security_groups", json!([state.ids.uuid()]));
    state.records.of_mut(Kind::Port).insert("", port.clone());
    Ok(port)
}

/// Octavia reports an error of Neutron as a failure of the provider.
fn no_address(error: AddressError, subnet: &Record, requested: Option<IpAddr>) -> Reply {
    let requested = requested.map(|requested| requested.to_string()).unwrap_or_default();
    let why = match error {
        AddressError::Exhausted => {
            format!("No more IP addresses available on network {}.", subnet.text("network_id"))
        }
        AddressError::Taken => format!("IP address {requested} already allocated in subnet {}", subnet.text("id")),
        AddressError::Outside => format!("IP address {requested} is not a valid IP for the specified subnet."),
    };
    server_fault(&format!("Provider 'amphora' reports error: {why}\nNeutron server returns request_ids: ['req-0']"))
}

/// Validates all listeners and pools before any is created.
fn check_children(state: &State, sent: &Record, listeners: &[Record], pools: &[Record]) -> Result<(), Reply> {
    let provider = sent.text("provider");
    let inline = listeners.iter().filter_map(|listener| listener.get("default_pool")?.as_object());
    let defined: Vec<&Record> = inline.filter(|pool| pool.contains_key("protocol")).chain(pools).collect();
    quotas::check(state, Kind::Pool, defined.len())?;
    quotas::check(state, Kind::Listener, listeners.len())?;
    let members = defined.iter().filter_map(|pool| pool.get("members")?.as_array()).map(Vec::len).sum();
    quotas::check(state, Kind::Member, members)?;
    quotas::check(
        state,
        Kind::HealthMonitor,
        defined.iter().filter(|pool| pool.contains_key("healthmonitor")).count(),
    )?;
    for listener in listeners {
        checks::new_fields(state, Kind::Listener, listener)?;
        checks::listener(state, listener, provider)?;
    }
    for pool in defined {
        if pool.text("name").is_empty() {
            return Err(fault(
                400,
                "Validation failure: Pools must be named when creating a fully populated loadbalancer.",
            ));
        }
        checks::new_fields(state, Kind::Pool, pool)?;
        checks::pool(state, pool, provider)?;
    }
    Ok(())
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let sent = sent(call, Kind::LoadBalancer)?;
    checks::changed_fields(state, Kind::LoadBalancer, &sent)?;
    state.records.get(Kind::LoadBalancer, id).ok_or_else(|| not_found(Kind::LoadBalancer, id))?;
    work::check_state(state, id, &["ACTIVE"])?;
    check_tags(state, id, &sent)?;
    work::begin(state, id, &[], "");
    change(state, Kind::LoadBalancer, id, sent)
}

/// Duplicate tags violate a constraint of Octavia's database, and Octavia has already removed the old tags by then.
fn check_tags(state: &mut State, id: &str, sent: &Record) -> Result<(), Reply> {
    let tags = sent.texts("tags");
    let duplicate = tags.iter().enumerate().find(|(at, tag)| tags.iter().take(*at).any(|earlier| earlier == *tag));
    let Some((_, tag)) = duplicate else { return Ok(()) };
    let message = format!("(pymysql.err.IntegrityError) (1062, \"Duplicate entry '{id}-{tag}' for key 'PRIMARY'\")");
    if let Some(balancer) = state.records.get_mut(Kind::LoadBalancer, id) {
        balancer.set("tags", json!([]));
    }
    Err(server_fault(&message))
}

pub(super) fn delete(state: &mut State, call: &Call, id: &str) -> Outcome {
    state.records.get(Kind::LoadBalancer, id).ok_or_else(|| not_found(Kind::LoadBalancer, id))?;
    let cascade = call.value("cascade").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let has_children = [Kind::Listener, Kind::Pool].iter().any(|kind| !state.records.of(*kind).owned_by(id).is_empty());
    if has_children && !cascade {
        let message = format!("Validation failure: Cannot delete Load Balancer {id} - it has children");
        return Err(fault(400, &message));
    }
    work::check_state(state, id, &["ACTIVE", "ERROR"])?;
    work::begin(state, id, &[], "");
    work::mark(state, Kind::LoadBalancer, id, "PENDING_DELETE");
    Ok(Reply::empty(204))
}
