//! From what there is to what is wished, as steps. Nothing here makes a call.
//!
//! ```text
//!  no spec ──► removal, or release where the balancer is to stay
//!  spec ──► nothing there: create ──────────────────────────────────────────────┐
//!           something: at rest? ours, or may it be shared? rename, adopt        │
//!             └─► for each port listener, pool, members, monitor; left-overs ───┴─► security group ──► floating IP ──► tag
//!                                                                                     ──► listeners left on others' balancers
//! ```
//!
//! What nodes need comes first. What is wrong with the certificate, the security group or the floating IP of a balancer that is there
//! is told last, and without one nothing is begun.
//!
//! Octavia refuses whatever comes out of order (a pool without its listener, a second listener on a port), and takes one change
//! of a balancer at a time.

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
use bowline_core::{DesiredLoadBalancer, IpFamily, LoadBalancerSpec, Plan, Verb};
use serde_json::json;

use super::annotations::LOAD_BALANCER_ID;
use super::change::{BalancerRef, Change, Payload, Retag};
use super::names::Names;
use super::observation::{Found, Observation};
use super::settings::Settings;
use super::waiting::{ERROR, check_at_rest};
use crate::Config;
use crate::api::octavia::LoadBalancer;

use draft::{Draft, field};
pub(super) use floating::{FLOATING_IP, taken};
pub(super) use listeners::CERTIFICATE;
pub(super) use ownership::check_room;
pub(super) use removal::{goes_with, is_made_for_service, sharer};
pub(super) use security::GROUP;

/// What is being done, in errors.
pub(super) const PLAN: &str = "plan a balancer";

/// All that steps are made from.
pub(super) struct Context<'a> {
    pub(super) desired: &'a DesiredLoadBalancer,
    pub(super) spec: &'a LoadBalancerSpec,
    pub(super) config: &'a Config,
    pub(super) settings: &'a Settings,
    pub(super) names: Names<'a>,
    /// As it will be once the steps so far are done.
    pub(super) seen: &'a Observation,
    /// The balancer; `None` if a step makes it.
    pub(super) balancer: Option<&'a LoadBalancer>,
    /// It is the Service's own, whoever else uses it.
    pub(super) owner: bool,
}

impl Context<'_> {
    /// The balancer, for steps that need it.
    pub(super) fn balancer_ref(&self) -> BalancerRef {
        match self.balancer {
            Some(balancer) => BalancerRef::Id(balancer.id.clone()),
            None => BalancerRef::Name(self.names.balancer()),
        }
    }

    /// The families of the balancer's addresses; before it has any, that of the Service.
    pub(super) fn families(&self) -> Vec<IpFamily> {
        let seen = self.balancer.map(LoadBalancer::families).unwrap_or_default();
        if seen.is_empty() { vec![self.settings.family.unwrap_or(IpFamily::IPv4)] } else { seen }
    }

    /// Where members are; empty if nobody knows yet.
    pub(super) fn member_subnet_id(&self) -> &str {
        self.seen.places.member_subnet(self.balancer).unwrap_or_default()
    }
}

/// How to get from what is seen to what is wished.
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

/// The load balancers that are written. Another Service may use each of them, too, and find it by its ID, while the Service that
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
        Found::Nothing => check_way(&settings, spec).map(|()| true)?,
        Found::One { balancer, fresh: true, .. } if balancer.provisioning_status == ERROR => {
            removal::discard(balancer, draft);
            return Ok(());
        }
        Found::One { balancer, .. } => {
            check_at_rest(PLAN, balancer)?;
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
    // A Service that may not use the load balancer as it wants is not tagged there.
    if draft.fails() {
        return Ok(());
    }
    tag(&context, draft);
    for stray in &seen.strays {
        removal::leave_stray(&names.balancer(), stray, draft);
    }
    let certificate = seen.errors.certificate.clone().map_or(Ok(()), |problem| Err(problem.into()));
    let outcomes =
        [(listeners::CERTIFICATE, certificate), (security::GROUP, behind), (floating::FLOATING_IP, in_front)];
    tell(&context, outcomes, draft)
}

/// What is wrong is told after all that can be done in spite of it: a balancer that is there must not send traffic to nodes that
/// are gone. Without one, nothing is begun.
fn tell(context: &Context<'_>, outcomes: [(&str, Result<()>); 3], draft: &mut Draft) -> Result<()> {
    let mut errors = Vec::new();
    for (kind, outcome) in outcomes {
        match outcome {
            Err(error) if context.balancer.is_none() => return Err(error),
            Err(error) => errors.push(error.about(kind)),
            Ok(()) => {}
        }
    }
    // The first one is the answer, and must not keep the others from being tried again.
    errors.sort_by_key(|problem| problem.retry == Retry::Never);
    draft.fail(errors);
    Ok(())
}

/// The last thing that says that the Service is served by this balancer.
fn tag(context: &Context<'_>, draft: &mut Draft) {
    let Some(balancer) = context.balancer.filter(|_| context.seen.features.tags) else { return };
    let name = context.names.balancer();
    if balancer.tags.contains(&name) {
        return;
    }
    let changes = vec![field("tags", None, Some(name.clone()))];
    let tags = Retag { add: vec![name], remove: Vec::new() };
    let change = Change::UpdateLoadBalancer { body: json!({}), tags };
    draft.octavia(Verb::Update, "load balancer", &balancer.name, changes, change);
}

/// Whether a new balancer can be made.
fn check_way(settings: &Settings, spec: &LoadBalancerSpec) -> Result<()> {
    if let Some(adopt) = &settings.adopt {
        let message =
            format!("there is no load balancer {adopt:?} to adopt; name one that exists, or remove the annotation");
        return Err(Error::new(ErrorKind::NotFound, PLAN, message));
    }
    let nobody = spec.targets.iter().all(|target| target.draining);
    if nobody && !settings.selects_nodes {
        let message = "there are no nodes for a load balancer; it is made as soon as there is one";
        return Err(Error::new(ErrorKind::NotFound, PLAN, message));
    }
    Ok(())
}

fn missing(id: &str) -> Error {
    let message = format!(
        "there is no load balancer {id}, which the annotation {} names; correct the annotation, or remove it to get a new one",
        LOAD_BALANCER_ID.key
    );
    Error::new(ErrorKind::NotFound, PLAN, message)
}

/// Nobody is asked to guess.
fn several(names: Names<'_>, ids: &[String]) -> Error {
    let message = format!(
        "there is more than one load balancer {} ({}), and nobody can tell which one is the Service's; delete the others, or name \
         it in the annotation {}",
        names.balancer(),
        ids.join(", "),
        LOAD_BALANCER_ID.key
    );
    Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff)
}
