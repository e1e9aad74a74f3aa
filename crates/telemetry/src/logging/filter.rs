//! Verbosity as klog has it, in levels.

use std::str::FromStr;

use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::BadFilter;
use super::LOG_VARIABLE;

/// What the commands that people run log.
pub(super) const COMMANDS: &str = "warn,kube_client=off,kube_client::client::tls=warn,kube_runtime=error";

/// The client of the API server speaks of every request that fails, and of every watch that the server ends. All of that
/// comes to us as errors, which are told once, in our words and with what is done about them.
const INFO: &str = "info,kube_client=off,kube_client::client::tls=warn,kube_runtime=error";
const DEBUG: &str = "debug,h2=info,hyper=info,hyper_util=info,kube_client=info,rustls=info,tower=info";
/// Requests are told by ourselves.
const TRACE: &str = "trace,h2=info,hyper=info,hyper_util=info,kube_client=info,rustls=info,tower=info";

/// What the environment asks for.
pub(super) fn asked() -> Option<String> {
    std::env::var(LOG_VARIABLE).ok().filter(|text| !text.is_empty())
}

pub(super) fn parse(asked: String) -> Result<EnvFilter, BadFilter> {
    EnvFilter::try_new(&asked).map_err(|error| BadFilter { variable: LOG_VARIABLE, asked, error })
}

/// What a verbosity selects.
pub(super) fn levels(verbosity: i32) -> EnvFilter {
    EnvFilter::new(match level(verbosity) {
        LevelFilter::TRACE => TRACE,
        LevelFilter::DEBUG => DEBUG,
        _ => INFO,
    })
}

/// The most detailed level that a verbosity shows. upstream: 0 to 3 is for operators, 4 and 5 for debugging, 6 and more shows
/// requests.
fn level(verbosity: i32) -> LevelFilter {
    match verbosity {
        ..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}

/// Whether what is logged there may hold a credential, whoever asks for it: the client of the API server writes whole answers
/// (tokens among them) and the headers of HTTP are those with `Authorization`.
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
    let wrong = || format!("{part:?} is not of the form PATTERN=N, such as pass=5 or service/*=4");
    let (pattern, number) = part.split_once('=').ok_or_else(wrong)?;
    let number = number.trim().parse().ok().filter(|number| *number >= 0).ok_or_else(wrong)?;
    if pattern.is_empty() { Err(wrong()) } else { Ok((pattern.to_owned(), number)) }
}

impl VModule {
    /// The most detailed level that any pattern shows.
    pub(super) fn most(&self) -> Option<LevelFilter> {
        self.0.iter().map(|(_, number)| level(*number)).max()
    }

    /// Whether the first pattern that fits the file shows this.
    pub(super) fn shows(&self, metadata: &Metadata<'_>) -> bool {
        let Some(file) = metadata.file().filter(|_| !self.0.is_empty()) else { return false };
        let fitting = self.0.iter().find(|(pattern, _)| fits(pattern, file));
        fitting.is_some_and(|(_, number)| LevelFilter::from_level(*metadata.level()) <= level(*number))
    }
}

/// A pattern with a slash is for the end of the path, one without for the name of the file; neither has the ending. A module
/// whose file is named `mod.rs` has the name of its folder.
fn fits(pattern: &str, file: &str) -> bool {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<_> = path.split('/').collect();
    let wanted: Vec<_> = pattern.split('/').collect();
    let Some(tail) = parts.len().checked_sub(wanted.len()).and_then(|start| parts.get(start..)) else { return false };
    wanted.iter().zip(tail).all(|(wanted, part)| is_like(wanted.as_bytes(), part.as_bytes()))
}

/// `*` stands for anything, `?` for one character.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            is_like(rest, text) || text.split_first().is_some_and(|(_, tail)| is_like(pattern, tail))
        }
        (Some((b'?', rest)), Some((_, tail))) => is_like(rest, tail),
        (Some((wanted, rest)), Some((byte, tail))) => wanted == byte && is_like(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_is_as_klog_has_it() {
        let cases = [(-1, LevelFilter::INFO), (0, LevelFilter::INFO), (3, LevelFilter::INFO), (4, LevelFilter::DEBUG)];
        let more = [(5, LevelFilter::DEBUG), (6, LevelFilter::TRACE), (10, LevelFilter::TRACE)];
        for (verbosity, wanted) in cases.into_iter().chain(more) {
            assert_eq!(level(verbosity), wanted, "{verbosity}");
        }
    }

    #[test]
    fn what_every_verbosity_selects_can_be_parsed() {
        for text in [COMMANDS, INFO, DEBUG, TRACE] {
            assert!(EnvFilter::try_new(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn patterns_are_for_files_or_the_ends_of_paths() {
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
        for (pattern, file, wanted) in cases {
            assert_eq!(fits(pattern, file), wanted, "{pattern} {file}");
        }
    }

    #[test]
    fn a_list_of_patterns_is_read_and_what_is_wrong_is_named() {
        let wanted = vec![("pass".to_owned(), 5), ("route/*".to_owned(), 0)];
        assert_eq!("pass=5, route/*=0,".parse(), Ok(VModule(wanted)));
        assert_eq!("".parse(), Ok(VModule::default()));
        for wrong in ["pass", "pass=", "pass=many", "=5", "pass=-1"] {
            assert!(wrong.parse::<VModule>().is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }
}
