//! Lookups in a backend: one read of all machines serves all lookups that wait for it, and later ones for a while.
//!
//! ```text
//!  lookup ──► latest survey, if it is young enough ──► matches ──► details ──► states
//!     ▲                                                   │
//!     └── a survey that begins after the lookup ◄── any machine gone, or any error
//! ```
//!
//! An old survey can show that a machine exists. That a machine is gone is only ever the result of a survey that began after the
//! lookup.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::InstanceState;
use futures::stream::{self, StreamExt as _};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::backends::{Backend, Machine, Standing};
use crate::identity::{self, Match, Names};
use crate::machine::{Details, Override, Rules, failure, named};

/// Maximum number of machines that are described at the same time.
const PARALLEL: usize = 4;

/// A name or an ID to look up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Query {
    Id(String),
    Name(String),
}

/// Machines of a backend.
pub(crate) struct Pool {
    backend: Box<dyn Backend>,
    rules: Rules,
    /// Time for which a survey is used.
    age: Duration,
    /// Held during a read, so that concurrent lookups share it.
    latest: Mutex<Option<Survey>>,
}

/// A machine in a report for operators.
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) outcome: Result<String>,
}

/// Result of a survey.
#[derive(Clone)]
struct Survey {
    begun: Instant,
    machines: Result<Arc<[Machine]>>,
}

