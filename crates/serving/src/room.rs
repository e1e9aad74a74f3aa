//! Room for connections.
//!
//! There is an end to it, since each costs memory. Who opens many and asks nothing must not keep others out, above all not
//! the kubelet, which would end a manager that does not answer: when all places are taken, the guest that has been idle for
//! longest goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// A number of places. Clones are the same room.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Inner>);

struct Inner {
    places: usize,
    guests: Mutex<Guests>,
    /// Somebody left, or has nothing to do.
    changed: Notify,
}

#[derive(Default)]
struct Guests {
    next: u64,
    present: BTreeMap<u64, Present>,
}

struct Present {
    /// Requests that are being answered.
    requests: usize,
    idle_since: Instant,
    must_leave: Arc<Notify>,
}

/// Somebody with a place; it is free again when this is gone.
pub(crate) struct ConnectionPermit {
    number: u64,
    must_leave: Arc<Notify>,
    room: Arc<Inner>,
}

/// A request of a guest, who is not idle as long as this is there.
pub(crate) struct Busy<'a>(&'a ConnectionPermit);

impl ConnectionLimit {
    pub(crate) fn new(places: usize) -> ConnectionLimit {
        ConnectionLimit(Arc::new(Inner { places, guests: Mutex::default(), changed: Notify::new() }))
    }

    /// A place, taken from whoever is idle if need be; if all are busy, as soon as one is not.
    pub(crate) async fn enter(&self) -> ConnectionPermit {
        loop {
            let changed = self.0.changed.notified();
            if let Some(guest) = self.try_enter() {
                return guest;
            }
            changed.await;
        }
    }

    fn try_enter(&self) -> Option<ConnectionPermit> {
        let mut guests = self.0.guests();
        if guests.present.len() >= self.0.places {
            guests.dismiss()?;
        }
        let (number, must_leave) = (guests.next, Arc::new(Notify::new()));
        guests.next += 1;
        let present = Present { requests: 0, idle_since: Instant::now(), must_leave: must_leave.clone() };
        guests.present.insert(number, present);
        Some(ConnectionPermit { number, must_leave, room: self.0.clone() })
    }
}

impl Guests {
    /// Sends away the one that has been idle for longest; `None` if nobody is.
    fn dismiss(&mut self) -> Option<()> {
        let idle = self.present.iter().filter(|(_, guest)| guest.requests == 0);
        let number = *idle.min_by_key(|(_, guest)| guest.idle_since)?.0;
        self.present.remove(&number)?.must_leave.notify_one();
        tracing::debug!("too many connections: the one that was idle for longest is closed");
        Some(())
    }
}

impl Inner {
    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Ends when the place is needed for somebody else.
    pub(crate) async fn must_leave(&self) {
        self.must_leave.notified().await;
    }

    /// A request is being answered.
    pub(crate) fn busy(&self) -> Busy<'_> {
        if let Some(guest) = self.room.guests().present.get_mut(&self.number) {
            guest.requests += 1;
        }
        Busy(self)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.room.guests().present.remove(&self.number);
        self.room.changed.notify_one();
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(guest) = self.0.room.guests().present.get_mut(&self.0.number) {
            guest.requests = guest.requests.saturating_sub(1);
            guest.idle_since = Instant::now();
        }
        self.0.room.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn is_dismissed(guest: &ConnectionPermit) -> bool {
        guest.must_leave().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_idle_for_longest_makes_room() {
        let room = ConnectionLimit::new(2);
        let first = room.enter().await;
        advance(Duration::from_secs(1)).await;
        let second = room.enter().await;
        advance(Duration::from_secs(1)).await;
        // It has asked something since the other came.
        drop(first.busy());
        let third = room.enter().await;
        assert_eq!([&first, &second, &third].map(is_dismissed), [false, true, false]);
        // What the dismissed one does on its way out takes nobody's place away.
        drop(second.busy());
        drop(second);
        assert_eq!(room.0.guests().present.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_dismissed_in_the_middle_of_an_answer() {
        let room = ConnectionLimit::new(1);
        let guest = room.enter().await;
        let busy = guest.busy();
        assert!(room.enter().now_or_never().is_none() && !is_dismissed(&guest));
        let (next, ()) = tokio::join!(room.enter(), async {
            tokio::task::yield_now().await;
            drop(busy);
        });
        assert!(is_dismissed(&guest) && !is_dismissed(&next));
    }

    #[tokio::test]
    async fn a_place_is_free_when_its_guest_is_gone() {
        let room = ConnectionLimit::new(1);
        for _ in 0..3 {
            let guest = room.enter().await;
            assert!(!is_dismissed(&guest));
        }
    }
}
