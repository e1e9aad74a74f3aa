//! One query API of AWS.

use std::time::Duration;

use bowline_cloud::{Calls, Result};
use bowline_http::{Api, ApiResponse, Authorize};
use http::{HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::Instant;

use super::{Errors, Query};
use crate::metrics::CallMetrics;

/// Timeout of one call, as in the Go manager.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Program in the header `User-Agent`.
pub(crate) const USER_AGENT: &str = concat!("aws-cloud-provider bowline/", env!("CARGO_PKG_VERSION"));

/// One query API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service {
    api: Api,
    version: &'static str,
    metrics: Option<CallMetrics>,
}

impl Service {
    /// Creates a client. The credentials determine the endpoint, because the region may be known only after the start.
    pub(crate) fn new(
        http: bowline_http::Client,
        calls: &Calls,
        (name, version): (&'static str, &'static str),
        agent: HeaderValue,
        signer: impl Authorize + 'static,
    ) -> Service {
        let api = Api::new(http, calls, name).authorize(signer).errors(Errors).header(header::USER_AGENT, agent);
        Service { api, version, metrics: None }
    }

    /// Sets the metrics in which calls are recorded.
    pub(crate) fn with_metrics(self, metrics: CallMetrics) -> Service {
        Service { metrics: Some(metrics), ..self }
    }

    /// Adds a header to every call.
    pub(crate) fn header(self, name: HeaderName, value: HeaderValue) -> Service {
        Service { api: self.api.header(name, value), ..self }
    }

    /// Sends a request, and decodes the response.
    pub(crate) async fn send<T: DeserializeOwned>(&self, query: Query) -> Result<T> {
        let (action, begun) = (query.action, Instant::now());
        let outcome = async { self.response(query).await?.xml() }.await;
        self.metrics.iter().for_each(|metrics| metrics.record(action, begun.elapsed(), outcome.as_ref().err()));
        outcome
    }

    /// Sends a request whose response contains nothing.
    pub(crate) async fn execute(&self, query: Query) -> Result<()> {
        // Any other response does not come from AWS.
        self.send::<Done>(query).await.map(drop)
    }

    async fn response(&self, query: Query) -> Result<ApiResponse> {
        let head = [("Action", query.action), ("Version", self.version)];
        let head = head.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let form = [head.as_slice(), &query.parameters].concat();
        self.api.call(query.action, Method::POST, &[]).effect(query.effect).form(&form).send().await
    }
}

/// A response without content, except for the ID of the request.
#[derive(Deserialize)]
struct Done {
    #[serde(rename = "requestId", alias = "RequestId", alias = "ResponseMetadata")]
    _request_id: IgnoredAny,
}
