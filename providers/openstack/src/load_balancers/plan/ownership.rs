//! Ownership of a load balancer, and whether the Service may use it.

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use serde_json::json;

use super::super::change::{BalancerRef, Joining, TagChange};
use super::super::names::{Names, SERVICE_PREFIX};
use super::super::observation::{Found, Observation};
use super::super::settings::Settings;
use super::{Draft, PLAN, field, rename};
use crate::Config;
use crate::api::octavia::{LOAD_BALANCERS, Listener, LoadBalancer};

/// Returns whether the Service owns the load balancer. Plans adoption and renaming, and fails if the Service must not use it.
pub(super) fn settle(
    config: &Config,
    settings: &Settings,
    names: Names<'_>,
    seen: &mut Observation,
    draft: &mut Draft,
) -> Result<bool> {
    let Found::One { balancer, by_id, adopted, .. } = &mut seen.found else { return Ok(true) };
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    if *adopted {
        adopt(names, seen.features.tags, balancer, draft)?;
        return Ok(true);
    }
    if !*by_id {
        return Ok(true);
    }
    rename::steps(names, seen, draft);
    let Some(balancer) = seen.found.balancer() else { return Ok(true) };
    // upstream: one of the legacy name counts as another Service's as soon as the annotation has its ID.
    if names.is_balancer(&balancer.name) {
        return Ok(true);
    }
    check_sharing(config, settings, names, seen, balancer)?;
    Ok(false)
}

/// Sets the Service's name, description and tag.
fn adopt(names: Names<'_>, with_tags: bool, balancer: &mut LoadBalancer, draft: &mut Draft) -> Result<()> {
    let own = names.balancer();
    let marks = balancer.tags.iter().chain([&balancer.name]);
    if let Some(owner) = marks.into_iter().find(|mark| mark.starts_with(SERVICE_PREFIX) && **mark != own) {
        let message =
            format!("load balancer {} ({}) cannot be adopted: it belongs to {owner}", balancer.name, balancer.id);
        return Err(Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff));
    }
    let mut changes = vec![field("name", Some(balancer.name.clone()), Some(own.clone()))];
    let body = json!({"name": own, "description": names.balancer_description()});
    let mut tags = TagChange::default();
    if with_tags {
        tags.add.push(own.clone());
        changes.push(field("tags", None, Some(own.clone())));
    }
    let then = tags.applied_to(&balancer.tags);
    draft.update_tagged(LOAD_BALANCERS.resource, &balancer.id, &balancer.name, changes, body, tags);
    (balancer.name, balancer.tags) = (own, then);
    Ok(())
}

/// Checks that one more Service may use the load balancer, or that this one does already. Tags of listeners count, because they are
/// set first and several Services may join concurrently.
pub(in super::super) fn check_sharing_limit(
    operation: &str,
    joining: &Joining,
    balancer: &LoadBalancer,
    listeners: &[Listener],
) -> Result<()> {
    let Joining { tag: own, max } = joining;
    let sharers: BTreeSet<_> = service_tags(balancer, listeners).collect();
    let is_full = i64::try_from(sharers.len()).is_ok_and(|sharers| sharers + 1 > *max);
    if sharers.contains(own) || !is_full {
        return Ok(());
    }
    let (id, sharers) = (&balancer.id, sharers.len());
    let message = format!(
        "load balancer {id} already shared with {sharers} Services; max-shared-lb in [LoadBalancer] allows {max} in all"
    );
    Err(Error::new(ErrorKind::InvalidConfig, operation, message).retry(Retry::Backoff))
}

/// Returns the tags of all Services that use a load balancer. Listeners are tagged first, the load balancer last.
pub(super) fn service_tags<'a>(
    balancer: &'a LoadBalancer,
    listeners: &'a [Listener],
) -> impl Iterator<Item = &'a String> {
    let tags = balancer.tags.iter().chain(listeners.iter().flat_map(|listener| &listener.tags));
    tags.filter(|tag| tag.starts_with(SERVICE_PREFIX))
}

/// Checks that the Service may share a load balancer of another one, or one that was created by hand.
fn check_sharing(
    config: &Config,
    settings: &Settings,
    names: Names<'_>,
    seen: &Observation,
    balancer: &LoadBalancer,
) -> Result<()> {
    let id = &balancer.id;
    if !seen.features.tags && seen.features.guessed {
        let message = format!(
            "load balancer {id} cannot be shared while Octavia does not list its versions: sharing needs tags, and it has none yet"
        );
        return Err(Error::new(ErrorKind::Unavailable, PLAN, message));
    }
    if !seen.features.tags {
        let message =
            format!("load balancer {id} cannot be shared: sharing needs tags, which Octavia has since API version 2.5");
        return Err(Error::new(ErrorKind::Unsupported, PLAN, message));
    }
    let joining = Joining { tag: names.balancer(), max: config.load_balancer.max_shared };
    check_sharing_limit(PLAN, &joining, balancer, &seen.listeners)?;
    if settings.internal {
        let message = format!("internal Service cannot share a load balancer: {id} belongs to {}", balancer.name);
        return Err(Error::new(ErrorKind::InvalidConfig, PLAN, message));
    }
    Ok(())
}
