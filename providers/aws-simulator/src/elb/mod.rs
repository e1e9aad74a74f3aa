//! ELB: classic load balancers.

mod listeners;
mod policies;
mod settings;

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::balancing::{
    add_tags, check_groups, check_name, instance_state, limits, list, new_tags, page, remove_tags, sorted, subnets,
    tags, texts_of, zones,
};
use crate::params::{Params, text};
use crate::simulator::{Action, State};
use crate::wire::{Failure, Outcome, require};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new("DescribeLoadBalancers", "LoadBalancerNames.# Marker PageSize", describe),
    Action::new("CreateLoadBalancer", CREATE, create),
    Action::new("DeleteLoadBalancer", "LoadBalancerName!", delete),
    Action::new("DescribeTags", "LoadBalancerNames.#!", describe_tags),
    Action::new("AddTags", "LoadBalancerNames.#! Tags.#.{Key!,Value}", add),
    Action::new("RemoveTags", "LoadBalancerNames.#! Tags.#.Key!", remove),
    Action::new("DescribeAccountLimits", "Marker PageSize", account_limits),
    Action::new("CreateLoadBalancerListeners", listeners::CREATE, listeners::create),
    Action::new("DeleteLoadBalancerListeners", "LoadBalancerName! LoadBalancerPorts.#!", listeners::delete),
    Action::new("AttachLoadBalancerToSubnets", "LoadBalancerName! Subnets.#!", attach),
    Action::new("DetachLoadBalancerFromSubnets", "LoadBalancerName! Subnets.#!", detach),
    Action::new("ApplySecurityGroupsToLoadBalancer", "LoadBalancerName! SecurityGroups.#!", apply_groups),
    Action::new("RegisterInstancesWithLoadBalancer", "LoadBalancerName! Instances.#.InstanceId!", register),
    Action::new("DeregisterInstancesFromLoadBalancer", "LoadBalancerName! Instances.#.InstanceId!", deregister),
    Action::new("ConfigureHealthCheck", settings::HEALTH_CHECK, settings::configure_health_check),
    Action::new("DescribeLoadBalancerAttributes", "LoadBalancerName!", settings::describe),
    Action::new("ModifyLoadBalancerAttributes", settings::ATTRIBUTES, settings::modify),
    Action::new("DescribeLoadBalancerPolicies", "LoadBalancerName PolicyNames.#", policies::describe),
    Action::new("CreateLoadBalancerPolicy", policies::CREATE, policies::create),
    Action::new("DeleteLoadBalancerPolicy", "LoadBalancerName! PolicyName!", policies::delete),
    Action::new(
        "SetLoadBalancerPoliciesForBackendServer",
        "LoadBalancerName! InstancePort! PolicyNames.#!",
        policies::set_for_backend_server,
    ),
    Action::new(
        "SetLoadBalancerPoliciesOfListener",
        "LoadBalancerName! LoadBalancerPort! PolicyNames.#!",
        policies::set_of_listener,
    ),
];

const CREATE: &str = "LoadBalancerName! Listeners.#.{Protocol!,LoadBalancerPort!,InstanceProtocol,InstancePort!,SSLCertificateId} \
Subnets.# SecurityGroups.# Scheme Tags.#.{Key,Value}";

/// Load balancer with this name.
fn find<'a>(state: &'a mut State, name: &str) -> Result<&'a mut Record, Failure> {
    state.records.get_mut("classic", name).ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> Failure {
    Failure::new("LoadBalancerNotFound", format!("There is no ACTIVE Load Balancer named '{name}'"))
}

/// Load balancer that the request names.
fn named<'a>(state: &'a mut State, params: &Params) -> Result<&'a mut Record, Failure> {
    find(state, params.text("LoadBalancerName"))
}

/// Checks that all load balancers exist. In a view without records, they are not listed instead.
fn check_names(state: &State, names: &[&str]) -> Result<(), Failure> {
    match names.iter().find(|name| state.records.get("classic", name).is_none() && !state.is_empty_view()) {
        Some(name) => Err(not_found(name)),
        None => Ok(()),
    }
}

fn describe(state: &mut State, params: &Params) -> Outcome {
    let names = params.texts("LoadBalancerNames");
    check_names(state, &names)?;
    let rows = state.records.of("classic").iter();
    let found = rows.filter(|row| names.is_empty() || names.contains(&row.record.text("id")));
    page(state, params, "LoadBalancerDescriptions", found.map(|row| row.record.clone().into()).collect())
}

