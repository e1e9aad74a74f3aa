//! Security groups of a Classic Load Balancer, and its source group: the group whose traffic the node groups accept.
//!
//! ```text
//!  security-groups ──► those, else ElbSecurityGroup, else the own group ──► then extra-security-groups
//!  └─ source group: the first
//! ```
//!
//! The own group has one load balancer. Others may have several, whose node rules have the same source, so such a rule is removed only
//! if no other load balancer of the cluster has the group (`Context::shared_groups`).

use std::collections::BTreeSet;

use bowline_cloud::Result;
use bowline_core::Step;

use super::super::annotations::{self as keys, Values};
use super::super::group_steps::{GroupRef, Purpose, own_group};
use super::super::groups::{Groups, own_rules};
use super::super::{Change, Inputs, names};
use crate::api::elb::LoadBalancer;
use crate::config::Config;
use crate::provider::Identity;

/// Groups that the Service or the configuration names, without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Groups in place of the own one.
    base: Vec<String>,
    /// Groups in addition.
    extra: Vec<String>,
}

impl Named {
    pub(super) fn read(config: &Config, values: Values<'_>) -> Named {
        let list = |text: Option<&str>| unique(text.map(keys::items).unwrap_or_default());
        let annotated = list(values.text(&keys::SECURITY_GROUPS));
        let mut extra = list(values.text(&keys::EXTRA_SECURITY_GROUPS));
        let configured = Some(&config.elb_security_group).filter(|group| annotated.is_empty() && !group.is_empty());
        extra.retain(|group| !annotated.contains(group));
        // upstream: a group in both places has the rank of an extra one.
        let configured = configured.filter(|group| !extra.contains(group)).cloned();
        Named { base: annotated.into_iter().chain(configured).collect(), extra }
    }

    /// Whether the load balancer gets a group of its own.
    pub(super) fn has_own(&self, config: &Config) -> bool {
        self.base.is_empty() && config.elb_security_group.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.base.iter().chain(&self.extra)
    }
}

fn unique(items: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

/// Returns the groups of the load balancer, the source group first, and the steps for its own group.
pub(super) fn desired(inputs: &Inputs<'_>) -> Result<(Vec<GroupRef>, Vec<Step<Change>>)> {
    let named = Named::read(inputs.config, inputs.values);
    let given: Vec<_> = named.all().cloned().map(GroupRef::Id).collect();
    if !named.has_own(inputs.config) {
        return Ok((given, Vec::new()));
    }
    let (service, name) = (format!("{}/{}", inputs.key.namespace, inputs.key.service), inputs.name);
    let description = format!("Security group for Kubernetes ELB {name} ({service})");
    let ports = inputs.spec.ports.iter().map(|port| ("tcp", port.port));
    let rules = own_rules(ports, &inputs.spec.source_ranges);
    let (own, steps) = own_group(inputs, &names::classic_group(name), description, &rules, Purpose::ClassicGroup)?;
    Ok((std::iter::once(own).chain(given).collect(), steps))
}

/// Returns the groups to remove: those that the load balancer has and should not have, and the own group if another replaces it. An
/// earlier sync may have failed after it detached the own group, so it is found by its name, too.
pub(super) fn replaced(inputs: &Inputs<'_>, observed: Option<&LoadBalancer>, wanted: &[GroupRef]) -> Vec<String> {
    let own = inputs.context.groups.named(&names::classic_group(inputs.name), &inputs.identity.vpc_id);
    let own = own.filter(|group| inputs.identity.cluster.is_owned(&group.tags)).map(|group| group.id.clone());
    let attached = observed.into_iter().flat_map(|it| it.security_groups.clone());
    let all: BTreeSet<String> = attached.chain(own).collect();
    all.into_iter().filter(|id| !wanted.contains(&GroupRef::Id(id.clone()))).collect()
}

/// Returns the source group of an existing load balancer: those of `security-groups` come first, then other groups of the cluster,
/// other groups, and those of `extra-security-groups`.
pub(super) fn source(
    config: &Config,
    identity: &Identity,
    values: Values<'_>,
    groups: &Groups,
    observed: &LoadBalancer,
) -> Option<String> {
    let annotated = Named::read(&Config::default(), values);
    let at = |list: &[String], id: &String| list.iter().position(|it| it == id);
    let is_tagged = |id: &String| groups.get(id).is_some_and(|group| identity.cluster.is_tagged(&group.tags));
    let rank = |id: &&String| match (at(&annotated.base, id), at(&annotated.extra, id)) {
        (Some(at), _) => (0, at),
        (None, Some(at)) => (3, at),
        (None, None) => (if is_tagged(id) || **id == config.elb_security_group { 1 } else { 2 }, 0),
    };
    observed.security_groups.iter().min_by_key(rank).cloned()
}

/// Returns the own group, if it exists.
pub(super) fn own<'a>(identity: &Identity, name: &str, groups: &'a Groups) -> Option<&'a str> {
    groups.named(&names::classic_group(name), &identity.vpc_id).map(|group| group.id.as_str())
}
