//! Security groups and their rules.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{bad_request, check_fields, fault, not_found, quotas, sent, skeletons, touch, view};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

/// Fields that identify a rule.
const IDENTITY: [&str; 8] = [
    "security_group_id",
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
];

/// Protocols that Neutron knows by name.
const PROTOCOLS: [&str; 25] = [
    "ah",
    "dccp",
    "egp",
    "esp",
    "gre",
    "hopopt",
    "icmp",
    "igmp",
    "ip",
    "ipip",
    "ipv6-encap",
    "ipv6-frag",
    "ipv6-icmp",
    "icmpv6",
    "ipv6-nonxt",
    "ipv6-opts",
    "ipv6-route",
    "ospf",
    "pgm",
    "rsvp",
    "sctp",
    "tcp",
    "udp",
    "udplite",
    "vrrp",
];

pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    let sent = sent(call, "security_group")?;
    check_fields(Kind::SecurityGroup, &sent)?;
    quotas::check(state, "security_group", Kind::SecurityGroup)?;
    let group = add(state, sent);
    Ok(Reply::one(201, "security_group", view(state, Kind::SecurityGroup, &group)))
}

/// Creates a security group with Neutron's default rules, which allow all egress traffic.
pub(crate) fn add(state: &mut State, fields: Record) -> Record {
    let mut group = skeletons::new(state, Kind::SecurityGroup);
    group.remove("security_group_rules");
    group.set("revision_number", 1);
    group.extend(fields);
    state.records.of_mut(Kind::SecurityGroup).insert("", group.clone());
    for ethertype in ["IPv4", "IPv6"] {
        let mut rule = skeletons::new(state, Kind::SecurityGroupRule);
        rule.set("security_group_id", group.text("id"));
        rule.set("direction", "egress");
        rule.set("ethertype", ethertype);
        rule.set("description", Value::Null);
        state.records.of_mut(Kind::SecurityGroupRule).insert("", rule);
    }
    group
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let sent = sent(call, "security_group")?;
    check_fields(Kind::SecurityGroup, &sent)?;
    let date = state.with_zone();
    let group = state.records.get_mut(Kind::SecurityGroup, id).ok_or_else(|| not_found(Kind::SecurityGroup, id))?;
    group.extend(sent);
    touch(group, &date);
    let group = group.clone();
    Ok(Reply::one(200, "security_group", view(state, Kind::SecurityGroup, &group)))
}

pub(super) fn delete(state: &mut State, id: &str) -> Outcome {
    state.records.get(Kind::SecurityGroup, id).ok_or_else(|| not_found(Kind::SecurityGroup, id))?;
    let in_use = state.records.of(Kind::Port).iter().any(|row| row.record.texts("security_groups").contains(&id));
    if in_use {
        return Err(fault(409, "SecurityGroupInUse", &format!("Security Group {id} in use.")));
    }
    state.records.of_mut(Kind::SecurityGroup).remove(id);
    state.records.of_mut(Kind::SecurityGroupRule).retain(|row| row.record.text("security_group_id") != id);
    Ok(Reply::empty(204))
}

pub(super) fn create_rule(state: &mut State, call: &Call) -> Outcome {
    let sent = sent(call, "security_group_rule")?;
    check_fields(Kind::SecurityGroupRule, &sent)?;
    let group = sent.text("security_group_id");
    state.records.get(Kind::SecurityGroup, group).ok_or_else(|| not_found(Kind::SecurityGroup, group))?;
    let mut rule = skeletons::new(state, Kind::SecurityGroupRule);
    rule.extend(sent);
    check_rule(&rule)?;
    check_duplicate(state, &rule)?;
    quotas::check(state, "security_group_rule", Kind::SecurityGroupRule)?;
    let normalized = rule.text("remote_ip_prefix").parse::<IpNet>().ok().map(|net| net.trunc().to_string());
    rule.set("normalized_cidr", normalized);
    state.records.of_mut(Kind::SecurityGroupRule).insert("", rule.clone());
    Ok(Reply::one(201, "security_group_rule", rule))
}

fn check_rule(rule: &Record) -> Result<(), Reply> {
    let protocol = rule.text("protocol");
    if !protocol.is_empty() && protocol.parse::<u8>().is_err() && !PROTOCOLS.contains(&protocol) {
        let known = PROTOCOLS.map(|known| format!("'{known}'")).join(", ");
        let message =
            format!("Security group rule protocol {protocol} not supported. Only protocol values [None, {known}]");
        let message = format!("{message} and integer representations [0 to 255] are supported.");
        return Err(bad_request("SecurityGroupRuleInvalidProtocol", &message));
    }
    let (prefix, ethertype) = (rule.text("remote_ip_prefix"), rule.text("ethertype"));
    let family = match prefix.parse() {
        Ok(IpNet::V4(_)) => "IPv4",
        Ok(IpNet::V6(_)) => "IPv6",
        Err(_) if prefix.is_empty() => ethertype,
        Err(_) => return Err(bad_request("InvalidCIDR", &format!("Invalid CIDR {prefix} given as IP prefix."))),
    };
    if family != ethertype {
        let message = format!("Conflicting value ethertype {ethertype} for CIDR {prefix}");
        return Err(bad_request("SecurityGroupRuleParameterConflict", &message));
    }
    let port = |field| rule.get(field).and_then(Value::as_u64);
    if port("port_range_min") > port("port_range_max") {
        let message = "For TCP/UDP protocols, port_range_min must be <= port_range_max";
        return Err(bad_request("SecurityGroupInvalidPortRange", message));
    }
    Ok(())
}

fn check_duplicate(state: &State, rule: &Record) -> Result<(), Reply> {
    let value = |rule: &Record, field: &str| rule.get(field).cloned().unwrap_or(json!(null));
    let is_same = |other: &Record| IDENTITY.iter().all(|field| value(other, field) == value(rule, field));
    let same = state.records.of(Kind::SecurityGroupRule).iter().find(|row| is_same(&row.record));
    same.map_or(Ok(()), |row| {
        let message = format!("Security group rule already exists. Rule id is {}.", row.record.text("id"));
        Err(fault(409, "SecurityGroupRuleExists", &message))
    })
}
