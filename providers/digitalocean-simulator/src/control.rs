//! Methods with which a test changes and reads the cloud without going through its API.

use bowline_simulator::{Fields, Record, Service, object};
use serde_json::{Value, json};

use crate::options::Options;
use crate::simulator::Simulator;
use crate::{firewalls, load_balancers};

impl Simulator {
    /// Changes the options. The change applies to all later requests.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.state().options);
    }

    /// ID of the default VPC.
    pub fn vpc(&self) -> String {
        let state = self.state();
        state.default_vpc(&state.options.region)
    }

    /// Returns all records of a kind as a list response shows them, oldest first.
    pub fn records(&self, kind: &'static str) -> Vec<Record> {
        let state = &mut *self.state();
        state.settle();
        let rows = state.records.of(kind).oldest_first();
        rows.into_iter().map(|row| state.view(kind, &row.record)).collect()
    }

    /// Creates a record without validation and returns its ID. Fields that are not given get defaults; those of a load balancer
    /// and a firewall are the fields of a create request. A load balancer without `status` is active and has addresses.
    pub fn put(&self, kind: &'static str, fields: Value) -> String {
        let (state, fields) = (&mut *self.state(), object(fields));
        match kind {
            "load_balancers" => load_balancers::put(state, fields),
            "firewalls" => firewalls::store(state, fields),
            _ => state.put(kind, fields),
        }
    }

    /// Changes a record without validation; `false` if it does not exist.
    pub fn edit(&self, kind: &'static str, id: &str, change: impl FnOnce(&mut Record)) -> bool {
        self.state().records.get_mut(kind, id).map(change).is_some()
    }

    /// Removes a record; `false` if it does not exist.
    pub fn remove(&self, kind: &'static str, id: &str) -> bool {
        self.state().records.of_mut(kind).remove(id).is_some()
    }

    /// Renews a certificate as Let's Encrypt certificates are: a new one replaces it under the same name, and load balancers are
    /// switched to it. Returns the new ID; `None` if there is no certificate with this name.
    pub fn renew_certificate(&self, name: &str) -> Option<String> {
        let state = &mut *self.state();
        let rows = state.records.of("certificates").iter();
        let old = rows.map(|row| &row.record).find(|record| record.text("name") == name)?.clone();
        let id = state.put("certificates", object(json!({"name": name, "type": old.text("type")})));
        state.records.of_mut("certificates").remove(old.text("id"));
        load_balancers::replace_certificate(state, old.text("id"), &id);
        Some(id)
    }

    /// Completes all changes in progress.
    pub fn finish_work(&self) {
        let state = &mut *self.state();
        for job in state.jobs.all() {
            state.finish(&job);
        }
    }

    /// Makes this many of the next creations of load balancers end as `errored`, or changes of firewalls as `failed`.
    pub fn fail_work(&self, changes: u64) {
        self.state().jobs.fail_next(changes);
    }
}