fn create(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("LoadBalancerName");
    check_name(name)?;
    let scheme = params.given("Scheme").unwrap_or("internet-facing");
    require(["internet-facing", "internal"].contains(&scheme), || {
        Failure::new("InvalidScheme", "The scheme is not valid")
    })?;
    let subnets = subnets(state, &params.texts("Subnets"))?;
    let vpc = subnets.first().map_or("", |subnet| subnet.text("vpcId")).to_owned();
    let mut groups = params.texts("SecurityGroups");
    let default = state.fixture.default_group.clone();
    if groups.is_empty() {
        groups.push(&default);
    }
    check_groups(state, &vpc, &groups)?;
    let listeners = params.items("Listeners").iter().map(|sent| listeners::checked(state, sent));
    let listeners = listeners.collect::<Result<Vec<Value>, Failure>>()?;
    let ids: Vec<&str> = subnets.iter().map(|subnet| subnet.text("id")).collect();
    let fields = json!({"LoadBalancerName": name, "Scheme": scheme, "Subnets": ids, "VPCId": vpc, "SecurityGroups": groups,
        "_tags": new_tags(params)?, "AvailabilityZones": zones(&subnets)});
    if let Some(held) = state.records.get("classic", name) {
        return existing(held, &object(fields), &listeners);
    }
    let count = state.records.of("classic").len();
    let message = "The quota for the number of load balancers has been reached";
    require(count < state.options.limits.classic_load_balancers, || Failure::new("TooManyLoadBalancers", message))?;
    let dns = store(state, fields, listeners)?;
    Ok(json!({"DNSName": dns}))
}

/// Response for a name that is taken: the same as before if all settings are equal.
fn existing(held: &Record, new: &Record, listeners: &[Value]) -> Outcome {
    let message = "already exists and it is configured with different parameters.";
    let lists = ["Subnets", "SecurityGroups"].iter().all(|field| sorted(held.texts(field)) == sorted(new.texts(field)));
    let held_listeners: Vec<Value> =
        list(held, "ListenerDescriptions").iter().map(|entry| entry["Listener"].clone()).collect();
    let is_same = lists && held.text("Scheme") == new.text("Scheme") && held_listeners == listeners;
    let name = held.text("id");
    require(is_same, || Failure::new("DuplicateLoadBalancerName", format!("Load Balancer named '{name}' {message}")))?;
    Ok(json!({"DNSName": held.text("DNSName")}))
}

/// Stores a new load balancer and returns its DNS name.
fn store(state: &mut State, fields: Value, listeners: Vec<Value>) -> Result<String, Failure> {
    let mut record = object(fields);
    state.count += 1;
    let (number, region) = (1_200_000_000 + u64::from(state.count) * 7919, &state.options.region);
    let prefix = if record.text("Scheme") == "internal" { "internal-" } else { "" };
    let name = record.text("LoadBalancerName").to_owned();
    let dns = format!("{prefix}{name}-{number}.{region}.elb.amazonaws.com");
    let port = listeners.first().map_or("80", |listener| text(listener, "InstancePort"));
    record.set(
        "HealthCheck",
        json!({"Target": format!("TCP:{port}"), "Interval": "30", "Timeout": "5", "UnhealthyThreshold": "2",
        "HealthyThreshold": "10"}),
    );
    record.set("Policies", policies::names(&[]));
    record.set("CanonicalHostedZoneName", dns.as_str());
    record.set("DNSName", dns.as_str());
    let group = record.texts("SecurityGroups").first().and_then(|id| state.records.get("security_group", id));
    let group = group.map(|group| group.text("groupName").to_owned());
    record.set("SourceSecurityGroup", json!({"OwnerAlias": state.options.account, "GroupName": group}));
    state.put("classic", record);
    listeners::add(find(state, &name)?, listeners)?;
    Ok(dns)
}

/// Creates a load balancer without validation.
pub(crate) fn put(state: &mut State, name: &str, listeners: &Value, given: &[(&str, &str)]) -> String {
    let (ids, vpc) = (state.fixture.public_subnets.clone(), state.fixture.vpc.clone());
    let zones: Vec<String> = ["a", "b", "c"].iter().map(|letter| format!("{}{letter}", state.options.region)).collect();
    let fields = json!({"LoadBalancerName": name, "Scheme": "internet-facing", "Subnets": ids, "VPCId": vpc, "_tags": tags(given),
        "AvailabilityZones": zones, "SecurityGroups": [state.fixture.default_group]});
    let listeners = listeners.as_array().cloned().unwrap_or_default();
    let _ = store(state, fields, listeners);
    name.to_owned()
}

