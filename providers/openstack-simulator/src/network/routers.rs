//! Routers and their extra routes.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::addresses;
use super::{check_fields, check_revision, fault, not_found, sent, touch, view};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

/// Updates a router, replacing all its routes. Other fields are not validated.
pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let sent = sent(call, "router")?;
    check_fields(Kind::Router, &sent)?;
    let router = state.records.get(Kind::Router, id).ok_or_else(|| not_found(Kind::Router, id))?;
    check_revision(call, router)?;
    if let Some(Value::Array(routes)) = sent.get("routes") {
        check_routes(state, id, routes)?;
    }
    write(state, id, sent)
}

pub(super) fn add_routes(state: &mut State, call: &Call, id: &str) -> Outcome {
    let (mut routes, sent) = existing_and_sent(state, call, id)?;
    let new: Vec<_> = sent.into_iter().filter(|route| !routes.contains(route)).collect();
    routes.extend(new);
    check_routes(state, id, &routes)?;
    write_routes(state, id, routes)
}

pub(super) fn remove_routes(state: &mut State, call: &Call, id: &str) -> Outcome {
    let (mut routes, sent) = existing_and_sent(state, call, id)?;
    routes.retain(|route| !sent.contains(route));
    write_routes(state, id, routes)
}

/// Returns the existing routes and those in the request.
fn existing_and_sent(state: &State, call: &Call, id: &str) -> Result<(Vec<Value>, Vec<Value>), Reply> {
    let atomic = state.options.extensions.iter().any(|alias| alias == "extraroute-atomic");
    let router = state.records.get(Kind::Router, id).filter(|_| atomic).ok_or_else(|| not_found(Kind::Router, id))?;
    let list = |record: &Record| record.get("routes").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok((list(router), list(&sent(call, "router")?)))
}

fn write_routes(state: &mut State, id: &str, routes: Vec<Value>) -> Outcome {
    let mut change = Record::new();
    change.set("routes", routes);
    write(state, id, change)
}

fn write(state: &mut State, id: &str, change: Record) -> Outcome {
    let date = state.with_zone();
    let Some(router) = state.records.get_mut(Kind::Router, id) else { return Err(not_found(Kind::Router, id)) };
    if change.iter().any(|(field, value)| router.get(field) != Some(value)) {
        router.extend(change);
        touch(router, &date);
    }
    let router = router.clone();
    Ok(Reply::one(200, "router", view(state, Kind::Router, &router)))
}

/// Checks that every next hop is in a subnet of the router and is not an address of the router.
fn check_routes(state: &State, id: &str, routes: &[Value]) -> Result<(), Reply> {
    if state.quota("routes").is_some_and(|limit| routes.len() as u64 > limit) {
        let message = format!("Unable to complete operation for {id}. The number of routes exceeds the maximum.");
        return Err(fault(400, "RoutesExhausted", &message));
    }
    let interfaces: Vec<&Record> = interfaces(state, id).collect();
    let subnets = interfaces.iter().flat_map(|port| addresses::subnets_of_port(port));
    let nets: Vec<IpNet> = subnets.filter_map(|id| addresses::net(state.records.get(Kind::Subnet, id)?)).collect();
    let own: Vec<IpAddr> = interfaces.iter().flat_map(|port| addresses::of_port(port)).collect();
    for (number, route) in routes.iter().enumerate() {
        if routes.iter().take(number).any(|earlier| earlier == route) {
            let message = format!("Invalid input for routes. Reason: Duplicate hostroute '{}'.", python_repr(route));
            return Err(fault(400, "HTTPBadRequest", &message));
        }
        let hop = route.get("nexthop").and_then(Value::as_str).unwrap_or_default();
        let bad_hop = |_| fault(400, "AddrFormatError", &format!("failed to detect a valid IP address from '{hop}'"));
        let hop: IpAddr = hop.parse().map_err(bad_hop)?;
        if !nets.iter().any(|net| net.contains(&hop)) {
            return Err(invalid_routes(routes, "the nexthop is not connected with router"));
        }
        if own.contains(&hop) {
            return Err(invalid_routes(routes, "the nexthop is used by router"));
        }
    }
    Ok(())
}

/// Ports of a router's interfaces.
pub(super) fn interfaces<'a>(state: &'a State, router: &'a str) -> impl Iterator<Item = &'a Record> {
    let ports = state.records.of(Kind::Port).iter().map(|row| &row.record);
    ports.filter(move |port| port.text("device_id") == router)
}

fn invalid_routes(routes: &[Value], why: &str) -> Reply {
    let routes: Vec<_> = routes.iter().map(python_repr).collect();
    fault(400, "InvalidRoutes", &format!("Invalid format for routes: [{}], {why}", routes.join(", ")))
}

/// Formats a route as Python prints it.
fn python_repr(route: &Value) -> String {
    let text = |field| route.get(field).and_then(Value::as_str).unwrap_or_default();
    format!("{{'destination': '{}', 'nexthop': '{}'}}", text("destination"), text("nexthop"))
}
