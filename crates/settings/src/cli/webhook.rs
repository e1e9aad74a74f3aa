//! Flags of the providers' admission webhooks.

use std::net::IpAddr;
use std::path::PathBuf;

use bowline_serving::ServingOptions;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Default port.
// upstream: a provider may change it.
pub(crate) const PORT: u16 = 10260;

#[derive(Debug, Args)]
#[command(next_help_heading = "Webhooks")]
pub(crate) struct WebhookArgs {
    /// Comma-separated list of the cloud's webhooks to serve; the flag may be repeated. '*' enables all webhooks, 'foo' enables the
    /// webhook named 'foo', '-foo' disables it. Requires --feature-gates=CloudControllerManagerWebhook=true. Default: none.
    #[arg(long, value_name = "NAMES")]
    pub(crate) webhooks: Vec<String>,

    /// The IP address on which to listen for --webhook-secure-port. If blank or an unspecified address (0.0.0.0 or ::), all
    /// interfaces and IP address families are used.
    #[arg(long, value_name = "IP", default_value = ServingOptions::default().bind_address.to_string(), value_parser = given(flags::bind_address))]
    pub(crate) webhook_bind_address: Given<IpAddr>,

    /// The port on which to serve webhooks over HTTPS. If 0, don't serve webhooks at all.
    #[arg(long, value_name = "PORT", default_value = PORT.to_string(), value_parser = given(flags::integer))]
    pub(crate) webhook_secure_port: Given<i64>,

    /// Like --cert-dir, with cloud-controller-manager-webhook.crt and cloud-controller-manager-webhook.key.
    #[arg(long, value_name = "DIRECTORY", value_parser = flags::path)]
    pub(crate) webhook_cert_dir: Option<PathBuf>,

    /// Like --tls-cert-file, for webhooks.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) webhook_tls_cert_file: Option<PathBuf>,

    /// Like --tls-private-key-file, for webhooks.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) webhook_tls_private_key_file: Option<PathBuf>,

    /// Like --tls-sni-cert-key, for webhooks.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub(crate) webhook_tls_sni_cert_key: Vec<String>,

    /// Like --tls-cipher-suites, for webhooks.
    #[arg(long, value_name = "NAMES")]
    pub(crate) webhook_tls_cipher_suites: Vec<String>,

    /// Like --tls-curve-preferences, for webhooks.
    #[arg(long, value_name = "NUMBERS")]
    pub(crate) webhook_tls_curve_preferences: Vec<String>,

    /// Like --tls-min-version, for webhooks.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) webhook_tls_min_version: String,

    /// Like --disable-http2-serving, for webhooks.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub webhook_disable_http2_serving: Given<bool>,
}
