//! Reads the cloud for a batch of Services. Each list is read at most once.
//!
//! ```text
//!  names ──► load balancers of both kinds ──► their tags, in sets of 20 ──┐
//!  targets ──► instances ──► security groups of the cluster and of these ─┼──► State of each Service
//!  VPC ──► subnets, route tables, zones ──────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{DesiredLoadBalancer, LoadBalancerState, LoadBalancerStatus, PlanError};
use futures::future::join_all;

use super::annotations::{self as keys, Values};
use super::groups::Groups;
use super::subnets::{Network, Requested};
use super::targets::instance_ids;
use super::{Context, Kind, State, classic, kind, name_of, names, status};
use crate::Aws;
use crate::api::ec2::{GroupName, SecurityGroup, Subnet};
use crate::api::{Filter, Tags, elb, elbv2};
use crate::cluster_tags::{LEGACY_TAG, SERVICE_TAG};

const SUBJECT: &str = "load balancer";

/// Load balancers of a batch with their tags, by name.
struct Found {
    classic: BTreeMap<String, (elb::LoadBalancer, Tags)>,
    network: BTreeMap<String, (elbv2::LoadBalancer, Tags)>,
    /// Names of load balancers of the same API that are not network ones.
    others: BTreeSet<String>,
}

/// Lists that a batch shares.
struct Shared {
    found: Found,
    instances: BTreeMap<String, Vec<GroupName>>,
    groups: Groups,
    group_users: classic::GroupUsers,
    network: Arc<Network>,
    /// Target groups of the region; read only if there is a Network Load Balancer, or one is to be deleted and does not exist.
    target_groups: Vec<elbv2::TargetGroup>,
}

