//! The objects of a cloud: one table of records for each kind, each record as it looks on the wire.
//!
//! What a record says about others (the rules of a group, the members of a pool) is not kept twice: the service adds it when
//! it shows the record.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A record as it looks on the wire.
pub type Record = Map<String, Value>;

/// All records of one kind, by ID.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: BTreeMap<String, Row>,
    made: u64,
}

/// A record and its owner.
#[derive(Debug, Clone)]
pub struct Row {
    /// The record.
    pub record: Record,
    /// The ID of the record that this one belongs to; empty if there is none.
    pub owner: String,
    /// When it was made, compared with the others.
    made: u64,
}

type Tables<K> = BTreeMap<K, Table>;

/// All that a cloud has, with what readers see of it.
#[derive(Debug, Clone)]
pub struct Records<K> {
    tables: Tables<K>,
    frozen: Option<Tables<K>>,
    /// What there is, while something else is shown.
    hidden: Option<Tables<K>>,
    empty: Table,
}

/// What a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// What there is.
    Now,
    /// What there was when the view was frozen; what there is, if it was not.
    Frozen,
    /// Nothing.
    Nothing,
}

/// Records of which a reader may see an old version, as with caches and read replicas.
pub trait Views {
    /// Keeps the present for [`View::Frozen`]; `false` forgets it.
    fn freeze(&mut self, frozen: bool);
    /// Shows this until the next call. Nothing may be changed unless the view is [`View::Now`].
    fn show(&mut self, view: View);
}

impl<K> Default for Records<K> {
    fn default() -> Records<K> {
        Records { tables: BTreeMap::new(), frozen: None, hidden: None, empty: Table::default() }
    }
}

impl<K: Ord + Copy> Records<K> {
    /// The records of this kind.
    pub fn of(&self, kind: K) -> &Table {
        self.tables.get(&kind).unwrap_or(&self.empty)
    }

    /// The records of this kind, to be changed.
    pub fn of_mut(&mut self, kind: K) -> &mut Table {
        self.tables.entry(kind).or_default()
    }

    /// A record.
    pub fn get(&self, kind: K, id: &str) -> Option<&Record> {
        self.of(kind).get(id)
    }

    /// A record, to be changed.
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
    /// A record.
    pub fn get(&self, id: &str) -> Option<&Record> {
        self.rows.get(id).map(|row| &row.record)
    }

    /// A record with its owner.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id)
    }

    /// Adds a record, or replaces the one of the same `id`.
    pub fn insert(&mut self, owner: &str, record: Record) {
        self.made += 1;
        let row = Row { owner: owner.to_owned(), made: self.made, record };
        self.rows.insert(row.record.text("id").to_owned(), row);
    }

    /// Removes a record.
    pub fn remove(&mut self, id: &str) -> Option<Record> {
        self.rows.remove(id).map(|row| row.record)
    }

    /// Removes all others.
    pub fn retain(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| keep(row));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All, in the order of their IDs.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// All, in the order of their IDs, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut()
    }

    /// All, the oldest first.
    pub fn oldest_first(&self) -> Vec<&Row> {
        oldest_first(self.rows.values())
    }

    /// The records that belong to this one, the oldest first.
    pub fn owned_by(&self, owner: &str) -> Vec<&Row> {
        oldest_first(self.rows.values().filter(|row| row.owner == owner))
    }
}

fn oldest_first<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a Row> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| row.made);
    rows
}

/// Reads and sets the fields of a record.
pub trait Fields {
    /// The text of a field; empty if it is missing or something else.
    fn text(&self, field: &str) -> &str;
    /// The texts of a list; none if it is missing or something else.
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

/// The object that this value is; an empty one if it is something else.
pub fn object(value: Value) -> Record {
    match value {
        Value::Object(record) => record,
        _ => Record::new(),
    }
}
