//! Start of the clouds: each independently, with retries and the Secrets that its provider needs. An Event reports a cloud that
//! cannot be started, and its recovery.

use bowline_cloud::{Cloud, Clouds, Readiness};
use bowline_kube::{EventSource, EventType, ObjectRef};
use bowline_runtime::Shutdown;
use futures::future::{join, join_all};

use crate::secrets;

/// Component of the Events.
pub(crate) const COMPONENT: &str = "cloud-controller-manager";

/// Starts all clouds and runs until shutdown is requested. Events are about `object`: the manager's Lease.
pub(crate) async fn run(
    clouds: Clouds,
    client: kube::Client,
    events: EventSource,
    object: ObjectRef,
    shutdown: Shutdown,
) {
    let starts = clouds.iter().map(|cloud| join(start(cloud, &client), report(cloud, &events, &object)));
    shutdown.or(join_all(starts)).await;
    shutdown.requested().await;
}

/// Starts a cloud, with retries until it succeeds, and watches its Secrets.
pub async fn start(cloud: &Cloud, client: &kube::Client) {
    join(cloud.start_with_retries(), secrets::follow(cloud, client)).await;
}

/// Emits an Event for each cause of failure, and one when the cloud has recovered.
async fn report(cloud: &Cloud, events: &EventSource, object: &ObjectRef) {
    let (mut readiness, mut reported) = (cloud.readiness(), None);
    loop {
        let state = readiness.borrow_and_update().clone();
        match state {
            // The error kind identifies a cause: messages contain request IDs.
            Readiness::Failed { error, .. } if reported != Some(error.kind()) => {
                let message = format!("Cloud {} is not ready and is retried: {error}", cloud.name());
                events.emit(object, EventType::Warning, "CloudNotReady", error.kind().with_advice(&message));
                reported = Some(error.kind());
            }
            Readiness::Ready => {
                if reported.is_some() {
                    let message = format!("Cloud {} is ready", cloud.name());
                    events.emit(object, EventType::Normal, "CloudReady", message);
                }
                return;
            }
            Readiness::Failed { .. } | Readiness::Starting => {}
        }
        if readiness.changed().await.is_err() {
            return;
        }
    }
}
