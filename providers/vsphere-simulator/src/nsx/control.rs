//! Methods with which a test changes and reads the manager without going through its API.

use std::net::IpAddr;

use bowline_simulator::{Fields, Record, Service, object};
use serde_json::{Value, json};

use super::address::{Address, kinds};
use super::objects::view;
use super::options::Options;
use super::realization;
use super::schema::Schema;
use super::simulator::{Simulator, State};

/// Maximum number of addresses of an IP pool.
const LARGEST_POOL: usize = 1 << 16;

impl Simulator {
    /// Adds the application profiles of a new manager.
    pub(crate) fn populate(&self) {
        for (kind, resource_type) in
            [("tcp", "LBFastTcpProfile"), ("udp", "LBFastUdpProfile"), ("http", "LBHttpProfile")]
        {
            let path = format!("/infra/lb-app-profiles/default-{kind}-lb-app-profile");
            self.put(&path, json!({"resource_type": resource_type, "_system_owned": true}));
        }
    }

    /// Changes the options. The change applies to all later requests.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.state().options);
    }

    // ---- fixture

    /// Adds an IP pool with this ID and display name, and returns its path. `ranges` are separated with commas, as in
    /// `10.0.0.10-10.0.0.20, 10.0.1.5`; an invalid range has no addresses.
    pub fn add_ip_pool(&self, id: &str, ranges: &str) -> String {
        let path = format!("/infra/ip-pools/{id}");
        self.put(&path, json!({"resource_type": "IpAddressPool"}));
        self.state().addresses.insert(path.clone(), ranges.split(',').flat_map(range).collect());
        path
    }

    /// Adds a tier-1 gateway and returns its path.
    pub fn add_tier1(&self, id: &str) -> String {
        self.add_gateway(&format!("/infra/tier-1s/{id}"))
    }

    /// Adds a gateway with this path: `/infra/tier-0s/<id>`, or `/orgs/<org>/projects/<project>/infra/tier-1s/<id>`. Returns the path.
    pub fn add_gateway(&self, path: &str) -> String {
        let resource_type = if path.contains("/tier-0s/") { "Tier0" } else { "Tier1" };
        self.put(path, json!({"resource_type": resource_type, "failover_mode": "NON_PREEMPTIVE"}));
        path.to_owned()
    }

    /// Creates or replaces an object with this path, without validation. Fields that are not given get defaults, and given ones such as
    /// `_create_user` replace those of the server. `false` if the path is not one of an object. The object is realized and indexed at
    /// once.
    pub fn put(&self, path: &str, fields: Value) -> bool {
        let Some(address) = Address::of(path).filter(|address| address.id.is_some()) else { return false };
        let state = &mut *self.state();
        let mut record = object(fields);
        let given = record.clone();
        let is_of = |schema: &Schema| ["", schema.resource_type].contains(&given.text("resource_type"));
        if let Some(schema) = Schema::of(address.kind).filter(is_of) {
            schema.complete(&mut record);
        }
        let mut record = state.describe(&address, record, None, "another-user");
        record.extend(given);
        let shown = state.insert(&address, record);
        realization::index(state, (path.to_owned(), Some(shown)));
        realization::realize(state, path, false);
        true
    }

    /// Changes an object without validation; `false` if it does not exist. Search shows the change at once.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Record)) -> bool {
        let Some(address) = Address::of(path) else { return false };
        let state = &mut *self.state();
        let Some(record) = state.records.get_mut(address.kind, path) else { return false };
        change(record);
        record.set("id", path);
        let shown = view(record);
        realization::index(state, (path.to_owned(), Some(shown)));
        true
    }

    /// Removes an object without validation; `false` if it does not exist.
    pub fn remove(&self, path: &str) -> bool {
        Address::of(path).is_some_and(|address| self.state().discard(&address).is_some())
    }

    /// Lets another client delete this object just before the next request to delete it, which is answered with 404.
    pub fn vanish_on_delete(&self, path: &str) {
        self.state().vanishing.insert(path.to_owned());
    }

    // ---- observation

    /// Objects of all collections with this name, as a list response shows them, sorted by path.
    pub fn objects(&self, collection: &str) -> Vec<Record> {
        let state = &mut *self.state();
        state.settle();
        let kind = kinds().find(|kind| *kind == collection);
        kind.map(|kind| state.records.of(kind).iter().map(|row| view(&row.record)).collect()).unwrap_or_default()
    }

    /// Object with this path, as a response shows it.
    pub fn object(&self, path: &str) -> Option<Record> {
        let state = &mut *self.state();
        state.settle();
        state.records.get(Address::of(path)?.kind, path).map(view)
    }

    /// State of the realized entity of an object: `UNREALIZED`, `REALIZED` or `ERROR`; `None` if there is none.
    pub fn realized_state(&self, path: &str) -> Option<String> {
        self.read_realized(|state| state.records.get("realized", path).map(|entity| entity.text("state").to_owned()))
    }

    /// Address of an allocation; `None` if it has none.
    pub fn allocated_address(&self, path: &str) -> Option<IpAddr> {
        self.read_realized(|state| state.allocated_address(path))
    }

    fn read_realized<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        let state = &mut *self.state();
        state.settle();
        read(state)
    }

    // ---- realization

    /// Sets the realized state of an object, with the messages of its alarms.
    pub fn set_realized(&self, path: &str, realized: &str, alarms: &[&str]) {
        let alarms: Vec<_> = alarms.iter().map(|message| (*message, 500_100)).collect();
        self.state().set_realized(path, realized, &alarms, None);
    }

    /// Makes this many of the next changes end in the realized state `ERROR`.
    pub fn fail_realization(&self, changes: u64) {
        self.state().realizations.fail_next(changes);
    }

    /// Completes all changes in progress: realizations, deletions and the search index.
    pub fn finish_work(&self) {
        realization::finish_all(&mut self.state());
    }

    // ---- authentication

    /// Presents this client certificate in all requests; `None` ends it.
    pub fn present_certificate(&self, name: Option<&str>) {
        self.state().auth.certificate = name.map(str::to_owned);
    }

    /// Revokes all access tokens and sessions.
    pub fn revoke_tokens(&self) {
        let auth = &mut self.state().auth;
        auth.tokens.clear();
        auth.sessions.clear();
    }
}

/// Addresses of a range such as `10.0.0.10-10.0.0.20`, or a single address.
fn range(text: &str) -> Vec<IpAddr> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(IpAddr::V4(first)), Ok(IpAddr::V4(last))) => {
            (first.to_bits()..=last.to_bits()).take(LARGEST_POOL).map(|bits| IpAddr::V4(bits.into())).collect()
        }
        (Ok(IpAddr::V6(first)), Ok(IpAddr::V6(last))) => {
            (first.to_bits()..=last.to_bits()).take(LARGEST_POOL).map(|bits| IpAddr::V6(bits.into())).collect()
        }
        _ => Vec::new(),
    }
}
