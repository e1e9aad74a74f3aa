//! Access to the API server, with credentials that are reloaded at run time.
//!
//! ```text
//!  kube::Client (one per user: own user agent, own rate limit) ──┐
//!  kube::Client                                                 ─┼─► Access ──► Endpoint (address, CA, credentials) ◄── reloaded
//!  kube::Client of a controller + its token                     ─┘       └────► the same without credentials
//! ```
//!
//! Fenced requests use separate connections, which the fence closes.
//!
//! Requests in flight during a reload finish on the old endpoint: each holds the connections it started with.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_core::with_causes;
use bowline_runtime::{Fence, Fingerprint, Reloadable, TokenBucket};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde_json::Value;
use tokio::time::Instant;
use tower::{BoxError, Service};

use crate::client::{ClientOptions, ConnectError, Probe, config, files, user_agent};
use crate::expiry::expiry;
use crate::fenced::{FencedExecutor, fence_of};
use crate::request_log::RequestLog;
use crate::rest::{Counted, Meter, RestMetrics};

/// Timeout until the first byte of a response, including pages of a list; writes have a shorter timeout.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time between two reads of a response. Longer than a watch lasts, because a watch may have no events.
const READ_TIMEOUT: Duration = Duration::from_secs(330);
/// Timeout of the probe request with new credentials.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time before the expiry at which credentials are renewed.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(60);

/// Access to the API server. Clones share it.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    options: ClientOptions,
    fingerprint: Fingerprint,
    endpoint: RwLock<Arc<Endpoint>>,
}

/// Address with one set of credentials.
struct Endpoint {
    config: Config,
    client: Client,
    meter: Meter,
    /// Clients that are built on first use.
    lazy: LazyClients,
}

#[derive(Default)]
struct LazyClients {
    /// Without credentials.
    bare: OnceLock<Client>,
    /// For write requests, with connections that the fence of the process closes.
    fenced: OnceLock<Client>,
    fenced_bare: OnceLock<Client>,
}

impl Access {
    /// Loads the client configuration. Connects on the first request.
    pub async fn open(options: &ClientOptions) -> Result<Access, ConnectError> {
        // An invalid user agent is reported at the start, not with the first request.
        user_agent(&options.user)?;
        let fingerprint = Fingerprint::of(&files(options));
        let endpoint = Endpoint::new(config(options).await?, options.metrics.clone())?;
        Ok(Access(Arc::new(Shared {
            options: options.clone(),
            fingerprint,
            endpoint: RwLock::new(Arc::new(endpoint)),
        })))
    }

    /// Client with the credentials of the process and the user agent of the options.
    pub fn client(&self) -> Client {
        self.named(&self.0.options.user)
    }

    /// Address of the API server.
    pub fn address(&self) -> http::Uri {
        self.endpoint().config.cluster_url.clone()
    }

    /// Client with the credentials of the process, its own user agent and its own rate limit (CL-2, CL-3).
    pub fn named(&self, user: &str) -> Client {
        let access = self.clone();
        self.client_over(user, tower::service_fn(move |request| access.clone().send(request)))
    }

    /// As [`named`](Access::named), without a rate limit: for requests that must not be delayed, such as lease renewals.
    pub fn without_rate_limit(&self, user: &str) -> Client {
        let access = self.clone();
        self.build_client(user, None, tower::service_fn(move |request| access.clone().send(request)))
    }

    /// Client over a service that sends its requests to this API server.
    pub(crate) fn client_over<S>(&self, user: &str, inner: S) -> Client
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Send + 'static,
        S::Future: Send + 'static,
    {
        let bucket = self.0.options.rate.map(|(rate, burst)| Arc::new(TokenBucket::new(rate, burst)));
        self.build_client(user, bucket, inner)
    }

    fn build_client<S>(&self, user: &str, bucket: Option<Arc<TokenBucket>>, inner: S) -> Client
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Send + 'static,
        S::Future: Send + 'static,
    {
        let endpoint = self.endpoint();
        let service = ClientService { inner, bucket, agent: user_agent(user).ok(), meter: endpoint.meter.clone() };
        Client::new(service, endpoint.config.default_namespace.clone())
    }

