//! Target groups: one for each port, named after the settings that cannot be changed.

use std::collections::BTreeSet;

use bowline_core::{FieldChange, FieldChanges, Step, Verb};

use super::super::{Inputs, names};
use super::mappings::Mapping;
use super::{Change, Ref, step};
use crate::api::elbv2::{
    Attributes, GroupHealthCheck, HealthCheckChange, NewTargetGroup, TARGETS_BATCH, Target, TargetGroup, TargetHealth,
};

/// Subject of steps.
pub(super) const SUBJECT: &str = "target group";

/// Reason of a target that does not get new connections any more.
const DEREGISTERING: &str = "Target.DeregistrationInProgress";

/// A target group with its targets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Observed {
    pub(crate) group: TargetGroup,
    pub(crate) targets: BTreeSet<Target>,
    /// Attributes, if the Service asks for some.
    pub(crate) attributes: Attributes,
}

/// Returns the targets that get new connections.
pub(super) fn registered(health: Vec<TargetHealth>) -> BTreeSet<Target> {
    let active = health.into_iter().filter(|target| target.health.reason != DEREGISTERING);
    active.map(|target| target.target).collect()
}

/// Returns the desired target group of a port. The name does not contain the UID of the Service, so a load balancer of an earlier Service
/// of the same name may have the group; then the name contains the UID as well.
pub(super) fn desired(
    inputs: &Inputs<'_>,
    mapping: &Mapping,
    health_check: &GroupHealthCheck,
    vpc_id: &str,
) -> NewTargetGroup {
    let mut parts = names::TargetGroupParts {
        cluster_id: inputs.identity.cluster.id(),
        port: mapping.port,
        node_port: mapping.node_port,
        protocol: mapping.traffic_protocol,
        health_check_protocol: &health_check.protocol,
        health_check_interval: health_check.interval,
        uid: "",
    };
    if inputs.context.taken_target_groups.contains(&names::target_group(inputs.key, parts)) {
        parts.uid = &inputs.key.uid;
    }
    NewTargetGroup {
        name: names::target_group(inputs.key, parts),
        vpc_id: vpc_id.to_owned(),
        protocol: mapping.traffic_protocol.to_owned(),
        port: mapping.node_port,
        health_check: health_check.clone(),
        tags: inputs.tags(),
    }
}

/// Returns the desired targets of a port.
pub(super) fn targets(inputs: &Inputs<'_>, mapping: &Mapping) -> BTreeSet<Target> {
    inputs.context.instances.keys().map(|id| Target { id: id.clone(), port: mapping.node_port }).collect()
}

/// Returns whether the group of a listener stays: it differs at most in what can be changed. A group that has the desired name, which
/// another one therefore cannot get, stays with another kind of health check as well.
pub(super) fn stays(observed: &TargetGroup, desired: &NewTargetGroup) -> bool {
    let check = &desired.health_check;
    let has_check =
        observed.health_check_protocol == check.protocol && observed.health_check_interval == check.interval;
    let has_traffic = observed.protocol == desired.protocol && observed.port == desired.port;
    has_traffic && (has_check || observed.name == desired.name)
}

// ---- steps

/// Steps that create a group, or find the one that an interrupted attempt has created, and fill it.
pub(super) fn creation(
    new: NewTargetGroup,
    targets: &BTreeSet<Target>,
    attributes: Attributes,
) -> (Ref, Vec<Step<super::super::Change>>) {
    let (name, reference) = (new.name.clone(), Ref::Name(new.name.clone()));
    let mut fields = FieldChanges::default();
    fields.set("protocol", &new.protocol);
    fields.set("port", &new.port);
    fields.set("health check", &described(&new.health_check));
    let mut create = step(Verb::Create, SUBJECT, &name, fields.into_vec(), Change::CreateTargetGroup(new));
    // AWS rejects a second group of the same name.
    create.repeatable = true;
    let set = attribute_step(&name, &reference, attributes, &Attributes::new());
    let register = registration(&name, &reference, targets.iter());
    (reference, std::iter::once(create).chain(set).chain(register).collect())
}

/// Steps that bring an existing group to the desired state. Targets are removed first, because their number is limited.
pub(super) fn changes(
    observed: &Observed,
    new: &NewTargetGroup,
    targets: &BTreeSet<Target>,
    attributes: Attributes,
) -> Vec<Step<super::super::Change>> {
    let (name, reference) = (&observed.group.name, Ref::Arn(observed.group.arn.clone()));
    let removed = deregistration(name, &observed.group.arn, observed.targets.difference(targets));
    let added = registration(name, &reference, targets.difference(&observed.targets));
    let check = health_check_step(&observed.group, &new.health_check);
    let set = attribute_step(name, &reference, attributes, &observed.attributes);
    removed.into_iter().chain(added).chain(check).chain(set).collect()
}

