//! Path elements of field sets, as strings.
//!
//! `f:spec` is a field or map entry, `k:{"port":80,"protocol":"TCP"}` a list item with these keys, `v:"a"` an item of a set.
//! The strings are canonical (sorted keys, JSON as Go writes it), so elements are compared as strings. Conflicts show the
//! human-readable form (`.spec.ports[port=80,protocol="TCP"]`), which is also formatted here.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::go_text::quote;
use crate::schema::{ListKind, Ty, schema, zero};

/// Error for a list item that has no path element.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ElementError {
    NullItem,
    NotAMap,
    NoKeys(Vec<&'static str>),
    MapInSet,
    ListInSet,
    NullInSet,
}

impl std::fmt::Display for ElementError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NullItem => f.write_str("associative list with keys may not have a null element"),
            Self::NotAMap => f.write_str("associative list with keys may not have non-map elements"),
            Self::NoKeys(keys) => {
                let keys: Vec<String> = keys.iter().map(|k| quote(k)).collect();
                let keys = keys.join(" ");
                write!(f, "associative list with keys has an element that omits all key fields [{keys}] ")?;
                f.write_str("(and doesn't have default values for any key fields)")
            }
            Self::MapInSet => f.write_str("associative list without keys has an element that's a map type"),
            Self::ListInSet => f.write_str("not supported: associative list with lists as elements"),
            Self::NullInSet => f.write_str("associative list without keys has an element that's an explicit null"),
        }
    }
}

/// Returns the element of a struct field or map entry.
pub(super) fn of_name(name: &str) -> String {
    format!("f:{name}")
}

/// Returns the name in an element created by [`of_name`].
pub(super) fn name_of(element: &str) -> Option<&str> {
    element.strip_prefix("f:")
}

/// Returns the element of an item of a set or keyed list. `item_ty` has the defaults of absent keys.
pub(super) fn of_item(kind: &'static ListKind, item_ty: &Ty, item: &Value) -> Result<String, ElementError> {
    match (kind, item) {
        (ListKind::Map(_), Value::Null) => Err(ElementError::NullItem),
        (ListKind::Map(keys), Value::Object(fields)) => of_keys(keys, item_ty, fields),
        (ListKind::Map(_), _) => Err(ElementError::NotAMap),
        (_, Value::Object(_)) => Err(ElementError::MapInSet),
        (_, Value::Array(_)) => Err(ElementError::ListInSet),
        (_, Value::Null) => Err(ElementError::NullInSet),
        (_, scalar) => Ok(format!("v:{}", json_text(scalar))),
    }
}

fn of_keys(keys: &[&'static str], item_ty: &Ty, fields: &Map<String, Value>) -> Result<String, ElementError> {
    let mut key_values: Vec<(&str, Cow<'_, Value>)> = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match fields.get(*key) {
            Some(value) => Some(Cow::Borrowed(value)),
            None => key_default(item_ty, key),
        };
        key_values.extend(value.map(|v| (*key, v)));
    }
    if key_values.is_empty() {
        return Err(ElementError::NoKeys(keys.to_vec()));
    }
    key_values.sort_unstable_by_key(|(name, _)| *name);
    let mut text = String::from("k:{");
    for (i, (name, value)) in key_values.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        text += &format!("{comma}\"{name}\":{}", json_text(value));
    }
    Ok(text + "}")
}

/// Returns the default of a key: the declared one, or the zero value of a field that is always serialised.
fn key_default(item_ty: &Ty, key: &str) -> Option<Cow<'static, Value>> {
    let Ty::Struct(id) = item_ty else { return None };
    let field = schema().get(*id).field(key)?;
    match &field.default {
        Some(default) => Some(Cow::Borrowed(default)),
        None if field.always && !field.pointer => Some(Cow::Owned(zero(&field.ty))),
        None => None,
    }
}

