//! The cloud's balancers, by the hands of its owner and by the calls of its users.

use std::time::Duration;

use crate::api::TAG;
use crate::balancers::{Asking, Balancer, Balancers, Change, CloudAddress, NewBalancer, Observation};
use crate::cloud::{CloudError, LocalCloud, Now, World};
use crate::{pod_ranges, routes};

impl LocalCloud {
    /// All balancers, by ID.
    pub fn balancers(&self) -> Vec<Balancer> {
        self.read(|world| world.balancers.balancers().map(|balancer| Balancer::clone(balancer)).collect())
    }

    /// The balancer of this ID.
    pub fn balancer(&self, id: &str) -> Result<Balancer, CloudError> {
        self.read(|world| world.balancers.balancer(id).map(|balancer| Balancer::clone(balancer)))
    }

    /// All addresses of balancers, by ID.
    pub fn addresses(&self) -> Vec<CloudAddress> {
        self.read(|world| world.balancers.addresses().map(|address| CloudAddress::clone(address)).collect())
    }

    /// Makes a balancer, which may be anybody's or nobody's, with addresses from the pool.
    pub fn add_balancer(&self, balancer: NewBalancer) -> Result<Balancer, CloudError> {
        let made = self.edit_balancers(|balancers| balancers.add(&self.shared.balancing, balancer))?;
        self.serve_soon(vec![made.id.clone()]);
        Ok(made)
    }

    /// Removes the balancer of this ID, whosever it is, and gives back those of its addresses that nobody else has.
    pub fn delete_balancer(&self, id: &str) -> Result<(), CloudError> {
        self.edit_balancers(|balancers| balancers.remove(id))?;
        self.serve_soon(vec![id.to_owned()]);
        Ok(())
    }

    /// How many writing calls the cloud's users have made, failed ones included, since the count began.
    pub fn writes(&self) -> u64 {
        let calls = self.calls();
        let kinds = Change::KINDS.iter().chain(&routes::WRITING).chain(&[pod_ranges::ASSIGN, TAG]);
        kinds.filter_map(|kind| calls.get(*kind)).sum()
    }

    /// How long the cloud is at work after each change for a Service from now on.
    pub fn set_work_time(&self, time: Duration) {
        self.now().work.set_time(time);
    }

    /// The cloud is done at once with all that it is at work on.
    pub fn finish_work(&self) {
        self.now().work.finish();
    }

    /// This many of the next changes for a Service fail: the cloud accepts them, is at work, and changes nothing.
    pub fn fail_next_work(&self, changes: u64) {
        self.now().work.fail_next(changes);
    }

    /// What a user gets to see of this world, which may be a past one.
    pub(crate) fn observe(&self, world: Option<&World>, asking: &Asking) -> Observation {
        let now = &*self.now();
        self.look(now, world.unwrap_or(&now.world), asking)
    }

    fn look(&self, now: &Now, world: &World, asking: &Asking) -> Observation {
        let mut seen = world.balancers.observe(&self.shared.balancing, asking);
        let rest = now.work.rest(&asking.key);
        // A part of a millisecond is a whole one, or the asker would come back too early.
        seen.busy_millis = rest.map(|rest| rest.as_micros().div_ceil(1000) as u64);
        seen.failed = now.work.has_failed(&asking.key);
        if let (Some(sockets), Some(balancer)) = (&self.shared.sockets, &seen.balancer) {
            seen.errors = sockets.errors(balancer, world.balancers.addresses_of(balancer).map(|address| address.ip));
        }
        seen
    }

    /// Carries out a user's call, down to the sockets; all that there is for the asker afterwards.
    pub(crate) async fn order(&self, asking: &Asking, change: Change) -> Result<Observation, CloudError> {
        let existing = change.balancer().map(str::to_owned);
        self.carry_out(asking, change)?;
        let made = || self.read(|world| world.balancers.balancer_of(&asking.key).map(|made| made.id.clone()));
        if let Some(id) = existing.or_else(made) {
            self.serve(&id).await;
        }
        Ok(self.observe(None, asking))
    }

    fn carry_out(&self, asking: &Asking, change: Change) -> Result<(), CloudError> {
        let now = &mut *self.now();
        if let Some(rest) = now.work.rest(&asking.key) {
            return Err(CloudError::Busy(rest));
        }
        let balancing = &self.shared.balancing;
        let changes = match now.work.fails(&asking.key) {
            true => now.world.balancers.clone().carry_out(balancing, asking, change)?,
            false => self.edit(now, |world| world.balancers.carry_out(balancing, asking, change))?,
        };
        if changes {
            now.work.begin(&asking.key);
        }
        Ok(())
    }

    fn edit_balancers<T>(&self, edit: impl FnOnce(&mut Balancers) -> Result<T, CloudError>) -> Result<T, CloudError> {
        self.edit(&mut self.now(), |world| edit(&mut world.balancers))
    }
}
