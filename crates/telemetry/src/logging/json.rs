//! Log lines in the JSON format of the Go managers: `ts` in milliseconds, `caller`, `msg`, `v` unless it is an error, and the
//! fields.

use std::fmt::Write as _;

use jiff::Zoned;
use tracing::Level;

use super::callsite::Callsite;
use super::fields::{Fields, Value};

/// Reserved field names; a JSON object has each key once.
const RESERVED: [&str; 5] = ["ts", "caller", "msg", "v", "level"];

/// Writes one line.
pub(super) fn write(line: &mut String, callsite: &Callsite<'_>, fields: &Fields, now: &Zoned) {
    let nanos = now.timestamp().as_nanosecond();
    let (millis, rest) = (nanos / 1_000_000, nanos % 1_000_000);
    let _ = write!(line, "{{\"ts\":{millis}.{rest:06},\"caller\":");
    string(line, &caller(callsite));
    line.push_str(",\"msg\":");
    string(line, fields.message());
    level(line, callsite.level);
    for (name, value) in fields.iter() {
        line.push(',');
        if RESERVED.contains(&name) {
            string(line, &format!("{name}_"));
        } else {
            string(line, name);
        }
        line.push(':');
        match value {
            Value::Bare(text) => line.push_str(text),
            Value::Text(text) => string(line, text),
        }
    }
    line.push_str("}\n");
}

/// Writes the verbosity of the level. upstream: an error has none, and a warning has no `level`, so that it looks like info.
fn level(line: &mut String, level: Level) {
    line.push_str(match level {
        Level::ERROR => "",
        Level::WARN => ",\"v\":0,\"level\":\"warn\"",
        Level::INFO => ",\"v\":0",
        Level::DEBUG => ",\"v\":4",
        Level::TRACE => ",\"v\":6",
    });
}

/// File with its directory, and line.
fn caller(callsite: &Callsite<'_>) -> String {
    let path = callsite.path;
    let start = path.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
    format!("{}:{}", path.get(start..).unwrap_or(path), callsite.line)
}

fn string(line: &mut String, text: &str) {
    // Serializing a string cannot fail.
    line.push_str(&serde_json::to_string(text).unwrap_or_default());
}
