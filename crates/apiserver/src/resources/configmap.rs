//! ConfigMap: keys, total size and `immutable`. Secrets share these rules.

use serde_json::{Map, Value};

use super::{Resource, Strategy, WriteCx, meta};
use crate::field_error::FieldError;
use crate::validation;
use crate::value::Json;

/// Maximum total size of the values of a ConfigMap or Secret, in bytes.
pub(super) const DATA_MAX: usize = 1024 * 1024;

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        data_errors(obj)
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        update_errors(cx.resource, new, old)
    }
}

fn update_errors(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = immutable_errors(new, old, &["data", "binaryData"]);
    errors.extend(meta::validate_name(resource, new));
    errors.extend(data_errors(new));
    errors
}

fn data_errors(obj: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, _) in entries(obj, "data") {
        errors.extend(key_errors("data", key));
        if obj.at("binaryData").get(key).is_some() {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), key.as_str(), detail));
        }
    }
    errors.extend(entries(obj, "binaryData").flat_map(|(key, _)| key_errors("binaryData", key)));
    let text: usize = entries(obj, "data").map(|(_, v)| v.as_str().map_or(0, str::len)).sum();
    let bytes: usize = entries(obj, "binaryData").map(|(_, v)| decoded_len(v)).sum();
    if text + bytes > DATA_MAX {
        // upstream: the error is for the whole object, and an empty path is printed as brackets.
        errors.push(FieldError::too_long("[]", DATA_MAX));
    }
    errors
}

pub(super) fn key_errors(field: &str, key: &str) -> Vec<FieldError> {
    validation::invalid_each(&format!("{field}[{key}]"), key, validation::config_key(key))
}

/// Rejects changes of the given fields, and of `immutable` itself, once `immutable: true` is set.
pub(super) fn immutable_errors(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let is_immutable = |obj: &Value| obj.at("immutable") == &Value::Bool(true);
    if !is_immutable(old) {
        return Vec::new();
    }
    let cleared = (!is_immutable(new)).then_some("immutable");
    let changed = fields.iter().copied().filter(|field| new.at(field) != old.at(field));
    let detail = "field is immutable when `immutable` is set";
    cleared.into_iter().chain(changed).map(|field| FieldError::forbidden(field, detail)).collect()
}

pub(super) fn entries<'a>(obj: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    obj.map(field).into_iter().flat_map(Map::iter)
}

/// Returns the decoded size of canonical base64 text, in bytes.
pub(super) fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|&b| b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use serde_json::json;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn changed(new: Value, old: Value) -> Vec<String> {
        texts(update_errors(find("", "v1", "configmaps").unwrap(), &new, &old))
    }

    #[test]
    fn keys_are_validated_and_unique_across_both_maps() {
        let errors = texts(data_errors(&json!({"data": {"k": "v", "a/b": ""}, "binaryData": {"k": "AA=="}})));
        assert_eq!(
            errors,
            [
                "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                "data[k]: Invalid value: \"k\": duplicate of key present in binaryData"
            ]
        );
    }

    #[test]
    fn size_counts_text_and_decoded_bytes() {
        let limit = "x".repeat(DATA_MAX - 3);
        assert_eq!(data_errors(&json!({"data": {"k": limit}, "binaryData": {"b": "AAEC"}})), []);
        let over = texts(data_errors(&json!({"data": {"k": limit, "l": "y"}, "binaryData": {"b": "AAEC"}})));
        assert_eq!(over, ["[]: Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn decoded_length_of_base64() {
        for (text, length) in [("", 0), ("AA==", 1), ("AAE=", 2), ("AAEC", 3), ("AAECAw==", 4)] {
            assert_eq!(decoded_len(&text.into()), length, "{text}");
        }
    }

    #[test]
    fn immutable_protects_data_and_itself() {
        let old = json!({"data": {"k": "v"}, "immutable": true});
        let forbidden = |field: &str| format!("{field}: Forbidden: field is immutable when `immutable` is set");
        assert_eq!(changed(json!({"data": {"k": "w"}, "immutable": true}), old.clone()), [forbidden("data")]);
        assert_eq!(changed(json!({"data": {"k": "v"}, "immutable": false}), old.clone()), [forbidden("immutable")]);
        assert_eq!(
            changed(json!({"data": {"k": "v"}, "binaryData": {"z": "AA=="}}), old.clone()),
            [forbidden("immutable"), forbidden("binaryData")]
        );
        let relabelled = json!({"metadata": {"labels": {"x": "y"}}, "data": {"k": "v"}, "immutable": true});
        assert_eq!(changed(relabelled, old), [""; 0]);
    }
}
