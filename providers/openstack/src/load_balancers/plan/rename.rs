//! The cluster has got another name: all names and tags with the old one follow, the balancer's last, so that whoever is
//! interrupted goes on where he was.
//!
//! A balancer of another cluster that a Service shares looks just the same. It is left alone: only what is this Service's under
//! the old name is renamed.

use bowline_core::Verb;
use serde_json::json;

use super::super::change::{Change, Retag};
use super::super::names::{Names, Part, cluster_of, moved};
use super::super::observation::{Found, Observation};
use super::super::settings::warning;
use super::{Draft, field};
use crate::api::Resource;
use crate::api::octavia::{HEALTH_MONITORS, Listener, LoadBalancer, POOLS, Pool};

/// A change of names.
struct Move<'a> {
    names: Names<'a>,
    old: String,
    new: &'a str,
    with_tags: bool,
}

/// Renames what has the old name of the cluster, and sees it as if that were done.
pub(super) fn steps(names: Names<'_>, seen: &mut Observation, draft: &mut Draft) {
    let with_tags = seen.features.tags;
    let Some(old) = seen.found.balancer().and_then(|balancer| old_cluster(names, balancer)) else { return };
    let renaming = Move { names, old, new: names.cluster(), with_tags };
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

/// The name that the cluster had when the balancer was made for this Service, if it is another now.
fn old_cluster(names: Names<'_>, balancer: &LoadBalancer) -> Option<String> {
    let old = cluster_of(&balancer.name).filter(|cluster| *cluster != names.cluster())?;
    let own = names.balancer_in(old);
    let is_own = balancer.name == own || balancer.tags.contains(&own);
    is_own.then(|| old.to_owned())
}

impl Move<'_> {
    fn part(&self, part: Part, resource: Resource, id: &str, name: &mut String, draft: &mut Draft) {
        let Some(then) = part.moved(name, &self.old, self.new) else { return };
        let changes = vec![field("name", Some(name.clone()), Some(then.clone()))];
        draft.update(resource, id, name, changes, json!({"name": then}));
        *name = then;
    }

    /// Somebody may have given it a name of his own: its tags say whose it is all the same.
    fn listener(&self, listener: &mut Listener, draft: &mut Draft) {
        let name = Part::Listener.moved(&listener.name, &self.old, self.new);
        let tags = self.tags(&listener.tags);
        if name.is_none() && tags.is_nothing() {
            return;
        }
        let (body, changes) = match &name {
            Some(then) => (json!({"name": then}), vec![field("name", Some(listener.name.clone()), Some(then.clone()))]),
            None => (json!({}), vec![field("tags", Some(tags.remove.join(", ")), Some(tags.add.join(", ")))]),
        };
        let now = tags.applied_to(&listener.tags);
        let change = Change::RetagListener { id: listener.id.clone(), body, tags };
        draft.octavia(Verb::Update, "listener", &listener.name, changes, change);
        if let Some(then) = name {
            listener.name = then;
        }
        listener.tags = now;
    }

    fn balancer(&self, balancer: &mut LoadBalancer, draft: &mut Draft) {
        // Where another Service of the cluster has made it, it keeps that one's name.
        let own = self.names.balancer();
        let is_own = balancer.name == self.names.balancer_in(&self.old);
        let then = if is_own { own } else { moved(&balancer.name, &self.old, self.new).unwrap_or(own) };
        let tags = self.tags(&balancer.tags);
        let message = format!(
            "load balancer {} has the name {} with another cluster in it than {}; it is renamed to {then}",
            balancer.id, balancer.name, self.new
        );
        draft.warn([warning("LoadBalancerRename", &message)]);
        let now = tags.applied_to(&balancer.tags);
        let change = Change::UpdateLoadBalancer { body: json!({"name": then}), tags };
        let changes = vec![field("name", Some(balancer.name.clone()), Some(then.clone()))];
        draft.octavia(Verb::Update, "load balancer", &balancer.name, changes, change);
        (balancer.name, balancer.tags) = (then, now);
    }

    /// One by one; those of others stay.
    fn tags(&self, tags: &[String]) -> Retag {
        let mut change = Retag::default();
        for (tag, then) in tags.iter().filter_map(|tag| Some((tag, moved(tag, &self.old, self.new)?))) {
            change.remove.push(tag.clone());
            change.add.push(then);
        }
        if self.with_tags { change } else { Retag::default() }
    }
}
