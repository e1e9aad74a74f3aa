//! Speaks the cloud's API, over HTTP or in the same process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Calls, Effect, Error, ErrorKind, PageGuard, Result};
use bowline_config::Secret;
use bowline_http::{Api, CallBuilder, Client as HttpClient, Options, Proxies, Roots, Tls};
use http::{Method, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{
    self, AssignRequest, BalancerView, ChangeRequest, CreateRouteRequest, DeleteRouteRequest, FaultInForce,
    FaultNumber, FindBalancersReply, FindBalancersRequest, FindReply, FindRequest, ListAddressesReply,
    ListBalancersReply, ListReply, ListRoutesReply, ListRoutesRequest, OwnersReply, OwnersRequest, RouteTablesReply,
    RouteView, TagRequest,
};
use crate::balancers::{Balancer, CloudAddress, NewBalancer, Observation};
use crate::cloud::{LocalCloud, Machine, NewMachine};
use crate::error::{Refusals, garbled};
use crate::faults::FaultSpec;
use crate::kernel::RouteProblem;
use crate::routes::{NewRoute, RouteRecord};
use crate::token::Token;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Address of a cloud in this process, which nothing resolves.
const IN_PROCESS: &str = "http://local";

/// Where a cloud listens: `http://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint(String);

/// Calls the cloud.
pub(crate) struct Client {
    instances: Api,
    balancers: Api,
    routes: Api,
}

/// The owner's hands, over HTTP: what [`LocalCloud`]'s methods do in the same process. None of it is counted, slow or
/// struck by faults.
pub struct ManagementClient {
    api: Api,
}

impl Endpoint {
    /// The address in `text`.
    pub(crate) fn parse(text: &str) -> Result<Endpoint> {
        let bad = |why: &str| {
            let message = format!("the endpoint {text:?} {why}; http://HOST:PORT is wanted");
            Error::new(ErrorKind::InvalidConfig, "read the endpoint", message)
        };
        let uri: Uri = text.parse().map_err(|_| bad("is no URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(bad("does not start with http://"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(bad("has a path"));
        }
        match uri.authority() {
            Some(authority) if !authority.host().is_empty() && !authority.as_str().contains('@') => {
                Ok(Endpoint(format!("http://{authority}")))
            }
            _ => Err(bad("has no host, or more than a host and a port")),
        }
    }

    /// A client for what listens there. The cloud speaks http alone.
    fn client(&self) -> Result<HttpClient> {
        let (tls, proxies) = (Tls { roots: Roots::None, ..Tls::default() }, Proxies::default());
        let client = HttpClient::new(Options { tls, proxies, timeout: PATIENCE });
        client.map_err(|error| Error::new(ErrorKind::Unexpected, "make a client", error.to_string()))
    }
}

impl Client {
    /// For a cloud in this process.
    pub(crate) fn in_process(cloud: LocalCloud, token: &Token, calls: &Calls) -> Client {
        let handler = move |request| {
            let cloud = cloud.clone();
            async move { Ok(api::answer(&cloud, request).await) }
        };
        Client::new(&HttpClient::in_process(Arc::new(handler), PATIENCE), token, calls, IN_PROCESS)
    }

    /// For a cloud that listens there and knows us by this token.
    pub(crate) fn over_http(endpoint: &Endpoint, token: &Token, calls: &Calls) -> Result<Client> {
        Ok(Client::new(&endpoint.client()?, token, calls, &endpoint.0))
    }

    fn new(client: &HttpClient, token: &Token, calls: &Calls, base: &str) -> Client {
        let api = |service| {
            let api = Api::new(client.clone(), calls, service).base(base).errors(Refusals);
            api.authorize(token.clone())
        };
        Client { instances: api("instances"), balancers: api("balancers"), routes: api("routes") }
    }

    /// Looks for machines by their IDs and names.
    pub(crate) async fn find(&self, asked: &FindRequest) -> Result<FindReply> {
        ask(&self.instances, "instances_find", &["v1", "instances", "find"], asked).await
    }

    /// One page of all machines.
    pub(crate) async fn list(&self, page: Option<&str>, limit: usize) -> Result<ListReply> {
        let call = self.instances.call("instances_list", Method::GET, &["v1", "instances"]);
        read(page_of(call, page).query(&[("limit", limit.to_string())])).await
    }

    /// Leads a pod range to a machine.
    pub(crate) async fn assign_pod_cidrs(&self, asked: &AssignRequest) -> Result<()> {
        order(&self.instances, "pod_ranges_assign", &["v1", "pod-ranges", "assign"], asked).await.map(drop::<Done>)
    }

    /// Puts a tag on a machine, or takes it off.
    pub(crate) async fn change_tag(&self, asked: &TagRequest) -> Result<()> {
        order(&self.instances, "tags_change", &["v1", "tags", "change"], asked).await.map(drop::<Done>)
    }

    /// All that there is for these askers.
    pub(crate) async fn find_balancers(&self, asked: &FindBalancersRequest) -> Result<FindBalancersReply> {
        ask(&self.balancers, "balancers_find", &["v1", "balancers", "find"], asked).await
    }

    /// Whose balancers and addresses there are.
    pub(crate) async fn owners(&self, asked: &OwnersRequest) -> Result<OwnersReply> {
        ask(&self.balancers, "balancers_owners", &["v1", "balancers", "owners"], asked).await
    }

    /// One change of one thing; all that there is for the asker afterwards.
    pub(crate) async fn change(&self, ordered: &ChangeRequest) -> Result<Observation> {
        order(&self.balancers, "balancers_change", &["v1", "balancers", "change"], ordered).await
    }

    /// All routes of a cluster.
    pub(crate) async fn list_routes(&self, asked: &ListRoutesRequest) -> Result<ListRoutesReply> {
        ask(&self.routes, "routes_list", &["v1", "routes", "list"], asked).await
    }

    /// Leads a range to a machine; the route, which may have been there.
    pub(crate) async fn create_route(&self, asked: &CreateRouteRequest) -> Result<RouteView> {
        order(&self.routes, "routes_create", &["v1", "routes", "create"], asked).await
    }

    /// Removes a route.
    pub(crate) async fn delete_route(&self, asked: &DeleteRouteRequest) -> Result<()> {
        order(&self.routes, "routes_delete", &["v1", "routes", "delete"], asked).await.map(drop::<Done>)
    }
}

/// The answer to an order that has no other answer. Nothing else is one: what makes no sense is no success.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Done {}

/// A POST that only reads.
async fn ask<T: DeserializeOwned>(api: &Api, name: &'static str, path: &[&str], body: &impl Serialize) -> Result<T> {
    read(api.call(name, Method::POST, path).effect(Effect::Read).json(body)).await
}

/// A POST that the cloud takes twice as it does once.
async fn order<T: DeserializeOwned>(api: &Api, name: &'static str, path: &[&str], body: &impl Serialize) -> Result<T> {
    read(api.call(name, Method::POST, path).effect(Effect::IdempotentWrite).json(body)).await
}

async fn read<T: DeserializeOwned>(call: CallBuilder<'_>) -> Result<T> {
    call.send().await?.json()
}

fn page_of<'a>(call: CallBuilder<'a>, page: Option<&str>) -> CallBuilder<'a> {
    match page {
        Some(page) => call.query(&[("page", page)]),
        None => call,
    }
}

