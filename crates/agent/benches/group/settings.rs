//! Arguments of the benchmark.

use std::time::Duration;

use crate::load::Result;
use crate::process::with_open_files;

const FILES: &str = "BOWLINE_GROUP_BENCH_FILES";

pub(crate) struct Settings {
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
    only: Option<String>,
}

impl Settings {
    pub(crate) fn from_arguments() -> Settings {
        let arguments: Vec<String> = std::env::args().collect();
        let text = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name);
            at.and_then(|at| arguments.get(at + 1)).cloned()
        };
        let value = |name: &str| text(name).and_then(|value| value.parse().ok()).unwrap_or(3);
        let time = Duration::from_secs(u64::try_from(value("--seconds")).unwrap_or(3));
        Settings { time, rounds: value("--rounds"), only: text("--only") }
    }

    pub(crate) fn includes(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

pub(crate) fn has_open_files() -> bool {
    std::env::var_os(FILES).is_some()
}

/// Starts this program again with the open-files limit raised.
pub(crate) fn again_with_open_files() -> Result<()> {
    let mut again = with_open_files(std::env::current_exe()?);
    let status = again.args(std::env::args().skip(1)).env(FILES, "raised").status()?;
    if status.success() { Ok(()) } else { Err("the benchmark process failed".into()) }
}
