//! Client of the cloud's API. One method makes one call; the call gate adds rate limits, retries and deadlines.

use std::time::Duration;

use bowline_cloud::{BuildContext, Effect, Error, ErrorKind, Result};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::LoadBalancerKey;
use bowline_http::{Api, Bearer, ErrorDecoder, ErrorResponse, Page, all_pages};
use http::Method;
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
    pub(crate) ip: String,
    /// The Service that it belongs to; none if another client created it.
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

/// A page of load balancers, ordered by ID.
#[derive(Deserialize)]
struct LoadBalancers {
    load_balancers: Vec<LoadBalancer>,
    next: Option<String>,
}

/// Fields of a load balancer to set. The cloud keeps the fields that are left out.
#[derive(Default, Serialize)]
struct Settings<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a LoadBalancerKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<&'a [Port]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<&'a [String]>,
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
        // A proxy or a wrong endpoint also returns 404. Only the cloud's API returns these codes.
        match refusal.json() {
            Some(ErrorBody { code }) if code == "server_not_found" => refusal.to_error_of(ErrorKind::NotFound),
            Some(ErrorBody { code }) if code == "load_balancer_not_found" => refusal.to_error_of(ErrorKind::NotFound),
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
        match self.api.call("server_get", Method::GET, &["servers", id]).send().await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer?.json().map(Some),
        }
    }

    /// Returns a page of servers, filtered by `name`, or `after` an ID.
    pub(crate) async fn servers(&self, query: &[(&str, &str)]) -> Result<Servers> {
        self.api.call("server_list", Method::GET, &["servers"]).query(query).send().await?.json()
    }

    /// Returns the load balancer of this owner.
    pub(crate) async fn load_balancer(&self, owner: &LoadBalancerKey) -> Result<Option<LoadBalancer>> {
        let query = [("cluster", owner.cluster.as_str()), ("uid", owner.uid.as_str())];
        Ok(self.load_balancers(&query).await?.pop())
    }

    /// Lists the load balancers whose owner matches the query.
    pub(crate) async fn load_balancers(&self, query: &[(&str, &str)]) -> Result<Vec<LoadBalancer>> {
        let page = |after: Option<String>| {
            let after = after.iter().map(|after| ("after", after.as_str()));
            let query: Vec<_> = query.iter().copied().chain(after).collect();
            let call = self.api.call("load_balancer_list", Method::GET, &["load_balancers"]).query(&query);
            async move {
                call.send()
                    .await?
                    .json()
                    .map(|page: LoadBalancers| Page { items: page.load_balancers, next: page.next })
            }
        };
        all_pages("list load balancers", page).await
    }

    /// Creates a load balancer. The cloud has at most one per owner and returns an existing one, so the call is idempotent.
    pub(crate) async fn create_load_balancer(&self, owner: &LoadBalancerKey, ports: &[Port]) -> Result<LoadBalancer> {
        let settings = Settings { owner: Some(owner), ports: Some(ports), ..Settings::default() };
        let call = self.api.call("load_balancer_create", Method::POST, &["load_balancers"]);
        call.effect(Effect::IdempotentWrite).json(&settings).send().await?.json()
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
        match self.api.call("load_balancer_delete", Method::DELETE, &["load_balancers", id]).send().await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }
}
