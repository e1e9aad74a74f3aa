//! The provider: name, capabilities and construction.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_agent_client::{Agents, load_balancer_capabilities, route_capabilities};
use bowline_cloud::{
    Absence, BuildContext, Calls, Capabilities, CheckResult, CloudProvider, Factory, Facts, InstanceCapabilities,
    Instances, LoadBalancerCapabilities, LoadBalancers, ProviderInfo, Quota, Reference, Result, Routes,
};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::{ClusterName, ProviderId};

use crate::backends::Backend;
use crate::backends::demo::{self, Demo};
use crate::backends::domains::Domains;
use crate::backends::inventory::Inventory;
use crate::backends::vagrant::Vagrant;
use crate::commands::Tool;
use crate::config::{BackendKind, Config, LIBVIRT, LoadBalancerMode};
use crate::hypervisors::Hypervisor;
use crate::hypervisors::libvirt::Libvirt;
use crate::hypervisors::virtualbox::VirtualBox;
use crate::instances::PAGE;
use crate::node_load_balancers::{self, NodeLoadBalancers};
use crate::pool::Pool;

/// Value of `--cloud-provider`, and prefix of provider IDs.
pub(crate) const NAME: &str = "cloudlycke";

/// Pages for `docs/reference`.
const REFERENCES: &[Reference] = &[Reference { topic: "config", page: crate::config::reference }];

/// A cloud of machines on this host. Cheap to clone.
#[derive(Clone)]
pub struct Cloudlycke {
    info: Arc<ProviderInfo>,
    capabilities: Arc<Capabilities>,
    pub(crate) config: Arc<Config>,
    pub(crate) machines: Machines,
    calls: Calls,
    pub(crate) cluster: ClusterName,
    /// Agents, if load balancers or routes use them.
    pub(crate) agents: Option<Arc<Agents>>,
}

/// Source of the machines.
#[derive(Clone)]
pub(crate) enum Machines {
    /// The fixed table.
    Demo(Arc<Demo>),
    /// Machines that are read.
    Pool(Arc<Pool>),
}

/// Returns a factory.
pub fn factory() -> Factory {
    let build = |context: &BuildContext<'_>| -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> {
        Ok(Arc::new(Cloudlycke::new(Config::read(context)?, context)?))
    };
    Factory {
        capabilities: all_capabilities,
        references: REFERENCES,
        ..Factory::new(
            NAME,
            "machines of Vagrant, libvirt or a YAML file, load balancers and routes of L4 agents",
            crate::config::template,
            build,
        )
    }
}

impl Cloudlycke {
    /// Creates a provider. Reads nothing.
    pub fn new(config: Config, context: &BuildContext<'_>) -> std::result::Result<Cloudlycke, ConfigErrors> {
        let agents = config.agent.as_ref().map(|agent| Agents::new(agent, context)).transpose()?;
        Ok(Cloudlycke {
            info: Arc::new(ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] }),
            capabilities: Arc::new(capabilities(&config)),
            machines: machines(&config, context.calls)?,
            calls: context.calls.clone(),
            cluster: context.cluster.clone(),
            agents: agents.map(Arc::new),
            config: Arc::new(config),
        })
    }
}

fn machines(config: &Config, calls: &Calls) -> std::result::Result<Machines, ConfigErrors> {
    let backend: Box<dyn Backend> = match config.backend {
        BackendKind::Static => {
            let demo = Demo::new(&config.rules);
            let demo = demo.map_err(|error| ConfigError::new(error.message()).field("instances"))?;
            return Ok(Machines::Demo(Arc::new(demo)));
        }
        BackendKind::Inventory => Box::new(Inventory::new(config.keys.inventory_file.clone(), calls)),
        BackendKind::Vagrant => Box::new(vagrant(config, hypervisor(config, calls))),
        BackendKind::Libvirt => Box::new(Domains::new(hypervisor(config, calls), addressed(config))),
    };
    Ok(Machines::Pool(Arc::new(Pool::new(backend, config.rules.clone(), config.cache))))
}

fn vagrant(config: &Config, hypervisor: Arc<dyn Hypervisor>) -> Vagrant {
    let project = Some(config.keys.project.clone()).filter(|project| !project.as_os_str().is_empty());
    Vagrant::new(config.vagrant_home.clone(), project, &config.rules.location, hypervisor, addressed(config))
}

