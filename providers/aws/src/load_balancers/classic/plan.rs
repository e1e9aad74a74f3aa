//! Steps from the observed to the desired load balancer.
//!
//! ```text
//!  new:      own group ──► create ────────────────────────────┐
//!  existing: own group ──► subnets, groups, listeners, tags ──┴► policies, attributes, health check ──► node rules ──► instances
//! ```
//!
//! A new load balancer continues with the steps of an existing one without any settings, so an interrupted creation is continued.

use std::collections::BTreeSet;

use bowline_cloud::Result;
use bowline_core::{FieldChange, FieldChanges, Plan, Step, Verb};

use super::super::annotations::Values;
use super::super::group_steps::{self, GroupChange, GroupRef};
use super::super::{Change as AnyChange, Context, Inputs};
use super::desired::{Desired, instances};
use super::{Change, Observed, attributes, groups, health_check, listeners, policies};
use crate::api::elb::LoadBalancer;
use crate::config::Config;
use crate::provider::Identity;

/// Kind of the resource in steps.
const SUBJECT: &str = "Classic Load Balancer";
const POLICY: &str = "load balancer policy";

type Steps = Vec<Step<AnyChange>>;

/// Plans the load balancer and its security groups.
pub(in super::super) fn plan(inputs: &Inputs<'_>, observed: Option<&Observed>) -> Result<Plan<AnyChange>> {
    let mut desired = Desired::read(inputs, observed)?;
    let node_rules = node_rules(inputs, &desired)?;
    let replaced = groups::replaced(inputs, observed.map(|it| &it.load_balancer), &desired.groups);
    let (released, deleted): (Steps, Steps) =
        group_steps::replaced(inputs, &replaced).into_iter().partition(|step| !is_group_deletion(step));
    let mut steps = std::mem::take(&mut desired.own_group);
    let created = desired.created(inputs.name);
    let current = observed.unwrap_or(&created);
    let regrouped = observed.map(|it| regrouped(inputs, &it.load_balancer, &desired)).unwrap_or_default();
    // The rules of new groups come at once, because the Nodes accept no traffic until then.
    let (early, late) = if regrouped.is_empty() { (Vec::new(), node_rules) } else { (node_rules, Vec::new()) };
    match observed {
        None => steps.push(create(inputs, &desired)),
        Some(observed) => {
            steps.extend(subnet_steps(inputs, &observed.load_balancer, &desired));
            steps.extend([regrouped, early, released.clone()].concat());
            steps.extend(listener_steps(inputs, &observed.load_balancer, &desired));
        }
    }
    steps.extend(proxy_protocol_steps(inputs, &current.load_balancer, &desired));
    steps.extend(tag_step(inputs, current, &desired));
    steps.extend(attributes_step(inputs, current, &desired));
    steps.extend(tls_steps(inputs, &current.load_balancer, &desired));
    steps.extend(health_check_step(inputs, &current.load_balancer, &desired));
    steps.extend(late);
    steps.extend(if observed.is_none() { released } else { Vec::new() });
    steps.extend(instance_steps(inputs, &current.load_balancer, &desired));
    // upstream: groups are deleted as soon as they are replaced. That may take minutes, which would hold up the other steps.
    steps.extend(deleted);
    let locks = if changes_sources(&steps) { sources(inputs, &desired, replaced) } else { BTreeSet::new() };
    Ok(Plan { warnings: desired.warnings, locks, ..Plan::of(steps) })
}

/// Plans the deletion of the load balancer itself. The rules for a source group that is not its own go first, because only the groups
/// of the load balancer show which one it is.
pub(in super::super) fn removal(
    config: &Config,
    identity: &Identity,
    values: Values<'_>,
    context: &Context,
    observed: &Observed,
) -> Plan<AnyChange> {
    let load_balancer = &observed.load_balancer;
    let name = &load_balancer.name;
    let own = groups::own(identity, name, &context.groups);
    let source = groups::source(config, identity, values, &context.groups, load_balancer);
    let source = source.filter(|source| own != Some(source.as_str()));
    let revoked = source
        .iter()
        .filter(|_| !config.disable_security_group_ingress)
        .flat_map(|source| group_steps::revoke_all_from(config, identity, context, source, &BTreeSet::new(), true));
    let delete = Step::new(Verb::Delete, SUBJECT, name, Vec::new(), AnyChange::Classic(Change::Delete));
    let steps = revoked.chain(std::iter::once(delete)).collect();
    Plan { locks: source.into_iter().collect(), ..Plan::of(steps) }
}

fn step(inputs: &Inputs<'_>, changes: Vec<FieldChange>, change: Change) -> Step<AnyChange> {
    Step::new(Verb::Update, SUBJECT, inputs.name, changes, AnyChange::Classic(change))
}

