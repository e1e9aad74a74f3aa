//! Releases a load balancer that is retained when its Service is deleted: removes our name, tags and descriptions, and changes
//! nothing else.
//!
//! The load balancer is released last, because the other resources are found through it after an interruption.

use bowline_cloud::Result;
use bowline_core::{DesiredLoadBalancer, FieldChange};
use serde_json::json;

use super::super::change::{BalancerRef, TagChange};
use super::super::names::{Names, SECURITY_GROUP_PREFIX, SERVICE_PREFIX};
use super::super::observation::Observation;
use super::super::tracker::check_active;
use super::{Draft, PLAN, field, floating};
use crate::api::network::{FLOATING_IPS, FloatingIp, SECURITY_GROUPS};
use crate::api::octavia::{LISTENERS, LOAD_BALANCERS, LoadBalancer};

pub(super) fn steps(desired: &DesiredLoadBalancer, seen: &Observation, draft: &mut Draft) -> Result<()> {
    let names = Names::of(&desired.key);
    let own = names.balancer();
    if let Some(balancer) = seen.found.balancer() {
        check_active(PLAN, balancer)?;
        draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
        let is_owner = balancer.name == own;
        listeners(seen, &own, draft);
        if is_owner {
            seen.floating.attached.iter().for_each(|address| floating_ip(address, draft));
        }
        groups(seen, draft);
        release(balancer, &own, is_owner, draft);
    } else {
        groups(seen, draft);
    }
    seen.floating.leftovers.iter().for_each(|address| floating_ip(address, draft));
    Ok(())
}

fn listeners(seen: &Observation, own: &str, draft: &mut Draft) {
    for listener in seen.listeners.iter().filter(|listener| listener.tags.iter().any(|tag| tag == own)) {
        let (changes, tags) = (released("tags", own), TagChange::removing(own.to_owned()));
        draft.update_tagged(LISTENERS.resource, &listener.id, &listener.name, changes, json!({}), tags);
    }
}

fn floating_ip(address: &FloatingIp, draft: &mut Draft) {
    if !floating::is_ours(address) {
        return;
    }
    let changes = released("description", &address.description);
    let body = json!({"description": ""});
    draft.update(FLOATING_IPS.resource, &address.id, &address.floating_ip_address, changes, body);
}

/// Releases the security groups. Nodes keep accepting traffic of the load balancer.
fn groups(seen: &Observation, draft: &mut Draft) {
    for group in seen.security.all() {
        let name = group.name.strip_prefix(SECURITY_GROUP_PREFIX).unwrap_or(&group.name);
        let body = json!({"name": name, "description": ""});
        let changes = released("description", &group.description);
        draft.update(SECURITY_GROUPS.resource, &group.id, &group.name, changes, body);
    }
}

/// Releases the load balancer. On one of another Service, only the tag is ours.
fn release(balancer: &LoadBalancer, own: &str, is_owner: bool, draft: &mut Draft) {
    let is_tagged = balancer.tags.iter().any(|tag| tag == own);
    if !is_owner && !is_tagged {
        return;
    }
    let (mut body, mut changes) = (json!({}), Vec::new());
    if is_owner {
        let name = own.strip_prefix(SERVICE_PREFIX).unwrap_or(own);
        body = json!({"name": name, "description": ""});
        changes.push(field("name", Some(own.to_owned()), Some(name.to_owned())));
    }
    if is_tagged {
        changes.extend(released("tags", own));
    }
    let tags = if is_tagged { TagChange::removing(own.to_owned()) } else { TagChange::default() };
    draft.update_tagged(LOAD_BALANCERS.resource, &balancer.id, &balancer.name, changes, body, tags);
}

fn released(name: &str, from: &str) -> Vec<FieldChange> {
    vec![field(name, Some(from.to_owned()), None)]
}
