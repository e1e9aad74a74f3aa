//! Merging lists in strategic merge patches, and the order of what comes out.
//!
//! Items of the patch keep the order the patch (or `$setElementOrder`) gives them; items only the server has stay
//! among them where their old neighbours are, and come last where they have none.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::go_values::{self, Numbers};
use super::strategic::{ListRule, PATCH, merge_object, unknown_directive, without_directives, wrong_type};
use crate::status::{ApiError, ApiResult};

/// Merges `patch` into `items`, or takes its values out of them if it `deletes`.
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
    *items = in_order(Identity::of(rule, ItemKind::Scalar), merged, patch, &live)?;
    Ok(())
}

fn merge_maps(rule: ListRule, items: &mut Vec<Value>, patch: &mut [Value]) -> ApiResult<()> {
    let Some(key) = rule.key else {
        return Err(ApiError::plain(format!("cannot merge lists without merge key for {}", rule.item.kind())));
    };
    let mut live = std::mem::take(items);
    let (mut plain, replaces) = follow_directives(key, &mut live, patch)?;
    let identity = Identity::Key(key);
    if replaces {
        let new: Vec<Value> = plain.into_iter().map(|item| item.clone()).collect();
        *items = in_order(identity, new.clone(), &[], &new)?;
        return Ok(());
    }
    let mut merged = live.clone();
    for item in &mut plain {
        merge_item(rule, key, &mut merged, item)?;
    }
    let order: Vec<Value> = plain.into_iter().map(|item| item.clone()).collect();
    *items = in_order(identity, merged, &order, &live)?;
    Ok(())
}

/// Deletes from `live` what the patch says, and answers the items that are no directives, and whether they replace.
fn follow_directives<'p>(
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
                let gone = key_of(item, key)?;
                live.retain(|item| item.get(key) != Some(gone));
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

/// Merges an item into the first one with its key, or adds it.
fn merge_item(rule: ListRule, key: &'static str, merged: &mut Vec<Value>, item: &mut Value) -> ApiResult<()> {
    let wanted = key_of(item, key)?;
    let found = merged.iter_mut().find(|m| m.get(key) == Some(wanted));
    match (found, item) {
        (Some(Value::Object(found)), Value::Object(item)) => merge_object(rule.item, found, item),
        (_, item) => {
            merged.push(item.clone());
            Ok(())
        }
    }
}

/// Merges a list (either side may be absent) and puts it into the order that `$setElementOrder` gives.
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
    in_order(Identity::of(rule, kind), merged, order, live.unwrap_or_default())
}

/// The patch's items must stand in `$setElementOrder`, in the same order. Those to delete need not.
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
        let wanted = identity.required(item)?;
        loop {
            let Some(next) = rest.next() else { return Err(order_mismatch(patch, order)) };
            if identity.required(next)? == wanted {
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

/// What makes two items the same.
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

    /// Like [`Identity::get`], but an item without a key is an error.
    fn required<'v>(&self, item: &'v Value) -> ApiResult<&'v Value> {
        match self {
            Identity::Whole => Ok(item),
            Identity::Key(key) => key_of(item, key),
        }
    }

    /// All that is to be put in order has an identity.
    fn check_all(&self, merged: &[Value], patch: &[Value], live: &[Value]) -> ApiResult<()> {
        if let (Identity::Key(_), Some(at)) = (self, patch.iter().position(|item| !item.is_object())) {
            return Err(ApiError::plain(format!("value for key {at} is not a map")));
        }
        merged.iter().chain(patch).chain(live).try_for_each(|item| self.required(item).map(|_| ()))
    }

    fn position(&self, list: &[Value], item: &Value) -> Option<usize> {
        let wanted = self.get(item);
        list.iter().position(|other| self.get(other) == wanted)
    }
}

/// An item with its places in the two orders.
struct Placed {
    item: Value,
    in_patch: Option<usize>,
    in_live: Option<usize>,
}

/// Arranges merged items: those of the patch in its order, the others where they were among them.
fn in_order(identity: Identity, merged: Vec<Value>, patch: &[Value], live: &[Value]) -> ApiResult<Vec<Value>> {
    identity.check_all(&merged, patch, live)?;
    let place = |item: Value| Placed {
        in_patch: identity.position(patch, &item),
        in_live: identity.position(live, &item),
        item,
    };
    let (mut ours, mut theirs): (Vec<Placed>, Vec<Placed>) =
        merged.into_iter().map(place).partition(|p| p.in_patch.is_some());
    sort(&mut ours, |p| p.in_patch);
    sort(&mut theirs, |p| p.in_live);
    Ok(interleaved(ours, theirs))
}

/// Sorts by place. An item that has none moves in front of everything before it, which is what upstream's sort
/// makes of a comparison that calls it smaller than all.
fn sort(items: &mut [Placed], place: impl Fn(&Placed) -> Option<usize>) {
    let less = |a: &Placed, b: &Placed| match (place(a), place(b)) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    if items.iter().all(|p| place(p).is_some()) {
        items.sort_by_key(|p| place(p));
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

/// Lets each of `theirs` in before the first of `ours` that followed it on the server.
fn interleaved(ours: Vec<Placed>, theirs: Vec<Placed>) -> Vec<Value> {
    let mut all = Vec::with_capacity(ours.len() + theirs.len());
    let mut theirs = theirs.into_iter().peekable();
    for our in ours {
        let comes_first = |their: &Placed| match (their.in_live, our.in_live) {
            (Some(theirs), Some(ours)) => theirs.cmp(&ours) == Ordering::Less,
            _ => false,
        };
        while let Some(their) = theirs.next_if(comes_first) {
            all.push(their.item);
        }
        all.push(our.item);
    }
    all.extend(theirs.map(|p| p.item));
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

/// What the items of both lists are; all must be of one type.
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