/// Returns the names of machines whose addresses are in the configuration.
fn addressed(config: &Config) -> Vec<String> {
    let addressed = config.rules.overrides.iter().filter(|(_, own)| !own.addresses.is_empty());
    addressed.map(|(name, _)| name.clone()).collect()
}

/// Returns the hypervisor of the machines, by its name in Vagrant.
fn hypervisor(config: &Config, calls: &Calls) -> Arc<dyn Hypervisor> {
    let keys = &config.keys;
    let tool = |service, key, program: &str| Tool::new(calls, service, key, program).timeout(keys.command_timeout);
    if config.rules.location == LIBVIRT {
        let tool = tool("libvirt", "virshCommand", &keys.virsh);
        return Arc::new(Libvirt::new(tool, &keys.libvirt_uri, &keys.libvirt_address_source));
    }
    Arc::new(VirtualBox::new(tool("virtualbox", "vboxmanageCommand", &keys.vboxmanage)))
}

fn capabilities(config: &Config) -> Capabilities {
    Capabilities {
        instances: Some(instance_capabilities(config.backend)),
        load_balancers: match config.load_balancer {
            LoadBalancerMode::None => None,
            LoadBalancerMode::Agent => Some(load_balancer_capabilities()),
            LoadBalancerMode::Node => Some(node_load_balancers::capabilities()),
        },
        routes: config.agent_routes.then(route_capabilities),
    }
}

/// Capabilities of every configuration, for the reference page.
fn all_capabilities() -> Capabilities {
    let (agents, node) = (load_balancer_capabilities(), node_load_balancers::capabilities());
    let kinds = [agents.kinds, node.kinds].concat();
    Capabilities {
        instances: Some(instance_capabilities(BackendKind::Inventory)),
        load_balancers: Some(LoadBalancerCapabilities { kinds, ..agents }),
        routes: Some(route_capabilities()),
    }
}

fn instance_capabilities(backend: BackendKind) -> InstanceCapabilities {
    InstanceCapabilities {
        // One read serves any number of machines.
        batch_lookup: 500,
        list_page: Some(PAGE),
        // A Node may have another ID than the one in the listing: an index key, a UUID.
        absence: Absence::Question,
        max_parallel: 4,
        lookup_by_name: true,
        // The IDs of the demonstration are derived from names.
        unique_ids: false,
        shutdown_state: true,
        zones: true,
        additional_labels: backend == BackendKind::Inventory,
        ..InstanceCapabilities::default()
    }
}

#[async_trait]
impl CloudProvider for Cloudlycke {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn owns(&self, id: &ProviderId) -> bool {
        match &self.machines {
            Machines::Demo(_) => demo::owns(id),
            Machines::Pool(_) => id.prefix() == Some(NAME),
        }
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        match self.config.load_balancer {
            LoadBalancerMode::None => None,
            LoadBalancerMode::Agent => self.agents.as_ref().map(|agents| agents.load_balancers() as _),
            LoadBalancerMode::Node => Some(&NodeLoadBalancers),
        }
    }

    fn routes(&self) -> Option<&dyn Routes> {
        let agents = self.agents.as_ref().filter(|_| self.config.agent_routes);
        agents.map(|agents| agents.routes() as _)
    }

    fn files(&self) -> Vec<PathBuf> {
        let is_inventory = self.config.backend == BackendKind::Inventory;
        let inventory = is_inventory.then(|| self.config.keys.inventory_file.clone());
        inventory.into_iter().chain(self.agents.iter().flat_map(|agents| agents.files())).collect()
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    async fn start(&self) -> Result<Facts> {
        self.start_up().await
    }

    async fn check(&self) -> Result<()> {
        self.read_machines().await?;
        if let Some(agents) = &self.agents
            && let Err(error) = agents.check(&self.cluster).await
        {
            // Nodes do not depend on them, so a new configuration is used all the same.
            tracing::warn!(%error, "the agents are not ready; load balancers and routes wait for them");
        }
        Ok(())
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.diagnose_all().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        match &self.agents {
            Some(agents) => agents.quotas().await,
            None => Ok(Vec::new()),
        }
    }
}
