//! Speaks the cloud's API, over HTTP or in the same process.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_config::Secret;
use bowline_core::with_causes;
use bytes::Bytes;
use http::request::Builder;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{
    self, AssignRequest, BalancerView, ChangeRequest, CreateRouteRequest, DeleteRouteRequest, ErrorBody, ErrorReply,
    FaultInForce, FaultNumber, FindBalancersReply, FindBalancersRequest, FindReply, FindRequest, ListAddressesReply,
    ListBalancersReply, ListReply, ListRoutesReply, ListRoutesRequest, OwnersReply, OwnersRequest, RouteTablesReply,
    RouteView,
};
use crate::balancers::{Balancer, CloudAddress, NewBalancer, Observation};
use crate::cloud::{LocalCloud, Machine, NewMachine};
use crate::error::CallError;
use crate::faults::FaultSpec;
use crate::kernel::RouteProblem;
use crate::routes::{NewRoute, RouteRecord};

/// How long a call may take; the layers above may have less patience.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it may take to reach the cloud.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection without calls is kept.
const IDLE: Duration = Duration::from_secs(60);

/// The most that is read of an answer.
const LARGEST: usize = 16 << 20;

/// Where a cloud listens: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    authority: http::uri::Authority,
}

/// Asks the cloud.
pub(crate) struct Client {
    transport: Transport,
    token: Option<Secret>,
}

enum Transport {
    InProcess(LocalCloud),
    Http { endpoint: Endpoint, client: Box<HttpClient<HttpConnector, Full<Bytes>>> },
}

/// The owner's hands, over HTTP: what [`LocalCloud`]'s methods do in the same process. None of it is counted, slow or
/// struck by faults.
pub struct ManagementClient {
    client: Client,
}

impl Endpoint {
    /// The address in `text`.
    pub(crate) fn parse(text: &str) -> Result<Endpoint, CallError> {
        let bad =
            |why: &str| CallError::BadEndpoint(format!("the endpoint {text:?} {why}; http://HOST:PORT is wanted"));
        let uri: Uri = text.parse().map_err(|_| bad("is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(bad("does not start with http://"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(bad("has a path"));
        }
        match uri.authority() {
            Some(authority) if !authority.host().is_empty() && !authority.as_str().contains('@') => {
                Ok(Endpoint { authority: authority.clone() })
            }
            _ => Err(bad("has no host, or more than a host and a port")),
        }
    }

    fn uri(&self, path: &str) -> Result<Uri, http::Error> {
        Uri::builder().scheme("http").authority(self.authority.clone()).path_and_query(path).build()
    }
}

impl Client {
    /// For a cloud in this process.
    pub(crate) fn in_process(cloud: LocalCloud) -> Client {
        Client { transport: Transport::InProcess(cloud), token: None }
    }

    /// For a cloud that listens there.
    pub(crate) fn over_http(endpoint: Endpoint) -> Client {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let mut builder = HttpClient::builder(TokioExecutor::new());
        let client = builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
        Client { transport: Transport::Http { endpoint, client: Box::new(client) }, token: None }
    }

    /// Known to the cloud by this.
    pub(crate) fn with_token(self, token: Option<Secret>) -> Client {
        Client { token, ..self }
    }

    /// Looks for machines by their IDs and names.
    pub(crate) async fn find(&self, asked: &FindRequest) -> Result<FindReply, CallError> {
        self.call(Method::POST, "/v1/instances/find", asked).await
    }

    /// One page of all machines.
    pub(crate) async fn list(&self, page: Option<&str>, limit: usize) -> Result<ListReply, CallError> {
        self.ask(&listing(page, &[("limit", &limit.to_string())])).await
    }

    /// Leads a pod range to a machine.
    pub(crate) async fn assign_pod_range(&self, asked: &AssignRequest) -> Result<(), CallError> {
        self.call::<Done>(Method::POST, "/v1/pod-ranges/assign", asked).await.map(drop)
    }

    /// All that there is for these askers.
    pub(crate) async fn find_balancers(&self, asked: &FindBalancersRequest) -> Result<FindBalancersReply, CallError> {
        self.call(Method::POST, "/v1/balancers/find", asked).await
    }

    /// Whose balancers and addresses there are.
    pub(crate) async fn owners(&self, asked: &OwnersRequest) -> Result<OwnersReply, CallError> {
        self.call(Method::POST, "/v1/balancers/owners", asked).await
    }

    /// One change of one thing; all that there is for the asker afterwards.
    pub(crate) async fn change(&self, ordered: &ChangeRequest) -> Result<Observation, CallError> {
        self.call(Method::POST, "/v1/balancers/change", ordered).await
    }

    /// All routes of a cluster.
    pub(crate) async fn list_routes(&self, asked: &ListRoutesRequest) -> Result<ListRoutesReply, CallError> {
        self.call(Method::POST, "/v1/routes/list", asked).await
    }