fn registration<'a>(
    name: &str,
    group: &Ref,
    targets: impl Iterator<Item = &'a Target>,
) -> Vec<Step<super::super::Change>> {
    let targets: Vec<_> = targets.cloned().collect();
    let register = |chunk: &[Target]| {
        let added = chunk.iter().map(|target| FieldChange::new("target", None, Some(target.id.clone())));
        step(Verb::Update, SUBJECT, name, added.collect(), Change::Register(group.clone(), chunk.to_vec()))
    };
    targets.chunks(TARGETS_BATCH).map(register).collect()
}

fn deregistration<'a>(
    name: &str,
    arn: &str,
    targets: impl Iterator<Item = &'a Target>,
) -> Vec<Step<super::super::Change>> {
    let targets: Vec<_> = targets.cloned().collect();
    let deregister = |chunk: &[Target]| {
        let removed = chunk.iter().map(|target| FieldChange::new("target", Some(target.id.clone()), None));
        step(Verb::Update, SUBJECT, name, removed.collect(), Change::Deregister(arn.to_owned(), chunk.to_vec()))
    };
    targets.chunks(TARGETS_BATCH).map(deregister).collect()
}

fn health_check_step(observed: &TargetGroup, desired: &GroupHealthCheck) -> Option<Step<super::super::Change>> {
    let differing = |old: &str, new: &str| (old != new).then(|| new.to_owned());
    let number = |old: i32, new: i32| (old != new).then_some(new);
    let change = HealthCheckChange {
        protocol: differing(&observed.health_check_protocol, &desired.protocol),
        port: differing(&observed.health_check_port, &desired.port),
        path: desired.path.as_ref().and_then(|path| differing(&observed.health_check_path, path)),
        interval: number(observed.health_check_interval, desired.interval),
        healthy_threshold: number(observed.healthy_threshold, desired.healthy_threshold),
        unhealthy_threshold: number(observed.unhealthy_threshold, desired.unhealthy_threshold),
    };
    if change == HealthCheckChange::default() {
        return None;
    }
    let mut fields = FieldChanges::default();
    fields.compare("health check", &described(&reported(observed, desired)), &described(desired));
    Some(step(
        Verb::Update,
        SUBJECT,
        &observed.name,
        fields.into_vec(),
        Change::ModifyTargetGroup(observed.arn.clone(), change),
    ))
}

/// Returns the health check of a group. A TCP check has no path, whatever AWS reports.
fn reported(observed: &TargetGroup, desired: &GroupHealthCheck) -> GroupHealthCheck {
    GroupHealthCheck {
        protocol: observed.health_check_protocol.clone(),
        port: observed.health_check_port.clone(),
        path: desired.path.is_some().then(|| observed.health_check_path.clone()),
        interval: observed.health_check_interval,
        healthy_threshold: observed.healthy_threshold,
        unhealthy_threshold: observed.unhealthy_threshold,
    }
}

fn described(check: &GroupHealthCheck) -> String {
    let GroupHealthCheck { protocol, port, path, interval, healthy_threshold, unhealthy_threshold } = check;
    let path = path.as_deref().unwrap_or_default();
    format!("{protocol} {port}{path} every {interval} s, thresholds {healthy_threshold} and {unhealthy_threshold}")
}

fn attribute_step(
    name: &str,
    group: &Ref,
    attributes: Attributes,
    observed: &Attributes,
) -> Option<Step<super::super::Change>> {
    let field = |(key, value): (&String, &String)| {
        FieldChange::new(key.clone(), observed.get(key).cloned(), Some(value.clone()))
    };
    let fields = attributes.iter().map(field).collect();
    let change = || Change::SetTargetGroupAttributes(group.clone(), attributes.clone());
    (!attributes.is_empty()).then(|| step(Verb::Update, SUBJECT, name, fields, change()))
}

/// Steps that delete groups.
pub(super) fn deletion<'a>(groups: impl IntoIterator<Item = &'a TargetGroup>) -> Vec<Step<super::super::Change>> {
    let delete = |group: &TargetGroup| {
        let change = Change::DeleteTargetGroup { arn: group.arn.clone(), name: group.name.clone() };
        step(Verb::Delete, SUBJECT, &group.name, Vec::new(), change)
    };
    groups.into_iter().map(delete).collect()
}
