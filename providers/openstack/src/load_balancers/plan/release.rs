//! A balancer that stays when its Service goes: our name, tags and descriptions are taken off, and nothing else is changed.
//!
//! The balancer is the last of it: all else is found through it, by whoever is interrupted.

use bowline_cloud::Result;
use bowline_core::{DesiredLoadBalancer, FieldChange, Verb};
use serde_json::{Map, Value, json};

use super::super::change::{BalancerRef, Change, Retag};
use super::super::names::{Names, SECURITY_GROUP_PREFIX, SERVICE_PREFIX};
use super::super::observation::Observation;
use super::super::waiting::check_at_rest;
use super::{Draft, PLAN, field, floating};
use crate::api::network::{FLOATING_IPS, FloatingIp, SECURITY_GROUPS};
use crate::api::octavia::LoadBalancer;

pub(super) fn steps(desired: &DesiredLoadBalancer, seen: &Observation, draft: &mut Draft) -> Result<()> {
    let names = Names::of(&desired.key);
    let own = names.balancer();
    if let Some(balancer) = seen.found.balancer() {
        check_at_rest(PLAN, balancer)?;
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
        let change = Change::RetagListener { id: listener.id.clone(), body: json!({}), tags: without(own) };
        draft.octavia(Verb::Update, "listener", &listener.name, released("tags", own), change);
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

/// The nodes go on letting the balancer's traffic in.
fn groups(seen: &Observation, draft: &mut Draft) {
    for group in seen.security.all() {
        let name = group.name.strip_prefix(SECURITY_GROUP_PREFIX).unwrap_or(&group.name);
        let body = json!({"name": name, "description": ""});
        let changes = released("description", &group.description);
        draft.update(SECURITY_GROUPS.resource, &group.id, &group.name, changes, body);
    }
}

/// Of a balancer that is another's, only the tag was ours.
fn release(balancer: &LoadBalancer, own: &str, is_owner: bool, draft: &mut Draft) {
    let is_tagged = balancer.tags.iter().any(|tag| tag == own);
    if !is_owner && !is_tagged {
        return;
    }
    let mut body = Map::new();
    let mut changes = Vec::new();
    if is_owner {
        let name = own.strip_prefix(SERVICE_PREFIX).unwrap_or(own);
        body.insert("name".to_owned(), json!(name));
        body.insert("description".to_owned(), json!(""));
        changes.push(field("name", Some(own.to_owned()), Some(name.to_owned())));
    }
    if is_tagged {
        changes.extend(released("tags", own));
    }
    let tags = if is_tagged { without(own) } else { Retag::default() };
    let change = Change::UpdateLoadBalancer { body: Value::Object(body), tags };
    draft.octavia(Verb::Update, "load balancer", &balancer.name, changes, change);
}

fn without(own: &str) -> Retag {
    Retag { add: Vec::new(), remove: vec![own.to_owned()] }
}

fn released(name: &str, from: &str) -> Vec<FieldChange> {
    vec![field(name, Some(from.to_owned()), None)]
}
