//! Plans the steps from the observed to the desired state. Nothing here makes a call.
//!
//! ```text
//!  no spec ──► removal, or release if the load balancer is retained
//!  spec ──► not found: create ──────────────────────────────────────────────────┐
//!           found: ACTIVE? own, or may it be shared? rename, adopt              │
//!             └─► for each port listener, pool, members, monitor; the rest ─────┴─► security group ──► floating IP ──► tag
//!                                                                                     ──► stray listeners
//! ```
//!
//! Steps that nodes depend on come first. Errors with the certificate, the security group or the floating IP of an existing load
//! balancer are reported after all steps; for a new one, they fail the plan.
//!
//! Octavia rejects requests that are out of order (a pool without its listener, a second listener on a port), and accepts one
//! change of a load balancer at a time.

mod create;
mod draft;
mod floating;
mod listeners;
mod members;
mod monitors;
mod ownership;
mod pools;
mod release;
mod removal;
mod rename;
mod security;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{DesiredLoadBalancer, IpFamily, LoadBalancerSpec, Plan};
use serde_json::json;

use super::annotations::LOAD_BALANCER_ID;
use super::change::{BalancerRef, Payload, TagChange};
use super::names::Names;
use super::observation::{Found, Observation};
use super::settings::Settings;
use super::tracker::{ERROR, check_active};
use crate::Config;
use crate::api::octavia::{LOAD_BALANCERS, LoadBalancer};

use draft::{Draft, field};
pub(super) use floating::{FLOATING_IP, in_use};
pub(super) use listeners::CERTIFICATE;
pub(super) use ownership::check_sharing_limit;
pub(super) use removal::{is_created_for_service, is_deleted_with, other_service};
pub(super) use security::GROUP;

/// Operation in errors.
pub(super) const PLAN: &str = "plan a load balancer";

/// Inputs of a plan.
pub(super) struct Context<'a> {
    pub(super) desired: &'a DesiredLoadBalancer,
    pub(super) spec: &'a LoadBalancerSpec,
    pub(super) config: &'a Config,
    pub(super) settings: &'a Settings,
    pub(super) names: Names<'a>,
    /// Observed state after the steps so far.
    pub(super) seen: &'a Observation,
    /// The load balancer; `None` if a step creates it.
    pub(super) balancer: Option<&'a LoadBalancer>,
    /// The load balancer belongs to the Service, even if others use it.
    pub(super) owner: bool,
}

impl Context<'_> {
    /// Returns the load balancer for steps that need it.
    pub(super) fn balancer_ref(&self) -> BalancerRef {
        match self.balancer {
            Some(balancer) => BalancerRef::Id(balancer.id.clone()),
            None => BalancerRef::Name(self.names.balancer()),
        }
    }

    /// Returns the IP families of the load balancer's addresses, before it has any that of the Service.
    pub(super) fn families(&self) -> Vec<IpFamily> {
        let seen = self.balancer.map(LoadBalancer::families).unwrap_or_default();
        if seen.is_empty() { vec![self.settings.family.unwrap_or(IpFamily::IPv4)] } else { seen }
    }

    /// Returns the subnet of members; empty if it is not known yet.
    pub(super) fn member_subnet_id(&self) -> &str {
        self.seen.placement.member_subnet(self.balancer).unwrap_or_default()
    }
}

/// Plans the steps from the observed to the desired state.
pub(super) fn plan(config: &Config, desired: &DesiredLoadBalancer, seen: Observation) -> Result<Plan<Payload>> {
    let mut draft = Draft::default();
    let locks = locks(desired, &seen);
    match &desired.spec {
        Some(spec) => build(config, desired, spec, seen, &mut draft)?,
        None if desired.settings.policy == DeletionPolicy::Retain => release::steps(desired, &seen, &mut draft)?,
        None => removal::steps(config, desired, &seen, &mut draft)?,
    }
    Ok(Plan { locks, ..draft.into_plan() })
}

/// Returns the load balancers that are written. Another Service may use each of them and find it by its ID, while the Service that
/// creates one knows only its name.
fn locks(desired: &DesiredLoadBalancer, seen: &Observation) -> BTreeSet<String> {
    let existing = seen.found.balancer().into_iter().chain(seen.strays.iter().map(|stray| &stray.balancer));
    let marks = existing.flat_map(|balancer| [balancer.id.clone(), balancer.name.clone()]);
    marks.chain([Names::of(&desired.key).balancer()]).map(|mark| format!("load balancer {mark}")).collect()
}

