//! The entries of `metadata.managedFields`: reading, writing, order and number.

use serde_json::{Map, Value};

use super::set::FieldSet;

/// Entries for updates beyond this number are thrown together, oldest first.
const MAX_UPDATE_ENTRIES: usize = 10;

/// Whose name such a collection bears.
const OLD_UPDATES: &str = "ancient-changes";

/// How a manager came by its fields. The order is the one entries are listed in.
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

/// Who owns fields. Appliers are the same whatever version they use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Owner {
    pub(super) fn is(&self, other: &Owner) -> bool {
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
    /// `fieldsV1`; read only when it is needed.
    fields: Value,
}

impl Entry {
    pub(super) fn new(owner: Owner, set: &FieldSet, time: Option<String>) -> Entry {
        Entry { owner, time, fields: set.to_json() }
    }

    pub(super) fn set(&self) -> FieldSet {
        FieldSet::from_stored(&self.fields)
    }

    pub(super) fn put(&mut self, set: &FieldSet) {
        self.fields = set.to_json();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.as_object().is_none_or(Map::is_empty)
    }

    /// Takes fields out, field by field.
    pub(super) fn subtract(&mut self, set: &FieldSet) {
        if set.touches(&self.fields) {
            self.put(&self.set().without(set));
        }
    }

    pub(super) fn unite(&mut self, set: &FieldSet) {
        if !set.is_within(&self.fields) {
            self.put(&self.set().with(set));
        }
    }

    /// Seconds are all there is, and all in UTC, so the texts sort like the times.
    fn order(&self) -> (Operation, &str, &str, &str, &str) {
        let owner = &self.owner;
        (owner.operation, self.time_text(), &owner.manager, &owner.api_version, &owner.subresource)
    }

    fn time_text(&self) -> &str {
        self.time.as_deref().unwrap_or_default()
    }
}

// === JSON ===

/// Takes the entries that this server wrote out of the list.
pub(super) fn from_stored(list: Vec<Value>) -> Vec<Entry> {
    list.into_iter().filter_map(entry_of).collect()
}

/// Reads entries that a client wrote; one that is wrong spoils them all. Of two for the same owner the last one counts.
pub(super) fn parse(list: Vec<Value>) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
    for item in list {
        check(&item)?;
        let Some(mut entry) = entry_of(item) else { continue };
        entry.put(&FieldSet::parse(&entry.fields)?);
        entries.retain(|earlier| !earlier.owner.is(&entry.owner));
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

/// The list as the object holds it, in its order.
pub(super) fn to_list(mut entries: Vec<Entry>) -> Vec<Value> {
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
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

// === Keeping the number down ===

/// Throws the oldest update entries of each version together until no more than the allowed number is left.
pub(super) fn cap_updates(entries: &mut Vec<Entry>) {
    let is_update = |e: &Entry| e.owner.operation == Operation::Update;
    let mut surplus = entries.iter().filter(|e| is_update(e)).count().saturating_sub(MAX_UPDATE_ENTRIES);
    if surplus == 0 {
        return;
    }
    let (mut updates, kept): (Vec<Entry>, Vec<Entry>) = entries.drain(..).partition(is_update);
    updates.sort_by(|a, b| (a.time_text(), &a.owner.manager).cmp(&(b.time_text(), &b.owner.manager)));
    let mut buckets: Vec<Entry> = Vec::new();
    let mut rest = Vec::with_capacity(updates.len());
    for update in updates {
        let bucket = buckets.iter_mut().find(|b| b.owner.api_version == update.owner.api_version);
        match bucket {
            _ if surplus == 0 => rest.push(update),
            None => buckets.push(update),
            Some(bucket) => {
                bucket.unite(&update.set());
                bucket.time = update.time;
                bucket.owner.manager = OLD_UPDATES.to_owned();
                bucket.owner.subresource.clear();
                surplus -= 1;
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
    fn appliers_come_first_then_time_then_name() {
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
    fn what_is_written_is_read_again() {
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
    fn a_wrong_entry_of_a_client_spoils_them_all() {
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
    fn the_oldest_of_too_many_updates_are_thrown_together() {
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
