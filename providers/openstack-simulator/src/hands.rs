//! What a test does to the cloud past its services, and what it sees of it.

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
        let (id, date) = (state.ids.uuid(), state.without_zone());
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
        let state = &mut *self.state();
        match exhausted {
            true => state.exhausted.insert(subnet.to_owned()),
            false => state.exhausted.remove(subnet),
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
        self.state().work.fail_next(changes);
    }
}

fn shown(state: &State, kind: Kind, record: &Record) -> Record {
    match kind {
        Kind::LoadBalancer | Kind::Listener | Kind::Pool | Kind::Member | Kind::HealthMonitor => {
            octavia::view(state, kind, record)
        }
        Kind::Network | Kind::SecurityGroup | Kind::FloatingIp => network::view(state, kind, record),
        _ => record.clone(),
    }
}
