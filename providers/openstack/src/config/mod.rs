//! What `cloud.conf` says.
//!
//! ```text
//!  ConfigFile ──gcfg──► sections and keys with their lines ──read──► Config, or Problems
//!                                           clouds.yaml ─┘ fills what is empty in [Global]
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

/// The store of certificates that can be asked.
const BARBICAN: &str = "barbican";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[Global]`: who we are, and where Keystone is.
    pub global: Global,
    /// `[LoadBalancer]`.
    pub load_balancer: LoadBalancer,
    /// `[LoadBalancerClass "name"]`, by name.
    pub classes: BTreeMap<String, Class>,
    /// `[Networking]`.
    pub networking: Networking,
    /// `[Route] router-id`; without one there are no routes.
    pub router_id: Option<String>,
    /// `[Metadata] request-timeout`: the longest that any call of any service may take.
    pub request_timeout: Duration,
    /// `OS_CCM_REGIONAL=true`: provider IDs carry the region.
    pub regional: bool,
    /// `OCCM_WAIT_LB_ACTIVE_STEPS`, or 23: how long a balancer may be at work before that is an error, in looks of the Go manager.
    pub wait_active_steps: u32,
    /// The files that it names, or was read from beside the first.
    pub files: Vec<PathBuf>,
    /// What is not as it was meant, and does no harm.
    pub warnings: Vec<ConfigError>,
}

/// As if nothing were written but what is required.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// `auth-url`, as written.
    pub auth_url: String,
    /// What is proven to Keystone, and how.
    pub credential: Credential,
    /// What for.
    pub scope: Scope,
    /// `region`; empty if any will do.
    pub region: String,
    /// `os-endpoint-type`: `public`, `internal` or `admin`.
    pub interface: String,
    /// Whom to trust in TLS, and with which certificate.
    pub tls: TlsFiles,
}

/// What is proven to Keystone, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// A token that somebody else got.
    Token(Secret),
    /// A user and a password.
    Password {
        /// Who.
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
    /// An application credential by its name, which is its user's.
    ApplicationCredentialName {
        /// Its name.
        name: String,
        /// Whose it is.
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

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// What the credential itself says; nothing is sent.
    #[default]
    Implied,
    /// What a trust says.
    Trust(String),
    /// A project by ID.
    ProjectId(String),
    /// A project by name, in a domain.
    ProjectName(String, Domain),
    /// A whole domain.
    Domain(Domain),
}

/// How members are watched, in the units of Octavia.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorTimes {
    /// Seconds between two looks.
    pub delay: i64,
    /// Seconds that an answer may take.
    pub timeout: i64,
    /// Good answers until a member is well.
    pub max_retries: i64,
    /// Bad answers until it is not.
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
    /// `address-sort-order`, without what is no range.
    pub sort_order: Vec<IpNet>,
}

impl Default for Global {
    fn default() -> Global {
        Global {
            auth_url: String::new(),
            credential: Credential::default(),
            scope: Scope::default(),
            region: String::new(),
            interface: "public".to_owned(),
            tls: TlsFiles::default(),
        }
    }
}

impl Default for Credential {
    fn default() -> Credential {
        Credential::Token(Secret::default())
    }
}

impl LoadBalancer {
    /// Certificates are where they can be looked at before a balancer gets them.
    pub(crate) fn asks_barbican(&self) -> bool {
        self.container_store == BARBICAN
    }
}
