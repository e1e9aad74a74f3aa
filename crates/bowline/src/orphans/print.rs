//! Orphans as text for people and as JSON for programs. The JSON is a promise: fields are added, never renamed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Findings, Orphan, Outcome};
use crate::plan::{indented, steps_json};

/// The version of the JSON document.
const VERSION: u32 = 1;

/// What was found.
pub(super) fn list(findings: &Findings) -> String {
    let mut text = String::new();
    for orphan in &findings.orphans {
        let parts = match &orphan.plan {
            Ok(plan) => indented(plan),
            Err(error) => format!("    what it consists of is not known: {error}\n"),
        };
        let _ = write!(text, "{}\n{parts}", title(orphan));
    }
    for (cloud, error) in &findings.silent {
        let _ = writeln!(text, "The cloud {cloud} does not say what it has: {error}");
    }
    let cluster = &findings.cluster;
    let _ = match (findings.orphans.len(), findings.silent.is_empty()) {
        (0, true) => writeln!(text, "No load balancer of the cluster {cluster} is without its Service."),
        (0, false) => Ok(()),
        (1, _) => writeln!(text, "1 load balancer of the cluster {cluster} is without its Service."),
        (count, _) => writeln!(text, "{count} load balancers of the cluster {cluster} are without their Services."),
    };
    text
}

/// Whose it was, and where it is.
fn title(Orphan { cloud, key, .. }: &Orphan) -> String {
    format!("{}/{} (UID {}) in {}", key.namespace, key.service, key.uid, cloud.name())
}

/// What became of one, in a line.
pub(super) fn outcome(orphan: &Orphan) -> String {
    let title = title(orphan);
    match &orphan.outcome {
        Outcome::Listed => title,
        Outcome::Deleted => format!("deleted {title}"),
        Outcome::Owned => format!("kept {title}: its Service is there after all"),
        Outcome::Failed(why) => format!("failed to delete {title}: {why}"),
    }
}

pub(super) fn json(findings: &Findings) -> Value {
    let silent = |(cloud, error): &(std::sync::Arc<str>, bowline_cloud::Error)| json!({"cloud": **cloud, "message": error.to_string()});
    json!({
        "version": VERSION,
        "cluster": findings.cluster.as_str(),
        "orphans": findings.orphans.iter().map(orphan_json).collect::<Vec<_>>(),
        "failures": findings.silent.iter().map(silent).collect::<Vec<_>>(),
    })
}

fn orphan_json(orphan: &Orphan) -> Value {
    let (outcome, message) = match &orphan.outcome {
        Outcome::Listed => ("listed", orphan.plan.as_ref().err().map(ToString::to_string)),
        Outcome::Deleted => ("deleted", None),
        Outcome::Owned => ("owned", None),
        Outcome::Failed(why) => ("failed", Some(why.clone())),
    };
    json!({
        "cloud": **orphan.cloud.name(),
        "namespace": orphan.key.namespace,
        "service": orphan.key.service,
        "uid": orphan.key.uid,
        "steps": orphan.plan.as_ref().map(steps_json).unwrap_or_default(),
        "outcome": outcome,
        "message": message,
    })
}
