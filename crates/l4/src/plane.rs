//! All balancers of a process by name, and what is left of those that are gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{self, Instant};

use crate::balancer::{Balancer, Door, Shared};
use crate::check::{self, ConfigError, LONGEST};
use crate::crowd::Crowd;
use crate::workers::Workers;
use crate::{BalancerConfig, BalancerStatus, Limits, open_files};

/// How often it is looked whether a connection idles too long or has drained long enough. They may go on for this much
/// longer than was asked for.
const SWEEP: Duration = Duration::from_millis(250);

/// No limit of connections is larger.
const COUNTABLE: usize = u32::MAX as usize >> 3;

/// All balancers of this process. Clones are the same data plane; when the last one is dropped, everything is closed.
#[derive(Clone)]
pub struct DataPlane {
    inner: Arc<Inner>,
}

struct Inner {
    home: Handle,
    shared: Shared,
    /// One change at a time.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    balancers: BTreeMap<String, Balancer>,
    draining: Vec<Draining>,
}

/// What nobody can connect to any more, and until when its connections may go on.
struct Draining {
    door: Door,
    until: Instant,
}

impl DataPlane {
    /// Without balancers. Must be called on a Tokio runtime, on which everything then runs that does not run on the
    /// threads of [`Limits::threads`]. Raises the process's soft limit of open files to the hard limit.
    pub fn new(limits: Limits) -> DataPlane {
        open_files::raise_limit();
        let home = Handle::current();
        let workers = Workers::start(limits.threads, &home);
        let crowd = Arc::new(Crowd::new(most_connections(&limits), limits.yield_after));
        let shared = Shared { limits, workers, crowd };
        let (turn, state) = (tokio::sync::Mutex::default(), Mutex::default());
        let inner = Arc::new(Inner { home, shared, turn, state });
        inner.home.spawn(sweep(Arc::downgrade(&inner)));
        DataPlane { inner }
    }

    /// From now on the balancer of this name is like this. Sockets are bound when this returns; those that could not be
    /// are told in the status.
    pub async fn set(&self, name: &str, config: BalancerConfig) -> Result<BalancerStatus, ConfigError> {
        check::balancer(&config)?;
        let _turn = self.inner.turn.lock().await;
        let unwanted = match self.inner.state().balancers.get_mut(name) {
            Some(balancer) => balancer.take_unwanted(&config),
            None => Vec::new(),
        };
        self.inner.drain(unwanted, config.drain).await;
        Ok(self.inner.apply(name, config))
    }

    /// Stops listening at once, lets established connections go on for `drain` at most, and forgets the balancer. One that
    /// is not there is removed already. Returns once nothing listens any more; the drain goes on behind.
    pub async fn remove(&self, name: &str, drain: Duration) {
        let _turn = self.inner.turn.lock().await;
        let removed = self.inner.state().balancers.remove(name);
        if let Some(balancer) = removed {
            self.inner.drain(balancer.take_all(), drain).await;
        }
    }

    /// How a balancer is doing.
    pub fn status(&self, name: &str) -> Option<BalancerStatus> {
        self.inner.state().balancers.get(name).map(Balancer::status)
    }

    /// The names of all balancers, sorted.
    pub fn names(&self) -> Vec<String> {
        self.inner.state().balancers.keys().cloned().collect()
    }

    /// Removes all balancers, waits for their connections for at most `patience`, and closes the rest.
    pub async fn shutdown(&self, patience: Duration) {
        let _turn = self.inner.turn.lock().await;
        let balancers = std::mem::take(&mut self.inner.state().balancers);
        let doors = balancers.into_values().flat_map(Balancer::take_all).collect();
        self.inner.drain(doors, patience).await;
        let crowd = &self.inner.shared.crowd;
        if time::timeout(patience.min(LONGEST), crowd.all_gone()).await.is_err() {
            self.inner.state().draining.clear();
            crowd.all_gone().await;
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing listens at these any more when this returns. What is connected may go on for so long.
    async fn drain(&self, mut doors: Vec<Door>, drain: Duration) {
        let until = Instant::now() + drain.min(LONGEST);
        let tasks: Vec<_> = doors.iter_mut().flat_map(Door::shut).collect();
        // Before the first wait: if the caller gives up, they drain all the same.
        self.state().draining.extend(doors.into_iter().map(|door| Draining { door, until }));
        for task in tasks {
            // Whether it ended by itself does not matter.
            let _ = task.await;
        }
        self.state().sweep(Instant::now());
    }

    fn apply(&self, name: &str, config: BalancerConfig) -> BalancerStatus {
        // Health checks begin on the runtime of the data plane, wherever this is called.
        let _entered = self.home.enter();
        let mut state = self.state();
        let mut balancer = state.balancers.remove(name).unwrap_or_else(Balancer::new);
        balancer.apply(config, &self.shared, |spot| {
            state.balancers.iter().find(|(_, other)| other.holds(spot)).map(|(name, _)| name.clone())
        });
        // Connections of targets that are gone and have no time to drain.
        balancer.sweep(Instant::now());
        let status = balancer.status();
        state.balancers.insert(name.to_owned(), balancer);
        status
    }
}

impl State {
    fn sweep(&mut self, now: Instant) {
        self.balancers.values().for_each(|balancer| balancer.sweep(now));
        self.draining.retain(|draining| {
            draining.door.frontend.pool().sweep(now);
            draining.door.sweep(now);
            draining.until > now && !draining.door.frontend.connections.is_empty()
        });
    }
}

/// As many as were asked for, as the process may have, and as can be counted.
fn most_connections(limits: &Limits) -> usize {
    let possible = open_files::room_for_connections().unwrap_or(usize::MAX);
    if possible < limits.connections {
        tracing::info!(limit = limits.connections, possible, "the limit of open files allows for fewer connections");
    }
    limits.connections.min(possible).min(COUNTABLE)
}

/// Goes on for as long as the data plane lives.
async fn sweep(inner: Weak<Inner>) {
    loop {
        time::sleep(SWEEP).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.state().sweep(Instant::now());
    }
}
