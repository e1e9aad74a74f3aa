//! What the flags about logs come to.

use bowline_config::{ConfigError, ConfigErrors};
use bowline_telemetry::logging::{Format, Options, VModule};

use super::{list, taken};
use crate::cli::{LoggingArgs, ManagerArgs};
use crate::feature_gates::FeatureGates;

/// Before anything is checked: what is wrong is told with all the rest, in the log that is made from this.
pub fn early_logging(args: &ManagerArgs) -> Options {
    let mut later = ConfigErrors::new();
    let gates = FeatureGates::new(&args.controllers.selection.feature_gates, &mut later);
    resolve(&args.logging, &gates, &mut later)
}

/// The gates are needed for the flags that are there for a trial.
pub(super) fn resolve(args: &LoggingArgs, gates: &FeatureGates, errors: &mut ConfigErrors) -> Options {
    let format = taken(&args.logging_format, errors).unwrap_or_default();
    let vmodule = list(&args.vmodule);
    if !vmodule.is_empty() && format != Format::Text {
        // upstream: these words.
        errors.push(ConfigError::flag("vmodule", "Forbidden: Only supported for text log format"));
    }
    taken(&args.log_flush_frequency, errors);
    let verbosity = taken(&args.v, errors).unwrap_or(0);
    if verbosity < 0 {
        errors.push(ConfigError::flag("v", format!("{verbosity} is no verbosity")).hint("the least is 0"));
    }
    let split_stream = split_stream(args, format, gates, errors);
    Options { format, verbosity, vmodule: patterns(&vmodule, errors), split_stream }
}

fn patterns(items: &[String], errors: &mut ConfigErrors) -> VModule {
    items.join(",").parse().unwrap_or_else(|error: String| {
        errors.push(ConfigError::flag("vmodule", error));
        VModule::default()
    })
}

/// Whether standard output is used, too, in the format that is chosen.
fn split_stream(args: &LoggingArgs, format: Format, gates: &FeatureGates, errors: &mut ConfigErrors) -> bool {
    let text = taken(&args.log_text_split_stream, errors).unwrap_or(false);
    let json = taken(&args.log_json_split_stream, errors).unwrap_or(false);
    let sizes = [&args.log_text_info_buffer_size, &args.log_json_info_buffer_size]
        .map(|size| taken(size, errors).is_some_and(|size| size > 0));
    let names =
        ["log-text-split-stream", "log-json-split-stream", "log-text-info-buffer-size", "log-json-info-buffer-size"];
    let used = [[text, json], sizes].concat();
    for name in
        names.into_iter().zip(used).filter(|(_, is_used)| *is_used && !gates.logging_alpha()).map(|(name, _)| name)
    {
        // upstream: these words.
        let problem = ConfigError::flag(name, "Forbidden: Feature LoggingAlphaOptions is disabled");
        errors.push(problem.hint("add --feature-gates=LoggingAlphaOptions=true, or leave the flag out"));
    }
    match format {
        Format::Text => text,
        Format::Json => json,
    }
}
