//! Settings of a Service without effect on a Network Load Balancer: each one is a warning.

use std::collections::BTreeSet;

use bowline_cloud::Result;
use bowline_core::annotations::HEALTH_CHECK_PATH;
use bowline_core::{IpFamily, Warning};

use super::super::annotations::{self as keys, Values, items, pairs};
use super::super::{IGNORED, Inputs};
use super::health_check::is_shared;
use super::mappings::{Mapping, TLS, UDP};
use super::{Observed, plan, security};
use crate::api::elbv2::Address;

/// Annotations of Classic Load Balancers.
const CLASSIC_ONLY: [&str; 6] = [
    keys::PROXY_PROTOCOL.key,
    keys::ACCESS_LOG_EMIT_INTERVAL.key,
    keys::CONNECTION_DRAINING_ENABLED.key,
    keys::CONNECTION_DRAINING_TIMEOUT.key,
    keys::CONNECTION_IDLE_TIMEOUT.key,
    keys::HEALTH_CHECK_TIMEOUT.key,
];

/// Returns the warnings.
pub(super) fn of(inputs: &Inputs<'_>, mappings: &[Mapping], observed: Option<&Observed>) -> Result<Vec<Warning>> {
    let mut messages = kind(inputs.values);
    messages.extend(tls(inputs.values, mappings));
    messages.extend(access_logs(inputs.values));
    messages.extend(health_check(inputs));
    messages.extend(security_groups(inputs, observed)?);
    messages.extend(spec(inputs));
    if let Some(observed) = observed {
        messages.extend(fixed(inputs, observed)?);
    }
    let warning = |message| Warning { reason: IGNORED.to_owned(), message };
    Ok(messages.into_iter().map(warning).collect())
}

fn is_set(values: Values<'_>, key: &str) -> bool {
    values.0.get(key).is_some_and(|text| !text.is_empty())
}

/// Returns one message for each of these annotations that is set.
fn ignored(values: Values<'_>, keys: &[&str], why: &str) -> Vec<String> {
    let set = keys.iter().filter(|key| is_set(values, key));
    set.map(|key| format!("the annotation {key} is ignored: {why}")).collect()
}

fn kind(values: Values<'_>) -> Vec<String> {
    ignored(values, &CLASSIC_ONLY, "it applies to Classic Load Balancers only")
}

fn tls(values: Values<'_>, mappings: &[Mapping]) -> Vec<String> {
    let backend = keys::BACKEND_PROTOCOL.key;
    let other = values.text(&keys::BACKEND_PROTOCOL).filter(|text| !matches!(*text, "ssl" | "tcp"));
    let unknown = other.map(|text| {
        format!("the annotation {backend} is ignored: a Network Load Balancer knows only \"ssl\", not {text:?}")
    });
    let has_tls = mappings.iter().any(|mapping| mapping.protocol == TLS);
    if has_tls {
        return unknown.into_iter().collect();
    }
    let needs_tls = [keys::SSL_PORTS.key, keys::SSL_NEGOTIATION_POLICY.key];
    let messages = match values.text(&keys::SSL_CERT) {
        None => ignored(values, &needs_tls, "there is no certificate"),
        Some(_) if mappings.iter().any(|mapping| mapping.protocol == UDP) => {
            ignored(values, &[keys::SSL_CERT.key], "UDP has no TLS")
        }
        Some(_) => ignored(values, &[keys::SSL_CERT.key], &format!("{} names none of the ports", keys::SSL_PORTS.key)),
    };
    let is_ssl = values.text(&keys::BACKEND_PROTOCOL) == Some("ssl");
    let plain = is_ssl.then(|| format!("the annotation {backend} is ignored: no port has TLS"));
    messages.into_iter().chain(unknown).chain(plain).collect()
}

fn access_logs(values: Values<'_>) -> Vec<String> {
    let is_enabled = values.get(&keys::ACCESS_LOG_ENABLED).ok().flatten().unwrap_or_default();
    let keys = [keys::ACCESS_LOG_BUCKET.key, keys::ACCESS_LOG_PREFIX.key];
    if is_enabled { Vec::new() } else { ignored(values, &keys, "access logs are not enabled") }
}

fn health_check(inputs: &Inputs<'_>) -> Vec<String> {
    let values = inputs.values;
    let target = [keys::HEALTH_CHECK_PROTOCOL.key, keys::HEALTH_CHECK_PORT.key, keys::HEALTH_CHECK_PATH.key];
    if is_shared(inputs.spec, inputs.config) {
        return ignored(values, &target, "ClusterServiceLoadBalancerHealthProbeMode is Shared");
    }
    let protocol = values.text(&keys::HEALTH_CHECK_PROTOCOL).map(str::to_uppercase);
    let is_tcp = match &protocol {
        Some(protocol) => protocol == "TCP",
        None => inputs.spec.health_check.is_none() && inputs.settings.health_check_path.is_none(),
    };
    let why = "the protocol of the health check is TCP";
    let common = inputs.settings.health_check_path.is_some() && is_tcp;
    let common = common.then(|| format!("the annotation {} is ignored: {why}", HEALTH_CHECK_PATH.key));
    let own = if is_tcp { ignored(values, &[keys::HEALTH_CHECK_PATH.key], why) } else { Vec::new() };
    own.into_iter().chain(common).collect()
}

