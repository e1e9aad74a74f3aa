//! What one client may take up at a time, so that it cannot keep others out: memory for large bodies, and the work on them.
//!
//! Small bodies pass at once, on the thread that read them. The work on a large one is done apart, a few at a time for each
//! client and for all, and whoever waits too long for it gets a 504.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::status::{ApiError, ApiResult};

/// How long a request may take, apart from what is sent afterwards; as long as a real server gives it.
pub(crate) const TIME: Duration = Duration::from_secs(60);

/// Requests up to this size cost too little to be counted.
const LIGHT: usize = 32 << 10;

/// The memory for the larger bodies of one client and of all, in KiB: some twenty and eighty of the largest.
const MEMORY_OF_ONE: usize = 64 << 10;
const MEMORY_OF_ALL: usize = 256 << 10;

/// How many large requests of one client and of all are worked on at a time.
const WORK_OF_ONE: usize = 2;
const WORK_OF_ALL: usize = 4;

/// From this many remembered clients on, those that have nothing in hand are forgotten.
const REMEMBERED: usize = 256;

/// What all clients take up.
pub(crate) struct Limits {
    all: Share,
    clients: Mutex<HashMap<String, Weak<Share>>>,
}

/// What one client, or all of them, may take up.
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
        Limits { all: Share::new(MEMORY_OF_ALL, WORK_OF_ALL), clients: Mutex::default() }
    }
}

impl Limits {
    /// The part of a request of this user.
    pub(crate) fn client<'a>(&'a self, user: &'a str) -> Client<'a> {
        Client { limits: self, user, own: OnceLock::new() }
    }

    fn share_of(&self, user: &str) -> Arc<Share> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= REMEMBERED {
            clients.retain(|_, share| share.strong_count() > 0);
        }
        let known = clients.get(user).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let share = Arc::new(Share::new(MEMORY_OF_ONE, WORK_OF_ONE));
            clients.insert(user.to_owned(), Arc::downgrade(&share));
            share
        })
    }
}

/// One client's part in the limits. Most requests are small, and never look it up.
pub(crate) struct Client<'a> {
    limits: &'a Limits,
    user: &'a str,
    own: OnceLock<Arc<Share>>,
}

impl Client<'_> {
    fn own(&self) -> &Share {
        self.own.get_or_init(|| self.limits.share_of(self.user))
    }

    /// Memory for a body, which grows with it.
    pub(crate) fn memory(&self) -> Memory<'_> {
        Memory { client: self, held: 0, permits: Vec::new() }
    }

    /// Does work for a request of this size.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        size: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<T> {
        if size <= LIGHT {
            return Ok(job());
        }
        let work = async {
            // First one's own: a client with many requests waits for itself, and others only for two of them.
            let own = self.own().work.clone().acquire_owned().await;
            let permits = (own, self.limits.all.work.clone().acquire_owned().await);
            tokio::task::spawn_blocking(move || {
                let done = job();
                drop(permits);
                done
            })
            .await
        };
        match tokio::time::timeout(TIME, work).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(ApiError::internal(error.to_string())),
            Err(_) => Err(ApiError::timed_out()),
        }
    }
}

/// Memory that a body takes up, given back with the value.
pub(crate) struct Memory<'a> {
    client: &'a Client<'a>,
    /// In KiB.
    held: usize,
    permits: Vec<OwnedSemaphorePermit>,
}

impl Memory<'_> {
    /// Takes what a body of this many bytes needs, or refuses the request: whoever waited here would hold what it has.
    pub(crate) fn grow(&mut self, size: usize) -> ApiResult<()> {
        let wanted = if size > LIGHT { size.div_ceil(1024) } else { 0 };
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
        let refused = loop {
            let mut memory = greedy.memory();
            match memory.grow(3 << 20) {
                Ok(()) => held.push(memory),
                Err(error) => break error,
            }
        };
        assert_eq!((refused.code.as_u16(), refused.retry_after), (429, Some(1)));
        assert_eq!(held.len(), 21, "of three mebibytes each");
        assert!(greedy.memory().grow(LIGHT).is_ok(), "small bodies are free");
        assert!(other.memory().grow(3 << 20).is_ok());
        held.clear();
        assert!(greedy.memory().grow(3 << 20).is_ok());
    }

    #[test]
    fn all_clients_together_cannot_take_more_than_all() {
        let limits = Limits::default();
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let clients: Vec<Client<'_>> = names.iter().map(|name| limits.client(name)).collect();
        let mut held: Vec<Memory<'_>> = clients.iter().map(Client::memory).collect();
        let granted = held.iter_mut().filter_map(|memory| memory.grow(3 << 20).ok()).count();
        assert_eq!(granted, 85);
        assert!(limits.clients.lock().unwrap().len() <= REMEMBERED);
    }

    #[test]
    fn clients_that_have_nothing_in_hand_are_forgotten() {
        let limits = Limits::default();
        for n in 0..10 * REMEMBERED {
            limits.client(&n.to_string()).own();
        }
        assert!(limits.clients.lock().unwrap().len() <= REMEMBERED);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_requests_are_worked_on_a_few_at_a_time_and_apart() {
        let limits = Limits::default();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<Client<'_>> = (0..12).map(|n| limits.client(if n < 6 { "one" } else { "other" })).collect();
        let jobs = clients.iter().map(|client| {
            let (running, most) = (running.clone(), most.clone());
            client.work(LIGHT + 1, move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                running.fetch_sub(1, Ordering::SeqCst);
                std::thread::current().id()
            })
        });
        let threads = futures::future::join_all(jobs).await;
        assert!(most.load(Ordering::SeqCst) <= 2 * WORK_OF_ONE);
        let here = std::thread::current().id();
        assert!(threads.iter().all(|thread| thread.as_ref().is_ok_and(|thread| *thread != here)));
        assert_eq!(limits.client("one").work(LIGHT, || std::thread::current().id()).await, Ok(here));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_gets_a_timeout() {
        let limits = Limits::default();
        let client = limits.client("jane");
        let _busy = client.own().work.clone().acquire_many_owned(WORK_OF_ONE as u32).await.unwrap();
        assert_eq!(client.work(LIGHT + 1, || ()).await, Err(ApiError::timed_out()));
    }
}
