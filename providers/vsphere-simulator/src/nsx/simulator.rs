//! State of the simulated manager, and dispatch of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Deref;
use std::time::Duration;

use bowline_simulator::{Call, Clock, Ids, Jobs, Locked, Operation, Record, Records, Reply, Service, Views};
use tokio::time::Instant;

use super::address::{self, Address};
use super::auth::{self, Auth};
use super::options::Options;
use super::wire::{Outcome, error, not_found};
use super::{listing, objects, realization, search};

/// A simulated NSX manager. Clones share the same state.
///
/// [`bowline_simulator::Simulator`] provides faults, the journal and the HTTP server.
#[derive(Clone)]
pub struct Simulator {
    manager: bowline_simulator::Simulator<State>,
}

impl Deref for Simulator {
    type Target = bowline_simulator::Simulator<State>;

    fn deref(&self) -> &Self::Target {
        &self.manager
    }
}

/// State of the manager.
///
/// Objects are in the table of their collection. The table `realized` has the realized entities, `index` what search finds, and
/// `purging` the deleted objects that are not removed yet. IDs are unique only within a collection of one parent, so that the field
/// `id` of a stored record is the policy path; responses have the ID.
#[derive(Default)]
pub struct State {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) records: Records<&'static str>,
    pub(crate) auth: Auth,
    /// Addresses of each IP pool, by its path.
    pub(crate) addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Time at which each address of a deleted allocation was released.
    pub(crate) released: BTreeMap<IpAddr, Instant>,
    /// Changes to realize, by path.
    pub(crate) realizations: Jobs<String>,
    /// Changes to index: the path, and the object as search is to show it.
    pub(crate) indexing: Jobs<(String, Option<Record>)>,
    /// Deleted objects to remove.
    pub(crate) purges: Jobs<String>,
    /// Objects that another client deletes just before the next DELETE.
    pub(crate) vanishing: BTreeSet<String>,
    /// Begin of the current second of the rate limit, and the number of requests in it.
    second: Option<(Instant, u32)>,
}

impl Simulator {
    /// Creates a manager with its default application profiles, without gateways and IP pools.
    pub fn new(options: Options) -> Simulator {
        let simulator = Simulator { manager: bowline_simulator::Simulator::new(State { options, ..State::default() }) };
        simulator.populate();
        simulator
    }

    pub(crate) fn state(&self) -> Locked<'_, State> {
        self.manager.service()
    }
}

impl Service for State {
    fn answer(&mut self, call: &Call) -> Reply {
        let outcome = match auth::answer(self, call) {
            Some(outcome) => outcome,
            None => auth::admit(self, call).and_then(|user| self.route(call, &user)),
        };
        outcome.unwrap_or_else(|error| error)
    }

    fn operation(&self, call: &Call) -> Operation {
        address::operation(call)
    }

    fn settle(&mut self) {
        realization::settle(self);
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

impl State {
    fn route(&mut self, call: &Call, user: &str) -> Outcome {
        if !self.count_request() {
            let message = format!("Client '{user}' exceeded request rate of {} per second.", self.options.rate_limit);
            return Err(error(429, 102, message));
        }
        let segments = match call.segments().as_slice() {
            ["policy", "api", "v1", ..] => address::segments(call),
            _ => return Err(not_found(&call.path.join("/"))),
        };
        match (call.method.as_str(), segments.as_slice(), address::split_root(&segments)) {
            ("GET", ["search", "query"], _) => return search::answer(self, call),
            ("GET", _, Some((root, ["realized-state", "realized-entities"]))) => {
                return realization::answer(self, call, &root);
            }
            _ => {}
        }
        let address = Address::parse(&segments).ok_or_else(|| not_found(&segments.join("/")))?;
        if self.options.read_only && !call.is_read() {
            return Err(error(403, 289, format!("User {user} is not authorized to perform this operation")));
        }
        match (call.method.as_str(), &address.id) {
            ("GET", None) => listing::list(self, call, &address),
            ("GET", Some(_)) => objects::get(self, call, &address),
            ("PUT", Some(_)) => objects::put(self, call, &address, user),
            ("PATCH", Some(_)) => objects::patch(self, call, &address, user),
            ("DELETE", Some(_)) => objects::delete(self, call, &address),
            _ => Err(error(405, 260, format!("Method {} is not allowed for {}", call.method, address.path()))),
        }
    }

    /// Counts a request; `false` if it exceeds the rate limit.
    fn count_request(&mut self) -> bool {
        let current = self.second.filter(|(began, _)| began.elapsed() < Duration::from_secs(1));
        let (began, used) = current.unwrap_or((Instant::now(), 0));
        self.second = Some((began, used + 1));
        used < self.options.rate_limit
    }
}
