//! Entries of `metadata.managedFields`: parsing, serialisation, order and maximum number.

use serde_json::{Map, Value};

use super::set::FieldSet;

/// Maximum number of update entries. The oldest ones beyond it are merged.
const MAX_UPDATE_ENTRIES: usize = 10;

/// Manager of merged entries.
const OLD_UPDATES: &str = "ancient-changes";

/// Operation by which a manager owns fields. Entries are sorted in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Owner of fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Owner {
    /// Whether both are the same owner. The version of an applier does not matter.
    pub(super) fn is_same(&self, other: &Owner) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }
}

/// One owner and its fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) owner: Owner,
    pub(super) time: Option<String>,
    /// `fieldsV1`, parsed only when needed.
    fields: Value,
}

impl Entry {
    pub(super) fn new(owner: Owner, set: &FieldSet, time: Option<String>) -> Entry {
        Entry { owner, time, fields: set.to_json() }
    }

    pub(super) fn set(&self) -> FieldSet {
        FieldSet::from_stored(&self.fields)
    }

    pub(super) fn replace(&mut self, set: &FieldSet) {
        self.fields = set.to_json();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.as_object().is_none_or(Map::is_empty)
    }

    /// Removes fields.
    pub(super) fn subtract(&mut self, set: &FieldSet) {
        if set.intersects(&self.fields) {
            self.replace(&self.set().difference(set));
        }
    }

    pub(super) fn union_with(&mut self, set: &FieldSet) {
        if !set.is_subset_of(&self.fields) {
            self.replace(&self.set().union(set));
        }
    }

    /// Sort key. Times have whole seconds and are in UTC, so their strings sort chronologically.
    fn sort_key(&self) -> (Operation, &str, &str, &str, &str) {
        let owner = &self.owner;
        (owner.operation, self.time_text(), &owner.manager, &owner.api_version, &owner.subresource)
    }

    fn time_text(&self) -> &str {
        self.time.as_deref().unwrap_or_default()
    }
}

// === JSON ===

/// Reads entries that this server wrote.
pub(super) fn from_stored(list: Vec<Value>) -> Vec<Entry> {
    list.into_iter().filter_map(entry_of).collect()
}

/// Parses entries that a client sent. Fails if one of them is invalid. The last of several entries of an owner is used.
pub(super) fn parse(list: Vec<Value>) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
    for item in list {
        check(&item)?;
        let Some(mut entry) = entry_of(item) else { continue };
        entry.replace(&FieldSet::parse(&entry.fields)?);
        entries.retain(|earlier| !earlier.owner.is_same(&entry.owner));
        entries.push(entry);
    }
    Ok(entries)
}

fn check(item: &Value) -> Result<(), String> {
    let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    if !matches!(text("operation"), "Apply" | "Update") {
        return Err("operation must be `Apply` or `Update`".to_owned());
    }
    if text("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => Ok(()),
        other => Err(format!("invalid fieldsType {other:?}")),
    }
}

fn entry_of(item: Value) -> Option<Entry> {
    let Value::Object(mut item) = item else { return None };
    let mut text = |key: &str| match item.remove(key) {
        Some(Value::String(s)) => s,
        _ => String::new(),
    };
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        _ => Operation::Update,
    };
    let owner = Owner {
        manager: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
    };
    let time = Some(text("time")).filter(|t| !t.is_empty());
    let fields = item.remove("fieldsV1").unwrap_or_default();
    Some(Entry { owner, time, fields })
}

/// Converts entries to the sorted list of an object.
pub(super) fn to_list(mut entries: Vec<Entry>) -> Vec<Value> {
    entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    entries.into_iter().map(to_json).collect()
}

fn to_json(entry: Entry) -> Value {
    let owner = entry.owner;
    let texts = [
        ("manager", owner.manager),
        ("operation", owner.operation.name().to_owned()),
        ("apiVersion", owner.api_version),
        ("time", entry.time.unwrap_or_default()),
        ("fieldsType", "FieldsV1".to_owned()),
        ("subresource", owner.subresource),
    ];
    let mut item = Map::new();
    item.extend(
        texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key.to_owned(), text.into())),
    );
    item.insert("fieldsV1".to_owned(), entry.fields);
    Value::Object(item)
}

