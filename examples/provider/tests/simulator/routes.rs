//! The route table: one route per CIDR, each to a server.

use bowline_simulator::{Call, Fields, Record, Reply, object};
use serde_json::Value;

use super::{Acme, PAGE, error, found, not_found};

const KIND: &str = "route";
const MAX_ROUTES: usize = 100;

impl Acme {
    pub(super) fn routes(&mut self, call: &Call, rest: &[&str]) -> Reply {
        match (call.method.as_str(), rest) {
            ("GET", []) => {
                let has = |record: &Record, field| call.value(field).is_none_or(|value| record.text(field) == value);
                self.page(call, KIND, PAGE, |record| has(record, "cluster") && has(record, "destination"))
            }
            ("POST", []) => self.create_route(call.json().map(object).unwrap_or_default()),
            ("DELETE", [id]) => match self.records.of_mut(KIND).remove(id) {
                Some(_) => Reply::empty(204),
                None => not_found(KIND),
            },
            _ => error(405, "no_such_method"),
        }
    }

    fn create_route(&mut self, new: Record) -> Reply {
        let table = self.records.of(KIND);
        if table.iter().any(|row| row.record.text("destination") == new.text("destination")) {
            return error(409, "destination_taken");
        }
        if table.len() >= MAX_ROUTES {
            return error(409, "route_table_full");
        }
        if self.records.get("server", new.text("server")).is_none() {
            return not_found("server");
        }
        found(&self.insert(KIND, new))
    }

    /// Routes to a deleted server stay, and drop packets.
    pub(super) fn remove_target(&mut self, server: &str) {
        let routes = self.records.of_mut(KIND).iter_mut();
        let dead = routes.filter(|row| row.record.text("server") == server);
        dead.for_each(|row| row.record.set("server", Value::Null));
    }
}
