//! Deployments and DaemonSets: stored and checked, so that manifests apply. Nothing here runs pods.

mod daemon_set;
mod deployment;
pub(super) mod rollout;

use serde_json::Value;

pub(crate) use daemon_set::{DaemonSet, partial_metadata};
pub(crate) use deployment::Deployment;

use super::check::{Findings, Path};
use super::{label_selector, pod};
use crate::field_error::{FieldError, typed_json};
use crate::schema::{Ty, schema};
use crate::validation;
use crate::value::Json;

/// Sets a field that is absent.
fn default(object: &mut Value, path: &str, value: impl Into<Value>) {
    if !object.has(path) {
        object.put(path, value);
    }
}

/// A selector as errors show it.
fn shown_selector(selector: &Value) -> String {
    typed_json(&Ty::Struct(schema().id("meta/v1.LabelSelector")), selector)
}

fn selector_error(selector: &Value, detail: &str) -> FieldError {
    FieldError::invalid_as("spec.selector", shown_selector(selector), detail)
}

fn selector_unchanged(new: &Value, old: &Value) -> Option<FieldError> {
    let selector = new.at("spec.selector");
    (selector != old.at("spec.selector")).then(|| selector_error(selector, validation::FIELD_IMMUTABLE))
}

fn selector_misses_template(spec: &Value) -> Option<FieldError> {
    let labels = spec.at("template.metadata.labels");
    (!label_selector::matches(spec.at("selector"), labels.as_object())).then(|| {
        let detail = "`selector` does not match template `labels`";
        FieldError::invalid("spec.template.metadata.labels", labels.clone(), detail)
    })
}

/// Checks a template whose pods run for ever; `owner` is what errors call the kind.
fn endless_template(template: &Value, owner: &str, found: &mut Findings) {
    let at = Path::new("spec.template");
    pod::validate_template(template, at, found);
    let spec = at.child("spec");
    found.one_of(spec.child("restartPolicy"), template.text("spec.restartPolicy"), &["Always"]);
    if template.has("spec.activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        found.forbidden(spec.child("activeDeadlineSeconds"), detail);
    }
}

/// Checks counters: none below zero, and collisions never forgotten.
fn counters(new: &Value, fields: &[&str], found: &mut Findings) {
    let at = Path::new("status");
    for field in fields {
        found.not_negative(at.child(field), new.at("status").int(field).unwrap_or(0));
    }
}

fn collisions(new: &Value, old: &Value, found: &mut Findings) {
    let (now, before) = (new.int("status.collisionCount"), old.int("status.collisionCount"));
    if before.is_some_and(|before| now.is_none_or(|now| now < before)) {
        found.invalid(Path::new("status.collisionCount"), now.unwrap_or(0), "cannot be decremented");
    }
}
