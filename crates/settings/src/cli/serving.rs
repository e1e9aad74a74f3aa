//! The flags about what the manager serves, to whom, and on which port.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_config::format_duration;
use bowline_serving::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions};
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

#[derive(Debug, Args)]
#[command(next_help_heading = "Secure serving")]
pub(crate) struct SecureServingArgs {
    /// The address at which --secure-port is served. If it is empty, 0.0.0.0 or ::, all interfaces and both families.
    #[arg(long, value_name = "IP", default_value = ServingOptions::default().bind_address.to_string(), value_parser = given(flags::bind_address))]
    pub(crate) bind_address: Given<IpAddr>,

    /// The port for HTTPS, with authentication and authorization: health, metrics and the documents about the manager
    /// itself. 0 serves nothing at all.
    #[arg(
        long,
        value_name = "PORT",
        default_value = ServingOptions::default().port.to_string(),
        value_parser = given(flags::integer),
    )]
    pub(crate) secure_port: Given<i64>,

    /// Where a certificate that this program makes for itself is kept, as cloud-controller-manager.crt and .key. Without
    /// it, and without --tls-cert-file, the certificate is made at each start and kept in memory only.
    #[arg(long, value_name = "DIRECTORY", value_parser = flags::path)]
    pub(crate) cert_dir: Option<PathBuf>,

    /// The certificate to serve with, in PEM, the chain behind it; it is read again when it changes.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// The key to --tls-cert-file.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) tls_private_key_file: Option<PathBuf>,

    /// Another certificate with its key, for the names behind the colon, or for those in the certificate. It may be given
    /// several times.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub(crate) tls_sni_cert_key: Vec<String>,

    /// The cipher suites of TLS 1.2, by their IANA names; those of TLS 1.3 cannot be chosen. A list: separated by commas, or
    /// the flag given again. All that are sound unless given.
    #[arg(long, value_name = "NAMES")]
    pub(crate) tls_cipher_suites: Vec<String>,

    /// The key exchanges, by their numbers. They are checked, and those of this program are used: X25519, P-256 and
    /// P-384.
    #[arg(long, value_name = "NUMBERS")]
    pub(crate) tls_curve_preferences: Vec<String>,

    /// The least version of TLS: VersionTLS12, which is the default, or VersionTLS13. VersionTLS10 and VersionTLS11 mean
    /// VersionTLS12, the least that this program speaks.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) tls_min_version: String,

    /// Serve HTTP/1.1 only.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub disable_http2_serving: Given<bool>,

    /// How many requests a client may have under way in one connection of HTTP/2; 0 for the library's own limit.
    #[arg(long, value_name = "N", default_value = "0", value_parser = given(flags::integer))]
    pub http2_max_streams_per_connection: Given<i64>,

    /// Let other processes listen at the same port (SO_REUSEPORT).
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) permit_port_sharing: Given<bool>,

    /// Listen even if the kernel still holds the port for connections that have ended (SO_REUSEADDR).
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) permit_address_sharing: Given<bool>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationArgs {
    /// The kubeconfig with which bearer tokens are reviewed and the API server's settings about clients are read. Without
    /// it, as a pod of the cluster does; outside of a cluster, everybody with a token is anonymous.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,

    /// Do not read from the cluster what the flags do not say about client certificates and front proxies.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) authentication_skip_lookup: Given<bool>,

    /// Start even if that cannot be read; whoever comes with a certificate may then be anonymous.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) authentication_tolerate_lookup_failure: Given<bool>,

    /// How long the review of a token holds.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(AuthenticationOptions::default().cache_ttl),
        value_parser = given(flags::duration),
    )]
    pub(crate) authentication_token_webhook_cache_ttl: Given<Duration>,

    /// Who may sign client certificates: a bundle in PEM. The common name is the user, the organisations are the groups.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) request_header: RequestHeaderArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct RequestHeaderArgs {
    /// Who may sign the certificates of front proxies, whose headers say who is asking: a bundle in PEM.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,

    /// The common names of front proxies; any unless given. A list, as are the next.
    #[arg(long, value_name = "NAMES")]
    pub(crate) requestheader_allowed_names: Vec<String>,

    /// The headers in which a front proxy names the user.
    #[arg(long, value_name = "HEADERS", default_values_t = RequestHeaderOptions::default().username_headers)]
    pub(crate) requestheader_username_headers: Vec<String>,

    /// The headers in which a front proxy names the user's groups.
    #[arg(long, value_name = "HEADERS", default_values_t = RequestHeaderOptions::default().group_headers)]
    pub(crate) requestheader_group_headers: Vec<String>,

    /// What the names of the headers start with in which a front proxy says more about the user.
    #[arg(long, value_name = "PREFIXES", default_values_t = RequestHeaderOptions::default().extra_header_prefixes)]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,

    /// The headers in which a front proxy gives the user's UID; they need
    /// --feature-gates=RemoteRequestHeaderUID=true.
    #[arg(long, value_name = "HEADERS")]
    pub(crate) requestheader_uid_headers: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authorization")]
pub(crate) struct AuthorizationArgs {
    /// The kubeconfig with which the API server is asked who may. Without it, as a pod of the cluster does; outside of a
    /// cluster, only --authorization-always-allow-paths are served.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,

    /// The paths that everybody may read; one that ends with * is the beginning of such paths. A list, which may be empty.
    #[arg(long, value_name = "PATHS", default_values_t = AuthorizationOptions::default().always_allow_paths)]
    pub(crate) authorization_always_allow_paths: Vec<String>,

    /// How long the API server's yes holds.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(AuthorizationOptions::default().allow_ttl),
        value_parser = given(flags::duration),
    )]
    pub(crate) authorization_webhook_cache_authorized_ttl: Given<Duration>,

    /// How long the API server's no holds.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(AuthorizationOptions::default().deny_ttl),
        value_parser = given(flags::duration),
    )]
    pub(crate) authorization_webhook_cache_unauthorized_ttl: Given<Duration>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Debugging")]
pub(crate) struct DebuggingArgs {
    /// Serve /debug/pprof/ and /debug/flags/.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) profiling: Given<bool>,
}
