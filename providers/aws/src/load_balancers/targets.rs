//! Instances that are targets of load balancers, with their security groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::Result;
use bowline_core::LoadBalancerSpec;
use tokio::time::Instant;

use crate::Aws;
use crate::api::ec2::GroupName;

/// Time for which the security groups of an instance are reused.
// upstream: 10 minutes, for all instances.
const VALID: Duration = Duration::from_secs(600);

/// Security groups of instances, by ID. Instances that do not exist are missing.
pub(super) type Instances = Arc<BTreeMap<String, Vec<GroupName>>>;

/// Security groups of instances that were read lately, shared by all Services: each of a thousand Nodes is a target of each Service.
/// Clones share the entries.
#[derive(Clone, Default)]
pub(crate) struct InstanceCache {
    entries: Arc<Mutex<HashMap<String, LastRead>>>,
}

/// Security groups of an instance, and when they were read.
type LastRead = (Vec<GroupName>, Instant);

impl InstanceCache {
    fn get(&self, ids: &BTreeSet<String>) -> BTreeMap<String, Vec<GroupName>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let valid = |id: &String| entries.get(id).filter(|(_, at)| at.elapsed() < VALID);
        ids.iter().filter_map(|id| Some((id.clone(), valid(id)?.0.clone()))).collect()
    }

    fn put(&self, read: &BTreeMap<String, Vec<GroupName>>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, (_, at)| at.elapsed() < VALID);
        entries.extend(read.iter().map(|(id, groups)| (id.clone(), (groups.clone(), Instant::now()))));
    }

    /// Forgets everything: an instance that was a target a moment ago does not exist any more.
    pub(super) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Aws {
    /// Reads the security groups of instances.
    pub(super) async fn instance_groups(&self, ids: &BTreeSet<String>) -> Result<BTreeMap<String, Vec<GroupName>>> {
        let mut known = self.instance_cache.get(ids);
        let missing: Vec<String> = ids.iter().filter(|id| !known.contains_key(*id)).cloned().collect();
        if missing.is_empty() {
            return Ok(known);
        }
        let read = self.describe_existing(&missing).await?;
        let read = read.into_iter().filter(|(_, instance)| instance.instance_state.name != "terminated");
        let read: BTreeMap<_, _> = read.map(|(id, instance)| (id, instance.groups)).collect();
        self.instance_cache.put(&read);
        known.extend(read);
        Ok(known)
    }
}

/// Returns the IDs of the instances that get traffic. A Node without a usable provider ID is skipped, and so is one that is draining:
/// AWS lets the connections of a deregistered target continue.
pub(super) fn instance_ids(spec: &LoadBalancerSpec) -> BTreeSet<String> {
    let targets = spec.targets.iter().filter(|target| !target.draining);
    let ids = targets.filter_map(|target| {
        let Some(id) = &target.provider_id else {
            tracing::warn!("node {:?} did not have ProviderID set", target.node.as_str());
            return None;
        };
        match crate::instances::instance_id(id) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(
                    "unable to parse ProviderID {:?} for node {:?}: {error}",
                    id.to_string(),
                    target.node.as_str()
                );
                None
            }
        }
    });
    ids.collect()
}
