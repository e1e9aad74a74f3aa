//! A semaphore with priorities: waiters of [`Priority::High`] get a permit first, within a priority in order of arrival.
//!
//! The work queue decides which sync starts first. Syncs read before they write, so a periodic refresh may wait for a write permit
//! when the sync of a new object starts; the semaphore lets the new object write first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Priority;

/// A fixed number of permits. Clones share them.
#[derive(Clone)]
pub struct PrioritySemaphore(Arc<Mutex<State>>);

struct State {
    free: usize,
    high: VecDeque<oneshot::Sender<PriorityPermit>>,
    low: VecDeque<oneshot::Sender<PriorityPermit>>,
}

/// A permit, until it is dropped.
pub struct PriorityPermit(Option<PrioritySemaphore>);

impl PrioritySemaphore {
    /// A semaphore with this number of permits, at least one.
    pub fn new(permits: usize) -> PrioritySemaphore {
        let state = State { free: permits.max(1), high: VecDeque::new(), low: VecDeque::new() };
        PrioritySemaphore(Arc::new(Mutex::new(state)))
    }

    /// Waits for a permit. Dropping the future loses no permit.
    pub async fn acquire(&self, priority: Priority) -> PriorityPermit {
        let granted = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return PriorityPermit(Some(self.clone()));
            }
            let (sender, granted) = oneshot::channel();
            match priority {
                Priority::High => state.high.push_back(sender),
                Priority::Low => state.low.push_back(sender),
            }
            granted
        };
        // The sender stays in the queue until it sends.
        granted.await.unwrap_or(PriorityPermit(None))
    }

    /// Passes the permit to the next waiter, or makes it free.
    fn release(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.high.pop_front().or_else(|| state.low.pop_front());
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(PriorityPermit(Some(self.clone()))) {
                Ok(()) => return,
                // The waiter is gone: try the next one.
                Err(mut permit) => permit.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PriorityPermit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.0.take() {
            semaphore.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn is_free(semaphore: &PrioritySemaphore) -> bool {
        tokio::time::timeout(Duration::from_secs(1), semaphore.acquire(Priority::Low)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn high_priority_waiters_get_a_permit_first() {
        let semaphore = PrioritySemaphore::new(2);
        let (first, second) = (semaphore.acquire(Priority::Low).await, semaphore.acquire(Priority::High).await);
        assert!(!is_free(&semaphore).await);
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters = [
            ("low 1", Priority::Low),
            ("high 1", Priority::High),
            ("low 2", Priority::Low),
            ("high 2", Priority::High),
        ];
        let mut tasks = Vec::new();
        for (name, priority) in waiters {
            let (semaphore, order) = (semaphore.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _permit = semaphore.acquire(priority).await;
                order.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            assert!(task.await.is_ok());
        }
        assert_eq!(*order.lock().unwrap_or_else(PoisonError::into_inner), ["high 1", "high 2", "low 1", "low 2"]);
        drop(second);
        let all = [semaphore.acquire(Priority::Low).await, semaphore.acquire(Priority::Low).await];
        assert!(!is_free(&semaphore).await, "no permit was lost and none was added");
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn the_permit_of_a_cancelled_waiter_is_passed_to_the_next() {
        let semaphore = PrioritySemaphore::new(1);
        let held = semaphore.acquire(Priority::Low).await;
        let gone = tokio::time::timeout(Duration::from_secs(1), semaphore.acquire(Priority::High)).await;
        assert!(gone.is_err());
        let next = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { drop(semaphore.acquire(Priority::Low).await) }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(next.await.is_ok());
        assert!(is_free(&semaphore).await);
    }
}
