//! Load balancers of the cloud: management calls and user calls.

use std::net::IpAddr;
use std::time::Duration;

use bowline_agent::{Balancers, Pool, Pools, RuleError};
use bowline_agent_client::{Balancer, Change, CloudAddress, NewBalancer, Observation, Query};
use ipnet::IpNet;

use crate::api::TAG;
use crate::cloud::{CloudError, LocalCloud, State, World};
use crate::{pod_cidrs, routes};

/// Options of load balancers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancerOptions {
    /// Address pool. Default: `127.0.32.0/20` and the single address `::1/128`, which are loopback addresses, so that listening
    /// needs no privileges.
    pub pool: Vec<IpNet>,
    /// Address pool of internal load balancers. Default: `127.0.48.0/20`.
    pub internal_pool: Vec<IpNet>,
    /// Enables the data plane: sockets that forward traffic. The cloud must then be opened on a Tokio runtime. Without it, load
    /// balancers are records only.
    pub data_plane: bool,
    /// Duration of each change for a Service, during which the cloud rejects further changes for that Service.
    pub work_time: Duration,
}

impl Default for BalancerOptions {
    fn default() -> BalancerOptions {
        let net = |a, b, c, d, length| IpNet::new([a, b, c, d].into(), length).ok();
        let localhost = IpNet::from(IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
        BalancerOptions {
            pool: net(127, 0, 32, 0, 20).into_iter().chain([localhost]).collect(),
            internal_pool: net(127, 0, 48, 0, 20).into_iter().collect(),
            data_plane: false,
            work_time: Duration::ZERO,
        }
    }
}

impl BalancerOptions {
    pub(crate) fn pools(&self) -> Pools {
        let pools = |nets: &[IpNet]| nets.iter().copied().map(Pool::from).collect();
        Pools { external: pools(&self.pool), internal: pools(&self.internal_pool) }
    }
}

impl LocalCloud {
    /// Returns all load balancers, by ID.
    pub fn balancers(&self) -> Vec<Balancer> {
        self.read(|world| world.balancers.balancers().map(|balancer| Balancer::clone(balancer)).collect())
    }

    /// Returns the load balancer with this ID.
    pub fn balancer(&self, id: &str) -> Result<Balancer, CloudError> {
        Ok(self.read(|world| world.balancers.balancer(id).map(|balancer| Balancer::clone(balancer)))?)
    }

    /// Returns all addresses of load balancers, by ID.
    pub fn addresses(&self) -> Vec<CloudAddress> {
        self.read(|world| world.balancers.addresses().map(|address| CloudAddress::clone(address)).collect())
    }

    /// Creates a load balancer, with or without an owner, with addresses from the pool.
    pub fn add_balancer(&self, balancer: NewBalancer) -> Result<Balancer, CloudError> {
        let created = self.edit_balancers(|balancers| balancers.add(&self.shared.pools, balancer))?;
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
        let mut observed = world.balancers.observe(&self.shared.pools, query);
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
        let pools = &self.shared.pools;
        let has_changed = match state.pending.fails(&query.key) {
            true => state.world.balancers.clone().apply(pools, query, change)?,
            false => self.edit(state, |world| Ok(world.balancers.apply(pools, query, change)?))?,
        };
        if has_changed {
            state.pending.begin(&query.key);
        }
        Ok(())
    }

    fn edit_balancers<T>(&self, edit: impl FnOnce(&mut Balancers) -> Result<T, RuleError>) -> Result<T, CloudError> {
        self.edit(&mut self.state(), |world| Ok(edit(&mut world.balancers)?))
    }
}