/// Returns the canonical form of an element that a client sent; `Ok(None)` for an unknown kind, which is ignored.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let Some((kind, content)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
        return Err(format!("missing colon: {text}"));
    };
    let parsed = || serde_json::from_str::<Value>(content).map_err(|e| e.to_string());
    match kind {
        "f" => Ok(Some(text.to_owned())),
        "v" => Ok(Some(format!("v:{}", json_text(&parsed()?)))),
        "k" => match parsed()? {
            keys @ Value::Object(_) => Ok(Some(format!("k:{}", json_text(&keys)))),
            _ => Err(format!("not a set of keys: {text}")),
        },
        "i" => content.parse::<i64>().map(|i| Some(format!("i:{i}"))).map_err(|e| e.to_string()),
        _ => Ok(None),
    }
}

/// Formats the element for a human-readable path.
pub(super) fn format_element(element: &str) -> String {
    let (kind, content) = element.split_once(':').unwrap_or(("", element));
    let parsed = || serde_json::from_str::<Value>(content).unwrap_or_default();
    match kind {
        "f" => format!(".{content}"),
        "k" => match parsed() {
            Value::Object(keys) => {
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={}", format_value(v))).collect();
                format!("[{}]", keys.join(","))
            }
            _ => format!("[{content}]"),
        },
        "v" => format!("[={}]", format_value(&parsed())),
        _ => format!("[{content}]"),
    }
}

fn format_value(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        other => number_text(other).unwrap_or_else(|| other.to_string()),
    }
}

/// Formats JSON as Go does: characters with a meaning in HTML are escaped, whole floats have no fraction.
pub(super) fn json_text(value: &Value) -> String {
    let text = number_text(value).unwrap_or_else(|| value.to_string());
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped += &format!("\\u{:04x}", u32::from(c)),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a whole float as an integer, 80.0 as `80`; `None` for other values.
fn number_text(value: &Value) -> Option<String> {
    match value {
        Value::Number(n) if n.is_f64() => {
            n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 1e21).map(|f| format!("{f:.0}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ports() -> (&'static ListKind, &'static Ty) {
        let spec = schema().get(schema().id("core/v1.ServiceSpec"));
        match spec.field("ports").map(|f| (&f.list, &f.ty)) {
            Some((kind, Ty::List(item))) => (kind, item),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_are_sorted_and_absent_ones_are_defaulted() {
        let (kind, item) = ports();
        let port = |v| of_item(kind, item, &v).unwrap();
        assert_eq!(port(json!({"protocol": "UDP", "port": 53})), r#"k:{"port":53,"protocol":"UDP"}"#);
        assert_eq!(port(json!({"port": 53.0})), r#"k:{"port":53,"protocol":"TCP"}"#);
        assert_eq!(port(json!({"name": "x"})), r#"k:{"port":0,"protocol":"TCP"}"#);
    }

    #[test]
    fn error_for_an_item_without_keys_names_the_keys() {
        let sa = schema().get(schema().id("core/v1.ServiceAccount"));
        let field = sa.field("secrets").unwrap();
        let Ty::List(item) = &field.ty else { panic!() };
        let error = of_item(&field.list, item, &json!({})).unwrap_err().to_string();
        assert!(error.contains(r#"omits all key fields ["name"]"#), "{error}");
    }

    #[test]
    fn elements_of_clients_become_canonical() {
        assert_eq!(canonical(r#"k:{ "b": 1, "a": "x" }"#).unwrap().unwrap(), r#"k:{"a":"x","b":1}"#);
        assert_eq!(canonical(r#"v:"a<b""#).unwrap().unwrap(), r#"v:"a\u003cb""#);
        assert_eq!(canonical("x:later").unwrap(), None);
        assert!(canonical("plain").is_err() && canonical("k:[1]").is_err() && canonical("v:{").is_err());
    }

    #[test]
    fn formatted_elements_have_dots_and_brackets() {
        assert_eq!(format_element("f:spec"), ".spec");
        assert_eq!(format_element(r#"k:{"port":80,"protocol":"TCP"}"#), r#"[port=80,protocol="TCP"]"#);
        assert_eq!(format_element(r#"v:"a""#), r#"[="a"]"#);
    }
}
