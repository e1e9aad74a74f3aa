//! Load balancers of ELBv2.

use std::net::Ipv4Addr;

use bowline_simulator::{Fields, Job, Record, object};
use serde_json::{Value, json};

use super::{attributes, check_arns, find, new_arn, not_found};
use crate::balancing::{check_groups, check_name, list, new_tags, page, sorted, subnets, tags};
use crate::elb::release_groups;
use crate::params::{Params, items, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

pub(super) const CREATE: &str = "Name! Type Scheme IpAddressType Subnets.# SecurityGroups.# Tags.#.{Key,Value} \
SubnetMappings.#.{SubnetId,AllocationId,PrivateIPv4Address,IPv6Address}";

/// Maximum number of names or ARNs in a request.
const LOOKUPS: usize = 20;

pub(super) fn describe(state: &mut State, params: &Params) -> Outcome {
    let (arns, names) = (params.texts("LoadBalancerArns"), params.texts("Names"));
    let message = "Load balancer names and load balancer ARNs cannot be specified at the same time";
    require(arns.is_empty() || names.is_empty(), || Failure::validation(message))?;
    let is_short = arns.len() <= LOOKUPS && names.len() <= LOOKUPS;
    require(is_short, || Failure::validation(format!("A request can have at most {LOOKUPS} names or ARNs")))?;
    check_arns(state, "load_balancer", &arns)?;
    let all: Vec<&Record> = state.records.of("load_balancer").iter().map(|row| &row.record).collect();
    let is_missing = |name: &&str| !all.iter().any(|record| record.text("LoadBalancerName") == *name);
    if let Some(name) = names.iter().find(|name| is_missing(name)).filter(|_| !state.is_empty_view()) {
        return Err(Failure::new("LoadBalancerNotFound", format!("Load balancers '[{name}]' not found")));
    }
    let is_wanted = |record: &&Record| {
        let by_arn = arns.is_empty() || arns.contains(&record.text("id"));
        by_arn && (names.is_empty() || names.contains(&record.text("LoadBalancerName")))
    };
    let found = all.into_iter().filter(is_wanted).map(|record| record.clone().into()).collect();
    page(state, params, "LoadBalancers", found)
}

pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let name = params.text("Name");
    let kind = params.given("Type").unwrap_or("application");
    let scheme = params.given("Scheme").unwrap_or("internet-facing");
    check_settings(name, kind, scheme)?;
    let mappings = mappings(params)?;
    let ids: Vec<&str> = mappings.iter().map(|mapping| text(mapping, "SubnetId")).collect();
    let subnets = subnets(state, &ids)?;
    let enough = || Failure::validation("At least two subnets in two different Availability Zones must be specified");
    require(kind != "application" || subnets.len() > 1, enough)?;
    let vpc = subnets.first().map_or("", |subnet| subnet.text("vpcId")).to_owned();
    let groups = params.texts("SecurityGroups");
    check_groups(state, &vpc, &groups)?;
    let fields = json!({"LoadBalancerName": name, "Type": kind, "Scheme": scheme, "VpcId": vpc, "_tags": new_tags(params)?,
        "IpAddressType": params.given("IpAddressType"), "SecurityGroups": Some(&groups).filter(|groups| !groups.is_empty())});
    let new = object(fields);
    let held = state.records.of("load_balancer").iter().find(|row| row.record.text("LoadBalancerName") == name);
    if let Some(row) = held {
        return existing(&row.record, &new, &ids);
    }
    let count = state.records.of("load_balancer").len();
    let message = "The quota for the number of load balancers has been reached";
    require(count < state.options.limits.load_balancers, || Failure::new("TooManyLoadBalancers", message))?;
    let zones = zones(state, scheme, &mappings, &subnets)?;
    let arn = store(state, new, zones);
    state.hide("load_balancer", &arn);
    find(state, "load_balancer", &arn)?.set("State", json!({"Code": "provisioning"}));
    state.jobs.begin(arn.clone(), state.options.work);
    Ok(json!({"LoadBalancers": [state.records.get("load_balancer", &arn)]}))
}

