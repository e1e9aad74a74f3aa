//! What the cloud has: one table of records for each kind, each record as it looks on the wire.
//!
//! What a record says about its neighbours (the rules of a group, the members of a pool) is not kept twice: the service adds
//! it when it shows the record.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A record as it looks on the wire.
pub type Record = Map<String, Value>;

/// What kinds of records there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A server of Nova.
    Server,
    /// A flavor of Nova.
    Flavor,
    /// A network of Neutron.
    Network,
    /// A subnet of Neutron.
    Subnet,
    /// A port of Neutron.
    Port,
    /// A router of Neutron.
    Router,
    /// A floating IP of Neutron.
    FloatingIp,
    /// A security group of Neutron.
    SecurityGroup,
    /// A rule of a security group.
    SecurityGroupRule,
    /// A load balancer of Octavia.
    LoadBalancer,
    /// A listener of Octavia.
    Listener,
    /// A pool of Octavia.
    Pool,
    /// A member of a pool.
    Member,
    /// A health monitor of Octavia.
    HealthMonitor,
    /// A secret of Barbican.
    Secret,
    /// A container of Barbican.
    Container,
}

/// All records of one kind, by ID.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    rows: BTreeMap<String, Row>,
    made: u64,
}

/// A record, what it hangs on and when it was made, compared with the others.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) record: Record,
    /// The ID of what it hangs on: the balancer of a listener or pool, the pool of a member or monitor; else empty.
    pub(crate) owner: String,
    made: u64,
}

/// All that the cloud has at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    tables: BTreeMap<Kind, Table>,
    /// Subnets that have no address left, whatever their size.
    pub(crate) exhausted: BTreeSet<String>,
    nothing: Table,
}

impl Records {
    pub(crate) fn of(&self, kind: Kind) -> &Table {
        self.tables.get(&kind).unwrap_or(&self.nothing)
    }

    pub(crate) fn of_mut(&mut self, kind: Kind) -> &mut Table {
        self.tables.entry(kind).or_default()
    }

    pub(crate) fn get(&self, kind: Kind, id: &str) -> Option<&Record> {
        self.of(kind).get(id)
    }

    pub(crate) fn get_mut(&mut self, kind: Kind, id: &str) -> Option<&mut Record> {
        self.of_mut(kind).rows.get_mut(id).map(|row| &mut row.record)
    }
}

impl Table {
    pub(crate) fn get(&self, id: &str) -> Option<&Record> {
        self.rows.get(id).map(|row| &row.record)
    }

    pub(crate) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id)
    }

    pub(crate) fn insert(&mut self, owner: &str, record: Record) {
        self.made += 1;
        let row = Row { owner: owner.to_owned(), made: self.made, record };
        self.rows.insert(row.record.text("id").to_owned(), row);
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Record> {
        self.rows.remove(id).map(|row| row.record)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| keep(row));
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// In the order of their IDs, as Neutron lists.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut()
    }

    /// The oldest first, as Octavia lists.
    pub(crate) fn oldest_first(&self) -> Vec<&Row> {
        oldest_first(self.rows.values())
    }

    /// What hangs on this, the oldest first.
    pub(crate) fn owned_by(&self, owner: &str) -> Vec<&Row> {
        oldest_first(self.rows.values().filter(|row| row.owner == owner))
    }
}

fn oldest_first<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a Row> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| row.made);
    rows
}

/// Reads fields of a record; what is missing or of another type is empty.
pub(crate) trait Fields {
    /// The text of a field.
    fn text(&self, field: &str) -> &str;
    /// The texts of a list.
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

/// The object that this is; an empty one if it is none.
pub(crate) fn object(value: Value) -> Record {
    match value {
        Value::Object(record) => record,
        _ => Record::new(),
    }
}