fn security_groups(inputs: &Inputs<'_>, observed: Option<&Observed>) -> Result<Vec<String>> {
    let is_managed = security::is_managed(inputs.config)?;
    let is_without = observed.is_some_and(|observed| observed.load_balancer.security_groups.is_empty());
    let keys = [keys::SECURITY_GROUPS.key];
    let mut messages = match (is_managed, is_without) {
        (false, _) => ignored(inputs.values, &keys, "NLBSecurityGroupMode is not Managed"),
        (true, true) => ignored(inputs.values, &keys, "the load balancer was created without security groups"),
        (true, false) => Vec::new(),
    };
    let has_own = is_managed && !is_without && security::requested(inputs).is_empty();
    let is_open = inputs.config.disable_security_group_ingress && !has_own;
    if is_open && !inputs.spec.source_ranges.is_empty() {
        let message = "the source ranges are ignored: DisableSecurityGroupIngress is set, and the load balancer has no security group \
                       of its own; fix: limit the clients in the security groups of the Nodes";
        messages.push(message.to_owned());
    }
    Ok(messages)
}

fn spec(inputs: &Inputs<'_>) -> Vec<String> {
    let bare = inputs.spec.ports.iter().filter(|port| port.node_port.is_none_or(|port| port == 0));
    let bare = bare.map(|port| format!("port {} is ignored: it has no node port", port.port));
    let is_v6 = inputs.spec.ip_families.first() == Some(&IpFamily::IPv6);
    let family = is_v6.then(|| {
        "spec.ipFamilies: the load balancer has IPv4 addresses only; fix: make IPv4 the first family".to_owned()
    });
    bare.chain(family).collect()
}

// ---- what AWS fixes at creation

fn fixed(inputs: &Inputs<'_>, observed: &Observed) -> Result<Vec<String>> {
    let name = &observed.load_balancer.name;
    let fixed = |what: String| {
        format!("load balancer {name} {what}: that is fixed at creation; fix: delete the Service and create it again")
    };
    let mut changed: Vec<String> = scheme(inputs, observed).into_iter().collect();
    changed.extend(subnets(inputs, observed)?);
    changed.extend(addresses(inputs.values, observed));
    let mut messages: Vec<_> = changed.into_iter().map(fixed).collect();
    let tags = inputs.values.text(&keys::ADDITIONAL_TAGS).map(pairs).unwrap_or_default();
    let wanted = inputs.tags();
    let differs = |key: &String| wanted.get(key) != observed.tags.get(key);
    let differing: Vec<&str> = tags.keys().filter(|key| differs(key)).map(String::as_str).collect();
    if !differing.is_empty() {
        let key = keys::ADDITIONAL_TAGS.key;
        let list = differing.join(", ");
        messages.push(format!(
            "the annotation {key} is ignored for the tags {list}: those of a Network Load Balancer are set at creation only"
        ));
    }
    Ok(messages)
}

fn scheme(inputs: &Inputs<'_>, observed: &Observed) -> Option<String> {
    let (old, new) = (observed.load_balancer.scheme.as_str(), plan::scheme(inputs.is_internal()));
    (!old.is_empty() && old != new).then(|| format!("is {old} and cannot become {new}"))
}

/// Compares the requested subnets. Without the annotation, those of the load balancer stay, whatever would be chosen today.
fn subnets(inputs: &Inputs<'_>, observed: &Observed) -> Result<Option<String>> {
    if inputs.values.text(&keys::SUBNETS).is_none() {
        return Ok(None);
    }
    let requested = inputs.subnets()?;
    let new: BTreeSet<&str> = requested.iter().map(|subnet| subnet.id.as_str()).collect();
    let old: BTreeSet<&str> = observed.load_balancer.zones.iter().map(|zone| zone.subnet_id.as_str()).collect();
    let list = |ids: &BTreeSet<&str>| ids.iter().copied().collect::<Vec<_>>().join(", ");
    Ok((old != new).then(|| format!("stays in the subnets {} and cannot move to {}", list(&old), list(&new))))
}

/// Compares the requested addresses with those that AWS reports.
fn addresses(values: Values<'_>, observed: &Observed) -> Vec<String> {
    let reported = |field: fn(&Address) -> &str| -> BTreeSet<&str> {
        let addresses = observed.load_balancer.zones.iter().flat_map(|zone| &zone.addresses);
        addresses.map(field).filter(|text| !text.is_empty()).collect()
    };
    let differing = |text: Option<&str>, old: BTreeSet<&str>, what: &str| {
        let new = items(text?);
        let new: BTreeSet<&str> = new.iter().map(String::as_str).collect();
        // While a load balancer is provisioned, AWS reports none.
        let is_known = !old.is_empty() || observed.load_balancer.state.code == "active";
        (is_known && old != new).then(|| format!("cannot get other {what}"))
    };
    let allocations = values.text(&keys::EIP_ALLOCATIONS);
    let private = values.text(&keys::PRIVATE_IPV4_ADDRESSES);
    let allocations = differing(allocations, reported(|it| &it.allocation_id), "elastic IP addresses");
    allocations
        .into_iter()
        .chain(differing(private, reported(|it| &it.private_ipv4_address), "private addresses"))
        .collect()
}
