//! Deployment and DaemonSet: stored and validated, so that manifests can be applied. No controller creates Pods.

mod daemon_set;
mod deployment;

use serde_json::Value;

pub(crate) use daemon_set::{DaemonSet, partial_metadata};
pub(crate) use deployment::Deployment;

use super::check::{ErrorList, Path};
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

/// Formats a selector for error messages.
fn format_selector(selector: &Value) -> String {
    typed_json(&Ty::Struct(schema().id("meta/v1.LabelSelector")), selector)
}

fn selector_error(selector: &Value, detail: &str) -> FieldError {
    FieldError::invalid_as("spec.selector", format_selector(selector), detail)
}

fn selector_immutable_error(new: &Value, old: &Value) -> Option<FieldError> {
    let selector = new.at("spec.selector");
    (selector != old.at("spec.selector")).then(|| selector_error(selector, validation::FIELD_IMMUTABLE))
}

fn selector_mismatch_error(spec: &Value) -> Option<FieldError> {
    let labels = spec.at("template.metadata.labels");
    (!label_selector::matches(spec.at("selector"), labels.as_object())).then(|| {
        let detail = "`selector` does not match template `labels`";
        FieldError::invalid("spec.template.metadata.labels", labels.clone(), detail)
    })
}

/// Validates what Deployments and DaemonSets have in common: the selector, and the template that it must match.
fn validate_spec(spec: &Value, kind: &str, errors: &mut ErrorList) {
    let selector = spec.at("selector");
    let selector_errors = validation::label_selector("spec.selector", selector);
    let is_valid = selector_errors.is_empty();
    errors.extend(selector_errors);
    if selector.is_null() {
        errors.required(Path::new("spec.selector"), "");
    } else if label_selector::is_empty(selector) {
        errors.push(selector_error(selector, &format!("empty selector is invalid for {kind}")));
    }
    if is_valid {
        errors.extend(selector_mismatch_error(spec));
    }
    let at = Path::new("spec.template");
    pod::validate_template(spec.at("template"), at, errors);
    errors.one_of(at.child("spec.restartPolicy"), spec.text("template.spec.restartPolicy"), &["Always"]);
}
