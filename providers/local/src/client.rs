//! Client of the cloud's API, over HTTP or in process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_agent::RouteProblem;
use bowline_agent_client::client::{query, read, write};
use bowline_agent_client::{ApiErrors, Balancer, CloudAddress, NewBalancer, invalid_response};
use bowline_cloud::{Calls, Error, ErrorKind, PageGuard, Result};
use bowline_config::Secret;
use bowline_http::{Api, CallBuilder, Client as HttpClient, Options, Proxies, Roots, Tls};
use http::{Method, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{
    self, AssignRequest, BalancerView, CreateRouteRequest, DeleteRouteRequest, FaultInForce, FaultNumber, FindReply,
    FindRequest, ListAddressesReply, ListBalancersReply, ListReply, ListRoutesReply, ListRoutesRequest,
    RouteTablesReply, RouteView, TagRequest,
};
use crate::cloud::{LocalCloud, Machine, NewMachine};
use crate::faults::FaultSpec;
use crate::routes::{NewRoute, RouteRecord};
use crate::token::Token;

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Placeholder address of a cloud in this process.
const IN_PROCESS: &str = "http://local";

/// Endpoint of a cloud: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint(String);

/// Client of the user API.
pub(crate) struct Client {
    instances: Api,
    /// API of load balancers, for [`AgentLoadBalancers`](bowline_agent_client::AgentLoadBalancers).
    pub(crate) balancers: Api,
    routes: Api,
}

/// Client of the management API: the methods of [`LocalCloud`], over HTTP. These calls are not counted, have no latency and are
/// not subject to faults.
pub struct ManagementClient {
    api: Api,
}

impl Endpoint {
    /// Parses an endpoint.
    pub(crate) fn parse(text: &str) -> Result<Endpoint> {
        let invalid = |why: &str| {
            let message = format!("the endpoint {text:?} {why}; expected http://HOST:PORT");
            Error::new(ErrorKind::InvalidConfig, "read the endpoint", message)
        };
        let uri: Uri = text.parse().map_err(|_| invalid("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid("does not start with http://"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(invalid("has a path"));
        }
        match uri.authority() {
            Some(authority) if !authority.host().is_empty() && !authority.as_str().contains('@') => {
                Ok(Endpoint(format!("http://{authority}")))
            }
            _ => Err(invalid("does not consist of a host and a port")),
        }
    }

    /// Creates an HTTP client for the endpoint, without TLS.
    fn client(&self) -> Result<HttpClient> {
        let (tls, proxies) = (Tls { roots: Roots::None, ..Tls::default() }, Proxies::default());
        let client = HttpClient::new(Options { tls, proxies, timeout: TIMEOUT });
        client.map_err(|error| Error::new(ErrorKind::Unexpected, "create a client", error.to_string()))
    }
}

impl Client {
    /// Client of a cloud in this process.
    pub(crate) fn in_process(cloud: LocalCloud, token: &Token, calls: &Calls) -> Client {
        let handler = move |request| {
            let cloud = cloud.clone();
            async move { Ok(api::respond(&cloud, request).await) }
        };
        Client::new(&HttpClient::in_process(Arc::new(handler), TIMEOUT), token, calls, IN_PROCESS)
    }

    /// Client of a cloud at this endpoint.
    pub(crate) fn over_http(endpoint: &Endpoint, token: &Token, calls: &Calls) -> Result<Client> {
        Ok(Client::new(&endpoint.client()?, token, calls, &endpoint.0))
    }

    fn new(client: &HttpClient, token: &Token, calls: &Calls, base: &str) -> Client {
        let api = |service| {
            let api = Api::new(client.clone(), calls, service).base(base).errors(ApiErrors);
            api.authorize(token.clone())
        };
        Client { instances: api("instances"), balancers: api("balancers"), routes: api("routes") }
    }

    /// Looks up machines by ID and name.
    pub(crate) async fn find(&self, request: &FindRequest) -> Result<FindReply> {
        query(&self.instances, "instances_find", &["v1", "instances", "find"], request).await
    }

    /// Reads a page of machines.
    pub(crate) async fn list(&self, page: Option<&str>, limit: usize) -> Result<ListReply> {
        let call = self.instances.call("instances_list", Method::GET, &["v1", "instances"]);
        read(page_of(call, page).query(&[("limit", limit.to_string())])).await
    }

    /// Adds a pod CIDR to a machine.
    pub(crate) async fn assign_pod_cidrs(&self, request: &AssignRequest) -> Result<()> {
        write(&self.instances, "pod_ranges_assign", &["v1", "pod-ranges", "assign"], request).await.map(drop::<Done>)
    }

    /// Adds a tag to a machine or removes it.
    pub(crate) async fn change_tag(&self, request: &TagRequest) -> Result<()> {
        write(&self.instances, "tags_change", &["v1", "tags", "change"], request).await.map(drop::<Done>)
    }

    /// Lists the routes of a cluster.
    pub(crate) async fn list_routes(&self, request: &ListRoutesRequest) -> Result<ListRoutesReply> {
        query(&self.routes, "routes_list", &["v1", "routes", "list"], request).await
    }

    /// Creates a route, or returns the existing one.
    pub(crate) async fn create_route(&self, request: &CreateRouteRequest) -> Result<RouteView> {
        write(&self.routes, "routes_create", &["v1", "routes", "create"], request).await
    }

    /// Deletes a route.
    pub(crate) async fn delete_route(&self, request: &DeleteRouteRequest) -> Result<()> {
        write(&self.routes, "routes_delete", &["v1", "routes", "delete"], request).await.map(drop::<Done>)
    }
}

/// Empty response. Any other body is an error, so an invalid response does not count as success.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {}

fn page_of<'a>(call: CallBuilder<'a>, page: Option<&str>) -> CallBuilder<'a> {
    match page {
        Some(page) => call.query(&[("page", page)]),
        None => call,
    }
}

