//! Writing Events to the API server.

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
use super::{Dropped, EventType, Letter};
use crate::exchange::{Failure, exchange};

/// How often an Event is tried while the API server is away (EV-5).
const TRIES: u32 = 12;
/// The time between tries; the first is a random part of it, so that not all come at once when the API server is back.
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
/// After the wish to end, so much silence means that there is nothing more to come.
const SILENCE: Duration = Duration::from_millis(200);
/// Where Events about objects without a namespace live.
const DEFAULT_NAMESPACE: &str = "default";

/// Writes the records in their order until there will be no more.
pub(super) async fn post_all(mut letters: mpsc::Receiver<Letter>, dropped: Dropped, shutdown: Shutdown) {
    while let Some(Letter { record, client }) = next(&mut letters, &shutdown).await {
        post(&client, &record, &dropped).await;
    }
}

/// The next record. Whoever ends on shutdown may still say so; after that there is silence.
async fn next(letters: &mut mpsc::Receiver<Letter>, shutdown: &Shutdown) -> Option<Letter> {
    match shutdown.or(letters.recv()).await {
        Some(letter) => letter,
        None => tokio::time::timeout(SILENCE, letters.recv()).await.ok().flatten(),
    }
}

async fn post(client: &kube::Client, record: &Record, dropped: &Dropped) {
    let mut attempt = 0;
    while let Err(failure) = write(client, record).await {
        attempt += 1;
        let key = record.what.object.key();
        match failure {
            Failure::Answered { code, message, .. } if !is_transient(code) => {
                tracing::warn!(%key, event = record.name, %code, error = message, "the API server refuses an Event");
                return dropped.count("rejected");
            }
            _ if attempt >= TRIES => {
                tracing::warn!(%key, event = record.name, error = ?failure, attempt, "an Event cannot be written");
                return dropped.count("unavailable");
            }
            _ => {
                tracing::debug!(%key, event = record.name, error = ?failure, attempt, "an Event is tried again");
                tokio::time::sleep(pause(attempt)).await;
            }
        }
    }
}

/// Writes a record, unless there is trouble.
pub(super) async fn announce(client: &kube::Client, record: &Record) {
    if let Err(failure) = write(client, record).await {
        tracing::warn!(key = %record.what.object.key(), event = record.name, error = ?failure, "an Event cannot be written");
    }
}

/// The same request may succeed later.
fn is_transient(code: StatusCode) -> bool {
    code.is_server_error() || code == StatusCode::TOO_MANY_REQUESTS
}

fn pause(attempt: u32) -> Duration {
    if attempt == 1 { BETWEEN_TRIES.mul_f64(fastrand::f64()) } else { BETWEEN_TRIES }
}

/// Brings an Event up to date, or creates it if it is new or has been removed meanwhile (EV-2).
async fn write(client: &kube::Client, record: &Record) -> Result<(), Failure> {
    if record.count > 1 {
        match update(client, record).await {
            Err(Failure::Answered { code: StatusCode::NOT_FOUND, .. }) => {}
            done => return done,
        }
    }
    match create(client, record).await {
        // An earlier try has landed although we did not hear of it: names are never given twice.
        Err(Failure::Answered { code: StatusCode::CONFLICT, .. }) => Ok(()),
        done => done,
    }
}

async fn update(client: &kube::Client, record: &Record) -> Result<(), Failure> {
    let news = json!({"count": record.count, "lastTimestamp": Time(record.last), "message": record.what.message});
    let request = events(record).patch(&record.name, &PatchParams::default(), &Patch::Strategic(news));
    exchange(client, &request.map_err(unsendable)?, &Shutdown::new()).await.map(drop)
}

async fn create(client: &kube::Client, record: &Record) -> Result<(), Failure> {
    let body = serde_json::to_vec(&event(record)).map_err(unsendable)?;
    let request = events(record).create(&PostParams::default(), body).map_err(unsendable)?;
    exchange(client, &request, &Shutdown::new()).await.map(drop)
}

fn events(record: &Record) -> kube::core::Request {
    kube::core::Request::new(Event::url_path(&(), Some(namespace(record))))
}

fn namespace(record: &Record) -> &str {
    record.what.object.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
}

fn unsendable(error: impl std::fmt::Display) -> Failure {
    Failure::Answered { code: StatusCode::BAD_REQUEST, message: error.to_string(), fields: Vec::new(), in_doubt: false }
}

/// EV-1.
fn event(record: &Record) -> Event {
    let (what, object) = (&record.what, &record.what.object);
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
        type_: Some(type_name(what.kind).to_owned()),
        reason: Some(what.reason.to_string()),
        message: Some(what.message.clone()),
        count: Some(record.count),
        first_timestamp: Some(Time(record.first)),
        last_timestamp: Some(Time(record.last)),
        source: Some(Source { component: Some(what.component.to_owned()), host: None }),
        // upstream: missing on Events that stand for several; there is no reason for that.
        reporting_component: Some(what.component.to_owned()),
        ..Event::default()
    }
}

fn type_name(kind: EventType) -> &'static str {
    match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}
