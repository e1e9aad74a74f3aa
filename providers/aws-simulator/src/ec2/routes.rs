//! Route tables and their routes.
//!
//! The record of a table has its routes in `_routes`, each with its destination and the parameters of its target. Responses derive
//! the state and the network interface of a route from its instance.

use bowline_simulator::{Fields, Record};
use ipnet::{Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

use super::{INTERFACES, ROUTE_TABLES, check_ids, single_interface};
use crate::params::{Params, text};
use crate::simulator::State;
use crate::wire::{Api, Failure, Outcome, require};

/// Field of the destination in a response, and the destination.
type Destination = (&'static str, String);

pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let (table, destination) = (params.text("RouteTableId"), destination(params)?);
    check_ids(state, &ROUTE_TABLES, &[table])?;
    let target = target(state, params, table)?;
    let mut routes = routes(state, table);
    let exists =
        || Failure::new("RouteAlreadyExists", format!("The route identified by {} already exists.", destination.1));
    require(!routes.iter().any(|route| route[destination.0] == destination.1), exists)?;
    let count = routes.iter().filter(|route| text(route, "gatewayId") != "local").count();
    let exceeded = || Failure::new("RouteLimitExceeded", "The maximum number of routes has been reached.");
    require(count < state.options.limits.routes, exceeded)?;
    let mut route = json!({"origin": "CreateRoute", "state": "active", target.0: target.1});
    route[destination.0] = destination.1.into();
    routes.push(route);
    keep(state, table, routes);
    Ok(json!({"return": true}))
}

pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let (table, (field, cidr)) = (params.text("RouteTableId"), destination(params)?);
    check_ids(state, &ROUTE_TABLES, &[table])?;
    let mut routes = routes(state, table);
    let missing = || {
        Failure::new(
            "InvalidRoute.NotFound",
            format!("no route with destination-cidr-block {cidr} in route table {table}"),
        )
    };
    let at = routes.iter().position(|route| route[field] == cidr).ok_or_else(missing)?;
    let route = routes.remove(at);
    let local = || Failure::invalid(format!("cannot remove local route {cidr} in route table {table}"));
    require(text(&route, "gatewayId") != "local", local)?;
    keep(state, table, routes);
    Ok(json!({"return": true}))
}

/// Destination in a request; CIDRs are canonical.
fn destination(params: &Params) -> Result<Destination, Failure> {
    let malformed = |cidr: &str| {
        Failure::invalid(format!(
            "Value ({cidr}) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block."
        ))
    };
    match (params.given("DestinationCidrBlock"), params.given("DestinationIpv6CidrBlock")) {
        (Some(cidr), None) => {
            let cidr = cidr.parse::<Ipv4Net>().map_err(|_| malformed(cidr))?;
            Ok(("destinationCidrBlock", cidr.trunc().to_string()))
        }
        (None, Some(cidr)) => {
            let cidr = cidr.parse::<Ipv6Net>().map_err(|_| malformed(cidr))?;
            Ok(("destinationIpv6CidrBlock", cidr.trunc().to_string()))
        }
        (None, None) => Err(Failure::missing(Api::Ec2, "destinationCidrBlock")),
        _ => Err(Failure::new("InvalidParameterCombination", "Only one destination can be specified")),
    }
}

/// Field of the target in a response, and the target.
fn target(state: &State, params: &Params, table: &str) -> Result<(&'static str, String), Failure> {
    let given = ["InstanceId", "NetworkInterfaceId", "GatewayId"].map(|name| params.given(name));
    let (field, id, interface) = match given {
        [Some(id), None, None] => ("instanceId", id, single_interface(state, id)?),
        [None, Some(id), None] => {
            check_ids(state, &INTERFACES, &[id])?;
            ("networkInterfaceId", id, id.to_owned())
        }
        [None, None, Some(id)] => {
            let missing = || Failure::new("InvalidGatewayID.NotFound", format!("The gateway ID '{id}' does not exist"));
            require(state.records.get("internet_gateway", id).is_some(), missing)?;
            return Ok(("gatewayId", id.to_owned()));
        }
        [None, None, None] => return Err(Failure::missing(Api::Ec2, "gatewayId or instanceId or networkInterfaceId")),
        _ => return Err(Failure::new("InvalidParameterCombination", "Only one target can be specified")),
    };
    let vpc = |kind: &'static str, id: &str| state.records.get(kind, id).map(|record| record.text("vpcId").to_owned());
    let is_same = vpc("network_interface", &interface) == vpc("route_table", table);
    let message = format!("route table {table} and network interface {interface} belong to different networks");
    require(is_same, || Failure::invalid(message))?;
    Ok((field, id.to_owned()))
}

fn routes(state: &State, table: &str) -> Vec<Value> {
    let record = state.records.get("route_table", table);
    record.and_then(|table| table.get("_routes")).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn keep(state: &mut State, table: &str, routes: Vec<Value>) {
    if let Some(record) = state.records.get_mut("route_table", table) {
        record.set("_routes", routes);
    }
}

/// Table as responses show it.
pub(crate) fn view(state: &State, table: &Record) -> Record {
    let mut view = table.clone();
    let routes = routes(state, table.text("id")).into_iter().map(|route| shown(state, route));
    view.set("routeSet", routes.collect::<Vec<_>>());
    view
}

/// Route as responses show it: a blackhole if the instance is terminated.
fn shown(state: &State, mut route: Value) -> Value {
    let id = text(&route, "instanceId").to_owned();
    if id.is_empty() {
        return route;
    }
    match state.interfaces(&id).first() {
        Some(interface) => {
            route["networkInterfaceId"] = interface.text("id").into();
            route["instanceOwnerId"] = state.options.account.as_str().into();
        }
        None => {
            route["state"] = "blackhole".into();
            route["instanceId"] = Value::Null;
        }
    }
    route
}
