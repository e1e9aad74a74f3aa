//! Which TCP connections there is room for.
//!
//! While fewer connections are open than the limit allows, every one is let in. When all are taken, shares decide:
//!
//! ```text
//!  newcomer ──► its load balancer has less than its share? ── yes ──► the heaviest load balancer makes room
//!                   │ no: within its own load balancer
//!                   ├─ its client has less than its share ──► the heaviest client makes room
//!                   ├─ a connection of the heaviest client is silent for long ──► that one makes room
//!                   ├─ its client has more than its share ──► the newcomer is reset
//!                   └─ else it waits
//! ```
//!
//! The share of a load balancer is the limit divided by the number of load balancers that have connections or wait for one; the
//! share of a client address is likewise a part of its load balancer. Of those that have to make room, the connection that has been
//! silent longest is reset. So a client that holds idle connections can starve neither other load balancers nor other clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};

use crate::connections::Progress;
use crate::frontend::Frontend;

/// Interval at which a newcomer that waits searches again for a connection that can make room.
const PATIENCE: Duration = Duration::from_millis(250);

/// The open TCP connections of all load balancers.
pub(crate) struct Crowd {
    room: Arc<Semaphore>,
    limit: usize,
    yield_after: Duration,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    balancers: HashMap<u64, Members>,
    next: u64,
}

/// The connections of one load balancer.
#[derive(Default)]
struct Members {
    total: usize,
    waiting: usize,
    clients: HashMap<IpAddr, HashMap<u64, Member>>,
}

struct Member {
    frontend: Arc<Frontend>,
    progress: Arc<Progress>,
    task: Arc<OnceLock<AbortHandle>>,
}

/// What a newcomer can do when all connections are taken.
enum Way {
    /// This one makes room.
    Instead(Arc<Frontend>, AbortHandle),
    Waits,
    Refused,
}

/// Room for one connection, for as long as this lives.
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    balancer: u64,
    client: IpAddr,
    number: u64,
    task: Arc<OnceLock<AbortHandle>>,
    _permit: OwnedSemaphorePermit,
}

impl Crowd {
    /// Room for `limit` connections. One that is silent for `yield_after` makes room for any other.
    pub(crate) fn new(limit: usize, yield_after: Duration) -> Crowd {
        Crowd { room: Arc::new(Semaphore::new(limit)), limit, yield_after, inside: Mutex::default() }
    }

    /// Waits until no connection is open.
    pub(crate) async fn all_gone(&self) {
        // An error would mean that nothing can be let in any more, which is as good.
        let _ = self.room.acquire_many(u32::try_from(self.limit).unwrap_or(u32::MAX)).await;
    }

    /// Room for a connection of this client, as soon as there is some; `None` if it is refused.
    pub(crate) async fn admit(
        self: &Arc<Crowd>,
        frontend: &Arc<Frontend>,
        client: IpAddr,
        progress: &Arc<Progress>,
    ) -> Option<Seat> {
        let permit = match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(frontend, client).await?,
        };
        Some(self.seat(frontend, client, progress, permit))
    }

    async fn wait(&self, frontend: &Arc<Frontend>, client: IpAddr) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::new(self, frontend.owner);
        loop {
            match self.way(frontend, client) {
                Way::Instead(frontend, task) => {
                    frontend.counters.displaced.add(1);
                    // Not under the lock: if its runtime is gone, its seat is given up here and now.
                    task.abort();
                }
                Way::Waits => {}
                Way::Refused => {
                    frontend.counters.displaced.add(1);
                    return None;
                }
            }
            if let Ok(permit) = time::timeout(PATIENCE, Arc::clone(&self.room).acquire_owned()).await {
                return permit.ok();
            }
        }
    }

    fn seat(
        self: &Arc<Crowd>,
        frontend: &Arc<Frontend>,
        client: IpAddr,
        progress: &Arc<Progress>,
        permit: OwnedSemaphorePermit,
    ) -> Seat {
        let task = Arc::new(OnceLock::new());
        let mut inside = self.inside();
        inside.next += 1;
        let (number, balancer) = (inside.next, frontend.owner);
        let members = inside.balancers.entry(balancer).or_default();
        members.total += 1;
        let member = Member { frontend: Arc::clone(frontend), progress: Arc::clone(progress), task: Arc::clone(&task) };
        members.clients.entry(client).or_default().insert(number, member);
        Seat { crowd: Arc::clone(self), balancer, client, number, task, _permit: permit }
    }

    fn way(&self, frontend: &Frontend, client: IpAddr) -> Way {
        let (inside, now) = (self.inside(), Instant::now());
        let own = inside.balancers.get(&frontend.owner);
        let share = (self.limit / inside.balancers.len().max(1)).max(1);
        if own.is_none_or(|own| own.total < share) {
            let heaviest = inside.balancers.values().max_by_key(|members| members.total);
            return heaviest.and_then(|members| members.longest_silent(None, now)).map_or(Way::Waits, Way::instead);
        }
        own.map_or(Way::Waits, |own| own.way(client, self.yield_after, now))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Way {
    fn instead((member, task): (&Member, &AbortHandle)) -> Way {
        Way::Instead(Arc::clone(&member.frontend), task.clone())
    }
}

impl Members {
    /// The way of a newcomer of this client to a load balancer that has its share.
    fn way(&self, client: IpAddr, yield_after: Duration, now: Instant) -> Way {
        let own = self.clients.get(&client).map_or(0, HashMap::len);
        let clients = self.clients.len() + usize::from(own == 0);
        let share = self.total / clients.max(1);
        let silent = self.longest_silent(Some(client), now);
        match silent {
            Some(found) if own < share || found.0.progress.silent(now) >= yield_after => Way::instead(found),
            _ if own > share => Way::Refused,
            _ => Way::Waits,
        }
    }

    /// Of the client with most connections, the one that has been silent longest. Of several such clients it is `preferred`.
    fn longest_silent(&self, preferred: Option<IpAddr>, now: Instant) -> Option<(&Member, &AbortHandle)> {
        let weight =
            |(client, members): &(&IpAddr, &HashMap<u64, Member>)| (members.len(), Some(**client) == preferred);
        let (_, members) = self.clients.iter().max_by_key(weight)?;
        let begun = members.values().filter_map(|member| Some((member, member.task.get()?)));
        begun.max_by_key(|(member, _)| member.progress.silent(now))
    }
}

impl Seat {
    /// The task that uses it, which is aborted if it has to make room.
    pub(crate) fn task(&self) -> Arc<OnceLock<AbortHandle>> {
        Arc::clone(&self.task)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside();
        let Some(members) = inside.balancers.get_mut(&self.balancer) else { return };
        members.total -= 1;
        if let Some(own) = members.clients.get_mut(&self.client) {
            own.remove(&self.number);
            if own.is_empty() {
                members.clients.remove(&self.client);
            }
        }
        if members.total == 0 && members.waiting == 0 {
            inside.balancers.remove(&self.balancer);
        }
    }
}

/// A load balancer with a newcomer that waits has a share, too.
struct Waiting<'a> {
    crowd: &'a Crowd,
    balancer: u64,
}

impl Waiting<'_> {
    fn new(crowd: &Crowd, balancer: u64) -> Waiting<'_> {
        crowd.inside().balancers.entry(balancer).or_default().waiting += 1;
        Waiting { crowd, balancer }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside();
        let Some(members) = inside.balancers.get_mut(&self.balancer) else { return };
        members.waiting -= 1;
        if members.total == 0 && members.waiting == 0 {
            inside.balancers.remove(&self.balancer);
        }
    }
}
