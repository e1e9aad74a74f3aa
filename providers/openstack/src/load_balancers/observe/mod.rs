//! Looks at what the cloud has for Services, and at what their wishes name.
//!
//! ```text
//!  one wish ──► asked narrowly: by ID, by name     ┐
//!  several ───► listings of the project, shared    ┴─► Found ──► listeners, pools, members, monitors ┐
//!                                                        places, floating IPs, security groups ──────┴─► Observation
//! ```
//!
//! A wish without spec is about removal, and only what that needs is looked at. Of a balancer that Octavia is at work on, nothing
//! else is looked at: its parts come and go meanwhile, and there is no plan for it anyway. What is wrong with the certificate, the
//! floating IP or the security group of a balancer that is there is noted, and keeps nobody from looking at the rest.

mod find;
mod floating;
mod parts;
mod places;
mod security;
mod sight;
mod strays;

use bowline_cloud::{Error, Result};
use bowline_core::{DesiredLoadBalancer, LoadBalancerSpec, Operation, PlanError};
use futures::{StreamExt as _, stream, try_join};

use super::annotations::{LOAD_BALANCER_ID, TABLE};
use super::names::Names;
use super::observation::{ConfigErrors, Features, Found, Observation, SeenPool};
use super::plan::{CERTIFICATE, FLOATING_IP, GROUP};
use super::settings::Settings;
use super::status::{self, State};
use super::waiting::Waiting;
use crate::Config;
use crate::api::octavia::{Listener, LoadBalancer};

use find::Marks;
use parts::MembersOf;
pub(crate) use sight::Sight;

pub(super) const OBSERVE: &str = "observe balancers";

/// How many wishes are looked at at the same time, and for each of them how many of its pools.
const AT_ONCE: usize = 4;

/// Looks at the cloud.
#[derive(Clone, Copy)]
pub(super) struct Observer<'a> {
    pub(super) sight: &'a Sight<'a>,
    pub(super) config: &'a Config,
    pub(super) waiting: &'a Waiting,
    /// An error while nobody knows: what is there already is looked after all the same.
    pub(super) features: &'a Result<Features>,
}

/// A Service that is to be served, and the balancer that was found for it.
#[derive(Clone, Copy)]
struct Service<'a> {
    names: Names<'a>,
    spec: &'a LoadBalancerSpec,
    settings: &'a Settings,
    balancer: Option<&'a LoadBalancer>,
}

impl Observer<'_> {
    /// What there is for each of these, in their order.
    pub(super) async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<State>>> {
        let looks: Vec<_> = wanted.iter().map(|desired| self.look(desired)).collect();
        stream::iter(looks).buffered(AT_ONCE).collect().await
    }

    async fn look(&self, desired: &DesiredLoadBalancer) -> Result<Option<State>> {
        match &desired.spec {
            Some(spec) => self.look_for_service(desired, spec).await.map(Some),
            None => self.look_for_removal(desired).await,
        }
    }

    /// All that there is, and all that the wish names.
    async fn look_for_service(&self, desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<State> {
        let settings = Settings::of(desired, spec, self.config)?;
        let marks = Marks {
            names: Names::of(&desired.key),
            id: settings.balancer_id.as_deref(),
            adopt: settings.adopt.as_deref(),
        };
        let found = self.find(marks).await?;
        if let (Found::Nothing, Err(error)) = (&found, self.features) {
            return Err(error.clone());
        }
        let balancer = found.balancer();
        let pending = self.pending(balancer);
        if pending.is_some() {
            let seen = Observation { found, ..Observation::default() };
            return Ok(State { pending, ..status::of_service(self.config, &settings, seen) });
        }
        let service = Service { names: marks.names, spec, settings: &settings, balancer };
        let (mut places, ((), certificate)) = try_join!(
            self.places(service),
            unless_failed(balancer.is_some(), CERTIFICATE, self.check_certificate(&settings))
        )?;
        if found == Found::Nothing {
            self.waiting.missed(&marks.names.balancer());
            places.vip_holder = self.vip_holder(service, &places).await?;
        }
        let ((listeners, pools), strays, ((floating, warnings), no_floating), (security, no_security)) = try_join!(
            self.parts(balancer, MembersOf::Service(marks.names)),
            self.strays(&marks.names, &found),
            unless_failed(balancer.is_some(), FLOATING_IP, self.floating(service)),
            unless_failed(balancer.is_some(), GROUP, self.security(service, &places))
        )?;
        let features = self.features_with(balancer, &listeners, &pools);
        let errors = ConfigErrors { certificate, floating: no_floating, security: no_security };
        let seen =
            Observation { features, found, listeners, pools, strays, floating, security, places, warnings, errors };
        Ok(status::of_service(self.config, &settings, seen))
    }

    /// What is left; `None` if that is nothing.
    async fn look_for_removal(&self, desired: &DesiredLoadBalancer) -> Result<Option<State>> {
        let names = Names::of(&desired.key);
        let marks = Marks { names, id: TABLE.reader(&desired.annotations).get(&LOAD_BALANCER_ID), adopt: None };
        let found = self.find_for_removal(marks).await?;
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
    /// What Octavia is doing to the load balancer that was looked at.
    fn pending(&self, balancer: Option<&LoadBalancer>) -> Option<Operation> {
        balancer.inspect(|balancer| self.waiting.saw(balancer)).and_then(|balancer| self.waiting.operation(balancer))
    }

    fn features_with(&self, balancer: Option<&LoadBalancer>, listeners: &[Listener], pools: &[SeenPool]) -> Features {
        match (self.features, balancer) {
            (Ok(features), _) => *features,
            (Err(_), Some(balancer)) => {
                Features::shown_by(balancer, listeners, pools, &self.config.load_balancer.provider)
            }
            (Err(_), None) => Features::default(),
        }
    }
}

/// Result of a look. An error can be reported later where there is a balancer, which has nodes to serve meanwhile.
async fn unless_failed<T: Default>(
    has_balancer: bool,
    subject: &str,
    look: impl Future<Output = Result<T>>,
) -> Result<(T, Option<PlanError>)> {
    match look.await {
        Ok(seen) => Ok((seen, None)),
        Err(error) if has_balancer => Ok((T::default(), Some(error.about(subject)))),
        Err(error) => Err(error),
    }
}

/// In the words of the contract.
fn told(error: Error) -> Error {
    error.during(OBSERVE)
}
