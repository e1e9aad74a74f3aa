//! Plan of a Network Load Balancer: own group, load balancer, ports, attributes, rules of the Nodes, and last what is not used any more.

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{FieldChange, FieldChanges, Plan, PlanError, Step, Verb};

use super::super::checks::{self, invalid};
use super::super::{Change as AnyChange, Inputs, group_steps, names};
use super::mappings::{Mapping, Tls, mappings};
use super::security::{self, Security};
use super::{
    Change, Observed, Ref, SUBJECT, addresses, attributes, health_check, listeners, step, target_groups, warnings,
};
use crate::api::ec2::Subnet;
use crate::api::elbv2::{Attributes, GroupHealthCheck, Listener, NewLoadBalancer, TargetGroup};
use crate::api::{Tags, elbv2};

/// What the plans of all ports have in common.
struct Ports<'a> {
    inputs: &'a Inputs<'a>,
    load_balancer: Ref,
    vpc_id: String,
    tls: Tls<'a>,
    health_check: GroupHealthCheck,
    attributes: Attributes,
    observed: Option<&'a Observed>,
}

/// Steps of a port, and the target group that it has afterwards.
struct Port<'a> {
    steps: Vec<Step<AnyChange>>,
    listener: Option<&'a Listener>,
    group: Ref,
}

/// Plans the load balancer and its security groups.
pub(in super::super) fn plan(inputs: &Inputs<'_>, observed: Option<&Observed>) -> Result<Plan<AnyChange>> {
    let mappings = mappings(inputs.values, inputs.spec);
    let check = health_check::build(inputs.values, inputs.settings, inputs.spec, inputs.config).map_err(invalid)?;
    checks::requested_address(inputs.spec)?;
    let load_balancer = attributes::of_load_balancer(inputs.values)?;
    let security = security::plan(inputs, &mappings, observed)?;
    let new_subnets = match observed {
        None => inputs.subnets()?,
        Some(_) => Vec::new(),
    };
    let subnets = observed.map_or(&new_subnets, |observed| &observed.subnets);
    let traffic = security::node_traffic(inputs, &mappings, &check.port, subnets);
    let ports = Ports::new(inputs, observed, check, subnets);
    let mut steps = security.before.clone();
    steps.extend(whole(inputs, observed, &security, &new_subnets)?);
    let planned: Vec<_> = mappings.iter().map(|mapping| ports.plan(mapping)).collect();
    let unused = unused(&ports, &planned);
    steps.extend(planned.into_iter().flat_map(|port| port.steps));
    steps.extend(unused.listeners);
    steps.extend(attribute_step(inputs.name, &ports.load_balancer, &load_balancer, observed));
    steps.extend(mark_step(inputs, observed));
    steps.extend(group_steps::network_node_steps(inputs, &traffic)?);
    steps.extend(security.after);
    steps.extend(unused.groups);
    let warnings = warnings::of(inputs, &mappings, observed)?;
    let errors = observed.into_iter().flat_map(errors).collect();
    Ok(Plan { steps, warnings, errors, ..Plan::default() })
}

// ---- the load balancer itself

/// Steps for what is fixed at creation, or for the groups of an existing load balancer, and for its mark.
fn whole(
    inputs: &Inputs<'_>,
    observed: Option<&Observed>,
    security: &Security,
    subnets: &[Subnet],
) -> Result<Vec<Step<AnyChange>>> {
    match observed {
        None => Ok(vec![creation(inputs, security, subnets)?]),
        Some(observed) => {
            let groups = security::replacement(observed, &security.groups);
            let is_marked = observed.tags.contains_key(attributes::PROXY_MARK);
            let mark = (attributes::has_common_proxy_protocol(inputs) && !is_marked).then(|| {
                let change = Change::AddTags(observed.load_balancer.arn.clone(), mark());
                let field = FieldChange::new(format!("tag {}", attributes::PROXY_MARK), None, Some("v2".to_owned()));
                step(Verb::Update, SUBJECT, inputs.name, vec![field], change)
            });
            Ok(groups.into_iter().chain(mark).collect())
        }
    }
}

