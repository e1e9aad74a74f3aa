//! Load balancers of a cluster, for `bowline orphans`.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::Result;
use bowline_core::{ClusterName, LoadBalancerKey};
use futures::future::join_all;

use super::groups::network_load_balancers;
use super::names;
use crate::Aws;
use crate::api::{Filter, Tags, elb, elbv2};
use crate::cluster_tags::{LEGACY_TAG, SERVICE_TAG};

impl Aws {
    /// Lists the load balancers with the tag of the cluster, and those of which only security groups or their rules are left.
    pub(super) async fn list_load_balancers(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        if *cluster != self.cluster {
            return Ok(Vec::new());
        }
        let (classic, network, left) =
            futures::try_join!(self.tagged_classic(), self.tagged_network(), self.names_in_groups())?;
        let services: BTreeMap<String, String> = classic.into_iter().chain(network).collect();
        let left = left.into_iter().filter(|name| !services.contains_key(name)).map(|name| (name, String::new()));
        let left: Vec<_> = left.collect();
        Ok(services.into_iter().chain(left).map(|(name, service)| key(cluster, &name, &service)).collect())
    }

    /// Returns name and Service of each Classic Load Balancer of the cluster.
    async fn tagged_classic(&self) -> Result<Vec<(String, String)>> {
        let names: Vec<String> = self.elb.load_balancers().await?.into_iter().map(|one| one.name).collect();
        let tags = join_all(names.chunks(elb::TAGS_BATCH).map(|names| self.elb.tags(names))).await;
        let tags = tags.into_iter().collect::<Result<Vec<_>>>()?;
        self.of_cluster(tags.into_iter().flatten())
    }

    /// Returns name and Service of each Network Load Balancer of the cluster.
    async fn tagged_network(&self) -> Result<Vec<(String, String)>> {
        let all = self.elbv2.load_balancers().await?.into_iter().filter(|one| one.kind == "network");
        let mut names: BTreeMap<String, String> = all.map(|one| (one.arn, one.name)).collect();
        let arns: Vec<String> = names.keys().cloned().collect();
        let tags = join_all(arns.chunks(elbv2::BATCH).map(|arns| self.elbv2.tags(arns))).await;
        let tags = tags.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten();
        self.of_cluster(tags.filter_map(|(arn, tags)| Some((names.remove(&arn)?, tags))))
    }

    fn of_cluster(&self, tagged: impl Iterator<Item = (String, Tags)>) -> Result<Vec<(String, String)>> {
        let cluster = &self.identity()?.cluster;
        // Load balancers of other controllers have the tag of the cluster, too, but no name that is derived from a UID.
        let ours = tagged.filter(|(name, tags)| cluster.is_owned(tags) && names::uid(name).is_some());
        Ok(ours.map(|(name, tags)| (name, tags.get(SERVICE_TAG).cloned().unwrap_or_default())).collect())
    }

    /// Returns the names of load balancers that have a security group of their own, or rules in the groups of Nodes.
    async fn names_in_groups(&self) -> Result<BTreeSet<String>> {
        let cluster = &self.identity()?.cluster;
        let groups = self.ec2.security_groups(&[Filter::new("tag-key", [cluster.key(), LEGACY_TAG])]).await?;
        let groups: Vec<_> = groups.into_iter().filter(|group| cluster.is_tagged(&group.tags)).collect();
        let own = groups.iter().filter(|group| cluster.is_owned(&group.tags));
        let own = own.filter_map(|group| names::of_classic_group(&group.name));
        let ruled = groups.iter().flat_map(network_load_balancers);
        Ok(own.chain(ruled).filter(|name| names::uid(name).is_some()).map(str::to_owned).collect())
    }
}

/// Returns the key of a load balancer: with its Service if a tag names it, otherwise with its name alone.
fn key(cluster: &ClusterName, name: &str, service: &str) -> LoadBalancerKey {
    match (service.split_once('/'), names::uid(name)) {
        (Some((namespace, service)), Some(uid)) if !namespace.is_empty() => LoadBalancerKey {
            cluster: cluster.clone(),
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            uid: uid.to_owned(),
        },
        _ => LoadBalancerKey {
            cluster: cluster.clone(),
            namespace: String::new(),
            service: name.to_owned(),
            uid: String::new(),
        },
    }
}
