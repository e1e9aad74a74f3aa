//! The flags about logs.

use std::time::Duration;

use bowline_telemetry::logging::Format;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Flags about logs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LoggingArgs {
    /// How much to log: 0 tells what happens, 4 why, 6 and more every request. BOWLINE_LOG goes before it.
    #[arg(short = 'v', long, value_name = "LEVEL", default_value = "0", value_parser = given(flags::int32))]
    pub v: Given<i32>,

    /// Another level for the files whose name without its ending matches, * and ? being any letters; with
    /// --logging-format=text only. A list: separated by commas, or the flag given again.
    #[arg(long, value_name = "PATTERN=LEVEL")]
    pub(crate) vmodule: Vec<String>,

    /// How a line of the log is written: text, as klog does, or json, one object.
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        value_parser = given(|text: &str| text.parse::<Format>()),
    )]
    pub(crate) logging_format: Given<Format>,

    /// Lines are written at once, so there is nothing to flush; the duration is checked, it must be longer than 0.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = given(flags::pause))]
    pub(crate) log_flush_frequency: Given<Duration>,

    /// With --logging-format=text, write what went wrong to standard error and the rest to standard output. It needs
    /// --feature-gates=LoggingAlphaOptions=true, as do the next three.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) log_text_split_stream: Given<bool>,

    /// The same with --logging-format=json.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) log_json_split_stream: Given<bool>,

    /// Lines are written at once, so there is no buffer; the size is checked, such as 512, 1Ki or 2M.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = given(flags::quantity))]
    pub(crate) log_text_info_buffer_size: Given<u64>,

    /// The same with --logging-format=json.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = given(flags::quantity))]
    pub(crate) log_json_info_buffer_size: Given<u64>,
}
