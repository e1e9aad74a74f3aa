//! Methods with which a test changes and reads the cloud without going through its services.

use bowline_simulator::Work;
use serde_json::{Value, json};

use crate::fixture::{self, Fixture};
use crate::identity::Identity;
use crate::options::Options;
use crate::records::{Kind, Record, object};
use crate::simulator::{Simulator, State};
use crate::wire::Body;
use crate::{network, octavia, secrets};

impl Simulator {
    /// IDs of the initial resources.
    pub fn fixture(&self) -> Fixture {
        self.state().fixture.clone()
    }

    /// Changes the options. The change applies to all later requests.
    pub fn configure(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.state().options);
    }

    /// Changes users, projects and credentials in Keystone.
    pub fn edit_identity(&self, change: impl FnOnce(&mut Identity)) {
        change(&mut self.state().identity);
    }

    /// Number of token requests so far.
    pub fn authentications(&self) -> u64 {
        self.state().identity.authentications
    }

    /// Revokes all tokens.
    pub fn revoke_tokens(&self) {
        self.state().identity.tokens.clear();
    }

    /// Returns all records of a kind as a list response shows them, oldest first.
    pub fn records(&self, kind: Kind) -> Vec<Record> {
        let state = &mut *self.state();
        octavia::settle(state);
        let rows = state.records.of(kind).oldest_first();
        rows.into_iter().map(|row| view(state, kind, &row.record)).collect()
    }

    /// Returns a record as a response shows it.
    pub fn record(&self, kind: Kind, id: &str) -> Option<Record> {
        let state = &mut *self.state();
        octavia::settle(state);
        state.records.get(kind, id).map(|record| view(state, kind, record))
    }

    /// ID of the parent of an Octavia record: the load balancer of a listener or pool, the pool of a member or health monitor.
    pub fn owner(&self, kind: Kind, id: &str) -> Option<String> {
        self.state().records.of(kind).row(id).map(|row| row.owner.clone())
    }

    /// Changes a record without any validation; `false` if it does not exist.
    pub fn edit(&self, kind: Kind, id: &str, change: impl FnOnce(&mut Record)) -> bool {
        self.state().records.get_mut(kind, id).map(change).is_some()
    }

    /// Removes a record, without its children; `false` if it does not exist.
    pub fn remove(&self, kind: Kind, id: &str) -> bool {
        self.state().records.of_mut(kind).remove(id).is_some()
    }

    /// Creates a Neutron resource with these fields and defaults for all others, and returns its ID.
    pub fn add(&self, kind: Kind, fields: Value) -> String {
        fixture::add(&mut self.state(), kind, fields)
    }

    /// Creates a network with one subnet and returns the IDs of both.
    pub fn add_network(&self, name: &str, cidr: &str, external: bool) -> (String, String) {
        let state = &mut *self.state();
        let network = fixture::add_network(state, json!({"name": name, "router:external": external}));
        let subnet = fixture::add_subnet(state, &network, &format!("{name}-subnet"), cidr);
        (network, subnet)
    }

    /// Adds a subnet to a network and returns its ID.
    pub fn add_subnet(&self, network: &str, name: &str, cidr: &str) -> String {
        fixture::add_subnet(&mut self.state(), network, name, cidr)
    }

    /// Adds a router interface to a subnet.
    pub fn add_interface(&self, router: &str, subnet: &str) {
        fixture::add_interface(&mut self.state(), router, subnet);
    }

    /// Creates a Nova flavor.
    pub fn add_flavor(&self, id: &str, name: &str) {
        self.state().records.of_mut(Kind::Flavor).insert("", fixture::flavor_of(id, name));
    }

    /// Creates a Barbican secret or container and returns its ID.
    pub fn add_secret(&self, kind: Kind, name: &str) -> String {
        let state = &mut *self.state();
        let (id, date) = (state.ids.uuid(), state.without_zone());
        let record = secrets::new(kind, &id, name, &date, &state.fixture.user);
        state.records.of_mut(kind).insert("", record);
        id
    }

    /// Creates a load balancer as another client would, with the fields of a create request, completes its provisioning and
    /// returns its ID; `None` if Octavia rejects it.
    pub fn add_balancer(&self, fields: Value) -> Option<String> {
        let state = &mut *self.state();
        let reply = octavia::add_balancer(state, object(fields)).ok()?;
        octavia::finish_all(state);
        match reply.body {
            Body::Json(body) => Some(body["loadbalancer"]["id"].as_str()?.to_owned()),
            _ => None,
        }
    }

    /// Makes a subnet run out of addresses, or undoes that.
    pub fn exhaust(&self, subnet: &str, exhausted: bool) {
        let state = &mut *self.state();
        match exhausted {
            true => state.exhausted.insert(subnet.to_owned()),
            false => state.exhausted.remove(subnet),
        };
    }

    /// Sets a quota of the project; `None` for unlimited. [`Options::quotas`](crate::Options::quotas) lists the names.
    pub fn set_quota(&self, name: &str, limit: Option<u64>) {
        let quotas = &mut self.state().quotas;
        match limit {
            Some(limit) => quotas.insert(name.to_owned(), limit),
            None => quotas.remove(name),
        };
    }

    /// Sets the duration of all later Octavia changes.
    pub fn set_work(&self, work: Work) {
        self.state().options.work = work;
    }

    /// Completes all Octavia changes in progress.
    pub fn finish_work(&self) {
        octavia::finish_all(&mut self.state());
    }

    /// Makes this many of the next Octavia changes end in ERROR.
    pub fn fail_work(&self, changes: u64) {
        self.state().work.fail_next(changes);
    }
}

fn view(state: &State, kind: Kind, record: &Record) -> Record {
    match kind {
        Kind::LoadBalancer | Kind::Listener | Kind::Pool | Kind::Member | Kind::HealthMonitor => {
            octavia::view(state, kind, record)
        }
        Kind::Network | Kind::SecurityGroup | Kind::FloatingIp => network::view(state, kind, record),
        _ => record.clone(),
    }
}
