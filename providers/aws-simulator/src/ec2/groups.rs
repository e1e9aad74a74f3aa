//! Security groups and their inbound rules.
//!
//! The record of a group has its rules one by one in `_rules`: protocol, ports, kind of source, source and description. Responses
//! show all rules of one protocol and port range as one permission.

use std::collections::BTreeSet;

use bowline_simulator::{Fields, Record, object};
use ipnet::{Ipv4Net, Ipv6Net};
use serde_json::{Map, Value, json};

use super::{GROUPS, check_ids, pairs, tag_set, tags};
use crate::fixture::DEFAULT_GROUP;
use crate::params::{Params, items, text};
use crate::simulator::State;
use crate::wire::{Api, Failure, Outcome, require};

/// Parameters of the actions that change rules.
pub(super) const RULES: &str = "GroupId! IpPermissions.#.{IpProtocol!,FromPort,ToPort,IpRanges.#.{CidrIp,Description},\
Ipv6Ranges.#.{CidrIpv6,Description},Groups.#.{GroupId,UserId,VpcId,Description},PrefixListIds.#.{PrefixListId,Description}}";

/// Kinds of sources: list and field in requests, list and field in responses, and the field of a single rule.
const SOURCES: [(&str, &str, &str, &str, &str); 4] = [
    ("IpRanges", "CidrIp", "ipRanges", "cidrIp", "cidrIpv4"),
    ("Ipv6Ranges", "CidrIpv6", "ipv6Ranges", "cidrIpv6", "cidrIpv6"),
    ("Groups", "GroupId", "groups", "groupId", "referencedGroupId"),
    ("PrefixListIds", "PrefixListId", "prefixListIds", "prefixListId", "prefixListId"),
];

/// Names of protocols, each with its number.
const PROTOCOLS: [(&str, &str); 5] = [("tcp", "6"), ("udp", "17"), ("icmp", "1"), ("icmpv6", "58"), ("-1", "all")];

/// Characters of a description, besides letters, digits and spaces.
const DESCRIPTION: &str = "._-:/()#,@[]+=&;{}!$*";

pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let (name, description) = (params.text("GroupName"), params.text("GroupDescription"));
    let vpc = params.given("VpcId").unwrap_or(&state.fixture.vpc).to_owned();
    let missing = || Failure::new("InvalidVpcID.NotFound", format!("The vpc ID '{vpc}' does not exist"));
    require(state.records.get("vpc", &vpc).is_some(), missing)?;
    let is_name = is_text(name) && name.len() <= 255 && !name.starts_with("sg-");
    require(is_name, || Failure::invalid(format!("Value ({name}) for parameter GroupName is invalid.")))?;
    check_description("GroupDescription", description)?;
    let is_name_of = |group: &Record| group.text("groupName") == name && group.text("vpcId") == vpc;
    let is_taken = state.records.of("security_group").iter().any(|row| is_name_of(&row.record));
    let message = format!("The security group '{name}' already exists for VPC '{vpc}'");
    require(!is_taken, || Failure::new("InvalidGroup.Duplicate", message))?;
    let is_below = state.records.of("security_group").len() < state.options.limits.security_groups;
    require(is_below, || {
        Failure::new("SecurityGroupLimitExceeded", "The maximum number of security groups has been reached.")
    })?;
    let specified = params.items("TagSpecification");
    let is_group = specified.iter().all(|tags| text(tags, "ResourceType") == "security-group");
    require(is_group, || Failure::invalid("The resource type of a tag specification must be security-group"))?;
    let sent: Vec<Value> = specified.iter().flat_map(|specified| items(specified, "Tag")).cloned().collect();
    tags::check(&sent)?;
    let fields =
        json!({"groupName": name, "groupDescription": description, "vpcId": vpc, "tagSet": tag_set(pairs(&sent))});
    let id = state.put("security_group", object(fields));
    state.hide("security_group", &id);
    Ok(json!({"return": true, "groupId": id, "tagSet": tag_set(pairs(&sent)), "securityGroupArn": arn(state, &id)}))
}

fn arn(state: &State, id: &str) -> String {
    format!("arn:aws:ec2:{}:{}:security-group/{id}", state.options.region, state.options.account)
}

fn is_text(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ' || DESCRIPTION.contains(c))
}

fn check_description(name: &str, description: &str) -> Result<(), Failure> {
    let message = format!(
        "Value ({description}) for parameter {name} is invalid. Character sets beyond ASCII are not supported."
    );
    require(is_text(description) && description.len() <= 255, || Failure::invalid(message))
}

pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let id = params.text("GroupId");
    check_ids(state, &GROUPS, &[id])?;
    let is_default =
        state.records.get("security_group", id).is_some_and(|group| group.text("groupName") == DEFAULT_GROUP);
    require(!is_default, || {
        Failure::new(
            "CannotDelete",
            format!("the specified group: \"{id}\" name: \"default\" cannot be deleted by a user"),
        )
    })?;
    require(!in_use(state, id), || {
        Failure::new("DependencyViolation", format!("resource {id} has a dependent object"))
    })?;
    state.records.of_mut("security_group").remove(id);
    Ok(json!({"return": true, "groupId": id}))
}

/// Whether another group, a network interface or a load balancer uses a group.
fn in_use(state: &State, id: &str) -> bool {
    let holds = |kind: &'static str, holds: &dyn Fn(&Record) -> bool| {
        state.records.of(kind).iter().any(|row| row.record.text("id") != id && holds(&row.record))
    };
    let lists = |list: &[Value], field: &str| list.iter().any(|item| text(item, field) == id);
    let field = |record: &Record, name: &str| record.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let is_lingering = state.lingering.iter().any(|(group, _)| group == id);
    is_lingering
        || holds("security_group", &|group| lists(&field(group, "_rules"), "source"))
        || holds("network_interface", &|interface| lists(&field(interface, "groupSet"), "groupId"))
        || ["classic", "load_balancer"]
            .iter()
            .any(|kind| holds(kind, &|record| record.texts("SecurityGroups").contains(&id)))
}

// ---- rules

pub(super) fn authorize(state: &mut State, params: &Params) -> Outcome {
    let id = params.text("GroupId");
    let rules = requested(state, params)?;
    let added = add_rules(state, id, rules)?;
    let added: Vec<Value> = added.iter().map(|rule| shown(state, id, rule)).collect();
    Ok(json!({"return": true, "securityGroupRuleSet": added}))
}

/// Adds rules to a group, and returns them with their IDs.
pub(crate) fn add_rules(state: &mut State, group: &str, mut rules: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let mut held = held(state, group);
    for (at, rule) in rules.iter().enumerate() {
        let message = "The same permission must not appear multiple times";
        require(!rules.iter().take(at).any(|other| is_same(other, rule)), || Failure::invalid(message))?;
        let message = format!("the specified rule \"peer: {}, ALLOW\" already exists", text(rule, "source"));
        require(!held.iter().any(|other| is_same(other, rule)), || {
            Failure::new("InvalidPermission.Duplicate", message)
        })?;
    }
    rules.iter_mut().for_each(|rule| rule["rule"] = state.new_id("sgr").into());
    held.extend(rules.iter().cloned());
    let limit = state.options.limits.rules;
    let of_family = |other: &str| held.iter().filter(|rule| text(rule, "kind") != other).count();
    let is_below = of_family("Ipv6Ranges") <= limit && of_family("IpRanges") <= limit;
    let message = "The maximum number of rules per security group has been reached.";
    require(is_below, || Failure::new("RulesPerSecurityGroupLimitExceeded", message))?;
    keep(state, group, held);
    Ok(rules)
}

pub(super) fn revoke(state: &mut State, params: &Params) -> Outcome {
    let id = params.text("GroupId");
    let rules = requested(state, params)?;
    let mut held = held(state, id);
    for rule in &rules {
        let missing =
            || Failure::new("InvalidPermission.NotFound", "The specified rule does not exist in this security group.");
        require(held.iter().any(|other| is_same(other, rule)), missing)?;
    }
    held.retain(|other| !rules.iter().any(|rule| is_same(other, rule)));
    keep(state, id, held);
    Ok(json!({"return": true}))
}

