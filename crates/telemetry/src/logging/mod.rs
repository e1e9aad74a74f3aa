//! What the process tells of its work, line by line.
//!
//! ```text
//! tracing ──► Selection (--v, --vmodule, BOWLINE_LOG; can change while it runs)
//!                └──► Lines: fields of the event and of the spans around it, each name once
//!                        ├─ text: as klog writes it     ──► Sink: never waits long, never fails
//!                        └─ json: as zapr writes it
//! ```
//!
//! The manager's lines are those of the Go managers, so that what collects and searches them goes on working. The other
//! commands speak to a person at a terminal and look like it.

mod fields;
mod filter;
mod json;
mod layer;
mod place;
mod selection;
mod sink;
mod text;
mod zone;

use std::io::IsTerminal as _;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tracing::Dispatch;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

pub use filter::VModule;

use filter::{asked, levels};
use layer::Lines;
use selection::Selection;
use sink::{Errors, Sink};

use crate::traces::Recorder;

/// Names the environment variable that selects what is logged.
const LOG_VARIABLE: &str = "BOWLINE_LOG";

/// Lines of this target are written as they are, where klog's older functions are imitated: no quotes around them.
pub const AS_WRITTEN: &str = "bowline::as_written";

/// How the manager logs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `--logging-format`.
    pub format: Format,
    /// `--v`.
    pub verbosity: i32,
    /// `--vmodule`.
    pub vmodule: VModule,
    /// `--log-text-split-stream` or `--log-json-split-stream`: standard error for errors only.
    pub split_stream: bool,
}

/// What a line looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// As klog writes it.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err("expected text or json".to_owned()),
        }
    }
}

/// The environment variable that selects what is logged does not.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: {asked:?} selects nothing ({error}); write a level such as debug, or module=level")]
pub struct BadFilter {
    variable: &'static str,
    asked: String,
    error: tracing_subscriber::filter::ParseError,
}

/// Changes what is logged while the process runs.
#[derive(Clone)]
pub struct Handle {
    selection: reload::Handle<Selection, Registry>,
    vmodule: VModule,
    verbosity: Arc<AtomicI32>,
}

/// Starts the manager's logging, and what records traces, if there are any.
pub fn start(options: &Options, recorder: Option<Recorder>) -> Result<Handle, BadFilter> {
    let filter = match asked() {
        Some(asked) => filter::parse(asked)?,
        None => levels(options.verbosity),
    };
    let errors = if options.format == Format::Text { Errors::AndWarnings } else { Errors::Alone };
    let sink = Sink::standard(options.split_stream.then_some(errors));
    let (dispatch, handle) = build(options, filter, sink, recorder);
    // Where something logs already, it goes on.
    let _ = dispatch.try_init();
    Ok(handle)
}

fn build(options: &Options, filter: EnvFilter, sink: Sink, recorder: Option<Recorder>) -> (Dispatch, Handle) {
    let (selection, handle) = reload::Layer::new(Selection::new(filter, options.vmodule.clone()));
    let lines = Lines::new(options.format, sink).with_filter(selection);
    let verbosity = Arc::new(AtomicI32::new(options.verbosity));
    let handle = Handle { selection: handle, vmodule: options.vmodule.clone(), verbosity };
    let registry = tracing_subscriber::registry().with(lines);
    let dispatch = match recorder {
        // Without one, nothing but the log decides whether a span is made.
        None => registry.into(),
        Some(recorder) => registry.with(recorder.with_filter(filter_fn(Recorder::wants))).into(),
    };
    (dispatch, handle)
}

/// Starts the logging of the commands that people run. Logs go to standard error, so that standard output stays readable by
/// scripts.
pub fn start_plain() -> Result<(), BadFilter> {
    let filter = match asked() {
        Some(asked) => filter::parse(asked)?,
        None => EnvFilter::new(filter::COMMANDS),
    };
    // Colours are for people; a file or another program gets plain lines.
    let colours = std::io::stderr().is_terminal();
    // Its own remarks about what it could not write would go where it could not write.
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    let lines = lines.log_internal_errors(false).with_filter(Selection::new(filter, VModule::default()));
    let _ = tracing_subscriber::registry().with(lines).try_init();
    Ok(())
}

impl Handle {
    /// From now on what this verbosity says is logged, whatever was asked for before.
    pub fn set_verbosity(&self, verbosity: i32) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
        // It fails only when nothing logs any more.
        let _ = self.selection.reload(Selection::new(levels(verbosity), self.vmodule.clone()));
    }

    /// What `--v` says, or what was set since.
    pub fn verbosity(&self) -> i32 {
        self.verbosity.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("verbosity", &self.verbosity()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What is written while `tell` runs, one message per line.
    fn written(options: &Options, tell: impl FnOnce(&Handle)) -> Vec<String> {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let (dispatch, handle) = build(options, levels(options.verbosity), Sink::to_memory(buffer.clone()), None);
        tracing::dispatcher::with_default(&dispatch, || tell(&handle));
        let text = String::from_utf8(buffer.lock().unwrap().clone()).unwrap();
        text.lines().filter_map(|line| Some(line.split_once("] ")?.1.trim_matches('"').to_owned())).collect()
    }

    fn tell_at_all_levels() {
        tracing::info!("info");
        tracing::debug!("debug");
        tracing::trace!("trace");
    }

    #[test]
    fn verbosity_can_change_while_it_runs() {
        let lines = written(&Options::default(), |handle| {
            for verbosity in [0, 4, 10, 0] {
                handle.set_verbosity(verbosity);
                assert_eq!(handle.verbosity(), verbosity);
                tell_at_all_levels();
            }
        });
        assert_eq!(lines, ["info", "info", "debug", "info", "debug", "trace", "info"]);
    }

    #[test]
    fn vmodule_adds_to_what_a_file_logs() {
        let with = |vmodule: &str| Options { vmodule: vmodule.parse().unwrap(), ..Options::default() };
        assert_eq!(written(&with("logging=5"), |_| tell_at_all_levels()), ["info", "debug"]);
        assert_eq!(written(&with("other=9"), |_| tell_at_all_levels()), ["info"]);
    }

    #[test]
    fn whole_answers_and_headers_are_not_logged_whoever_asks() {
        let options = Options { verbosity: 10, vmodule: "*=10".parse().unwrap(), ..Options::default() };
        let lines = written(&options, |_| {
            tracing::warn!(target: "kube_client::client", "answer");
            tracing::trace!(target: "h2::codec::framed_write", "headers");
            tracing::debug!(target: "hyper::proto::h1", "headers");
            tracing::trace!(target: "rustls::client", "keys");
            tracing::debug!(target: "rustls::client", "suite");
            tracing::warn!(target: "kube_client::client::tls", "certificates");
        });
        assert_eq!(lines, ["suite", "certificates"]);
    }

    #[test]
    fn a_format_has_one_of_two_names() {
        assert_eq!("text".parse(), Ok(Format::Text));
        assert_eq!("json".parse(), Ok(Format::Json));
        assert!("JSON".parse::<Format>().is_err_and(|error| error.contains("text or json")));
    }
}