fn mark() -> Tags {
    [(attributes::PROXY_MARK.to_owned(), "v2".to_owned())].into()
}

fn creation(inputs: &Inputs<'_>, security: &Security, subnets: &[Subnet]) -> Result<Step<AnyChange>> {
    let subnets = addresses::subnet_mappings(inputs.values, subnets)?;
    let internal = inputs.is_internal();
    let mut fields = FieldChanges::default();
    fields.set("scheme", &scheme(internal));
    let ids = subnets.iter().map(|subnet| subnet.subnet_id.as_str());
    fields.set("subnets", &ids.collect::<BTreeSet<_>>());
    let mut tags = inputs.tags();
    if attributes::has_common_proxy_protocol(inputs) {
        tags.extend(mark());
    }
    let name = inputs.name.to_owned();
    let new = NewLoadBalancer { name, internal, subnets, security_groups: Vec::new(), tags };
    let change = Change::Create(new, security.groups.clone());
    let mut create = step(Verb::Create, SUBJECT, inputs.name, fields.into_vec(), change);
    // AWS rejects a second load balancer of the same name.
    create.repeatable = true;
    Ok(create)
}

/// Returns the scheme, as AWS calls it.
pub(super) fn scheme(internal: bool) -> &'static str {
    if internal { "internal" } else { "internet-facing" }
}

fn attribute_step(
    name: &str,
    load_balancer: &Ref,
    desired: &Attributes,
    observed: Option<&Observed>,
) -> Option<Step<AnyChange>> {
    let none = Attributes::new();
    let old = observed.map_or(&none, |observed| &observed.attributes);
    let set = attributes::of_load_balancer_to_set(desired, old);
    let field =
        |(key, value): (&String, &String)| FieldChange::new(key.clone(), old.get(key).cloned(), Some(value.clone()));
    let fields = set.iter().map(field).collect();
    let change = || Change::SetAttributes(load_balancer.clone(), set.clone());
    (!set.is_empty()).then(|| step(Verb::Update, SUBJECT, name, fields, change()))
}

/// Step that removes the mark of the common annotation, after the attributes of the target groups are reset.
fn mark_step(inputs: &Inputs<'_>, observed: Option<&Observed>) -> Option<Step<AnyChange>> {
    let observed = observed.filter(|observed| observed.tags.contains_key(attributes::PROXY_MARK))?;
    if attributes::has_common_proxy_protocol(inputs) {
        return None;
    }
    let key = attributes::PROXY_MARK.to_owned();
    let field = FieldChange::new(format!("tag {key}"), observed.tags.get(&key).cloned(), None);
    let change = Change::RemoveTags(observed.load_balancer.arn.clone(), vec![key]);
    Some(step(Verb::Update, SUBJECT, inputs.name, vec![field], change))
}

fn errors(observed: &Observed) -> Option<PlanError> {
    let elbv2::LoadBalancer { name, state, .. } = &observed.load_balancer;
    let subnets = observed
        .subnets
        .is_empty()
        .then(|| Error::new(ErrorKind::NotFound, "find subnets", format!("did not find ensured subnets on LB {name}")));
    let failed = (state.code == "failed").then(|| {
        let message = format!(
            "load balancer {name} has failed: {:?}; fix: remove the cause and delete the load balancer in AWS, then a new one is created",
            state.reason
        );
        Error::new(ErrorKind::Unavailable, "create load balancer", message)
    });
    failed.or(subnets).map(|error| error.to_plan_error(SUBJECT))
}

// ---- ports

