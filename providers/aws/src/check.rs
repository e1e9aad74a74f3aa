//! Start: region, network and cluster.
//!
//! ```text
//!  Zone or Region ──► region ◄── identity document of the metadata service
//!  VPC, SubnetID and cluster of the file, or instance ID ──► DescribeInstances ──► network, tags ──► cluster ID
//! ```

use std::collections::BTreeMap;

use bowline_cloud::{Error, ErrorKind, Facts, Quota, Result, Retry};

use crate::Aws;
use crate::api::Tags;
use crate::api::ec2::Instance;
use crate::api::elb::Limit;
use crate::cluster_tags::{CLUSTER_TAG_PREFIX, ClusterTags, LEGACY_TAG};
use crate::config::Config;
use crate::provider::Identity;

const CLUSTER: &str = "find the cluster ID";

impl Aws {
    /// Determines region, network and cluster. Logs warnings of the configuration.
    pub(crate) async fn start_up(&self) -> Result<Facts> {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let region = self.find_region().await?;
        self.endpoints.set_region(&region);
        let identity = self.find_identity(region).await?;
        let details = [
            ("VPC", identity.vpc_id.as_str()),
            ("subnet", identity.subnet_id.as_str()),
            ("instance", identity.instance_id.as_deref().unwrap_or_default()),
        ];
        let details = details.into_iter().filter(|(_, value)| !value.is_empty());
        let details: BTreeMap<_, _> = details.map(|(name, value)| (name, value.to_owned())).collect();
        let facts = Facts {
            region: Some(identity.region.clone()),
            cluster_id: Some(identity.cluster.id().to_owned()),
            details,
            ..Facts::default()
        };
        self.set_identity(identity);
        Ok(facts)
    }

    /// Returns the configured region, or that of this instance.
    pub(crate) async fn find_region(&self) -> Result<String> {
        if let Ok(region) = self.endpoints.region() {
            return Ok(region.to_owned());
        }
        let document = self.metadata.identity_document().await;
        let document = document.map_err(|error| {
            error.during("find the AWS region").context("fix", "set Region in the file of --cloud-config")
        });
        document.map(|document| document.region)
    }

    /// Reads the identity from the file, if the manager does not run on an instance of the cluster; otherwise from this instance.
    // upstream: without a complete file, VPC and SubnetID are ignored.
    async fn find_identity(&self, region: String) -> Result<Identity> {
        let config = &self.config;
        if config.is_remote() {
            return Ok(Identity {
                region,
                vpc_id: config.vpc.clone(),
                subnet_id: config.subnet_id.clone(),
                instance_id: None,
                node_name: None,
                cluster: cluster(config, &Tags::new())?,
            });
        }
        let instance = self.own_instance().await?;
        Ok(Identity {
            region,
            cluster: cluster(config, &instance.tags)?,
            vpc_id: instance.vpc_id,
            subnet_id: instance.subnet_id,
            instance_id: Some(instance.instance_id),
            node_name: Some(instance.private_dns_name).filter(|name| !name.is_empty()),
        })
    }

    /// Returns the instance that the manager runs on.
    async fn own_instance(&self) -> Result<Instance> {
        let id = self.metadata.instance_id().await.map_err(|error| {
            let error = error.during("error fetching instance-id from ec2 metadata service");
            error.context("fix", "outside AWS, set VPC, SubnetID and KubernetesClusterID in the file of --cloud-config")
        })?;
        let found = self.ec2.instances_by_id(std::slice::from_ref(&id)).await;
        let found =
            found.map_err(|error| error.during(format!("error finding instance {id}: error listing AWS instances")));
        let found = found?.into_iter().find(|instance| instance.instance_id == id);
        found.ok_or_else(|| {
            let message = "AWS does not list it; check Region and Zone in the file of --cloud-config";
            Error::new(ErrorKind::NotFound, format!("error finding instance {id}"), message).retry(Retry::Backoff)
        })
    }

    // ---- quotas

    /// Returns the numbers of load balancers and target groups, and their limits.
    pub(crate) async fn limits(&self) -> Result<Vec<Quota>> {
        let mut quotas = Vec::new();
        if let Some(limit) = limit(&self.elb.limits().await?, "classic-load-balancers") {
            let used = self.elb.load_balancers().await?.len() as u64;
            quotas.push(Quota { resource: "Classic Load Balancers".to_owned(), used, limit });
        }
        let limits = self.elbv2.limits().await?;
        if let Some(limit) = limit(&limits, "network-load-balancers") {
            let all = self.elbv2.load_balancers().await?;
            let used = all.iter().filter(|found| found.kind == "network").count() as u64;
            quotas.push(Quota { resource: "Network Load Balancers".to_owned(), used, limit });
        }
        if let Some(limit) = limit(&limits, "target-groups") {
            let used = self.elbv2.target_groups().await?.len() as u64;
            quotas.push(Quota { resource: "target groups".to_owned(), used, limit });
        }
        Ok(quotas)
    }
}

fn limit(limits: &[Limit], name: &str) -> Option<u64> {
    limits.iter().find(|limit| limit.name == name)?.max.parse().ok()
}

/// Returns the identity of the cluster: that of the file, or of the tags of this instance.
// upstream: KubernetesClusterTag and the legacy tag also turn on the legacy tag of new resources.
fn cluster(config: &Config, tags: &Tags) -> Result<ClusterTags> {
    let (tag, id) = (config.cluster_tag.as_str(), config.cluster_id.as_str());
    match (tag.is_empty(), id.is_empty()) {
        (false, _) => Ok(ClusterTags::new(tag, true)),
        (true, false) => Ok(ClusterTags::new(id, false)),
        (true, true) => cluster_of(tags),
    }
}

/// Returns the cluster in the tags of an instance.
fn cluster_of(tags: &Tags) -> Result<ClusterTags> {
    let legacy = tags.get(LEGACY_TAG).map(String::as_str).filter(|id| !id.is_empty());
    let mut ids = tags.keys().filter_map(|key| key.strip_prefix(CLUSTER_TAG_PREFIX)).filter(|id| !id.is_empty());
    let (new, other) = (ids.next(), ids.next());
    match (new, other, legacy) {
        (Some(new), Some(other), _) => Err(invalid(
            format!("Found multiple cluster tags with prefix {CLUSTER_TAG_PREFIX} ({new:?} and {other:?})"),
            "remove one of them from this instance, or set KubernetesClusterID",
        )),
        (Some(new), None, Some(legacy)) if new != legacy => Err(invalid(
            format!("clusterID tags did not match: {new:?} vs {legacy:?}"),
            "remove one of them from this instance, or set KubernetesClusterID",
        )),
        (Some(id), None, legacy) => Ok(ClusterTags::new(id, legacy.is_some())),
        (None, _, Some(id)) => Ok(ClusterTags::new(id, true)),
        (None, _, None) => Err(invalid(
            "AWS cloud failed to find ClusterID".to_owned(),
            "add the tag kubernetes.io/cluster/ID to this instance, or set KubernetesClusterID",
        )),
    }
}

fn invalid(message: String, fix: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, CLUSTER, message).retry(Retry::Backoff).context("fix", fix)
}

#[cfg(test)]
mod tests;
