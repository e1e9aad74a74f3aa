//! A model of AWS: applies the steps of a plan to an observed state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_core::Plan;

use super::super::super::group_steps::{GroupChange, GroupRef};
use super::super::super::groups::Groups;
use super::super::super::{Change as AnyChange, Context};
use super::super::{Change, NewListener, Observed, Ref, target_groups};
use super::ARN;
use crate::api::ec2::SecurityGroup;
use crate::api::elbv2::{
    Action, Certificate, HealthCheckChange, Listener, ListenerSettings, LoadBalancer, NewTargetGroup, State,
    TargetGroup, Zone,
};

/// Policy that AWS gives to a TLS listener for which none was requested.
pub(in super::super) const DEFAULT_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// Applies a plan.
pub(super) fn apply(context: &mut Context, observed: Option<Observed>, plan: &Plan<AnyChange>) -> Observed {
    let mut observed = observed.unwrap_or_default();
    for step in &plan.steps {
        match &step.payload {
            AnyChange::Network(change) => apply_one(context, &mut observed, change),
            AnyChange::Group(change, _) => apply_group(context, change),
            AnyChange::Classic(_) => unreachable!("not a change of a Network Load Balancer"),
        }
    }
    attach(&mut observed);
    let is_deleted = |group: &TargetGroup| !observed.target_groups.iter().any(|it| it.group.arn == group.arn);
    context.leftover_target_groups.retain(|group| !is_deleted(group) && group.load_balancer_arns.is_empty());
    observed
}

/// Sets the load balancer of each group that a listener uses; the others are not observed.
fn attach(observed: &mut Observed) {
    let used: Vec<String> =
        observed.listeners.iter().flat_map(|listener| &listener.default_actions).map(arn_of).collect();
    observed.target_groups.retain(|it| used.contains(&it.group.arn));
    for it in &mut observed.target_groups {
        it.group.load_balancer_arns = vec![ARN.to_owned()];
    }
}

fn arn_of(action: &Action) -> String {
    action.target_group_arn.clone()
}

fn apply_one(context: &mut Context, observed: &mut Observed, change: &Change) {
    match change {
        Change::Create(new, groups) => {
            let zone = |id: &String| Zone { subnet_id: id.clone(), ..Zone::default() };
            let ids: Vec<String> = new.subnets.iter().map(|subnet| subnet.subnet_id.clone()).collect();
            observed.load_balancer = LoadBalancer {
                arn: ARN.to_owned(),
                name: new.name.clone(),
                dns_name: "web.elb.eu-west-1.amazonaws.com".to_owned(),
                scheme: if new.internal { "internal" } else { "internet-facing" }.to_owned(),
                vpc_id: "vpc-1".to_owned(),
                state: State { code: "active".to_owned(), reason: String::new() },
                kind: "network".to_owned(),
                zones: ids.iter().map(zone).collect(),
                security_groups: group_ids(groups),
            };
            observed.tags = new.tags.clone();
            let network = context.network.clone();
            observed.subnets = network.subnets.iter().filter(|subnet| ids.contains(&subnet.id)).cloned().collect();
        }
        Change::SetSecurityGroups(_, groups) => observed.load_balancer.security_groups = group_ids(groups),
        Change::SetAttributes(_, attributes) => observed.attributes.extend(attributes.clone()),
        Change::AddTags(_, tags) => observed.tags.extend(tags.clone()),
        Change::RemoveTags(_, keys) => observed.tags.retain(|key, _| !keys.contains(key)),
        Change::CreateListener(_, new, _) => {
            assert!(!observed.listeners.iter().any(|it| it.port == new.settings.port), "DuplicateListener");
            let arn = format!("arn:listener/{}", new.settings.port);
            observed.listeners.push(listener(arn, new));
        }
        Change::ModifyListener(arn, new) => {
            let old = observed.listeners.iter_mut().find(|it| it.arn == *arn).unwrap();
            let policy = old.ssl_policy.clone();
            *old = listener(arn.clone(), new);
            if new.settings.ssl_policy.is_none() && !policy.is_empty() && new.settings.protocol == "TLS" {
                old.ssl_policy = policy;
            }
        }
        Change::DeleteListener(arn) => observed.listeners.retain(|it| it.arn != *arn),
        Change::CreateTargetGroup(new) => {
            let attributes = [("preserve_client_ip.enabled", "true"), ("proxy_protocol_v2.enabled", "false")];
            let attributes = super::annotated(&attributes);
            let group = target_groups::Observed { group: target_group(new), attributes, ..Default::default() };
            observed.target_groups.push(group);
        }
        Change::ModifyTargetGroup(arn, change) => modify(&mut group_of(observed, &Ref::Arn(arn.clone())).group, change),
        Change::SetTargetGroupAttributes(group, new) => group_of(observed, group).attributes.extend(new.clone()),
        Change::Register(group, targets) => group_of(observed, group).targets.extend(targets.iter().cloned()),
        Change::Deregister(arn, targets) => {
            group_of(observed, &Ref::Arn(arn.clone())).targets.retain(|it| !targets.contains(it));
        }
        Change::DeleteTargetGroup { arn, .. } => {
            let is_used = |it: &Listener| it.default_actions.iter().any(|action| action.target_group_arn == *arn);
            assert!(!observed.listeners.iter().any(is_used), "ResourceInUse");
            observed.target_groups.retain(|it| it.group.arn != *arn);
        }
        Change::Delete(_) => *observed = Observed::default(),
    }
}