fn check_settings(name: &str, kind: &str, scheme: &str) -> Result<(), Failure> {
    check_name(name)?;
    let reserved = || Failure::validation("The load balancer name cannot begin with 'internal-'");
    require(!name.starts_with("internal-"), reserved)?;
    let is_type = ["network", "application"].contains(&kind);
    require(is_type, || Failure::validation(format!("Load balancer type '{kind}' is not valid")))?;
    let is_scheme = ["internet-facing", "internal"].contains(&scheme);
    require(is_scheme, || Failure::new("InvalidScheme", format!("The scheme '{scheme}' is not valid")))
}

/// Subnets of a request, in the form of subnet mappings.
fn mappings(params: &Params) -> Result<Vec<Value>, Failure> {
    let (mappings, subnets) = (params.items("SubnetMappings"), params.texts("Subnets"));
    let message = "You can specify only subnets or subnet mappings";
    require(mappings.is_empty() != subnets.is_empty(), || Failure::validation(message))?;
    let plain = subnets.into_iter().map(|id| json!({"SubnetId": id}));
    Ok(mappings.iter().cloned().chain(plain).collect())
}

/// Response for a name that is taken: the same load balancer if all settings are equal.
fn existing(held: &Record, new: &Record, subnets: &[&str]) -> Outcome {
    let name = held.text("LoadBalancerName");
    let zones = list(held, "AvailabilityZones");
    let is_same = ["Type", "Scheme", "VpcId"].iter().all(|field| held.text(field) == new.text(field))
        && sorted(zones.iter().map(|zone| text(zone, "SubnetId"))) == sorted(subnets.iter().copied())
        && sorted(held.texts("SecurityGroups")) == sorted(new.texts("SecurityGroups"));
    let message = format!("A load balancer with the same name '{name}' exists, but with different settings");
    require(is_same, || Failure::new("DuplicateLoadBalancerName", message))?;
    Ok(json!({"LoadBalancers": [held]}))
}

/// Zones of a load balancer with their addresses. An elastic IP address must not be in use.
fn zones(state: &State, scheme: &str, mappings: &[Value], subnets: &[Record]) -> Result<Vec<Value>, Failure> {
    let mut zones = Vec::new();
    for (mapping, subnet) in mappings.iter().zip(subnets) {
        let (allocation, private) = (text(mapping, "AllocationId"), text(mapping, "PrivateIPv4Address"));
        let conflict = |message: &str| Failure::new("InvalidConfigurationRequest", message);
        let is_legal = (allocation.is_empty() || scheme != "internal") && (private.is_empty() || scheme == "internal");
        require(is_legal, || {
            conflict("An elastic IP address needs an internet-facing load balancer, a private one an internal one")
        })?;
        let mut addresses = Vec::new();
        if !allocation.is_empty() {
            let missing =
                || Failure::new("AllocationIdNotFound", format!("The allocation ID '{allocation}' does not exist"));
            let address = state.records.get("address", allocation).ok_or_else(missing)?;
            let in_use =
                || Failure::new("ResourceInUse", format!("The allocation ID '{allocation}' is already in use"));
            require(!is_allocated(state, allocation), in_use)?;
            addresses.push(json!({"AllocationId": allocation, "IpAddress": address.text("publicIp")}));
        }
        if !private.is_empty() {
            let cidr = subnet.text("cidrBlock").parse::<ipnet::Ipv4Net>();
            let address = private.parse::<Ipv4Addr>();
            let is_inside = cidr.ok().zip(address.ok()).is_some_and(|(cidr, address)| cidr.contains(&address));
            require(is_inside, || conflict("The private IPv4 address is not in the subnet"))?;
            addresses.push(json!({"PrivateIPv4Address": private}));
        }
        zones.push(json!({"ZoneName": subnet.text("availabilityZone"), "SubnetId": subnet.text("id"),
            "LoadBalancerAddresses": addresses}));
    }
    Ok(zones)
}

