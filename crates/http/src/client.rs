//! The client.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Effect;
use bowline_config::{ConfigError, Environment};
use bowline_runtime::Fence;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, PROXY_AUTHORIZATION};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::rt::Executor;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::budget::{BUDGET, Share};
use crate::connect::Connector;
use crate::{Failure, Handler, Proxies, Tls, TlsError};

/// The largest answer that anybody has a use for. A page of a thousand servers is about two million bytes.
const LARGEST: usize = 64 << 20;

/// Memory that is reserved for an announced body before any of it has come.
const RESERVED: usize = 1 << 20;

/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(30);

/// How many are kept for one service.
const KEPT: usize = 8;

/// What a client is made from.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whom to trust, and with which certificate.
    pub tls: Tls,
    /// Through whom to go.
    pub proxies: Proxies,
    /// How long a request may take, from the first step of connecting to the last byte of the answer.
    pub timeout: Duration,
}

/// Sends requests. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    timeout: Duration,
}

#[derive(Clone)]
enum Transport {
    Network(Arc<Network>),
    InProcess(Arc<dyn Handler>),
}

type Connections = legacy::Client<Connector, Full<Bytes>>;

/// Two ways over the network, because a server may close a kept connection in the moment in which it is used again, and then it
/// is unknown whether it took the request. What only reads is simply sent again; what changes something goes over a
/// connection of its own, which the server has no reason to close, and which the fence of the call closes.
struct Network {
    kept: Connections,
    fresh: Connections,
    proxies: Arc<Proxies>,
}

impl Client {
    /// One that asks over the network.
    pub fn new(options: Options) -> Result<Client, TlsError> {
        let Options { tls, proxies, timeout } = options;
        let proxies = Arc::new(proxies);
        let connector = Connector::new(tls.config()?, proxies.clone(), timeout);
        let network = Network {
            kept: connections(TokioExecutor::new(), KEPT).build(connector.clone()),
            fresh: connections(FencedExecutor, 0).build(connector),
            proxies,
        };
        Ok(Client { transport: Transport::Network(Arc::new(network)), timeout })
    }

    /// One that trusts the roots of the system and uses the proxies of the environment.
    pub fn from_environment(environment: &Environment, timeout: Duration) -> Result<Client, ConfigError> {
        let proxies = Proxies::from_environment(environment).map_err(|error| ConfigError::new(error.to_string()))?;
        let client = Client::new(Options { tls: Tls::default(), proxies, timeout });
        client.map_err(|error| ConfigError::new(error.to_string()))
    }

    /// One that asks nobody but `handler`, and gives up after `timeout` all the same.
    pub fn in_process(handler: Arc<dyn Handler>, timeout: Duration) -> Client {
        Client { transport: Transport::InProcess(handler), timeout }
    }

    /// How long a request may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends this, and waits for the whole answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        match tokio::time::timeout(self.timeout, self.transport.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Timeout(self.timeout)),
        }
    }
}

/// Task of a connection, as hyper hands it over.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the tasks of connections behind the fence of the call that they are for: a request that its task holds when the process
/// stands still must not be sent when another one leads.
#[derive(Clone)]
struct FencedExecutor;

impl Executor<Task> for FencedExecutor {
    fn execute(&self, task: Task) {
        match Fence::current() {
            Some(fence) => drop(tokio::spawn(async move { fence.guard(task).await })),
            None => drop(tokio::spawn(task)),
        }
    }
}

fn connections<E>(executor: E, kept: usize) -> legacy::Builder
where
    E: Executor<Task> + Clone + Send + Sync + 'static,
{
    let mut builder = legacy::Client::builder(executor);
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(kept);
    builder
}

impl Transport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        match self {
            Transport::Network(network) => network.send(request).await,
            Transport::InProcess(handler) => handler.handle(request).await,
        }
    }
}

impl Network {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        let request = self.prepared(request)?;
        if !is_read(&request) {
            return whole(self.fresh.request(request).await).await;
        }
        match self.kept.request(request.clone()).await {
            Err(error) if was_closed(&error) => whole(self.fresh.request(request).await).await,
            outcome => whole(outcome).await,
        }
    }

    fn prepared(&self, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = request.map(Full::new);
        if !is_absolute(request.uri()) {
            return Err(Failure::Request(format!("{} is no URL of http or https", request.uri())));
        }
        // Of what is not encrypted, the proxy reads the head itself.
        if request.uri().scheme_str() == Some("http")
            && let Some(proof) = self.proxies.of(request.uri()).and_then(|proxy| proxy.basic_auth().cloned())
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, proof);
        }
        Ok(request)
    }
}

/// The method says that it only reads, or the call does.
fn is_read<B>(request: &Request<B>) -> bool {
    request.method().is_safe() || request.extensions().get() == Some(&Effect::Read)
}

fn is_absolute(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
}

/// The answer with all of its body.
async fn whole(outcome: Result<Response<hyper::body::Incoming>, legacy::Error>) -> Result<Response<Bytes>, Failure> {
    let (head, body) = outcome.map_err(|error| outcome_unknown(&error))?.into_parts();
    if let Some(encoding) = head.headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(Failure::Encoded(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    let share = Share::default();
    // A body that is as long as announced is not copied while it grows; one that is longer than announced is.
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    let body = within_budget(Limited::new(body, LARGEST), announced.min(RESERVED), &share).await?;
    let mut answer = Response::from_parts(head, body);
    // The budget has it back when the answer is dropped.
    answer.extensions_mut().insert(share);
    Ok(answer)
}

/// All of the body, as long as it and the answers of other calls fit into the budget.
async fn within_budget(
    mut body: Limited<hyper::body::Incoming>,
    reserved: usize,
    share: &Share,
) -> Result<Bytes, Failure> {
    let mut bytes = BytesMut::with_capacity(reserved);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let Ok(data) = frame.into_data() else { continue };
                if !share.take(data.len()) {
                    return Err(Failure::Crowded(BUDGET));
                }
                bytes.extend_from_slice(&data);
            }
            Err(error) if error.is::<LengthLimitError>() => return Err(Failure::TooLarge(LARGEST)),
            Err(error) => return Err(Failure::Broken(with_causes(&*error))),
        }
    }
    Ok(bytes.freeze())
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// Whether the connection ended before an answer began.
fn was_closed(error: &legacy::Error) -> bool {
    !error.is_connect()
        && chain(error).any(|cause| {
            let is_cut = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            is_cut || matches!(kind, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
        })
}

/// Why there is no answer: what the connector says of it, what TLS says of it, or whatever there is.
fn outcome_unknown(error: &legacy::Error) -> Failure {
    let known = chain(error).find_map(|cause| match cause.downcast_ref::<Failure>() {
        Some(failure) => Some(failure.clone()),
        None => cause.downcast_ref::<io::Error>().and_then(crate::tls::failure).map(Failure::Tls),
    });
    known.unwrap_or_else(|| {
        if error.is_connect() { Failure::Connect(with_causes(error)) } else { Failure::Broken(with_causes(error)) }
    })
}

/// What the error says, and what the ones below it say beyond that.
pub(crate) fn with_causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    for cause in chain(error).map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
