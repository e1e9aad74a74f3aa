//! Limit on concurrent TCP connections, with fair shares.
//!
//! Below the limit, every connection is admitted. At the limit, fair shares decide:
//!
//! ```text
//!  new connection ──► load balancer below its share? ── yes ──► evict from the load balancer with most connections
//!                         │ no: within its own load balancer
//!                         ├─ client below its share ──► evict from the client with most connections
//!                         ├─ that client has a connection idle for evict_idle_after ──► evict it
//!                         ├─ client above its share ──► reject: reset the new connection
//!                         └─ else wait
//! ```
//!
//! The share of a load balancer is the limit divided by the number of load balancers that have connections or wait for one; the
//! share of a client address is likewise a part of the connections of its load balancer. The evicted connection is the one that has
//! been idle longest. A client that holds idle connections can therefore starve neither other load balancers nor other clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};

use crate::connections::Progress;
use crate::frontend::Frontend;

/// Interval at which a waiting connection searches again for one to evict.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Limits the open TCP connections of all load balancers.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    limit: usize,
    evict_idle_after: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    load_balancers: HashMap<u64, Usage>,
    next: u64,
}

/// Connections of one load balancer.
#[derive(Default)]
struct Usage {
    total: usize,
    waiting: usize,
    clients: HashMap<IpAddr, HashMap<u64, Entry>>,
}

struct Entry {
    frontend: Arc<Frontend>,
    progress: Arc<Progress>,
    task: Arc<OnceLock<AbortHandle>>,
}

/// Decision about a new connection at the limit.
enum Decision {
    /// Resets this connection to admit the new one.
    Evict(Arc<Frontend>, AbortHandle),
    Wait,
    Reject,
}

/// Admission of one connection; dropping it frees the slot.
pub(crate) struct Slot {
    limit: Arc<ConnectionLimit>,
    load_balancer: u64,
    client: IpAddr,
    number: u64,
    task: Arc<OnceLock<AbortHandle>>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    /// Creates a limit of `limit` connections. At the limit, a connection idle for `evict_idle_after` is evicted for any other.
    pub(crate) fn new(limit: usize, evict_idle_after: Duration) -> ConnectionLimit {
        ConnectionLimit { permits: Arc::new(Semaphore::new(limit)), limit, evict_idle_after, state: Mutex::default() }
    }

    /// Waits until no connection is open.
    pub(crate) async fn wait_until_empty(&self) {
        // The only error is a closed semaphore, which admits no connection either.
        let _ = self.permits.acquire_many(u32::try_from(self.limit).unwrap_or(u32::MAX)).await;
    }