impl ManagementClient {
    /// Client of the cloud at `http://HOST:PORT`.
    pub fn new(endpoint: &str) -> Result<ManagementClient> {
        let endpoint = Endpoint::parse(endpoint)?;
        let api = Api::new(endpoint.client()?, &Calls::default(), "management").base(&endpoint.0).errors(ApiErrors);
        Ok(ManagementClient { api })
    }

    /// Authenticates with the token of the owner, which the cloud requires for changes ([`Server::owner_token`]).
    ///
    /// [`Server::owner_token`]: crate::Server::owner_token
    pub fn with_token(self, token: &Secret) -> Result<ManagementClient> {
        let owner = Token::default();
        owner.set(token)?;
        Ok(ManagementClient { api: self.api.authorize(owner) })
    }

    /// Creates a running machine.
    pub async fn add(&self, machine: &NewMachine) -> Result<Machine> {
        self.send(Method::POST, &["instances"], machine).await
    }

    /// Lists all machines, by ID.
    pub async fn list(&self) -> Result<Vec<Machine>> {
        let (mut machines, mut guard, mut page) = (Vec::new(), PageGuard::default(), None::<String>);
        loop {
            let call = page_of(self.get_call(&["instances"]), page.as_deref());
            let reply: ListReply = read(call.query(&[("as", "owner")])).await?;
            machines.extend(reply.instances.iter().map(|machine| Machine::clone(machine)));
            let Some(next) = reply.next else { return Ok(machines) };
            guard
                .check(&next, reply.instances.len())
                .map_err(|why| invalid_response("list machines", &format!("the list {why}")))?;
            page = Some(next);
        }
    }

    /// Reads the machine with this ID.
    pub async fn get(&self, id: &str) -> Result<Machine> {
        read(self.get_call(&["instances", id]).query(&[("as", "owner")])).await
    }

    /// Changes these fields of a machine (RFC 7396).
    pub async fn patch(&self, id: &str, fields: &Value) -> Result<Machine> {
        self.send(Method::PATCH, &["instances", id], fields).await
    }

    /// Stops the machine with this ID.
    pub async fn stop(&self, id: &str) -> Result<()> {
        self.send_empty(Method::POST, &["instances", id, "stop"]).await
    }

    /// Starts the machine with this ID.
    pub async fn start(&self, id: &str) -> Result<()> {
        self.send_empty(Method::POST, &["instances", id, "start"]).await
    }

    /// Deletes the machine with this ID.
    pub async fn delete(&self, id: &str) -> Result<()> {
        self.send_empty(Method::DELETE, &["instances", id]).await
    }

    /// Lists all load balancers, by ID, with their status.
    pub async fn balancers(&self) -> Result<Vec<BalancerView>> {
        Ok(read::<ListBalancersReply>(self.get_call(&["balancers"])).await?.balancers)
    }

