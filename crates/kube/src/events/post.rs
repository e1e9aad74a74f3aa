//! Writes Events to the API server.

use std::time::Duration;

use bowline_runtime::Shutdown;
use http::StatusCode;
use k8s_openapi::api::core::v1::{Event, EventSource as Source, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;

use super::correlate::Record;
use super::{Dropped, EventType, QueuedEvent};
use crate::retry::{Failure, send_with_retry};

/// Maximum number of attempts per Event while the API server is unavailable (EV-5).
const MAX_ATTEMPTS: u32 = 12;
/// Pause between two attempts. The first pause is a random fraction of it, so that Events are spread out when the API server is
/// back.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// After shutdown is requested, a queue that is empty for this long is done.
const IDLE_TIMEOUT: Duration = Duration::from_millis(200);
/// Namespace of Events about cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// Writes the Events of a queue in order until the queue is done.
pub(super) async fn post_all(mut queue: mpsc::Receiver<QueuedEvent>, dropped: Dropped, shutdown: Shutdown) {
    while let Some(QueuedEvent { record, client }) = next(&mut queue, &shutdown).await {
        post(&client, &record, &dropped).await;
    }
}

/// Returns the next Event. After shutdown is requested, components may still emit Events for a moment.
async fn next(queue: &mut mpsc::Receiver<QueuedEvent>, shutdown: &Shutdown) -> Option<QueuedEvent> {
    match shutdown.or(queue.recv()).await {
        Some(event) => event,
        None => tokio::time::timeout(IDLE_TIMEOUT, queue.recv()).await.ok().flatten(),
    }
}

async fn post(client: &kube::Client, record: &Record, dropped: &Dropped) {
    let mut attempt = 0;
    while let Err(failure) = write(client, record).await {
        attempt += 1;
        let key = record.occurrence.object.key();
        match failure {
            Failure::Answered { code, message, .. } if !is_transient(code) => {
                tracing::warn!(%key, event = record.name, %code, error = message, "the API server rejected an Event; dropping it");
                return dropped.count("rejected");
            }
            _ if attempt >= MAX_ATTEMPTS => {
                tracing::warn!(%key, event = record.name, error = ?failure, attempt, "cannot write an Event; dropping it");
                return dropped.count("unavailable");
            }
            _ => {
                tracing::debug!(%key, event = record.name, error = ?failure, attempt, "cannot write an Event; retrying");
                tokio::time::sleep(pause(attempt)).await;
            }
        }
    }
}

/// Writes an Event once, without further attempts by the recorder.
pub(super) async fn announce(client: &kube::Client, record: &Record) {
    if let Err(failure) = write(client, record).await {
        tracing::warn!(key = %record.occurrence.object.key(), event = record.name, error = ?failure, "cannot write an Event");
    }
}

/// Whether a retry may succeed.
fn is_transient(code: StatusCode) -> bool {
    code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS
}

fn pause(attempt: u32) -> Duration {
    if attempt == 1 { RETRY_PAUSE.mul_f64(fastrand::f64()) } else { RETRY_PAUSE }
}

/// Updates an Event, or creates it if it is new or was deleted (EV-2).
async fn write(client: &kube::Client, record: &Record) -> Result<(), Failure> {
    if record.count > 1 {
        match update(client, record).await {
            Err(Failure::Answered { code: StatusCode::NOT_FOUND, .. }) => {}
            result => return result,
        }
    }
    match create(client, record).await {
        // Names are unique, so an earlier attempt succeeded although its answer was lost.
        Err(Failure::Answered { code: StatusCode::CONFLICT, .. }) => Ok(()),
        result => result,
    }
}

async fn update(client: &kube::Client, record: &Record) -> Result<(), Failure> {
    let patch =
        json!({"count": record.count, "lastTimestamp": Time(record.last), "message": record.occurrence.message});
    let request = events(record).patch(&record.name, &PatchParams::default(), &Patch::Strategic(patch));
    send_with_retry(client, &request.map_err(invalid_request)?, &Shutdown::new()).await.map(drop)
}

async fn create(client: &kube::Client, record: &Record) -> Result<(), Failure> {
    let body = serde_json::to_vec(&event(record)).map_err(invalid_request)?;
    let request = events(record).create(&PostParams::default(), body).map_err(invalid_request)?;
    send_with_retry(client, &request, &Shutdown::new()).await.map(drop)
}

fn events(record: &Record) -> kube::core::Request {
    kube::core::Request::new(Event::url_path(&(), Some(namespace(record))))
}

fn namespace(record: &Record) -> &str {
    record.occurrence.object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
}

fn invalid_request(error: impl std::fmt::Display) -> Failure {
    Failure::Answered {
        code: StatusCode::BAD_REQUEST,
        message: error.to_string(),
        fields: Vec::new(),
        outcome_unknown: false,
    }
}

/// Builds a core/v1 Event (EV-1).
fn event(record: &Record) -> Event {
    let (occurrence, object) = (&record.occurrence, &record.occurrence.object);
    Event {
        metadata: ObjectMeta {
            name: Some(record.name.clone()),
            namespace: Some(namespace(record).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(object.api_version.clone()),
            kind: Some(object.kind.clone()),
            namespace: object.namespace.clone(),
            name: Some(object.name.clone()),
            uid: Some(object.uid.clone()),
            resource_version: object.resource_version.clone(),
            ..ObjectReference::default()
        },
        type_: Some(type_name(occurrence.kind).to_owned()),
        reason: Some(occurrence.reason.to_string()),
        message: Some(occurrence.message.clone()),
        count: Some(record.count),
        first_timestamp: Some(Time(record.first)),
        last_timestamp: Some(Time(record.last)),
        source: Some(Source { component: Some(occurrence.component.to_owned()), host: None }),
        // upstream: missing on aggregated Events, for no apparent reason.
        reporting_component: Some(occurrence.component.to_owned()),
        ..Event::default()
    }
}

fn type_name(kind: EventType) -> &'static str {
    match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}
