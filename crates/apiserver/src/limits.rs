//! Limits memory and concurrency of large requests, per client and in total, so that one client cannot starve the others.
//!
//! Small requests are processed immediately on the thread that read them. Large requests are processed on blocking threads
//! with a concurrency limit for each client and for all clients; a request that waits too long gets status 504.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::status::{ApiError, ApiResult};

/// Request timeout, without the time to send the response. Same as upstream's default.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size in bytes of small requests, which are not limited.
const SMALL: usize = 32 << 10;

/// Memory for large bodies of one client and of all clients, in KiB: about 20 and 80 bodies of maximum size.
const CLIENT_MEMORY_KIB: usize = 64 << 10;
const TOTAL_MEMORY_KIB: usize = 256 << 10;

/// Maximum number of concurrent large requests of one client and of all clients.
const CLIENT_CONCURRENCY: usize = 2;
const TOTAL_CONCURRENCY: usize = 4;

/// Number of tracked clients from which clients without requests are dropped.
const TRACKED_CLIENTS: usize = 256;

/// The limits of all clients.
pub(crate) struct Limits {
    all: Share,
    clients: Mutex<HashMap<String, Weak<Share>>>,
}

/// The limits of one client, or of all clients together.
struct Share {
    memory: Arc<Semaphore>,
    work: Arc<Semaphore>,
}

impl Share {
    fn new(memory: usize, work: usize) -> Share {
        Share { memory: Arc::new(Semaphore::new(memory)), work: Arc::new(Semaphore::new(work)) }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { all: Share::new(TOTAL_MEMORY_KIB, TOTAL_CONCURRENCY), clients: Mutex::default() }
    }
}

impl Limits {
    /// The limits for a request of this user.
    pub(crate) fn client<'a>(&'a self, user: &'a str) -> Client<'a> {
        Client { limits: self, user, own: OnceLock::new() }
    }

    fn share_of(&self, user: &str) -> Arc<Share> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= TRACKED_CLIENTS {
            clients.retain(|_, share| share.strong_count() > 0);
        }
        let known = clients.get(user).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let share = Arc::new(Share::new(CLIENT_MEMORY_KIB, CLIENT_CONCURRENCY));
            clients.insert(user.to_owned(), Arc::downgrade(&share));
            share
        })
    }
}

/// The limits of one client, looked up on first use because most requests are small.
pub(crate) struct Client<'a> {
    limits: &'a Limits,
    user: &'a str,
    own: OnceLock<Arc<Share>>,
}

impl Client<'_> {
    fn own(&self) -> &Share {
        self.own.get_or_init(|| self.limits.share_of(self.user))
    }

    /// Memory accounting for a request body.
    pub(crate) fn memory(&self) -> Memory<'_> {
        Memory { client: self, held: 0, permits: Vec::new() }
    }

    /// Runs the job of a request with a body of this size.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        size: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<T> {
        if size <= SMALL {
            return Ok(job());
        }
        let work = async {
            // The client's own limit first: a client with many requests waits for itself, and other clients wait for at most
            // two of its requests.
            let own = self.own().work.clone().acquire_owned().await;
            let permits = (own, self.limits.all.work.clone().acquire_owned().await);
            tokio::task::spawn_blocking(move || {
                let done = job();
                drop(permits);
                done
            })
            .await
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(ApiError::internal(error.to_string())),
            Err(_) => Err(ApiError::timed_out()),
        }
    }
}

/// Memory held by a body, released on drop.
pub(crate) struct Memory<'a> {
    client: &'a Client<'a>,
    /// In KiB.
    held: usize,
    permits: Vec<OwnedSemaphorePermit>,
}

impl Memory<'_> {
    /// Acquires memory for a body of this many bytes, or rejects the request: waiting would keep the memory it holds already.
    pub(crate) fn grow(&mut self, size: usize) -> ApiResult<()> {
        let wanted = if size > SMALL { size.div_ceil(1024) } else { 0 };
        let more = u32::try_from(wanted.saturating_sub(self.held)).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        let own = self.client.own().memory.clone().try_acquire_many_owned(more);
        let all = self.client.limits.all.memory.clone().try_acquire_many_owned(more);
        let (Ok(own), Ok(all)) = (own, all) else { return Err(ApiError::too_many_requests()) };
        self.held = wanted;
        self.permits.extend([own, all]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_client_cannot_take_all_the_memory() {
        let limits = Limits::default();
        let (greedy, other) = (limits.client("greedy"), limits.client("other"));
        let mut held = Vec::new();
        let rejected = loop {
            let mut memory = greedy.memory();
            match memory.grow(3 << 20) {
                Ok(()) => held.push(memory),
                Err(error) => break error,
            }
        };
        assert_eq!((rejected.code.as_u16(), rejected.retry_after), (429, Some(1)));
        assert_eq!(held.len(), 21, "bodies of 3 MiB");
        assert!(greedy.memory().grow(SMALL).is_ok(), "small bodies are not limited");
        assert!(other.memory().grow(3 << 20).is_ok());
        held.clear();
        assert!(greedy.memory().grow(3 << 20).is_ok());
    }

    #[test]
    fn the_memory_of_all_clients_is_limited() {
        let limits = Limits::default();
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let clients: Vec<Client<'_>> = names.iter().map(|name| limits.client(name)).collect();
        let mut held: Vec<Memory<'_>> = clients.iter().map(Client::memory).collect();
        let granted = held.iter_mut().filter_map(|memory| memory.grow(3 << 20).ok()).count();
        assert_eq!(granted, 85);
        assert!(limits.clients.lock().unwrap().len() <= TRACKED_CLIENTS);
    }

    #[test]
    fn clients_without_requests_are_dropped() {
        let limits = Limits::default();
        for n in 0..10 * TRACKED_CLIENTS {
            limits.client(&n.to_string()).own();
        }
        assert!(limits.clients.lock().unwrap().len() <= TRACKED_CLIENTS);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_requests_run_with_limited_concurrency_on_blocking_threads() {
        let limits = Limits::default();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<Client<'_>> = (0..12).map(|n| limits.client(if n < 6 { "one" } else { "other" })).collect();
        let jobs = clients.iter().map(|client| {
            let (running, most) = (running.clone(), most.clone());
            client.work(SMALL + 1, move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                running.fetch_sub(1, Ordering::SeqCst);
                std::thread::current().id()
            })
        });
        let threads = futures::future::join_all(jobs).await;
        assert!(most.load(Ordering::SeqCst) <= 2 * CLIENT_CONCURRENCY);
        let here = std::thread::current().id();
        assert!(threads.iter().all(|thread| thread.as_ref().is_ok_and(|thread| *thread != here)));
        assert_eq!(limits.client("one").work(SMALL, || std::thread::current().id()).await, Ok(here));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_too_long_times_out() {
        let limits = Limits::default();
        let client = limits.client("jane");
        let _permits = client.own().work.clone().acquire_many_owned(CLIENT_CONCURRENCY as u32).await.unwrap();
        assert_eq!(client.work(SMALL + 1, || ()).await, Err(ApiError::timed_out()));
    }
}