impl Aws {
    pub(super) async fn observe_all(
        &self,
        wanted: &[DesiredLoadBalancer],
    ) -> Vec<Result<Option<LoadBalancerState<State>>>> {
        match self.read_shared(wanted).await {
            Ok(shared) => join_all(wanted.iter().map(|desired| self.observe_one(desired, &shared))).await,
            Err(error) => wanted.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn read_shared(&self, wanted: &[DesiredLoadBalancer]) -> Result<Shared> {
        let names: Vec<String> = wanted.iter().map(|desired| name_of(&desired.key)).collect();
        let specs = || wanted.iter().filter_map(|desired| desired.spec.as_deref());
        let ids: BTreeSet<String> = specs().flat_map(instance_ids).collect();
        let network = async { if specs().next().is_some() { self.network().await } else { Ok(Arc::default()) } };
        let (found, instances, network) =
            futures::try_join!(self.find_by_name(&names), self.instance_groups(&ids), network)?;
        let is_lost = |(desired, name): (&DesiredLoadBalancer, &String)| {
            desired.spec.is_none() && !found.network.contains_key(name)
        };
        let has_target_groups = !found.network.is_empty() || wanted.iter().zip(&names).any(is_lost);
        // One listing for all load balancers also shows the groups that none of them uses any more.
        let target_groups = async { if has_target_groups { self.elbv2.target_groups().await } else { Ok(Vec::new()) } };
        let groups = self.read_groups(wanted, &found, &instances);
        let (groups, target_groups) = futures::try_join!(groups, target_groups)?;
        let group_users = self.group_users(wanted, &found.classic, &groups, &instances).await?;
        Ok(Shared { found, instances, groups, group_users, network, target_groups })
    }

    // ---- load balancers

    /// Finds load balancers of both kinds.
    async fn find_by_name(&self, names: &[String]) -> Result<Found> {
        let (classic, (network, others)) = futures::try_join!(self.find_classic(names), self.find_network(names))?;
        Ok(Found { classic, network, others })
    }

    /// AWS rejects a request with a name that does not exist: then all are listed, unless it was the only one.
    async fn find_classic(&self, names: &[String]) -> Result<BTreeMap<String, (elb::LoadBalancer, Tags)>> {
        let found = match self.elb.load_balancers_by_name(names).await {
            Err(error) if error.is_not_found() && names.len() == 1 => Vec::new(),
            Err(error) if error.is_not_found() => self.elb.load_balancers().await?,
            found => found?,
        };
        let found: Vec<_> = found.into_iter().filter(|one| names.contains(&one.name)).collect();
        let ids: Vec<String> = found.iter().map(|one| one.name.clone()).collect();
        let tags = join_all(ids.chunks(elb::TAGS_BATCH).map(|ids| self.elb.tags(ids))).await;
        let mut tags = self.or_assumed(merged(tags), &ids)?;
        let tagged = found.into_iter().map(|one| (one.name.clone(), (tags.remove(&one.name).unwrap_or_default(), one)));
        Ok(tagged.map(|(name, (tags, one))| (name, (one, tags))).collect())
    }

    /// Returns the Network Load Balancers, and the names that load balancers of other types have.
    async fn find_network(
        &self,
        names: &[String],
    ) -> Result<(BTreeMap<String, (elbv2::LoadBalancer, Tags)>, BTreeSet<String>)> {
        let found = match self.elbv2.load_balancers_by_name(names).await {
            Err(error) if error.is_not_found() && names.len() == 1 => Vec::new(),
            Err(error) if error.is_not_found() => self.elbv2.load_balancers().await?,
            found => found.map_err(|error| error.during("error describing load balancer"))?,
        };
        let named = found.into_iter().filter(|one| names.contains(&one.name));
        let (found, others): (Vec<_>, Vec<_>) = named.partition(|one| one.kind == "network");
        let arns: Vec<String> = found.iter().map(|one| one.arn.clone()).collect();
        let tags = join_all(arns.chunks(elbv2::BATCH).map(|arns| self.elbv2.tags(arns))).await;
        let mut tags = self.or_assumed(merged(tags), &arns)?;
        let tagged = found.into_iter().map(|one| (one.name.clone(), (tags.remove(&one.arn).unwrap_or_default(), one)));
        let found = tagged.map(|(name, (tags, one))| (name, (one, tags))).collect();
        Ok((found, others.into_iter().map(|one| one.name).collect()))
    }

    /// Returns the tags that were read. If the policy denies that, as that of the Go manager does, the names alone say which load
    /// balancers are ours: each contains the UID of its Service.
    fn or_assumed(&self, tags: Result<BTreeMap<String, Tags>>, ids: &[String]) -> Result<BTreeMap<String, Tags>> {
        match tags {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.untagged.call_once(|| {
                    tracing::warn!(
                        %error,
                        "tags of load balancers cannot be read, so load balancers are recognised by their names alone; \
                         allow elasticloadbalancing:DescribeTags"
                    );
                });
                let assumed = self.identity()?.cluster.of_new(&Tags::new());
                Ok(ids.iter().map(|id| (id.clone(), assumed.clone())).collect())
            }
            tags => tags,
        }
    }

    // ---- security groups

    /// Reads the groups of the cluster, and others that the plans need.
    async fn read_groups(
        &self,
        wanted: &[DesiredLoadBalancer],
        found: &Found,
        instances: &BTreeMap<String, Vec<GroupName>>,
    ) -> Result<Groups> {
        let identity = self.identity()?;
        let tags = Filter::new("tag-key", [identity.cluster.key(), LEGACY_TAG]);
        let tagged = self.ec2.security_groups(&[tags]).await?;
        let tagged = tagged.into_iter().filter(|group| identity.cluster.is_tagged(&group.tags));
        let mut groups = by_id(tagged);
        let lists = join_all(
            self.other_groups(wanted, found, instances, &groups)?
                .iter()
                .map(|filters| self.ec2.security_groups(filters)),
        )
        .await;
        for list in lists {
            groups.extend(by_id(list?));
        }
        Ok(Groups(Arc::new(groups)))
    }

    /// Returns the filters of further reads: groups without a tag that have the name of an own group, the groups of Nodes without a
    /// group of the cluster, and for deletions the groups with rules that name a group of the load balancer.
    fn other_groups(
        &self,
        wanted: &[DesiredLoadBalancer],
        found: &Found,
        instances: &BTreeMap<String, Vec<GroupName>>,
        tagged: &BTreeMap<String, SecurityGroup>,
    ) -> Result<Vec<Vec<Filter>>> {
        let identity = self.identity()?;
        let in_vpc = Filter::new("vpc-id", [&identity.vpc_id]);
        let is_known =
            |name: &String| tagged.values().any(|group| group.name == *name && group.vpc_id == identity.vpc_id);
        let creating = wanted.iter().filter(|desired| desired.spec.is_some());
        let own = creating.filter_map(|desired| self.own_group_name(desired)).filter(|name| !is_known(name));
        let own: BTreeSet<String> = own.collect();
        let untagged =
            instances.values().filter(|groups| !groups.iter().any(|group| tagged.contains_key(&group.group_id)));
        let untagged: BTreeSet<&str> = untagged.flatten().map(|group| group.group_id.as_str()).collect();
        let deleting = wanted.iter().filter(|desired| desired.spec.is_none()).map(|desired| name_of(&desired.key));
        let sources: BTreeSet<String> = deleting
            .flat_map(|name| found.classic.get(&name))
            .flat_map(|(one, _)| one.security_groups.clone())
            .collect();
        let mut filters = Vec::new();
        if !own.is_empty() {
            filters.push(vec![Filter::new("group-name", own), in_vpc]);
        }
        if !untagged.is_empty() {
            filters.push(vec![Filter::new("group-id", untagged)]);
        }
        if !sources.is_empty() {
            filters.push(vec![Filter::new("ip-permission.group-id", sources)]);
        }
        Ok(filters)
    }

    /// Returns the name of the group that is created for a Service; `None` if it gets others.
    pub(super) fn own_group_name(&self, desired: &DesiredLoadBalancer) -> Option<String> {
        let values = Values(&desired.annotations);
        let has_others = values.text(&keys::SECURITY_GROUPS).is_some_and(|text| !keys::items(text).is_empty());
        match kind(&desired.annotations)? {
            _ if has_others => None,
            Kind::Classic if !self.config.elb_security_group.is_empty() => None,
            Kind::Classic => Some(names::classic_group(&name_of(&desired.key))),
            Kind::Network if self.config.nlb_security_group_mode.is_empty() => None,
            Kind::Network => Some(names::network_group(&desired.key)),
        }
    }

    // ---- one Service

    async fn observe_one(
        &self,
        desired: &DesiredLoadBalancer,
        shared: &Shared,
    ) -> Result<Option<LoadBalancerState<State>>> {
        let name = name_of(&desired.key);
        let is_other = kind(&desired.annotations) == Some(Kind::Network) && shared.found.others.contains(&name);
        let mut conflict = is_other.then(|| other_type(&name));
        let mut owned = |tags: &Tags| {
            let other = self.foreign(&name, tags);
            let is_owned = other.is_none();
            conflict = conflict.take().or(other);
            is_owned
        };
        let classic = shared.found.classic.get(&name).filter(|(_, tags)| owned(tags));
        let network = shared.found.network.get(&name).filter(|(_, tags)| owned(tags));
        let is_desired = desired.spec.is_some();
        let classic = async {
            match classic {
                Some((one, tags)) => self.observe_classic(one, tags, is_desired).await.map(Some),
                None => Ok(None),
            }
        };
        let network = async {
            match network {
                Some((one, tags)) => {
                    self.observe_network(one, tags, desired, &shared.target_groups, &shared.network).await.map(Some)
                }
                None => Ok(None),
            }
        };
        let context = self.context(desired, shared);
        let (classic, network, context) = futures::try_join!(classic, network, context)?;
        let context = Context { shared_groups: shared.group_users.shared(&name), ..context };
        let state = State { classic, network, conflict, context };
        if !is_desired && self.plan_removal(desired, &state)?.is_empty() {
            return Ok(None);
        }
        let status = self.status_of(desired, &state);
        Ok(Some(LoadBalancerState::new(status, state)))
    }

    /// Returns the reason why a load balancer of this name is not the Service's: it has no tag of this cluster.
    fn foreign(&self, name: &str, tags: &Tags) -> Option<PlanError> {
        let cluster = &self.identity().ok()?.cluster;
        if cluster.is_tagged(tags) {
            return None;
        }
        let owner =
            cluster.other(tags).map_or_else(|| "no tag of a cluster".to_owned(), |tag| format!("the tag {tag}"));
        let service = tags.get(SERVICE_TAG).map(|service| format!(", for the Service {service}")).unwrap_or_default();
        let message = format!(
            "load balancer {name} has {owner}{service}; to take it over, add the tag {}=owned, otherwise delete it",
            cluster.key()
        );
        Some(Error::new(ErrorKind::AlreadyExists, "find load balancer", message).to_plan_error(SUBJECT))
    }

    async fn context(&self, desired: &DesiredLoadBalancer, shared: &Shared) -> Result<Context> {
        let leftover_target_groups = self.leftover_target_groups(desired, &shared.target_groups).await?;
        let Some(spec) = &desired.spec else {
            return Ok(Context { groups: shared.groups.clone(), leftover_target_groups, ..Context::default() });
        };
        let ids = instance_ids(spec);
        let instances = ids.into_iter().filter_map(|id| shared.instances.get(&id).cloned().map(|groups| (id, groups)));
        Ok(Context {
            groups: shared.groups.clone(),
            network: shared.network.clone(),
            other_subnets: self.other_subnets(desired, &shared.network).await?,
            instances: Arc::new(instances.collect()),
            leftover_target_groups,
            taken_target_groups: taken_target_groups(desired, shared),
            ..Context::default()
        })
    }

    /// Selects the target groups that no load balancer uses, and that have the name and the tags of the Service.
    async fn leftover_target_groups(
        &self,
        desired: &DesiredLoadBalancer,
        all: &[elbv2::TargetGroup],
    ) -> Result<Vec<elbv2::TargetGroup>> {
        let (prefix, cluster) = (names::target_group_prefix(&desired.key), &self.identity()?.cluster);
        let is_unused =
            |group: &&elbv2::TargetGroup| group.load_balancer_arns.is_empty() && group.name.starts_with(&prefix);
        let candidates: Vec<_> = all.iter().filter(is_unused).collect();
        let arns: Vec<String> = candidates.iter().map(|group| group.arn.clone()).collect();
        let tags = match merged(join_all(arns.chunks(elbv2::BATCH).map(|arns| self.elbv2.tags(arns))).await) {
            // Only the tags say whose these groups are, so they stay.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => BTreeMap::new(),
            tags => tags?,
        };
        let service = format!("{}/{}", desired.key.namespace, desired.key.service);
        let is_ours = |tags: &Tags| cluster.is_owned(tags) && tags.get(SERVICE_TAG) == Some(&service);
        let ours = candidates.into_iter().filter(|group| tags.get(&group.arn).is_some_and(is_ours));
        let mut ours: Vec<_> = ours.cloned().collect();
        ours.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(ours)
    }

    /// Reads the requested subnets that are not in the VPC of the cluster.
    async fn other_subnets(&self, desired: &DesiredLoadBalancer, network: &Network) -> Result<Vec<Subnet>> {
        let Some(text) = Values(&desired.annotations).text(&keys::SUBNETS) else { return Ok(Vec::new()) };
        let is_known = |id: &String| network.subnets.iter().any(|subnet| subnet.id == *id);
        let ids: Vec<String> = Requested::parse(text).ids().into_iter().filter(|id| !is_known(id)).collect();
        if ids.is_empty() { Ok(Vec::new()) } else { self.ec2.subnets(&[Filter::new("subnet-id", ids)]).await }
    }

    /// Returns the status: the host name of the load balancer of the requested kind.
    fn status_of(&self, desired: &DesiredLoadBalancer, state: &State) -> LoadBalancerStatus {
        match kind(&desired.annotations) {
            Some(Kind::Network) => state.network.as_ref().map(|it| status(it.hostname())),
            _ => state.classic.as_ref().map(|it| status(&it.load_balancer.dns_name)),
        }
        .unwrap_or_default()
    }
}

/// Returns the names of target groups that begin like those of the Service and that other load balancers have.
fn taken_target_groups(desired: &DesiredLoadBalancer, shared: &Shared) -> BTreeSet<String> {
    let prefix = names::target_group_prefix(&desired.key);
    let own = shared.found.network.get(&name_of(&desired.key)).map(|(one, _)| &one.arn);
    let is_taken = |group: &&elbv2::TargetGroup| {
        let users = &group.load_balancer_arns;
        group.name.starts_with(&prefix) && !users.is_empty() && own.is_none_or(|own| !users.contains(own))
    };
    shared.target_groups.iter().filter(is_taken).map(|group| group.name.clone()).collect()
}

/// Error for a name that a load balancer of another type has.
fn other_type(name: &str) -> PlanError {
    let message =
        format!("NLB '{name}' could not be found: a load balancer of another type has this name; fix: delete it");
    Error::new(ErrorKind::AlreadyExists, "find load balancer", message).to_plan_error(SUBJECT)
}

fn by_id(groups: impl IntoIterator<Item = SecurityGroup>) -> BTreeMap<String, SecurityGroup> {
    groups.into_iter().map(|group| (group.id.clone(), group)).collect()
}

/// Merges the tags of several requests.
fn merged(lists: Vec<Result<Vec<(String, Tags)>>>) -> Result<BTreeMap<String, Tags>> {
    let mut merged = BTreeMap::new();
    for list in lists {
        merged.extend(list?);
    }
    Ok(merged)
}
