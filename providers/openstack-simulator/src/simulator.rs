//! The cloud as a whole: it takes a request, lets faults have their way, and asks the service.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;

use crate::clock::{Clock, Ids};
use crate::faults::{Fault, Faults, Mishap};
use crate::fixture::{self, Fixture};
use crate::identity::Identity;
use crate::journal::Journal;
use crate::octavia::{self, Workload};
use crate::options::Options;
use crate::records::Records;
use crate::wire::{Call, Reply, Service};
use crate::{compute, identity, network, secrets};

/// A simulated OpenStack. Clones are the same cloud.
///
/// [`answer`](Simulator::answer) is the cloud's side of the wire: such calls are slow, fail and are counted as the cloud is
/// told to. All other methods are the test's hands: they are instant, never fail on purpose and are not counted.
#[derive(Clone)]
pub struct Simulator {
    state: Arc<Mutex<State>>,
}

/// The connection broke before there was an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection broke before there was an answer")
    }
}

impl std::error::Error for Lost {}

/// All that changes.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) fixture: Fixture,
    pub(crate) identity: Identity,
    pub(crate) records: Records,
    pub(crate) work: Workload,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    /// What is shown to those who look, if that is not what there is.
    pub(crate) shown: Option<Records>,
    /// The most of each kind that the project may have.
    pub(crate) quotas: BTreeMap<String, u64>,
}

impl Simulator {
    /// A cloud with a project, a network, a router and an external network, and no server yet.
    pub fn new(options: Options) -> Simulator {
        let mut state = State {
            clock: Clock::new(),
            ids: Ids::default(),
            fixture: Fixture::default(),
            identity: Identity::default(),
            records: Records::default(),
            work: Workload::default(),
            faults: Faults::default(),
            journal: Journal::default(),
            shown: None,
            quotas: options.quotas.iter().cloned().collect(),
            options,
        };
        fixture::furnish(&mut state);
        Simulator { state: Arc::new(Mutex::new(state)) }
    }

    /// Answers as the service would that the path begins with: `/identity`, `/compute`, `/network`, `/load-balancer` or
    /// `/key-manager`.
    pub async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Lost> {
        let Some(call) = Call::read(request) else {
            return Ok(Reply::text(404, "there is no such service").into_response());
        };
        let template = call.template();
        let (number, mishap) = self.begin(&call, &template);
        if !mishap.delay.is_zero() {
            tokio::time::sleep(mishap.delay).await;
        }
        let reply = self.meet(&call, mishap.ending).await?;
        self.state().journal.answered(number, reply.status);
        Ok(reply.into_response())
    }

    /// The call is counted, and what becomes of it is settled.
    fn begin(&self, call: &Call, template: &str) -> (usize, Mishap) {
        let state = &mut *self.state();
        let number = state.journal.note(call, template);
        let mut mishap = state.faults.strike(call, template);
        mishap.delay = mishap.delay.saturating_add(state.options.latency);
        (number, mishap)
    }

    async fn meet(&self, call: &Call, ending: Option<Fault>) -> Result<Reply, Lost> {
        let serve = || self.state().serve(call);
        Ok(match ending {
            None | Some(Fault::Slow(_)) => serve(),
            Some(Fault::Answer(status, body)) => failing(status, body),
            Some(Fault::Throttled(after)) => throttled(after),
            Some(Fault::Lost) => return Err(Lost),
            Some(Fault::AnswerLost) => {
                serve();
                return Err(Lost);
            }
            Some(Fault::Garbled) => {
                serve();
                Reply::text(200, "{\"serv")
            }
            Some(Fault::Empty) => self.state().serve_nothing(call),
            Some(Fault::Hanging) => std::future::pending().await,
        })
    }

    /// Nothing here leaves the state half changed, so a panic elsewhere under the lock spoils nothing.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What the service says.
    fn serve(&mut self, call: &Call) -> Reply {
        octavia::settle(self);
        if call.is_read() && self.shown.is_some() && call.service != Service::Identity {
            return self.seeing_the_past(|state| state.serve_now(call));
        }
        self.serve_now(call)
    }

    fn serve_now(&mut self, call: &Call) -> Reply {
        let outcome = match call.service {
            Service::Identity => identity::answer(self, call),
            Service::Compute => compute::answer(self, call),
            Service::Network => network::answer(self, call),
            Service::LoadBalancer => octavia::answer(self, call),
            Service::KeyManager => secrets::answer(self, call),
        };
        outcome.unwrap_or_else(|refusal| refusal)
    }

    /// As if there were nothing: lists are empty, and so is the answer to who asks for one thing.
    fn serve_nothing(&mut self, call: &Call) -> Reply {
        if !call.is_read() || call.service == Service::Identity {
            return self.serve(call);
        }
        let past = self.shown.replace(Records::default());
        let reply = self.seeing_the_past(|state| state.serve_now(call));
        self.shown = past;
        if reply.status == 404 { Reply::json(200, json!({})) } else { reply }
    }

    fn seeing_the_past(&mut self, look: impl FnOnce(&mut State) -> Reply) -> Reply {
        let Some(past) = self.shown.take() else { return look(self) };
        let present = std::mem::replace(&mut self.records, past);
        let reply = look(self);
        self.shown = Some(std::mem::replace(&mut self.records, present));
        reply
    }

    /// The most of this kind that the project may have.
    pub(crate) fn quota(&self, name: &str) -> Option<u64> {
        self.quotas.get(name).copied()
    }
}

/// A body that is given is sent as it is; without one there is what a proxy would say.
fn failing(status: u16, body: String) -> Reply {
    if body.is_empty() {
        let title = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let title = title.unwrap_or("Unknown");
        return Reply::json(status, json!({"error": {"code": status, "title": title, "message": title}}));
    }
    match serde_json::from_str(&body) {
        Ok(value) => Reply::json(status, value),
        Err(_) => Reply::text(status, body),
    }
}

fn throttled(after: Option<Duration>) -> Reply {
    let reply = Reply::text(429, "Too Many Requests");
    match after {
        Some(after) => reply.with("retry-after", after.as_secs().to_string()),
        None => reply,
    }
}