// === Limit of update entries ===

/// Merges the oldest update entries of each version until at most [`MAX_UPDATE_ENTRIES`] are left.
pub(super) fn cap_updates(entries: &mut Vec<Entry>) {
    let is_update = |e: &Entry| e.owner.operation == Operation::Update;
    let mut excess = entries.iter().filter(|e| is_update(e)).count().saturating_sub(MAX_UPDATE_ENTRIES);
    if excess == 0 {
        return;
    }
    let (mut updates, kept): (Vec<Entry>, Vec<Entry>) = entries.drain(..).partition(is_update);
    updates.sort_by(|a, b| (a.time_text(), &a.owner.manager).cmp(&(b.time_text(), &b.owner.manager)));
    let mut buckets: Vec<Entry> = Vec::new();
    let mut rest = Vec::with_capacity(updates.len());
    for update in updates {
        let bucket = buckets.iter_mut().find(|b| b.owner.api_version == update.owner.api_version);
        match bucket {
            _ if excess == 0 => rest.push(update),
            None => buckets.push(update),
            Some(bucket) => {
                bucket.union_with(&update.set());
                bucket.time = update.time;
                bucket.owner.manager = OLD_UPDATES.to_owned();
                bucket.owner.subresource.clear();
                excess -= 1;
            }
        }
    }
    *entries = kept;
    entries.extend(buckets);
    entries.extend(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(super) fn owner(manager: &str, operation: Operation) -> Owner {
        Owner { manager: manager.into(), operation, api_version: "v1".into(), subresource: String::new() }
    }

    fn entry(manager: &str, operation: Operation, time: &str, field: &str) -> Entry {
        Entry::new(owner(manager, operation), &FieldSet::of_names(&[&[field]]), Some(time.into()))
    }

    #[test]
    fn entries_are_sorted_by_operation_time_and_name() {
        let entries = vec![
            entry("z", Operation::Update, "2024-01-01T00:00:01Z", "a"),
            entry("b", Operation::Apply, "2024-01-01T00:00:09Z", "a"),
            entry("a", Operation::Update, "2024-01-01T00:00:01Z", "a"),
            entry("y", Operation::Update, "2024-01-01T00:00:00Z", "a"),
        ];
        let names: Vec<Value> = to_list(entries).into_iter().map(|mut e| e["manager"].take()).collect();
        assert_eq!(names, ["b", "y", "a", "z"]);
    }

    #[test]
    fn entries_round_trip() {
        let list = to_list(vec![entry("a", Operation::Apply, "2024-01-01T00:00:00Z", "data")]);
        assert_eq!(
            list,
            [json!({"manager": "a", "operation": "Apply", "apiVersion": "v1", "time": "2024-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}})]
        );
        assert_eq!(to_list(from_stored(list.clone())), list);
        assert_eq!(to_list(parse(list.clone()).unwrap()), list);
    }

    #[test]
    fn one_invalid_entry_rejects_all_entries() {
        let good = json!({"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"});
        let with = |key: &str, value: Value| {
            let mut item = good.clone();
            item[key] = value;
            parse(vec![good.clone(), item]).is_err()
        };
        assert!(parse(vec![good.clone()]).is_ok());
        assert!(with("operation", json!("Frob")));
        assert!(with("apiVersion", json!("")));
        assert!(with("fieldsType", json!("V2")));
        assert!(with("fieldsV1", json!({"nonsense": {}})));
    }

    #[test]
    fn oldest_update_entries_are_merged() {
        let mut entries: Vec<Entry> = (0..12)
            .map(|i| {
                entry(&format!("m{i:02}"), Operation::Update, &format!("2024-01-01T00:00:{i:02}Z"), &format!("f{i}"))
            })
            .collect();
        entries.push(entry("applier", Operation::Apply, "2024-01-01T00:00:00Z", "x"));
        cap_updates(&mut entries);
        assert_eq!(entries.len(), 11);
        let old = entries.iter().find(|e| e.owner.manager == OLD_UPDATES).unwrap();
        assert_eq!(old.set().to_json(), json!({"f:f0": {}, "f:f1": {}, "f:f2": {}}));
        assert_eq!(old.time.as_deref(), Some("2024-01-01T00:00:02Z"));
    }
}