impl<'a> Ports<'a> {
    fn new(
        inputs: &'a Inputs<'a>,
        observed: Option<&'a Observed>,
        health_check: GroupHealthCheck,
        subnets: &[Subnet],
    ) -> Ports<'a> {
        let none = Tags::new();
        let tags = observed.map_or(&none, |observed| &observed.tags);
        let attributes = attributes::of_groups(inputs, tags);
        let of_subnets = || subnets.first().map(|subnet| subnet.vpc_id.as_str());
        let vpc_id = observed.map(|observed| observed.load_balancer.vpc_id.as_str()).or_else(of_subnets);
        let vpc_id = vpc_id.filter(|id| !id.is_empty()).unwrap_or(&inputs.identity.vpc_id).to_owned();
        let load_balancer = match observed {
            Some(observed) => Ref::Arn(observed.load_balancer.arn.clone()),
            None => Ref::Name(inputs.name.to_owned()),
        };
        Ports { inputs, load_balancer, vpc_id, tls: Tls::read(inputs.values), health_check, attributes, observed }
    }

    fn plan(&self, mapping: &Mapping) -> Port<'a> {
        let new = target_groups::desired(self.inputs, mapping, &self.health_check, &self.vpc_id);
        let targets = target_groups::targets(self.inputs, mapping);
        let listener = self.observed.and_then(|observed| listeners::of_port(&observed.listeners, mapping));
        let group = listener.and_then(|listener| self.group(listeners::target_group(listener)));
        match group.filter(|observed| target_groups::stays(&observed.group, &new)) {
            Some(observed) => {
                let group = Ref::Arn(observed.group.arn.clone());
                let attributes = attributes::of_group_to_set(&self.attributes, &observed.attributes);
                let mut steps = self.listener(mapping, listener, group.clone());
                steps.extend(target_groups::changes(observed, &new, &targets, attributes));
                Port { steps, listener, group }
            }
            None => {
                let attributes = attributes::of_new_group(&self.attributes);
                let (group, mut steps) = target_groups::creation(new, &targets, attributes);
                steps.extend(self.listener(mapping, listener, group.clone()));
                Port { steps, listener, group }
            }
        }
    }

    fn group(&self, arn: &str) -> Option<&'a target_groups::Observed> {
        self.observed?.target_groups.iter().find(|observed| observed.group.arn == arn)
    }

    fn listener(&self, mapping: &Mapping, listener: Option<&Listener>, group: Ref) -> Vec<Step<AnyChange>> {
        let new = listeners::desired(mapping, &self.tls, group);
        match listener {
            Some(listener) => listeners::change(listener, mapping, new).into_iter().collect(),
            None => vec![listeners::creation(&self.load_balancer, mapping, new, self.inputs.tags())],
        }
    }
}

// ---- what is not used any more

struct Unused {
    listeners: Vec<Step<AnyChange>>,
    groups: Vec<Step<AnyChange>>,
}

/// Steps that delete the listeners of other ports, and the target groups that no port has: those of this load balancer, and those with
/// our tags that no load balancer uses, because an earlier deletion was rejected or interrupted.
fn unused(ports: &Ports<'_>, planned: &[Port<'_>]) -> Unused {
    let Some(observed) = ports.observed else { return Unused { listeners: Vec::new(), groups: Vec::new() } };
    let is_kept = |listener: &&Listener| planned.iter().any(|port| port.listener == Some(*listener));
    let listeners = observed.listeners.iter().filter(|listener| !is_kept(listener)).map(listeners::deletion);
    let prefix = names::target_group_prefix(ports.inputs.key);
    let is_used = |group: &TargetGroup| {
        planned.iter().any(|port| match &port.group {
            Ref::Arn(arn) => *arn == group.arn,
            Ref::Name(name) => *name == group.name,
        })
    };
    let attached = observed.target_groups.iter().map(|observed| &observed.group);
    // A group that a user has attached, or that a user's load balancer has as well, is not ours to delete.
    let attached = attached.filter(|group| group.name.starts_with(&prefix) && group.load_balancer_arns.len() <= 1);
    let left = ports.inputs.context.leftover_target_groups.iter();
    let groups = target_groups::deletion(attached.chain(left).filter(|group| !is_used(group)));
    Unused { listeners: listeners.collect(), groups }
}
