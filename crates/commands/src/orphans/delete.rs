//! Deletes one orphan: observe, plan and apply, repeated until nothing is left.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_core::{LoadBalancerKey, Service, ServiceKey};
use bowline_kube::{Cluster, WriteError};
use tokio::time::Instant;

use super::{Orphan, Outcome, Owners, plan};

/// Deadline for the deletion of one load balancer.
const DEADLINE: Duration = Duration::from_secs(300);

/// Pause before the next round while the cloud is busy and sends no Retry-After.
const PAUSE: Duration = Duration::from_secs(2);

/// Maximum number of rounds in which every step succeeds and resources remain.
const MAX_ROUNDS: u32 = 5;

/// Deletes the orphan, unless its owner exists.
pub(super) async fn delete(orphan: &Orphan, cluster: &Cluster) -> Outcome {
    match has_owner(orphan, cluster).await {
        Ok(true) => Outcome::Owned,
        Ok(false) => delete_resources(orphan).await,
        Err(why) => Outcome::Failed(why),
    }
}

/// Whether the Service exists now, whatever the earlier list contained.
async fn has_owner(orphan: &Orphan, cluster: &Cluster) -> Result<bool, String> {
    let services = possible_owners(&orphan.key, cluster).await;
    let services = services.map_err(|error| format!("cannot read its Service: {error}"))?;
    Ok(Owners::of(&orphan.cloud, &orphan.key.cluster, &services).contain(&orphan.key))
}

/// Reads the Service that the key names, or all Services if it names none.
async fn possible_owners(key: &LoadBalancerKey, cluster: &Cluster) -> Result<Vec<Arc<Service>>, WriteError> {
    if key.namespace.is_empty() {
        return cluster.list_services().await;
    }
    let service = ServiceKey { namespace: key.namespace.as_str().into(), name: key.service.as_str().into() };
    Ok(cluster.service(&service).await?.map(Arc::new).into_iter().collect())
}

async fn delete_resources(orphan: &Orphan) -> Outcome {
    let deadline = Instant::now() + DEADLINE;
    let mut rounds = 0;
    loop {
        match round(orphan).await {
            Ok(true) => return Outcome::Deleted,
            Ok(false) if rounds < MAX_ROUNDS => rounds += 1,
            Ok(false) => return Outcome::Failed(format!("resources remain after {rounds} rounds")),
            Err(error) => match pause(&error).filter(|pause| Instant::now() + *pause < deadline) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Outcome::Failed(error.to_string()),
            },
        }
    }
}

/// Plans and applies all steps; returns whether nothing was left before.
async fn round(orphan: &Orphan) -> Result<bool, Error> {
    let Some(plan) = plan(&orphan.cloud, &orphan.key).await? else { return Ok(true) };
    for step in &plan.steps {
        match orphan.cloud.layers().apply_load_balancer(&orphan.key, step, None).await {
            Err(error) if error.allows_skipping(step) => {}
            applied => drop(applied?),
        }
    }
    if let Some(error) = plan.errors.first() {
        return Err(error.clone().into());
    }
    Ok(plan.is_empty())
}

/// Pause before a retry, if the error is transient. The layers below have already retried all other errors.
fn pause(error: &Error) -> Option<Duration> {
    match (error.kind(), error.retry_advice()) {
        (ErrorKind::InProgress | ErrorKind::RateLimited, Retry::After(delay)) => Some(delay),
        (ErrorKind::InProgress, _) => Some(PAUSE),
        _ => None,
    }
}
