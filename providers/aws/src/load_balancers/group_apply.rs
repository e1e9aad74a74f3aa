//! Applies steps of security groups, with one write call each. `rule_calls` makes those for rules.

use std::time::Duration;

use bowline_cloud::{Applied, Error, ErrorKind, Result};
use bowline_core::{Operation, PollInterval};

use super::created::Kind;
use super::group_steps::{GROUP, GroupChange, GroupRef, Purpose};
use super::groups::all_from;
use super::{State, network};
use crate::Aws;
use crate::api::Filter;
use crate::api::ec2::{NewSecurityGroup, SecurityGroup};

/// Interval at which the deletion of a group that is still in use is repeated, and the time after which that fails.
const IN_USE_POLL: PollInterval = PollInterval::every(Duration::from_secs(5));
const IN_USE_DEADLINE: Duration = Duration::from_secs(600);

impl Aws {
    /// Returns the ID of a group.
    pub(super) async fn group_id(&self, group: &GroupRef) -> Result<String> {
        let name = match group {
            GroupRef::Id(id) => return Ok(id.clone()),
            GroupRef::Name(name) => name,
        };
        if let Some(id) = self.created.get(Kind::SecurityGroup, name) {
            return Ok(id);
        }
        self.find_group(name).await.map_err(Error::not_executed)?.map(|group| group.id).ok_or_else(|| {
            let message = format!("security group {name} is not shown yet");
            Error::new(ErrorKind::InProgress, "find security group", message)
        })
    }

    /// Returns the IDs of groups, in their order.
    pub(super) async fn group_ids(&self, groups: &[GroupRef]) -> Result<Vec<String>> {
        let mut ids = Vec::with_capacity(groups.len());
        for group in groups {
            ids.push(self.group_id(group).await?);
        }
        Ok(ids)
    }

    async fn find_group(&self, name: &str) -> Result<Option<SecurityGroup>> {
        let vpc = &self.identity()?.vpc_id;
        let filters = [Filter::new("group-name", [name]), Filter::new("vpc-id", [vpc])];
        Ok(self.ec2.security_groups(&filters).await?.into_iter().next())
    }

    pub(super) async fn apply_group(
        &self,
        load_balancer: &str,
        change: &GroupChange,
        purpose: Purpose,
    ) -> Result<Applied<State>> {
        let explained = |group: &str, outcome: Result<()>| outcome.map_err(|error| purpose.explain(group, error));
        match change {
            GroupChange::Create(new) => self.create_group(new).await,
            GroupChange::Tag(id, tags) => self.ec2.create_tags(std::slice::from_ref(id), tags).await,
            GroupChange::Authorize(group, rules) => {
                let id = self.group_id(group).await?;
                explained(&id, self.authorize(&id, rules).await)
            }
            GroupChange::AuthorizeAllFrom(group, source) => {
                self.authorize(group, &[all_from(&self.group_id(source).await?)]).await
            }
            GroupChange::Revoke(group, rules) => explained(group, self.revoke(group, rules).await),
            GroupChange::Delete(id) => explained(id, self.delete_group(id, load_balancer).await),
        }?;
        Ok(Applied::Done)
    }

    async fn create_group(&self, new: &NewSecurityGroup) -> Result<()> {
        match self.ec2.create_security_group(new).await {
            Ok(id) => {
                self.created.insert(Kind::SecurityGroup, &new.name, &id);
                Ok(())
            }
            // An earlier attempt, or another manager, has created it. The next observation repairs its tags.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) if new.description == network::GROUP_DESCRIPTION => {
                Err(error.during("error ensuring NLB security group: unable to create security group for NLB"))
            }
            Err(error) => Err(error.during("error creating security group")),
        }
    }

    /// Deletes a group. While the network interfaces of a deleted load balancer still use it, the step is repeated.
    async fn delete_group(&self, id: &str, load_balancer: &str) -> Result<()> {
        match self.ec2.delete_security_group(id).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.kind() == ErrorKind::Conflict => Err(Error::pending(in_use(id, load_balancer), GROUP)),
            outcome => outcome.map_err(|error| {
                error.during(format!("could not delete security group {id} for Load Balancer {load_balancer:?}"))
            }),
        }
    }
}

fn in_use(id: &str, load_balancer: &str) -> Operation {
    Operation {
        id: id.to_owned(),
        description: format!("security group {id} of load balancer {load_balancer} is still in use"),
        advice: "find out which network interface or which rule of another group uses it, and remove that".to_owned(),
        poll_interval: IN_USE_POLL,
        deadline: IN_USE_DEADLINE,
        observable: false,
    }
}
