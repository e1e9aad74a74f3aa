//! Load balancers, with or without all that is below them.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    change, checks, choices, fault, listeners, not_found, pools, quotas, sent, server_fault, skeletons, views, work,
};
use crate::network::addresses::{self, Refused};
use crate::network::skeletons as neutron;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

/// Makes one, and in the same request what is below it. Either all is made or nothing.
pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    add(state, sent(call, Kind::LoadBalancer)?)
}

/// Makes one of what was sent.
pub(crate) fn add(state: &mut State, mut sent: Record) -> Outcome {
    checks::new_fields(state, Kind::LoadBalancer, &sent)?;
    check_choices(state, &sent)?;
    let vip = check_vip(state, &sent)?;
    quotas::check(state, Kind::LoadBalancer, 1)?;
    let (listeners, pools) = (list(&mut sent, "listeners"), list(&mut sent, "pools"));
    check_below(state, &sent, &listeners, &pools)?;
    let before = state.records.clone();
    make(state, sent, vip, listeners, pools).inspect_err(|_| state.records = before)
}

fn make(state: &mut State, sent: Record, vip: Vip, listeners: Vec<Record>, pools: Vec<Record>) -> Outcome {
    let mut balancer = skeletons::new(state, Kind::LoadBalancer);
    balancer.extend(sent);
    let id = balancer.text("id").to_owned();
    give_vip(state, &mut balancer, vip)?;
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

/// Provider, flavor and zone must exist.
fn check_choices(state: &State, sent: &Record) -> Result<(), Reply> {
    let provider = sent.text("provider");
    if !provider.is_empty() && !state.options.octavia_providers.iter().any(|known| known == provider) {
        return Err(fault(400, &format!("Provider '{provider}' is not enabled.")));
    }
    let (flavor, zone) = (sent.text("flavor_id"), sent.text("availability_zone"));
    if !flavor.is_empty() && !choices::flavor(state).is(flavor) {
        return Err(fault(400, "Validation failure: Invalid flavor_id."));
    }
    if !zone.is_empty() && !choices::zone(state).is(zone) {
        return Err(fault(400, "Validation failure: Invalid availability zone."));
    }
    Ok(())
}

/// Where a VIP is to be.
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

/// The subnet of the network that has the address, or the first one of IPv4, or any.
fn subnet_of(state: &State, network: &str, address: Option<IpAddr>) -> Option<String> {
    let subnets = state.records.of(Kind::Subnet).oldest_first().into_iter().map(|row| &row.record);
    let mut subnets: Vec<_> = subnets.filter(|subnet| subnet.text("network_id") == network).collect();
    if let Some(address) = address {
        subnets.retain(|subnet| addresses::net(subnet).is_some_and(|net| net.contains(&address)));
    }
    let v4 = subnets.iter().find(|subnet| subnet.get("ip_version") == Some(&json!(4)));
    v4.or(subnets.first()).map(|subnet| subnet.text("id").to_owned())
}

fn give_vip(state: &mut State, balancer: &mut Record, vip: Vip) -> Result<(), Reply> {
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

/// A port for the VIP, as Octavia makes it: nobody's machine has it, so it is down.
fn make_port(state: &mut State, balancer: &str, subnet_id: &str, wanted: Option<IpAddr>) -> Result<Record, Reply> {
    let subnet = state.records.get(Kind::Subnet, subnet_id).cloned().unwrap_or_default();
    let ip = addresses::allocate(state, &subnet, wanted);
    let ip = ip.map_err(|refused| no_address(refused, &subnet, wanted))?;
    let mut port = neutron::new(state, Kind::Port);
    port.set("name", format!("octavia-lb-{balancer}"));
    port.set("device_id", format!("lb-{balancer}"));
    port.set("device_owner", "Octavia");
    port.set("admin_state_up", false);
    port.set("network_id", subnet.text("network_id"));
    port.set("mac_address", state.ids.mac());
    port.set("fixed_ips", json!([addresses::fixed_ip(&subnet, ip)]));
    // A group of Octavia's own, which the project does not see.
    port.set("security_groups", json!([state.ids.uuid()]));
    state.records.of_mut(Kind::Port).insert("", port.clone());
    Ok(port)
}

/// What Neutron refuses is the provider's failure to Octavia.
fn no_address(refused: Refused, subnet: &Record, wanted: Option<IpAddr>) -> Reply {
    let wanted = wanted.map(|wanted| wanted.to_string()).unwrap_or_default();
    let why = match refused {
        Refused::Exhausted => format!("No more IP addresses available on network {}.", subnet.text("network_id")),
        Refused::Taken => format!("IP address {wanted} already allocated in subnet {}", subnet.text("id")),
        Refused::Outside => format!("IP address {wanted} is not a valid IP for the specified subnet."),
    };
    server_fault(&format!("Provider 'amphora' reports error: {why}\nNeutron server returns request_ids: ['req-0']"))
}

/// Checks all that is to be made below before anything is made.
fn check_below(state: &State, sent: &Record, listeners: &[Record], pools: &[Record]) -> Result<(), Reply> {
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

/// The same tag twice is more than Octavia's database takes, and what was there before is lost by then.
fn check_tags(state: &mut State, id: &str, sent: &Record) -> Result<(), Reply> {
    let tags = sent.texts("tags");
    let twice = tags.iter().enumerate().find(|(at, tag)| tags.iter().take(*at).any(|earlier| earlier == *tag));
    let Some((_, tag)) = twice else { return Ok(()) };
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
