//! Applies steps of a Network Load Balancer, with one write call each.

use std::time::Duration;

use bowline_cloud::{Applied, Error, ErrorKind, Result};
use bowline_core::{Operation, PollInterval};

use super::super::State;
use super::super::created::Kind;
use super::super::group_steps::GroupRef;
use super::{Change, NewListener, Ref, SUBJECT, target_groups};
use crate::Aws;
use crate::api::Tags;
use crate::api::elbv2::{ListenerSettings, NewLoadBalancer, NewTargetGroup, Target, TargetGroup};

/// Interval at which the deletion of a target group is repeated after its listener is gone, and the time after which that fails.
const IN_USE_POLL: PollInterval = PollInterval::every(Duration::from_secs(5));
const IN_USE_DEADLINE: Duration = Duration::from_secs(120);

/// Codes of AWS.
const INVALID_TARGET: &str = "InvalidTarget";
const GONE: [&str; 3] = ["LoadBalancerNotFound", "ListenerNotFound", "TargetGroupNotFound"];

impl Aws {
    pub(in super::super) async fn apply_network(&self, name: &str, change: &Change) -> Result<Applied<State>> {
        let outcome = match change {
            Change::Create(new, groups) => self.create_network(new, groups).await,
            Change::SetSecurityGroups(arn, groups) => self.set_security_groups(arn, groups).await,
            Change::SetAttributes(load_balancer, attributes) => {
                let arn = self.load_balancer_arn(load_balancer).await?;
                let outcome = self.elbv2.modify_attributes(&arn, attributes).await;
                during(outcome, "Unable to update load balancer attributes during attribute sync")
            }
            Change::AddTags(arn, tags) => self.elbv2.add_tags(std::slice::from_ref(arn), tags).await,
            Change::RemoveTags(arn, keys) => self.elbv2.remove_tags(std::slice::from_ref(arn), keys).await,
            Change::Delete(arn) => self.delete_network(name, arn).await,
            Change::CreateListener(load_balancer, new, tags) => self.create_listener(load_balancer, new, tags).await,
            Change::ModifyListener(arn, new) => {
                let outcome = self.elbv2.modify_listener(arn, &self.settings(new).await?).await;
                during(outcome, "error updating load balancer listener")
            }
            Change::DeleteListener(arn) => {
                during(unless_gone(self.elbv2.delete_listener(arn).await), "error deleting load balancer listener")
            }
            other => self.apply_target_group(name, other).await,
        };
        outcome.map_err(|error| self.observed_anew(name, change, error))?;
        Ok(Applied::Done)
    }

    async fn apply_target_group(&self, load_balancer: &str, change: &Change) -> Result<()> {
        match change {
            Change::CreateTargetGroup(new) => self.create_target_group(load_balancer, new).await,
            Change::ModifyTargetGroup(arn, change) => {
                let outcome = self.elbv2.modify_target_group(arn, change).await;
                during(outcome, "error modifying target group health check")
            }
            Change::SetTargetGroupAttributes(group, attributes) => {
                let arn = self.target_group_arn(group).await?;
                let outcome = self.elbv2.modify_target_group_attributes(&arn, attributes).await;
                during(outcome, "error reconciling target group attributes")
            }
            Change::Register(group, targets) => self.register_targets(group, targets).await,
            Change::Deregister(arn, targets) => {
                let outcome = unless_gone(self.elbv2.deregister_targets(arn, targets).await);
                during(outcome, "error trying to deregister targets in target group")
            }
            Change::DeleteTargetGroup { arn, name } => self.delete_target_group(arn, name).await,
            // The others are changes of the load balancer itself.
            _ => Ok(()),
        }
    }

    // ---- load balancer

    async fn create_network(&self, new: &NewLoadBalancer, groups: &[GroupRef]) -> Result<()> {
        let security_groups = self.group_ids(groups).await?;
        match self.elbv2.create(&NewLoadBalancer { security_groups, ..new.clone() }).await {
            Ok(created) => {
                let created = created.into_iter();
                created.for_each(|one| self.created.insert(Kind::LoadBalancer, &new.name, &one.arn));
                Ok(())
            }
            // An earlier attempt has created it with other settings. The next observation shows it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(conflict(&error)),
            Err(error) => Err(error.during("error creating load balancer")),
        }
    }

    async fn set_security_groups(&self, arn: &str, groups: &[GroupRef]) -> Result<()> {
        let groups = self.group_ids(groups).await?;
        during(self.elbv2.set_security_groups(arn, &groups).await, "error setting load balancer security groups")
    }

    async fn delete_network(&self, name: &str, arn: &str) -> Result<()> {
        self.created.remove(Kind::LoadBalancer, name);
        during(unless_gone(self.elbv2.delete(arn).await), format!("error deleting load balancer {name:?}"))
    }

    async fn load_balancer_arn(&self, load_balancer: &Ref) -> Result<String> {
        let name = match load_balancer {
            Ref::Arn(arn) => return Ok(arn.clone()),
            Ref::Name(name) => name,
        };
        if let Some(arn) = self.created.get(Kind::LoadBalancer, name) {
            return Ok(arn);
        }
        let found = or_none(self.elbv2.load_balancers_by_name(std::slice::from_ref(name)).await)?;
        found.map(|one| one.arn).ok_or_else(|| not_shown("load balancer", name))
    }

    // ---- listeners

    async fn create_listener(&self, load_balancer: &Ref, new: &NewListener, tags: &Tags) -> Result<()> {
        let arn = self.load_balancer_arn(load_balancer).await?;
        match self.elbv2.create_listener(&arn, &self.settings(new).await?, tags).await {
            // An earlier attempt has created it. The next observation compares its settings.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            outcome => during(outcome, "error creating load balancer listener"),
        }
    }

