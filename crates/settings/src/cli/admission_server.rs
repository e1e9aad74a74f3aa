//! Flags of the admission server.

use std::net::IpAddr;
use std::path::PathBuf;

use bowline_config::ConfigErrors;
use bowline_serving::ServingOptions;
use bowline_telemetry::logging::Format;
use clap::Args;

use super::manager::{CloudArgs, CloudCallArgs};
use crate::flags::{self, Given, given};

/// Default port, that of admission servers built on controller-runtime.
const PORT: u16 = 9443;

/// Flags of the admission server.
#[derive(Debug, Args)]
pub struct AdmissionServerArgs {
    #[command(flatten)]
    pub(crate) clouds: CloudArgs,

    /// The IP address on which to listen for --port. If blank or an unspecified address (0.0.0.0 or ::), all interfaces and IP
    /// address families are used.
    #[arg(
        long,
        value_name = "IP",
        default_value = ServingOptions::default().bind_address.to_string(),
        value_parser = given(flags::bind_address),
        help_heading = "Serving",
    )]
    pub(crate) bind_address: Given<IpAddr>,

    /// The port on which to serve webhooks over HTTPS.
    #[arg(
        long,
        value_name = "PORT",
        default_value = PORT.to_string(),
        value_parser = given(flags::port),
        help_heading = "Serving",
    )]
    pub(crate) port: Given<u16>,

    /// Directory with the certificate tls.crt and its key tls.key, which are reloaded when they change. Default:
    /// k8s-webhook-server/serving-certs in the directory of TMPDIR, or in /tmp.
    #[arg(long, value_name = "DIRECTORY", value_parser = flags::path, help_heading = "Serving")]
    pub(crate) cert_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) calls: CloudCallArgs,

    /// Log level verbosity: 0 logs rejected requests, 4 adds allowed ones. The environment variable BOWLINE_LOG overrides it.
    #[arg(
        short = 'v',
        long,
        value_name = "LEVEL",
        default_value = "0",
        value_parser = given(flags::int32),
        help_heading = "Logging",
    )]
    pub(crate) v: Given<i32>,

    /// Log format: text for the format of klog, or json for one JSON object per line.
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        value_parser = given(|text: &str| text.parse::<Format>()),
        help_heading = "Logging",
    )]
    pub(crate) logging_format: Given<Format>,

    /// Errors in the command line itself, reported with all other errors. Not a flag itself.
    #[arg(skip)]
    pub errors: ConfigErrors,
}
