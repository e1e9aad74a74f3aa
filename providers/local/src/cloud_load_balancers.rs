//! Load balancers of the cloud: management calls and user calls.

use std::time::Duration;

use crate::api::TAG;
use crate::balancers::{Balancer, Balancers, Change, CloudAddress, NewBalancer, Observation, Query};
use crate::cloud::{CloudError, LocalCloud, State, World};
use crate::{pod_cidrs, routes};

impl LocalCloud {
    /// Returns all load balancers, by ID.
    pub fn balancers(&self) -> Vec<Balancer> {
        self.read(|world| world.balancers.balancers().map(|balancer| Balancer::clone(balancer)).collect())
    }

    /// Returns the load balancer with this ID.
    pub fn balancer(&self, id: &str) -> Result<Balancer, CloudError> {
        self.read(|world| world.balancers.balancer(id).map(|balancer| Balancer::clone(balancer)))
    }

    /// Returns all addresses of load balancers, by ID.
    pub fn addresses(&self) -> Vec<CloudAddress> {
        self.read(|world| world.balancers.addresses().map(|address| CloudAddress::clone(address)).collect())
    }

    /// Creates a load balancer, with or without an owner, with addresses from the pool.
    pub fn add_balancer(&self, balancer: NewBalancer) -> Result<Balancer, CloudError> {
        let created = self.edit_balancers(|balancers| balancers.add(&self.shared.balancing, balancer))?;
        self.spawn_updates(vec![created.id.clone()]);
        Ok(created)
    }

    /// Deletes the load balancer with this ID, whatever its owner, and releases its addresses that are not shared.
    pub fn delete_balancer(&self, id: &str) -> Result<(), CloudError> {
        self.edit_balancers(|balancers| balancers.remove(id))?;
        self.spawn_updates(vec![id.to_owned()]);
        Ok(())
    }

    /// Number of write calls of users since the last reset, including failed ones.
    pub fn writes(&self) -> u64 {
        let calls = self.calls();
        let kinds = Change::KINDS.iter().chain(&routes::WRITE_CALLS).chain(&[pod_cidrs::ASSIGN, TAG]);
        kinds.filter_map(|kind| calls.get(*kind)).sum()
    }

    /// Sets how long each change for a Service takes.
    pub fn set_work_time(&self, time: Duration) {
        self.state().pending.set_time(time);
    }

    /// Completes all changes in progress.
    pub fn finish_work(&self) {
        self.state().pending.finish();
    }

    /// Makes the next changes for Services fail: the cloud accepts them, takes its time and changes nothing.
    pub fn fail_next_work(&self, changes: u64) {
        self.state().pending.fail_next(changes);
    }

    /// Observation of a Service, from the current or past resources.
    pub(crate) fn observe(&self, world: Option<&World>, query: &Query) -> Observation {
        let state = &*self.state();
        self.observe_in(state, world.unwrap_or(&state.world), query)
    }

    fn observe_in(&self, state: &State, world: &World, query: &Query) -> Observation {
        let mut observed = world.balancers.observe(&self.shared.balancing, query);
        let rest = state.pending.rest(&query.key);
        // Rounded up, so that the caller does not poll too early.
        observed.busy_millis = rest.map(|rest| rest.as_micros().div_ceil(1000) as u64);
        observed.failed = state.pending.has_failed(&query.key);
        if let (Some(sockets), Some(balancer)) = (&self.shared.sockets, &observed.balancer) {
            observed.errors =
                sockets.errors(balancer, world.balancers.addresses_of(balancer).map(|address| address.ip));
        }
        observed
    }

    /// Applies a user's change, including the data plane, and returns the resulting observation.
    pub(crate) async fn change_load_balancer(&self, query: &Query, change: Change) -> Result<Observation, CloudError> {
        let existing = change.balancer().map(str::to_owned);
        self.apply_change(query, change)?;
        let created = || self.read(|world| world.balancers.balancer_of(&query.key).map(|found| found.id.clone()));
        if let Some(id) = existing.or_else(created) {
            self.update_load_balancer(&id).await;
        }
        Ok(self.observe(None, query))
    }

    fn apply_change(&self, query: &Query, change: Change) -> Result<(), CloudError> {
        let state = &mut *self.state();
        if let Some(rest) = state.pending.rest(&query.key) {
            return Err(CloudError::Busy(rest));
        }
        let balancing = &self.shared.balancing;
        let has_changed = match state.pending.fails(&query.key) {
            true => state.world.balancers.clone().apply(balancing, query, change)?,
            false => self.edit(state, |world| world.balancers.apply(balancing, query, change))?,
        };
        if has_changed {
            state.pending.begin(&query.key);
        }
        Ok(())
    }

    fn edit_balancers<T>(&self, edit: impl FnOnce(&mut Balancers) -> Result<T, CloudError>) -> Result<T, CloudError> {
        self.edit(&mut self.state(), |world| edit(&mut world.balancers))
    }
}