    /// Leads a range to a machine; the route, which may have been there.
    pub(crate) async fn create_route(&self, asked: &CreateRouteRequest) -> Result<RouteView, CallError> {
        self.call(Method::POST, "/v1/routes/create", asked).await
    }

    /// Removes a route.
    pub(crate) async fn delete_route(&self, asked: &DeleteRouteRequest) -> Result<(), CallError> {
        self.call::<Done>(Method::POST, "/v1/routes/delete", asked).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        let body = serde_json::to_vec(body).map_err(|error| CallError::Garbled(error.to_string()))?;
        self.send(method, path, body.into()).await
    }

    async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, CallError> {
        let request = self.request(method).map_err(|error| CallError::BadEndpoint(error.to_string()))?;
        let sent = tokio::time::timeout(PATIENCE, self.transport.send(request, path, body));
        let response = sent.await.map_err(|_| CallError::TimedOut(PATIENCE))??;
        if !response.status().is_success() {
            return Err(refusal(&response));
        }
        serde_json::from_slice(response.body()).map_err(|error| CallError::Garbled(error.to_string()))
    }

    fn request(&self, method: Method) -> Result<Builder, http::Error> {
        let request = Request::builder().method(method).header(header::CONTENT_TYPE, "application/json");
        let Some(token) = &self.token else { return Ok(request) };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))?;
        value.set_sensitive(true);
        Ok(request.header(header::AUTHORIZATION, value))
    }
}

/// The answer to an order that has no other answer. Nothing else is one: what makes no sense is no success.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {}

impl Transport {
    async fn send(&self, request: Builder, path: &str, body: Bytes) -> Result<Response<Bytes>, CallError> {
        let built = |error: http::Error| CallError::BadEndpoint(error.to_string());
        match self {
            Transport::InProcess(cloud) => Ok(api::answer(cloud, request.uri(path).body(body).map_err(built)?).await),
            Transport::Http { endpoint, client } => {
                let request = request.uri(endpoint.uri(path).map_err(built)?).body(Full::new(body)).map_err(built)?;
                receive(client.request(request).await.map_err(|error| CallError::Unreachable(with_causes(&error)))?)
                    .await
            }
        }
    }
}

async fn receive(response: Response<hyper::body::Incoming>) -> Result<Response<Bytes>, CallError> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await;
    let body = body.map_err(|error| CallError::Garbled(format!("it broke off: {error}")))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

/// What a refusal says, as far as it can be understood: something else than our cloud may be answering.
fn refusal(response: &Response<Bytes>) -> CallError {
    let foreign = |_| ErrorReply { error: ErrorBody { message: "something refuses".to_owned(), ..Default::default() } };
    let error = serde_json::from_slice::<ErrorReply>(response.body()).unwrap_or_else(foreign).error;
    let retry_after = error.retry_after_millis.map(Duration::from_millis).or_else(|| retry_after(response));
    CallError::Refused { status: response.status().as_u16(), code: error.code, message: error.message, retry_after }
}

/// The header field, if it is a number of seconds; its other form, a date, is not used here.
fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
    let text = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

fn listing(page: Option<&str>, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(page.map(|page| ("page", page))).extend_pairs(parameters);
    format!("/v1/instances?{}", query.finish())
}

impl ManagementClient {
    /// For the cloud that listens at `http://HOST:PORT`.
    pub fn new(endpoint: &str) -> Result<ManagementClient, CallError> {
        Ok(ManagementClient { client: Client::over_http(Endpoint::parse(endpoint)?) })
    }

    /// Makes a machine, running.
    pub async fn add(&self, machine: &NewMachine) -> Result<Machine, CallError> {
        self.client.call(Method::POST, "/v1/instances", machine).await
    }

    /// All machines, by ID.
    pub async fn list(&self) -> Result<Vec<Machine>, CallError> {
        let (mut machines, mut page) = (Vec::new(), None);
        loop {
            let reply: ListReply = self.client.ask(&listing(page.as_deref(), &[("as", "owner")])).await?;
            machines.extend(reply.instances.iter().map(|machine| Machine::clone(machine)));
            page = reply.next;
            if page.is_none() {
                return Ok(machines);
            }
        }
    }

    /// The machine of this ID.
    pub async fn get(&self, id: &str) -> Result<Machine, CallError> {
        self.client.ask(&format!("{}?as=owner", instance(id))).await
    }

    /// Changes these fields of a machine (RFC 7396).
    pub async fn patch(&self, id: &str, fields: &Value) -> Result<Machine, CallError> {
        self.client.call(Method::PATCH, &instance(id), fields).await
    }

    /// Stops the machine of this ID.
    pub async fn stop(&self, id: &str) -> Result<(), CallError> {
        self.order(Method::POST, &format!("{}/stop", instance(id))).await
    }

    /// Starts the machine of this ID.
    pub async fn start(&self, id: &str) -> Result<(), CallError> {
        self.order(Method::POST, &format!("{}/start", instance(id))).await
    }

