//! Address allocation in subnets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bowline_simulator::addresses::range;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::records::{Fields, Kind, Record, Records, Row};
use crate::simulator::State;

/// Reason for a failed address allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressError {
    /// No address is left.
    Exhausted,
    /// The address is in use.
    Taken,
    /// The address is not in the subnet.
    Outside,
}

/// Returns a free address of the subnet, or the requested one if it is free.
pub(crate) fn allocate(state: &State, subnet: &Record, requested: Option<IpAddr>) -> Result<IpAddr, AddressError> {
    let taken = taken(&state.records, subnet);
    if let Some(requested) = requested {
        let is_inside = net(subnet).is_some_and(|net| net.contains(&requested));
        return match (is_inside, taken.contains(&requested)) {
            (false, _) => Err(AddressError::Outside),
            (true, true) => Err(AddressError::Taken),
            (true, false) => Ok(requested),
        };
    }
    if state.exhausted.contains(subnet.text("id")) {
        return Err(AddressError::Exhausted);
    }
    pools(subnet)
        .into_iter()
        .flat_map(|(start, end)| range(start, end))
        .find(|ip| !taken.contains(ip))
        .ok_or(AddressError::Exhausted)
}

/// Entry of a port's `fixed_ips`.
pub(crate) fn fixed_ip(subnet: &Record, ip: IpAddr) -> Value {
    json!({"subnet_id": subnet.text("id"), "ip_address": ip.to_string()})
}

/// Addresses of a port.
pub(crate) fn of_port(port: &Record) -> impl Iterator<Item = IpAddr> + '_ {
    let ips = port.get("fixed_ips").and_then(Value::as_array).into_iter().flatten();
    ips.filter_map(|ip| ip.get("ip_address")?.as_str()?.parse().ok())
}

/// Subnets of a port.
pub(crate) fn subnets_of_port(port: &Record) -> impl Iterator<Item = &str> + '_ {
    let ips = port.get("fixed_ips").and_then(Value::as_array).into_iter().flatten();
    ips.filter_map(|ip| ip.get("subnet_id")?.as_str())
}

/// CIDR of a subnet.
pub(crate) fn net(subnet: &Record) -> Option<IpNet> {
    subnet.text("cidr").parse().ok()
}

fn taken(records: &Records, subnet: &Record) -> BTreeSet<IpAddr> {
    let network = subnet.text("network_id");
    let on_network = |row: &&Row| row.record.text("network_id") == network;
    let ports = records.of(Kind::Port).iter().filter(on_network).flat_map(|row| of_port(&row.record));
    let floating =
        records.of(Kind::FloatingIp).iter().filter_map(|row| row.record.text("floating_ip_address").parse().ok());
    let gateways = records.of(Kind::Router).iter().flat_map(|row| gateway_addresses(&row.record));
    let own = subnet.text("gateway_ip").parse().ok();
    ports.chain(floating).chain(gateways).chain(own).collect()
}

/// External addresses of a router.
fn gateway_addresses(router: &Record) -> Vec<IpAddr> {
    let ips = router.get("external_gateway_info").and_then(|info| info.get("external_fixed_ips")?.as_array());
    ips.into_iter().flatten().filter_map(|ip| ip.get("ip_address")?.as_str()?.parse().ok()).collect()
}

fn pools(subnet: &Record) -> Vec<(IpAddr, IpAddr)> {
    let pools = subnet.get("allocation_pools").and_then(Value::as_array).into_iter().flatten();
    let end = |pool: &Value, end| pool.get(end)?.as_str()?.parse().ok();
    pools.filter_map(|pool| Some((end(pool, "start")?, end(pool, "end")?))).collect()
}
