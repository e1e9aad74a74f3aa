//! The `rest_client_*` metrics: what every client of the API server counts, under the names that dashboards for the Go managers
//! know.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_runtime::{Bounds, Metric, metrics};
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

const SECONDS: Bounds = Bounds::Listed(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

const BYTES: Bounds =
    Bounds::Listed(&[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0]);

const LABELS: &[&str] = &["verb", "host"];

metrics! {
    /// What clients count.
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

/// What the code is called where there is no answer.
const NO_ANSWER: &str = "<error>";

/// A request that is sent again, after this answer or none: goes along in the request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again(pub(crate) Option<StatusCode>);

/// The metrics of all clients of a process. Clones are the same metrics.
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

/// The metrics of one client, if it has any.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    metrics: Option<RestMetrics>,
    /// Whom it speaks to. A request does not say so before it is about to leave.
    host: Arc<str>,
}

impl Meter {
    pub(crate) fn new(metrics: Option<RestMetrics>, server: &http::Uri) -> Meter {
        let host = server.authority().map_or("", |authority| authority.as_str());
        Meter { metrics, host: host.into() }
    }

    /// Where this request is counted.
    pub(crate) fn of(&self, request: &Request<Body>) -> Option<(RestMetrics, Tags)> {
        self.metrics.clone().map(|metrics| (metrics, Tags::of(request, &self.host)))
    }
}

/// What tells requests apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tags {
    verb: String,
    host: String,
    /// It has no end, and so no size.
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
    /// Registers them.
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

    /// A request has waited so long for its turn.
    pub(crate) fn waited(&self, tags: &Tags, wait: Duration) {
        self.of(&self.0.rate_limiter, tags).observe(wait.as_secs_f64());
    }

    fn sent(&self, tags: &Tags, request: &Request<Body>) {
        let size = http_body::Body::size_hint(request.body()).exact().unwrap_or_default();
        self.of(&self.0.request_size, tags).observe(size as f64);
        if let Some(Again(code)) = request.extensions().get() {
            self.0.retries.with_label_values(&[&code_of(*code), &tags.verb, &tags.host]).inc();
        }
    }

    fn answered(&self, tags: &Tags, code: Option<StatusCode>, took: Duration) {
        self.0.requests.with_label_values(&[&code_of(code), &tags.verb, &tags.host]).inc();
        self.of(&self.0.duration, tags).observe(took.as_secs_f64());
    }

    fn of(&self, family: &HistogramVec, tags: &Tags) -> Histogram {
        family.with_label_values(&[&tags.verb, &tags.host])
    }

    /// How large the answer turns out to be.
    fn size(&self, tags: &Tags) -> Size {
        let histogram = (!tags.is_watch).then(|| self.of(&self.0.response_size, tags));
        Size { histogram, bytes: 0 }
    }
}

fn code_of(code: Option<StatusCode>) -> String {
    code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.as_u16().to_string())
}

/// Counts what is read of an answer, and tells when it has ended or is given up.
struct Size {
    histogram: Option<Histogram>,
    bytes: u64,
}

impl Drop for Size {
    fn drop(&mut self) {
        if let Some(histogram) = &self.histogram {
            histogram.observe(self.bytes as f64);
        }
    }
}

type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// Counts the requests that go through it.
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
            metrics.sent(tags, &request);
        }
        // Nothing is sent before this is polled.
        let answer = self.inner.call(request);
        async move {
            let begun = Instant::now();
            let answer = answer.await.map_err(Into::into);
            let size = metrics.map(|(metrics, tags)| {
                metrics.answered(&tags, answer.as_ref().ok().map(Response::status), begun.elapsed());
                metrics.size(&tags)
            });
            answer.map(|answer| answer.map(|body| measured(body, size)))
        }
        .boxed()
    }
}

/// The same answer; its size is told when it has ended or is given up.
fn measured<B>(body: B, mut size: Option<Size>) -> Answer
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
