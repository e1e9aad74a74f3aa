//! Options for serving, as the flags of a component set them.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Address, port and protocols of the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingOptions {
    /// `--bind-address`; an unspecified address means all interfaces and IP families.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 disables serving.
    pub port: u16,
    /// Certificates and TLS versions.
    pub tls: TlsOptions,
    /// Inverse of `--disable-http2-serving`.
    pub http2: bool,
    /// `--http2-max-streams-per-connection`; 0 for the default of the library.
    pub max_streams: u32,
    /// `--permit-port-sharing`: `SO_REUSEPORT`.
    pub share_port: bool,
    /// `--permit-address-sharing`: `SO_REUSEADDR`.
    pub share_address: bool,
}

/// Certificates and TLS versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// `--tls-cert-file` and `--tls-private-key-file`, reloaded when they change.
    pub files: Option<(PathBuf, PathBuf)>,
    /// `--cert-dir`: directory of the self-signed pair; without it the pair is in memory only.
    pub directory: Option<PathBuf>,
    /// File name of that pair without its extension, such as `cloud-controller-manager`.
    pub pair_name: String,
    /// `--tls-sni-cert-key`: certificate, key, and the host names it is for (default: those in the certificate).
    pub sni: Vec<(PathBuf, PathBuf, Vec<String>)>,
    /// `--tls-min-version`: TLS 1.3 only.
    pub only_tls13: bool,
    /// `--tls-cipher-suites`, by IANA names; empty for the default of the library. They apply to TLS 1.2 only.
    pub cipher_suites: Vec<String>,
}

/// Options for authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationOptions {
    /// `--authentication-kubeconfig`; without it the pod's service account; without either, no TokenReviews are made.
    pub kubeconfig: Option<PathBuf>,
    /// `--authentication-skip-lookup`: the API server's ConfigMap is not read.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: a failure to read it does not prevent the start.
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`.
    pub cache_ttl: Duration,
    /// `--client-ca-file`: CA of client certificates, whose common name is the user and whose organisations are the groups.
    pub client_ca_file: Option<PathBuf>,
    /// Headers of the front proxy.
    pub request_header: RequestHeaderOptions,
}

/// Headers in which a front proxy passes the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`: CA that signs the certificates of front proxies.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: allowed common names of front proxies; empty for any.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_header_prefixes: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
}

/// Options for authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-kubeconfig`; without it the pod's service account; without either, no SubjectAccessReviews are made.
    pub kubeconfig: Option<PathBuf>,
    /// `--authorization-always-allow-paths`: exact, or a prefix with `*` at its end.
    pub always_allow_paths: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`.
    pub allow_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`.
    pub deny_ttl: Duration,
}

impl Default for ServingOptions {
    fn default() -> ServingOptions {
        ServingOptions {
            bind_address: Ipv4Addr::UNSPECIFIED.into(),
            port: 10258,
            tls: TlsOptions::default(),
            http2: true,
            max_streams: 0,
            share_port: false,
            share_address: false,
        }
    }
}

impl Default for TlsOptions {
    fn default() -> TlsOptions {
        TlsOptions {
            files: None,
            directory: None,
            pair_name: "cloud-controller-manager".to_owned(),
            sni: Vec::new(),
            only_tls13: false,
            cipher_suites: Vec::new(),
        }
    }
}

impl Default for AuthenticationOptions {
    fn default() -> AuthenticationOptions {
        AuthenticationOptions {
            kubeconfig: None,
            skip_lookup: false,
            tolerate_lookup_failure: false,
            cache_ttl: Duration::from_secs(10),
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
        }
    }
}

impl Default for RequestHeaderOptions {
    fn default() -> RequestHeaderOptions {
        RequestHeaderOptions {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            group_headers: vec!["x-remote-group".to_owned()],
            extra_header_prefixes: vec!["x-remote-extra-".to_owned()],
            uid_headers: Vec::new(),
        }
    }
}

impl Default for AuthorizationOptions {
    fn default() -> AuthorizationOptions {
        AuthorizationOptions {
            kubeconfig: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            allow_ttl: Duration::from_secs(10),
            deny_ttl: Duration::from_secs(10),
        }
    }
}
