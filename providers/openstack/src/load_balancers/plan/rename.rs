//! Renames resources after the cluster was renamed: all names and tags with the old cluster name, the load balancer last, so that
//! an interrupted rename is continued.
//!
//! A shared load balancer of another cluster has the same form. It is left unchanged: only resources of this Service under the old
//! name are renamed.

use serde_json::json;

use super::super::change::TagChange;
use super::super::names::{Names, Part, cluster_of, rename_cluster};
use super::super::observation::{Found, Observation};
use super::super::settings::warning;
use super::{Draft, field};
use crate::api::Resource;
use crate::api::octavia::{HEALTH_MONITORS, LISTENERS, LOAD_BALANCERS, Listener, LoadBalancer, POOLS, Pool};

/// A change of the cluster name.
struct Rename<'a> {
    names: Names<'a>,
    old: String,
    new: &'a str,
    with_tags: bool,
}

/// Renames resources with the old cluster name, in the plan and in the observation.
pub(super) fn steps(names: Names<'_>, seen: &mut Observation, draft: &mut Draft) {
    let with_tags = seen.features.tags;
    let Some(old) = seen.found.balancer().and_then(|balancer| old_cluster(names, balancer)) else { return };
    let renaming = Rename { names, old, new: names.cluster(), with_tags };
    for listener in &mut seen.listeners {
        for pool in seen.pools.iter_mut().filter(|seen| seen.pool.listeners.iter().any(|one| one.id == listener.id)) {
            if let Some(monitor) = &mut pool.monitor {
                renaming.part(Part::Monitor, HEALTH_MONITORS.resource, &monitor.id, &mut monitor.name, draft);
            }
            let Pool { id, name, .. } = &mut pool.pool;
            renaming.part(Part::Pool, POOLS.resource, id, name, draft);
        }
        renaming.listener(listener, draft);
    }
    if let Found::One { balancer, .. } = &mut seen.found {
        renaming.balancer(balancer, draft);
    }
}

/// Returns the cluster name at the time when the load balancer was created for this Service, if it has changed.
fn old_cluster(names: Names<'_>, balancer: &LoadBalancer) -> Option<String> {
    let old = cluster_of(&balancer.name).filter(|cluster| *cluster != names.cluster())?;
    let own = names.balancer_in(old);
    let is_own = balancer.name == own || balancer.tags.contains(&own);
    is_own.then(|| old.to_owned())
}

impl Rename<'_> {
    fn part(&self, part: Part, resource: Resource, id: &str, name: &mut String, draft: &mut Draft) {
        let Some(then) = part.rename_cluster(name, &self.old, self.new) else { return };
        let changes = vec![field("name", Some(name.clone()), Some(then.clone()))];
        draft.update(resource, id, name, changes, json!({"name": then}));
        *name = then;
    }

    /// Renames a listener. One with a name set by hand still has the tags of the Service.
    fn listener(&self, listener: &mut Listener, draft: &mut Draft) {
        let name = Part::Listener.rename_cluster(&listener.name, &self.old, self.new);
        let tags = self.tags(&listener.tags);
        if name.is_none() && tags.is_empty() {
            return;
        }
        let (body, changes) = match &name {
            Some(then) => (json!({"name": then}), vec![field("name", Some(listener.name.clone()), Some(then.clone()))]),
            None => (json!({}), vec![field("tags", Some(tags.remove.join(", ")), Some(tags.add.join(", ")))]),
        };
        let now = tags.applied_to(&listener.tags);
        draft.update_tagged(LISTENERS.resource, &listener.id, &listener.name, changes, body, tags);
        if let Some(then) = name {
            listener.name = then;
        }
        listener.tags = now;
    }

    fn balancer(&self, balancer: &mut LoadBalancer, draft: &mut Draft) {
        // One that another Service of the cluster created keeps the name of that Service.
        let own = self.names.balancer();
        let is_own = balancer.name == self.names.balancer_in(&self.old);
        let then = if is_own { own } else { rename_cluster(&balancer.name, &self.old, self.new).unwrap_or(own) };
        let tags = self.tags(&balancer.tags);
        let message = format!(
            "load balancer {} is named {} after another cluster than {}; it is renamed to {then}",
            balancer.id, balancer.name, self.new
        );
        draft.warn([warning("LoadBalancerRename", &message)]);
        let now = tags.applied_to(&balancer.tags);
        let changes = vec![field("name", Some(balancer.name.clone()), Some(then.clone()))];
        let body = json!({"name": then});
        draft.update_tagged(LOAD_BALANCERS.resource, &balancer.id, &balancer.name, changes, body, tags);
        (balancer.name, balancer.tags) = (then, now);
    }

    /// Renames tags of the cluster one by one; other tags stay.
    fn tags(&self, tags: &[String]) -> TagChange {
        let mut change = TagChange::default();
        for (tag, then) in tags.iter().filter_map(|tag| Some((tag, rename_cluster(tag, &self.old, self.new)?))) {
            change.remove.push(tag.clone());
            change.add.push(then);
        }
        if self.with_tags { change } else { TagChange::default() }
    }
}
