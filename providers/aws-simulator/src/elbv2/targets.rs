//! Targets of target groups, and their health.

use bowline_simulator::Fields;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{check_arns, find, users};
use crate::balancing::{instance_state, list};
use crate::params::{Params, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

/// ID and port of the targets of a request. The default port is that of the group; `None` if the request has no port.
fn requested(params: &Params) -> Vec<(&str, Option<&str>)> {
    let targets = params.items("Targets").iter();
    targets.map(|target| (text(target, "Id"), target["Port"].as_str().filter(|port| !port.is_empty()))).collect()
}

/// Registers targets. A draining target becomes healthy again.
pub(super) fn register(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("TargetGroupArn");
    let group = find(state, "target_group", arn)?.clone();
    let mut targets = list(&group, "_targets");
    for (id, port) in requested(params) {
        if group.text("TargetType") == "instance" {
            check_instance(state, group.text("VpcId"), id)?;
        }
        let port = port.unwrap_or(group.text("Port"));
        crate::balancing::check_port(port)?;
        let target = json!({"Id": id, "Port": port});
        if !targets.contains(&target) {
            targets.push(target);
        }
        state.draining.remove(&(arn.to_owned(), id.to_owned(), port.to_owned()));
    }
    let message = "You've reached the limit on the number of targets per target group";
    require(targets.len() <= state.options.limits.targets, || Failure::new("TooManyTargets", message))?;
    find(state, "target_group", arn)?.set("_targets", targets);
    Ok(json!({}))
}

fn check_instance(state: &State, vpc: &str, id: &str) -> Result<(), Failure> {
    let invalid = |what: &str| Failure::new("InvalidTarget", format!("The following targets are not {what}: '{id}'"));
    match instance_state(state, vpc, id) {
        None => Err(invalid("valid instances of the VPC")),
        Some("running") => Ok(()),
        Some(_) => Err(invalid("in a running state and cannot be registered")),
    }
}

/// Deregisters targets; those of a used group are `draining` for a while. Deregistering one that is not registered succeeds.
pub(super) fn deregister(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("TargetGroupArn");
    let mut targets = list(find(state, "target_group", arn)?, "_targets");
    let is_used = !users(state, arn).is_empty();
    for (id, port) in requested(params) {
        let is_meant = |target: &Value| target["Id"] == id && port.is_none_or(|port| target["Port"] == port);
        for target in targets.extract_if(.., |target| is_meant(target)).filter(|_| is_used) {
            let key = (arn.to_owned(), id.to_owned(), text(&target, "Port").to_owned());
            state.draining.insert(key, Instant::now() + state.options.draining);
        }
    }
    find(state, "target_group", arn)?.set("_targets", targets);
    Ok(json!({}))
}

/// Health of the requested targets, or of all registered and draining ones.
pub(super) fn describe(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("TargetGroupArn");
    check_arns(state, "target_group", &[arn])?;
    let Some(group) = state.records.get("target_group", arn).cloned() else {
        return Ok(json!({"TargetHealthDescriptions": []}));
    };
    let registered = list(&group, "_targets");
    let draining = state.draining.keys().filter(|(draining, ..)| draining == arn);
    let draining: Vec<Value> = draining.map(|(_, id, port)| json!({"Id": id, "Port": port})).collect();
    let mut targets = [registered.clone(), draining.clone()].concat();
    let requested = requested(params);
    if !requested.is_empty() {
        let default = group.text("Port");
        targets = requested.iter().map(|(id, port)| json!({"Id": id, "Port": port.unwrap_or(default)})).collect();
    }
    let health = targets.iter().map(|target| {
        let port = match group.text("HealthCheckPort") {
            "" | "traffic-port" => text(target, "Port"),
            port => port,
        };
        let health = match (registered.contains(target), draining.contains(target)) {
            (true, _) => health(state, arn, text(target, "Id")),
            (_, true) => ("draining", "Target.DeregistrationInProgress", "Target deregistration is in progress"),
            _ => ("unused", "Target.NotRegistered", "Target is not registered to the target group"),
        };
        json!({"Target": target, "HealthCheckPort": port, "TargetHealth": shown(health)})
    });
    Ok(json!({"TargetHealthDescriptions": health.collect::<Vec<_>>()}))
}

/// State, reason and description of the health of a registered target.
type Health = (&'static str, &'static str, &'static str);

fn health(state: &State, arn: &str, id: &str) -> Health {
    let instance = state.records.get("instance", id).and_then(|instance| instance.get("instanceState"));
    if instance.is_some_and(|state| state["name"] != "running") {
        return ("unused", "Target.InvalidState", "Target is in the stopped state");
    }
    if users(state, arn).is_empty() {
        return (
            "unused",
            "Target.NotInUse",
            "Target group is not configured to receive traffic from the load balancer",
        );
    }
    ("healthy", "", "")
}

fn shown((state, reason, description): Health) -> Value {
    let given = |text: &'static str| Some(text).filter(|text| !text.is_empty());
    json!({"State": state, "Reason": given(reason), "Description": given(description)})
}
