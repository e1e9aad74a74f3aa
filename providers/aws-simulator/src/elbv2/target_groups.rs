//! Target groups.

use std::collections::BTreeSet;

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};

use super::listeners::target_groups;
use super::{attributes, check_arns, find, new_arn};
use crate::balancing::{agrees, check_name, check_port, check_range, new_tags, page, tags};
use crate::fixture;
use crate::params::Params;
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

pub(super) const CREATE: &str = "Name! Protocol! Port! VpcId! TargetType IpAddressType HealthCheckEnabled HealthCheckProtocol \
HealthCheckPort HealthCheckPath HealthCheckIntervalSeconds HealthCheckTimeoutSeconds HealthyThresholdCount \
UnhealthyThresholdCount Matcher.HttpCode Tags.#.{Key,Value}";

pub(super) const MODIFY: &str = "TargetGroupArn! HealthCheckEnabled HealthCheckProtocol HealthCheckPort HealthCheckPath \
HealthCheckIntervalSeconds HealthCheckTimeoutSeconds HealthyThresholdCount UnhealthyThresholdCount Matcher.HttpCode";

/// Settings of a health check, which a modification may change.
const HEALTH_CHECK: [&str; 7] = [
    "HealthCheckProtocol",
    "HealthCheckPort",
    "HealthCheckPath",
    "HealthCheckIntervalSeconds",
    "HealthCheckTimeoutSeconds",
    "HealthyThresholdCount",
    "UnhealthyThresholdCount",
];

/// Ranges of the numbers of a health check.
const NUMBERS: [(&str, u64, u64); 4] = [
    ("HealthCheckIntervalSeconds", 5, 300),
    ("HealthCheckTimeoutSeconds", 2, 120),
    ("HealthyThresholdCount", 2, 10),
    ("UnhealthyThresholdCount", 2, 10),
];

/// ARNs of the load balancers with a listener that forwards to a target group.
pub(crate) fn users(state: &State, arn: &str) -> Vec<String> {
    let listeners = state.records.of("listener").iter().map(|row| &row.record);
    let using = listeners.filter(|listener| target_groups(listener).any(|group| group == arn));
    let mut users: Vec<String> = using.map(|listener| listener.text("LoadBalancerArn").to_owned()).collect();
    users.sort();
    users.dedup();
    users
}

/// Target group as responses show it.
fn view(state: &State, record: &Record) -> Value {
    let mut view = record.clone();
    view.set("LoadBalancerArns", users(state, record.text("id")));
    view.into()
}

pub(super) fn describe(state: &mut State, params: &Params) -> Outcome {
    let (balancer, arns, names) =
        (params.text("LoadBalancerArn"), params.texts("TargetGroupArns"), params.texts("Names"));
    let given = [!balancer.is_empty(), !arns.is_empty(), !names.is_empty()].into_iter().filter(|given| *given).count();
    require(given <= 1, || {
        Failure::validation("Only one of load balancer ARN, target group ARNs and names can be specified")
    })?;
    check_arns(state, "target_group", &arns)?;
    if !balancer.is_empty() {
        check_arns(state, "load_balancer", &[balancer])?;
    }
    let all: Vec<&Record> = state.records.of("target_group").iter().map(|row| &row.record).collect();
    let is_missing = |name: &&str| !all.iter().any(|record| record.text("TargetGroupName") == *name);
    if names.iter().any(is_missing) && !state.is_empty_view() {
        return Err(Failure::new("TargetGroupNotFound", "One or more target groups not found"));
    }
    let listeners = state.records.of("listener").iter().filter(|row| row.owner == balancer);
    let forwarded: BTreeSet<&str> = listeners.flat_map(|row| target_groups(&row.record)).collect();
    let is_wanted = |record: &&Record| {
        let by_arn = arns.is_empty() || arns.contains(&record.text("id"));
        let by_name = names.is_empty() || names.contains(&record.text("TargetGroupName"));
        by_arn && by_name && (balancer.is_empty() || forwarded.contains(record.text("id")))
    };
    let found = all.into_iter().filter(is_wanted).map(|record| view(state, record)).collect();
    page(state, params, "TargetGroups", found)
}

