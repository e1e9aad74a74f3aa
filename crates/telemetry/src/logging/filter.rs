//! Maps klog's verbosity to levels.

use std::str::FromStr;

use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::BadFilter;
use super::LOG_VARIABLE;

/// Filter of interactive commands.
pub(super) const COMMANDS: &str = "warn,kube_client=off,kube_client::client::tls=warn,kube_runtime=error";

/// Filter of the default verbosity. kube logs every failed request and every watch that the API server closes; they are returned as
/// errors, which the controllers log once with their reaction.
const INFO: &str = "info,kube_client=off,kube_client::client::tls=warn,kube_runtime=error";
const DEBUG: &str = "debug,h2=info,hyper=info,hyper_util=info,kube_client=info,rustls=info,tower=info";
/// Requests are logged by our own HTTP layers.
const TRACE: &str = "trace,h2=info,hyper=info,hyper_util=info,kube_client=info,rustls=info,tower=info";

/// Reads the filter from the environment.
pub(super) fn from_environment() -> Option<String> {
    std::env::var(LOG_VARIABLE).ok().filter(|text| !text.is_empty())
}

pub(super) fn parse(filter: String) -> Result<EnvFilter, BadFilter> {
    EnvFilter::try_new(&filter).map_err(|error| BadFilter { variable: LOG_VARIABLE, filter, error })
}

/// Returns the filter of a verbosity.
pub(super) fn levels(verbosity: i32) -> EnvFilter {
    EnvFilter::new(match level(verbosity) {
        LevelFilter::TRACE => TRACE,
        LevelFilter::DEBUG => DEBUG,
        _ => INFO,
    })
}

/// Most detailed level of a verbosity. upstream: 0 to 3 is for operators, 4 and 5 for debugging, 6 and above log requests.
fn level(verbosity: i32) -> LevelFilter {
    match verbosity {
        ..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}

/// Whether a message may contain credentials and is never logged: kube logs response bodies, which include tokens, and HTTP
/// libraries log headers, which include `Authorization`.
pub(super) fn may_hold_secrets(metadata: &Metadata<'_>) -> bool {
    let level = LevelFilter::from_level(*metadata.level());
    let target = metadata.target();
    match target.split("::").next().unwrap_or_default() {
        "kube_client" => target == "kube_client::client" || target.starts_with("kube_client::client::auth"),
        "h2" | "hyper" => level > LevelFilter::INFO,
        "hyper_util" | "rustls" | "tokio_rustls" | "tower" | "tower_http" => level > LevelFilter::DEBUG,
        _ => false,
    }
}

/// `--vmodule`: verbosity by file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VModule(Vec<(String, i32)>);

impl FromStr for VModule {
    type Err = String;

    fn from_str(text: &str) -> Result<VModule, String> {
        let filled = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        filled.map(pattern).collect::<Result<_, _>>().map(VModule)
    }
}

fn pattern(part: &str) -> Result<(String, i32), String> {
    let invalid = || format!("{part:?} is not of the form PATTERN=LEVEL, such as manager=5 or service/*=4");
    let (pattern, number) = part.split_once('=').ok_or_else(invalid)?;
    let number = number.trim().parse().ok().filter(|number| *number >= 0).ok_or_else(invalid)?;
    if pattern.is_empty() { Err(invalid()) } else { Ok((pattern.to_owned(), number)) }
}

impl VModule {
    /// Most detailed level of all patterns.
    pub(super) fn most(&self) -> Option<LevelFilter> {
        self.0.iter().map(|(_, number)| level(*number)).max()
    }

    /// Whether the first pattern that matches the file enables this message.
    pub(super) fn shows(&self, metadata: &Metadata<'_>) -> bool {
        let Some(file) = metadata.file().filter(|_| !self.0.is_empty()) else { return false };
        let matching = self.0.iter().find(|(pattern, _)| matches_file(pattern, file));
        matching.is_some_and(|(_, number)| LevelFilter::from_level(*metadata.level()) <= level(*number))
    }
}

/// Whether a pattern matches a file. A pattern with a slash matches the end of the path, one without the file name, both without
/// the extension. A file `mod.rs` has the name of its directory.
fn matches_file(pattern: &str, file: &str) -> bool {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<_> = path.split('/').collect();
    let patterns: Vec<_> = pattern.split('/').collect();
    let Some(tail) = parts.len().checked_sub(patterns.len()).and_then(|start| parts.get(start..)) else { return false };
    patterns.iter().zip(tail).all(|(pattern, part)| glob(pattern.as_bytes(), part.as_bytes()))
}

/// Glob match: `*` matches any text, `?` one character.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => glob(rest, text) || text.split_first().is_some_and(|(_, tail)| glob(pattern, tail)),
        (Some((b'?', rest)), Some((_, tail))) => glob(rest, tail),
        (Some((expected, rest)), Some((byte, tail))) => expected == byte && glob(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_maps_to_levels_as_in_klog() {
        let cases = [(-1, LevelFilter::INFO), (0, LevelFilter::INFO), (3, LevelFilter::INFO), (4, LevelFilter::DEBUG)];
        let more = [(5, LevelFilter::DEBUG), (6, LevelFilter::TRACE), (10, LevelFilter::TRACE)];
        for (verbosity, expected) in cases.into_iter().chain(more) {
            assert_eq!(level(verbosity), expected, "{verbosity}");
        }
    }

    #[test]
    fn the_filter_of_every_verbosity_is_valid() {
        for text in [COMMANDS, INFO, DEBUG, TRACE] {
            assert!(EnvFilter::try_new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn patterns_match_file_names_or_ends_of_paths() {
        let cases = [
            ("pass", "crates/controllers/src/service/pass.rs", true),
            ("service/pass", "crates/controllers/src/service/pass.rs", true),
            ("route/pass", "crates/controllers/src/service/pass.rs", false),
            ("service/*", "crates/controllers/src/service/pass.rs", true),
            ("pa*", "src/pass.rs", true),
            ("p?ss", "src/pass.rs", true),
            ("pas", "src/pass.rs", false),
            ("*", "src/pass.rs", true),
            ("service", "crates/controllers/src/service/mod.rs", true),
            ("a/b/c/d", "b/c/d.rs", false),
        ];
        for (pattern, file, expected) in cases {
            assert_eq!(matches_file(pattern, file), expected, "{pattern} {file}");
        }
    }

    #[test]
    fn a_list_of_patterns_is_parsed_and_an_invalid_one_is_named_in_the_error() {
        let expected = vec![("pass".to_owned(), 5), ("route/*".to_owned(), 0)];
        assert_eq!("pass=5, route/*=0,".parse(), Ok(VModule(expected)));
        assert_eq!("".parse(), Ok(VModule::default()));
        for invalid in ["pass", "pass=", "pass=many", "=5", "pass=-1"] {
            assert!(invalid.parse::<VModule>().is_err_and(|error| error.contains(invalid)), "{invalid}");
        }
    }
}
