//! The provider: name, capabilities and construction.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{
    Absence, BuildContext, Calls, Capabilities, CheckResult, CloudProvider, Factory, Facts, InstanceCapabilities,
    Instances, ProviderInfo, Reference, Result,
};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::{ClusterName, ProviderId};

use crate::backends::Backend;
use crate::backends::demo::{self, Demo};
use crate::backends::domains::Domains;
use crate::backends::inventory::Inventory;
use crate::backends::vagrant::Vagrant;
use crate::commands::Tool;
use crate::config::{BackendKind, Config, LIBVIRT};
use crate::hypervisors::Hypervisor;
use crate::hypervisors::libvirt::Libvirt;
use crate::hypervisors::virtualbox::VirtualBox;
use crate::instances::PAGE;
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
        capabilities: || capabilities(BackendKind::Inventory),
        references: REFERENCES,
        ..Factory::new(NAME, "machines of Vagrant, libvirt or a YAML file", crate::config::template, build)
    }
}

impl Cloudlycke {
    /// Creates a provider. Reads nothing.
    pub fn new(config: Config, context: &BuildContext<'_>) -> std::result::Result<Cloudlycke, ConfigErrors> {
        Ok(Cloudlycke {
            info: Arc::new(ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] }),
            capabilities: Arc::new(capabilities(config.backend)),
            machines: machines(&config, context.calls)?,
            calls: context.calls.clone(),
            cluster: context.cluster.clone(),
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

fn capabilities(backend: BackendKind) -> Capabilities {
    let instances = InstanceCapabilities {
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
    };
    Capabilities { instances: Some(instances), ..Capabilities::default() }
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

    fn files(&self) -> Vec<PathBuf> {
        let is_inventory = self.config.backend == BackendKind::Inventory;
        is_inventory.then(|| self.config.keys.inventory_file.clone()).into_iter().collect()
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    async fn start(&self) -> Result<Facts> {
        self.start_up().await
    }

    async fn check(&self) -> Result<()> {
        self.read_machines().await.map(drop)
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.diagnose_all().await
    }
}
