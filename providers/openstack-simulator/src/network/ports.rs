//! Ports.

use serde_json::{Value, json};

use super::addresses::{self, AddressError};
use super::{check_fields, check_revision, fault, not_found, quotas, sent, skeletons, touch, view};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    let sent = sent(call, "port")?;
    check_fields(Kind::Port, &sent)?;
    quotas::check(state, "port", Kind::Port)?;
    let network = sent.text("network_id");
    state.records.get(Kind::Network, network).ok_or_else(|| not_found(Kind::Network, network))?;
    let subnets = state.records.of(Kind::Subnet).iter().map(|row| &row.record);
    let subnets: Vec<_> = subnets.filter(|subnet| subnet.text("network_id") == network).collect();
    let exhausted = || no_address_left(network);
    let mut fixed_ips = Vec::new();
    if let Some(subnet) = subnets.first() {
        let ip = addresses::allocate(state, subnet, None).map_err(|_: AddressError| exhausted())?;
        fixed_ips.push(addresses::fixed_ip(subnet, ip));
    }
    let mut port = skeletons::new(state, Kind::Port);
    port.set("mac_address", state.ids.mac());
    port.set("fixed_ips", fixed_ips);
    port.set("security_groups", json!([state.fixture.default_group]));
    port.set("revision_number", 1);
    if sent.get("port_security_enabled") == Some(&json!(false)) {
        port.set("security_groups", json!([]));
    }
    port.extend(sent);
    state.records.of_mut(Kind::Port).insert("", port.clone());
    Ok(Reply::one(201, "port", port))
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let mut sent = sent(call, "port")?;
    check_fields(Kind::Port, &sent)?;
    let port = state.records.get(Kind::Port, id).ok_or_else(|| not_found(Kind::Port, id))?;
    check_groups(state, &sent)?;
    check_revision(call, port)?;
    check_security(port, &sent)?;
    sort_groups(&mut sent);
    complete_pairs(port, &mut sent)?;
    let date = state.with_zone();
    let Some(port) = state.records.get_mut(Kind::Port, id) else { return Err(not_found(Kind::Port, id)) };
    // An update without a difference does not change the revision.
    if sent.iter().any(|(field, value)| port.get(field) != Some(value)) {
        port.extend(sent);
        touch(port, &date);
    }
    let port = port.clone();
    Ok(Reply::one(200, "port", view(state, Kind::Port, &port)))
}

/// Checks that all security groups exist.
fn check_groups(state: &State, sent: &Record) -> Result<(), Reply> {
    let missing =
        sent.texts("security_groups").into_iter().find(|id| state.records.get(Kind::SecurityGroup, id).is_none());
    missing.map_or(Ok(()), |id| Err(not_found(Kind::SecurityGroup, id)))
}

/// Rejects security groups and allowed address pairs on a port without port security.
fn check_security(port: &Record, sent: &Record) -> Result<(), Reply> {
    let is_some = |field| sent.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let secured = sent.get("port_security_enabled").or(port.get("port_security_enabled")) != Some(&json!(false));
    if !secured && is_some("allowed_address_pairs") {
        let message = "Port Security must be enabled in order to have allowed address pairs on a port.";
        return Err(fault(409, "AddressPairAndPortSecurityRequired", message));
    }
    if !secured && is_some("security_groups") {
        let message = "Port security must be enabled and port must have an IP address in order to use security groups.";
        return Err(fault(400, "PortSecurityAndIPRequiredForSecurityGroups", message));
    }
    Ok(())
}

/// Sorts and deduplicates the security groups, as Neutron does.
fn sort_groups(sent: &mut Record) {
    if let Some(Value::Array(groups)) = sent.get_mut("security_groups") {
        groups.sort_by_key(|id| id.as_str().unwrap_or_default().to_owned());
        groups.dedup();
    }
}

/// Sets the MAC address of pairs without one to the port's, and rejects duplicate pairs.
fn complete_pairs(port: &Record, sent: &mut Record) -> Result<(), Reply> {
    let Some(Value::Array(pairs)) = sent.get_mut("allowed_address_pairs") else { return Ok(()) };
    let mut seen = Vec::new();
    for pair in pairs {
        let ip = pair.get("ip_address").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_address = ip.parse::<ipnet::IpNet>().is_ok() || ip.parse::<std::net::IpAddr>().is_ok();
        if !is_address {
            let message = format!("'{ip}' is not a valid IP address");
            return Err(fault(400, "HTTPBadRequest", &message));
        }
        if pair.get("mac_address").is_none_or(Value::is_null) {
            pair["mac_address"] = json!(port.text("mac_address"));
        }
        if seen.contains(pair) {
            let (mac, ip) = (pair["mac_address"].as_str().unwrap_or_default(), ip);
            let message = format!("Request contains duplicate address pair: mac_address {mac} ip_address {ip}.");
            return Err(fault(400, "DuplicateAddressPairInRequest", &message));
        }
        seen.push(pair.clone());
    }
    Ok(())
}

pub(super) fn delete(state: &mut State, id: &str) -> Outcome {
    remove(state, id).map(|()| Reply::empty(204)).ok_or_else(|| not_found(Kind::Port, id))
}

/// Removes a port and disassociates its floating IPs.
pub(crate) fn remove(state: &mut State, id: &str) -> Option<()> {
    state.records.of_mut(Kind::Port).remove(id)?;
    for row in state.records.of_mut(Kind::FloatingIp).iter_mut().filter(|row| row.record.text("port_id") == id) {
        for field in ["port_id", "router_id", "fixed_ip_address"] {
            row.record.set(field, Value::Null);
        }
        row.record.set("status", "DOWN");
    }
    Some(())
}

/// Error for an exhausted network. Neutron never names the subnet.
pub(super) fn no_address_left(network: &str) -> Reply {
    fault(409, "IpAddressGenerationFailure", &format!("No more IP addresses available on network {network}."))
}
