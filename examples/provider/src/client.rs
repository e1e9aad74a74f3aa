//! Client of the cloud's API. One method makes one call; the call gate adds rate limits, retries and deadlines.

use std::time::Duration;

use bowline_cloud::{BuildContext, Effect, Error, ErrorKind, Result};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::LoadBalancerKey;
use bowline_http::{Api, Bearer, ErrorDecoder, ErrorResponse, Page, all_pages};
use http::Method;
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Config;

/// Number of servers per page.
pub(crate) const PAGE: usize = 50;

/// Timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Client of the cloud's API.
pub(crate) struct Client {
    api: Api,
}

/// A server, as the API returns it. Required fields have no default: a response without them is an error.
#[derive(Deserialize)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) size: String,
    #[serde(default)]
    pub(crate) private_ips: Vec<String>,
    #[serde(default)]
    pub(crate) public_ips: Vec<String>,
}

/// Status of a server. An unknown status is not treated as off.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Off,
    #[serde(other)]
    Other,
}

/// A page of servers, ordered by ID; `next` is the last ID of this page.
#[derive(Deserialize)]
pub(crate) struct Servers {
    pub(crate) servers: Vec<Server>,
    pub(crate) next: Option<String>,
}

/// A load balancer, as the API returns it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LoadBalancer {
    pub(crate) id: String,
    /// Name, which need not be unique.
    pub(crate) name: String,
    pub(crate) ip: String,
    /// Mark: the Service that it belongs to. `None` if another client created it.
    pub(crate) owner: Option<LoadBalancerKey>,
    pub(crate) ports: Vec<Port>,
    pub(crate) servers: Vec<String>,
}

/// A TCP port and the node port it forwards to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Port {
    pub(crate) port: u16,
    pub(crate) node_port: u16,
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.port, self.node_port)
    }
}

/// Fields of a load balancer to set. The cloud keeps the fields that are left out.
#[derive(Default, Serialize)]
struct Settings<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// `Some(None)` removes the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Option<&'a LoadBalancerKey>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<&'a [Port]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<&'a [String]>,
}

/// An entry of the route table, as the API returns it.
#[derive(Deserialize)]
pub(crate) struct RouteEntry {
    pub(crate) id: String,
    pub(crate) destination: IpNet,
    /// `None` after the server was deleted.
    pub(crate) server: Option<String>,
    pub(crate) node: Option<String>,
    /// Mark: the cluster that created it. `None` if another client did.
    pub(crate) cluster: Option<String>,
    pub(crate) cluster_uid: Option<String>,
}

/// A route to create.
#[derive(Serialize)]
pub(crate) struct NewRoute {
    pub(crate) destination: IpNet,
    pub(crate) server: String,
    pub(crate) node: String,
    pub(crate) cluster: String,
    pub(crate) cluster_uid: Option<String>,
}

impl RouteEntry {
    /// Returns whether this is the route that `new` would create.
    pub(crate) fn is(&self, new: &NewRoute) -> bool {
        let is = |value: &Option<String>, wanted: &str| value.as_deref() == Some(wanted);
        let leads_there = self.destination == new.destination && is(&self.server, &new.server);
        let is_marked = is(&self.cluster, &new.cluster) && self.cluster_uid == new.cluster_uid;
        leads_there && is_marked && is(&self.node, &new.node)
    }
}

/// Body of an error response.
#[derive(Deserialize)]
struct ErrorBody {
    code: String,
}

/// Decodes error responses.
struct Errors;

impl ErrorDecoder for Errors {
    fn decode(&self, refusal: &ErrorResponse<'_>) -> Error {
        let code = refusal.json().map(|body: ErrorBody| body.code).unwrap_or_default();
        // A proxy or a wrong endpoint also returns 404. Only the cloud's API returns these codes.
        match code.as_str() {
            "server_not_found" | "load_balancer_not_found" | "route_not_found" => {
                refusal.to_error_of(ErrorKind::NotFound)
            }
            "has_owner" | "destination_taken" => refusal.to_error_of(ErrorKind::AlreadyExists),
            "route_table_full" => refusal.to_error_of(ErrorKind::QuotaExceeded),
            _ if refusal.status() == 404 => refusal.to_error_of(ErrorKind::Unexpected),
            _ => refusal.to_error(),
        }
    }
}

impl Client {
    pub(crate) fn new(config: &Config, context: &BuildContext<'_>) -> std::result::Result<Client, ConfigErrors> {
        let http = bowline_http::Client::from_environment(context.environment, TIMEOUT)?;
        let token = Bearer::new(&config.token);
        let token = token.map_err(|error| ConfigError::flag("cloud-config", error.to_string()))?;
        let api = Api::new(http, context.calls, "servers").base(&config.endpoint).authorize(token).errors(Errors);
        Ok(Client { api })
    }