fn build(
    config: &Config,
    desired: &DesiredLoadBalancer,
    spec: &LoadBalancerSpec,
    mut seen: Observation,
    draft: &mut Draft,
) -> Result<()> {
    let settings = Settings::of(desired, spec, config)?;
    draft.warn(std::mem::take(&mut seen.warnings));
    draft.warn(settings.warnings(seen.features, config));
    let names = Names::of(&desired.key);
    let owner = match &seen.found {
        Found::Missing(id) => return Err(missing(id)),
        Found::Several(ids) => return Err(several(names, ids)),
        Found::Nothing => check_creatable(&settings, spec).map(|()| true)?,
        Found::One { balancer, fresh: true, .. } if balancer.provisioning_status == ERROR => {
            removal::discard(balancer, draft);
            return Ok(());
        }
        Found::One { balancer, .. } => {
            check_active(PLAN, balancer)?;
            ownership::settle(config, &settings, names, &mut seen, draft)?
        }
    };
    let balancer = seen.found.balancer();
    let context = Context { desired, spec, config, settings: &settings, names, seen: &seen, balancer, owner };
    draft.balancer = Some(context.balancer_ref());
    match balancer {
        None => create::steps(&context, draft)?,
        Some(_) => listeners::steps(&context, draft)?,
    }
    let behind = security::steps(&context, draft);
    let in_front = floating::steps(&context, draft);
    // A Service that must not use the load balancer is not tagged there.
    if draft.fails() {
        return Ok(());
    }
    tag(&context, draft);
    for stray in &seen.strays {
        removal::leave_stray(&names.balancer(), stray, draft);
    }
    let certificate = seen.errors.certificate.clone().map_or(Ok(()), |error| Err(error.into()));
    let outcomes =
        [(listeners::CERTIFICATE, certificate), (security::GROUP, behind), (floating::FLOATING_IP, in_front)];
    report_errors(&context, outcomes, draft)
}

/// Reports errors after all steps that are possible: an existing load balancer must not send traffic to deleted nodes. Without one,
/// the first error fails the plan.
fn report_errors(context: &Context<'_>, outcomes: [(&str, Result<()>); 3], draft: &mut Draft) -> Result<()> {
    let mut errors = Vec::new();
    for (kind, outcome) in outcomes {
        match outcome {
            Err(error) if context.balancer.is_none() => return Err(error),
            Err(error) => errors.push(error.to_plan_error(kind)),
            Ok(()) => {}
        }
    }
    // The first error decides about the retry, and must not keep the others from being retried.
    errors.sort_by_key(|error| error.retry == Retry::Never);
    draft.fail(errors);
    Ok(())
}

/// Adds the tag that marks the load balancer as serving the Service, last of all.
fn tag(context: &Context<'_>, draft: &mut Draft) {
    let Some(balancer) = context.balancer.filter(|_| context.seen.features.tags) else { return };
    let name = context.names.balancer();
    if balancer.tags.contains(&name) {
        return;
    }
    let changes = vec![field("tags", None, Some(name.clone()))];
    let tags = TagChange::adding(name);
    draft.update_tagged(LOAD_BALANCERS.resource, &balancer.id, &balancer.name, changes, json!({}), tags);
}

/// Fails if no load balancer can be created.
fn check_creatable(settings: &Settings, spec: &LoadBalancerSpec) -> Result<()> {
    if let Some(adopt) = &settings.adopt {
        let message = format!(
            "the load balancer {adopt:?} to adopt does not exist; name an existing one, or remove the annotation"
        );
        return Err(Error::new(ErrorKind::NotFound, PLAN, message));
    }
    let no_targets = spec.targets.iter().all(|target| target.draining);
    if no_targets && !settings.selects_nodes {
        let message = "there are no nodes for a load balancer; it is created as soon as there is one";
        return Err(Error::new(ErrorKind::NotFound, PLAN, message));
    }
    Ok(())
}

fn missing(id: &str) -> Error {
    let message = format!(
        "the load balancer {id} of the annotation {} does not exist; correct the annotation, or remove it to get a new one",
        LOAD_BALANCER_ID.key
    );
    Error::new(ErrorKind::NotFound, PLAN, message)
}

/// Ambiguous names are not resolved by guessing.
fn several(names: Names<'_>, ids: &[String]) -> Error {
    let message = format!(
        "found more than one load balancer {} ({}), and it is unknown which one belongs to the Service; delete the others, or set the \
         ID in the annotation {}",
        names.balancer(),
        ids.join(", "),
        LOAD_BALANCER_ID.key
    );
    Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff)
}
