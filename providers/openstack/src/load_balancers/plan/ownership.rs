//! Whose the balancer is, and whether the Service may use it.

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::Verb;
use serde_json::{Map, Value, json};

use super::super::change::{BalancerRef, Change, Joining, Retag};
use super::super::names::{Names, SERVICE_PREFIX};
use super::super::observation::{Found, Observation};
use super::super::settings::Settings;
use super::{Draft, PLAN, field, rename};
use crate::Config;
use crate::api::octavia::{Listener, LoadBalancer};

/// Whether the balancer that was found is the Service's own. What makes it so is done, or why the Service cannot use it.
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
    // upstream: one of the old name is taken for another's as soon as the annotation names it.
    if names.is_balancer(&balancer.name) {
        return Ok(true);
    }
    check_sharing(config, settings, names, seen, balancer)?;
    Ok(false)
}

/// The Service's name, description and tag.
fn adopt(names: Names<'_>, with_tags: bool, balancer: &mut LoadBalancer, draft: &mut Draft) -> Result<()> {
    let own = names.balancer();
    let marks = balancer.tags.iter().chain([&balancer.name]);
    if let Some(owner) = marks.into_iter().find(|mark| mark.starts_with(SERVICE_PREFIX) && **mark != own) {
        let message =
            format!("load balancer {} ({}) cannot be adopted: it belongs to {owner}", balancer.name, balancer.id);
        return Err(Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff));
    }
    let mut changes = vec![field("name", Some(balancer.name.clone()), Some(own.clone()))];
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(own));
    body.insert("description".to_owned(), json!(names.balancer_description()));
    let mut tags = Retag::default();
    if with_tags {
        tags.add.push(own.clone());
        changes.push(field("tags", None, Some(own.clone())));
    }
    let then = tags.applied_to(&balancer.tags);
    let change = Change::UpdateLoadBalancer { body: Value::Object(body), tags };
    draft.octavia(Verb::Update, "load balancer", &balancer.name, changes, change);
    (balancer.name, balancer.tags) = (own, then);
    Ok(())
}

/// Whether a balancer has room for one Service more, or has the Service already. Listeners are tagged first, and count: several may
/// come at the same time.
pub(in super::super) fn check_room(
    operation: &str,
    joining: &Joining,
    balancer: &LoadBalancer,
    listeners: &[Listener],
) -> Result<()> {
    let Joining { tag: own, most } = joining;
    let sharers: BTreeSet<_> = service_tags(balancer, listeners).collect();
    let is_full = i64::try_from(sharers.len()).is_ok_and(|sharers| sharers + 1 > *most);
    if sharers.contains(own) || !is_full {
        return Ok(());
    }
    let (id, sharers) = (&balancer.id, sharers.len());
    let message = format!(
        "load balancer {id} already shared with {sharers} Services; max-shared-lb in [LoadBalancer] allows {most} in all"
    );
    Err(Error::new(ErrorKind::InvalidConfig, operation, message).retry(Retry::Backoff))
}

/// The tags of all Services that use a balancer. Their listeners have them first, the balancer has them when all is done.
pub(super) fn service_tags<'a>(
    balancer: &'a LoadBalancer,
    listeners: &'a [Listener],
) -> impl Iterator<Item = &'a String> {
    let tags = balancer.tags.iter().chain(listeners.iter().flat_map(|listener| &listener.tags));
    tags.filter(|tag| tag.starts_with(SERVICE_PREFIX))
}

/// Whether the Service may use a balancer that is another's, or was made by hand.
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
            "load balancer {id} cannot be shared while Octavia does not say what it can do: that needs tags, and there are none yet"
        );
        return Err(Error::new(ErrorKind::Unavailable, PLAN, message));
    }
    if !seen.features.tags {
        let message = format!("load balancer {id} cannot be shared: that needs tags, which Octavia has since 2.5");
        return Err(Error::new(ErrorKind::Unsupported, PLAN, message));
    }
    let joining = Joining { tag: names.balancer(), most: config.load_balancer.max_shared };
    check_room(PLAN, &joining, balancer, &seen.listeners)?;
    if settings.internal {
        let message = format!("internal Service cannot share a load balancer: {id} belongs to {}", balancer.name);
        return Err(Error::new(ErrorKind::InvalidConfig, PLAN, message));
    }
    Ok(())
}
