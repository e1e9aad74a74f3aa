//! A group of agents for a provider: load balancers, routes, and what `bowline check` reports.
//!
//! ```text
//!  Config::read:  AgentConfig::read(view, errors)                   the section `agent`
//!  Factory:       Agents::new(&config, context)
//!  CloudProvider: capabilities    load_balancer_capabilities(), route_capabilities()
//!                 load_balancers  agents.load_balancers()
//!                 routes          agents.routes()
//!                 files           agents.files()
//!                 check           agents.check(cluster)
//!                 diagnose        agents.diagnose(addresses of machines)
//!                 quotas          agents.quotas()
//! ```

use std::path::PathBuf;

use bowline_cloud::{BuildContext, Calls, LoadBalancerCapabilities, LoadBalancerKind, Result, RouteCapabilities};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{ClusterName, IpFamily};
use bowline_http::{Api, Client, Roots, Tls, TlsError, user_agent};
use http::{HeaderValue, header};

use crate::client;
use crate::config::{AgentConfig, AgentKeys, Endpoint, key_of};
use crate::endpoints::{Agent, Endpoints, agents};
use crate::errors::AgentErrors;
use crate::load_balancers::AgentLoadBalancers;
use crate::messages::OwnersRequest;
use crate::routes::AgentRoutes;

/// Name of the API in the call layer.
const SERVICE: &str = "agents";

/// Base URL of a group in error messages, which name the agents.
const GROUP: &str = "https://agent-group";

/// Program in the user agent.
const PROGRAM: &str = concat!("bowline/", env!("CARGO_PKG_VERSION"));

/// Section of the configuration, for errors without a line.
const SECTION: &str = "agent";

/// A group of agents.
pub struct Agents {
    api: Api,
    /// Each agent on its own, for its status.
    pub(crate) each: Vec<(String, Api)>,
    load_balancers: AgentLoadBalancers,
    routes: AgentRoutes,
    files: Vec<PathBuf>,
}

impl Agents {
    /// Creates a client for the group. Makes no call.
    pub fn new(config: &AgentConfig, context: &BuildContext<'_>) -> std::result::Result<Agents, ConfigErrors> {
        let tls = config.tls.load().map_err(|errors| {
            let mut all = ConfigErrors::new();
            let error =
                |setting, message| ConfigError::new(message).field(format!("{SECTION}.{}", key_of(setting).name));
            errors.into_iter().for_each(|found| all.push(error(found.setting, found.message).hint(found.hint)));
            all
        })?;
        // Without CA certificates, all agents are Unix sockets.
        let tls = if config.tls.ca_file.is_some() { tls } else { Tls { roots: Roots::None, ..tls } };
        let agents = agents(&config.endpoints, tls).map_err(|error| invalid(&error))?;
        let user_agent = user_agent(context.user_agents, PROGRAM)?;
        Ok(Agents { files: config.files(), ..Agents::of(agents, context.calls, &user_agent) })
    }

    /// Creates a group of one agent behind an HTTP client, for tests.
    pub fn over(client: Client, calls: &Calls) -> Agents {
        let endpoint = Endpoint::Https("https://agent".to_owned());
        Agents::of(vec![Agent { endpoint, client }], calls, &HeaderValue::from_static(PROGRAM))
    }

    fn of(agents: Vec<Agent>, calls: &Calls, user_agent: &HeaderValue) -> Agents {
        let api = |agents: Vec<Agent>| {
            let base =
                if let [agent] = agents.as_slice() { agent.endpoint.base().to_owned() } else { GROUP.to_owned() };
            let api = Api::new(Endpoints::new(agents).client(), calls, SERVICE).base(&base).errors(AgentErrors);
            api.header(header::USER_AGENT, user_agent.clone())
        };
        let each = agents.iter().map(|agent| (agent.endpoint.to_string(), api(vec![agent.clone()]))).collect();
        let api = api(agents);
        let load_balancers = AgentLoadBalancers::new(api.clone(), None, true);
        let routes = AgentRoutes::new(api.clone());
        Agents { api, each, load_balancers, routes, files: Vec::new() }
    }

    /// Returns the load balancers.
    pub fn load_balancers(&self) -> &AgentLoadBalancers {
        &self.load_balancers
    }

    /// Returns the routes.
    pub fn routes(&self) -> &AgentRoutes {
        &self.routes
    }

    /// Returns the files that the client was built from.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// Makes the smallest call that only the active agent answers.
    pub async fn check(&self, cluster: &ClusterName) -> Result<()> {
        let request = OwnersRequest { cluster: cluster.clone(), after: None, limit: Some(1) };
        let owners = client::owners(&self.api, &request).await;
        owners.map(drop).map_err(|error| error.during("check the agents"))
    }
}

/// Returns the error of a certificate that cannot be used.
fn invalid(error: &TlsError) -> ConfigError {
    let key = match error {
        TlsError::Roots(_) => AgentKeys::ca_file,
        TlsError::Client(_) => AgentKeys::certificate_file,
    };
    ConfigError::new(error.to_string()).field(format!("{SECTION}.{}", key.name))
}

/// Returns the capabilities of load balancers of agents.
pub fn load_balancer_capabilities() -> LoadBalancerCapabilities {
    let external = LoadBalancerKind {
        name: "external",
        tcp: true,
        udp: true,
        mixed_protocols: true,
        source_ranges: true,
        session_affinity: true,
        local_traffic_policy: true,
        proxy_protocol: vec![ProxyProtocol::V1, ProxyProtocol::V2],
        requested_address: true,
        drain: true,
        shared: true,
        idle_timeout: true,
        health_check_settings: true,
        adoption: true,
        retention: true,
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        dual_stack: true,
        ..LoadBalancerKind::default()
    };
    let kinds = vec![external.clone(), external.to_internal()];
    LoadBalancerCapabilities { marks_uid: true, batch_observe: 100, fixed_kind: false, kinds }
}

/// Returns the capabilities of routes of agents.
pub fn route_capabilities() -> RouteCapabilities {
    RouteCapabilities {
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        max_routes: None,
        max_parallel: 8,
        batch: 1,
        marks_cluster_uid: true,
        knows_machines: false,
    }
}
