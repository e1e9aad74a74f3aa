//! Output of findings as text and as JSON. The JSON is stable: fields are added, never renamed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::{Finding, Kind, Severity};

/// Version of the JSON document.
const VERSION: u32 = 1;
/// Maximum number of objects in the text of a finding; there may be thousands with the same detail.
const MAX_OBJECTS: usize = 5;

pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        write_finding(&mut text, finding);
    }
    let [errors, warnings] = [Severity::Error, Severity::Warning].map(|severity| count(findings, severity));
    let _ = writeln!(text, "{errors} {}, {warnings} {}.", plural(errors, "error"), plural(warnings, "warning"));
    text
}

fn write_finding(text: &mut String, Finding { kind, about }: &Finding) {
    let _ = writeln!(text, "{:8} {}: {}", kind.severity().word(), kind.id(), kind.why());
    let shown = if has_distinct_details(*kind) { about.len() } else { MAX_OBJECTS };
    for (about, detail) in about.iter().take(shown) {
        let between = if about.is_empty() || detail.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "         - {about}{between}{detail}");
    }
    if about.len() > shown {
        let _ = writeln!(text, "         - and {} more; -o json shows all", about.len() - shown);
    }
    if !kind.fix().is_empty() {
        let _ = writeln!(text, "         fix: {}", kind.fix());
    }
}

/// Whether every object has its own message. There are few of these, so the text lists all of them.
fn has_distinct_details(kind: Kind) -> bool {
    matches!(kind, Kind::Configuration | Kind::CloudConfiguration | Kind::CloudPermissions | Kind::CloudUnsupported)
}

pub(super) fn json(findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        let about: Vec<_> =
            finding.about.iter().map(|(about, detail)| json!({"about": about, "detail": detail})).collect();
        let kind = finding.kind;
        json!({
            "id": kind.id(), "severity": kind.severity().word(), "why": kind.why(), "cure": kind.fix(), "found": about,
        })
    };
    json!({
        "version": VERSION,
        "errors": count(findings, Severity::Error),
        "warnings": count(findings, Severity::Warning),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// Counts the findings of a severity; a finding may have several objects.
pub(super) fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.kind.severity() == severity).count()
}

fn plural(count: usize, word: &str) -> String {
    format!("{word}{}", if count == 1 { "" } else { "s" })
}