    async fn settings(&self, new: &NewListener) -> Result<ListenerSettings> {
        let target_group_arn = self.target_group_arn(&new.group).await?;
        Ok(ListenerSettings { target_group_arn, ..new.settings.clone() })
    }

    // ---- target groups

    /// Creates a target group. AWS returns the existing one if it has the same settings. One with another health check is used as well:
    /// once a listener has it, the next plan changes it. One that another load balancer has is left alone: the next plan uses another name.
    async fn create_target_group(&self, load_balancer: &str, new: &NewTargetGroup) -> Result<()> {
        let group = match self.elbv2.create_target_group(new).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let found = self.find_target_group(&new.name).await?;
                found.filter(|found| is_usable(found, new)).ok_or_else(|| taken(new))?
            }
            Ok(Some(group)) => group,
            Ok(None) => return Ok(()),
            Err(error) => return Err(error.during("error creating load balancer target group")),
        };
        if !group.load_balancer_arns.is_empty() {
            let own = self.load_balancer_arn(&Ref::Name(load_balancer.to_owned())).await?;
            if !group.load_balancer_arns.contains(&own) {
                return Err(conflict(&taken(new)));
            }
        }
        self.created.insert(Kind::TargetGroup, &new.name, &group.arn);
        Ok(())
    }

    async fn register_targets(&self, group: &Ref, targets: &[Target]) -> Result<()> {
        let arn = self.target_group_arn(group).await?;
        let outcome = self.elbv2.register_targets(&arn, targets).await;
        if outcome.as_ref().is_err_and(|error| error.code() == Some(INVALID_TARGET)) {
            // One of the instances does not exist any more. The next observation reads them again.
            self.instance_cache.clear();
        }
        during(outcome, "error trying to register targets in target group")
    }

    /// Deletes a target group. While the listener that has used it is being changed, the step is repeated.
    async fn delete_target_group(&self, arn: &str, name: &str) -> Result<()> {
        self.created.remove(Kind::TargetGroup, name);
        match self.elbv2.delete_target_group(arn).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(Error::pending(in_use(arn, name), target_groups::SUBJECT))
            }
            outcome => during(unless_gone(outcome), "error deleting old target group"),
        }
    }

    async fn target_group_arn(&self, group: &Ref) -> Result<String> {
        let name = match group {
            Ref::Arn(arn) => return Ok(arn.clone()),
            Ref::Name(name) => name,
        };
        if let Some(arn) = self.created.get(Kind::TargetGroup, name) {
            return Ok(arn);
        }
        let found = self.find_target_group(name).await?;
        found.map(|group| group.arn).ok_or_else(|| not_shown(target_groups::SUBJECT, name))
    }

    async fn find_target_group(&self, name: &str) -> Result<Option<TargetGroup>> {
        or_none(self.elbv2.target_groups_by_name(&[name.to_owned()]).await)
    }

    /// Replaces the error of a step whose resource was deleted in the meantime: the plan is made again.
    fn observed_anew(&self, load_balancer: &str, change: &Change, error: Error) -> Error {
        if !error.code().is_some_and(|code| GONE.contains(&code)) {
            return error;
        }
        self.created.remove(Kind::LoadBalancer, load_balancer);
        if let Change::CreateListener(_, NewListener { group: Ref::Name(name), .. }, _)
        | Change::ModifyListener(_, NewListener { group: Ref::Name(name), .. })
        | Change::Register(Ref::Name(name), _)
        | Change::SetTargetGroupAttributes(Ref::Name(name), _) = change
        {
            self.created.remove(Kind::TargetGroup, name);
        }
        conflict(&error)
    }
}

fn during<T>(outcome: Result<T>, operation: impl Into<String>) -> Result<T> {
    outcome.map_err(|error| error.during(operation))
}

/// Treats a resource that is already gone as deleted.
fn unless_gone(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.code().is_some_and(|code| GONE.contains(&code)) => Ok(()),
        outcome => outcome,
    }
}

/// Returns the first item that a read before a write has found.
fn or_none<T>(found: Result<Vec<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.is_not_found() => Ok(None),
        found => Ok(found.map_err(Error::not_executed)?.into_iter().next()),
    }
}

/// Returns whether a group of the desired name is what an interrupted attempt of ours has left.
fn is_usable(found: &TargetGroup, new: &NewTargetGroup) -> bool {
    found.protocol == new.protocol && found.port == new.port && found.vpc_id == new.vpc_id
}

fn taken(new: &NewTargetGroup) -> Error {
    let message = format!(
        "target group {} exists with other settings; fix: delete it, unless a listener of another load balancer uses it",
        new.name
    );
    Error::new(ErrorKind::AlreadyExists, "error creating load balancer target group", message)
}

fn not_shown(kind: &str, name: &str) -> Error {
    Error::new(ErrorKind::InProgress, format!("find {kind}"), format!("{kind} {name} is not shown yet"))
}

/// Error for a resource that has changed since it was observed.
fn conflict(error: &Error) -> Error {
    Error::new(ErrorKind::Conflict, error.operation(), error.message())
}

fn in_use(arn: &str, name: &str) -> Operation {
    Operation {
        id: arn.to_owned(),
        description: format!("target group {name} of the {SUBJECT} is still in use"),
        advice: "find out which listener uses it, and change that".to_owned(),
        poll_interval: IN_USE_POLL,
        deadline: IN_USE_DEADLINE,
        observable: false,
    }
}
