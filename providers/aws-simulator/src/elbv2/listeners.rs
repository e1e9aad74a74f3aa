//! Listeners of ELBv2.

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};

use super::{check_arns, find, new_arn};
use crate::balancing::{check_certificate, check_port, list, new_tags, page, tags};
use crate::params::{Params, items, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

pub(super) const CREATE: &str = "LoadBalancerArn! Protocol! Port! SslPolicy Certificates.#.CertificateArn \
DefaultActions.#.{Type!,TargetGroupArn,Order,ForwardConfig.TargetGroups.#.{TargetGroupArn,Weight}} Tags.#.{Key,Value}";

pub(super) const MODIFY: &str = "ListenerArn! Protocol Port SslPolicy Certificates.#.CertificateArn \
DefaultActions.#.{Type,TargetGroupArn,Order,ForwardConfig.TargetGroups.#.{TargetGroupArn,Weight}}";

/// Protocols of listeners of network load balancers, each with the protocols of target groups that it may forward to.
const PROTOCOLS: [(&str, &[&str]); 4] =
    [("TCP", &["TCP", "TCP_UDP"]), ("TLS", &["TCP", "TLS"]), ("UDP", &["UDP", "TCP_UDP"]), ("TCP_UDP", &["TCP_UDP"])];

/// Security policy of a TLS listener that names none.
const DEFAULT_POLICY: &str = "ELBSecurityPolicy-2016-08";

pub(super) fn describe(state: &mut State, params: &Params) -> Outcome {
    let (balancer, arns) = (params.text("LoadBalancerArn"), params.texts("ListenerArns"));
    let message = "Either a load balancer ARN or listener ARNs must be specified";
    require(balancer.is_empty() != arns.is_empty(), || Failure::validation(message))?;
    check_arns(state, "listener", &arns)?;
    if !balancer.is_empty() {
        check_arns(state, "load_balancer", &[balancer])?;
    }
    let rows = state.records.of("listener").oldest_first();
    let found = rows.into_iter().filter(|row| row.owner == balancer || arns.contains(&row.record.text("id")));
    page(state, params, "Listeners", found.map(|row| row.record.clone().into()).collect())
}

/// Creates a listener. Creating it again with the same settings returns the same one.
pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let balancer = params.text("LoadBalancerArn");
    find(state, "load_balancer", balancer)?;
    let mut new = described(params, Record::new());
    new.set("LoadBalancerArn", balancer);
    new.set("_tags", new_tags(params)?);
    check(state, &new)?;
    let port = new.text("Port").to_owned();
    let owned = state.records.of("listener").owned_by(balancer);
    if let Some(held) = owned.iter().find(|row| row.record.text("Port") == port) {
        let is_same = ["Protocol", "Certificates", "DefaultActions"]
            .iter()
            .all(|field| held.record.get(*field) == new.get(*field));
        let message = format!("A listener already exists on this port for this load balancer '{balancer}'");
        require(is_same, || Failure::new("DuplicateListener", message))?;
        return Ok(json!({"Listeners": [held.record]}));
    }
    let is_below = owned.len() < state.options.limits.listeners;
    require(is_below, || Failure::new("TooManyListeners", "The quota for the number of listeners has been reached"))?;
    let arn = store(state, new);
    Ok(json!({"Listeners": [state.records.get("listener", &arn)]}))
}

fn store(state: &mut State, mut record: Record) -> String {
    let balancer = record.text("LoadBalancerArn").to_owned();
    let path = balancer.split_once(":loadbalancer/").map_or("", |(_, path)| path).to_owned();
    let arn = new_arn(state, &format!("listener/{path}"));
    record.set("ListenerArn", arn.as_str());
    state.store("listener", &balancer, &arn, record);
    arn
}

/// Creates a TCP listener without validation.
pub(crate) fn put(state: &mut State, balancer: &str, port: u16, group: &str, given: &[(&str, &str)]) -> String {
    let fields = json!({"LoadBalancerArn": balancer, "Protocol": "TCP", "Port": port.to_string(), "_tags": tags(given),
        "DefaultActions": [action(group)]});
    store(state, object(fields))
}

/// Forward action, with both spellings of its target group that responses have.
fn action(group: &str) -> Value {
    json!({"Type": "forward", "TargetGroupArn": group, "ForwardConfig": {"TargetGroups": [{"TargetGroupArn": group}]}})
}

