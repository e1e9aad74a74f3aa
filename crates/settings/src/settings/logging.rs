//! Resolves the logging flags.

use bowline_config::{ConfigError, ConfigErrors};
use bowline_telemetry::logging::{Format, Options, VModule};

use super::{list, valid};
use crate::cli::{AdmissionServerArgs, LoggingArgs, ManagerArgs};
use crate::feature_gates::FeatureGates;
use crate::flags::Given;

/// Resolves the logging options before the other flags. Errors are ignored here, because [`Settings`](crate::Settings) reports
/// them.
pub fn early_logging(args: &ManagerArgs) -> Options {
    let mut later = ConfigErrors::new();
    let gates = FeatureGates::new(&args.controllers.selection.feature_gates, &mut later);
    resolve(&args.logging, &gates, &mut later)
}

/// Resolves the logging options of the admission server, as [`early_logging`] does for the manager.
pub fn admission_server_logging(args: &AdmissionServerArgs) -> Options {
    resolve_admission_server(args, &mut ConfigErrors::new())
}

pub(super) fn resolve_admission_server(args: &AdmissionServerArgs, errors: &mut ConfigErrors) -> Options {
    let format = valid(&args.logging_format, errors).unwrap_or_default();
    Options { format, verbosity: verbosity(&args.v, errors), vmodule: VModule::default(), split_stream: false }
}

fn verbosity(given: &Given<i32>, errors: &mut ConfigErrors) -> i32 {
    let verbosity = valid(given, errors).unwrap_or(0);
    if verbosity < 0 {
        errors.push(ConfigError::flag("v", format!("invalid verbosity {verbosity}")).hint("the minimum is 0"));
    }
    verbosity
}

/// Resolves the logging options. `gates` enable the alpha flags.
pub(super) fn resolve(args: &LoggingArgs, gates: &FeatureGates, errors: &mut ConfigErrors) -> Options {
    let format = valid(&args.logging_format, errors).unwrap_or_default();
    let vmodule = list(&args.vmodule);
    if !vmodule.is_empty() && format != Format::Text {
        // upstream: this message.
        errors.push(ConfigError::flag("vmodule", "Forbidden: Only supported for text log format"));
    }
    valid(&args.log_flush_frequency, errors);
    let verbosity = verbosity(&args.v, errors);
    let split_stream = split_stream(args, format, gates, errors);
    Options { format, verbosity, vmodule: patterns(&vmodule, errors), split_stream }
}

fn patterns(items: &[String], errors: &mut ConfigErrors) -> VModule {
    items.join(",").parse().unwrap_or_else(|error: String| {
        errors.push(ConfigError::flag("vmodule", error));
        VModule::default()
    })
}

/// Whether info messages are written to standard output in the selected format.
fn split_stream(args: &LoggingArgs, format: Format, gates: &FeatureGates, errors: &mut ConfigErrors) -> bool {
    let text = valid(&args.log_text_split_stream, errors).unwrap_or(false);
    let json = valid(&args.log_json_split_stream, errors).unwrap_or(false);
    let sizes = [&args.log_text_info_buffer_size, &args.log_json_info_buffer_size]
        .map(|size| valid(size, errors).is_some_and(|size| size > 0));
    let names =
        ["log-text-split-stream", "log-json-split-stream", "log-text-info-buffer-size", "log-json-info-buffer-size"];
    let used = [[text, json], sizes].concat();
    for name in
        names.into_iter().zip(used).filter(|(_, is_used)| *is_used && !gates.logging_alpha()).map(|(name, _)| name)
    {
        // upstream: this message.
        let error = ConfigError::flag(name, "Forbidden: Feature LoggingAlphaOptions is disabled");
        errors.push(error.hint("add --feature-gates=LoggingAlphaOptions=true, or remove the flag"));
    }
    match format {
        Format::Text => text,
        Format::Json => json,
    }
}
