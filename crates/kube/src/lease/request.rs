//! Requests of an election. Each is sent once, with a timeout; the caller decides when to retry.

use std::time::Duration;

use bowline_core::with_causes;
use futures::{StreamExt, future};
use http::StatusCode;
use k8s_openapi::api::coordination::v1::Lease as FullLease;
use kube::Resource;
use kube::api::{GetParams, PostParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::LeaseOptions;
use super::record::Lease;

/// Timeout of a watch before it is restarted, in seconds.
const WATCH_SECONDS: u32 = 290;

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Another process has updated or created the lease since it was read.
    #[error("another process has changed the lease")]
    Conflict,
    /// The lease does not exist.
    #[error("the lease does not exist")]
    NotFound,
    /// The namespace of the lease does not exist.
    #[error("namespace {0} does not exist; create it, or set --leader-elect-resource-namespace")]
    NoNamespace(String),
    /// The permission is missing.
    #[error("{0}")]
    Forbidden(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

/// Watch event.
#[derive(Debug)]
pub(super) enum LeaseEvent {
    /// The lease was created or changed.
    Changed(Lease),
    /// The lease was deleted.
    Deleted,
}

/// API of one Lease.
#[derive(Clone)]
pub(super) struct LeaseApi {
    client: kube::Client,
    namespace: String,
    name: String,
    url: String,
    timeout: Duration,
    between_watches: Duration,
}

impl LeaseApi {
    pub(super) fn new(client: kube::Client, options: &LeaseOptions) -> LeaseApi {
        LeaseApi {
            client,
            namespace: options.namespace.clone(),
            name: options.name.clone(),
            url: FullLease::url_path(&(), Some(&options.namespace)),
            timeout: options.request_timeout(),
            between_watches: options.retry_period,
        }
    }

    pub(super) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Reads the lease; `None` if it does not exist.
    pub(super) async fn get(&self) -> Result<Option<Lease>, Failure> {
        match self.send(self.request().get(&self.name, &GetParams::default())).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn create(&self, lease: &Lease) -> Result<Lease, Failure> {
        match self.send(self.request().create(&PostParams::default(), lease.to_json())).await {
            Err(Failure::NotFound) => Err(Failure::NoNamespace(self.namespace.clone())),
            result => result,
        }
    }

    /// Replaces the lease, if its resource version has not changed.
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Lease, Failure> {
        self.send(self.request().replace(&self.name, &PostParams::default(), lease.to_json())).await
    }

    /// Sends every change of the lease, until dropped. Without the permission to watch, it logs that once and sends nothing.
    pub(super) async fn watch(&self, sender: mpsc::UnboundedSender<LeaseEvent>) {
        loop {
            match self.watch_once(&sender).await {
                Err(Failure::Forbidden(message)) => {
                    tracing::debug!(lease = self.name, error = message, "cannot watch the lease; polling it instead");
                    return future::pending().await;
                }
                Err(error) => tracing::debug!(lease = self.name, %error, "the watch of the lease failed"),
                Ok(()) => {}
            }
            sleep(self.between_watches).await;
        }
    }

    async fn watch_once(&self, sender: &mpsc::UnboundedSender<LeaseEvent>) -> Result<(), Failure> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        // Resource version "0" starts with the current object.
        let request = self.request().watch(&params, "0").map_err(|error| Failure::Other(with_causes(&error)))?;
        let events = timeout(self.timeout, self.client.request_events::<Value>(request));
        let events = events.await.map_err(|_| self.timed_out())?.map_err(to_failure)?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let event = match event.map_err(to_failure)? {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => LeaseEvent::Changed(Lease::received(lease)),
                WatchEvent::Deleted(_) => LeaseEvent::Deleted,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(Failure::Other(status.message)),
            };
            if sender.send(event).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Lease, Failure> {
        let request = request.map_err(|error| Failure::Other(with_causes(&error)))?;
        let result = timeout(self.timeout, self.client.request::<Value>(request)).await;
        result.map_err(|_| self.timed_out())?.map(Lease::received).map_err(to_failure)
    }

    fn request(&self) -> Request {
        Request::new(&self.url)
    }

    fn timed_out(&self) -> Failure {
        Failure::Other(format!("no answer within {:?}", self.timeout))
    }
}

fn to_failure(error: kube::Error) -> Failure {
    match &error {
        kube::Error::Api(status) => match StatusCode::from_u16(status.code) {
            Ok(StatusCode::CONFLICT) => Failure::Conflict,
            Ok(StatusCode::NOT_FOUND) => Failure::NotFound,
            Ok(StatusCode::FORBIDDEN) => Failure::Forbidden(status.message.clone()),
            _ => Failure::Other(status.message.clone()),
        },
        other => Failure::Other(with_causes(other)),
    }
}
