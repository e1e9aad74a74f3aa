//! Load balancers: at most one per owner. Names are not unique.

use bowline_simulator::{Call, Fields, Record, Reply, object};
use serde_json::{Value, json};

use super::{Acme, SMALL_PAGE, error, found, not_found};

const KIND: &str = "load_balancer";

impl Acme {
    pub(super) fn load_balancers(&mut self, call: &Call, rest: &[&str]) -> Reply {
        match (call.method.as_str(), rest) {
            ("GET", []) => self.page(call, KIND, SMALL_PAGE, |record| is_wanted(call, record)),
            ("POST", []) => found(&self.create_load_balancer(settings(call))),
            ("GET", [id]) => self.records.get(KIND, id).map_or_else(|| not_found(KIND), found),
            ("PUT", [id]) => self.set_load_balancer(id, settings(call)),
            ("DELETE", [id]) => match self.records.of_mut(KIND).remove(id) {
                Some(_) => Reply::empty(204),
                None => not_found(KIND),
            },
            _ => error(405, "no_such_method"),
        }
    }

    /// Returns the load balancer of this owner, which is created if there is none.
    pub(super) fn create_load_balancer(&mut self, settings: Record) -> Record {
        let of_owner = |record: &&Record| owner(&settings).is_some() && owner(record) == owner(&settings);
        let existing = self.records.of(KIND).iter().map(|row| &row.record).find(of_owner).cloned();
        if let Some(existing) = existing {
            return existing;
        }
        let mut new = object(json!({"servers": [], "ports": [], "owner": null}));
        new.set("ip", format!("203.0.113.{}", 1 + self.made % 250));
        new.extend(settings);
        self.insert(KIND, new)
    }

    /// Sets the fields that the caller names. An owner is not replaced by another one.
    fn set_load_balancer(&mut self, id: &str, settings: Record) -> Reply {
        let Some(record) = self.records.get_mut(KIND, id) else { return not_found(KIND) };
        let (old, new) = (owner(record), owner(&settings));
        if old.is_some() && new.is_some() && old != new {
            return error(409, "has_owner");
        }
        record.extend(settings);
        found(record)
    }
}

fn settings(call: &Call) -> Record {
    call.json().map(object).unwrap_or_default()
}

fn owner(record: &Record) -> Option<&Value> {
    record.get("owner").filter(|owner| !owner.is_null())
}

/// Compares the name, and cluster and UID of the owner.
fn is_wanted(call: &Call, record: &Record) -> bool {
    let has = |field: &str| {
        call.value(field).is_none_or(|value| record.get("owner").is_some_and(|owner| owner[field] == value))
    };
    has("cluster") && has("uid") && call.value("name").is_none_or(|name| record.text("name") == name)
}
