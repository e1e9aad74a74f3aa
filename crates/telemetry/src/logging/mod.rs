//! Logging in the formats of the Go managers.
//!
//! ```text
//! tracing ──► Selection (--v, --vmodule, BOWLINE_LOG; can be changed at runtime)
//!                └──► Lines: fields of the event and its spans, each name once
//!                        ├─ text: the format of klog    ──► Sink: never blocks for long, never fails
//!                        └─ json: the format of zapr
//! ```
//!
//! The manager's log lines have the format of the Go managers, so that log collectors and searches keep working. The other commands
//! write for a terminal.

mod callsite;
mod fields;
mod filter;
mod json;
mod layer;
mod selection;
mod sink;
mod text;
mod zone;

use std::io::{self, IsTerminal as _};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tracing::Dispatch;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

pub use filter::VModule;

use filter::{from_environment, levels};
use layer::Lines;
use selection::Selection;
use sink::{Errors, Sink};

use crate::traces::Recorder;

/// Environment variable with a log filter.
const LOG_VARIABLE: &str = "BOWLINE_LOG";

/// Target of messages that are written without quotes, as by klog's unstructured functions.
pub const AS_WRITTEN: &str = "bowline::as_written";

/// Logging options of the manager.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `--logging-format`.
    pub format: Format,
    /// `--v`.
    pub verbosity: i32,
    /// `--vmodule`.
    pub vmodule: VModule,
    /// `--log-text-split-stream` or `--log-json-split-stream`: only errors go to standard error.
    pub split_stream: bool,
}

/// Log format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// The format of klog.
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

/// The log filter in the environment variable is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: invalid filter {filter:?} ({error}); use a level such as debug, or module=level")]
pub struct BadFilter {
    variable: &'static str,
    filter: String,
    error: tracing_subscriber::filter::ParseError,
}

/// Changes the verbosity at runtime.
#[derive(Clone)]
pub struct Handle {
    selection: reload::Handle<Selection, Registry>,
    vmodule: VModule,
    verbosity: Arc<AtomicI32>,
}

/// Starts the manager's logging, and the recorder of traces if there is one.
pub fn start(options: &Options, recorder: Option<Recorder>) -> Result<Handle, BadFilter> {
    let filter = match from_environment() {
        Some(text) => filter::parse(text)?,
        None => levels(options.verbosity),
    };
    let errors = if options.format == Format::Text { Errors::AndWarnings } else { Errors::Alone };
    let sink = Sink::standard(options.split_stream.then_some(errors));
    let (dispatch, handle) = build(options, filter, sink, recorder);
    // A subscriber that is already installed stays.
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
        // Without a recorder, only the log filter enables spans.
        None => registry.into(),
        Some(recorder) => registry.with(recorder.with_filter(filter_fn(Recorder::is_recorded))).into(),
    };
    (dispatch, handle)
}

/// Starts the logging of interactive commands. The writers are standard error, so that scripts can parse standard output.
pub fn start_plain<W: io::Write + 'static>(writer: impl Fn() -> W + Send + Sync + 'static) -> Result<(), BadFilter> {
    let filter = match from_environment() {
        Some(text) => filter::parse(text)?,
        None => EnvFilter::new(filter::COMMANDS),
    };
    // Colours on a terminal only, not in files and pipes.
    let colours = io::stderr().is_terminal();
    // Errors about a failed write would go to the same stream.
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(writer);
    let lines = lines.log_internal_errors(false).with_filter(Selection::new(filter, VModule::default()));
    let _ = tracing_subscriber::registry().with(lines).try_init();
    Ok(())
}

/// Starts the logging of an interactive command that shows its log itself. Each line goes to its own writer.
pub fn start_to<W: io::Write + 'static>(writer: impl Fn() -> W + Send + Sync + 'static) -> Result<(), BadFilter> {
    let filter = match from_environment() {
        Some(text) => filter::parse(text)?,
        None => levels(0),
    };
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    let lines = lines.log_internal_errors(false).with_filter(Selection::new(filter, VModule::default()));
    let _ = tracing_subscriber::registry().with(lines).try_init();
    Ok(())
}

impl Handle {
    /// Sets the verbosity, which replaces `--v` and `BOWLINE_LOG`.
    pub fn set_verbosity(&self, verbosity: i32) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
        // It fails only without a subscriber.
        let _ = self.selection.reload(Selection::new(levels(verbosity), self.vmodule.clone()));
    }

    /// Current verbosity.
    pub fn verbosity(&self) -> i32 {
        self.verbosity.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("verbosity", &self.verbosity()).finish_non_exhaustive()
    }
}

/// Prints to standard error, outside of the log. Unlike `eprintln!`, it does not panic if standard error is closed, and a full pipe cannot
/// keep the process from exiting.
pub fn print_error(text: &str) {
    sink::print_error(text);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Returns the messages that are logged while `act` runs.
    fn logged(options: &Options, act: impl FnOnce(&Handle)) -> Vec<String> {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let (dispatch, handle) = build(options, levels(options.verbosity), Sink::to_memory(buffer.clone()), None);
        tracing::dispatcher::with_default(&dispatch, || act(&handle));
        let text = String::from_utf8(buffer.lock().unwrap().clone()).unwrap();
        text.lines().filter_map(|line| Some(line.split_once("] ")?.1.trim_matches('"').to_owned())).collect()
    }

    fn log_at_all_levels() {
        tracing::info!("info");
        tracing::debug!("debug");
        tracing::trace!("trace");
    }

    #[test]
    fn verbosity_can_be_changed_at_runtime() {
        let lines = logged(&Options::default(), |handle| {
            for verbosity in [0, 4, 10, 0] {
                handle.set_verbosity(verbosity);
                assert_eq!(handle.verbosity(), verbosity);
                log_at_all_levels();
            }
        });
        assert_eq!(lines, ["info", "info", "debug", "info", "debug", "trace", "info"]);
    }

    #[test]
    fn vmodule_raises_the_verbosity_of_a_file() {
        let with = |vmodule: &str| Options { vmodule: vmodule.parse().unwrap(), ..Options::default() };
        assert_eq!(logged(&with("logging=5"), |_| log_at_all_levels()), ["info", "debug"]);
        assert_eq!(logged(&with("other=9"), |_| log_at_all_levels()), ["info"]);
    }

    #[test]
    fn response_bodies_and_headers_are_never_logged() {
        let options = Options { verbosity: 10, vmodule: "*=10".parse().unwrap(), ..Options::default() };
        let lines = logged(&options, |_| {
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
    fn a_format_is_text_or_json() {
        assert_eq!("text".parse(), Ok(Format::Text));
        assert_eq!("json".parse(), Ok(Format::Json));
        assert!("JSON".parse::<Format>().is_err_and(|error| error.contains("text or json")));
    }
}
