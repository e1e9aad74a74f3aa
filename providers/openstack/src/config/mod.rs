//! Configuration from `cloud.conf`.
//!
//! ```text
//!  ConfigFile ──gcfg──► sections and keys with their lines ──read──► Config, or ConfigErrors
//!                                           clouds.yaml ─┘ fills empty keys of [Global]
//! ```

mod clouds_yaml;
mod credential;
mod declaration;
mod fields;
mod read;
mod reference;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bowline_config::{ConfigError, Secret};
use bowline_http::TlsFiles;
use ipnet::IpNet;

pub(crate) use declaration::template;
pub use declaration::{Class, FloatingSubnet, LoadBalancer};
pub use reference::reference;
pub(crate) use tls::key as tls_key;

/// The certificate store that can be queried.
const BARBICAN: &str = "barbican";

/// Configuration of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[Global]`: credentials and the URL of Keystone.
    pub global: Global,
    /// `[LoadBalancer]`.
    pub load_balancer: LoadBalancer,
    /// `[LoadBalancerClass "name"]`, by name.
    pub classes: BTreeMap<String, Class>,
    /// `[Networking]`.
    pub networking: Networking,
    /// `[Route] router-id`; without it there are no routes.
    pub router_id: Option<String>,
    /// `[Metadata] request-timeout`: timeout of requests to all services.
    pub request_timeout: Duration,
    /// `OS_CCM_REGIONAL=true`: provider IDs contain the region.
    pub regional: bool,
    /// `OCCM_WAIT_LB_ACTIVE_STEPS`, default 23: timeout of an Octavia operation, in polls of the Go manager.
    pub wait_active_steps: u32,
    /// Files that it refers to, or was read from besides `cloud.conf`.
    pub files: Vec<PathBuf>,
    /// Warnings about settings without effect.
    pub warnings: Vec<ConfigError>,
}

/// Defaults of all optional keys.
impl Default for Config {
    fn default() -> Config {
        Config {
            global: Global::default(),
            load_balancer: LoadBalancer::default(),
            classes: BTreeMap::new(),
            networking: Networking::default(),
            router_id: None,
            request_timeout: Duration::from_secs(60),
            regional: false,
            wait_active_steps: 23,
            files: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// `[Global]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Global {
    /// `auth-url`, as written.
    pub auth_url: String,
    /// Credential for Keystone.
    pub credential: Credential,
    /// Scope of the token.
    pub scope: Scope,
    /// `region`; empty for any.
    pub region: String,
    /// `os-endpoint-type`: `public`, `internal` or `admin`; empty is `public`.
    pub interface: String,
    /// CA and client certificates.
    pub tls: TlsFiles,
}

/// Credential for Keystone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// An existing token.
    Token(Secret),
    /// A user and a password.
    Password {
        /// The user.
        user: User,
        /// The password.
        password: Secret,
    },
    /// An application credential by its ID.
    ApplicationCredentialId {
        /// Its ID.
        id: String,
        /// Its secret.
        secret: Secret,
    },
    /// An application credential by its name, which needs its user.
    ApplicationCredentialName {
        /// Its name.
        name: String,
        /// Its user.
        user: User,
        /// Its secret.
        secret: Secret,
    },
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// By ID.
    Id(String),
    /// By name, in a domain.
    Name(String, Domain),
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    /// By ID.
    Id(String),
    /// By name.
    Name(String),
}

/// Scope of a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Implied by the credential; nothing is sent.
    #[default]
    Implied,
    /// A trust.
    Trust(String),
    /// A project by ID.
    ProjectId(String),
    /// A project by name, in a domain.
    ProjectName(String, Domain),
    /// A domain.
    Domain(Domain),
}

/// Timing of health monitors, in Octavia's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorTimes {
    /// Seconds between two probes.
    pub delay: i64,
    /// Timeout of a probe in seconds.
    pub timeout: i64,
    /// Successful probes until a member is online.
    pub max_retries: i64,
    /// Failed probes until a member is offline.
    pub max_retries_down: i64,
}

/// `[Networking]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networking {
    /// `ipv6-support-disabled`.
    pub ipv6_disabled: bool,
    /// `public-network-name`.
    pub public_networks: Vec<String>,
    /// `internal-network-name`.
    pub internal_networks: Vec<String>,
    /// `address-sort-order`, without invalid CIDRs.
    pub sort_order: Vec<IpNet>,
}

impl Default for Credential {
    fn default() -> Credential {
        Credential::Token(Secret::default())
    }
}

impl LoadBalancer {
    /// Returns whether certificates are in Barbican, where they can be checked before use.
    pub(crate) fn uses_barbican(&self) -> bool {
        self.container_store == BARBICAN
    }
}
