//! How the balancer of a Service goes.
//!
//! ```text
//!  made for a Service, and used by no other ──► floating IP (if it was made for one, and is not to be kept)
//!                                               ──► the whole balancer at once, or one part after the other
//!  shared, or made by hand ──────────────────► the Service's listeners, and its tag
//!  either way ───────────────────────────────► its security group
//! ```

use bowline_cloud::Result;
use bowline_core::{DesiredLoadBalancer, Verb};

use super::super::annotations::{KEEP_FLOATING_IP, TABLE};
use super::super::change::{BalancerRef, Change, Sole};
use super::super::names::{Names, SERVICE_PREFIX};
use super::super::observation::{Found, Observation, SeenPool, Stray};
use super::super::waiting::{ERROR, check_at_rest};
use super::{Draft, PLAN, field, floating, ownership, security, several};
use crate::Config;
use crate::api::octavia::{HEALTH_MONITORS, LISTENERS, Listener, LoadBalancer, POOLS};

const BALANCER: &str = "load balancer";

pub(super) fn steps(
    config: &Config,
    desired: &DesiredLoadBalancer,
    seen: &Observation,
    draft: &mut Draft,
) -> Result<()> {
    match &seen.found {
        Found::Nothing | Found::Missing(_) => {}
        Found::Several(ids) => return Err(several(Names::of(&desired.key), ids)),
        Found::One { balancer, .. } if goes_with(desired, balancer, &seen.listeners) => {
            delete(config, desired, balancer, seen, draft)?
        }
        Found::One { balancer, .. } => leave(desired, balancer, seen, draft)?,
    }
    for leftover in &seen.floating.leftovers {
        floating::delete_leftover(leftover, draft);
    }
    security::removal(&seen.security, draft);
    Ok(())
}

/// The balancer goes with the Service: it was made for one, this Service uses it, and no other does. A Service may name the
/// balancer of another and never have come to use it.
pub(in super::super) fn goes_with(
    desired: &DesiredLoadBalancer,
    balancer: &LoadBalancer,
    listeners: &[Listener],
) -> bool {
    let own = Names::of(&desired.key).balancer();
    let is_used = balancer.name == own || balancer.tags.contains(&own);
    is_made_for_service(balancer) && is_used && sharer(&own, balancer, listeners).is_none()
}

/// It was made for a Service, and goes with the last one that uses it.
pub(in super::super) fn is_made_for_service(balancer: &LoadBalancer) -> bool {
    balancer.name.starts_with(SERVICE_PREFIX)
}

/// The tag of another Service that uses the balancer.
pub(in super::super) fn sharer<'a>(
    own: &str,
    balancer: &'a LoadBalancer,
    listeners: &'a [Listener],
) -> Option<&'a String> {
    ownership::service_tags(balancer, listeners).find(|tag| *tag != own)
}

/// One that has failed before it was ever in service. Nothing of it can be changed any more, so it goes as a whole.
pub(super) fn discard(balancer: &LoadBalancer, draft: &mut Draft) {
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    let changes = vec![field("provisioning_status", Some(ERROR.to_owned()), None)];
    draft.octavia(Verb::Delete, BALANCER, &balancer.name, changes, Change::DiscardLoadBalancer);
}

// ---- the whole of it

fn delete(
    config: &Config,
    desired: &DesiredLoadBalancer,
    balancer: &LoadBalancer,
    seen: &Observation,
    draft: &mut Draft,
) -> Result<()> {
    let has_failed = balancer.provisioning_status == ERROR;
    if !has_failed {
        check_at_rest(PLAN, balancer)?;
    }
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    let keep = TABLE.reader(&desired.annotations).get(&KEEP_FLOATING_IP).unwrap_or_default();
    let own = Names::of(&desired.key).balancer();
    if let Some(attached) = seen.floating.attached.as_ref().filter(|attached| floating::is_ours(attached) && !keep) {
        floating::delete_with(attached, Sole { balancer: balancer.id.clone(), tag: own.clone() }, draft);
    }
    // One that has failed can only go as a whole.
    let cascade = config.load_balancer.cascade_delete || has_failed;
    if !cascade {
        let all: Vec<_> = seen.listeners.iter().collect();
        delete_parts(&all, &seen.pools, draft);
        let serves_nobody = |pool: &&SeenPool| pool.pool.listeners.is_empty();
        seen.pools.iter().filter(serves_nobody).for_each(|pool| delete_pool(pool, draft));
    }
    let change = Change::DeleteLoadBalancer { cascade, tag: own };
    draft.octavia(Verb::Delete, BALANCER, &balancer.name, Vec::new(), change);
    Ok(())
}

/// Monitors first, as upstream does, then each listener after its pool.
fn delete_parts(listeners: &[&Listener], pools: &[SeenPool], draft: &mut Draft) {
    let is_served = |pool: &SeenPool| {
        // A pool that somebody else's listener uses as well is not this Service's alone.
        let all_go = pool.pool.listeners.iter().all(|served| listeners.iter().any(|listener| listener.id == served.id));
        !pool.pool.listeners.is_empty() && all_go
    };
    let going: Vec<&SeenPool> = pools.iter().filter(|pool| is_served(pool)).collect();
    for monitor in going.iter().filter_map(|pool| pool.monitor.as_ref()) {
        draft.delete(HEALTH_MONITORS.resource, &monitor.id, &monitor.name, Vec::new());
    }
    for listener in listeners {
        let of_listener = |pool: &&&SeenPool| pool.pool.listeners.first().is_some_and(|first| first.id == listener.id);
        going.iter().filter(of_listener).for_each(|pool| delete_pool(pool, draft));
        draft.delete(LISTENERS.resource, &listener.id, &listener.name, Vec::new());
    }
}

fn delete_pool(pool: &SeenPool, draft: &mut Draft) {
    draft.delete(POOLS.resource, &pool.pool.id, &pool.pool.name, Vec::new());
}

// ---- the Service's part of it

fn leave(desired: &DesiredLoadBalancer, balancer: &LoadBalancer, seen: &Observation, draft: &mut Draft) -> Result<()> {
    if balancer.is_at_work() {
        // Nobody has looked at its listeners: one of them may be the Service's, and be just in the making.
        check_at_rest(PLAN, balancer)?;
    }
    let own = Names::of(&desired.key).balancer();
    let listeners = listeners_of(&own, &seen.listeners);
    let is_tagged = balancer.tags.contains(&own);
    if listeners.is_empty() && !is_tagged {
        return Ok(());
    }
    check_at_rest(PLAN, balancer)?;
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    delete_parts(&listeners, &seen.pools, draft);
    if is_tagged {
        let changes = vec![field("tags", Some(own.clone()), None)];
        draft.octavia(Verb::Update, BALANCER, &balancer.name, changes, Change::LeaveLoadBalancer { tag: own });
    }
    Ok(())
}

/// Its listeners on a balancer that another one serves it instead of.
pub(super) fn leave_stray(own: &str, stray: &Stray, draft: &mut Draft) {
    draft.balancer = Some(BalancerRef::Id(stray.balancer.id.clone()));
    delete_parts(&listeners_of(own, &stray.listeners), &stray.pools, draft);
}

fn listeners_of<'a>(own: &str, listeners: &'a [Listener]) -> Vec<&'a Listener> {
    listeners.iter().filter(|listener| listener.tags.iter().any(|tag| tag == own)).collect()
}
