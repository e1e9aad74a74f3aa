//! Durations as Go writes them: `300ms`, `1m30s`, `2h`, `0`.

use std::time::Duration;

/// Reads a duration as Go's flags do.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let _ = text;
    todo!()
}

/// Writes a duration as Go does: `1m30s`, `12h0m0s`, `0s`.
pub fn format_duration(duration: Duration) -> String {
    let _ = duration;
    todo!()
}
