//! Removing one orphan: round after round of observe, plan and apply, until nothing is left.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_core::{Service, ServiceKey};
use bowline_kube::Cluster;
use tokio::time::Instant;

use super::{Orphan, Outcome, is_owner, plan};

/// How long a cloud may take to be rid of one balancer.
const PATIENCE: Duration = Duration::from_secs(300);

/// The pause before the next look at a cloud that is at work and does not say for how long.
const PAUSE: Duration = Duration::from_secs(2);

/// After so many rounds in which every step succeeds, and something is left nevertheless, it is not going to go.
const ROUNDS: u32 = 5;

/// Removes it, unless it has an owner after all.
pub(super) async fn remove(orphan: &Orphan, cluster: &Cluster) -> Outcome {
    match has_owner(orphan, cluster).await {
        Ok(true) => Outcome::Owned,
        Ok(false) => swept(orphan).await,
        Err(why) => Outcome::Failed(why),
    }
}

/// Whether the Service is there, asked now and not remembered from the list.
async fn has_owner(orphan: &Orphan, cluster: &Cluster) -> Result<bool, String> {
    let key = &orphan.key;
    let service = ServiceKey { namespace: key.namespace.as_str().into(), name: key.service.as_str().into() };
    let found = cluster.service(&service).await;
    let found = found.map_err(|error| format!("cannot tell whether its Service is there: {error}"))?;
    let owns = |service: &Service| key.belongs_to(&service.namespace, &service.name, &service.uid) && is_owner(service);
    Ok(found.as_ref().is_some_and(owns))
}

async fn swept(orphan: &Orphan) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    let mut rounds = 0;
    loop {
        match round(orphan).await {
            Ok(true) => return Outcome::Deleted,
            Ok(false) if rounds < ROUNDS => rounds += 1,
            Ok(false) => return Outcome::Failed(format!("something is left of it after {rounds} rounds")),
            Err(error) => match pause(&error).filter(|pause| Instant::now() + *pause < deadline) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Outcome::Failed(error.to_string()),
            },
        }
    }
}

/// Takes every step that there is to take; whether nothing was left to begin with.
async fn round(orphan: &Orphan) -> Result<bool, Error> {
    let Some(plan) = plan(&orphan.cloud, &orphan.key).await? else { return Ok(true) };
    for step in &plan.steps {
        match orphan.cloud.layers().apply_load_balancer(&orphan.key, step, None).await {
            Err(error) if error.leaves_out(step) => {}
            applied => drop(applied?),
        }
    }
    if let Some(problem) = plan.errors.first() {
        return Err(problem.clone().into());
    }
    Ok(plan.is_empty())
}

/// When to look again, if that makes sense. What fails otherwise has been tried several times by the layers below.
fn pause(error: &Error) -> Option<Duration> {
    match (error.kind(), error.retry_advice()) {
        (ErrorKind::InProgress | ErrorKind::RateLimited, Retry::After(delay)) => Some(delay),
        (ErrorKind::InProgress, _) => Some(PAUSE),
        _ => None,
    }
}
