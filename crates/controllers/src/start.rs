//! Starting the clouds: each by itself, for as long as it takes, with the Secrets that its provider needs, and with an Event when
//! one cannot be served and when it can.

use bowline_cloud::{Cloud, Clouds, Readiness};
use bowline_kube::{EventSource, EventType, ObjectRef};
use bowline_runtime::Shutdown;
use futures::future::{join, join_all};

use crate::secrets;

/// Component of the Events.
pub(crate) const COMPONENT: &str = "cloud-controller-manager";

/// Runs until shutdown is requested. Events are about `object`: the Lease of the manager, where its leader announces itself.
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

/// Starts a cloud, for as long as it takes, and follows its Secrets from then on.
pub async fn start(cloud: &Cloud, client: &kube::Client) {
    join(cloud.start_with_retries(), secrets::follow(cloud, client)).await;
}

/// Emits an Event for each cause of failure, and one once the cloud is ready after that.
async fn report(cloud: &Cloud, events: &EventSource, object: &ObjectRef) {
    let (mut readiness, mut reported) = (cloud.readiness(), None);
    loop {
        let state = readiness.borrow_and_update().clone();
        match state {
            // The kind, not the text, tells causes apart: texts carry request IDs.
            Readiness::Failed { error, .. } if reported != Some(error.kind()) => {
                let advice = error.kind().advice();
                let message = format!("The cloud {} is not served, and retried: {error}. {advice}", cloud.name());
                events.emit(object, EventType::Warning, "CloudNotReady", message.trim_end());
                reported = Some(error.kind());
            }
            Readiness::Ready => {
                if reported.is_some() {
                    let message = format!("The cloud {} is served", cloud.name());
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
