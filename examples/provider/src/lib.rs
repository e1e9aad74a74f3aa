//! The provider of the Acme cloud, which does not exist: an example to be copied.
//!
//! ```text
//!  lib.rs             what it is, what it can do, its factory
//!  config.rs          its --cloud-config
//!  client.rs          its cloud's API: requests, replies, and what a refusal means
//!  instances.rs       machines, in the words of the contract
//!  load_balancers.rs  load balancers, likewise
//! ```

mod client;
mod config;
mod instances;
mod load_balancers;

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{
    Absence, BuildContext, Calls, Capabilities, CloudProvider, Factory, Facts, InstanceCapabilities, Instances,
    LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers, ProviderInfo, Result,
};
use bowline_core::IpFamily;

use bowline_config::ConfigErrors;

use crate::client::Client;
pub use crate::config::Config;

/// Its name, and what its provider IDs start with.
const NAME: &str = "acme";

/// The Acme cloud.
pub struct Acme {
    info: ProviderInfo,
    capabilities: Capabilities,
    pub(crate) client: Client,
    calls: Calls,
    cluster: String,
}

/// What the program puts into its registry.
pub fn factory() -> Factory {
    let build = |context: &BuildContext<'_>| Ok(Arc::new(Acme::new(&Config::read(context.config)?, context)?) as _);
    Factory::new(NAME, "servers and load balancers of the Acme cloud", Config::template, build)
}

impl Acme {
    /// As configured. Makes no call.
    pub fn new(config: &Config, context: &BuildContext<'_>) -> std::result::Result<Acme, ConfigErrors> {
        let instances = InstanceCapabilities {
            batch_lookup: 1,               // GET /servers/ID: one by one
            list_page: Some(client::PAGE), // GET /servers: a page at a time
            absence: Absence::Proof,       // GET /servers shows all servers
            max_parallel: 4,               // what the cloud is known to bear
            lookup_by_name: true,          // GET /servers?name=NAME
            unique_ids: true,              // IDs are random
            shutdown_state: true,          // status: off
            ..InstanceCapabilities::default()
        };
        let kind = LoadBalancerKind { tcp: true, ip_families: vec![IpFamily::IPv4], ..LoadBalancerKind::default() };
        let load_balancers = LoadBalancerCapabilities { marks_uid: true, ..LoadBalancerCapabilities::of(kind) };
        Ok(Acme {
            info: ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] },
            capabilities: Capabilities {
                instances: Some(instances),
                load_balancers: Some(load_balancers),
                ..Capabilities::default()
            },
            client: Client::new(config, context)?,
            calls: context.calls.clone(),
            cluster: context.cluster.to_string(),
        })
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