impl Pool {
    pub(crate) fn new(backend: Box<dyn Backend>, rules: Rules, age: Duration) -> Pool {
        Pool { backend, rules, age, latest: Mutex::default() }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Looks up machines. Returns one result each, in the same order.
    pub(crate) async fn find(&self, queries: &[Query]) -> Vec<Result<InstanceState>> {
        if queries.is_empty() {
            return Vec::new();
        }
        let asked = Instant::now();
        let mut latest = self.latest.lock().await;
        if let Some(young) = latest.as_ref().filter(|survey| survey.serves(asked, self.age)) {
            let answers = self.answer(young, queries).await;
            if young.begun >= asked || answers.iter().all(is_existing) {
                return answers;
            }
        }
        let survey = self.survey(&mut latest).await;
        self.answer(&survey, queries).await
    }

    /// Returns the states of all machines that exist, by ID, and the number of those whose state cannot be read.
    pub(crate) async fn list(&self) -> Result<(Vec<InstanceState>, usize)> {
        let mut latest = self.latest.lock().await;
        let machines = self.survey(&mut latest).await.machines?;
        let listed: Vec<_> = machines.iter().filter(|machine| machine.is_candidate()).collect();
        let states = self.describe(&listed).await.into_iter().zip(&listed);
        let (mut found, mut unread) = (Vec::new(), 0);
        for (described, machine) in states {
            match described.and_then(|details| self.state(&machine.names, details)) {
                Ok(InstanceState::Gone | InstanceState::NotMine) => {}
                Ok(state) => found.push(state),
                Err(_) => unread += 1,
            }
        }
        found.sort_by(|one, other| id(one).cmp(id(other)));
        Ok((found, unread))
    }

    /// Reads all machines, and the details of those that are new.
    pub(crate) async fn check(&self) -> Result<usize> {
        let mut latest = self.latest.lock().await;
        Ok(self.survey(&mut latest).await.machines?.len())
    }

    /// Describes every machine, with the reason if it cannot be one of a Node.
    pub(crate) async fn report(&self) -> Result<Vec<Report>> {
        let mut latest = self.latest.lock().await;
        let machines = self.survey(&mut latest).await.machines?;
        let details = self.describe(&machines.iter().collect::<Vec<_>>()).await;
        let report = |(machine, details): (&Machine, Result<Option<Details>>)| {
            let names = &machine.names;
            let outcome = details.and_then(|details| {
                let word = details.as_ref().map_or_else(String::new, |details| details.state.clone());
                Ok(summary(names, &word, &self.state(names, details)?))
            });
            Report { name: names.name.clone(), outcome }
        };
        Ok(machines.iter().zip(details).map(report).collect())
    }

    async fn survey(&self, latest: &mut Option<Survey>) -> Survey {
        let begun = Instant::now();
        let machines = self.backend.survey().await.map(|machines| self.with_overrides(machines).into());
        let survey = Survey { begun, machines };
        *latest = Some(survey.clone());
        survey
    }

    /// Adds the IDs of the configuration, and machines that only the configuration has: those with a state.
    fn with_overrides(&self, mut machines: Vec<Machine>) -> Vec<Machine> {
        for (name, own) in &self.rules.overrides {
            let mut listed = machines.iter_mut().filter(|machine| machine.names.name == *name).peekable();
            match (listed.peek().is_some(), &own.state) {
                (false, Some(state)) => machines.push(configured(name, own, state)),
                _ => listed.filter(|_| own.id.is_some()).for_each(|machine| machine.names.configured = own.id.clone()),
            }
        }
        machines
    }

    async fn answer(&self, survey: &Survey, queries: &[Query]) -> Vec<Result<InstanceState>> {
        let machines = match &survey.machines {
            Ok(machines) => machines,
            Err(error) => return queries.iter().map(|_| Err(error.clone())).collect(),
        };
        let matches: Vec<_> = queries.iter().map(|query| select(query, machines)).collect();
        let wanted = |index: &usize| matches.iter().any(|found| matches!(found, Ok(Some(one)) if one == index));
        let is_new = |machine: &Machine| machine.is_candidate() && self.backend.is_new(machine);
        let read: Vec<_> = machines.iter().enumerate().filter(|(at, one)| wanted(at) || is_new(one)).collect();
        let described = self.describe(&read.iter().map(|(_, machine)| *machine).collect::<Vec<_>>()).await;
        let states: Vec<_> = read
            .iter()
            .zip(described)
            .map(|((at, machine), details)| (*at, details.and_then(|details| self.state(&machine.names, details))))
            .collect();
        let state = |found: Result<Option<usize>>| match found? {
            None => Ok(InstanceState::Gone),
            Some(index) => states.iter().find(|(at, _)| *at == index).map_or_else(
                || Err(failure(ErrorKind::Unexpected, "the details of the machine are missing")),
                |(_, state)| state.clone(),
            ),
        };
        matches.into_iter().map(state).collect()
    }

    async fn describe(&self, machines: &[&Machine]) -> Vec<Result<Option<Details>>> {
        let read = |machine: Machine| async move {
            match &machine.standing {
                Standing::Unclear(error) => Err(error.clone()),
                _ if machine.details.is_some() => Ok(machine.details),
                Standing::Listed { .. } | Standing::Unlisted => self.backend.describe(&machine).await,
            }
        };
        let machines: Vec<Machine> = machines.iter().map(|machine| (*machine).clone()).collect();
        stream::iter(machines).map(read).buffered(PARALLEL).collect().await
    }

    fn state(&self, names: &Names, details: Option<Details>) -> Result<InstanceState> {
        details.map_or(Ok(InstanceState::Gone), |details| self.rules.state(names, &details))
    }
}

impl Survey {
    /// Returns whether the survey may answer a lookup of this time.
    fn serves(&self, asked: Instant, age: Duration) -> bool {
        self.begun >= asked || self.machines.is_ok() && self.begun + age > asked
    }
}

/// Returns a machine that only the configuration has.
fn configured(name: &str, own: &Override, state: &str) -> Machine {
    let names = Names { name: name.to_owned(), configured: own.id.clone(), ..Names::default() };
    let details = Details { state: state.to_owned(), ..Details::default() };
    Machine { names, standing: Standing::Listed { running: true }, details: Some(details) }
}

/// Describes a machine in a few words, the first of which is its state.
fn summary(names: &Names, word: &str, state: &InstanceState) -> String {
    let Some(instance) = state.instance() else {
        return format!("gone: the hypervisor does not know {}; fix: vagrant destroy", named(names));
    };
    let id = instance.provider_id.iter().map(|id| id.to_string());
    let address = instance.addresses.iter().take(1).map(|one| one.address.clone());
    let words = [word.to_owned()].into_iter().chain(id).chain([instance.instance_type.clone()]).chain(address);
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

fn is_existing(answer: &Result<InstanceState>) -> bool {
    answer.as_ref().is_ok_and(|state| state.instance().is_some())
}

fn id(state: &InstanceState) -> &str {
    state.instance().map_or("", |instance| &instance.id)
}

/// Returns the index of the machine; `None` if there is certainly none. Machines that may be the one and are not created yet matter
/// only if no other is.
fn select(query: &Query, machines: &[Machine]) -> Result<Option<usize>> {
    let candidates: Vec<_> = machines.iter().enumerate().filter(|(_, machine)| machine.is_candidate()).collect();
    let names: Vec<_> = candidates.iter().map(|(_, machine)| machine.names.clone()).collect();
    let position = |at: usize| candidates.get(at).map(|(index, _)| *index);
    match matches(query, &names) {
        Match::One(at) => Ok(position(at)),
        Match::Several(all) => Err(ambiguous(query, all.iter().filter_map(|at| names.get(*at)))),
        Match::None => {
            let names: Vec<_> = machines.iter().map(|machine| machine.names.clone()).collect();
            match matches(query, &names) {
                Match::None => Ok(None),
                Match::One(index) => Ok(Some(index)),
                // All of them are unclear, and each has its reason.
                Match::Several(all) => Ok(all.first().copied()),
            }
        }
    }
}

fn matches(query: &Query, names: &[Names]) -> Match {
    match query {
        Query::Id(id) => identity::by_id(id, names),
        Query::Name(name) => identity::by_name(name, names),
    }
}

fn ambiguous<'a>(query: &Query, machines: impl Iterator<Item = &'a Names>) -> Error {
    let (Query::Id(text) | Query::Name(text)) = query;
    let all: Vec<_> = machines.map(named).collect();
    let fix = "set project to one folder, rename one of them, or give the Node the ID of its machine";
    failure(ErrorKind::InvalidConfig, format!("{text} means several machines: {}; fix: {fix}", all.join(", ")))
}
