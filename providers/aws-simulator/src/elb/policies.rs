//! Policies of classic load balancers.

use bowline_simulator::{Fields, Record};
use serde_json::{Value, json};

use super::named;
use crate::balancing::list;
use crate::instances::retain;
use crate::params::{Params, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

pub(super) const CREATE: &str =
    "LoadBalancerName! PolicyName! PolicyTypeName! PolicyAttributes.#.{AttributeName,AttributeValue}";

const TYPES: [&str; 6] = [
    "ProxyProtocolPolicyType",
    "SSLNegotiationPolicyType",
    "AppCookieStickinessPolicyType",
    "LBCookieStickinessPolicyType",
    "BackendServerAuthenticationPolicyType",
    "PublicKeyPolicyType",
];

/// Names of all policies, as a load balancer shows them.
pub(super) fn names(policies: &[Value]) -> Value {
    let of =
        |kind: &str| policies.iter().filter(|policy| policy["PolicyTypeName"] == kind).cloned().collect::<Vec<_>>();
    let is_cookie = |policy: &Value| text(policy, "PolicyTypeName").contains("Cookie");
    let other: Vec<&Value> =
        policies.iter().filter(|policy| !is_cookie(policy)).map(|policy| &policy["PolicyName"]).collect();
    json!({"OtherPolicies": other, "AppCookieStickinessPolicies": of("AppCookieStickinessPolicyType"),
        "LBCookieStickinessPolicies": of("LBCookieStickinessPolicyType")})
}

fn keep(record: &mut Record, policies: &[Value]) {
    record.set("Policies", names(policies));
    record.set("_policies", policies);
}

fn check_policies(record: &Record, wanted: &[&str]) -> Result<(), Failure> {
    let held = list(record, "_policies");
    match wanted.iter().find(|name| !held.iter().any(|policy| policy["PolicyName"] == **name)) {
        Some(name) => Err(Failure::new("PolicyNotFound", format!("There is no policy with name {name}"))),
        None => Ok(()),
    }
}

pub(super) fn describe(state: &mut State, params: &Params) -> Outcome {
    if state.is_empty_view() {
        return Ok(json!({"PolicyDescriptions": []}));
    }
    let wanted = params.texts("PolicyNames");
    let record = named(state, params)?;
    check_policies(record, &wanted)?;
    let mut policies = list(record, "_policies");
    policies.retain(|policy| wanted.is_empty() || wanted.contains(&text(policy, "PolicyName")));
    Ok(json!({"PolicyDescriptions": policies}))
}

/// Creates a policy. Creating it again with the same settings succeeds.
pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?;
    let (name, kind) = (params.text("PolicyName"), params.text("PolicyTypeName"));
    let unknown = || Failure::new("PolicyTypeNotFound", format!("There is no policy type with name {kind}"));
    require(TYPES.contains(&kind), unknown)?;
    let attributes = params.items("PolicyAttributes");
    let policy = json!({"PolicyName": name, "PolicyTypeName": kind, "PolicyAttributeDescriptions": attributes});
    let mut policies = list(record, "_policies");
    match policies.iter().find(|held| held["PolicyName"] == name) {
        Some(held) => {
            let message = format!("A policy with the name {name} already exists");
            require(*held == policy, || Failure::new("DuplicatePolicyName", message))?;
        }
        None => policies.push(policy),
    }
    keep(record, &policies);
    Ok(json!({}))
}

/// Deletes a policy that no listener and no instance port uses.
pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?;
    let name = params.text("PolicyName");
    let users = [list(record, "ListenerDescriptions"), list(record, "BackendServerDescriptions")].concat();
    let is_used =
        users.iter().any(|user| user["PolicyNames"].as_array().is_some_and(|names| names.contains(&json!(name))));
    let message = "You cannot delete policies that are in use";
    require(!is_used, || Failure::new("InvalidConfigurationRequest", message).with_status(409))?;
    retain(record, "_policies", |policy| policy["PolicyName"] != name);
    let policies = list(record, "_policies");
    keep(record, &policies);
    Ok(json!({}))
}

pub(super) fn set_for_backend_server(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?;
    let (port, policies) = (params.text("InstancePort"), params.texts("PolicyNames"));
    check_policies(record, &policies)?;
    let is_used = list(record, "ListenerDescriptions").iter().any(|held| held["Listener"]["InstancePort"] == port);
    let message = format!("There is no listener with instance port {port}");
    require(is_used, || Failure::new("InvalidConfigurationRequest", message).with_status(409))?;
    retain(record, "BackendServerDescriptions", |backend| backend["InstancePort"] != port);
    if let (Some(Value::Array(backends)), false) = (record.get_mut("BackendServerDescriptions"), policies.is_empty()) {
        backends.push(json!({"InstancePort": port, "PolicyNames": policies}));
    }
    Ok(json!({}))
}

pub(super) fn set_of_listener(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?;
    let (port, policies) = (params.text("LoadBalancerPort"), params.texts("PolicyNames"));
    check_policies(record, &policies)?;
    let mut listeners = list(record, "ListenerDescriptions");
    let listener = listeners.iter_mut().find(|held| held["Listener"]["LoadBalancerPort"] == port);
    let missing = || Failure::new("ListenerNotFound", format!("There is no listener on port {port}"));
    listener.ok_or_else(missing)?["PolicyNames"] = json!(policies);
    record.set("ListenerDescriptions", listeners);
    Ok(json!({}))
}