    /// Sends the request with the credentials of the process.
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let endpoint = self.endpoint();
        let client = match fence_of(&request) {
            None => endpoint.client.clone(),
            Some(fence) => {
                get_or_build(&endpoint.lazy.fenced, || build_fenced(endpoint.config.clone(), &endpoint.meter, fence))?
            }
        };
        Ok(client.send(request).await?)
    }

    /// Sends the request with no credentials but those in its headers.
    pub(crate) async fn send_without_credentials(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let endpoint = self.endpoint();
        let client = match fence_of(&request) {
            None => get_or_build(&endpoint.lazy.bare, || build(endpoint.bare_config(), &endpoint.meter))?,
            Some(fence) => get_or_build(&endpoint.lazy.fenced_bare, || {
                build_fenced(endpoint.bare_config(), &endpoint.meter, fence)
            })?,
        };
        Ok(client.send(request).await?)
    }

    fn endpoint(&self) -> Arc<Endpoint> {
        self.0.endpoint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Endpoint {
    fn new(mut config: Config, metrics: Option<RestMetrics>) -> Result<Endpoint, ConnectError> {
        config.default_retry = false;
        config.disable_compression = true;
        config.read_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        let meter = Meter::new(metrics, &config.cluster_url);
        let client = build(config.clone(), &meter)?;
        Ok(Endpoint { config, client, meter, lazy: LazyClients::default() })
    }

    /// Configuration without the token and certificate of the process.
    fn bare_config(&self) -> Config {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        config
    }

    /// Sends one request that verifies address, certificates, credentials and permissions. Returns the UID of the first Node, which
    /// identifies the cluster; `None` if there are no Nodes or the probe does not list them.
    async fn probe(&self, probe: Probe) -> Result<Option<String>, String> {
        let request = Request::get(probe.path()).body(Vec::new()).map_err(|error| error.to_string())?;
        match tokio::time::timeout(PROBE_TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(Ok(nodes)) => Ok(nodes.pointer("/items/0/metadata/uid").and_then(Value::as_str).map(str::to_owned)),
            Ok(Err(error)) => Err(format!("the API server rejects the new credentials: {}", with_causes(&error))),
            Err(_) => Err(format!("the API server did not answer within {PROBE_TIMEOUT:?}")),
        }
    }

    /// Checks that this endpoint is the same cluster as `old`. The state of the process is valid for one cluster only: with it, the
    /// controllers would delete resources of another one. The address may change if the cluster is the same.
    async fn check_same_cluster(&self, old: &Endpoint, first_node: Option<String>) -> Result<(), String> {
        if self.config.cluster_url == old.config.cluster_url {
            return Ok(());
        }
        let is_same = first_node.is_some() && old.probe(Probe::Nodes).await.is_ok_and(|known| known == first_node);
        let (new, old) = (&self.config.cluster_url, &old.config.cluster_url);
        is_same.then_some(()).ok_or_else(|| {
            format!("cannot verify that {new} is the same cluster as {old}; restart the manager to use it")
        })
    }

    /// Whether the certificate of an exec plugin is about to expire.
    fn expires_soon(&self) -> bool {
        self.client.valid_until().is_some_and(|expiry| Timestamp::now() + RENEW_BEFORE_EXPIRY >= expiry)
    }
}

fn build(config: Config, meter: &Meter) -> Result<Client, ConnectError> {
    let builder = ClientBuilder::try_from(config).map_err(ConnectError::Client)?;
    Ok(builder.with_layer(&counted(meter)).build())
}

fn build_fenced(config: Config, meter: &Meter, fence: &Fence) -> Result<Client, ConnectError> {
    let builder = ClientBuilder::try_from((config, FencedExecutor(fence.clone()))).map_err(ConnectError::Client)?;
    Ok(builder.with_layer(&counted(meter)).build())
}

fn counted<S>(meter: &Meter) -> impl tower::Layer<S, Service = Counted<S>> {
    let meter = meter.clone();
    tower::layer::layer_fn(move |inner| Counted { inner, meter: meter.clone() })
}

fn get_or_build(
    cell: &OnceLock<Client>,
    build: impl FnOnce() -> Result<Client, ConnectError>,
) -> Result<Client, ConnectError> {
    match cell.get() {
        Some(client) => Ok(client.clone()),
        None => {
            let client = build()?;
            Ok(cell.get_or_init(|| client).clone())
        }
    }
}

/// Reloads the kubeconfig and the files it references. In a pod there are none: kube reloads token and CA itself, at least once
/// a minute.
impl Reloadable for Access {
    fn files(&self) -> Vec<PathBuf> {
        files(&self.0.options)
    }

    fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    fn other_sources(&self) -> Vec<String> {
        let is_pod = self.0.options.master.is_none() && self.files().is_empty();
        is_pod.then(|| "service account of the pod".to_owned()).into_iter().collect()
    }

    fn expires(&self) -> Option<Timestamp> {
        let endpoint = self.endpoint();
        endpoint.client.valid_until().iter().copied().chain(expiry(&endpoint.config.auth_info)).min()
    }

    fn is_due(&self) -> bool {
        self.endpoint().expires_soon()
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), String>> {
        async {
            let config = config(&self.0.options).await.map_err(|error| error.to_string())?;
            let endpoint =
                Endpoint::new(config, self.0.options.metrics.clone()).map_err(|error| with_causes(&error))?;
            let first_node = endpoint.probe(self.0.options.probe).await?;
            endpoint.check_same_cluster(&self.endpoint(), first_node).await?;
            *self.0.endpoint.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(endpoint);
            Ok(())
        }
        .boxed()
    }
}

/// Tower service that sets the user agent and applies the rate limit and the response timeout.
#[derive(Clone)]
struct ClientService<S> {
    inner: S,
    bucket: Option<Arc<TokenBucket>>,
    agent: Option<HeaderValue>,
    meter: Meter,
}

impl<S> Service<Request<Body>> for ClientService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(agent) = &self.agent {
            request.headers_mut().insert(USER_AGENT, agent.clone());
        }
        let metrics = self.meter.of(&request);
        let log = RequestLog::start(&request);
        // Nothing is sent before the future is polled.
        let response = self.inner.call(request);
        let bucket = self.bucket.clone();
        async move {
            let start = Instant::now();
            if let Some(bucket) = bucket {
                bucket.take().await;
            }
            // The response timeout starts after the rate limiter.
            if let Some((metrics, tags)) = metrics {
                metrics.record_wait(&tags, start.elapsed());
            }
            let response = match tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
                Ok(response) => response,
                Err(_) => Err(format!("the API server did not respond within {RESPONSE_TIMEOUT:?}").into()),
            };
            if let Some(log) = log {
                log.finish(&response);
            }
            response
        }
        .boxed()
    }
}