fn apply_group(context: &mut Context, change: &GroupChange) {
    let mut groups: BTreeMap<String, SecurityGroup> = (*context.groups.0).clone();
    match change {
        GroupChange::Create(new) => {
            let id = format!("id:{}", new.name);
            let (name, vpc_id, tags) = (new.name.clone(), new.vpc_id.clone(), new.tags.clone());
            groups.insert(id.clone(), SecurityGroup { id, name, vpc_id, rules: Vec::new(), tags });
        }
        GroupChange::Tag(id, tags) => groups.get_mut(id).unwrap().tags.extend(tags.clone()),
        GroupChange::Authorize(group, rules) => {
            groups.get_mut(&group_id(group)).unwrap().rules.extend(rules.iter().cloned());
        }
        GroupChange::Revoke(id, rules) => groups.get_mut(id).unwrap().rules.retain(|rule| !rules.contains(rule)),
        GroupChange::Delete(id) => drop(groups.remove(id)),
        GroupChange::AuthorizeAllFrom(..) => unreachable!("not a change of a Network Load Balancer"),
    }
    context.groups = Groups(Arc::new(groups));
}

fn group_id(group: &GroupRef) -> String {
    match group {
        GroupRef::Id(id) => id.clone(),
        GroupRef::Name(name) => format!("id:{name}"),
    }
}

fn group_ids(groups: &[GroupRef]) -> Vec<String> {
    groups.iter().map(group_id).collect()
}

fn arn(group: &Ref) -> String {
    match group {
        Ref::Arn(arn) => arn.clone(),
        Ref::Name(name) => format!("arn:{name}"),
    }
}

fn group_of<'a>(observed: &'a mut Observed, group: &Ref) -> &'a mut target_groups::Observed {
    let arn = arn(group);
    observed.target_groups.iter_mut().find(|it| it.group.arn == arn).unwrap()
}

pub(super) fn target_group(new: &NewTargetGroup) -> TargetGroup {
    TargetGroup {
        arn: format!("arn:{}", new.name),
        name: new.name.clone(),
        protocol: new.protocol.clone(),
        port: new.port,
        vpc_id: new.vpc_id.clone(),
        health_check_protocol: new.health_check.protocol.clone(),
        health_check_port: new.health_check.port.clone(),
        health_check_path: new.health_check.path.clone().unwrap_or_default(),
        health_check_interval: new.health_check.interval,
        healthy_threshold: new.health_check.healthy_threshold,
        unhealthy_threshold: new.health_check.unhealthy_threshold,
        load_balancer_arns: Vec::new(),
    }
}

fn modify(group: &mut TargetGroup, change: &HealthCheckChange) {
    let HealthCheckChange { protocol, port, path, interval, healthy_threshold, unhealthy_threshold } = change.clone();
    let group_text = [
        (&mut group.health_check_protocol, protocol),
        (&mut group.health_check_port, port),
        (&mut group.health_check_path, path),
    ];
    group_text.into_iter().for_each(|(old, new)| *old = new.unwrap_or_else(|| old.clone()));
    let numbers = [
        (&mut group.health_check_interval, interval),
        (&mut group.healthy_threshold, healthy_threshold),
        (&mut group.unhealthy_threshold, unhealthy_threshold),
    ];
    numbers.into_iter().for_each(|(old, new)| *old = new.unwrap_or(*old));
}

fn listener(listener_arn: String, new: &NewListener) -> Listener {
    let ListenerSettings { port, protocol, certificate, ssl_policy, .. } = new.settings.clone();
    let default = if protocol == "TLS" { DEFAULT_POLICY } else { "" };
    let certificates = certificate.into_iter().map(|certificate_arn| Certificate { certificate_arn }).collect();
    let default_actions = vec![Action { target_group_arn: arn(&new.group) }];
    let ssl_policy = ssl_policy.unwrap_or_else(|| default.to_owned());
    Listener { arn: listener_arn, port, protocol, certificates, ssl_policy, default_actions }
}
