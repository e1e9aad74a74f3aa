//! ELBv2: network load balancers, and application load balancers without their rules.

mod attributes;
mod listeners;
mod load_balancers;
mod target_groups;
mod targets;

use bowline_simulator::Record;
use serde_json::json;

use crate::balancing::{add_tags, limits, list, remove_tags};
use crate::params::Params;
use crate::simulator::{Action, State};
use crate::wire::{Failure, Outcome, require};

pub(crate) use listeners::put as put_listener;
pub(crate) use load_balancers::{finish, put};
pub(crate) use target_groups::{put as put_target_group, users};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new("DescribeLoadBalancers", "LoadBalancerArns.# Names.# Marker PageSize", load_balancers::describe),
    Action::new("CreateLoadBalancer", load_balancers::CREATE, load_balancers::create),
    Action::new("DeleteLoadBalancer", "LoadBalancerArn!", load_balancers::delete),
    Action::new("SetSecurityGroups", "LoadBalancerArn! SecurityGroups.#!", load_balancers::set_security_groups),
    Action::new("DescribeLoadBalancerAttributes", "LoadBalancerArn!", |state, params| {
        attributes::describe(state, "load_balancer", params.text("LoadBalancerArn"))
    }),
    Action::new("ModifyLoadBalancerAttributes", "LoadBalancerArn! Attributes.#.{Key!,Value}", |state, params| {
        attributes::modify(state, "load_balancer", params.text("LoadBalancerArn"), params)
    }),
    Action::new("DescribeListeners", "LoadBalancerArn ListenerArns.# Marker PageSize", listeners::describe),
    Action::new("CreateListener", listeners::CREATE, listeners::create),
    Action::new("ModifyListener", listeners::MODIFY, listeners::modify),
    Action::new("DeleteListener", "ListenerArn!", listeners::delete),
    Action::new(
        "DescribeTargetGroups",
        "LoadBalancerArn TargetGroupArns.# Names.# Marker PageSize",
        target_groups::describe,
    ),
    Action::new("CreateTargetGroup", target_groups::CREATE, target_groups::create),
    Action::new("ModifyTargetGroup", target_groups::MODIFY, target_groups::modify),
    Action::new("DeleteTargetGroup", "TargetGroupArn!", target_groups::delete),
    Action::new("DescribeTargetGroupAttributes", "TargetGroupArn!", |state, params| {
        attributes::describe(state, "target_group", params.text("TargetGroupArn"))
    }),
    Action::new("ModifyTargetGroupAttributes", "TargetGroupArn! Attributes.#.{Key!,Value}", |state, params| {
        attributes::modify(state, "target_group", params.text("TargetGroupArn"), params)
    }),
    Action::new("DescribeTargetHealth", "TargetGroupArn! Targets.#.{Id,Port,AvailabilityZone}", targets::describe),
    Action::new("RegisterTargets", "TargetGroupArn! Targets.#.{Id!,Port,AvailabilityZone}", targets::register),
    Action::new("DeregisterTargets", "TargetGroupArn! Targets.#.{Id!,Port,AvailabilityZone}", targets::deregister),
    Action::new("DescribeTags", "ResourceArns.#!", describe_tags),
    Action::new("AddTags", "ResourceArns.#! Tags.#.{Key!,Value}", add),
    Action::new("RemoveTags", "ResourceArns.#! TagKeys.#!", remove),
    Action::new("DescribeAccountLimits", "Marker PageSize", account_limits),
];

/// Kinds of records, each with the part of its ARNs and the error for an unknown one.
const KINDS: [(&str, &str, &str); 3] = [
    ("load_balancer", ":loadbalancer/", "LoadBalancerNotFound"),
    ("listener", ":listener/", "ListenerNotFound"),
    ("target_group", ":targetgroup/", "TargetGroupNotFound"),
];

/// Record of this kind.
fn find<'a>(state: &'a mut State, kind: &'static str, arn: &str) -> Result<&'a mut Record, Failure> {
    state.records.get_mut(kind, arn).ok_or_else(|| not_found(kind, arn))
}

fn not_found(kind: &str, arn: &str) -> Failure {
    let (_, part, code) = KINDS.into_iter().find(|(known, ..)| *known == kind).unwrap_or((kind, "", "InternalFailure"));
    if !arn.contains(part) {
        return Failure::validation(format!("'{arn}' is not a valid {} ARN", kind.replace('_', " ")));
    }
    Failure::new(code, format!("One or more {}s not found: '{arn}'", kind.replace('_', " ")))
}

/// Checks that all records exist. In a view without records, they are not listed instead.
fn check_arns(state: &State, kind: &'static str, arns: &[&str]) -> Result<(), Failure> {
    match arns.iter().find(|arn| state.records.get(kind, arn).is_none() && !state.is_empty_view()) {
        Some(arn) => Err(not_found(kind, arn)),
        None => Ok(()),
    }
}

/// New ARN: `arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/name/0123456789abcdef`.
fn new_arn(state: &mut State, resource: &str) -> String {
    let (region, account) = (state.options.region.clone(), state.options.account.clone());
    let id = state.ids.hex();
    format!("arn:aws:elasticloadbalancing:{region}:{account}:{resource}/{}", id.get(..16).unwrap_or_default())
}

// ---- tags and limits

fn kind_of(arn: &str) -> Result<&'static str, Failure> {
    let kind = KINDS.into_iter().find(|(_, part, _)| arn.contains(part)).map(|(kind, ..)| kind);
    kind.ok_or_else(|| Failure::validation(format!("'{arn}' is not a valid ARN")))
}

fn describe_tags(state: &mut State, params: &Params) -> Outcome {
    let arns = params.texts("ResourceArns");
    require(arns.len() <= 20, || Failure::validation("ResourceArns must have at most 20 items"))?;
    let mut descriptions = Vec::new();
    for arn in arns {
        let kind = kind_of(arn)?;
        check_arns(state, kind, &[arn])?;
        let found = state.records.get(kind, arn);
        descriptions.extend(found.map(|record| json!({"ResourceArn": arn, "Tags": list(record, "_tags")})));
    }
    Ok(json!({"TagDescriptions": descriptions}))
}

fn add(state: &mut State, params: &Params) -> Outcome {
    for arn in params.texts("ResourceArns") {
        add_tags(find(state, kind_of(arn)?, arn)?, params.items("Tags"))?;
    }
    Ok(json!({}))
}

fn remove(state: &mut State, params: &Params) -> Outcome {
    for arn in params.texts("ResourceArns") {
        remove_tags(find(state, kind_of(arn)?, arn)?, &params.texts("TagKeys"));
    }
    Ok(json!({}))
}

fn account_limits(state: &mut State, _: &Params) -> Outcome {
    let max = &state.options.limits;
    Ok(limits(&[
        ("network-load-balancers", max.load_balancers),
        ("listeners-per-network-load-balancer", max.listeners),
        ("target-groups", max.target_groups),
        ("targets-per-network-load-balancer", max.targets),
    ]))
}
