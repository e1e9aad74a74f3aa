//! What the flags about logs come to.

use bowline_config::{Problem, Problems, nearest};

use super::{list, taken};
use crate::cli::{LoggingArgs, ManagerArgs};
use crate::feature_gates::FeatureGates;

/// How to log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Logging {
    pub(crate) format: Format,
    /// `-v`: 0 tells what happens, 4 why, 6 and more every request.
    pub(crate) verbosity: i32,
    /// `--vmodule`: patterns of file names without ending, and the level for each.
    pub(crate) vmodule: Vec<(String, i32)>,
    /// What is no warning and no error goes to standard output.
    pub(crate) split_stream: bool,
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    /// As klog does.
    #[default]
    Text,
    /// One object.
    Json,
}

impl Logging {
    /// Before anything is checked: what is wrong is told with all the rest, in the log that is made from this.
    #[allow(dead_code, reason = "who starts the log asks")]
    pub(crate) fn early(args: &ManagerArgs) -> Logging {
        let mut later = Problems::new();
        let gates = FeatureGates::new(&args.controllers.selection.feature_gates, &mut later);
        Logging::resolve(&args.logging, &gates, &mut later)
    }

    /// The gates are needed for the flags that are there for a trial.
    pub(crate) fn resolve(args: &LoggingArgs, gates: &FeatureGates, problems: &mut Problems) -> Logging {
        let format = format(&args.logging_format, problems);
        let vmodule = vmodule(&list(&args.vmodule), problems);
        if !vmodule.is_empty() && format != Format::Text {
            // upstream: these words.
            problems.push(Problem::flag("vmodule", "Forbidden: Only supported for text log format"));
        }
        taken(&args.log_flush_frequency, problems);
        let verbosity = taken(&args.v, problems).unwrap_or(0);
        if verbosity < 0 {
            problems.push(Problem::flag("v", format!("{verbosity} is no verbosity")).hint("the least is 0"));
        }
        Logging { format, verbosity, vmodule, split_stream: split_stream(args, format, gates, problems) }
    }
}

fn format(text: &str, problems: &mut Problems) -> Format {
    match text {
        "text" => Format::Text,
        "json" => Format::Json,
        other => {
            // upstream: these words.
            let problem = Problem::flag("logging-format", format!("Unsupported log format {other:?}"));
            let near = nearest(other, ["text", "json"]).map(|near| format!("did you mean {near}?"));
            problems.push(problem.hint(near.unwrap_or_else(|| "known are text and json".to_owned())));
            Format::Text
        }
    }
}

fn vmodule(items: &[String], problems: &mut Problems) -> Vec<(String, i32)> {
    let mut read = Vec::new();
    for item in items.iter().filter(|item| !item.is_empty()) {
        let pair = item.split_once('=').filter(|(pattern, _)| !pattern.is_empty());
        match pair.and_then(|(pattern, level)| Some((pattern.to_owned(), level.parse().ok()?))) {
            Some(pair) => read.push(pair),
            None => {
                let problem = Problem::flag("vmodule", format!("{item:?} is no pattern with a level"));
                problems.push(problem.hint("write pattern=N, such as service*=4"));
            }
        }
    }
    read
}

/// Whether standard output is used, too, in the format that is chosen.
fn split_stream(args: &LoggingArgs, format: Format, gates: &FeatureGates, problems: &mut Problems) -> bool {
    let text = taken(&args.log_text_split_stream, problems).unwrap_or(false);
    let json = taken(&args.log_json_split_stream, problems).unwrap_or(false);
    let sizes = [&args.log_text_info_buffer_size, &args.log_json_info_buffer_size]
        .map(|size| taken(size, problems).is_some_and(|size| size > 0));
    let names =
        ["log-text-split-stream", "log-json-split-stream", "log-text-info-buffer-size", "log-json-info-buffer-size"];
    let used = [[text, json], sizes].concat();
    for name in
        names.into_iter().zip(used).filter(|(_, is_used)| *is_used && !gates.logging_alpha()).map(|(name, _)| name)
    {
        // upstream: these words.
        let problem = Problem::flag(name, "Forbidden: Feature LoggingAlphaOptions is disabled");
        problems.push(problem.hint("add --feature-gates=LoggingAlphaOptions=true, or leave the flag out"));
    }
    match format {
        Format::Text => text,
        Format::Json => json,
    }
}
