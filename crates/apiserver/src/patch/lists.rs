//! Merging and ordering of lists in strategic merge patches.
//!
//! Items of the patch have the order of the patch (or of `$setElementOrder`). Items that only the server has keep their
//! position relative to their old neighbours, and come last if they have none.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::go_values::{self, Numbers};
use super::strategic::{ListRule, PATCH, merge_object, unknown_directive, without_directives, wrong_type};
use crate::status::{ApiError, ApiResult};

/// Merges `patch` into `items`, or removes its values from them if `deletes` is set.
pub(super) fn merge(rule: ListRule, items: &mut Vec<Value>, patch: &mut [Value], deletes: bool) -> ApiResult<()> {
    if items.is_empty() && patch.is_empty() {
        return Ok(());
    }
    match item_kind(items, patch)? {
        ItemKind::Scalar if deletes => items.retain(|item| !patch.contains(item)),
        ItemKind::Scalar => merge_scalars(rule, items, patch)?,
        ItemKind::Map => merge_maps(rule, items, patch)?,
    }
    Ok(())
}

fn merge_scalars(rule: ListRule, items: &mut Vec<Value>, patch: &[Value]) -> ApiResult<()> {
    let live = items.clone();
    let mut merged: Vec<Value> = Vec::with_capacity(live.len() + patch.len());
    for item in live.iter().chain(patch) {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    *items = order_items(Identity::of(rule, ItemKind::Scalar), merged, patch, &live)?;
    Ok(())
}

fn merge_maps(rule: ListRule, items: &mut Vec<Value>, patch: &mut [Value]) -> ApiResult<()> {
    let Some(key) = rule.key else {
        return Err(ApiError::plain(format!("cannot merge lists without merge key for {}", rule.item.kind())));
    };
    let mut live = std::mem::take(items);
    let (mut plain, replaces) = apply_directives(key, &mut live, patch)?;
    let identity = Identity::Key(key);
    if replaces {
        let new: Vec<Value> = plain.into_iter().map(|item| item.clone()).collect();
        *items = order_items(identity, new.clone(), &[], &new)?;
        return Ok(());
    }
    let mut merged = live.clone();
    for item in &mut plain {
        merge_item(rule, key, &mut merged, item)?;
    }
    let order: Vec<Value> = plain.into_iter().map(|item| item.clone()).collect();
    *items = order_items(identity, merged, &order, &live)?;
    Ok(())
}

/// Deletes the items from `live` that the patch marks. Returns the items that are not directives, and whether they replace
/// the list.
fn apply_directives<'p>(
    key: &str,
    live: &mut Vec<Value>,
    patch: &'p mut [Value],
) -> ApiResult<(Vec<&'p mut Value>, bool)> {
    let mut plain: Vec<&mut Value> = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        match item.get(PATCH).map(Directive::of) {
            None => plain.push(item),
            Some(Some(Directive::Delete)) => {
                let deleted = key_of(item, key)?;
                live.retain(|item| item.get(key) != Some(deleted));
            }
            Some(Some(Directive::Replace)) => replaces = true,
            Some(Some(Directive::Merge)) => {
                return Err(ApiError::plain("merging lists cannot yet be specified in the patch"));
            }
            Some(None) => return Err(directive_error(item)),
        }
    }
    Ok((plain, replaces))
}

/// Merges an item into the first one with the same key, or appends it.
fn merge_item(rule: ListRule, key: &'static str, merged: &mut Vec<Value>, item: &mut Value) -> ApiResult<()> {
    let item_key = key_of(item, key)?;
    let existing = merged.iter_mut().find(|m| m.get(key) == Some(item_key));
    match (existing, item) {
        (Some(Value::Object(existing)), Value::Object(item)) => merge_object(rule.item, existing, item),
        (_, item) => {
            merged.push(item.clone());
            Ok(())
        }
    }
}

