//! Secret: data keys, size, and the required keys of the built-in types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::configmap::{DATA_MAX, decoded_len, entries, immutable_errors, key_errors};
use super::{Resource, Strategy, WriteCx, meta};
use crate::field_error::FieldError;
use crate::schema::json_error;
use crate::validation;
use crate::value::Json;

const OPAQUE: &str = "Opaque";
const TLS: &str = "kubernetes.io/tls";

pub(crate) struct Secret;

impl Strategy for Secret {
    fn apply_defaults(&self, obj: &mut Value) {
        merge_string_data(obj);
        if obj.text("type").is_empty() {
            obj.put("type", OPAQUE);
        }
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        secret_errors(obj)
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        update_errors(cx.resource, new, old)
    }

    fn warnings(&self, _cx: &WriteCx<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
        match new.text("type") {
            TLS => missing_pem(new).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(&["type"])
    }
}

/// Merges the write-only `stringData` into `data`. `stringData` takes precedence.
fn merge_string_data(obj: &mut Value) {
    let Some(Value::Object(texts)) = obj.take_at("stringData") else { return };
    if !obj.at("data").is_object() && !texts.is_empty() {
        obj.put("data", Value::Object(serde_json::Map::new()));
    }
    let Some(data) = obj.at_mut("data").and_then(Value::as_object_mut) else { return };
    for (key, text) in texts {
        data.insert(key, BASE64.encode(text.as_str().unwrap_or_default()).into());
    }
}

fn update_errors(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(validation::immutable("type", new.at("type"), old.at("type")));
    errors.extend(immutable_errors(new, old, &["data"]));
    errors.extend(meta::validate_name(resource, new));
    errors.extend(secret_errors(new));
    errors
}

fn secret_errors(obj: &Value) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = entries(obj, "data").flat_map(|(key, _)| key_errors("data", key)).collect();
    let size: usize = entries(obj, "data").map(|(_, value)| decoded_len(value)).sum();
    if size > DATA_MAX {
        errors.push(FieldError::too_long("data", DATA_MAX));
    }
    errors.extend(type_errors(obj));
    errors
}

/// Validates the keys that the Secret's type requires. Custom types require none.
fn type_errors(obj: &Value) -> Vec<FieldError> {
    let has = |key: &str| obj.at("data").get(key).is_some();
    let missing = |keys: &[&str]| keys.iter().filter(|k| !has(k)).map(|k| required(k)).collect();
    match obj.text("type") {
        "kubernetes.io/service-account-token" => account_name_error(obj).into_iter().collect(),
        "kubernetes.io/dockercfg" => docker_errors(obj, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_errors(obj, ".dockerconfigjson"),
        // Either key may be empty, but one must be present.
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => missing(&["username", "password"]),
        "kubernetes.io/ssh-auth" if bytes_of(obj, "ssh-privatekey").is_empty() => vec![required("ssh-privatekey")],
        TLS => missing(&["tls.crt", "tls.key"]),
        _ => Vec::new(),
    }
}

/// Returns a warning for a TLS Secret without PEM data. It does not check whether certificate and key match.
fn missing_pem(obj: &Value) -> Option<String> {
    let lacks_pem = |key: &str| !String::from_utf8_lossy(&bytes_of(obj, key)).contains("-----BEGIN ");
    let (_, input) = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| lacks_pem(key))?;
    Some(format!("tls: failed to find any PEM data in {input} input"))
}

fn required(key: &str) -> FieldError {
    FieldError::required(format!("data[{key}]"), "")
}

fn account_name_error(obj: &Value) -> Option<FieldError> {
    const KEY: &str = "kubernetes.io/service-account.name";
    let name = obj.at("metadata.annotations").get(KEY).and_then(Value::as_str).unwrap_or_default();
    name.is_empty().then(|| FieldError::required(format!("metadata.annotations[{KEY}]"), ""))
}

fn docker_errors(obj: &Value, key: &str) -> Vec<FieldError> {
    if obj.at("data").get(key).is_none() {
        return vec![required(key)];
    }
    let detail = json_object_error(&bytes_of(obj, key));
    let to_error = |detail| FieldError::invalid(format!("data[{key}]"), "<secret contents redacted>", detail);
    detail.map(to_error).into_iter().collect()
}