/// Creates a target group. Creating it again with the same settings returns the same one.
pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("Name");
    check_name(name)?;
    check_port(params.text("Port"))?;
    let (vpc, protocol) = (params.text("VpcId"), params.text("Protocol"));
    let is_protocol = ["TCP", "TLS", "UDP", "TCP_UDP"].contains(&protocol);
    require(is_protocol, || Failure::validation(format!("Protocol '{protocol}' is not supported")))?;
    require(state.records.get("vpc", vpc).is_some(), || {
        Failure::validation(format!("The VPC ID '{vpc}' is not found"))
    })?;
    let kind = params.given("TargetType").unwrap_or("instance");
    require(["instance", "ip"].contains(&kind), || {
        Failure::validation(format!("Target type '{kind}' is not supported"))
    })?;
    let held = state.records.of("target_group").iter().find(|row| row.record.text("TargetGroupName") == name);
    if let Some(row) = held {
        let mut settings =
            vec![("Protocol", protocol), ("Port", params.text("Port")), ("VpcId", vpc), ("TargetType", kind)];
        settings.extend(HEALTH_CHECK.iter().map(|field| (*field, params.text(field))));
        let message = format!("A target group with the same name '{name}' exists, but with different settings");
        require(agrees(&row.record, &settings), || Failure::new("DuplicateTargetGroupName", message))?;
        return Ok(json!({"TargetGroups": [view(state, &row.record)]}));
    }
    let count = state.records.of("target_group").len();
    let message = "The quota for the number of target groups has been reached";
    require(count < state.options.limits.target_groups, || Failure::new("TooManyTargetGroups", message))?;
    let fields = json!({"TargetGroupName": name, "Protocol": protocol, "Port": params.text("Port"), "VpcId": vpc,
        "TargetType": kind, "IpAddressType": params.given("IpAddressType").unwrap_or("ipv4"), "_tags": new_tags(params)?});
    let mut record = fixture::defaults("target_group");
    record.extend(object(fields));
    let record = with_health_check(record, params)?;
    let arn = store(state, record);
    state.hide("target_group", &arn);
    Ok(json!({"TargetGroups": [state.records.get("target_group", &arn).map(|record| view(state, record))]}))
}

/// Record with the health check of a request.
fn with_health_check(mut record: Record, params: &Params) -> Result<Record, Failure> {
    let http = ["HTTP", "HTTPS"];
    let was_http = http.contains(&record.text("HealthCheckProtocol"));
    for field in HEALTH_CHECK {
        if let Some(value) = params.given(field) {
            record.set(field, value);
        }
    }
    let is_http = http.contains(&record.text("HealthCheckProtocol"));
    if is_http && !was_http {
        record.set("HealthCheckTimeoutSeconds", params.given("HealthCheckTimeoutSeconds").unwrap_or("6"));
    }
    if is_http {
        record.entry("HealthCheckPath").or_insert(json!("/"));
        record.entry("Matcher").or_insert(json!({"HttpCode": "200-399"}));
    } else {
        ["HealthCheckPath", "Matcher"].iter().for_each(|field| drop(record.remove(*field)));
    }
    if params.has("Matcher") {
        record.set("Matcher", params.value("Matcher").clone());
    }
    check_health_check(&record, params)?;
    Ok(record)
}

fn check_health_check(record: &Record, params: &Params) -> Result<(), Failure> {
    let protocol = record.text("HealthCheckProtocol");
    let is_protocol = ["TCP", "HTTP", "HTTPS"].contains(&protocol);
    require(is_protocol, || Failure::validation(format!("Health check protocol '{protocol}' is not supported")))?;
    let message = "Health check path is not supported for health checks with protocol TCP";
    require(protocol != "TCP" || params.given("HealthCheckPath").is_none(), || Failure::validation(message))?;
    let path = record.text("HealthCheckPath");
    let is_path = path.is_empty() || path.starts_with('/');
    require(is_path, || Failure::validation(format!("Health check path '{path}' must begin with '/'")))?;
    match record.text("HealthCheckPort") {
        "traffic-port" => {}
        port => check_port(port)?,
    }
    NUMBERS.into_iter().try_for_each(|(field, low, high)| check_range(field, record.text(field), low, high))?;
    let [timeout, interval] =
        ["HealthCheckTimeoutSeconds", "HealthCheckIntervalSeconds"].map(|field| record.text(field));
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    let message =
        || format!("Health check timeout '{timeout}' must be smaller than or equal to the interval '{interval}'");
    require(number(timeout) <= number(interval), || Failure::validation(message()))
}

fn store(state: &mut State, mut record: Record) -> String {
    let arn = new_arn(state, &format!("targetgroup/{}", record.text("TargetGroupName")));
    let mut attributes = attributes::defaults("target_group");
    if record.text("Protocol").contains("UDP") {
        attributes["deregistration_delay.connection_termination.enabled"] = json!("true");
        attributes["target_health_state.unhealthy.connection_termination.enabled"] = json!("false");
    }
    record.set("TargetGroupArn", arn.as_str());
    record.set("_attributes", attributes);
    state.put("target_group", record)
}

/// Creates a TCP target group without validation.
pub(crate) fn put(state: &mut State, name: &str, port: u16, given: &[(&str, &str)]) -> String {
    let fields =
        json!({"TargetGroupName": name, "Port": port.to_string(), "VpcId": state.fixture.vpc, "_tags": tags(given)});
    store(state, object(fields))
}

pub(super) fn modify(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("TargetGroupArn");
    let record = with_health_check(find(state, "target_group", arn)?.clone(), params)?;
    *find(state, "target_group", arn)? = record.clone();
    Ok(json!({"TargetGroups": [view(state, &record)]}))
}

/// Deletes a target group that no listener uses. Deleting one that does not exist succeeds.
pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("TargetGroupArn");
    let message = format!("Target group '{arn}' is currently in use by a listener or a rule");
    require(users(state, arn).is_empty(), || Failure::new("ResourceInUse", message))?;
    state.records.of_mut("target_group").remove(arn);
    state.draining.retain(|(group, ..), _| group != arn);
    Ok(json!({}))
}
