//! Default fields of each kind of record, and the initial regions and VPC.

use std::sync::LazyLock;

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};

use crate::simulator::State;

static FIXTURE: LazyLock<Record> =
    LazyLock::new(|| serde_json::from_str(include_str!("fixture.json")).unwrap_or_default());

/// Default fields with this name, overwritten with the given ones. Null counts as not given.
pub(crate) fn fields(name: &str, given: Record) -> Record {
    let mut record = FIXTURE.get(name).cloned().map(object).unwrap_or_default();
    record.extend(given.into_iter().filter(|(_, value)| !value.is_null()));
    record
}

/// Adds the regions and the default VPC.
pub(crate) fn populate(state: &mut State) {
    for location in items(&FIXTURE, "locations") {
        state.put("regions", object(location.clone()));
    }
    let name = format!("default-{}", state.options.region);
    state.put("vpcs", object(json!({"name": name, "default": true})));
}

impl State {
    /// Stores a record and returns its ID. Fields that are not given get defaults, and empty ones are filled.
    pub(crate) fn put(&mut self, kind: &'static str, given: Record) -> String {
        let mut record = fields(kind, given);
        let id = if record.text("id").is_empty() { self.ids.uuid() } else { record.text("id").to_owned() };
        for (field, value) in record.iter_mut().filter(|(_, value)| **value == "") {
            *value = match field.as_str() {
                "id" => json!(id),
                "urn" => json!(format!("do:vpc:{id}")),
                "region" => json!(self.options.region),
                "created_at" | "started_at" | "completed_at" => json!(self.clock.format("%Y-%m-%dT%H:%M:%SZ")),
                _ => continue,
            };
        }
        self.records.of_mut(kind).insert("", record);
        id
    }

    /// Region as responses of other resources show it; empty if it is unknown.
    pub(crate) fn region(&self, slug: &str) -> Record {
        let mut region = self.records.get("regions", slug).cloned().unwrap_or_default();
        region.remove("id");
        region
    }

    /// ID of the default VPC of a region; empty if there is none.
    pub(crate) fn default_vpc(&self, region: &str) -> String {
        let is_default = |vpc: &&Record| vpc.text("region") == region && vpc.get("default") == Some(&json!(true));
        let mut vpcs = self.records.of("vpcs").iter().map(|row| &row.record);
        vpcs.find(is_default).map_or(String::new(), |vpc| vpc.text("id").to_owned())
    }
}

/// Items of a list field; empty if it is missing.
pub(crate) fn items<'a>(record: &'a Record, field: &str) -> &'a [Value] {
    record.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Adds an item to a list field, or removes it.
pub(crate) fn toggle(record: &mut Record, field: &str, item: &Value, present: bool) {
    let mut items = items(record, field).to_vec();
    match (items.iter().position(|held| held == item), present) {
        (None, true) => items.push(item.clone()),
        (Some(at), false) => drop(items.remove(at)),
        _ => {}
    }
    record.set(field, items);
}
