//! Network Load Balancers.
//!
//! ```text
//!  clients ──► listener (TCP, UDP, TLS) ──► target group: instances, health check ──► node port
//!              own security group (mode Managed)                     rules of the Nodes' security groups
//! ```
//!
//! * `mappings`, `health_check`, `attributes`, `addresses`: what the Service asks for.
//! * `target_groups`, `listeners`, `security`: differences of each part, as steps.
//! * `plan`, `warnings`: the plan, and what has no effect.
//! * `observe`, `apply`: calls.

mod addresses;
mod apply;
mod attributes;
mod health_check;
mod listeners;
mod mappings;
mod observe;
mod plan;
mod security;
mod target_groups;
#[cfg(test)]
mod tests;
mod warnings;

use bowline_cloud::LoadBalancerKind;
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, Step, Verb};

use super::group_steps::GroupRef;
use super::{Kind, annotations, kind_name};
use crate::api::ec2::Subnet;
use crate::api::{Tags, elbv2};

pub(crate) use listeners::NewListener;
pub(super) use plan::plan;
pub(super) use security::DESCRIPTION as GROUP_DESCRIPTION;

/// Subject of steps.
const SUBJECT: &str = "Network Load Balancer";

/// A Network Load Balancer with everything that belongs to it. For a deletion, only its target groups are read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Observed {
    pub(crate) load_balancer: elbv2::LoadBalancer,
    pub(crate) tags: Tags,
    pub(crate) attributes: elbv2::Attributes,
    pub(crate) listeners: Vec<elbv2::Listener>,
    pub(crate) target_groups: Vec<target_groups::Observed>,
    pub(crate) subnets: Vec<Subnet>,
}

/// A load balancer or a target group: an existing one, or one that an earlier step creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ref {
    Arn(String),
    Name(String),
}

/// Change of a Network Load Balancer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Creates the load balancer with these security groups.
    Create(elbv2::NewLoadBalancer, Vec<GroupRef>),
    /// Replaces the security groups.
    SetSecurityGroups(String, Vec<GroupRef>),
    /// Sets attributes of the load balancer.
    SetAttributes(Ref, elbv2::Attributes),
    /// Adds tags to the load balancer.
    AddTags(String, Tags),
    /// Removes tags of the load balancer, by key.
    RemoveTags(String, Vec<String>),
    /// Deletes the load balancer with this ARN.
    Delete(String),
    /// Creates a listener of a load balancer.
    CreateListener(Ref, NewListener, Tags),
    /// Changes the listener with this ARN.
    ModifyListener(String, NewListener),
    /// Deletes the listener with this ARN.
    DeleteListener(String),
    /// Creates a target group.
    CreateTargetGroup(elbv2::NewTargetGroup),
    /// Changes the health check of the target group with this ARN.
    ModifyTargetGroup(String, elbv2::HealthCheckChange),
    /// Sets attributes of a target group.
    SetTargetGroupAttributes(Ref, elbv2::Attributes),
    /// Adds targets.
    Register(Ref, Vec<elbv2::Target>),
    /// Removes targets from the target group with this ARN.
    Deregister(String, Vec<elbv2::Target>),
    /// Deletes a target group.
    DeleteTargetGroup { arn: String, name: String },
}

impl Observed {
    /// Returns the host name; empty if the load balancer does not work.
    pub(super) fn hostname(&self) -> &str {
        match self.load_balancer.state.code.as_str() {
            "active" | "provisioning" => &self.load_balancer.dns_name,
            _ => "",
        }
    }
}

impl Ref {
    /// Returns the ARN or the name, for plans.
    fn text(&self) -> &str {
        match self {
            Ref::Arn(text) | Ref::Name(text) => text,
        }
    }
}

fn step(
    verb: Verb,
    kind: &str,
    name: &str,
    changes: Vec<bowline_core::FieldChange>,
    change: Change,
) -> Step<super::Change> {
    Step::new(verb, kind, name, changes, super::Change::Network(change))
}

/// Steps that delete the load balancer and its target groups, except for those that other load balancers use as well.
pub(super) fn removal(observed: &Observed) -> Vec<Step<super::Change>> {
    let one = &observed.load_balancer;
    let delete = step(Verb::Delete, SUBJECT, &one.name, Vec::new(), Change::Delete(one.arn.clone()));
    let groups = observed.target_groups.iter().map(|observed| &observed.group);
    let groups = groups.filter(|group| group.load_balancer_arns.len() <= 1);
    std::iter::once(delete).chain(target_groups::deletion(groups)).collect()
}

/// Steps that delete target groups which a load balancer has left behind.
pub(super) fn leftover_steps(groups: &[elbv2::TargetGroup]) -> Vec<Step<super::Change>> {
    target_groups::deletion(groups)
}

const EXTERNAL: &[(&str, &str)] = &[(annotations::TYPE.key, "nlb")];
const INTERNAL: &[(&str, &str)] = &[(annotations::TYPE.key, "nlb"), (annotations::INTERNAL.key, "true")];

/// Returns what a Network Load Balancer can do.
pub(crate) fn capabilities(internal: bool) -> LoadBalancerKind {
    LoadBalancerKind {
        name: kind_name(Kind::Network, internal),
        requested_by: if internal { INTERNAL } else { EXTERNAL },
        checks_spec: true,
        tcp: true,
        udp: true,
        source_ranges: true,
        local_traffic_policy: true,
        proxy_protocol: vec![ProxyProtocol::V2],
        internal,
        health_check_settings: true,
        ip_families: vec![IpFamily::IPv4],
        first_family: true,
        ..LoadBalancerKind::default()
    }
}
