//! HTTP client over the network or in process.

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
use crate::{Handler, Proxies, RequestError, Tls, TlsError};

/// Maximum size of a response. A page of a thousand servers has about two million bytes.
const MAX_RESPONSE: usize = 64 << 20;

/// Maximum memory reserved for an announced body before any of it has arrived.
const MAX_RESERVED: usize = 1 << 20;

/// Idle timeout of pooled connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of idle connections per host.
const MAX_IDLE: usize = 8;

/// Options of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Trusted CA certificates and client certificate.
    pub tls: Tls,
    /// Proxies.
    pub proxies: Proxies,
    /// Timeout of a request, from connecting to the last byte of the response.
    pub timeout: Duration,
}

/// HTTP client. Cheap to clone; clones share their connections.
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

/// Two connection pools, because a server may close an idle connection just when it is reused, and then it is unknown whether the
/// server received the request. A read is simply sent again. A write uses a new connection, which the server has no reason to close
/// and which the fence of the call closes.
struct Network {
    pooled: Connections,
    unpooled: Connections,
    proxies: Arc<Proxies>,
}

impl Client {
    /// Creates a client that sends requests over the network.
    pub fn new(options: Options) -> Result<Client, TlsError> {
        let Options { tls, proxies, timeout } = options;
        let proxies = Arc::new(proxies);
        let connector = Connector::new(tls.config()?, proxies.clone(), timeout);
        let network = Network {
            pooled: connections(TokioExecutor::new(), MAX_IDLE).build(connector.clone()),
            unpooled: connections(FencedExecutor, 0).build(connector),
            proxies,
        };
        Ok(Client { transport: Transport::Network(Arc::new(network)), timeout })
    }

    /// Creates a client that trusts the system's CA certificates and uses the proxies of the environment.
    pub fn from_environment(environment: &Environment, timeout: Duration) -> Result<Client, ConfigError> {
        let proxies = Proxies::from_environment(environment).map_err(|error| ConfigError::new(error.to_string()))?;
        let client = Client::new(Options { tls: Tls::default(), proxies, timeout });
        client.map_err(|error| ConfigError::new(error.to_string()))
    }

    /// Creates a client that passes requests to `handler`, with the same timeout.
    pub fn in_process(handler: Arc<dyn Handler>, timeout: Duration) -> Client {
        Client { transport: Transport::InProcess(handler), timeout }
    }

    /// Returns the same client with another timeout; both share their connections.
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client { timeout, ..self.clone() }
    }

    /// Returns the timeout of a request.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request, and reads the whole response.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        match tokio::time::timeout(self.timeout, self.transport.send(request)).await {
            Ok(response) => response,
            Err(_) => Err(RequestError::Timeout(self.timeout)),
        }
    }
}

/// Task of a hyper connection.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs connection tasks behind the fence of their call: a request that is in such a task while the process is suspended must not
/// be sent after another process has become the leader.
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

fn connections<E>(executor: E, max_idle: usize) -> legacy::Builder
where
    E: Executor<Task> + Clone + Send + Sync + 'static,
{
    let mut builder = legacy::Client::builder(executor);
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT).pool_max_idle_per_host(max_idle);
    builder
}

impl Transport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        match self {
            Transport::Network(network) => network.send(request).await,
            Transport::InProcess(handler) => handler.handle(request).await,
        }
    }
}

impl Network {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let request = self.prepare(request)?;
        if !is_read(&request) {
            return read_response(self.unpooled.request(request).await).await;
        }
        match self.pooled.request(request.clone()).await {
            Err(error) if was_closed(&error) => read_response(self.unpooled.request(request).await).await,
            outcome => read_response(outcome).await,
        }
    }

    fn prepare(&self, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, RequestError> {
        let mut request = request.map(Full::new);
        if !is_absolute(request.uri()) {
            return Err(RequestError::Request(format!("{} is not an http or https URL", request.uri())));
        }
        // The proxy reads the headers of unencrypted requests.
        if request.uri().scheme_str() == Some("http")
            && let Some(credentials) = self.proxies.of(request.uri()).and_then(|proxy| proxy.basic_auth().cloned())
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, credentials);
        }
        Ok(request)
    }
}

/// Returns whether the request only reads, by its method or by the effect of the call.
fn is_read<B>(request: &Request<B>) -> bool {
    request.method().is_safe() || request.extensions().get() == Some(&Effect::Read)
}

fn is_absolute(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
}

/// Reads the whole response.
async fn read_response(
    outcome: Result<Response<hyper::body::Incoming>, legacy::Error>,
) -> Result<Response<Bytes>, RequestError> {
    let (head, body) = outcome.map_err(|error| to_request_error(&error))?.into_parts();
    if let Some(encoding) = head.headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(RequestError::Encoded(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    let share = Share::default();
    // Reserving the announced length avoids copies while the body grows.
    let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    let body = read_body(Limited::new(body, MAX_RESPONSE), announced.min(MAX_RESERVED), &share).await?;
    let mut response = Response::from_parts(head, body);
    // The budget is released when the response is dropped.
    response.extensions_mut().insert(share);
    Ok(response)
}

/// Reads the whole body, if it and the responses of other calls fit into the budget.
async fn read_body(
    mut body: Limited<hyper::body::Incoming>,
    reserved: usize,
    share: &Share,
) -> Result<Bytes, RequestError> {
    let mut bytes = BytesMut::with_capacity(reserved);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let Ok(data) = frame.into_data() else { continue };
                if !share.take(data.len()) {
                    return Err(RequestError::OverBudget(BUDGET));
                }
                bytes.extend_from_slice(&data);
            }
            Err(error) if error.is::<LengthLimitError>() => return Err(RequestError::TooLarge(MAX_RESPONSE)),
            Err(error) => return Err(RequestError::Broken(with_causes(&*error))),
        }
    }
    Ok(bytes.freeze())
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// Returns whether the connection was closed before a response began.
fn was_closed(error: &legacy::Error) -> bool {
    !error.is_connect()
        && chain(error).any(|cause| {
            let is_incomplete = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            is_incomplete || matches!(kind, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
        })
}

/// Converts the error: that of the connector, that of TLS, or any other.
fn to_request_error(error: &legacy::Error) -> RequestError {
    let known = chain(error).find_map(|cause| match cause.downcast_ref::<RequestError>() {
        Some(error) => Some(error.clone()),
        None => cause.downcast_ref::<io::Error>().and_then(crate::tls::handshake_error).map(RequestError::Tls),
    });
    known.unwrap_or_else(|| {
        if error.is_connect() {
            RequestError::Connect(with_causes(error))
        } else {
            RequestError::Broken(with_causes(error))
        }
    })
}

/// Returns the message of an error and those of its causes that add something.
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
