//! Objects of a cloud: one table for each kind, with each record in its wire format.
//!
//! References between records (the rules of a group, the members of a pool) are not stored twice: the service adds them when it
//! renders a record.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A record in its wire format.
pub type Record = Map<String, Value>;

/// All records of one kind, by ID.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: BTreeMap<String, Row>,
    created: u64,
}

/// A record and its owner.
#[derive(Debug, Clone)]
pub struct Row {
    /// Record.
    pub record: Record,
    /// ID of the record that this one belongs to; empty if there is none.
    pub owner: String,
    /// Position in the order of creation.
    created: u64,
}

type Tables<K> = BTreeMap<K, Table>;

/// All records of a cloud, and the view that readers get.
#[derive(Debug, Clone)]
pub struct Records<K> {
    tables: Tables<K>,
    frozen: Option<Tables<K>>,
    /// Current records while another view is shown.
    hidden: Option<Tables<K>>,
    empty: Table,
}

/// View of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Current records.
    Now,
    /// Records at the time of the last freeze; current records if the view is not frozen.
    Frozen,
    /// No records.
    Nothing,
}

/// Records with stale views, as with caches and read replicas.
pub trait Views {
    /// Saves the current records for [`View::Frozen`]; `false` discards them.
    fn freeze(&mut self, frozen: bool);
    /// Shows this view until the next call. Records may be changed only while the view is [`View::Now`].
    fn show(&mut self, view: View);
}

impl<K> Default for Records<K> {
    fn default() -> Records<K> {
        Records { tables: BTreeMap::new(), frozen: None, hidden: None, empty: Table::default() }
    }
}

impl<K: Ord + Copy> Records<K> {
    /// Records of this kind.
    pub fn of(&self, kind: K) -> &Table {
        self.tables.get(&kind).unwrap_or(&self.empty)
    }

    /// Records of this kind, mutable.
    pub fn of_mut(&mut self, kind: K) -> &mut Table {
        self.tables.entry(kind).or_default()
    }

    /// Record with this ID.
    pub fn get(&self, kind: K, id: &str) -> Option<&Record> {
        self.of(kind).get(id)
    }

    /// Record with this ID, mutable.
    pub fn get_mut(&mut self, kind: K, id: &str) -> Option<&mut Record> {
        self.of_mut(kind).rows.get_mut(id).map(|row| &mut row.record)
    }
}

impl<K: Ord + Copy> Views for Records<K> {
    fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen.then(|| self.tables.clone());
    }

    fn show(&mut self, view: View) {
        if let Some(present) = self.hidden.take() {
            self.tables = present;
        }
        let shown = match view {
            View::Now => None,
            View::Frozen => self.frozen.clone(),
            View::Nothing => Some(BTreeMap::new()),
        };
        if let Some(shown) = shown {
            self.hidden = Some(std::mem::replace(&mut self.tables, shown));
        }
    }
}

impl Table {
    /// Record with this ID.
    pub fn get(&self, id: &str) -> Option<&Record> {
        self.rows.get(id).map(|row| &row.record)
    }

    /// Record with this ID, with its owner.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id)
    }

    /// Adds a record, or replaces the one with the same `id`.
    pub fn insert(&mut self, owner: &str, record: Record) {
        self.created += 1;
        let row = Row { owner: owner.to_owned(), created: self.created, record };
        self.rows.insert(row.record.text("id").to_owned(), row);
    }

    /// Removes a record.
    pub fn remove(&mut self, id: &str) -> Option<Record> {
        self.rows.remove(id).map(|row| row.record)
    }

    /// Removes all records for which `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| keep(row));
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All records, sorted by ID.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// All records, sorted by ID, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut()
    }

    /// All records, the oldest first.
    pub fn oldest_first(&self) -> Vec<&Row> {
        oldest_first(self.rows.values())
    }

    /// Records that belong to this one, the oldest first.
    pub fn owned_by(&self, owner: &str) -> Vec<&Row> {
        oldest_first(self.rows.values().filter(|row| row.owner == owner))
    }
}

fn oldest_first<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a Row> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| row.created);
    rows
}

/// Access to the fields of a record.
pub trait Fields {
    /// Text of a field; empty if the field is missing or has another type.
    fn text(&self, field: &str) -> &str;
    /// Texts of a list; empty if the field is missing or has another type.
    fn texts(&self, field: &str) -> Vec<&str>;
    /// Sets a field.
    fn set(&mut self, field: &str, value: impl Into<Value>);
}

impl Fields for Record {
    fn text(&self, field: &str) -> &str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn texts(&self, field: &str) -> Vec<&str> {
        let list = self.get(field).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn set(&mut self, field: &str, value: impl Into<Value>) {
        self.insert(field.to_owned(), value.into());
    }
}

/// Converts a value to an object; empty if it has another type.
pub fn object(value: Value) -> Record {
    match value {
        Value::Object(record) => record,
        _ => Record::new(),
    }
}
