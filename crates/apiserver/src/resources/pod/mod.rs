//! Pod strategy.
//!
//! ```text
//!  defaults ─► admission ─► prepare ─► validate ─► (status | update) validation
//!     │            └ service account, priority, tolerations
//!     └ also for the templates of Deployments and DaemonSets
//! ```

mod admission;
mod defaults;
mod qos;
mod service_account;
mod status;
mod update;
mod validate;

use serde_json::Value;

use super::check::ErrorList;
use super::strategy::Grace;
use super::{Strategy, WriteCx};
use crate::field_error::FieldError;
use crate::status::ApiResult;
use crate::value::Json;
use crate::verbs::now;

pub(crate) use admission::copy_topology;
pub(crate) use defaults::template as template_defaults;
pub(crate) use status::set_condition;
pub(crate) use validate::template as validate_template;

pub(crate) struct Pod;

/// Fields of disabled features, dropped from requests.
const DISABLED: [&str; 2] = ["schedulingGroup", "evictionResponders"];

impl Strategy for Pod {
    fn apply_defaults(&self, obj: &mut Value) {
        defaults::pod(obj);
    }

    fn admit_create(&self, cx: &WriteCx<'_>, obj: &mut Value) -> ApiResult<()> {
        match cx.subresource {
            None => admission::create(cx, obj),
            Some(_) => Ok(()),
        }
    }

    fn admit_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) -> ApiResult<()> {
        if cx.subresource.is_none() {
            admission::update(new, old);
        }
        Ok(())
    }

    fn prepare_create(&self, _cx: &WriteCx<'_>, obj: &mut Value) {
        obj.put("metadata.generation", 1);
        drop_disabled(obj);
        let status = status::pending(obj.at("spec"), &now());
        obj.put("status", status);
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        super::strategy::keep_status(cx, new, old);
        drop_disabled(new);
        bump_generation(new, old, new.at("spec") != old.at("spec"));
    }

    fn prepare_status_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        status::prepare(new, old);
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let mut errors = ErrorList::default();
        validate::pod(obj, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        update::validate(new, old)
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        status::validate(new, old)
    }

    /// A Pod always gets a deletionTimestamp before it is removed, even with a grace period of 0 seconds.
    fn deletion_grace(&self, obj: &Value, requested: Option<i64>) -> Grace {
        let scheduled = !obj.text("spec.nodeName").is_empty();
        let finished = matches!(obj.text("status.phase"), "Failed" | "Succeeded");
        if !scheduled || finished {
            return Grace::Seconds(0);
        }
        let seconds = requested.or(obj.int("spec.terminationGracePeriodSeconds")).unwrap_or(0);
        Grace::Seconds(if seconds < 0 { 1 } else { seconds })
    }

    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ])
    }

    fn field_value(&self, obj: &Value, label: &str) -> String {
        match label {
            "spec.hostNetwork" => (obj.at(label) == true).to_string(),
            "status.podIP" => obj.list("status.podIPs").first().map(|ip| ip.text("ip").to_owned()).unwrap_or_default(),
            // upstream: the label is known, but always empty.
            "status.podIPs" => String::new(),
            _ => obj.text(label).to_owned(),
        }
    }

    fn field_alias<'l>(&self, label: &'l str) -> &'l str {
        match label {
            "spec.host" => "spec.nodeName",
            _ => label,
        }
    }
}

fn drop_disabled(pod: &mut Value) {
    for field in DISABLED {
        pod.at_mut("spec").and_then(Value::as_object_mut).and_then(|spec| spec.remove(field));
    }
}

/// Drops fields of disabled features from the Pod template of an object.
pub(super) fn drop_disabled_in_template(obj: &mut Value) {
    if let Some(template) = obj.at_mut("spec.template") {
        drop_disabled(template);
    }
}

/// Carries the generation over, and increments it if the object changed.
pub(super) fn bump_generation(new: &mut Value, old: &Value, changed: bool) {
    let generation = old.int("metadata.generation").unwrap_or(0) + i64::from(changed);
    if generation > 0 {
        new.put("metadata.generation", generation);
    }
}
