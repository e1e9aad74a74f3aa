//! Configuration: the file of the Go manager, and the environment variables of AWS tools.
//!
//! ```text
//!  file, environment ──keys──► Global, Override, Variables ──checks──► Config
//! ```

mod keys;
mod read;
#[cfg(test)]
mod tests;

use bowline_config::ConfigError;
use bowline_core::IpFamily;
use regex::Regex;

pub(crate) use keys::{CredentialVariables, EndpointVariables, reference, template};
pub(crate) use read::account_of;

/// Configuration of the provider. The default is that of an empty file and an empty environment.
#[derive(Debug, Clone)]
pub struct Config {
    /// Region: that of `Zone`, or `Region`. Empty if the metadata service has to be asked.
    pub(crate) region: String,
    pub(crate) vpc: String,
    pub(crate) subnet_id: String,
    pub(crate) route_table_id: String,
    pub(crate) role_arn: String,
    pub(crate) source_arn: String,
    /// `KubernetesClusterTag`.
    pub(crate) cluster_tag: String,
    /// `KubernetesClusterID`.
    pub(crate) cluster_id: String,
    pub(crate) disable_security_group_ingress: bool,
    pub(crate) elb_security_group: String,
    /// Families of Node addresses, in their order.
    pub(crate) node_ip_families: Vec<IpFamily>,
    /// `ClusterServiceLoadBalancerHealthProbeMode`, as written.
    pub(crate) health_probe_mode: String,
    pub(crate) health_probe_port: u16,
    pub(crate) health_probe_path: String,
    pub(crate) topology_types: Option<Regex>,
    /// `NLBSecurityGroupMode`, as written.
    pub(crate) nlb_security_group_mode: String,
    pub(crate) overrides: Vec<ServiceOverride>,
    /// Environment variables of endpoints.
    pub(crate) endpoints: EndpointVariables,
    /// Environment variables of credentials.
    pub(crate) credentials: CredentialVariables,
    pub(crate) warnings: Vec<ConfigError>,
}

/// A `[ServiceOverride]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceOverride {
    pub(crate) service: String,
    pub(crate) region: String,
    pub(crate) url: String,
    pub(crate) signing_region: String,
    /// Empty for that of the service.
    pub(crate) signing_name: String,
}

impl Config {
    /// Returns whether the metadata service must not be called.
    pub(crate) fn is_metadata_disabled(&self) -> bool {
        self.credentials.metadata_disabled.eq_ignore_ascii_case("true")
    }

    /// Returns whether the file has everything that the start would read from this instance, because the manager does not run on an
    /// instance of the cluster.
    pub(crate) fn is_remote(&self) -> bool {
        let is_set = |text: &String| !text.is_empty();
        is_set(&self.vpc)
            && (is_set(&self.subnet_id) || is_set(&self.role_arn))
            && (is_set(&self.cluster_tag) || is_set(&self.cluster_id))
    }
}
