//! Strategic merge patch: a merge patch that uses the schema.
//!
//! Lists that the schema marks are merged item by item instead of replaced. Directives in the patch express what merging
//! alone cannot: `$patch` (replace, delete), `$retainKeys`, `$setElementOrder/…` and `$deleteFromPrimitiveList/…`.
//! This file merges objects and applies directives; `lists` merges and orders lists.

use serde_json::{Map, Value};

use super::go_values::{self, Numbers};
use super::lists;
use crate::go_text::quote;
use crate::schema::{Field, Struct, Ty, TypeId, schema};
use crate::status::{ApiError, ApiResult};

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Merges `patch` into `doc`. The rest of `patch` is what kube-apiserver shows in errors about the result: without
/// directives, and without nulls that had nothing to remove.
pub(super) fn merge(ty: TypeId, doc: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> ApiResult<()> {
    merge_object(GoType::Struct(schema().get(ty)), doc, patch)
}

// === Types ===

/// Go type of the value being merged.
#[derive(Debug, Clone, Copy)]
pub(super) enum GoType {
    Struct(&'static Struct),
    /// Any other type, with the name of its Go kind.
    Other(&'static str),
}

/// Merge strategy of a list field.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListRule {
    pub(super) merges: bool,
    pub(super) key: Option<&'static str>,
    pub(super) item: GoType,
}

impl GoType {
    fn of(ty: &'static Ty) -> GoType {
        match ty {
            Ty::Struct(id) => GoType::Struct(schema().get(*id)),
            Ty::Map(_) => GoType::Other("map"),
            Ty::List(_) | Ty::Strings | Ty::Bytes => GoType::Other("slice"),
            Ty::String => GoType::Other("string"),
            Ty::Int32 => GoType::Other("int32"),
            Ty::Int64 => GoType::Other("int64"),
            Ty::Bool => GoType::Other("bool"),
            Ty::Double => GoType::Other("float64"),
            Ty::Quantity | Ty::IntOrString | Ty::Time | Ty::MicroTime | Ty::Raw | Ty::Fields => GoType::Other("struct"),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            GoType::Struct(_) => "struct",
            GoType::Other(kind) => kind,
        }
    }

    fn field(&self, key: &str) -> ApiResult<&'static Field> {
        match self {
            GoType::Struct(ty) => ty.field(key).ok_or_else(|| {
                let name = ty.short_name();
                ApiError::plain(format!("unable to find api field in struct {name} for the json field {}", quote(key)))
            }),
            GoType::Other(kind) => Err(ApiError::plain(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    fn list_rule(&self, key: &str) -> ApiResult<ListRule> {
        let field = self.field(key)?;
        let item = match &field.ty {
            Ty::List(item) => GoType::of(item),
            Ty::Strings => GoType::Other("string"),
            other if field.pointer => GoType::of(other),
            _ => {
                let kind = self.kind();
                return Err(ApiError::plain(format!("expected slice or array type, but got: {kind}")));
            }
        };
        Ok(ListRule { merges: field.patch.merge, key: field.patch.key, item })
    }
}

// === Objects ===

pub(super) fn merge_object(
    go_type: GoType,
    doc: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> ApiResult<()> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                doc.clone_from(patch);
                Ok(())
            }
            Some("delete") => {
                doc.clear();
                Ok(())
            }
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    retain_keys(doc, patch)?;
    set_orders(go_type, doc, patch)?;
    let keys: Vec<String> = patch.keys().cloned().collect();
    for key in keys {
        if let Some(value) = patch.get_mut(&key) {
            merge_key(go_type, doc, &key, value)?;
        }
    }
    Ok(())
}

fn merge_key(go_type: GoType, doc: &mut Map<String, Value>, key: &str, patch: &mut Value) -> ApiResult<()> {
    let (key, deletes) = match key.starts_with(DELETE_FROM) {
        true => (target_of(key, DELETE_FROM, "primitive list")?, true),
        false => (key, false),
    };
    if patch.is_null() {
        doc.remove(key);
        return Ok(());
    }
    match (doc.get_mut(key), patch) {
        (Some(Value::Object(doc)), Value::Object(patch)) => {
            let field = go_type.field(key)?;
            match field.patch.replace {
                true => {
                    doc.clone_from(patch);
                    Ok(())
                }
                false => merge_object(GoType::of(&field.ty), doc, patch),
            }
        }
        (Some(Value::Array(items)), Value::Array(patch)) => {
            let rule = go_type.list_rule(key)?;
            match rule.merges || deletes {
                true => lists::merge(rule, items, patch, deletes),
                false => {
                    items.clone_from(patch);
                    Ok(())
                }
            }
        }
        (_, _) if deletes => Ok(()),
        (_, patch) => {
            discard_nulls(patch);
            match without_directives(patch) {
                Some(value) => doc.insert(key.to_owned(), value),
                None => doc.remove(key),
            };
            Ok(())
        }
    }
}

/// Removes nulls from a new value, in which they have nothing to remove.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Returns the value without nested objects that have a directive; `None` if the value itself has one.
pub(super) fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            Some(fields.iter().filter_map(|(k, v)| without_directives(v).map(|v| (k.clone(), v))).collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(without_directives).collect()),
        other => Some(other.clone()),
    }
}

// === Directives ===

/// Applies `$retainKeys`: removes all other keys. The patch may not set them.
fn retain_keys(doc: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> ApiResult<()> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad_format = || ApiError::bad_request("invalid patch format of retainKeys");
    let kept = directive.as_array().ok_or_else(bad_format)?;
    let is_kept = |key: &str| kept.iter().any(|k| k.as_str() == Some(key));
    let is_exempt =
        |key: &str, value: &Value| value.is_null() || key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !is_exempt(key, value) && !is_kept(key)) {
        return Err(bad_format());
    }
    doc.retain(|key, _| is_kept(key));
    Ok(())
}

/// Applies `$setElementOrder/…`: merges the list and orders it accordingly.
fn set_orders(go_type: GoType, doc: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> ApiResult<()> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(wrong_type("[]interface {}", &order)) };
        let key = target_of(&directive, SET_ORDER, "setElementOrder list")?;
        let live = doc.get(key).map(as_list).transpose()?;
        let patched = patch.get(key).map(as_list).transpose()?;
        let rule = go_type.list_rule(key)?;
        lists::check_order(rule, patched.unwrap_or_default(), &order)?;
        if live.is_none() && patched.is_none() {
            continue;
        }
        let ordered = lists::merge_in_order(rule, live, patched, &order)?;
        doc.insert(key.to_owned(), Value::Array(ordered));
        patch.remove(key);
    }
    Ok(())
}

fn as_list(value: &Value) -> ApiResult<&[Value]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong_type("[]interface {}", value))
}

/// Returns the key of a directive of the form `$directive/key`.
fn target_of<'k>(directive: &'k str, prefix: &str, what: &str) -> ApiResult<&'k str> {
    match directive.split_once('/') {
        Some((name, key)) if name == prefix => Ok(key),
        _ => Err(ApiError::bad_request(format!("invalid patch format of {what}"))),
    }
}

// === Errors, with upstream's messages ===

pub(super) fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> ApiError {
    let map = go_values::object(map, Numbers::AsGiven);
    ApiError::plain(format!("unknown patch type: {} in map: {map}", go_values::as_text(directive)))
}

pub(super) fn wrong_type(expected: &str, actual: &Value) -> ApiError {
    let actual = match actual {
        Value::Null => "%!s(<nil>)",
        other => go_values::type_name(other),
    };
    ApiError::plain(format!("expected a {expected}, but received a {actual}"))
}
