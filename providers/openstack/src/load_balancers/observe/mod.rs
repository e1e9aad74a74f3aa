//! Observes the cloud resources of Services, and those that their specs refer to.
//!
//! ```text
//!  one Service ──► queries by ID and by name   ┐
//!  several ──────► shared project listings     ┴─► Found ──► listeners, pools, members, health monitors ┐
//!                                                  subnets, floating IPs, security groups ──────────────┴─► Observation
//! ```
//!
//! Without a spec the load balancer is to be deleted, and only what that needs is read. For a load balancer with a pending
//! operation nothing else is read: its parts change meanwhile, and it gets no plan. Errors with the certificate, the floating IP or
//! the security group of an existing load balancer are recorded, and do not fail the rest.

mod find;
mod floating;
mod parts;
mod placement;
mod reader;
mod security;
mod strays;

use bowline_cloud::{Error, Result};
use bowline_core::{DesiredLoadBalancer, LoadBalancerSpec, Operation, PlanError};
use futures::{StreamExt as _, stream, try_join};

use super::annotations::{LOAD_BALANCER_ID, TABLE};
use super::names::Names;
use super::observation::{ConfigErrors, Features, Found, Observation, PoolState};
use super::plan::{CERTIFICATE, FLOATING_IP, GROUP};
use super::settings::Settings;
use super::status::{self, State};
use super::tracker::Tracker;
use crate::Config;
use crate::api::octavia::{Listener, LoadBalancer};

use find::Lookup;
use parts::MembersOf;
pub(crate) use reader::CloudReader;

pub(super) const OBSERVE: &str = "observe load balancers";

/// Maximum number of Services that are observed concurrently, and of pools for each of them.
const AT_ONCE: usize = 4;

/// Reads the cloud.
#[derive(Clone, Copy)]
pub(super) struct Observer<'a> {
    pub(super) reader: &'a CloudReader<'a>,
    pub(super) config: &'a Config,
    pub(super) tracker: &'a Tracker,
    /// An error while it is unknown: existing load balancers are synced nevertheless.
    pub(super) features: &'a Result<Features>,
}

/// A desired Service and the load balancer that was found for it.
#[derive(Clone, Copy)]
struct Service<'a> {
    names: Names<'a>,
    spec: &'a LoadBalancerSpec,
    settings: &'a Settings,
    balancer: Option<&'a LoadBalancer>,
}

impl Observer<'_> {
    /// Observes each of these, in their order.
    pub(super) async fn observe(&self, all_desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<State>>> {
        let observed = all_desired.iter().map(async |desired| match &desired.spec {
            Some(spec) => self.observe_service(desired, spec).await.map(Some),
            None => self.observe_removal(desired).await,
        });
        stream::iter(observed.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await
    }

    /// Observes all resources of a Service, and those that its spec refers to.
    async fn observe_service(&self, desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<State> {
        let settings = Settings::of(desired, spec, self.config)?;
        let lookup = Lookup {
            names: Names::of(&desired.key),
            id: settings.balancer_id.as_deref(),
            adopt: settings.adopt.as_deref(),
        };
        let found = self.find(lookup).await?;
        if let (Found::Nothing, Err(error)) = (&found, self.features) {
            return Err(error.clone());
        }
        let balancer = found.balancer();
        let pending = self.pending(balancer);
        if pending.is_some() {
            let seen = Observation { found, ..Observation::default() };
            return Ok(State { pending, ..status::of_service(self.config, &settings, seen) });
        }
        let service = Service { names: lookup.names, spec, settings: &settings, balancer };
        let (mut placement, ((), certificate)) = try_join!(
            self.placement(service),
            record_error(balancer.is_some(), CERTIFICATE, self.check_certificate(&settings))
        )?;
        if found == Found::Nothing {
            self.tracker.record_absent(&lookup.names.balancer());
            placement.vip_holder = self.vip_holder(service, &placement).await?;
        }
        let ((listeners, pools), strays, ((floating, warnings), no_floating), (security, no_security)) = try_join!(
            self.parts(balancer, MembersOf::Service(lookup.names)),
            self.strays(&lookup.names, &found),
            record_error(balancer.is_some(), FLOATING_IP, self.floating(service)),
            record_error(balancer.is_some(), GROUP, self.security(service, &placement))
        )?;
        let features = self.features_with(balancer, &listeners, &pools);
        let errors = ConfigErrors { certificate, floating: no_floating, security: no_security };
        let seen =
            Observation { features, found, listeners, pools, strays, floating, security, placement, warnings, errors };
        Ok(status::of_service(self.config, &settings, seen))
    }

    /// Observes what is left of a Service; `None` if that is nothing.
    async fn observe_removal(&self, desired: &DesiredLoadBalancer) -> Result<Option<State>> {
        let names = Names::of(&desired.key);
        let lookup = Lookup { names, id: TABLE.reader(&desired.annotations).get(&LOAD_BALANCER_ID), adopt: None };
        let found = self.find_for_removal(lookup).await?;
        let balancer = found.balancer();
        let pending = self.pending(balancer);
        if pending.is_some() {
            let seen = Observation { found, ..Observation::default() };
            return Ok(status::of_removal(self.config, desired, seen).map(|state| State { pending, ..state }));
        }
        let ((listeners, pools), floating, security) = try_join!(
            self.parts(balancer, balancer.map_or(MembersOf::NoOwner, |balancer| MembersOf::Removed(desired, balancer))),
            self.floating_to_remove(&names, balancer),
            self.security_to_remove(&names, balancer.is_some())
        )?;
        let features = self.features_with(balancer, &listeners, &pools);
        let seen = Observation { features, found, listeners, pools, floating, security, ..Observation::default() };
        Ok(status::of_removal(self.config, desired, seen))
    }
}

impl Observer<'_> {
    /// Returns the pending operation of the observed load balancer.
    fn pending(&self, balancer: Option<&LoadBalancer>) -> Option<Operation> {
        balancer.inspect(|balancer| self.tracker.record(balancer)).and_then(|balancer| self.tracker.operation(balancer))
    }

    fn features_with(&self, balancer: Option<&LoadBalancer>, listeners: &[Listener], pools: &[PoolState]) -> Features {
        let provider = &self.config.load_balancer.provider;
        let inferred = || balancer.map(|balancer| Features::shown_by(balancer, listeners, pools, provider));
        self.features.as_ref().map_or_else(|_| inferred().unwrap_or_default(), |features| *features)
    }
}

/// Records an error instead of failing if there is a load balancer, which has nodes to serve meanwhile.
async fn record_error<T: Default>(
    has_balancer: bool,
    subject: &str,
    read: impl Future<Output = Result<T>>,
) -> Result<(T, Option<PlanError>)> {
    match read.await {
        Ok(seen) => Ok((seen, None)),
        Err(error) if has_balancer => Ok((T::default(), Some(error.to_plan_error(subject)))),
        Err(error) => Err(error),
    }
}

fn during_observe(error: Error) -> Error {
    error.during(OBSERVE)
}