fn create(inputs: &Inputs<'_>, desired: &Desired) -> Step<AnyChange> {
    let new = desired.to_new(inputs.name);
    let mut changes = FieldChanges::default();
    changes.set("scheme", &if new.internal { "internal" } else { "internet-facing" });
    changes.set("listeners", &new.listeners.iter().map(listeners::shown).collect::<Vec<_>>());
    changes.set("subnets", &new.subnets);
    changes.set("security groups", &texts(&desired.groups));
    let change = AnyChange::Classic(Change::Create(Box::new(new), desired.groups.clone()));
    // AWS rejects a second one of the same name.
    let step = Step::new(Verb::Create, SUBJECT, inputs.name, changes.into_vec(), change);
    Step { repeatable: true, ..step }
}

// ---- parts that only an existing load balancer changes

fn subnet_steps(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Steps {
    let Some(wanted) = &desired.subnets else { return Vec::new() };
    let (old, new): (BTreeSet<&String>, BTreeSet<&String>) =
        (observed.subnets.iter().collect(), wanted.iter().collect());
    let field = |id: &&&String, is_new: bool| {
        let value = |has: bool| has.then(|| id.to_string());
        FieldChange::new("subnet", value(!is_new), value(is_new))
    };
    let (surplus, missing): (Vec<_>, Vec<_>) = (old.difference(&new).collect(), new.difference(&old).collect());
    let ids = |ids: &[&&String]| ids.iter().map(ToString::to_string).collect();
    let detach = (!surplus.is_empty()).then(|| {
        step(inputs, surplus.iter().map(|id| field(id, false)).collect(), Change::DetachSubnets(ids(&surplus)))
    });
    let attach = (!missing.is_empty()).then(|| {
        step(inputs, missing.iter().map(|id| field(id, true)).collect(), Change::AttachSubnets(ids(&missing)))
    });
    // upstream: subnets are always detached first, which AWS rejects for the last one.
    let (first, second) = if surplus.len() == old.len() { (attach, detach) } else { (detach, attach) };
    first.into_iter().chain(second).collect()
}

fn texts(groups: &[GroupRef]) -> Vec<&str> {
    groups.iter().map(GroupRef::text).collect()
}

/// Step that replaces the security groups, if the set differs.
fn regrouped(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Steps {
    let old: BTreeSet<&str> = observed.security_groups.iter().map(String::as_str).collect();
    let mut changes = FieldChanges::default();
    changes.compare_sets("security group", &old, &texts(&desired.groups).into_iter().collect());
    let changes = changes.into_vec();
    let is_changed = !changes.is_empty();
    let step = || step(inputs, changes, Change::SetSecurityGroups(desired.groups.clone()));
    is_changed.then(step).into_iter().collect()
}

fn listener_steps(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Steps {
    let (surplus, missing) = listeners::changes(&observed.listeners, &desired.listeners);
    let delete = (!surplus.is_empty()).then(|| {
        let removed = surplus.iter().map(|it| FieldChange::new("listener", Some(listeners::shown(it)), None));
        let ports = surplus.iter().map(|listener| listener.port).collect();
        step(inputs, removed.collect(), Change::DeleteListeners(ports))
    });
    let create = (!missing.is_empty()).then(|| {
        let added = missing.iter().map(|it| FieldChange::new("listener", None, Some(listeners::shown(it))));
        step(inputs, added.collect(), Change::CreateListeners(missing.iter().map(|it| (*it).clone()).collect()))
    });
    delete.into_iter().chain(create).collect()
}

// ---- parts that a new load balancer has, too

fn create_policy(observed: &LoadBalancer, name: &str, change: Change) -> Option<Step<AnyChange>> {
    let step = || {
        let step = Step::new(Verb::Create, POLICY, name, Vec::new(), AnyChange::Classic(change));
        // AWS rejects a second one of the same name.
        Step { repeatable: true, ..step }
    };
    (!policies::exists(observed, name)).then(step)
}

fn proxy_protocol_steps(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Steps {
    let changes = policies::backend_changes(observed, &desired.listeners, desired.proxy_protocol);
    let is_needed = changes.values().flatten().any(|name| name == policies::PROXY_PROTOCOL);
    let create = is_needed
        .then(|| create_policy(observed, policies::PROXY_PROTOCOL, Change::CreateProxyProtocolPolicy))
        .flatten();
    let old = |port: u16| observed.backends.iter().find(|it| it.instance_port == port);
    let set = changes.into_iter().map(|(port, names)| {
        let old: BTreeSet<&String> = old(port).into_iter().flat_map(|it| &it.policy_names).collect();
        let mut changes = FieldChanges::default();
        changes.compare_sets(&format!("policy of instance port {port}"), &old, &names.iter().collect());
        step(inputs, changes.into_vec(), Change::SetBackendPolicies(port, names))
    });
    create.into_iter().chain(set).collect()
}

fn tag_step(inputs: &Inputs<'_>, observed: &Observed, desired: &Desired) -> Option<Step<AnyChange>> {
    let is_missing = |(key, value): &(&String, &String)| observed.tags.get(*key) != Some(*value);
    let missing = desired.additional_tags.iter().filter(is_missing);
    let missing: crate::api::Tags = missing.map(|(key, value)| (key.clone(), value.clone())).collect();
    let change = |(key, value): (&String, &String)| {
        FieldChange::new(format!("tag {key}"), observed.tags.get(key).cloned(), Some(value.clone()))
    };
    (!missing.is_empty()).then(|| step(inputs, missing.iter().map(change).collect(), Change::AddTags(missing.clone())))
}

fn attributes_step(inputs: &Inputs<'_>, observed: &Observed, desired: &Desired) -> Option<Step<AnyChange>> {
    let changes = attributes::changes(&observed.attributes, &desired.attributes);
    let change = || Change::SetAttributes(Box::new(desired.attributes.clone()));
    (!changes.is_empty()).then(|| step(inputs, changes, change()))
}

fn tls_steps(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Steps {
    let Some(policy) = &desired.tls_policy else { return Vec::new() };
    let ports = policies::listener_changes(observed, &desired.listeners, &policy.name);
    let is_needed = !ports.is_empty();
    let create = is_needed.then(|| create_policy(observed, &policy.name, Change::CreateTlsPolicy(policy.clone())));
    let set = ports.into_iter().map(|port| {
        let field = FieldChange::new(format!("TLS policy of port {port}"), None, Some(policy.name.clone()));
        step(inputs, vec![field], Change::SetTlsPolicy(port, policy.name.clone()))
    });
    create.flatten().into_iter().chain(set).collect()
}

fn health_check_step(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Option<Step<AnyChange>> {
    let changes = health_check::changes(observed.health_check.as_ref(), &desired.health_check);
    (!changes.is_empty()).then(|| step(inputs, changes, Change::SetHealthCheck(desired.health_check.clone())))
}

/// Steps for the instances: first the new ones, so that there is always one.
fn instance_steps(inputs: &Inputs<'_>, observed: &LoadBalancer, desired: &Desired) -> Steps {
    let old: BTreeSet<String> = instances(observed).into_iter().collect();
    let new: BTreeSet<String> = desired.instances.iter().cloned().collect();
    let missing: Vec<String> = new.difference(&old).cloned().collect();
    let surplus: Vec<String> = old.difference(&new).cloned().collect();
    let added = missing.iter().map(|id| FieldChange::new("instance", None, Some(id.clone()))).collect();
    let removed = surplus.iter().map(|id| FieldChange::new("instance", Some(id.clone()), None)).collect();
    let register = (!missing.is_empty()).then(|| step(inputs, added, Change::Register(missing)));
    let deregister = (!surplus.is_empty()).then(|| step(inputs, removed, Change::Deregister(surplus)));
    register.into_iter().chain(deregister).collect()
}

// ---- security groups

fn node_rules(inputs: &Inputs<'_>, desired: &Desired) -> Result<Steps> {
    match desired.groups.first() {
        Some(source) => group_steps::classic_node_steps(inputs, source),
        None => Ok(Vec::new()),
    }
}

fn is_group_deletion(step: &Step<AnyChange>) -> bool {
    matches!(step.payload, AnyChange::Group(GroupChange::Delete(_), _))
}

/// Whether the plan changes which groups load balancers have, or rules of groups.
fn changes_sources(steps: &[Step<AnyChange>]) -> bool {
    let is_source = |change: &AnyChange| {
        matches!(change, AnyChange::Group(..) | AnyChange::Classic(Change::Create(..) | Change::SetSecurityGroups(_)))
    };
    steps.iter().any(|step| is_source(&step.payload))
}

/// Returns the groups that other Services may have as their source group, too. A plan that removes the rules of such a group relies on
/// what other Services had when it was observed.
fn sources(inputs: &Inputs<'_>, desired: &Desired, replaced: Vec<String>) -> BTreeSet<String> {
    let own = groups::own(inputs.identity, inputs.name, &inputs.context.groups);
    let source = desired.groups.first().and_then(|group| match group {
        GroupRef::Id(id) => Some(id.clone()),
        GroupRef::Name(_) => None,
    });
    source.into_iter().chain(replaced).filter(|id| own != Some(id.as_str())).collect()
}
