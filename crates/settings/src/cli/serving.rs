//! Flags of secure serving, authentication and authorization.

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
    /// The IP address on which to listen for --secure-port. If blank or an unspecified address (0.0.0.0 or ::), all interfaces and
    /// IP address families are used.
    #[arg(long, value_name = "IP", default_value = ServingOptions::default().bind_address.to_string(), value_parser = given(flags::bind_address))]
    pub(crate) bind_address: Given<IpAddr>,

    /// The port on which to serve HTTPS with authentication and authorization: health checks, metrics, /statusz, /configz and
    /// /flagz. If 0, don't serve HTTPS at all.
    #[arg(
        long,
        value_name = "PORT",
        default_value = ServingOptions::default().port.to_string(),
        value_parser = given(flags::integer),
    )]
    pub(crate) secure_port: Given<i64>,

    /// Directory of the self-signed certificate, in cloud-controller-manager.crt and cloud-controller-manager.key; it is created if
    /// it is missing. Ignored if --tls-cert-file is set. Default: a new certificate in memory at each start.
    #[arg(long, value_name = "DIRECTORY", value_parser = flags::path)]
    pub(crate) cert_dir: Option<PathBuf>,

    /// File containing the serving certificate in PEM, followed by its intermediate certificates. It is reloaded when it changes.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// File containing the PEM private key matching --tls-cert-file.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) tls_private_key_file: Option<PathBuf>,

    /// A pair of certificate and private key files for SNI, optionally followed by a colon and the domain patterns that use it;
    /// default: the names in the certificate. The flag may be repeated.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub(crate) tls_sni_cert_key: Vec<String>,

    /// Comma-separated list of TLS 1.2 cipher suites by IANA name; the flag may be repeated. TLS 1.3 cipher suites are not
    /// configurable. Default: all secure cipher suites.
    #[arg(long, value_name = "NAMES")]
    pub(crate) tls_cipher_suites: Vec<String>,

    /// Comma-separated list of key exchange mechanisms by Go CurveID number. The values are validated and have no effect: X25519,
    /// P-256 and P-384 are used.
    #[arg(long, value_name = "NUMBERS")]
    pub(crate) tls_curve_preferences: Vec<String>,

    /// Minimum TLS version supported: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 mean VersionTLS12. Default:
    /// VersionTLS12.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) tls_min_version: String,

    /// If true, HTTP/2 serving is disabled.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub disable_http2_serving: Given<bool>,

    /// Maximum number of concurrent streams per HTTP/2 connection; 0 uses the default of the HTTP library.
    #[arg(long, value_name = "N", default_value = "0", value_parser = given(flags::integer))]
    pub http2_max_streams_per_connection: Given<i64>,

    /// If true, SO_REUSEPORT is used when binding the port, which allows more than one instance to bind on the same address and
    /// port.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) permit_port_sharing: Given<bool>,

    /// If true, SO_REUSEADDR is used when binding the port, which avoids waiting for the kernel to release sockets in TIME_WAIT
    /// state.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) permit_address_sharing: Given<bool>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationArgs {
    /// Kubeconfig file of a user that may create tokenreviews.authentication.k8s.io and read the API server's authentication
    /// settings. Default: the in-cluster configuration; outside of a cluster, bearer tokens are ignored and their requests are
    /// anonymous.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,

    /// If false, the --authentication-kubeconfig is used to look up missing authentication configuration (client CA and front
    /// proxy) from the cluster.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) authentication_skip_lookup: Given<bool>,

    /// If true, a failure to look up authentication configuration from the cluster is not fatal. Requests with a client certificate
    /// may then be treated as anonymous.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) authentication_tolerate_lookup_failure: Given<bool>,

    /// Duration for which responses of TokenReviews are cached.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(AuthenticationOptions::default().cache_ttl),
        value_parser = given(flags::duration),
    )]
    pub(crate) authentication_token_webhook_cache_ttl: Given<Duration>,

    /// File with a PEM bundle of CAs for client certificates. A request with a client certificate signed by one of them is
    /// authenticated with the CommonName as the user and the organizations as the groups.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) client_ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) request_header: RequestHeaderArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct RequestHeaderArgs {
    /// File with a PEM bundle of CAs for the client certificates of front proxies, which must be valid before user names in the
    /// request headers are trusted.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,

    /// Comma-separated list of client certificate common names that are allowed to set user names in request headers. Default: any
    /// name in a certificate signed by --requestheader-client-ca-file.
    #[arg(long, value_name = "NAMES")]
    pub(crate) requestheader_allowed_names: Vec<String>,

    /// Comma-separated list of request headers to inspect for user names.
    #[arg(long, value_name = "HEADERS", default_values_t = RequestHeaderOptions::default().username_headers)]
    pub(crate) requestheader_username_headers: Vec<String>,

    /// Comma-separated list of request headers to inspect for groups.
    #[arg(long, value_name = "HEADERS", default_values_t = RequestHeaderOptions::default().group_headers)]
    pub(crate) requestheader_group_headers: Vec<String>,

    /// Comma-separated list of request header prefixes to inspect for extra user information.
    #[arg(long, value_name = "PREFIXES", default_values_t = RequestHeaderOptions::default().extra_header_prefixes)]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,

    /// Comma-separated list of request headers to inspect for UIDs. Requires --feature-gates=RemoteRequestHeaderUID=true, the
    /// default.
    #[arg(long, value_name = "HEADERS")]
    pub(crate) requestheader_uid_headers: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Authorization")]
pub(crate) struct AuthorizationArgs {
    /// Kubeconfig file of a user that may create subjectaccessreviews.authorization.k8s.io. Default: the in-cluster configuration;
    /// outside of a cluster, only --authorization-always-allow-paths are served.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,

    /// Comma-separated list of HTTP paths to skip during authorization; a path that ends with * is a prefix. These paths need no
    /// authorization by the API server.
    #[arg(long, value_name = "PATHS", default_values_t = AuthorizationOptions::default().always_allow_paths)]
    pub(crate) authorization_always_allow_paths: Vec<String>,

    /// Duration for which 'authorized' responses of SubjectAccessReviews are cached.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(AuthorizationOptions::default().allow_ttl),
        value_parser = given(flags::duration),
    )]
    pub(crate) authorization_webhook_cache_authorized_ttl: Given<Duration>,

    /// Duration for which 'unauthorized' responses of SubjectAccessReviews are cached.
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
    /// Enable profiling at /debug/pprof/, and /debug/flags/.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) profiling: Given<bool>,
}