    /// Removes the machine of this ID.
    pub async fn delete(&self, id: &str) -> Result<(), CallError> {
        self.order(Method::DELETE, &instance(id)).await
    }

    /// All balancers, by ID, with how they are doing.
    pub async fn balancers(&self) -> Result<Vec<BalancerView>, CallError> {
        Ok(self.client.ask::<ListBalancersReply>("/v1/balancers").await?.balancers)
    }

    /// The balancer of this ID, with how it is doing.
    pub async fn balancer(&self, id: &str) -> Result<BalancerView, CallError> {
        self.client.ask(&balancer(id)).await
    }

    /// Makes a balancer, which may be anybody's or nobody's.
    pub async fn add_balancer(&self, balancer: &NewBalancer) -> Result<Balancer, CallError> {
        self.client.call(Method::POST, "/v1/balancers", balancer).await
    }

    /// Removes the balancer of this ID, whosever it is.
    pub async fn delete_balancer(&self, id: &str) -> Result<(), CallError> {
        self.order(Method::DELETE, &balancer(id)).await
    }

    /// All addresses of balancers, by ID.
    pub async fn addresses(&self) -> Result<Vec<CloudAddress>, CallError> {
        Ok(self.client.ask::<ListAddressesReply>("/v1/addresses").await?.addresses)
    }

    /// The routes of this cluster, by range.
    pub async fn routes(&self, cluster: &str) -> Result<Vec<RouteRecord>, CallError> {
        let reply: RouteTablesReply = self.client.ask(&of_cluster("/v1/routes", cluster)).await?;
        Ok(reply.tables.into_iter().find(|(name, _)| name == cluster).map(|(_, routes)| routes).unwrap_or_default())
    }

    /// The routes of all clusters that have any, by the cluster's name.
    pub async fn route_tables(&self) -> Result<BTreeMap<String, Vec<RouteRecord>>, CallError> {
        Ok(self.client.ask::<RouteTablesReply>("/v1/routes").await?.tables)
    }

    /// What keeps the kernel's routes from being what the tables say.
    pub async fn route_problems(&self) -> Result<Vec<RouteProblem>, CallError> {
        Ok(self.client.ask::<RouteTablesReply>("/v1/routes").await?.problems)
    }

    /// Makes a route in a cluster's table.
    pub async fn add_route(&self, cluster: &str, route: &NewRoute) -> Result<RouteRecord, CallError> {
        self.client.call(Method::POST, &of_cluster("/v1/routes", cluster), route).await
    }

    /// Removes the route of this ID from a cluster's table.
    pub async fn remove_route(&self, cluster: &str, id: &str) -> Result<(), CallError> {
        self.order(Method::DELETE, &of_cluster(&format!("/v1/routes/{}", segment(id)), cluster)).await
    }

    /// From now on, the cloud goes wrong like this; the number takes it back.
    pub async fn inject(&self, fault: &FaultSpec) -> Result<u64, CallError> {
        let number: FaultNumber = self.client.call(Method::POST, "/v1/faults", fault).await?;
        Ok(number.number)
    }

    /// The faults in force.
    pub async fn faults(&self) -> Result<Vec<FaultInForce>, CallError> {
        #[derive(serde::Deserialize)]
        struct Faults {
            faults: Vec<FaultInForce>,
        }
        Ok(self.client.ask::<Faults>("/v1/faults").await?.faults)
    }

    /// Takes a fault back; all of them without a number.
    pub async fn repair(&self, number: Option<u64>) -> Result<(), CallError> {
        let path = number.map_or_else(|| "/v1/faults".to_owned(), |number| format!("/v1/faults/{number}"));
        self.order(Method::DELETE, &path).await
    }

    /// How long every call takes from now on.
    pub async fn set_latency(&self, latency: Duration) -> Result<(), CallError> {
        let _: Value =
            self.client.call(Method::PUT, "/v1/latency", &json!({ "millis": latency.as_millis() as u64 })).await?;
        Ok(())
    }

    /// How often each kind of call was made.
    pub async fn calls(&self) -> Result<BTreeMap<String, u64>, CallError> {
        self.client.ask("/v1/calls").await
    }

    /// Counts from zero again.
    pub async fn reset_calls(&self) -> Result<(), CallError> {
        self.order(Method::DELETE, "/v1/calls").await
    }

    async fn order(&self, method: Method, path: &str) -> Result<(), CallError> {
        self.client.send::<Value>(method, path, Bytes::new()).await.map(drop)
    }
}

/// The place of a machine. What cannot be an ID is written so that it stays one segment, and the cloud then says that
/// there is no such machine.
fn instance(id: &str) -> String {
    format!("/v1/instances/{}", segment(id))
}

fn balancer(id: &str) -> String {
    format!("/v1/balancers/{}", segment(id))
}

fn of_cluster(path: &str, cluster: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    format!("{path}?{}", query.append_pair("cluster", cluster).finish())
}

fn segment(id: &str) -> String {
    form_urlencoded::byte_serialize(id.as_bytes()).collect()
}