    /// Reads the load balancer with this ID and its status.
    pub async fn balancer(&self, id: &str) -> Result<BalancerView> {
        read(self.get_call(&["balancers", id])).await
    }

    /// Creates a load balancer, with or without an owner.
    pub async fn add_balancer(&self, balancer: &NewBalancer) -> Result<Balancer> {
        self.send(Method::POST, &["balancers"], balancer).await
    }

    /// Deletes the load balancer with this ID, whatever its owner.
    pub async fn delete_balancer(&self, id: &str) -> Result<()> {
        self.send_empty(Method::DELETE, &["balancers", id]).await
    }

    /// Lists all addresses of load balancers, by ID.
    pub async fn addresses(&self) -> Result<Vec<CloudAddress>> {
        Ok(read::<ListAddressesReply>(self.get_call(&["addresses"])).await?.addresses)
    }

    /// Lists the routes of a cluster, by destination.
    pub async fn routes(&self, cluster: &str) -> Result<Vec<RouteRecord>> {
        let reply: RouteTablesReply = read(self.get_call(&["routes"]).query(&[("cluster", cluster)])).await?;
        Ok(reply.tables.into_iter().find(|(name, _)| name == cluster).map(|(_, routes)| routes).unwrap_or_default())
    }

    /// Lists all route tables, by cluster name.
    pub async fn route_tables(&self) -> Result<BTreeMap<String, Vec<RouteRecord>>> {
        Ok(read::<RouteTablesReply>(self.get_call(&["routes"])).await?.tables)
    }

    /// Lists the kernel routes that differ from the tables.
    pub async fn route_problems(&self) -> Result<Vec<RouteProblem>> {
        Ok(read::<RouteTablesReply>(self.get_call(&["routes"])).await?.problems)
    }

    /// Creates a route in the table of a cluster.
    pub async fn add_route(&self, cluster: &str, route: &NewRoute) -> Result<RouteRecord> {
        read(self.call(Method::POST, &["routes"]).query(&[("cluster", cluster)]).json(route)).await
    }

    /// Deletes a route from the table of a cluster.
    pub async fn remove_route(&self, cluster: &str, id: &str) -> Result<()> {
        let call = self.call(Method::DELETE, &["routes", id]).query(&[("cluster", cluster)]);
        read::<Value>(call).await.map(drop)
    }

    /// Injects a fault and returns its number.
    pub async fn inject(&self, fault: &FaultSpec) -> Result<u64> {
        let number: FaultNumber = self.send(Method::POST, &["faults"], fault).await?;
        Ok(number.number)
    }

    /// Lists the faults in force.
    pub async fn faults(&self) -> Result<Vec<FaultInForce>> {
        #[derive(serde::Deserialize)]
        struct Faults {
            faults: Vec<FaultInForce>,
        }
        Ok(read::<Faults>(self.get_call(&["faults"])).await?.faults)
    }

    /// Removes a fault, or all faults without a number.
    pub async fn repair(&self, number: Option<u64>) -> Result<()> {
        match number {
            Some(number) => self.send_empty(Method::DELETE, &["faults", &number.to_string()]).await,
            None => self.send_empty(Method::DELETE, &["faults"]).await,
        }
    }

    /// Sets the latency of every user call.
    pub async fn set_latency(&self, latency: Duration) -> Result<()> {
        let millis = json!({ "millis": latency.as_millis() as u64 });
        self.send::<Value>(Method::PUT, &["latency"], &millis).await.map(drop)
    }

    /// Number of user calls, by kind.
    pub async fn calls(&self) -> Result<BTreeMap<String, u64>> {
        read(self.get_call(&["calls"])).await
    }

    /// Resets the call counters.
    pub async fn reset_calls(&self) -> Result<()> {
        self.send_empty(Method::DELETE, &["calls"]).await
    }

    fn call(&self, method: Method, path: &[&str]) -> CallBuilder<'_> {
        self.api.call("manage", method, &[&["v1"], path].concat())
    }

    fn get_call(&self, path: &[&str]) -> CallBuilder<'_> {
        self.call(Method::GET, path)
    }

    async fn send<T: DeserializeOwned>(&self, method: Method, path: &[&str], body: &impl Serialize) -> Result<T> {
        read(self.call(method, path).json(body)).await
    }

    async fn send_empty(&self, method: Method, path: &[&str]) -> Result<()> {
        read::<Value>(self.call(method, path)).await.map(drop)
    }
}