/// Deletes a load balancer. Deleting one that does not exist succeeds.
fn delete(state: &mut State, params: &Params) -> Outcome {
    if let Some(deleted) = state.records.of_mut("classic").remove(params.text("LoadBalancerName")) {
        release_groups(state, &deleted);
    }
    Ok(json!({}))
}

/// Keeps the security groups of a deleted load balancer in use for a while.
pub(crate) fn release_groups(state: &mut State, deleted: &Record) {
    let end = Instant::now() + state.options.lingering;
    state.lingering.extend(deleted.texts("SecurityGroups").into_iter().map(|group| (group.to_owned(), end)));
}

// ---- tags and limits

fn describe_tags(state: &mut State, params: &Params) -> Outcome {
    let names = params.texts("LoadBalancerNames");
    require(names.len() <= 20, || Failure::validation("LoadBalancerNames must have at most 20 items"))?;
    check_names(state, &names)?;
    let found = names.iter().filter_map(|name| state.records.get("classic", name));
    let tags = found.map(|record| json!({"LoadBalancerName": record.text("id"), "Tags": list(record, "_tags")}));
    Ok(json!({"TagDescriptions": tags.collect::<Vec<_>>()}))
}

fn add(state: &mut State, params: &Params) -> Outcome {
    for name in params.texts("LoadBalancerNames") {
        add_tags(find(state, name)?, params.items("Tags"))?;
    }
    Ok(json!({}))
}

fn remove(state: &mut State, params: &Params) -> Outcome {
    for name in params.texts("LoadBalancerNames") {
        remove_tags(find(state, name)?, &texts_of(params, "Tags", "Key"));
    }
    Ok(json!({}))
}

fn account_limits(state: &mut State, _: &Params) -> Outcome {
    let max = state.options.limits.classic_load_balancers;
    Ok(limits(&[("classic-load-balancers", max), ("classic-listeners", 100), ("classic-registered-instances", 1000)]))
}

// ---- subnets, security groups and instances

fn attach(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?.clone();
    let mut ids = record.texts("Subnets");
    ids.extend(params.texts("Subnets").into_iter().filter(|id| !record.texts("Subnets").contains(id)));
    set_subnets(state, params, &ids)
}

fn detach(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?.clone();
    let mut ids = record.texts("Subnets");
    ids.retain(|id| !params.texts("Subnets").contains(id));
    let message = "The load balancer must have at least one subnet";
    require(!ids.is_empty(), || Failure::new("InvalidConfigurationRequest", message).with_status(409))?;
    set_subnets(state, params, &ids)
}

fn set_subnets(state: &mut State, params: &Params, ids: &[&str]) -> Outcome {
    let conflict =
        |failure: Failure| if failure.is("InvalidConfigurationRequest") { failure.with_status(409) } else { failure };
    let zones = zones(&subnets(state, ids).map_err(conflict)?);
    let record = named(state, params)?;
    record.set("Subnets", ids);
    record.set("AvailabilityZones", zones);
    Ok(json!({"Subnets": ids}))
}

fn apply_groups(state: &mut State, params: &Params) -> Outcome {
    let groups = params.texts("SecurityGroups");
    let vpc = named(state, params)?.text("VPCId").to_owned();
    check_groups(state, &vpc, &groups)?;
    named(state, params)?.set("SecurityGroups", groups.as_slice());
    Ok(json!({"SecurityGroups": groups}))
}

fn register(state: &mut State, params: &Params) -> Outcome {
    let record = named(state, params)?.clone();
    let mut instances = list(&record, "Instances");
    for id in texts_of(params, "Instances", "InstanceId") {
        let is_usable = instance_state(state, record.text("VPCId"), id).is_some_and(|state| state != "terminated");
        require(is_usable, || Failure::new("InvalidInstance", format!("Could not find EC2 instance {id}.")))?;
        let instance = json!({"InstanceId": id});
        if !instances.contains(&instance) {
            instances.push(instance);
        }
    }
    named(state, params)?.set("Instances", instances.as_slice());
    Ok(json!({"Instances": instances}))
}

fn deregister(state: &mut State, params: &Params) -> Outcome {
    let mut instances = list(named(state, params)?, "Instances");
    for id in texts_of(params, "Instances", "InstanceId") {
        let is_registered = instances.iter().any(|instance| instance["InstanceId"] == id);
        let is_known = is_registered || state.records.get("instance", id).is_some();
        require(is_known, || Failure::new("InvalidInstance", format!("Could not find EC2 instance {id}.")))?;
        instances.retain(|instance| instance["InstanceId"] != id);
    }
    named(state, params)?.set("Instances", instances.as_slice());
    Ok(json!({"Instances": instances}))
}