    /// Returns the server with this ID; `None` if the cloud has none.
    pub(crate) async fn server(&self, id: &str) -> Result<Option<Server>> {
        let found = self.api.call("server_get", Method::GET, &["servers", id]).find().await?;
        found.map(|response| response.json()).transpose()
    }

    /// Returns a page of servers, filtered by `name`, or `after` an ID.
    pub(crate) async fn servers(&self, query: &[(&str, &str)]) -> Result<Servers> {
        self.api.call("server_list", Method::GET, &["servers"]).query(query).send().await?.json()
    }

    /// Returns the load balancer of this owner. The cloud has at most one per owner.
    pub(crate) async fn load_balancer_of(&self, owner: &LoadBalancerKey) -> Result<Option<LoadBalancer>> {
        let query = [("cluster", owner.cluster.as_str()), ("uid", owner.uid.as_str())];
        Ok(self.load_balancers(&query).await?.pop())
    }

    /// Returns the load balancer with this ID; `None` if the cloud has none.
    pub(crate) async fn load_balancer(&self, id: &str) -> Result<Option<LoadBalancer>> {
        let found = self.api.call("load_balancer_get", Method::GET, &["load_balancers", id]).find().await?;
        found.map(|response| response.json()).transpose()
    }

    /// Lists the load balancers with this `name`, or with this `cluster` and `uid` in their owner.
    pub(crate) async fn load_balancers(&self, query: &[(&str, &str)]) -> Result<Vec<LoadBalancer>> {
        self.list("load_balancer_list", "load_balancers", query).await
    }

    /// Creates a load balancer. The cloud has at most one per owner and returns an existing one, so the call is idempotent.
    pub(crate) async fn create_load_balancer(&self, owner: &LoadBalancerKey, ports: &[Port]) -> Result<LoadBalancer> {
        let name = Some(format!("{}/{}", owner.namespace, owner.service));
        let settings = Settings { name, owner: Some(Some(owner)), ports: Some(ports), ..Settings::default() };
        let call = self.api.call("load_balancer_create", Method::POST, &["load_balancers"]).limited();
        call.effect(Effect::IdempotentWrite).json(&settings).send().await?.json()
    }

    /// Marks a load balancer with its owner. The cloud refuses to replace another owner; `None` removes the mark.
    pub(crate) async fn set_owner(&self, id: &str, owner: Option<&LoadBalancerKey>) -> Result<LoadBalancer> {
        self.set(id, Settings { owner: Some(owner), ..Settings::default() }).await
    }

    pub(crate) async fn set_ports(&self, id: &str, ports: &[Port]) -> Result<LoadBalancer> {
        self.set(id, Settings { ports: Some(ports), ..Settings::default() }).await
    }

    pub(crate) async fn set_servers(&self, id: &str, servers: &[String]) -> Result<LoadBalancer> {
        self.set(id, Settings { servers: Some(servers), ..Settings::default() }).await
    }

    async fn set(&self, id: &str, settings: Settings<'_>) -> Result<LoadBalancer> {
        self.api.call("load_balancer_set", Method::PUT, &["load_balancers", id]).json(&settings).send().await?.json()
    }

    /// Deletes a load balancer. Succeeds if it does not exist.
    pub(crate) async fn delete_load_balancer(&self, id: &str) -> Result<()> {
        self.delete("load_balancer_delete", &["load_balancers", id]).await
    }

    /// Lists the routes with this `cluster` or this `destination`.
    pub(crate) async fn routes(&self, query: &[(&str, &str)]) -> Result<Vec<RouteEntry>> {
        self.list("route_list", "routes", query).await
    }

    /// Creates a route. Fails with `AlreadyExists` if the CIDR has one.
    pub(crate) async fn create_route(&self, new: &NewRoute) -> Result<RouteEntry> {
        self.api.call("route_create", Method::POST, &["routes"]).json(new).send().await?.json()
    }

    /// Deletes a route. Succeeds if it does not exist.
    pub(crate) async fn delete_route(&self, id: &str) -> Result<()> {
        self.delete("route_delete", &["routes", id]).await
    }

    async fn delete(&self, name: &'static str, path: &[&str]) -> Result<()> {
        let deleted = self.api.call(name, Method::DELETE, path).find().await?;
        deleted.map_or(Ok(()), |response| response.without_result())
    }

    /// Reads all pages of a list. Each has the items in a field with the name of the resource, ordered by ID, and the last ID in
    /// `next` if there are more.
    async fn list<T: DeserializeOwned>(
        &self,
        name: &'static str,
        resource: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>> {
        let page = |after: Option<String>| async move {
            let after = after.iter().map(|after| ("after", after.as_str()));
            let query: Vec<_> = query.iter().copied().chain(after).collect();
            let response = self.api.call(name, Method::GET, &[resource]).query(&query).send().await?;
            let mut fields = response.fields()?;
            Ok(Page { items: fields.take(resource)?, next: fields.take_or_default("next")? })
        };
        all_pages(name, page).await
    }
}
