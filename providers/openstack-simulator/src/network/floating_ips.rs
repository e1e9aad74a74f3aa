//! Floating IPs.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::addresses::{self, AddressError};
use super::ports::no_address_left;
use super::{bad_request, check_fields, fault, not_found, quotas, routers, sent, skeletons, touch, view};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    let sent = sent(call, "floatingip")?;
    check_fields(Kind::FloatingIp, &sent)?;
    check_address_choice(state, &sent)?;
    check_network(state, sent.text("floating_network_id"))?;
    quotas::check(state, "floatingip", Kind::FloatingIp)?;
    let address = allocate(state, &sent)?;
    let mut ip = skeletons::new(state, Kind::FloatingIp);
    for field in ["floating_network_id", "description"] {
        ip.set(field, sent.text(field));
    }
    ip.set("floating_ip_address", address.to_string());
    associate(state, &mut ip, &sent)?;
    state.records.of_mut(Kind::FloatingIp).insert("", with_status(ip.clone()));
    // The response shows the status before the L3 agent has processed the floating IP.
    Ok(Reply::one(201, "floatingip", view(state, Kind::FloatingIp, &ip)))
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let sent = sent(call, "floatingip")?;
    check_fields(Kind::FloatingIp, &sent)?;
    let mut ip = state.records.get(Kind::FloatingIp, id).cloned().ok_or_else(|| not_found(Kind::FloatingIp, id))?;
    if let Some(description) = sent.get("description") {
        ip.set("description", description.clone());
    }
    associate(state, &mut ip, &sent)?;
    touch(&mut ip, &state.with_zone());
    if let Some(kept) = state.records.get_mut(Kind::FloatingIp, id) {
        *kept = with_status(ip.clone());
    }
    Ok(Reply::one(200, "floatingip", view(state, Kind::FloatingIp, &ip)))
}

fn with_status(mut ip: Record) -> Record {
    ip.set("status", if ip.text("port_id").is_empty() { "DOWN" } else { "ACTIVE" });
    ip
}

fn check_address_choice(state: &State, sent: &Record) -> Result<(), Reply> {
    let address = sent.text("floating_ip_address");
    if !address.is_empty() && address.parse::<IpAddr>().is_err() {
        let message = format!("Invalid input for floating_ip_address. Reason: '{address}' is not a valid IP address.");
        return Err(bad_request("HTTPBadRequest", &message));
    }
    if address.is_empty() || state.options.floating_address_choice {
        return Ok(());
    }
    let rules = "(rule:create_floatingip and rule:create_floatingip:floating_ip_address)";
    Err(fault(403, "PolicyNotAuthorized", &format!("{rules} is disallowed by policy")))
}

fn check_network(state: &State, id: &str) -> Result<(), Reply> {
    let network = state.records.get(Kind::Network, id).ok_or_else(|| not_found(Kind::Network, id))?;
    if network.get("router:external") == Some(&json!(true)) {
        return Ok(());
    }
    let message = format!("Bad floatingip request: Network {id} is not a valid external network.");
    Err(bad_request("BadRequest", &message))
}

/// Allocates an address of the network, from the subnet if the request has one.
fn allocate(state: &State, sent: &Record) -> Result<IpAddr, Reply> {
    let (network, subnet) = (sent.text("floating_network_id"), sent.text("subnet_id"));
    let subnets = state.records.of(Kind::Subnet).iter().map(|row| &row.record);
    let of_network = subnets.filter(|found| found.text("network_id") == network);
    let usable: Vec<_> = of_network.filter(|found| subnet.is_empty() || found.text("id") == subnet).collect();
    if !subnet.is_empty() && state.records.get(Kind::Subnet, subnet).is_none() {
        return Err(not_found(Kind::Subnet, subnet));
    }
    if usable.is_empty() && !subnet.is_empty() {
        let why =
            format!("Failed to create port on network {network}, because fixed_ips included invalid subnet {subnet}.");
        return Err(bad_request("InvalidInput", &format!("Invalid input for operation: {why}")));
    }
    let requested: Option<IpAddr> = sent.text("floating_ip_address").parse().ok();
    let mut error = AddressError::Exhausted;
    for found in usable.iter().filter(|found| requested.is_some() || found.get("ip_version") == Some(&json!(4))) {
        match addresses::allocate(state, found, requested) {
            Ok(address) => return Ok(address),
            Err(failure) => error = failure,
        }
    }
    Err(match (error, requested) {
        (AddressError::Taken, Some(requested)) => {
            let message = format!("IP address {requested} already allocated in subnet {}", subnet);
            fault(409, "IpAddressAlreadyAllocated", &message)
        }
        (AddressError::Outside, Some(requested)) => {
            let message = format!("IP address {requested} is not a valid IP for the specified subnet.");
            bad_request("InvalidIpForSubnet", &message)
        }
        _ => no_address_left(network),
    })
}

