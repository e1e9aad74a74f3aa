//! One logical HTTP client for all agents of a group.
//!
//! ```text
//!  Api ──► Endpoints ──► the agent that answered last ──► reply
//!              │               │ cannot connect, TLS error, 421 notActive, 503 notReady, another API version
//!              │               ▼
//!              └─────────► each other agent, once ──► error with the reason of each agent
//! ```
//!
//! * Each call tries each agent at most once. Repetitions and their back-off belong to the call layer.
//! * An agent that cannot be reached is paused: for a while it is the last one to be tried.
//! * With several agents, each has a time limit of its own, so that one that hangs does not take up the time of the whole call.
//!
//! # Writes without a response
//!
//! If a connection breaks after a write was sent, the agent may have executed it. This client does not send the write to another agent: it
//! fails with an unknown outcome, and the call layer repeats it, if the fence of the manager is still open then. By that time another
//! agent may be active. To repeat it there is safe:
//!
//! * Only the active agent executes writes; every other one rejects them (`notActive`) before it reads the change.
//! * The active agent replies only after the standbys that it reaches have the change. So the next active agent either has it, or it never
//!   happened there.
//! * Every write of the API is idempotent: resources are found by the mark of their owner or by an ID that is never reused. To repeat a
//!   creation returns the resource that exists, to repeat an update writes the same values, and to repeat a deletion finds nothing.
//! * If an agent executed the write alone, cut off from its group, it discards that state when it reaches the active agent again.
//!
//! A read without a response goes on to the next agent.

mod attempt;
#[cfg(test)]
mod tests;
#[cfg(unix)]
mod unix;

use std::collections::VecDeque;
#[cfg(unix)]
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::Effect;
use bowline_http::{Client, Handler, Options, Proxies, RequestError, TlsError};
use bytes::Bytes;
use http::{Request, Response};
use tokio::time::Instant;

use crate::config::Endpoint;
use attempt::{Outcome, Reason, attempt, conclude};

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of one agent, if there are several.
const LIMIT: Duration = Duration::from_secs(5);
/// Time for which an agent that failed is tried last.
const PAUSE: Duration = Duration::from_secs(10);

/// All agents of a group.
pub(crate) struct Endpoints {
    agents: Vec<Agent>,
    state: Mutex<State>,
}

/// One agent.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) endpoint: Endpoint,
    pub(crate) client: Client,
}

struct State {
    /// Agent that answered last.
    preferred: usize,
    /// End of the pause of each agent.
    paused: Vec<Option<Instant>>,
}

/// Creates the agents of these endpoints.
pub(crate) fn agents(endpoints: &[Endpoint], tls: bowline_http::Tls) -> Result<Vec<Agent>, TlsError> {
    let timeout = if endpoints.len() > 1 { LIMIT } else { TIMEOUT };
    let network = Client::new(Options { tls, proxies: Proxies::default(), timeout })?;
    let client = |endpoint: &Endpoint| match endpoint {
        Endpoint::Https(_) => network.clone(),
        #[cfg(unix)]
        Endpoint::Unix(path) => unix_client(path.clone(), timeout),
        #[cfg(not(unix))]
        Endpoint::Unix(_) => {
            let error = || RequestError::Request("this system has no Unix sockets".to_owned());
            Client::in_process(Arc::new(move |_| std::future::ready(Err(error()))), timeout)
        }
    };
    Ok(endpoints.iter().map(|endpoint| Agent { client: client(endpoint), endpoint: endpoint.clone() }).collect())
}

/// Creates a client for an agent on this host that listens on a Unix socket. URLs have any host.
#[cfg(unix)]
pub fn unix_client(path: PathBuf, timeout: Duration) -> Client {
    Client::in_process(Arc::new(unix::Socket(path)), timeout)
}

impl Endpoints {
    pub(crate) fn new(agents: Vec<Agent>) -> Endpoints {
        let state = State { preferred: 0, paused: vec![None; agents.len()] };
        Endpoints { agents, state: Mutex::new(state) }
    }

