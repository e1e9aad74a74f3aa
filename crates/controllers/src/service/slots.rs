//! Places for those who write to a cloud: so many at once, and those that somebody waits for go first.
//!
//! The queue decides whose pass begins; passes read ahead of writing, so that a refresh may stand here before a new Service
//! whose pass began after it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_runtime::Priority;
use tokio::sync::oneshot;

/// The places. Clones are the same places.
#[derive(Clone)]
pub(super) struct Slots(Arc<Mutex<State>>);

struct State {
    free: usize,
    urgent: VecDeque<oneshot::Sender<Slot>>,
    patient: VecDeque<oneshot::Sender<Slot>>,
}

/// A place, until it is dropped.
pub(super) struct Slot(Option<Slots>);

impl Slots {
    /// So many, at least one.
    pub(super) fn new(count: usize) -> Slots {
        Slots(Arc::new(Mutex::new(State { free: count.max(1), urgent: VecDeque::new(), patient: VecDeque::new() })))
    }

    /// A place, as soon as one is free. Whoever stops waiting loses nothing.
    pub(super) async fn take(&self, priority: Priority) -> Slot {
        let given = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Slot(Some(self.clone()));
            }
            let (giver, given) = oneshot::channel();
            match priority {
                Priority::High => state.urgent.push_back(giver),
                Priority::Low => state.patient.push_back(giver),
            }
            given
        };
        // The giver stands in the queue until it gives.
        given.await.unwrap_or(Slot(None))
    }

    /// Hands a place on to whoever has waited longest, or keeps it.
    fn give(&self) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.urgent.pop_front().or_else(|| state.patient.pop_front());
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Slot(Some(self.clone()))) {
                Ok(()) => return,
                // That one waits no longer; its place is still ours to give.
                Err(mut slot) => slot.0 = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn is_free(slots: &Slots) -> bool {
        tokio::time::timeout(Duration::from_secs(1), slots.take(Priority::Low)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_so_many_and_the_urgent_go_first_each_in_turn() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(Priority::Low).await, slots.take(Priority::High).await);
        assert!(!is_free(&slots).await);
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting = [
            ("low 1", Priority::Low),
            ("high 1", Priority::High),
            ("low 2", Priority::Low),
            ("high 2", Priority::High),
        ];
        let mut tasks = Vec::new();
        for (name, priority) in waiting {
            let (slots, order) = (slots.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _slot = slots.take(priority).await;
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
        let all = [slots.take(Priority::Low).await, slots.take(Priority::Low).await];
        assert!(!is_free(&slots).await, "none was lost and none was made");
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_for_somebody_who_waits_no_longer_goes_to_the_next() {
        let slots = Slots::new(1);
        let held = slots.take(Priority::Low).await;
        let gave_up = tokio::time::timeout(Duration::from_secs(1), slots.take(Priority::High)).await;
        assert!(gave_up.is_err());
        let next = tokio::spawn({
            let slots = slots.clone();
            async move { drop(slots.take(Priority::Low).await) }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(next.await.is_ok());
        assert!(is_free(&slots).await);
    }
}