/// Associates the floating IP with the port in the request; `null` disassociates it, and no `port_id` changes nothing.
fn associate(state: &State, ip: &mut Record, sent: &Record) -> Result<(), Reply> {
    let Some(port_id) = sent.get("port_id") else { return Ok(()) };
    let Some(port_id) = port_id.as_str() else {
        for field in ["port_id", "router_id", "fixed_ip_address"] {
            ip.set(field, Value::Null);
        }
        return Ok(());
    };
    let port = state.records.get(Kind::Port, port_id).ok_or_else(|| not_found(Kind::Port, port_id))?;
    let fixed = addresses::of_port(port).find(IpAddr::is_ipv4).map(|fixed| fixed.to_string()).unwrap_or_default();
    check_free(state, ip, port_id, &fixed)?;
    let router = router_between(state, port, ip.text("floating_network_id"))?;
    ip.set("router_id", router);
    ip.set("port_id", port_id);
    ip.set("fixed_ip_address", fixed);
    Ok(())
}

/// Checks that the fixed IP has no other floating IP of the network.
fn check_free(state: &State, ip: &Record, port_id: &str, fixed: &str) -> Result<(), Reply> {
    let (id, network) = (ip.text("id"), ip.text("floating_network_id"));
    let mut others = state.records.of(Kind::FloatingIp).iter().map(|row| &row.record);
    if !others.any(|other| other.text("id") != id && other.text("port_id") == port_id) {
        return Ok(());
    }
    let message = format!(
        "Cannot associate floating IP {} ({id}) with port {port_id} using fixed IP {fixed}, as that fixed IP already has a \
         floating IP on external network {network}.",
        ip.text("floating_ip_address")
    );
    Err(fault(409, "FloatingIPPortAlreadyAssociated", &message))
}

/// Finds the router that connects the port's subnet with the external network.
fn router_between(state: &State, port: &Record, external: &str) -> Result<String, Reply> {
    let subnets: Vec<&str> = addresses::subnets_of_port(port).collect();
    let has_gateway = |router: &&Record| {
        let gateway = router.get("external_gateway_info").and_then(|info| info.get("network_id")?.as_str());
        gateway == Some(external)
    };
    let has_interface = |router: &&Record| {
        let mut interfaces = routers::interfaces(state, router.text("id"));
        interfaces.any(|interface| addresses::subnets_of_port(interface).any(|subnet| subnets.contains(&subnet)))
    };
    let routers = state.records.of(Kind::Router).iter().map(|row| &row.record);
    let found = routers.filter(has_gateway).find(has_interface).map(|router| router.text("id").to_owned());
    found.ok_or_else(|| {
        let subnet = subnets.first().copied().unwrap_or_default();
        let message = format!(
            "External network {external} is not reachable from subnet {subnet}.  Therefore, cannot associate Port {} with a \
             Floating IP.",
            port.text("id")
        );
        fault(404, "ExternalGatewayForFloatingIPNotFound", &message)
    })
}

/// The `port_details` of a floating IP.
pub(super) fn port_details(state: &State, ip: &Record) -> Value {
    let Some(port) = state.records.get(Kind::Port, ip.text("port_id")) else { return Value::Null };
    let fields = ["name", "network_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner"];
    let details = fields.map(|field| (field.to_owned(), port.get(field).cloned().unwrap_or_default()));
    Value::Object(details.into_iter().collect())
}