/// Merges a list (either side may be absent) and orders it by `$setElementOrder`.
pub(super) fn merge_in_order(
    rule: ListRule,
    live: Option<&[Value]>,
    patch: Option<&[Value]>,
    order: &[Value],
) -> ApiResult<Vec<Value>> {
    let merged = match (live, patch) {
        (Some(live), None) => live.to_vec(),
        (Some(live), Some(patch)) if rule.merges => {
            let mut merged = live.to_vec();
            merge(rule, &mut merged, &mut patch.to_vec(), false)?;
            merged
        }
        (Some(_), Some(patch)) => patch.to_vec(),
        (None, patch) => patch.unwrap_or_default().iter().filter_map(without_directives).collect(),
    };
    let kind = item_kind(live.unwrap_or_default(), patch.unwrap_or_default())?;
    order_items(Identity::of(rule, kind), merged, order, live.unwrap_or_default())
}

/// Checks that `$setElementOrder` contains the items of the patch in the same order, except for deleted ones.
pub(super) fn check_order(rule: ListRule, patch: &[Value], order: &[Value]) -> ApiResult<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let identity = rule.key.map_or(Identity::Whole, Identity::Key);
    let is_deleted = |item: &Value| item.get(PATCH).is_some_and(|d| d == "delete");
    let mut rest = order.iter().peekable();
    for item in patch.iter().filter(|item| !is_deleted(item)) {
        if rest.peek().is_none() {
            return Err(order_mismatch(patch, order));
        }
        if item.get(PATCH).is_some() {
            continue;
        }
        let expected = identity.required(item)?;
        loop {
            let Some(next) = rest.next() else { return Err(order_mismatch(patch, order)) };
            if identity.required(next)? == expected {
                break;
            }
        }
    }
    Ok(())
}

fn order_mismatch(patch: &[Value], order: &[Value]) -> ApiError {
    let (patch, order) = (go_values::list(patch, Numbers::AsGiven), go_values::list(order, Numbers::AsGiven));
    ApiError::plain(format!("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"))
}

// === Order ===

/// Identity of list items: the whole value or a merge key.
#[derive(Debug, Clone, Copy)]
enum Identity {
    Whole,
    Key(&'static str),
}

impl Identity {
    fn of(rule: ListRule, kind: ItemKind) -> Identity {
        match (kind, rule.key) {
            (ItemKind::Map, Some(key)) => Identity::Key(key),
            _ => Identity::Whole,
        }
    }

    fn get<'v>(&self, item: &'v Value) -> &'v Value {
        match self {
            Identity::Whole => item,
            Identity::Key(key) => item.get(key).unwrap_or(&Value::Null),
        }
    }

    /// Like [`Identity::get`], but returns an error for an item without the key.
    fn required<'v>(&self, item: &'v Value) -> ApiResult<&'v Value> {
        match self {
            Identity::Whole => Ok(item),
            Identity::Key(key) => key_of(item, key),
        }
    }

    /// Checks that every item to order has an identity.
    fn check_all(&self, merged: &[Value], patch: &[Value], live: &[Value]) -> ApiResult<()> {
        if let (Identity::Key(_), Some(at)) = (self, patch.iter().position(|item| !item.is_object())) {
            return Err(ApiError::plain(format!("value for key {at} is not a map")));
        }
        merged.iter().chain(patch).chain(live).try_for_each(|item| self.required(item).map(|_| ()))
    }

    fn position(&self, list: &[Value], item: &Value) -> Option<usize> {
        let identity = self.get(item);
        list.iter().position(|other| self.get(other) == identity)
    }
}

/// An item with its positions in both lists.
struct Positioned {
    item: Value,
    in_patch: Option<usize>,
    in_live: Option<usize>,
}