/// Returns Go's error message if the text is not a JSON object.
fn json_object_error(text: &[u8]) -> Option<String> {
    let what = match serde_json::from_slice(text) {
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        Err(error) => return Some(json_error(text, &error)),
    };
    Some(format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"))
}

/// Decodes one entry of `data`.
fn bytes_of(obj: &Value, key: &str) -> Vec<u8> {
    let text = obj.at("data").get(key).and_then(Value::as_str).unwrap_or_default();
    BASE64.decode(text).unwrap_or_default()
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
        texts(update_errors(find("", "v1", "secrets").unwrap(), &new, &old))
    }

    #[test]
    fn string_data_is_merged_into_data() {
        let mut obj = json!({"data": {"k": "AA==", "l": "AQ=="}, "stringData": {"k": "new"}});
        Secret.apply_defaults(&mut obj);
        assert_eq!(obj, json!({"data": {"k": "bmV3", "l": "AQ=="}, "type": "Opaque"}));
    }

    #[test]
    fn a_null_value_is_empty_data() {
        let id = find("", "v1", "secrets").unwrap().type_id();
        let decoded = crate::schema::decode(id, &json!({"data": {"k": null}})).unwrap();
        assert_eq!(decoded.value["data"], json!({"k": ""}));
    }

    #[test]
    fn built_in_types_require_their_keys() {
        let cases: &[(&str, Value, &[&str])] = &[
            ("kubernetes.io/tls", json!({}), &["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
            ("kubernetes.io/tls", json!({"tls.crt": "", "tls.key": ""}), &[]),
            (
                "kubernetes.io/basic-auth",
                json!({}),
                &["data[username]: Required value", "data[password]: Required value"],
            ),
            ("kubernetes.io/basic-auth", json!({"username": ""}), &[]),
            ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""}), &["data[ssh-privatekey]: Required value"]),
            ("kubernetes.io/dockercfg", json!({}), &["data[.dockercfg]: Required value"]),
            ("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": "e30="}), &[]),
            (
                "kubernetes.io/dockerconfigjson",
                json!({".dockerconfigjson": "eA=="}),
                &[
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value",
                ],
            ),
            (
                "kubernetes.io/dockerconfigjson",
                json!({".dockerconfigjson": "W10="}),
                &[
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal array into Go value of type map[string]interface {}",
                ],
            ),
            (
                "kubernetes.io/dockerconfigjson",
                json!({".dockerconfigjson": ""}),
                &[
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input",
                ],
            ),
            (
                "kubernetes.io/service-account-token",
                json!({}),
                &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
            ("ex.com/t", json!({}), &[]),
        ];
        for (kind, data, expected) in cases {
            assert_eq!(texts(secret_errors(&json!({"type": kind, "data": data}))), *expected, "{kind} {data}");
        }
    }

    #[test]
    fn tls_secret_without_pem_returns_a_warning() {
        let secret = |certificate: &str, key: &str| json!({"data": {"tls.crt": BASE64.encode(certificate), "tls.key": BASE64.encode(key)}});
        let pem = "-----BEGIN CERTIFICATE-----";
        let warning = |input: &str| Some(format!("tls: failed to find any PEM data in {input} input"));
        assert_eq!(missing_pem(&secret("", pem)), warning("certificate"));
        assert_eq!(missing_pem(&secret(pem, "x")), warning("key"));
        assert_eq!(missing_pem(&secret(pem, pem)), None);
    }

    #[test]
    fn size_limit_applies_to_the_decoded_data() {
        let obj = json!({"type": "Opaque", "data": {"k": BASE64.encode(vec![0; DATA_MAX + 1])}});
        assert_eq!(texts(secret_errors(&obj)), ["data: Too long: may not be more than 1048576 bytes"]);
    }

    #[test]
    fn type_and_immutable_data_cannot_change() {
        let old = json!({"type": "Opaque", "data": {"k": "dg=="}, "immutable": true});
        assert_eq!(
            changed(json!({"type": "x/y", "data": {"k": "dw=="}, "immutable": true}), old),
            [
                "type: Invalid value: \"x/y\": field is immutable",
                "data: Forbidden: field is immutable when `immutable` is set"
            ]
        );
    }
}
