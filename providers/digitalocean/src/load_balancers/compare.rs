//! Differences between a load balancer and the request that describes its desired state.
//!
//! Only what the manager sets is compared, and only where the API reports it, in the API's own terms: a field that the request
//! leaves out has its default. The algorithm has no effect any more, and tags are the task of a loop.

use std::collections::BTreeSet;

use bowline_core::{FieldChange, FieldChanges};

use super::request::SIZES;
use crate::api::{ForwardingRule, HealthCheck, LoadBalancerSettings, StickySessions};

/// Default of the API for the idle timeout.
const IDLE_TIMEOUT: u64 = 60;

/// Returns the fields that a PUT would change.
pub(super) fn changes(old: &LoadBalancerSettings, new: &LoadBalancerSettings) -> Vec<FieldChange> {
    let mut changes = FieldChanges::default();
    changes.compare("name", &old.name, &new.name);
    changes.compare("forwarding rules", &rules(&old.forwarding_rules), &rules(&new.forwarding_rules));
    if !old.health_check.protocol.is_empty() {
        let check = reported(&new.health_check, &old.health_check);
        changes.compare("health check", &described(&old.health_check), &described(&check));
    }
    changes.compare("sticky sessions", &sticky(&old.sticky_sessions), &sticky(&new.sticky_sessions));
    if let Some(units) = units(&old.size, old.size_unit) {
        changes.compare("size unit", &units, &self::units(&new.size, new.size_unit).unwrap_or(1));
    }
    changes.compare("droplets", &set(&old.droplet_ids), &set(&new.droplet_ids));
    changes.compare("redirect HTTP to HTTPS", &old.redirect_http_to_https, &new.redirect_http_to_https);
    changes.compare("PROXY protocol", &old.enable_proxy_protocol, &new.enable_proxy_protocol);
    changes.compare("backend keepalive", &old.enable_backend_keepalive, &new.enable_backend_keepalive);
    let (old_dns, new_dns) = (&old.disable_lets_encrypt_dns_records, &new.disable_lets_encrypt_dns_records);
    changes.compare("disable Let's Encrypt DNS records", old_dns, new_dns);
    if let Some(old) = old.http_idle_timeout_seconds.filter(|seconds| *seconds > 0) {
        changes.compare("HTTP idle timeout", &old, &new.http_idle_timeout_seconds.unwrap_or(IDLE_TIMEOUT));
    }
    changes.compare("allowed clients", &allowed(&old.firewall.allow), &allowed(&new.firewall.allow));
    changes.compare("denied clients", &set(&old.firewall.deny), &set(&new.firewall.deny));
    for (field, old, new) in [("VPC", &old.vpc_uuid, &new.vpc_uuid), ("subnet", &old.subnet_uuid, &new.subnet_uuid)] {
        if !new.is_empty() {
            changes.compare(field, old, new);
        }
    }
    changes.into_vec()
}

/// Describes a new load balancer.
pub(super) fn summary(new: &LoadBalancerSettings) -> Vec<FieldChange> {
    let mut changes = FieldChanges::default();
    changes.set("type", &new.kind);
    changes.set("network", &new.network);
    changes.set("forwarding rules", &rules(&new.forwarding_rules));
    changes.set("droplets", &set(&new.droplet_ids));
    changes.into_vec()
}

fn set<T: Ord + Clone>(items: &[T]) -> BTreeSet<T> {
    items.iter().cloned().collect()
}

/// Returns the clients that may connect; none if the list allows all of them.
fn allowed(rules: &[String]) -> BTreeSet<String> {
    let is_everyone = rules.iter().any(|rule| rule == "cidr:0.0.0.0/0");
    if is_everyone { BTreeSet::new() } else { set(rules) }
}

fn rules(rules: &[ForwardingRule]) -> BTreeSet<String> {
    rules.iter().map(described_rule).collect()
}

fn described_rule(rule: &ForwardingRule) -> String {
    let tls = if rule.tls_passthrough { " with TLS passthrough" } else { "" };
    let certificate = match rule.certificate_id.as_str() {
        "" => String::new(),
        id => format!(" with certificate {id}"),
    };
    let ForwardingRule { entry_protocol, entry_port, target_protocol, target_port, .. } = rule;
    format!("{entry_protocol} {entry_port} to {target_protocol} {target_port}{certificate}{tls}")
}

/// Fills what the request leaves out to the API, and what the API does not report, from the present check.
fn reported(new: &HealthCheck, old: &HealthCheck) -> HealthCheck {
    let number = |new: i64, old: i64| if new == 0 || old == 0 { old } else { new };
    HealthCheck {
        protocol: new.protocol.clone(),
        port: new.port,
        // A TCP check has no path.
        path: if new.protocol == "tcp" { old.path.clone() } else { new.path.clone() },
        check_interval_seconds: number(new.check_interval_seconds, old.check_interval_seconds),
        response_timeout_seconds: number(new.response_timeout_seconds, old.response_timeout_seconds),
        healthy_threshold: number(new.healthy_threshold, old.healthy_threshold),
        unhealthy_threshold: number(new.unhealthy_threshold, old.unhealthy_threshold),
        proxy_protocol: old.proxy_protocol.map(|_| new.proxy_protocol.unwrap_or_default()),
    }
}

fn described(check: &HealthCheck) -> String {
    let HealthCheck { protocol, port, path, check_interval_seconds, response_timeout_seconds, .. } = check;
    let HealthCheck { healthy_threshold, unhealthy_threshold, proxy_protocol, .. } = check;
    let proxied = if proxy_protocol.unwrap_or_default() { " with PROXY protocol" } else { "" };
    format!(
        "{protocol} {port}{path} every {check_interval_seconds} s, timeout {response_timeout_seconds} s, \
         {healthy_threshold} to be healthy, {unhealthy_threshold} to be unhealthy{proxied}"
    )
}

fn sticky(sessions: &StickySessions) -> String {
    match sessions.kind.as_str() {
        "" | "none" => "none".to_owned(),
        kind => format!("{kind} {} for {} s", sessions.cookie_name, sessions.cookie_ttl_seconds),
    }
}

/// Returns the number of nodes; `None` if neither is set.
fn units(slug: &str, units: u64) -> Option<u64> {
    let by_slug = SIZES.iter().find(|(known, _)| *known == slug).map(|(_, units)| *units);
    if units > 0 { Some(units) } else { by_slug }
}