fn held(state: &State, group: &str) -> Vec<Value> {
    let record = state.records.get("security_group", group);
    record.and_then(|group| group.get("_rules")).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn keep(state: &mut State, group: &str, rules: Vec<Value>) {
    if let Some(record) = state.records.get_mut("security_group", group) {
        record.set("_rules", rules);
    }
}

/// Compares rules without their descriptions.
fn is_same(one: &Value, other: &Value) -> bool {
    ["protocol", "from", "to", "kind", "source"].iter().all(|field| one[field] == other[field])
}

/// Rules in a request, one for each source.
fn requested(state: &State, params: &Params) -> Result<Vec<Value>, Failure> {
    check_ids(state, &GROUPS, &[params.text("GroupId")])?;
    let mut rules = Vec::new();
    for permission in params.items("IpPermissions") {
        let (protocol, from, to) = ports(permission)?;
        for (list, field, ..) in SOURCES {
            for sent in items(permission, list) {
                let source = source(state, list, text(sent, field))?;
                if !sent["Description"].is_null() {
                    check_description("description", text(sent, "Description"))?;
                }
                rules.push(json!({"protocol": protocol, "from": from, "to": to, "kind": list, "source": source,
                    "description": sent["Description"]}));
            }
        }
    }
    require(!rules.is_empty(), || Failure::missing(Api::Ec2, "ipPermissions"))?;
    Ok(rules)
}

/// Protocol and ports of a permission, as EC2 stores them.
fn ports(permission: &Value) -> Result<(String, Option<i64>, Option<i64>), Failure> {
    let sent = text(permission, "IpProtocol");
    let named = PROTOCOLS.iter().find(|(name, number)| *name == sent || *number == sent).map(|(name, _)| *name);
    let is_number = sent.parse::<u8>().is_ok();
    let message = format!("Invalid value '{sent}' for IP protocol. Unknown protocol.");
    let protocol = named.or(Some(sent).filter(|_| is_number)).ok_or_else(|| Failure::invalid(message))?;
    let port = |field: &str| text(permission, field).parse::<i64>().ok();
    let (from, to) = (port("FromPort"), port("ToPort"));
    match protocol {
        "tcp" | "udp" => {
            let is_valid = from.zip(to).is_some_and(|(from, to)| 0 <= from && from <= to && to <= 65535);
            let message = format!("Invalid {} port range: {from:?} to {to:?}", protocol.to_uppercase());
            require(is_valid, || Failure::invalid(message))?;
            Ok((protocol.to_owned(), from, to))
        }
        "icmp" | "icmpv6" => Ok((protocol.to_owned(), from.or(Some(-1)), to.or(Some(-1)))),
        _ => Ok((protocol.to_owned(), None, None)),
    }
}

/// Source of a rule; CIDRs are canonical.
fn source(state: &State, list: &str, sent: &str) -> Result<String, Failure> {
    let malformed = || Failure::invalid(format!("CIDR block {sent} is malformed"));
    match list {
        "IpRanges" => Ok(sent.parse::<Ipv4Net>().map_err(|_| malformed())?.trunc().to_string()),
        "Ipv6Ranges" => Ok(sent.parse::<Ipv6Net>().map_err(|_| malformed())?.trunc().to_string()),
        "Groups" => check_ids(state, &GROUPS, &[sent]).map(|()| sent.to_owned()),
        _ => Ok(sent.to_owned()),
    }
}

// ---- responses

/// Group as responses show it.
pub(crate) fn view(state: &State, group: &Record) -> Record {
    let mut permissions: Vec<Value> = Vec::new();
    let mut known = BTreeSet::new();
    let rules = held(state, group.text("id"));
    for rule in &rules {
        if known.insert(format!("{} {} {}", rule["protocol"], rule["from"], rule["to"])) {
            let same =
                rules.iter().filter(|other| ["protocol", "from", "to"].iter().all(|field| other[field] == rule[field]));
            permissions.push(permission(state, rule, &same.collect::<Vec<_>>()));
        }
    }
    let mut view = group.clone();
    view.set("securityGroupArn", arn(state, group.text("id")));
    view.set("ipPermissions", permissions);
    view
}

/// Permission with all rules of one protocol and port range.
fn permission(state: &State, first: &Value, rules: &[&Value]) -> Value {
    let mut shown = json!({"ipProtocol": first["protocol"], "fromPort": first["from"], "toPort": first["to"]});
    for (list, _, name, field, _) in SOURCES {
        let of_kind = rules.iter().filter(|rule| text(rule, "kind") == list);
        let sources = of_kind.map(|rule| {
            let account = json!(state.options.account);
            let account = if list == "Groups" { account } else { Value::Null };
            json!({field: rule["source"], "description": rule["description"], "userId": account})
        });
        shown[name] = sources.collect::<Vec<_>>().into();
    }
    shown
}

/// Single rule in the response to its creation.
fn shown(state: &State, group: &str, rule: &Value) -> Value {
    // A rule without ports has -1 here, unlike in a permission.
    let port = |field: &str| if rule[field].is_null() { json!(-1) } else { rule[field].clone() };
    let mut shown = Map::new();
    shown.set("securityGroupRuleId", rule["rule"].clone());
    shown.set("groupId", group);
    shown.set("groupOwnerId", state.options.account.as_str());
    shown.set("isEgress", false);
    shown.set("ipProtocol", rule["protocol"].clone());
    shown.set("fromPort", port("from"));
    shown.set("toPort", port("to"));
    shown.set("description", rule["description"].clone());
    let field = SOURCES.iter().find(|source| source.0 == text(rule, "kind")).map_or("", |source| source.4);
    match field {
        "referencedGroupId" => {
            shown.set("referencedGroupInfo", json!({"groupId": rule["source"], "userId": state.options.account}))
        }
        field => shown.set(field, rule["source"].clone()),
    }
    shown.into()
}
