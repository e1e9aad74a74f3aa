//! Provider for Acme, a fictional cloud. Copy it to start your own.
//!
//! ```text
//!  lib.rs             name, capabilities, factory
//!  config.rs          --cloud-config
//!  client.rs          the cloud's API: requests, responses, errors
//!  instances.rs       implements Instances
//!  load_balancers.rs  implements LoadBalancers
//!  routes.rs          implements Routes
//! ```

mod client;
mod config;
mod instances;
mod load_balancers;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{
    Absence, BuildContext, Calls, Capabilities, CloudProvider, Factory, Facts, InstanceCapabilities, Instances,
    LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers, ProviderInfo, Result, RouteCapabilities, Routes,
};
use bowline_core::IpFamily;

use bowline_config::ConfigErrors;

use crate::client::Client;
pub use crate::config::Config;

/// Provider name and prefix of provider IDs.
const NAME: &str = "acme";

/// The Acme cloud.
pub struct Acme {
    info: ProviderInfo,
    capabilities: Capabilities,
    pub(crate) client: Client,
    calls: Calls,
    cluster: String,
    token_file: PathBuf,
}

/// Returns the factory for the provider registry.
pub fn factory() -> Factory {
    let build = |context: &BuildContext<'_>| Ok(Arc::new(Acme::new(&Config::read(context.config)?, context)?) as _);
    Factory::new(NAME, "servers, load balancers and routes of the Acme cloud", Config::template, build)
}

impl Acme {
    /// Creates the provider from its configuration. Makes no cloud call.
    pub fn new(config: &Config, context: &BuildContext<'_>) -> std::result::Result<Acme, ConfigErrors> {
        Ok(Acme {
            info: ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] },
            capabilities: capabilities(),
            client: Client::new(config, context)?,
            calls: context.calls.clone(),
            cluster: context.cluster.to_string(),
            token_file: config.token_file.clone(),
        })
    }
}

/// Returns exactly what the cloud supports: the conformance suite tests each claim.
fn capabilities() -> Capabilities {
    let instances = InstanceCapabilities {
        batch_lookup: 1,               // GET /servers/ID: one by one
        list_page: Some(client::PAGE), // GET /servers: a page at a time
        absence: Absence::Proof,       // GET /servers shows all servers
        max_parallel: 4,               // concurrent calls that the cloud accepts
        lookup_by_name: true,          // GET /servers?name=NAME
        unique_ids: true,              // IDs are random
        shutdown_state: true,          // status: off
        ..InstanceCapabilities::default()
    };
    let kind = LoadBalancerKind {
        tcp: true,
        adoption: true,  // PUT /load_balancers/ID sets the owner,
        retention: true, // or removes it
        ip_families: vec![IpFamily::IPv4],
        ..LoadBalancerKind::default()
    };
    let routes = RouteCapabilities {
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        max_routes: Some(100),   // entries of the route table
        max_parallel: 4,         // concurrent calls that the cloud accepts
        batch: 1,                // POST /routes: one by one
        marks_cluster_uid: true, // routes have a field for it
        knows_machines: true,    // a route leads to a server, not to an address
    };
    Capabilities {
        instances: Some(instances),
        load_balancers: Some(LoadBalancerCapabilities::of(kind)),
        routes: Some(routes),
    }
}

#[async_trait]
impl CloudProvider for Acme {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }

    // When the file changes, the provider is built again with the new token.
    fn files(&self) -> Vec<PathBuf> {
        Some(self.token_file.clone()).filter(|file| !file.as_os_str().is_empty()).into_iter().collect()
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    async fn start(&self) -> Result<Facts> {
        self.check().await?;
        Ok(Facts { cluster_id: Some(self.cluster.clone()), ..Facts::default() })
    }

    async fn check(&self) -> Result<()> {
        self.client.servers(&[("limit", "1")]).await.map(drop)
    }
}
