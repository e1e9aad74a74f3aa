//! Output of the commands that print a report.

use std::process::Output;

use serde_json::Value;

/// Returns the exit code and everything that was printed.
pub(crate) fn printed(output: Output) -> (Option<i32>, String) {
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), printed.concat())
}

/// Checks that `bowline check -o=json` fails with this finding, and that one of its objects has all these words.
pub(crate) fn expect_finding(output: &Output, id: &str, words: &[&str]) {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = document["findings"].as_array().unwrap().iter().filter(|finding| finding["id"] == id);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |found: &Value| format!("{}: {}", text(&found["about"]), text(&found["detail"]));
    let lines: Vec<_> = findings.flat_map(|finding| finding["found"].as_array().unwrap().iter().map(line)).collect();
    assert_eq!(output.status.code(), Some(3), "{id}: {lines:#?}");
    assert!(lines.iter().any(|line| words.iter().all(|word| line.contains(word))), "{id} {words:?}: {document:#}");
}
