//! The flags about the admission webhooks of providers, and the port they are served at.

use std::net::IpAddr;
use std::path::PathBuf;

use bowline_serving::ServingOptions;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// The port unless given.
// upstream: a provider may change it.
pub(crate) const PORT: u16 = 10260;

#[derive(Debug, Args)]
#[command(next_help_heading = "Webhooks")]
pub(crate) struct WebhookArgs {
    /// The webhooks of the cloud to serve: * for all, NAME for one, -NAME for all but one; none unless given. A list. They
    /// need --feature-gates=CloudControllerManagerWebhook=true.
    #[arg(long, value_name = "NAMES")]
    pub(crate) webhooks: Vec<String>,

    /// The address at which webhooks are served; an unspecified one means all interfaces and both families.
    #[arg(long, value_name = "IP", default_value = ServingOptions::default().bind_address.to_string(), value_parser = given(flags::bind_address))]
    pub(crate) webhook_bind_address: Given<IpAddr>,

    /// The port at which webhooks are served, if there are any; 0 serves none.
    #[arg(long, value_name = "PORT", default_value = PORT.to_string(), value_parser = given(flags::integer))]
    pub(crate) webhook_secure_port: Given<i64>,

    /// As --cert-dir, with the files cloud-controller-manager-webhook.crt and .key.
    #[arg(long, value_name = "DIRECTORY", value_parser = flags::path)]
    pub(crate) webhook_cert_dir: Option<PathBuf>,

    /// As --tls-cert-file.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) webhook_tls_cert_file: Option<PathBuf>,

    /// As --tls-private-key-file.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) webhook_tls_private_key_file: Option<PathBuf>,

    /// As --tls-sni-cert-key.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub(crate) webhook_tls_sni_cert_key: Vec<String>,

    /// As --tls-cipher-suites.
    #[arg(long, value_name = "NAMES")]
    pub(crate) webhook_tls_cipher_suites: Vec<String>,

    /// As --tls-curve-preferences.
    #[arg(long, value_name = "NUMBERS")]
    pub(crate) webhook_tls_curve_preferences: Vec<String>,

    /// As --tls-min-version.
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) webhook_tls_min_version: String,

    /// As --disable-http2-serving.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub webhook_disable_http2_serving: Given<bool>,
}