    /// Waits for a slot for a connection of this client; `None` if it is rejected.
    pub(crate) async fn admit(
        self: &Arc<ConnectionLimit>,
        frontend: &Arc<Frontend>,
        client: IpAddr,
        progress: &Arc<Progress>,
    ) -> Option<Slot> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit(frontend, client).await?,
        };
        Some(self.register(frontend, client, progress, permit))
    }

    async fn wait_for_permit(&self, frontend: &Arc<Frontend>, client: IpAddr) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::new(self, frontend.owner);
        loop {
            match self.decide(frontend, client) {
                Decision::Evict(frontend, task) => {
                    frontend.counters.displaced.add(1);
                    // Not under the lock: if its runtime is gone, the task is dropped right here and frees its slot.
                    task.abort();
                }
                Decision::Wait => {}
                Decision::Reject => {
                    frontend.counters.displaced.add(1);
                    return None;
                }
            }
            if let Ok(permit) = time::timeout(RETRY_INTERVAL, Arc::clone(&self.permits).acquire_owned()).await {
                return permit.ok();
            }
        }
    }

    fn register(
        self: &Arc<ConnectionLimit>,
        frontend: &Arc<Frontend>,
        client: IpAddr,
        progress: &Arc<Progress>,
        permit: OwnedSemaphorePermit,
    ) -> Slot {
        let task = Arc::new(OnceLock::new());
        let mut state = self.state();
        state.next += 1;
        let (number, load_balancer) = (state.next, frontend.owner);
        let usage = state.load_balancers.entry(load_balancer).or_default();
        usage.total += 1;
        let entry = Entry { frontend: Arc::clone(frontend), progress: Arc::clone(progress), task: Arc::clone(&task) };
        usage.clients.entry(client).or_default().insert(number, entry);
        Slot { limit: Arc::clone(self), load_balancer, client, number, task, _permit: permit }
    }

    fn decide(&self, frontend: &Frontend, client: IpAddr) -> Decision {
        let (state, now) = (self.state(), Instant::now());
        let own = state.load_balancers.get(&frontend.owner);
        let share = (self.limit / state.load_balancers.len().max(1)).max(1);
        if own.is_none_or(|own| own.total < share) {
            let heaviest = state.load_balancers.values().max_by_key(|usage| usage.total);
            return heaviest.and_then(|usage| usage.longest_idle(None, now)).map_or(Decision::Wait, Decision::evict);
        }
        own.map_or(Decision::Wait, |own| own.decide(client, self.evict_idle_after, now))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decision {
    fn evict((entry, task): (&Entry, &AbortHandle)) -> Decision {
        Decision::Evict(Arc::clone(&entry.frontend), task.clone())
    }
}

impl Usage {
    /// Decides about a new connection of this client to a load balancer that has its share.
    fn decide(&self, client: IpAddr, evict_idle_after: Duration, now: Instant) -> Decision {
        let own = self.clients.get(&client).map_or(0, HashMap::len);
        let clients = self.clients.len() + usize::from(own == 0);
        let share = self.total / clients.max(1);
        let idle = self.longest_idle(Some(client), now);
        match idle {
            Some(found) if own < share || found.0.progress.idle_for(now) >= evict_idle_after => Decision::evict(found),
            _ if own > share => Decision::Reject,
            _ => Decision::Wait,
        }
    }

    /// Returns the connection idle longest of the client with most connections. Ties go to `preferred`.
    fn longest_idle(&self, preferred: Option<IpAddr>, now: Instant) -> Option<(&Entry, &AbortHandle)> {
        let weight = |(client, usage): &(&IpAddr, &HashMap<u64, Entry>)| (usage.len(), Some(**client) == preferred);
        let (_, usage) = self.clients.iter().max_by_key(weight)?;
        let begun = usage.values().filter_map(|entry| Some((entry, entry.task.get()?)));
        begun.max_by_key(|(entry, _)| entry.progress.idle_for(now))
    }
}

impl Slot {
    /// Returns the cell for the handle of the connection's task, which is aborted on eviction.
    pub(crate) fn task(&self) -> Arc<OnceLock<AbortHandle>> {
        Arc::clone(&self.task)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        let Some(usage) = state.load_balancers.get_mut(&self.load_balancer) else { return };
        usage.total -= 1;
        if let Some(own) = usage.clients.get_mut(&self.client) {
            own.remove(&self.number);
            if own.is_empty() {
                usage.clients.remove(&self.client);
            }
        }
        if usage.total == 0 && usage.waiting == 0 {
            state.load_balancers.remove(&self.load_balancer);
        }
    }
}

/// Marks a load balancer as waiting, which gives it a share.
struct Waiting<'a> {
    limit: &'a ConnectionLimit,
    load_balancer: u64,
}

impl Waiting<'_> {
    fn new(limit: &ConnectionLimit, load_balancer: u64) -> Waiting<'_> {
        limit.state().load_balancers.entry(load_balancer).or_default().waiting += 1;
        Waiting { limit, load_balancer }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        let Some(usage) = state.load_balancers.get_mut(&self.load_balancer) else { return };
        usage.waiting -= 1;
        if usage.total == 0 && usage.waiting == 0 {
            state.load_balancers.remove(&self.load_balancer);
        }
    }
}
