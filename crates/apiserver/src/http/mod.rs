//! Serves HTTP requests.
//!
//! ```text
//! request ─► parse path ─► authenticate ─► authorize ─► faults ─► read body ─► verb ─► response
//! ```

pub(crate) mod body;
mod debug;
mod kinds;
pub(crate) mod negotiate;
mod non_resource;
pub(crate) mod path;
mod proxy;
pub(crate) mod query;
pub(crate) mod respond;

use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;

use crate::auth::{self, Attributes, User};
use crate::faults::{Effect, FaultTarget};
use crate::go_text;
use crate::journal::Entry;
use crate::limits::Memory;
use crate::metrics::RequestKind;
use crate::resources::Resource;
use crate::selectors::FieldSelector;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::verbs::{self, Call};

use self::negotiate::Negotiated;
pub use self::non_resource::KUBERNETES_MINOR;
use self::path::{ResourcePath, Target};
use self::query::Query;
use self::respond::Body;

/// The client of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// The client's certificate (DER), verified by TLS.
    pub(crate) certificate: Option<Arc<[u8]>>,
    /// Set for in-process clients, which need no credentials.
    pub(crate) trusted: Option<Arc<User>>,
    /// Address of the client; `None` in-process.
    pub(crate) address: Option<IpAddr>,
}

/// Serves one request. An error closes the connection without a response; only fault rules cause it.
pub(crate) async fn serve<B>(state: Arc<State>, peer: Peer, request: Request<B>) -> io::Result<Response<Body>>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let mut body = pin!(body);
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let mut context = Context { state, query, parts, metric: None, warnings: Vec::new(), body_read: false };
    let outcome = context.serve(peer, body.as_mut()).await;
    let mut response = match outcome {
        Ok(response) => response,
        Err(Failure::Api(error)) => {
            if context.is_sending() {
                body::discard(body).await;
            }
            let negotiated = Negotiated::for_errors(&context.parts.headers, &context.query);
            respond::error_response(&negotiated, &context.parts.headers, &error)
        }
        Err(Failure::Reset) => return Err(io::Error::new(io::ErrorKind::ConnectionReset, "reset by a fault rule")),
    };
    respond::add_warnings(&mut response, &context.warnings);
    if let Some(metric) = context.metric {
        context.state.requests.count(RequestKind { code: response.status().as_u16(), ..metric });
    }
    tracing::debug!(method = %context.parts.method, uri = %context.parts.uri, code = response.status().as_u16(), "served");
    Ok(response)
}

/// Why a request failed.
enum Failure {
    Api(ApiError),
    Reset,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        Failure::Api(error)
    }
}

/// Faults to inject while the request is processed.
#[derive(Default)]
struct Injected {
    truncate_watch: bool,
    drop_response: bool,
    response_delay: Duration,
}

struct Context {
    state: Arc<State>,
    query: Query,
    parts: Parts,
    /// Labels of the request metric, known once path and verb are parsed.
    metric: Option<RequestKind>,
    warnings: Vec<String>,
    body_read: bool,
}

