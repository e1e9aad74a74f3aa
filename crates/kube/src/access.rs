//! The way to the API server, whose credentials may be exchanged under way.
//!
//! ```text
//!  kube::Client (one per user: own agent, own rate) ──┐
//!  kube::Client                                      ─┼─► Access ──► Way (address, CA, credentials) ◄── exchanged on change
//!  kube::Client of a controller + its token          ─┘       └────► the same without credentials
//! ```
//!
//! Requests that have to pass a fence go through connections of their own, which the fence closes.
//!
//! What is under way when a way is replaced ends on the old one: each request holds on to the connections it began with.

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
use crate::rest::{Counted, Meter, RestMetrics};
use crate::told::Told;

/// The longest that the API server may take to begin an answer, be it a page of a list; writes have less time.
const ANSWER_BEGINS_WITHIN: Duration = Duration::from_secs(60);
/// The longest silence within an answer. Longer than a watch goes without being renewed, as nothing may happen in one.
const LONGEST_SILENCE: Duration = Duration::from_secs(330);
/// How long new credentials have to show that they work.
const PROBED_WITHIN: Duration = Duration::from_secs(10);
/// Credentials that end are renewed this long before.
const BEFORE_THE_END: Duration = Duration::from_secs(60);

/// The way to the API server. Clones are the same one.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    options: ClientOptions,
    made_from: Fingerprint,
    way: RwLock<Arc<Way>>,
}

/// One address with one set of credentials.
struct Way {
    config: Config,
    client: Client,
    meter: Meter,
    /// Further clients on this way, each made when it is first needed.
    others: Others,
}

#[derive(Default)]
struct Others {
    /// Without credentials.
    bare: OnceLock<Client>,
    /// With connections that the fence closes, of which a process has one, for requests that write.
    fenced: OnceLock<Client>,
    fenced_bare: OnceLock<Client>,
}

impl Access {
    /// Reads what it takes to reach the API server. Connects when it is first used.
    pub async fn open(options: &ClientOptions) -> Result<Access, ConnectError> {
        // An agent that cannot be sent is told at the start, and not with the first request.
        user_agent(&options.user)?;
        let made_from = Fingerprint::of(&files(options));
        let way = Way::new(config(options).await?, options.metrics.clone())?;
        Ok(Access(Arc::new(Shared { options: options.clone(), made_from, way: RwLock::new(Arc::new(way)) })))
    }

    /// A client with the credentials of the process, under the name in the options.
    pub fn client(&self) -> Client {
        self.named(&self.0.options.user)
    }

    /// Where the API server is.
    pub fn address(&self) -> http::Uri {
        self.way().config.cluster_url.clone()
    }

    /// A client with the credentials of the process, with a user agent and a rate of its own (CL-2, CL-3).
    pub fn named(&self, user: &str) -> Client {
        let access = self.clone();
        self.around(user, tower::service_fn(move |request| access.clone().send(request)))
    }

    /// As [`named`](Access::named), without a rate: for what must not be held up, as the renewal of a lease.
    pub fn urgent(&self, user: &str) -> Client {
        let access = self.clone();
        self.gated(user, None, tower::service_fn(move |request| access.clone().send(request)))
    }

    /// A client around a service that sends requests on this way.
    pub(crate) fn around<S>(&self, user: &str, inner: S) -> Client
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Send + 'static,
        S::Future: Send + 'static,
    {
        let bucket = self.0.options.rate.map(|(rate, burst)| Arc::new(TokenBucket::new(rate, burst)));
        self.gated(user, bucket, inner)
    }

    fn gated<S>(&self, user: &str, bucket: Option<Arc<TokenBucket>>, inner: S) -> Client
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = BoxError> + Send + 'static,
        S::Future: Send + 'static,
    {
        let way = self.way();
        let gate = Gate { inner, bucket, agent: user_agent(user).ok(), meter: way.meter.clone() };
        Client::new(gate, way.config.default_namespace.clone())
    }

