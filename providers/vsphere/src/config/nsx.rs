//! Settings of NSX: the manager, its load balancers and its routes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bowline_cloud::SecretRef;
use bowline_config::Secret;

/// An NSX manager.
#[derive(Debug, Clone, Default)]
pub(crate) struct NsxConfig {
    /// Host name or address, with an optional port.
    pub host: String,
    /// The server certificate is not verified.
    pub insecure: bool,
    /// CA certificates, in place of those of the system.
    pub ca_file: Option<PathBuf>,
    /// How requests are authenticated.
    pub credentials: NsxCredentials,
    /// User and password of the file, for as long as the Secret of [`NsxCredentials::Secret`] was not read.
    pub password: Option<(String, Secret)>,
}

impl NsxConfig {
    /// Returns the files that the client is built from.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let pair = match &self.credentials {
            NsxCredentials::Certificate { certificate, key } => vec![certificate.clone(), key.clone()],
            _ => Vec::new(),
        };
        self.ca_file.iter().cloned().chain(pair).collect()
    }
}

/// Credentials of an NSX manager.
#[derive(Debug, Clone, Default)]
pub(crate) enum NsxCredentials {
    /// None: every request is anonymous.
    #[default]
    Anonymous,
    /// User and password.
    Password { user: String, password: Secret, scheme: PasswordScheme },
    /// User and password from a Secret; until it was read, those of [`NsxConfig::password`].
    Secret { secret: SecretRef, scheme: PasswordScheme },
    /// TLS client certificate of a principal identity.
    Certificate { certificate: PathBuf, key: PathBuf },
    /// Refresh token of VMware Cloud, exchanged for access tokens at a URL without scheme.
    Vmc { token: Secret, auth_host: String },
}

/// Scheme word of the header `Authorization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PasswordScheme {
    #[default]
    Basic,
    /// User of an identity provider (vIDM).
    Remote,
}

/// Load balancers of NSX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadBalancerConfig {
    /// Size of an LB service that this manager creates: `SMALL`, `MEDIUM`, `LARGE`, `XLARGE` or `DLB`.
    pub size: String,
    /// LB service that the virtual servers belong to.
    pub service: LbService,
    /// Clients keep their addresses.
    pub snat_disabled: bool,
    /// Additional tags of all objects; `owner` replaces the value of that tag.
    pub tags: BTreeMap<String, String>,
    /// Classes by name, with inherited settings resolved. Always has the class `default`.
    pub classes: BTreeMap<String, LoadBalancerClass>,
}

/// LB service that the virtual servers belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LbService {
    /// An existing one, which is never created or deleted. With a tier-1 gateway, it must be attached to that one.
    Existing { id: String, tier1: Option<String> },
    /// One that this manager creates for the first virtual server at this tier-1 gateway, and deletes after the last.
    Managed { tier1: String },
}

/// Class of load balancers, selected by an annotation of the Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadBalancerClass {
    pub pool: IpPool,
    pub tcp_profile: AppProfile,
    pub udp_profile: AppProfile,
}

/// Pool of virtual IP addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IpPool {
    Id(String),
    Name(String),
}

/// Application profile of virtual servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AppProfile {
    Path(String),
    Name(String),
}
