//! The requests of an election: each is sent once, and has a bounded time. Whoever sends one knows when to try again.

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

/// The longest that a watch runs before it is begun anew, in seconds.
const WATCH_SECONDS: u32 = 290;

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The lease was written by somebody else since it was read, or was made by somebody else.
    #[error("the lease has changed meanwhile")]
    Conflict,
    /// It is not there.
    #[error("there is no such lease")]
    NotFound,
    /// Nor is there a place for it.
    #[error("there is no namespace {0}; create it, or name another one with --leader-elect-resource-namespace")]
    NoNamespace(String),
    /// This process may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// All else.
    #[error("{0}")]
    Broken(String),
}

/// What a watch tells.
#[derive(Debug)]
pub(super) enum News {
    /// The lease looks like this.
    Changed(Lease),
    /// It is gone.
    Deleted,
}

/// One Lease of the API server.
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

    /// The lease, or `None` if there is none.
    pub(super) async fn get(&self) -> Result<Option<Lease>, Failure> {
        match self.ask(self.request().get(&self.name, &GetParams::default())).await {
            Ok(lease) => Ok(Some(lease)),
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn create(&self, lease: &Lease) -> Result<Lease, Failure> {
        match self.ask(self.request().create(&PostParams::default(), lease.to_json())).await {
            Err(Failure::NotFound) => Err(Failure::NoNamespace(self.namespace.clone())),
            answer => answer,
        }
    }

    /// Writes it, if it is as it was when it was read.
    pub(super) async fn replace(&self, lease: &Lease) -> Result<Lease, Failure> {
        self.ask(self.request().replace(&self.name, &PostParams::default(), lease.to_json())).await
    }

    /// Tells of every change for as long as it is polled. Where this is not allowed, it says so once, and no more.
    pub(super) async fn watch(&self, news: mpsc::UnboundedSender<News>) {
        loop {
            match self.watch_once(&news).await {
                Err(Failure::Forbidden(message)) => {
                    tracing::debug!(
                        lease = self.name,
                        error = message,
                        "the lease cannot be watched, and is asked for instead"
                    );
                    return future::pending().await;
                }
                Err(error) => tracing::debug!(lease = self.name, %error, "the watch of the lease failed"),
                Ok(()) => {}
            }
            sleep(self.between_watches).await;
        }
    }

    async fn watch_once(&self, news: &mpsc::UnboundedSender<News>) -> Result<(), Failure> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        // From "0": what there is comes first.
        let request = self.request().watch(&params, "0").map_err(|error| Failure::Broken(with_causes(&error)))?;
        let events = timeout(self.timeout, self.client.request_events::<Value>(request));
        let events = events.await.map_err(|_| self.outcome_unknown())?.map_err(failure)?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let event = match event.map_err(failure)? {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => News::Changed(Lease::received(lease)),
                WatchEvent::Deleted(_) => News::Deleted,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(Failure::Broken(status.message)),
            };
            if news.send(event).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn ask(&self, request: Result<http::Request<Vec<u8>>, kube::core::request::Error>) -> Result<Lease, Failure> {
        let request = request.map_err(|error| Failure::Broken(with_causes(&error)))?;
        let answer = timeout(self.timeout, self.client.request::<Value>(request)).await;
        answer.map_err(|_| self.outcome_unknown())?.map(Lease::received).map_err(failure)
    }

    fn request(&self) -> Request {
        Request::new(&self.url)
    }

    fn outcome_unknown(&self) -> Failure {
        Failure::Broken(format!("there is no answer within {:?}", self.timeout))
    }
}

fn failure(error: kube::Error) -> Failure {
    match &error {
        kube::Error::Api(status) => match StatusCode::from_u16(status.code) {
            Ok(StatusCode::CONFLICT) => Failure::Conflict,
            Ok(StatusCode::NOT_FOUND) => Failure::NotFound,
            Ok(StatusCode::FORBIDDEN) => Failure::Forbidden(status.message.clone()),
            _ => Failure::Broken(status.message.clone()),
        },
        other => Failure::Broken(with_causes(other)),
    }
}