/// ARNs of the target groups that actions of a request name, in either spelling.
fn action_targets(actions: &[Value]) -> Vec<&str> {
    let is_plain = |action: &&Value| !text(action, "TargetGroupArn").is_empty();
    let (plain, weighted): (Vec<&Value>, Vec<&Value>) = actions.iter().partition(is_plain);
    let weighted = weighted.into_iter().flat_map(|action| items(&action["ForwardConfig"], "TargetGroups"));
    plain.into_iter().chain(weighted).map(|target| text(target, "TargetGroupArn")).collect()
}

/// ARNs of the target groups of a listener.
pub(super) fn target_groups(listener: &Record) -> impl Iterator<Item = &str> {
    let actions = listener.get("DefaultActions").and_then(Value::as_array).into_iter().flatten();
    actions.map(|action| text(action, "TargetGroupArn"))
}

/// Listener with the settings of a request over the old ones.
fn described(params: &Params, old: Record) -> Record {
    let mut record = old;
    for field in ["Protocol", "Port", "SslPolicy"] {
        if let Some(value) = params.given(field) {
            record.set(field, value);
        }
    }
    if params.has("Certificates") {
        record.set("Certificates", params.value("Certificates").clone());
    }
    let actions = params.items("DefaultActions");
    if !actions.is_empty() {
        record.set("DefaultActions", action_targets(actions).iter().map(|group| action(group)).collect::<Vec<_>>());
    }
    if record.text("Protocol") != "TLS" && !params.has("Certificates") {
        ["SslPolicy", "Certificates"].iter().for_each(|field| drop(record.remove(*field)));
    } else if record.text("Protocol") == "TLS" && record.text("SslPolicy").is_empty() {
        record.set("SslPolicy", DEFAULT_POLICY);
    }
    record
}

fn check(state: &State, new: &Record) -> Result<(), Failure> {
    let protocol = new.text("Protocol");
    check_port(new.text("Port"))?;
    let unsupported = || Failure::new("UnsupportedProtocol", format!("Protocol '{protocol}' is not supported"));
    let (_, compatible) = PROTOCOLS.iter().find(|(name, _)| *name == protocol).ok_or_else(unsupported)?;
    check_tls(state, new)?;
    let groups: Vec<&str> = target_groups(new).collect();
    require(groups.len() == 1, || {
        Failure::validation("A listener of a network load balancer has exactly one target group")
    })?;
    for arn in groups {
        check_arns(state, "target_group", &[arn])?;
        let Some(group) = state.records.get("target_group", arn) else { continue };
        let kind = group.text("Protocol");
        let message =
            format!("Listener protocol '{protocol}' is not compatible with the protocol '{kind}' of the target group");
        require(compatible.contains(&kind), || Failure::new("IncompatibleProtocols", message))?;
        let users = super::users(state, arn);
        let message = "A target group can be used by only one network load balancer";
        let is_free = users.iter().all(|user| user == new.text("LoadBalancerArn"));
        require(is_free, || Failure::new("TargetGroupAssociationLimit", message))?;
    }
    Ok(())
}

fn check_tls(state: &State, new: &Record) -> Result<(), Failure> {
    let (certificates, policy) = (list(new, "Certificates"), new.text("SslPolicy"));
    if new.text("Protocol") != "TLS" {
        let message = "Certificates and security policies are only supported by TLS listeners";
        return require(certificates.is_empty() && policy.is_empty(), || Failure::validation(message));
    }
    let certificate = match certificates.as_slice() {
        [certificate] => certificate["CertificateArn"].as_str().unwrap_or_default(),
        [] => return Err(Failure::new("CertificateNotFound", "A certificate must be specified for TLS listeners")),
        _ => return Err(Failure::new("TooManyCertificates", "You can specify a single default certificate")),
    };
    check_certificate(state, certificate)?;
    let is_policy = policy.starts_with("ELBSecurityPolicy-");
    require(is_policy, || Failure::new("SSLPolicyNotFound", format!("SSL policy '{policy}' not found")))
}

pub(super) fn modify(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("ListenerArn");
    let old = find(state, "listener", arn)?.clone();
    let new = described(params, old);
    check(state, &new)?;
    let others = state.records.of("listener").owned_by(new.text("LoadBalancerArn"));
    let is_taken = others.iter().any(|row| row.record.text("id") != arn && row.record.text("Port") == new.text("Port"));
    require(!is_taken, || Failure::new("DuplicateListener", "A listener with the specified port already exists"))?;
    *find(state, "listener", arn)? = new.clone();
    Ok(json!({"Listeners": [new]}))
}

pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("ListenerArn");
    find(state, "listener", arn)?;
    state.records.of_mut("listener").remove(arn);
    Ok(json!({}))
}