impl ManagementClient {
    /// For the cloud that listens at `http://HOST:PORT`.
    pub fn new(endpoint: &str) -> Result<ManagementClient> {
        let endpoint = Endpoint::parse(endpoint)?;
        let api = Api::new(endpoint.client()?, &Calls::default(), "management").base(&endpoint.0).errors(Refusals);
        Ok(ManagementClient { api })
    }

    /// Shows this token of the owner, without which the cloud takes no changes ([`Server::owner_token`]).
    ///
    /// [`Server::owner_token`]: crate::Server::owner_token
    pub fn with_token(self, token: &Secret) -> Result<ManagementClient> {
        let owner = Token::default();
        owner.set(token)?;
        Ok(ManagementClient { api: self.api.authorize(owner) })
    }

    /// Makes a machine, running.
    pub async fn add(&self, machine: &NewMachine) -> Result<Machine> {
        self.send(Method::POST, &["instances"], machine).await
    }

    /// All machines, by ID.
    pub async fn list(&self) -> Result<Vec<Machine>> {
        let (mut machines, mut guard, mut page) = (Vec::new(), PageGuard::default(), None::<String>);
        loop {
            let call = page_of(self.get_call(&["instances"]), page.as_deref());
            let reply: ListReply = read(call.query(&[("as", "owner")])).await?;
            machines.extend(reply.instances.iter().map(|machine| Machine::clone(machine)));
            let Some(next) = reply.next else { return Ok(machines) };
            guard
                .on(&next, reply.instances.len())
                .map_err(|why| garbled("list machines", &format!("the list {why}")))?;
            page = Some(next);
        }
    }

    /// The machine of this ID.
    pub async fn get(&self, id: &str) -> Result<Machine> {
        read(self.get_call(&["instances", id]).query(&[("as", "owner")])).await
    }

    /// Changes these fields of a machine (RFC 7396).
    pub async fn patch(&self, id: &str, fields: &Value) -> Result<Machine> {
        self.send(Method::PATCH, &["instances", id], fields).await
    }