impl Context {
    async fn serve<B>(&mut self, peer: Peer, body: Pin<&mut B>) -> Result<Response<Body>, Failure>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let target = path::parse(self.parts.uri.path());
        self.check_timeout(&target)?;
        let user = self.authenticate(&peer)?;
        match target {
            Target::Resource(path) => self.resource(path, user, body).await,
            Target::Proxy(path, rest) => self.proxy(path, &rest, user, peer.address, body).await,
            target => {
                let user = self.authorize(user, &self.unserved_attributes(&target))?;
                let state = self.state.clone();
                let client = state.limits.client(&user.name);
                let mut memory = client.memory();
                let body = self.read(body, &mut memory).await?;
                Ok(self.non_resource(target, &body)?)
            }
        }
    }

    async fn read<B>(&mut self, body: Pin<&mut B>, memory: &mut Memory<'_>) -> ApiResult<Bytes>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let bytes = body::read(body, memory).await?;
        self.body_read = true;
        Ok(bytes)
    }

    /// Whether the client may still be sending its body. A client that sent `Expect: 100-continue` has not started.
    fn is_sending(&self) -> bool {
        !self.body_read && !self.parts.headers.contains_key(http::header::EXPECT)
    }

    /// Validates the `timeout` parameter, which is otherwise ignored. Watches and logs do not have it.
    fn check_timeout(&self, target: &Target) -> ApiResult<()> {
        let long_running = match target {
            Target::Resource(path) => {
                path.subresource.is_some_and(|s| s.name == "log")
                    || verbs::verb_of(&self.parts.method, path, &self.query).is_ok_and(|verb| verb == "watch")
            }
            Target::Proxy(..) => true,
            _ => false,
        };
        let given = self.query.get("timeout").filter(|text| !text.is_empty() && !long_running);
        match given.and_then(go_text::duration_error) {
            Some(why) => Err(ApiError::bad_request(format!("invalid timeout specified in the request URL - {why}"))),
            None => Ok(()),
        }
    }

    fn authenticate(&self, peer: &Peer) -> ApiResult<User> {
        if let Some(user) = &peer.trusted {
            return Ok(User::clone(user));
        }
        let header = self.parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        auth::authenticate(&self.state, peer.certificate.as_deref(), header)
    }

    /// Applies impersonation, then authorizes the request. Returns the effective user.
    fn authorize(&self, user: User, attributes: &Attributes) -> ApiResult<User> {
        let user = auth::impersonate(&self.state, &user, &self.parts.headers)?.unwrap_or(user);
        auth::authorize(&self.state, &user, attributes)?;
        Ok(user)
    }

    fn unserved_attributes(&self, target: &Target) -> Attributes {
        let unserved = match target {
            Target::NoSuchResource | Target::Other => path::unserved(self.parts.uri.path(), &self.parts.method),
            _ => None,
        };
        let Some(mut attributes) = unserved else { return self.path_attributes() };
        if attributes.name.is_empty() {
            attributes.verb = match attributes.verb.as_str() {
                "get" if self.query.flag("watch") => "watch".into(),
                "get" => "list".into(),
                "delete" => "deletecollection".into(),
                _ => attributes.verb,
            };
        }
        attributes
    }

    fn path_attributes(&self) -> Attributes {
        Attributes {
            verb: self.parts.method.as_str().to_ascii_lowercase(),
            path: self.parts.uri.path().to_owned(),
            ..Attributes::default()
        }
    }

    fn resource_attributes(&self, path: &ResourcePath, verb: String) -> Attributes {
        // upstream: requests for a Namespace object have its name as their namespace.
        let namespace = if path.resource.plural == "namespaces" { &path.name } else { &path.namespace };
        Attributes {
            group: path.resource.group.into(),
            version: path.resource.version.into(),
            resource: path.resource.plural.into(),
            subresource: path.subresource.map(|s| s.name.to_owned()).unwrap_or_default(),
            namespace: namespace.clone(),
            name: self.selected_name(path, &verb).unwrap_or_else(|| path.name.clone()),
            path: String::new(),
            verb,
        }
    }

    /// The name of a list or watch with `metadata.name` in its field selector: permission for that object is enough.
    fn selected_name(&self, path: &ResourcePath, verb: &str) -> Option<String> {
        if !path.name.is_empty() || !matches!(verb, "list" | "watch") {
            return None;
        }
        let selector = FieldSelector::parse(path.resource, self.query.get("fieldSelector")?).ok()?;
        selector.exact_name().map(str::to_owned)
    }

    async fn resource<B>(
        &mut self,
        path: ResourcePath,
        user: User,
        body: Pin<&mut B>,
    ) -> Result<Response<Body>, Failure>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.warn_if_deprecated(path.resource);
        let verb = verbs::verb_of(&self.parts.method, &path, &self.query);
        let wanted =
            verb.as_ref().map_or_else(|_| self.parts.method.as_str().to_ascii_lowercase(), |v| (*v).to_owned());
        let subresource = path.subresource.map_or("", |subresource| subresource.name);
        let metric = |verb: &&'static str| RequestKind { verb, resource: path.resource.plural, subresource, code: 0 };
        // Set before authorization, so that the metric counts rejected requests.
        self.metric = verb.as_ref().ok().map(metric);
        let user = self.authorize(user, &self.resource_attributes(&path, wanted))?;
        let verb = verb?;
        self.record(verb, &path, &user);
        let Injected { truncate_watch, drop_response, response_delay } = self.inject(verb, &path).await?;
        let (state, name) = (self.state.clone(), user.name.clone());
        let client = state.limits.client(&name);
        let mut memory = client.memory();
        let body = self.read(body, &mut memory).await?;
        let call = Call {
            state: self.state.clone(),
            path,
            query: self.query.clone(),
            headers: self.parts.headers.clone(),
            user,
            body,
            warnings: Vec::new(),
            truncate_watch,
        };
        let (outcome, mut warnings) = call.run(verb, &client).await;
        self.warnings.append(&mut warnings);
        if !response_delay.is_zero() {
            tokio::time::sleep(response_delay).await;
        }
        if drop_response {
            return Err(Failure::Reset);
        }
        Ok(outcome?)
    }

    async fn proxy<B>(
        &mut self,
        path: ResourcePath,
        rest: &str,
        user: User,
        client: Option<IpAddr>,
        body: Pin<&mut B>,
    ) -> Result<Response<Body>, Failure>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let verb = path::verb_of_object(&self.parts.method);
        let subresource = path.subresource.map_or("", |subresource| subresource.name);
        self.metric = Some(RequestKind { verb, resource: path.resource.plural, subresource, code: 0 });
        let user = self.authorize(user, &self.resource_attributes(&path, verb.to_owned()))?;
        self.record(verb, &path, &user);
        let Injected { drop_response, response_delay, .. } = self.inject(verb, &path).await?;
        let state = self.state.clone();
        let limits = state.limits.client(&user.name);
        let body = self.read(body, &mut limits.memory()).await?;
        let request = proxy::ProxyRequest { state: &state, head: &self.parts, path: rest, body, client };
        let outcome = proxy::forward(request, &path.namespace, &path.name).await;
        tokio::time::sleep(response_delay).await;
        if drop_response { Err(Failure::Reset) } else { Ok(outcome?) }
    }

    fn warn_if_deprecated(&mut self, resource: &Resource) {
        if resource.kind == "Endpoints" {
            self.warnings.push("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into());
        }
    }

    /// Records the request in the journal.
    fn record(&self, verb: &str, path: &ResourcePath, user: &User) {
        if !self.state.options.debug_endpoints {
            return;
        }
        let agent = self.parts.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        self.state.journal.record(Entry {
            user: user.name.clone(),
            user_agent: agent.unwrap_or_default().to_owned(),
            verb: verb.to_owned(),
            resource: path.resource.plural.to_owned(),
            subresource: path.subresource.map_or("", |subresource| subresource.name).to_owned(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
        });
    }

    /// Applies the fault rules for this request. Returns the faults to inject later.
    async fn inject(&self, verb: &str, path: &ResourcePath) -> Result<Injected, Failure> {
        let mut injected = Injected::default();
        let target = FaultTarget {
            verb,
            resource: path.resource.plural,
            subresource: path.subresource.map_or("", |subresource| subresource.name),
            namespace: &path.namespace,
            name: &path.name,
        };
        for effect in self.state.faults.decide(target) {
            match effect {
                Effect::Latency(delay) => tokio::time::sleep(delay).await,
                Effect::Reset => return Err(Failure::Reset),
                Effect::AnswerLost => injected.drop_response = true,
                Effect::AnswerLate(delay) => injected.response_delay += delay,
                Effect::PartialWatchLine => injected.truncate_watch = true,
                Effect::Status { code, message, retry_after } => {
                    return Err(Failure::Api(ApiError::injected(code, &message, retry_after)));
                }
            }
        }
        Ok(injected)
    }

    fn non_resource(&mut self, target: Target, body: &[u8]) -> ApiResult<Response<Body>> {
        let request = non_resource::NonResourceRequest {
            state: &self.state,
            method: &self.parts.method,
            path: self.parts.uri.path(),
            query: &self.query,
            headers: &self.parts.headers,
            body,
        };
        non_resource::serve(&request, target)
    }
}