    /// Sends it with the credentials of the process.
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let way = self.way();
        let client = match fence_of(&request) {
            None => way.client.clone(),
            Some(fence) => made_once(&way.others.fenced, || build_fenced(way.config.clone(), &way.meter, fence))?,
        };
        Ok(client.send(request).await?)
    }

    /// Sends it without any credentials but those that it carries.
    pub(crate) async fn send_bare(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let way = self.way();
        let client = match fence_of(&request) {
            None => made_once(&way.others.bare, || build(way.bare_config(), &way.meter))?,
            Some(fence) => made_once(&way.others.fenced_bare, || build_fenced(way.bare_config(), &way.meter, fence))?,
        };
        Ok(client.send(request).await?)
    }

    fn way(&self) -> Arc<Way> {
        self.0.way.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Way {
    fn new(mut config: Config, metrics: Option<RestMetrics>) -> Result<Way, ConnectError> {
        config.default_retry = false;
        config.disable_compression = true;
        config.read_timeout = Some(LONGEST_SILENCE);
        config.reset_reader_on_write = true;
        let meter = Meter::new(metrics, &config.cluster_url);
        let client = build(config.clone(), &meter)?;
        Ok(Way { config, client, meter, others: Others::default() })
    }

    /// Neither a token nor a certificate of the process goes along.
    fn bare_config(&self) -> Config {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        config
    }

    /// Asks the least that shows that address, certificates, credentials and rights are right. Hands on the UID of the first
    /// Node, which no other cluster has; `None` if there are no Nodes, or nobody looks at them.
    async fn probe(&self, probe: Probe) -> Result<Option<String>, String> {
        let request = Request::get(probe.path()).body(Vec::new()).map_err(|error| error.to_string())?;
        match tokio::time::timeout(PROBED_WITHIN, self.client.request::<Value>(request)).await {
            Ok(Ok(nodes)) => Ok(nodes.pointer("/items/0/metadata/uid").and_then(Value::as_str).map(str::to_owned)),
            Ok(Err(error)) => Err(format!("the API server does not take them: {}", with_causes(&error))),
            Err(_) => Err(format!("the API server did not answer within {PROBED_WITHIN:?}")),
        }
    }

    /// Whether this leads to where `old` does. What was seen and decided holds for one cluster: to go on with it in another
    /// would delete what it does not know. An address may change, if what is there is the same.
    async fn leads_where(&self, old: &Way, first_node: Option<String>) -> Result<(), String> {
        if self.config.cluster_url == old.config.cluster_url {
            return Ok(());
        }
        let is_same = first_node.is_some() && old.probe(Probe::Nodes).await.is_ok_and(|known| known == first_node);
        let (here, there) = (&self.config.cluster_url, &old.config.cluster_url);
        is_same.then_some(()).ok_or_else(|| {
            format!(
                "they lead to {here}, which cannot be seen to be the cluster at {there}; restart the manager to use it"
            )
        })
    }

    /// A plugin handed out a certificate that is about to end.
    fn ends_soon(&self) -> bool {
        self.client.valid_until().is_some_and(|end| Timestamp::now() + BEFORE_THE_END >= end)
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

fn made_once(
    made: &OnceLock<Client>,
    make: impl FnOnce() -> Result<Client, ConnectError>,
) -> Result<Client, ConnectError> {
    match made.get() {
        Some(client) => Ok(client.clone()),
        None => {
            let client = make()?;
            Ok(made.get_or_init(|| client).clone())
        }
    }
}

/// The kubeconfig and the files that it names. In a pod there are none: there the client below reads the token and the CA
/// again by itself, at least once a minute.
impl Reloadable for Access {
    fn files(&self) -> Vec<PathBuf> {
        files(&self.0.options)
    }

    fn made_from(&self) -> Fingerprint {
        self.0.made_from
    }

    fn other_sources(&self) -> Vec<String> {
        let is_pod = self.0.options.master.is_none() && self.files().is_empty();
        is_pod.then(|| "service account of the pod".to_owned()).into_iter().collect()
    }

    fn expires(&self) -> Option<Timestamp> {
        let way = self.way();
        way.client.valid_until().iter().copied().chain(expiry(&way.config.auth_info)).min()
    }

    fn is_due(&self) -> bool {
        self.way().ends_soon()
    }

    fn renew(&self) -> BoxFuture<'_, Result<(), String>> {
        async {
            let config = config(&self.0.options).await.map_err(|error| error.to_string())?;
            let way = Way::new(config, self.0.options.metrics.clone()).map_err(|error| with_causes(&error))?;
            let first_node = way.probe(self.0.options.probe).await?;
            way.leads_where(&self.way(), first_node).await?;
            *self.0.way.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(way);
            Ok(())
        }
        .boxed()
    }
}

/// Says who asks, holds requests back if there is a rate, and lets none wait for an answer for ever.
#[derive(Clone)]
struct Gate<S> {
    inner: S,
    bucket: Option<Arc<TokenBucket>>,
    agent: Option<HeaderValue>,
    meter: Meter,
}

impl<S> Service<Request<Body>> for Gate<S>
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
        let waiting = self.meter.of(&request);
        let told = Told::begin(&request);
        // Nothing is sent before this is polled.
        let answer = self.inner.call(request);
        let bucket = self.bucket.clone();
        async move {
            let asked = Instant::now();
            if let Some(bucket) = bucket {
                bucket.take().await;
            }
            // A request that waits for its turn is not under way yet.
            if let Some((metrics, tags)) = waiting {
                metrics.waited(&tags, asked.elapsed());
            }
            let answer = match tokio::time::timeout(ANSWER_BEGINS_WITHIN, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer from the API server within {ANSWER_BEGINS_WITHIN:?}").into()),
            };
            if let Some(told) = told {
                told.end(&answer);
            }
            answer
        }
        .boxed()
    }
}
