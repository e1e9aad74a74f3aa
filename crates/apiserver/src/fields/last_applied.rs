//! `kubectl apply` without and with `--server-side` on the same object.
//!
//! The client-side form keeps what it applied in an annotation. When the manager `kubectl` applies on the server for
//! the first time, fields it would otherwise be in conflict about are let through if that annotation says that kubectl
//! set them; and the annotation, where there is one, is kept up to date so that going back works.

use serde_json::{Map, Value};

use super::compare::Changes;
use super::element;
use super::extract;
use super::set::FieldSet;
use super::shape::Shape;
use super::validate::validate;
use crate::resources::Resource;

/// The only manager this is for.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations of an object together may not be larger than this.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields that the annotation of `live` says kubectl set, and that still have the value it set.
pub(super) fn kubectl_fields(resource: &Resource, live: &Value) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    let shape = Shape::root(resource.type_id());
    if applied.get("apiVersion")?.as_str()? != resource.api_version() || validate(shape, &applied).is_err() {
        return None;
    }
    let changes = Changes::between(shape, &applied, live);
    let mut fields = extract::fields_of(shape, &applied);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        fields.subtract(changed);
    }
    Some(fields)
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Brings the annotation up to date, if `object` has it. One that got too large goes.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let Some(annotations) = annotations_mut(object) else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::String(text_for(applied)));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

/// The applied object without the annotation itself, as a line of JSON.
fn text_for(applied: &Value) -> String {
    let mut applied = applied.clone();
    if let Some(annotations) = annotations_mut(&mut applied) {
        annotations.remove(ANNOTATION);
    }
    element::json_text(&applied) + "\n"
}

fn annotations_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