    /// Stops the machine of this ID.
    pub async fn stop(&self, id: &str) -> Result<()> {
        self.order(Method::POST, &["instances", id, "stop"]).await
    }

    /// Starts the machine of this ID.
    pub async fn start(&self, id: &str) -> Result<()> {
        self.order(Method::POST, &["instances", id, "start"]).await
    }

    /// Removes the machine of this ID.
    pub async fn delete(&self, id: &str) -> Result<()> {
        self.order(Method::DELETE, &["instances", id]).await
    }

    /// All balancers, by ID, with how they are doing.
    pub async fn balancers(&self) -> Result<Vec<BalancerView>> {
        Ok(read::<ListBalancersReply>(self.get_call(&["balancers"])).await?.balancers)
    }

    /// The balancer of this ID, with how it is doing.
    pub async fn balancer(&self, id: &str) -> Result<BalancerView> {
        read(self.get_call(&["balancers", id])).await
    }

    /// Makes a balancer, which may be anybody's or nobody's.
    pub async fn add_balancer(&self, balancer: &NewBalancer) -> Result<Balancer> {
        self.send(Method::POST, &["balancers"], balancer).await
    }

    /// Removes the balancer of this ID, whosever it is.
    pub async fn delete_balancer(&self, id: &str) -> Result<()> {
        self.order(Method::DELETE, &["balancers", id]).await
    }

    /// All addresses of balancers, by ID.
    pub async fn addresses(&self) -> Result<Vec<CloudAddress>> {
        Ok(read::<ListAddressesReply>(self.get_call(&["addresses"])).await?.addresses)
    }

    /// The routes of this cluster, by range.
    pub async fn routes(&self, cluster: &str) -> Result<Vec<RouteRecord>> {
        let reply: RouteTablesReply = read(self.get_call(&["routes"]).query(&[("cluster", cluster)])).await?;
        Ok(reply.tables.into_iter().find(|(name, _)| name == cluster).map(|(_, routes)| routes).unwrap_or_default())
    }

    /// The routes of all clusters that have any, by the cluster's name.
    pub async fn route_tables(&self) -> Result<BTreeMap<String, Vec<RouteRecord>>> {
        Ok(read::<RouteTablesReply>(self.get_call(&["routes"])).await?.tables)
    }

    /// What keeps the kernel's routes from being what the tables say.
    pub async fn route_problems(&self) -> Result<Vec<RouteProblem>> {
        Ok(read::<RouteTablesReply>(self.get_call(&["routes"])).await?.problems)
    }

    /// Makes a route in a cluster's table.
    pub async fn add_route(&self, cluster: &str, route: &NewRoute) -> Result<RouteRecord> {
        read(self.call(Method::POST, &["routes"]).query(&[("cluster", cluster)]).json(route)).await
    }

    /// Removes the route of this ID from a cluster's table.
    pub async fn remove_route(&self, cluster: &str, id: &str) -> Result<()> {
        let call = self.call(Method::DELETE, &["routes", id]).query(&[("cluster", cluster)]);
        read::<Value>(call).await.map(drop)
    }

    /// From now on, the cloud goes wrong like this; the number takes it back.
    pub async fn inject(&self, fault: &FaultSpec) -> Result<u64> {
        let number: FaultNumber = self.send(Method::POST, &["faults"], fault).await?;
        Ok(number.number)
    }

    /// The faults in force.
    pub async fn faults(&self) -> Result<Vec<FaultInForce>> {
        #[derive(serde::Deserialize)]
        struct Faults {
            faults: Vec<FaultInForce>,
        }
        Ok(read::<Faults>(self.get_call(&["faults"])).await?.faults)
    }

    /// Takes a fault back; all of them without a number.
    pub async fn repair(&self, number: Option<u64>) -> Result<()> {
        match number {
            Some(number) => self.order(Method::DELETE, &["faults", &number.to_string()]).await,
            None => self.order(Method::DELETE, &["faults"]).await,
        }
    }

    /// How long every call takes from now on.
    pub async fn set_latency(&self, latency: Duration) -> Result<()> {
        let millis = json!({ "millis": latency.as_millis() as u64 });
        self.send::<Value>(Method::PUT, &["latency"], &millis).await.map(drop)
    }

    /// How often each kind of call was made.
    pub async fn calls(&self) -> Result<BTreeMap<String, u64>> {
        read(self.get_call(&["calls"])).await
    }

    /// Counts from zero again.
    pub async fn reset_calls(&self) -> Result<()> {
        self.order(Method::DELETE, &["calls"]).await
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

    async fn order(&self, method: Method, path: &[&str]) -> Result<()> {
        read::<Value>(self.call(method, path)).await.map(drop)
    }
}