/// Whether a load balancer has this elastic IP address.
fn is_allocated(state: &State, allocation: &str) -> bool {
    let zones = state.records.of("load_balancer").iter().flat_map(|row| list(&row.record, "AvailabilityZones"));
    zones
        .into_iter()
        .any(|zone| items(&zone, "LoadBalancerAddresses").iter().any(|address| address["AllocationId"] == allocation))
}

/// Stores an active load balancer and returns its ARN.
fn store(state: &mut State, mut record: Record, zones: Vec<Value>) -> String {
    let (name, kind) = (record.text("LoadBalancerName").to_owned(), record.text("Type").to_owned());
    let short = if kind == "network" { "net" } else { "app" };
    let arn = new_arn(state, &format!("loadbalancer/{short}/{name}"));
    let id = arn.rsplit('/').next().unwrap_or_default();
    let region = &state.options.region;
    let dns = match (kind.as_str(), record.text("Scheme")) {
        ("network", _) => format!("{name}-{id}.elb.{region}.amazonaws.com"),
        (_, "internal") => format!("internal-{name}-1{:09}.{region}.elb.amazonaws.com", state.count),
        _ => format!("{name}-1{:09}.{region}.elb.amazonaws.com", state.count),
    };
    record.set("LoadBalancerArn", arn.as_str());
    record.set("DNSName", dns);
    record.set("AvailabilityZones", zones);
    record.set("_attributes", attributes::defaults("load_balancer"));
    state.put("load_balancer", record)
}

/// Creates an active load balancer without validation.
pub(crate) fn put(state: &mut State, name: &str, kind: &str, given: &[(&str, &str)]) -> String {
    let ids = state.fixture.public_subnets.clone();
    let zone = |id: &String| {
        let zone = state.records.get("subnet", id).map(|subnet| subnet.text("availabilityZone").to_owned());
        json!({"ZoneName": zone, "SubnetId": id, "LoadBalancerAddresses": []})
    };
    let zones = ids.iter().map(zone).collect();
    let fields = json!({"LoadBalancerName": name, "Type": kind, "VpcId": state.fixture.vpc, "_tags": tags(given)});
    store(state, object(fields), zones)
}

/// Completes the creation of a load balancer.
pub(crate) fn finish(state: &mut State, job: &Job<String>) {
    if let Some(record) = state.records.get_mut("load_balancer", &job.change) {
        let failed = json!({"Code": "failed", "Reason": "Load balancer creation failed"});
        record.set("State", if job.fails { failed } else { json!({"Code": "active"}) });
    }
}

/// Deletes a load balancer and its listeners. Deleting one that does not exist succeeds.
pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("LoadBalancerArn");
    require(arn.contains(":loadbalancer/"), || not_found("load_balancer", arn))?;
    let Some(record) = state.records.get("load_balancer", arn).cloned() else { return Ok(json!({})) };
    let is_protected =
        record.get("_attributes").is_some_and(|attributes| attributes["deletion_protection.enabled"] == "true");
    let message = format!("Load balancer '{arn}' cannot be deleted because deletion protection is enabled");
    require(!is_protected, || Failure::new("OperationNotPermitted", message))?;
    state.records.of_mut("load_balancer").remove(arn);
    state.records.of_mut("listener").retain(|row| row.owner != arn);
    release_groups(state, &record);
    Ok(json!({}))
}

/// Changes the security groups. A network load balancer that was created without any cannot get them later.
pub(super) fn set_security_groups(state: &mut State, params: &Params) -> Outcome {
    let arn = params.text("LoadBalancerArn");
    let record = find(state, "load_balancer", arn)?.clone();
    let groups = params.texts("SecurityGroups");
    check_groups(state, record.text("VpcId"), &groups)?;
    let message = "You cannot add security groups to a load balancer that was created without them, or remove all";
    let is_legal = record.text("Type") != "network" || !record.texts("SecurityGroups").is_empty() && !groups.is_empty();
    require(is_legal, || Failure::new("InvalidConfigurationRequest", message))?;
    find(state, "load_balancer", arn)?.set("SecurityGroups", groups.as_slice());
    Ok(json!({"SecurityGroupIds": groups, "EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic": "on"}))
}