    /// Returns a client for the whole group.
    pub(crate) fn client(self) -> Client {
        Client::in_process(Arc::new(self), TIMEOUT)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Order in which the agents are tried: the one that answered last, then the others; paused ones last.
    fn order(&self) -> VecDeque<usize> {
        let (state, now) = (self.state(), Instant::now());
        let all = (state.preferred..self.agents.len()).chain(0..state.preferred);
        let is_paused = |index: &usize| state.paused.get(*index).is_some_and(|end| end.is_some_and(|end| end > now));
        let (paused, ready): (Vec<_>, Vec<_>) = all.partition(is_paused);
        ready.into_iter().chain(paused).collect()
    }

    /// Ends the pause of an agent that answered.
    fn resume(&self, index: usize) {
        if let Some(paused) = self.state().paused.get_mut(index) {
            *paused = None;
        }
    }

    /// Records that an agent answered as the active one.
    fn prefer(&self, index: usize) {
        let is_new = std::mem::replace(&mut self.state().preferred, index) != index;
        if let Some(agent) = self.agents.get(index).filter(|_| is_new) {
            tracing::info!(agent = %agent.endpoint, "another agent of the group is active");
        }
    }

    /// Records that an agent did not answer.
    fn pause(&self, index: usize, error: &RequestError) {
        let now = Instant::now();
        let mut state = self.state();
        let Some(paused) = state.paused.get_mut(index) else { return };
        let is_new = paused.is_none();
        *paused = Some(now + PAUSE);
        drop(state);
        if let Some(agent) = self.agents.get(index).filter(|_| is_new) {
            tracing::warn!(agent = %agent.endpoint, %error, "the agent does not answer");
        }
    }
}

#[async_trait]
impl Handler for Endpoints {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let (mut order, mut reasons) = (self.order(), Vec::new());
        while let Some(index) = order.pop_front() {
            let Some(agent) = self.agents.get(index) else { continue };
            let reason = match attempt(agent, request.clone()).await {
                Outcome::Answered(response) => {
                    self.resume(index);
                    self.prefer(index);
                    return Ok(response);
                }
                Outcome::Declined(reason) => {
                    self.resume(index);
                    self.follow(&reason, &mut order);
                    reason
                }
                Outcome::NotSent(error) => {
                    self.pause(index, &error);
                    Reason::Error(error)
                }
                Outcome::Unknown(error) => {
                    self.pause(index, &error);
                    if !is_read(&request) {
                        return Err(if self.agents.len() > 1 { of_agent(agent, &error) } else { error });
                    }
                    Reason::Error(error)
                }
            };
            reasons.push((agent.endpoint.clone(), reason));
        }
        conclude(reasons)
    }
}

impl Endpoints {
    /// Tries the agent next that a standby named as the active one, if it is a configured one: no agent may redirect a manager to another
    /// server.
    fn follow(&self, reason: &Reason, order: &mut VecDeque<usize>) {
        let Reason::NotActive { active: Some(active), .. } = reason else { return };
        let is_active = |agent: &Agent| agent.endpoint.base() == active.trim_end_matches('/');
        let Some(index) = self.agents.iter().position(is_active) else { return };
        if let Some(place) = order.iter().position(|waiting| *waiting == index) {
            order.remove(place);
            order.push_front(index);
        }
    }
}

/// Whether the request only reads.
fn is_read(request: &Request<Bytes>) -> bool {
    request.method().is_safe() || request.extensions().get() == Some(&Effect::Read)
}

/// Returns the error with the endpoint of the agent. The outcome stays unknown.
fn of_agent(agent: &Agent, error: &RequestError) -> RequestError {
    match error {
        RequestError::Broken(cause) => RequestError::Broken(format!("{}: {cause}", agent.endpoint)),
        error => RequestError::Broken(format!("{}: {error}", agent.endpoint)),
    }
}
