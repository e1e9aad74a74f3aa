//! Configuration: the INI and YAML files of the Go manager, with its environment variables.

//!
//! ```text
//!  file, environment ──keys──► Global, Connection, … ──read──► vcenters, load_balancers, routes ──► Config
//! ```

mod format;
mod keys;
mod load_balancers;
mod manager;
pub(crate) mod nsx;
mod read;
#[cfg(test)]
mod tests;
mod variables;
mod vcenters;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use bowline_agent_client::AgentConfig;
use bowline_cloud::SecretRef;
use bowline_config::{ConfigError, ConfigErrors, Secret};
use bowline_core::IpFamily;
use ipnet::IpNet;

pub(crate) use keys::{environment, reference, template};

/// Valid configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// vCenters, sorted by name.
    pub(crate) vcenters: Vec<VcenterConfig>,
    /// Tag categories of zones and regions; `None` unless both are configured.
    pub(crate) zone_categories: Option<ZoneCategories>,
    /// Selection of Node addresses.
    pub(crate) addresses: AddressRules,
    /// Folder with credentials, in files named like the keys of a Secret.
    pub(crate) secrets_directory: Option<PathBuf>,
    /// A machine that is not found is never reported as gone (`SKIP_NODE_DELETION`).
    pub(crate) skip_node_deletion: bool,
    /// NSX manager; `None` unless load balancers or routes are configured.
    pub(crate) nsx: Option<nsx::NsxConfig>,
    /// Load balancers of NSX; `None` if they are off.
    pub(crate) load_balancers: Option<nsx::LoadBalancerConfig>,
    /// Group of agents, for load balancers; `None` if they are off, or those of NSX.
    pub(crate) agent: Option<AgentConfig>,
    /// Whether the agents also have routes.
    pub(crate) agent_routes: bool,
    /// Policy path of the router whose static routes are managed; `None` if routes are off.
    pub(crate) router_path: Option<String>,
    /// Errors of load balancers and routes, which are off because of them. They are warnings as well.
    pub(crate) switched_off: Vec<ConfigError>,
    /// Settings that are ignored or deprecated.
    pub(crate) warnings: Vec<ConfigError>,
}

/// One vCenter.
#[derive(Debug, Clone, Default)]
pub(crate) struct VcenterConfig {
    /// Name of the entry, which identifies the connection: two entries may have the same server.
    pub name: String,
    /// Host name or IP address, without brackets.
    pub server: String,
    /// Port of the API.
    pub port: u16,
    /// The server certificate is not verified.
    pub insecure: bool,
    /// CA certificates, in place of those of the system.
    pub ca_files: Vec<PathBuf>,
    /// Fingerprint of the server certificate, SHA-1 or SHA-256, as hex pairs joined by `:`; empty for none.
    pub thumbprint: String,
    /// Names, inventory paths or IDs of datacenters; all if empty.
    pub datacenters: Vec<String>,
    /// Attempts of a call after a temporary network error.
    pub round_trips: u32,
    /// IP families of Node addresses, in order of priority.
    pub ip_families: Vec<IpFamily>,
    /// User, or a PEM certificate.
    pub user: String,
    /// Password, or the PEM key of the certificate.
    pub password: Secret,
    /// Where credentials are read from in addition.
    pub source: CredentialSource,
}

/// Source of the credentials of a vCenter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum CredentialSource {
    /// Only `user` and `password`.
    #[default]
    Config,
    /// A Kubernetes Secret.
    Secret(SecretRef),
    /// The folder of [`Config::secrets_directory`].
    Directory,
}

/// Tag categories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZoneCategories {
    pub zone: String,
    pub region: String,
}

/// Rules that select the internal and the external address of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AddressRules {
    pub internal: AddressRule,
    pub external: AddressRule,
}

/// Rule for one address type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AddressRule {
    /// Preferred subnets, in this order.
    pub subnets: Vec<IpNet>,
    /// Subnets whose addresses are never used.
    pub excluded: Vec<IpNet>,
    /// Name of the network (port group) whose address is used if no subnet matches; empty for none.
    pub network: String,
}

impl Config {
    /// Switches NSX or agents off because of these errors, which do not affect Nodes.
    // upstream: a bad CA file fails the start.
    pub(crate) fn switch_off(&mut self, errors: ConfigErrors) {
        self.warnings.extend(errors.iter().cloned());
        self.switched_off.extend(errors.iter().cloned());
    }

    /// Returns the files besides the configuration file: CA certificates, and certificates and keys for NSX and for agents.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let nsx = self.nsx.iter().flat_map(nsx::NsxConfig::files);
        let others = nsx.chain(self.agent.iter().flat_map(AgentConfig::files));
        let files: BTreeSet<_> =
            self.vcenters.iter().flat_map(|vcenter| vcenter.ca_files.clone()).chain(others).collect();
        files.into_iter().collect()
    }
}

impl AddressRule {
    /// Returns whether the address may be used at all.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        !self.excluded.iter().any(|subnet| subnet.contains(&address))
    }
}
