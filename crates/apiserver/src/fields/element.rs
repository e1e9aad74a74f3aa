//! One step of a field path, as text.
//!
//! `f:spec` is a field or map entry, `k:{"port":80,"protocol":"TCP"}` the list item with these keys,
//! `v:"a"` the item of a set. The text is canonical (keys sorted, JSON as Go writes it), so steps are compared
//! as strings. What a person reads in a conflict (`.spec.ports[port=80,protocol="TCP"]`) is made here too.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::go_text::quote;
use crate::schema::{ListKind, Ty, schema, zero};

/// Why an item of a list has no place in a set of fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoElement {
    NullItem,
    NotAMap,
    NoKeys(Vec<&'static str>),
    MapInSet,
    ListInSet,
    NullInSet,
}

impl std::fmt::Display for NoElement {
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

/// The element of a struct field or map entry.
pub(super) fn of_name(name: &str) -> String {
    format!("f:{name}")
}

/// The name in an element made by [`of_name`].
pub(super) fn name_of(element: &str) -> Option<&str> {
    element.strip_prefix("f:")
}

/// The element of an item of a set or keyed list. `item_ty` tells the defaults of absent keys.
pub(super) fn of_item(kind: &'static ListKind, item_ty: &Ty, item: &Value) -> Result<String, NoElement> {
    match (kind, item) {
        (ListKind::Map(_), Value::Null) => Err(NoElement::NullItem),
        (ListKind::Map(keys), Value::Object(fields)) => of_keys(keys, item_ty, fields),
        (ListKind::Map(_), _) => Err(NoElement::NotAMap),
        (_, Value::Object(_)) => Err(NoElement::MapInSet),
        (_, Value::Array(_)) => Err(NoElement::ListInSet),
        (_, Value::Null) => Err(NoElement::NullInSet),
        (_, scalar) => Ok(format!("v:{}", json_text(scalar))),
    }
}

fn of_keys(keys: &[&'static str], item_ty: &Ty, fields: &Map<String, Value>) -> Result<String, NoElement> {
    let mut found: Vec<(&str, Cow<'_, Value>)> = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match fields.get(*key) {
            Some(value) => Some(Cow::Borrowed(value)),
            None => key_default(item_ty, key),
        };
        found.extend(value.map(|v| (*key, v)));
    }
    if found.is_empty() {
        return Err(NoElement::NoKeys(keys.to_vec()));
    }
    found.sort_unstable_by_key(|(name, _)| *name);
    let mut text = String::from("k:{");
    for (i, (name, value)) in found.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        text += &format!("{comma}\"{name}\":{}", json_text(value));
    }
    Ok(text + "}")
}

/// The default of a key: the declared one, or the zero value of a field that is always written.
fn key_default(item_ty: &Ty, key: &str) -> Option<Cow<'static, Value>> {
    let Ty::Struct(id) = item_ty else { return None };
    let field = schema().get(*id).field(key)?;
    match &field.default {
        Some(default) => Some(Cow::Borrowed(default)),
        None if field.always && !field.pointer => Some(Cow::Owned(zero(&field.ty))),
        None => None,
    }
}

/// The canonical form of an element that a client wrote; `Ok(None)` for a sort nobody knows, which is passed over.
pub(super) fn canonical(text: &str) -> Result<Option<String>, String> {
    let Some((sort, content)) = text.split_once(':').filter(|(sort, _)| sort.len() == 1) else {
        return Err(format!("missing colon: {text}"));
    };
    let parsed = || serde_json::from_str::<Value>(content).map_err(|e| e.to_string());
    match sort {
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

/// The element as a person reads it in a path.
pub(super) fn shown(element: &str) -> String {
    let (sort, content) = element.split_once(':').unwrap_or(("", element));
    let parsed = || serde_json::from_str::<Value>(content).unwrap_or_default();
    match sort {
        "f" => format!(".{content}"),
        "k" => match parsed() {
            Value::Object(keys) => {
                let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={}", shown_value(v))).collect();
                format!("[{}]", keys.join(","))
            }
            _ => format!("[{content}]"),
        },
        "v" => format!("[={}]", shown_value(&parsed())),
        _ => format!("[{content}]"),
    }
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        other => number_text(other).unwrap_or_else(|| other.to_string()),
    }
}

/// JSON as Go writes it: characters that mean something in HTML are escaped, whole floats have no fraction.
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

/// `80` for 80.0; `None` for everything that needs no such care.
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
    fn keys_are_sorted_and_absent_ones_take_their_default() {
        let (kind, item) = ports();
        let port = |v| of_item(kind, item, &v).unwrap();
        assert_eq!(port(json!({"protocol": "UDP", "port": 53})), r#"k:{"port":53,"protocol":"UDP"}"#);
        assert_eq!(port(json!({"port": 53.0})), r#"k:{"port":53,"protocol":"TCP"}"#);
        assert_eq!(port(json!({"name": "x"})), r#"k:{"port":0,"protocol":"TCP"}"#);
    }

    #[test]
    fn an_item_without_any_key_says_which_keys_there_are() {
        let sa = schema().get(schema().id("core/v1.ServiceAccount"));
        let field = sa.field("secrets").unwrap();
        let Ty::List(item) = &field.ty else { panic!() };
        let error = of_item(&field.list, item, &json!({})).unwrap_err().to_string();
        assert!(error.contains(r#"omits all key fields ["name"]"#), "{error}");
    }

    #[test]
    fn elements_of_clients_are_brought_into_canonical_form() {
        assert_eq!(canonical(r#"k:{ "b": 1, "a": "x" }"#).unwrap().unwrap(), r#"k:{"a":"x","b":1}"#);
        assert_eq!(canonical(r#"v:"a<b""#).unwrap().unwrap(), r#"v:"a\u003cb""#);
        assert_eq!(canonical("x:later").unwrap(), None);
        assert!(canonical("plain").is_err() && canonical("k:[1]").is_err() && canonical("v:{").is_err());
    }

    #[test]
    fn people_read_paths_in_brackets_and_dots() {
        assert_eq!(shown("f:spec"), ".spec");
        assert_eq!(shown(r#"k:{"port":80,"protocol":"TCP"}"#), r#"[port=80,protocol="TCP"]"#);
        assert_eq!(shown(r#"v:"a""#), r#"[="a"]"#);
    }
}
