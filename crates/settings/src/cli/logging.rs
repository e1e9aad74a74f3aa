//! Logging flags.

use std::time::Duration;

use bowline_telemetry::logging::Format;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Logging flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LoggingArgs {
    /// Log level verbosity: 0 logs changes, 4 adds the reasons, 6 and above add every request. The environment variable BOWLINE_LOG
    /// overrides it.
    #[arg(short = 'v', long, value_name = "LEVEL", default_value = "0", value_parser = given(flags::int32))]
    pub v: Given<i32>,

    /// Comma-separated list of PATTERN=LEVEL settings for file-filtered logging (only works for text log format); the flag may be
    /// repeated. A pattern is a file name without extension, and may contain * and ?.
    #[arg(long, value_name = "PATTERN=LEVEL")]
    pub(crate) vmodule: Vec<String>,

    /// Log format: text for the format of klog, or json for one JSON object per line.
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        value_parser = given(|text: &str| text.parse::<Format>()),
    )]
    pub(crate) logging_format: Given<Format>,

    /// Accepted without effect, since logs are not buffered. Must be greater than 0.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = given(flags::pause))]
    pub(crate) log_flush_frequency: Given<Duration>,

    /// [Alpha] In text format, write error messages to stderr and info messages to stdout. Requires
    /// --feature-gates=LoggingAlphaOptions=true.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) log_text_split_stream: Given<bool>,

    /// [Alpha] In JSON format, write error messages to stderr and info messages to stdout. Requires
    /// --feature-gates=LoggingAlphaOptions=true.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) log_json_split_stream: Given<bool>,

    /// [Alpha] Accepted without effect, since logs are not buffered. A quantity such as 512, 1Ki or 2M; a value above 0 requires
    /// --feature-gates=LoggingAlphaOptions=true.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = given(flags::quantity))]
    pub(crate) log_text_info_buffer_size: Given<u64>,

    /// [Alpha] Accepted without effect, since logs are not buffered. A quantity such as 512, 1Ki or 2M; a value above 0 requires
    /// --feature-gates=LoggingAlphaOptions=true.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = given(flags::quantity))]
    pub(crate) log_json_info_buffer_size: Given<u64>,
}