/// Orders merged items: those of the patch in its order, server-only items relative to their old neighbours.
fn order_items(identity: Identity, merged: Vec<Value>, patch: &[Value], live: &[Value]) -> ApiResult<Vec<Value>> {
    identity.check_all(&merged, patch, live)?;
    let locate = |item: Value| Positioned {
        in_patch: identity.position(patch, &item),
        in_live: identity.position(live, &item),
        item,
    };
    let (mut patched, mut server_only): (Vec<Positioned>, Vec<Positioned>) =
        merged.into_iter().map(locate).partition(|p| p.in_patch.is_some());
    sort(&mut patched, |p| p.in_patch);
    sort(&mut server_only, |p| p.in_live);
    Ok(interleave(patched, server_only))
}

/// Sorts by position. An item without a position moves in front of all items before it: upstream's sort uses a comparison
/// that treats it as the smallest.
fn sort(items: &mut [Positioned], position: impl Fn(&Positioned) -> Option<usize>) {
    let less = |a: &Positioned, b: &Positioned| match (position(a), position(b)) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    if items.iter().all(|p| position(p).is_some()) {
        items.sort_by_key(|p| position(p));
        return;
    }
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && less(&items[at], &items[at - 1]) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Inserts each of `server_only` before the first of `patched` that followed it on the server.
fn interleave(patched: Vec<Positioned>, server_only: Vec<Positioned>) -> Vec<Value> {
    let mut all = Vec::with_capacity(patched.len() + server_only.len());
    let mut server_only = server_only.into_iter().peekable();
    for item in patched {
        let comes_first = |other: &Positioned| match (other.in_live, item.in_live) {
            (Some(other), Some(item)) => other.cmp(&item) == Ordering::Less,
            _ => false,
        };
        while let Some(other) = server_only.next_if(comes_first) {
            all.push(other.item);
        }
        all.push(item.item);
    }
    all.extend(server_only.map(|p| p.item));
    all
}

// === Items ===

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Scalar,
    Map,
}

#[derive(Debug, Clone, Copy)]
enum Directive {
    Delete,
    Replace,
    Merge,
}

impl Directive {
    fn of(value: &Value) -> Option<Directive> {
        match value.as_str()? {
            "delete" => Some(Directive::Delete),
            "replace" => Some(Directive::Replace),
            "merge" => Some(Directive::Merge),
            _ => None,
        }
    }
}

/// Returns the kind of the items of both lists, which must all have the same type.
fn item_kind(live: &[Value], patch: &[Value]) -> ApiResult<ItemKind> {
    let mut items = live.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(ApiError::plain("no elements in any of the given slices"));
    };
    let kind = go_values::type_name(first);
    match first {
        Value::Array(_) => return Err(ApiError::rejected_patch()),
        // upstream: panics here, and the request ends with a bare 500.
        Value::Null => return Err(ApiError::plain("lists with null elements cannot be merged")),
        _ => {}
    }
    if items.any(|item| go_values::type_name(item) != kind) {
        let (live, patch) = (go_values::list(live, Numbers::AsGiven), go_values::list(patch, Numbers::AsGiven));
        return Err(ApiError::plain(format!("list element types are not identical: [{live} {patch}]")));
    }
    Ok(if first.is_object() { ItemKind::Map } else { ItemKind::Scalar })
}

fn key_of<'v>(item: &'v Value, key: &str) -> ApiResult<&'v Value> {
    let Value::Object(fields) = item else { return Err(wrong_type("map[string]interface {}", item)) };
    fields.get(key).ok_or_else(|| missing_key(fields, key))
}

fn missing_key(fields: &Map<String, Value>, key: &str) -> ApiError {
    let map = go_values::object(fields, Numbers::AsGiven);
    ApiError::plain(format!("map: {map} does not contain declared merge key: {key}"))
}

fn directive_error(item: &Value) -> ApiError {
    match item {
        Value::Object(fields) => unknown_directive(item.get(PATCH).unwrap_or(&Value::Null), fields),
        other => wrong_type("map[string]interface {}", other),
    }
}
