//! Findings as text for people and as JSON for programs. The JSON is a promise: fields are added, never renamed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::{Finding, Kind, Severity};

/// The version of the JSON document.
const VERSION: u32 = 1;
/// How many of the things that a finding is about are shown to people, where there may be thousands of them, and all alike.
const SHOWN: usize = 5;

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
    let shown = if is_each_its_own(*kind) { about.len() } else { SHOWN };
    for (about, detail) in about.iter().take(shown) {
        let between = if about.is_empty() || detail.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "         - {about}{between}{detail}");
    }
    if about.len() > shown {
        let _ = writeln!(text, "         - and {} more; -o json shows all", about.len() - shown);
    }
    if !kind.cure().is_empty() {
        let _ = writeln!(text, "         cure: {}", kind.cure());
    }
}

/// What is wrong with a file or a flag is wrong in its own way, and there are not many of them.
fn is_each_its_own(kind: Kind) -> bool {
    matches!(kind, Kind::Configuration | Kind::CloudConfiguration | Kind::CloudRights | Kind::CloudLacks)
}

pub(super) fn json(findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        let about: Vec<_> =
            finding.about.iter().map(|(about, detail)| json!({"about": about, "detail": detail})).collect();
        let kind = finding.kind;
        json!({
            "id": kind.id(), "severity": kind.severity().word(), "why": kind.why(), "cure": kind.cure(), "found": about,
        })
    };
    json!({
        "version": VERSION,
        "errors": count(findings, Severity::Error),
        "warnings": count(findings, Severity::Warning),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// How many findings, each of which may be about several things.
pub(super) fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.kind.severity() == severity).count()
}

fn plural(count: usize, word: &str) -> String {
    format!("{word}{}", if count == 1 { "" } else { "s" })
}
