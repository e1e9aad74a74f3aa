//! What a test does to the cloud past its services, and what it sees of it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::FaultSpec;
use crate::fixture::{self, Fixture};
use crate::identity::Identity;
use crate::journal::Entry;
use crate::options::{Options, Work};
use crate::records::{Kind, Record, object};
use crate::simulator::Simulator;
use crate::wire::Body;
use crate::{faults::Fault, network, octavia, secrets};

impl Simulator {
    /// The IDs of what every simulated cloud has.
    pub fn fixture(&self) -> Fixture {
        self.state().fixture.clone()
    }

    /// Changes how the cloud is set up, from now on.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.state().options);
    }

    /// Changes whom Keystone knows.
    pub fn edit_identity(&self, change: impl FnOnce(&mut Identity)) {
        change(&mut self.state().identity);
    }

    /// How often a token was asked for.
    pub fn authentications(&self) -> u64 {
        self.state().identity.authentications
    }

    /// Makes all tokens that were given invalid.
    pub fn revoke_tokens(&self) {
        self.state().identity.tokens.clear();
    }

    /// All records of a kind, as a list shows them, the oldest first.
    pub fn records(&self, kind: Kind) -> Vec<Record> {
        let state = &mut *self.state();
        octavia::settle(state);
        let rows = state.records.of(kind).oldest_first();
        rows.into_iter().map(|row| shown(state, kind, &row.record)).collect()
    }

    /// A record, as it is shown.
    pub fn record(&self, kind: Kind, id: &str) -> Option<Record> {
        let state = &mut *self.state();
        octavia::settle(state);
        state.records.get(kind, id).map(|record| shown(state, kind, record))
    }

    /// The ID of what a record of Octavia hangs on: the balancer of a listener or pool, the pool of a member or monitor.
    pub fn owner(&self, kind: Kind, id: &str) -> Option<String> {
        self.state().records.of(kind).row(id).map(|row| row.owner.clone())
    }

    /// Changes a record, whatever comes of it; `false` if there is none.
    pub fn edit(&self, kind: Kind, id: &str, change: impl FnOnce(&mut Record)) -> bool {
        self.state().records.get_mut(kind, id).map(change).is_some()
    }

    /// Takes a record away, and nothing else.
    pub fn remove(&self, kind: Kind, id: &str) -> bool {
        self.state().records.of_mut(kind).remove(id).is_some()
    }

    /// Puts a record of Neutron there with these fields, the others as they are in a new one; returns its ID.
    pub fn add(&self, kind: Kind, fields: Value) -> String {
        fixture::add(&mut self.state(), kind, fields)
    }

    /// Makes a network with one subnet, and returns the IDs of both.
    pub fn add_network(&self, name: &str, cidr: &str, external: bool) -> (String, String) {
        let state = &mut *self.state();
        let network = fixture::add_network(state, json!({"name": name, "router:external": external}));
        let subnet = fixture::add_subnet(state, &network, &format!("{name}-subnet"), cidr);
        (network, subnet)
    }

    /// Makes another subnet of a network, and returns its ID.
    pub fn add_subnet(&self, network: &str, name: &str, cidr: &str) -> String {
        fixture::add_subnet(&mut self.state(), network, name, cidr)
    }

    /// Leads a router into a subnet.
    pub fn add_interface(&self, router: &str, subnet: &str) {
        fixture::add_interface(&mut self.state(), router, subnet);
    }

    /// Makes a flavor.
    pub fn add_flavor(&self, id: &str, name: &str) {
        self.state().records.of_mut(Kind::Flavor).insert("", fixture::flavor_of(id, name));
    }

    /// Makes a secret or a container of Barbican, and returns its ID.
    pub fn add_secret(&self, kind: Kind, name: &str) -> String {
        let state = &mut *self.state();
        let (id, date) = (state.ids.uuid(), state.clock.without_zone());
        let record = secrets::blank(kind, &id, name, &date, &state.fixture.user);
        state.records.of_mut(kind).insert("", record);
        id
    }

    /// Makes a balancer as somebody else would, of what a request would send, and returns its ID; Octavia's work on it is
    /// done. `None` if Octavia refuses.
    pub fn add_balancer(&self, fields: Value) -> Option<String> {
        let state = &mut *self.state();
        let reply = octavia::add_balancer(state, object(fields)).ok()?;
        octavia::finish_all(state);
        match reply.body {
            Body::Json(body) => Some(body["loadbalancer"]["id"].as_str()?.to_owned()),
            _ => None,
        }
    }

    /// From now on a subnet has no address left, or as many as are free.
    pub fn exhaust(&self, subnet: &str, exhausted: bool) {
        let records = &mut self.state().records;
        match exhausted {
            true => records.exhausted.insert(subnet.to_owned()),
            false => records.exhausted.remove(subnet),
        };
    }

    /// The most of a kind that the project may have; `None` for no limit. The names are those of
    /// [`Options::quotas`](crate::Options::quotas).
    pub fn set_quota(&self, name: &str, limit: Option<u64>) {
        let quotas = &mut self.state().quotas;
        match limit {
            Some(limit) => quotas.insert(name.to_owned(), limit),
            None => quotas.remove(name),
        };
    }

    /// How long Octavia works on a change from now on.
    pub fn set_work(&self, work: Work) {
        self.state().options.work = work;
    }

    /// Ends all that Octavia is at work on.
    pub fn finish_work(&self) {
        octavia::finish_all(&mut self.state());
    }

    /// The next changes that Octavia begins, this many, end in ERROR.
    pub fn fail_work(&self, changes: u64) {
        self.state().work.failures = changes;
    }

    /// From now on those who look see what there is at this moment; what is written is written. `false` ends it.
    pub fn freeze_view(&self, frozen: bool) {
        let state = &mut *self.state();
        octavia::settle(state);
        state.shown = frozen.then(|| state.records.clone());
    }

    /// How long every call takes from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.state().options.latency = latency;
    }

    /// From now on, goes wrong like this, beside what it does already; the number takes it back.
    pub fn inject(&self, fault: FaultSpec) -> u64 {
        self.state().faults.inject(fault)
    }

    /// Takes a fault back.
    pub fn repair(&self, number: u64) {
        self.state().faults.repair(number);
    }

    /// Takes all faults back.
    pub fn repair_all(&self) {
        self.state().faults.repair_all();
    }

    /// The caller crashes: so many more calls are carried out, and the answer of the last is lost. Every call after it
    /// fails and does nothing. [`repair_all`](Simulator::repair_all) is the restart.
    pub fn crash_after(&self, calls: u64) {
        let answered = calls.saturating_sub(1);
        if calls > 0 {
            self.inject(FaultSpec::always(Fault::AnswerLost).after(answered).times(1));
        }
        self.inject(FaultSpec::always(Fault::Lost).after(calls));
    }

    /// All calls, in order, whether they are forgotten or not.
    pub fn all_calls(&self) -> Vec<Entry> {
        self.state().journal.all().to_vec()
    }

    /// The calls so far, in order.
    pub fn journal(&self) -> Vec<Entry> {
        self.state().journal.entries().to_vec()
    }

    /// How often each kind of call was made: `GET ports`, `PUT pools/{id}/members`.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.state().journal.counts()
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.state().journal.entries().len() as u64
    }

    /// The calls so far that changed something, or would have.
    pub fn writes(&self) -> Vec<Entry> {
        self.state().journal.entries().iter().filter(|entry| entry.is_write).cloned().collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.state().journal.forget();
    }
}

fn shown(state: &crate::simulator::State, kind: Kind, record: &Record) -> Record {
    match kind {
        Kind::LoadBalancer | Kind::Listener | Kind::Pool | Kind::Member | Kind::HealthMonitor => {
            octavia::view(state, kind, record)
        }
        Kind::Network | Kind::SecurityGroup | Kind::FloatingIp => network::view(state, kind, record),
        _ => record.clone(),
    }
}
