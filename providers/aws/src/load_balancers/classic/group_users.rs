//! Load balancers that have a security group in common.
//!
//! Node groups accept traffic by source group. If several load balancers have the same source group, the rule has to stay until the last
//! of them gives it up. The listing that shows them is read only if a plan may remove such a rule, which needs an annotation or
//! `ElbSecurityGroup`.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::Result;
use bowline_core::DesiredLoadBalancer;
use futures::future::join_all;

use super::super::annotations::Values;
use super::super::groups::{Groups, all_from};
use super::super::targets::instance_ids;
use super::super::{Kind, kind, name_of};
use super::groups::{Named, own, source};
use crate::Aws;
use crate::api::Tags;
use crate::api::ec2::GroupName;
use crate::api::elb::{LoadBalancer, TAGS_BATCH};
use crate::config::Config;
use crate::provider::Identity;

/// Names of the Classic Load Balancers of the cluster, by security group. Only groups that a plan may give up are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct GroupUsers(BTreeMap<String, BTreeSet<String>>);

impl GroupUsers {
    fn new(load_balancers: Vec<LoadBalancer>) -> GroupUsers {
        let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for one in load_balancers {
            for group in one.security_groups {
                users.entry(group).or_default().insert(one.name.clone());
            }
        }
        GroupUsers(users)
    }

    /// Returns the groups that a load balancer other than this one has.
    pub(in super::super) fn shared(&self, name: &str) -> BTreeSet<String> {
        let is_shared = |users: &BTreeSet<String>| users.iter().any(|user| user != name);
        self.0.iter().filter(|(_, users)| is_shared(users)).map(|(group, _)| group.clone()).collect()
    }
}

impl Aws {
    /// Finds the load balancers of the cluster that have a group which one of the batch may give up.
    pub(in super::super) async fn group_users(
        &self,
        wanted: &[DesiredLoadBalancer],
        found: &BTreeMap<String, (LoadBalancer, Tags)>,
        groups: &Groups,
        instances: &BTreeMap<String, Vec<GroupName>>,
    ) -> Result<GroupUsers> {
        let identity = self.identity()?;
        let given_up = wanted.iter().flat_map(|desired| {
            let name = name_of(&desired.key);
            let observed = found.get(&name).map(|(one, _)| one);
            given_up(&self.config, identity, (desired, &name), observed, (groups, instances))
        });
        let given_up: BTreeSet<String> = given_up.collect();
        if given_up.is_empty() {
            return Ok(GroupUsers::default());
        }
        let mut users = self.elb.load_balancers().await?;
        users.iter_mut().for_each(|one| one.security_groups.retain(|group| given_up.contains(group)));
        users.retain(|one| !one.security_groups.is_empty());
        let names: Vec<String> = users.iter().map(|one| one.name.clone()).collect();
        let tags = join_all(names.chunks(TAGS_BATCH).map(|names| self.elb.tags(names))).await;
        let tags = tags.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let of_cluster = tags.filter(|(_, tags)| identity.cluster.is_tagged(tags)).map(|(name, _)| name);
        let of_cluster: BTreeSet<String> = of_cluster.collect();
        users.retain(|one| of_cluster.contains(&one.name));
        Ok(GroupUsers::new(users))
    }
}

/// Returns the groups, other than the own one, whose node rules the plan of a Service may remove. The observation has to find out
/// whether other load balancers have them; usually there are none.
pub(super) fn given_up(
    config: &Config,
    identity: &Identity,
    (desired, name): (&DesiredLoadBalancer, &str),
    observed: Option<&LoadBalancer>,
    (groups, instances): (&Groups, &BTreeMap<String, Vec<GroupName>>),
) -> BTreeSet<String> {
    let (values, own) = (Values(&desired.annotations), own(identity, name, groups));
    let is_foreign = |id: &String| own != Some(id.as_str());
    let Some(spec) = &desired.spec else {
        let source = observed.and_then(|it| source(config, identity, values, groups, it));
        return source.into_iter().filter(is_foreign).collect();
    };
    if kind(&desired.annotations) != Some(Kind::Classic) {
        return BTreeSet::new();
    }
    let named = Named::read(config, values);
    let attached = observed.into_iter().flat_map(|it| &it.security_groups);
    let replaced = attached.filter(|id| !named.all().any(|it| it == *id)).cloned();
    let has_surplus = |source: &&String| {
        let (rule, targets) = (all_from(source), instance_ids(spec));
        let of_targets = targets.iter().filter_map(|id| instances.get(id)).flatten();
        let used: BTreeSet<&String> = of_targets.map(|group| &group.group_id).collect();
        let mut surplus = groups.tagged(&identity.cluster).filter(|group| !used.contains(&group.id));
        surplus.any(|group| group.rules.iter().any(|other| other.is_same(&rule)))
    };
    let source = named.all().next().filter(|_| !named.has_own(config)).filter(has_surplus).cloned();
    replaced.chain(source).filter(is_foreign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_shared_if_another_load_balancer_has_it() {
        let one = |name: &str, groups: &[&str]| LoadBalancer {
            name: name.to_owned(),
            security_groups: groups.iter().map(|id| (*id).to_owned()).collect(),
            ..LoadBalancer::default()
        };
        let users = GroupUsers::new(vec![one("a", &["sg-1", "sg-2"]), one("b", &["sg-2"])]);
        assert_eq!(users.shared("a"), ["sg-2".to_owned()].into());
        assert_eq!(users.shared("b"), ["sg-1".to_owned(), "sg-2".to_owned()].into());
        assert_eq!(users.shared("c").len(), 2);
    }
}
