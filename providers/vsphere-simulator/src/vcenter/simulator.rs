//! State of the simulated vCenter, and dispatch of requests.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::time::Duration;

use bowline_simulator::{Call, Clock, Ids, Locked, Operation, Reply, Service, Views};
use tokio::time::Instant;

use super::inventory::{Inventory, Reference};
use super::machine::Machine;
use super::options::Options;
use super::soap::{self, Pages, View};
use super::tags::Tags;
use super::{remote, rest, sts, world};

/// Time for which failed logins count, and for which an account is locked.
pub(super) const LOCKED: Duration = Duration::from_secs(300);

/// A simulated vCenter. Clones share the same state.
///
/// [`bowline_simulator::Simulator`] provides faults, the journal and the HTTP server.
#[derive(Clone)]
pub struct Vcenter {
    cloud: bowline_simulator::Simulator<State>,
}

impl Deref for Vcenter {
    type Target = bowline_simulator::Simulator<State>;

    fn deref(&self) -> &Self::Target {
        &self.cloud
    }
}

impl Vcenter {
    /// Creates a vCenter with datacenters, clusters and hosts, but without virtual machines.
    pub fn new(options: Options) -> Vcenter {
        let mut state = State::empty(options);
        world::populate(&mut state);
        Vcenter { cloud: bowline_simulator::Simulator::new(state) }
    }

    /// Creates a vCenter that has only the root folder.
    pub fn empty(options: Options) -> Vcenter {
        Vcenter { cloud: bowline_simulator::Simulator::new(State::empty(options)) }
    }

    pub(super) fn state(&self) -> Locked<'_, State> {
        self.cloud.service()
    }
}

/// State of the vCenter.
pub struct State {
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    pub(super) root: Reference,
    pub(super) inventory: Inventory,
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) tags: Tags,
    /// SOAP sessions by ID.
    pub(super) sessions: BTreeMap<String, Session>,
    /// Last use of each REST session.
    pub(super) rest_sessions: BTreeMap<String, Instant>,
    /// Clone tickets and their users.
    pub(super) tickets: BTreeMap<String, String>,
    /// Assertions of the token service and their users.
    pub(super) tokens: BTreeMap<String, String>,
    /// Failed logins by user.
    pub(super) failures: HashMap<String, Vec<Instant>>,
    /// Method whose next call finds all sessions ended.
    pub(super) ends_sessions: Option<String>,
}

/// A SOAP session.
pub(super) struct Session {
    pub(super) key: String,
    pub(super) user: String,
    pub(super) login: String,
    used: Instant,
    pub(super) views: BTreeMap<String, View>,
    /// Pages that are not read yet, by token.
    pub(super) pages: BTreeMap<String, Pages>,
}

impl Session {
    pub(super) fn new(key: String, user: &str, login: String) -> Session {
        let (views, pages) = Default::default();
        Session { key, user: user.to_owned(), login, used: Instant::now(), views, pages }
    }
}

impl State {
    fn empty(options: Options) -> State {
        let mut inventory = Inventory::default();
        let root = inventory.add("Folder", Some("group-d1"), None, "Datacenters");
        State {
            options,
            clock: Clock::new(),
            ids: Ids::default(),
            root,
            inventory,
            machines: BTreeMap::new(),
            tags: Tags::default(),
            sessions: BTreeMap::new(),
            rest_sessions: BTreeMap::new(),
            tickets: BTreeMap::new(),
            tokens: BTreeMap::new(),
            failures: HashMap::new(),
            ends_sessions: None,
        }
    }

    /// Current time in the wire format.
    pub(super) fn now(&self) -> String {
        self.clock.format("%Y-%m-%dT%H:%M:%SZ")
    }

    /// Whether there are as many sessions as allowed.
    pub(super) fn is_full(&self) -> bool {
        self.options.session_limit.is_some_and(|limit| self.sessions.len() >= limit)
    }

    /// Records the use of a session.
    pub(super) fn touch(&mut self, session: &str) {
        self.sessions.get_mut(session).into_iter().for_each(|session| session.used = Instant::now());
    }

    /// Creates a ticket with which a session of this user can be cloned once.
    pub(super) fn new_ticket(&mut self, user: &str) -> String {
        let ticket = format!("cst-VCT-{}", self.ids.uuid());
        self.tickets.insert(ticket.clone(), user.to_owned());
        ticket
    }

    /// Ends all sessions.
    pub(super) fn end_sessions(&mut self) {
        self.sessions.clear();
        self.rest_sessions.clear();
    }

    fn session_manager(&mut self, call: &Call) -> Reply {
        if call.header("authorization") != Some(&format!("Bearer {}", self.options.session_manager_token)) {
            return Reply::text(401, "Unauthorized");
        }
        let user = self.options.user.clone();
        Reply::one(200, "token", self.new_ticket(&user))
    }
}

impl Service for State {
    fn answer(&mut self, call: &Call) -> Reply {
        if self.ends_sessions.take_if(|method| soap::method(call).as_ref() == Some(method)).is_some() {
            self.end_sessions();
        }
        match call.segments().as_slice() {
            [soap::PATH, ..] => soap::answer(self, call),
            ["rest", path @ ..] => rest::answer(self, call, path),
            ["lookupservice", "sdk"] => sts::look_up(call),
            ["sts", "STSService", ..] => sts::issue(self, call),
            ["session-manager"] => self.session_manager(call),
            ["control", path @ ..] => remote::answer(self, call, path),
            _ => Reply::empty(404),
        }
    }

    /// Journal entries and faults use the name of the method, or the path in the REST API: `tagging/tag/{id}`.
    fn operation(&self, call: &Call) -> Operation {
        let (part, template) = match call.segments().as_slice() {
            [soap::PATH, ..] => ("soap", soap::method(call).unwrap_or_else(|| Operation::of_path(call).template)),
            ["rest", path @ ..] => ("rest", rest::template(call, path)),
            _ => ("", Operation::of_path(call).template),
        };
        Operation { part, path: template.clone(), template, is_write: false }
    }

    fn is_read(&self, call: &Call) -> bool {
        let template = self.operation(call).template;
        ["Find", "Retrieve", "Continue", "Fetch"].iter().any(|prefix| template.starts_with(prefix))
    }

    /// Ends idle sessions.
    fn settle(&mut self) {
        let idle = self.options.session_idle;
        self.sessions.retain(|_, session| session.used.elapsed() < idle);
        self.rest_sessions.retain(|_, used| used.elapsed() < idle);
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.inventory.records)
    }
}
