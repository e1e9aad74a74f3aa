//! `rest_client_*` metrics of every API client, under the names of client-go, so that dashboards for Go managers work.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_runtime::{Buckets, Metric, metrics};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use prometheus::{Histogram, HistogramVec, IntCounterVec, Registry};
use tokio::time::Instant;
use tower::{BoxError, Service};

const SECONDS: Buckets = Buckets::Listed(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

const BYTES: Buckets = Buckets::Listed(&[
    64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
]);

const LABELS: &[&str] = &["verb", "host"];

metrics! {
    /// Metrics of API clients.
    pub(crate) METRICS;
    REQUESTS = Metric::counter(
        "rest_client_requests_total",
        "Number of HTTP requests, partitioned by status code, method, and host.",
    ).labels(&["code", "method", "host"]);
    DURATION = Metric::histogram(
        "rest_client_request_duration_seconds",
        "Request latency in seconds. Broken down by verb, and host.",
        SECONDS,
    ).labels(LABELS);
    RATE_LIMITER = Metric::histogram(
        "rest_client_rate_limiter_duration_seconds",
        "Client side rate limiter latency in seconds. Broken down by verb, and host.",
        SECONDS,
    ).labels(LABELS);
    REQUEST_SIZE = Metric::histogram(
        "rest_client_request_size_bytes",
        "Request size in bytes. Broken down by verb and host.",
        BYTES,
    ).labels(LABELS);
    RESPONSE_SIZE = Metric::histogram(
        "rest_client_response_size_bytes",
        "Response size in bytes. Broken down by verb and host.",
        BYTES,
    ).labels(LABELS);
    RETRIES = Metric::counter(
        "rest_client_request_retries_total",
        "Number of request retries, partitioned by status code, verb, and host.",
    ).labels(&["code", "verb", "host"]);
}

/// Label `code` of a request without a response.
const NO_ANSWER: &str = "<error>";

/// Request extension that marks a retry, with the status of the previous attempt if there was a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry(pub(crate) Option<StatusCode>);

/// Metrics of all API clients of the process. Clones share the same metrics.
#[derive(Clone)]
pub struct RestMetrics(Arc<Families>);

struct Families {
    requests: IntCounterVec,
    duration: HistogramVec,
    rate_limiter: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    retries: IntCounterVec,
}

impl std::fmt::Debug for RestMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RestMetrics")
    }
}

/// Metrics of one client, if any.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    metrics: Option<RestMetrics>,
    /// Host of the API server. The URI of a request has no host until the request is sent.
    host: Arc<str>,
}

impl Meter {
    pub(crate) fn new(metrics: Option<RestMetrics>, server: &http::Uri) -> Meter {
        let host = server.authority().map_or("", |authority| authority.as_str());
        Meter { metrics, host: host.into() }
    }

    /// Returns the metrics and the labels of this request.
    pub(crate) fn of(&self, request: &Request<Body>) -> Option<(RestMetrics, Tags)> {
        self.metrics.clone().map(|metrics| (metrics, Tags::of(request, &self.host)))
    }
}

/// Labels of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tags {
    verb: String,
    host: String,
    /// A watch has no end, so its response size is not recorded.
    is_watch: bool,
}

impl Tags {
    fn of(request: &Request<Body>, host: &str) -> Tags {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch=t"));
        Tags { verb: request.method().to_string(), host: host.to_owned(), is_watch }
    }
}

impl RestMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<RestMetrics> {
        Ok(RestMetrics(Arc::new(Families {
            requests: REQUESTS.register(registry)?,
            duration: DURATION.register(registry)?,
            rate_limiter: RATE_LIMITER.register(registry)?,
            request_size: REQUEST_SIZE.register(registry)?,
            response_size: RESPONSE_SIZE.register(registry)?,
            retries: RETRIES.register(registry)?,
        })))
    }

    /// Records how long the rate limiter delayed a request.
    pub(crate) fn record_wait(&self, tags: &Tags, wait: Duration) {
        self.of(&self.0.rate_limiter, tags).observe(wait.as_secs_f64());
    }

    fn record_request(&self, tags: &Tags, request: &Request<Body>) {
        let size = http_body::Body::size_hint(request.body()).exact().unwrap_or_default();
        self.of(&self.0.request_size, tags).observe(size as f64);
        if let Some(Retry(code)) = request.extensions().get() {
            self.0.retries.with_label_values(&[&code_of(*code), &tags.verb, &tags.host]).inc();
        }
    }

    fn record_response(&self, tags: &Tags, code: Option<StatusCode>, took: Duration) {
        self.0.requests.with_label_values(&[&code_of(code), &tags.verb, &tags.host]).inc();
        self.of(&self.0.duration, tags).observe(took.as_secs_f64());
    }

    fn of(&self, family: &HistogramVec, tags: &Tags) -> Histogram {
        family.with_label_values(&[&tags.verb, &tags.host])
    }

    /// Measures the size of the response.
    fn response_size(&self, tags: &Tags) -> ResponseSize {
        let histogram = (!tags.is_watch).then(|| self.of(&self.0.response_size, tags));
        ResponseSize { histogram, bytes: 0 }
    }
}

fn code_of(code: Option<StatusCode>) -> String {
    code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.as_u16().to_string())
}

/// Counts the bytes read of a response body and records them when the body is dropped.
struct ResponseSize {
    histogram: Option<Histogram>,
    bytes: u64,
}

impl Drop for ResponseSize {
    fn drop(&mut self) {
        if let Some(histogram) = &self.histogram {
            histogram.observe(self.bytes as f64);
        }
    }
}

type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// Tower service that records the metrics of its requests.
#[derive(Clone)]
pub(crate) struct Counted<S> {
    pub(crate) inner: S,
    pub(crate) meter: Meter,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metrics = self.meter.of(&request);
        if let Some((metrics, tags)) = &metrics {
            metrics.record_request(tags, &request);
        }
        // Nothing is sent before the future is polled.
        let response = self.inner.call(request);
        async move {
            let start = Instant::now();
            let response = response.await.map_err(Into::into);
            let size = metrics.map(|(metrics, tags)| {
                metrics.record_response(&tags, response.as_ref().ok().map(Response::status), start.elapsed());
                metrics.response_size(&tags)
            });
            response.map(|response| response.map(|body| measured(body, size)))
        }
        .boxed()
    }
}

/// Wraps the body so that its size is recorded when it is dropped.
fn measured<B>(body: B, mut size: Option<ResponseSize>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let count = move |frame: Frame<Bytes>| {
        if let Some(size) = &mut size {
            size.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        frame
    };
    body.map_frame(count).map_err(Into::into).boxed_unsync()
}
