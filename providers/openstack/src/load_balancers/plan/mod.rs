//! From what there is to what is wished, as steps. Nothing here makes a call.
//!
//! ```text
//!  no spec ──► removal, or release where the balancer is to stay
//!  spec ──► nothing there: create ──────────────────────────────────────────────┐
//!           something: at rest? ours, or may it be shared? rename, adopt        │
//!             └─► for each port listener, pool, members, monitor; left-overs ───┴─► floating IP ──► tag ──► security group
//! ```
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

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{LoadBalancerSpec, LoadBalancerWish, Plan, Verb};
use serde_json::json;

use super::annotations::LOAD_BALANCER_ID;
use super::change::{BalancerRef, Change, Retag};
use super::names::Names;
use super::observation::{Found, Observation};
use super::settings::Settings;
use super::waiting::{ERROR, check_at_rest};
use crate::Config;
use crate::api::octavia::LoadBalancer;

pub(super) use draft::{Draft, field};
pub(super) use floating::taken;
pub(super) use ownership::check_room;
pub(super) use removal::{goes_with, sharer};

/// What is being done, in errors.
pub(super) const PLAN: &str = "plan a balancer";

/// All that steps are made from.
pub(super) struct Context<'a> {
    pub(super) wish: &'a LoadBalancerWish,
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

    /// Where members are; empty if nobody knows yet.
    pub(super) fn member_subnet_id(&self) -> &str {
        let of_balancer = self.balancer.map(|balancer| balancer.vip_subnet_id.as_str()).unwrap_or_default();
        Some(self.seen.places.member_subnet_id.as_str()).filter(|id| !id.is_empty()).unwrap_or(of_balancer)
    }
}

/// How to get from what is seen to what is wished.
pub(super) fn plan(config: &Config, wish: &LoadBalancerWish, seen: Observation) -> Result<Plan> {
    let mut draft = Draft::default();
    match &wish.spec {
        Some(spec) => build(config, wish, spec, seen, &mut draft)?,
        None if wish.settings.policy == DeletionPolicy::Retain => release::steps(wish, &seen, &mut draft)?,
        None => removal::steps(config, wish, &seen, &mut draft)?,
    }
    Ok(draft.into_plan())
}

fn build(
    config: &Config,
    wish: &LoadBalancerWish,
    spec: &LoadBalancerSpec,
    mut seen: Observation,
    draft: &mut Draft,
) -> Result<()> {
    let settings = Settings::of(wish, spec, config)?;
    draft.warn(std::mem::take(&mut seen.notices));
    draft.warn(settings.warnings(seen.features, config));
    let names = Names::of(&wish.key);
    let owner = match &seen.found {
        Found::Missing(id) => return Err(missing(id)),
        Found::Several(ids) => return Err(several(&names.balancer(), ids)),
        Found::Nothing => check_way(&settings, spec).map(|()| true)?,
        Found::One { balancer, fresh: true, .. } if balancer.provisioning_status == ERROR => {
            removal::discard(config, balancer, draft);
            return Ok(());
        }
        Found::One { balancer, .. } => {
            check_at_rest(PLAN, balancer, seen.wait)?;
            ownership::settle(config, &settings, names, &mut seen, draft)?
        }
    };
    let balancer = seen.balancer();
    let context = Context { wish, spec, config, settings: &settings, names, seen: &seen, balancer, owner };
    draft.balancer = Some(context.balancer_ref());
    match balancer {
        None => create::steps(&context, draft)?,
        Some(_) => listeners::steps(&context, draft)?,
    }
    floating::steps(&context, draft)?;
    tag(&context, draft);
    security::steps(&context, draft)
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
    let change = Change::UpdateLoadBalancer { id: balancer.id.clone(), body: json!({}), tags };
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

fn several(name: &str, ids: &[String]) -> Error {
    let message = format!(
        "there is more than one load balancer {name} ({}), and nobody can tell which one is the Service's; delete the others, or name          it in the annotation {}",
        ids.join(", "),
        LOAD_BALANCER_ID.key
    );
    Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff)
}
