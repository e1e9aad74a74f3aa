//! Security groups of the load balancer, with `NLBSecurityGroupMode = Managed`.

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{FieldChange, Step, Verb};

use super::super::annotations::{self as keys, items};
use super::super::group_steps::{self, GroupRef, Purpose};
use super::super::groups::{NodeTraffic, own_rules};
use super::super::{Inputs, names};
use super::health_check::TRAFFIC_PORT;
use super::mappings::Mapping;
use super::{Change, Observed, SUBJECT, step};
use crate::api::ec2::Subnet;
use crate::config::Config;

/// Description of the own group.
pub(in super::super) const DESCRIPTION: &str = "[k8s] Managed SecurityGroup for LoadBalancer";

/// Error prefix of everything that concerns the groups.
const OPERATION: &str = "error ensuring NLB security group";

/// Reason of the Event if a replaced group cannot be removed.
// upstream: that is only logged.
const NOT_REMOVED: &str = "LoadBalancerSecurityGroupNotRemoved";

/// Groups of the load balancer, with the steps around the others.
#[derive(Default)]
pub(super) struct Security {
    /// Desired groups; none if AWS or the mode determines them.
    pub(super) groups: Vec<GroupRef>,
    /// Steps before: the own group and its rules.
    pub(super) before: Vec<Step<super::super::Change>>,
    /// Steps afterwards: removal of groups that are not used any more.
    pub(super) after: Vec<Step<super::super::Change>>,
}

/// Returns whether load balancers get security groups.
pub(super) fn is_managed(config: &Config) -> Result<bool> {
    match config.nlb_security_group_mode.as_str() {
        "" => Ok(false),
        "Managed" => Ok(true),
        other => {
            let message = format!(
                "error checking NLB security group mode: invalid NLB security group mode: {other:?}. Expected: \"Managed\""
            );
            Err(Error::new(ErrorKind::InvalidConfig, OPERATION, message))
        }
    }
}

/// Returns the groups that the Service names.
pub(super) fn requested(inputs: &Inputs<'_>) -> Vec<String> {
    inputs.values.text(&keys::SECURITY_GROUPS).map(items).unwrap_or_default()
}

/// Plans the groups. A load balancer that was created without one cannot get any later.
pub(super) fn plan(inputs: &Inputs<'_>, mappings: &[Mapping], observed: Option<&Observed>) -> Result<Security> {
    let is_managed = is_managed(inputs.config)?;
    let attached = observed.map(|observed| observed.load_balancer.security_groups.as_slice());
    if !is_managed || attached.is_some_and(<[_]>::is_empty) {
        return Ok(Security::default());
    }
    let (groups, before) = match requested(inputs) {
        ids if !ids.is_empty() => (ids.into_iter().map(GroupRef::Id).collect(), Vec::new()),
        _ => {
            let (group, steps) = own_group(inputs, mappings)?;
            (vec![group], steps)
        }
    };
    let after = unused(inputs, &groups, attached.unwrap_or_default());
    Ok(Security { groups, before, after })
}

fn own_group(inputs: &Inputs<'_>, mappings: &[Mapping]) -> Result<(GroupRef, Vec<Step<super::super::Change>>)> {
    let ports = mappings.iter().map(|mapping| (mapping.rule_protocol(), mapping.port));
    let rules = own_rules(ports, &inputs.spec.source_ranges);
    let name = names::network_group(inputs.key);
    group_steps::own_group(inputs, &name, DESCRIPTION.to_owned(), &rules, Purpose::NetworkGroup)
        .map_err(|error| error.during(OPERATION))
}

/// Steps that remove the groups that the load balancer had before, and an own group that an interrupted removal has left behind.
fn unused(inputs: &Inputs<'_>, groups: &[GroupRef], attached: &[String]) -> Vec<Step<super::super::Change>> {
    let own = inputs.context.groups.named(&names::network_group(inputs.key), &inputs.identity.vpc_id);
    let own = own.filter(|group| inputs.identity.cluster.is_owned(&group.tags)).map(|group| &group.id);
    let is_used = |id: &str| groups.iter().any(|group| matches!(group, GroupRef::Id(used) if used == id));
    let unused: BTreeSet<String> = attached.iter().chain(own).filter(|id| !is_used(id)).cloned().collect();
    let mut steps = group_steps::replaced(inputs, &unused.into_iter().collect::<Vec<_>>());
    for step in &mut steps {
        step.best_effort = Some(NOT_REMOVED.to_owned());
    }
    steps
}

/// Step that replaces the groups of an existing load balancer, if they differ.
pub(super) fn replacement(observed: &Observed, groups: &[GroupRef]) -> Option<Step<super::super::Change>> {
    let one = &observed.load_balancer;
    let old: BTreeSet<&str> = one.security_groups.iter().map(String::as_str).collect();
    let new: BTreeSet<&str> = groups.iter().map(GroupRef::text).collect();
    let field = |old: Option<&&str>, new: Option<&&str>| {
        FieldChange::new("security group", old.map(ToString::to_string), new.map(ToString::to_string))
    };
    let removed = old.difference(&new).map(|id| field(Some(id), None));
    let fields: Vec<_> = removed.chain(new.difference(&old).map(|id| field(None, Some(id)))).collect();
    let change = || Change::SetSecurityGroups(one.arn.clone(), groups.to_vec());
    (!groups.is_empty() && !fields.is_empty()).then(|| step(Verb::Update, SUBJECT, &one.name, fields, change()))
}

/// Returns the traffic that the groups of the Nodes accept.
pub(super) fn node_traffic(
    inputs: &Inputs<'_>,
    mappings: &[Mapping],
    health_port: &str,
    subnets: &[Subnet],
) -> NodeTraffic {
    let health = |mapping: &Mapping| match health_port {
        TRAFFIC_PORT => Some(mapping.node_port),
        // AWS rejects a number that is no port.
        port => port.parse().ok(),
    };
    NodeTraffic {
        ports: mappings.iter().map(|mapping| (mapping.rule_protocol(), mapping.node_port)).collect(),
        health_ports: mappings.iter().filter_map(health).collect(),
        sources: inputs.spec.source_ranges.clone(),
        subnets: subnets.iter().map(|it| it.cidr_block.clone()).filter(|cidr| !cidr.is_empty()).collect(),
    }
}
