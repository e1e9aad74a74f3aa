//! Security group of a Service, which accepts the load balancer's traffic on the nodes.
//!
//! ```text
//!  managed ─────► group ──► a rule for each node port and for the health check; other rules are deleted ──► ports of the nodes
//!                 ──► groups of earlier Services of the name are deleted
//!  not managed ─► a group from the time when it was managed is removed from ports and deleted
//! ```

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{FieldChange, Verb};
use ipnet::IpNet;
use serde_json::json;

use super::super::change::{Change, GroupRef};
use super::super::features::OVN;
use super::super::observation::Security;
use super::super::servers::{self, Backend};
use super::{Context, Draft, PLAN, field, members};
use crate::api::network::{
    PORTS, Port, SECURITY_GROUP_RULES, SECURITY_GROUPS, SecurityGroup, SecurityGroupRule, Subnet,
};

pub(in super::super) const GROUP: &str = SECURITY_GROUPS.resource.name;
const PORT: &str = PORTS.resource.name;

/// An ingress rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    protocol: String,
    port: u16,
    from: IpNet,
}

pub(super) fn steps(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    if let Some(error) = &context.seen.errors.security {
        return Err(error.clone().into());
    }
    if !context.config.load_balancer.manage_security_groups {
        removal(&context.seen.security, draft);
        return Ok(());
    }
    // The subnet of the members of a new load balancer may be known only once it is created; the next plan has it.
    let Some(subnet) = &context.seen.security.member_subnet else { return Ok(()) };
    let wanted = wanted(context, subnet)?;
    let group = match context.seen.security.groups.as_slice() {
        [] => create(context, draft),
        [group] => GroupRef::Id(group.id.clone()),
        groups => return Err(several(groups)),
    };
    change_rules(context, &group, &wanted, draft);
    join(context, &group, draft)?;
    remove(&context.seen.security.stale, &context.seen.security.ports, draft);
    Ok(())
}

/// Adds steps that delete all observed groups.
pub(super) fn removal(seen: &Security, draft: &mut Draft) {
    remove(seen.all(), &seen.ports, draft);
}

fn remove<'a>(groups: impl IntoIterator<Item = &'a SecurityGroup>, ports: &[Port], draft: &mut Draft) {
    for group in groups {
        for port in ports.iter().filter(|port| port.security_groups.contains(&group.id)) {
            change_groups(port, GroupRef::Id(group.id.clone()), Some(&group.name), None, draft);
        }
        // Earlier versions of the Go manager tagged ports like this.
        for port in ports.iter().filter(|port| port.tags.contains(&group.id)) {
            let change = Change::DeletePortTag { port: port.id.clone(), tag: group.id.clone() };
            let changes = vec![field("tags", Some(group.id.clone()), None)];
            draft.push(None, Verb::Update, PORT, &port.id, changes, change);
        }
        draft.delete(SECURITY_GROUPS.resource, &group.id, &group.name, Vec::new());
    }
}

// ---- the group

fn create(context: &Context<'_>, draft: &mut Draft) -> GroupRef {
    let (name, description) = (context.names.security_group(), context.names.security_group_description());
    let body = json!({ "name": name, "description": description });
    draft.push(None, Verb::Create, GROUP, &name, Vec::new(), Change::CreateSecurityGroup { body });
    GroupRef::New { name, description }
}

fn several(groups: &[SecurityGroup]) -> Error {
    let ids: Vec<_> = groups.iter().map(|group| group.id.as_str()).collect();
    let name = groups.first().map(|group| group.name.as_str()).unwrap_or_default();
    let message = format!(
        "found several security groups named {name}, and it is unknown which one is used: {}; delete all but one",
        ids.join(", ")
    );
    Error::new(ErrorKind::Conflict, PLAN, message)
}

// ---- its rules

fn wanted(context: &Context<'_>, subnet: &Subnet) -> Result<BTreeSet<Rule>> {
    let members: IpNet = subnet.cidr.parse().map_err(|_| invalid_cidr(subnet))?;
    let health = context.spec.health_check.as_ref().map(|check| Rule {
        protocol: "tcp".to_owned(),
        port: check.port,
        from: members,
    });
    // OVN preserves client addresses, so its traffic does not come from the subnet.
    let from = match context.config.load_balancer.provider == OVN {
        true => context.settings.allowed_cidrs(&context.families()),
        false => BTreeSet::from([members]),
    };
    let node_ports = context.spec.ports.iter().filter_map(|port| {
        let node_port = members::node_port(port)?;
        Some((port.protocol.to_string().to_lowercase(), node_port))
    });
    let traffic = node_ports
        .flat_map(|(protocol, port)| from.iter().map(move |&from| Rule { protocol: protocol.clone(), port, from }));
    Ok(traffic.chain(health.filter(|rule| rule.port != 0)).collect())
}

fn invalid_cidr(subnet: &Subnet) -> Error {
    let message = format!("the CIDR {:?} of the member subnet {} is invalid", subnet.cidr, subnet.id);
    Error::new(ErrorKind::Unexpected, PLAN, message)
}

/// Creates new rules first, so that traffic is never interrupted.
fn change_rules(context: &Context<'_>, group: &GroupRef, wanted: &BTreeSet<Rule>, draft: &mut Draft) {
    let existing: Vec<_> = context.seen.security.groups.iter().flat_map(|group| &group.security_group_rules).collect();
    for rule in wanted.iter().filter(|rule| !existing.iter().any(|existing| rule.is(existing))) {
        let change = Change::CreateSecurityGroupRule { group: group.clone(), body: rule.body() };
        draft.push(None, Verb::Create, SECURITY_GROUP_RULES.resource.name, &rule.to_string(), Vec::new(), change);
    }
    // upstream: the two default egress rules, which Neutron adds to every group, are deleted.
    for rule in existing.iter().filter(|existing| !wanted.iter().any(|rule| rule.is(existing))) {
        draft.delete(SECURITY_GROUP_RULES.resource, &rule.id, &rule.id, described(rule));
    }
}

impl Rule {
    fn is(&self, existing: &SecurityGroupRule) -> bool {
        existing.direction == "ingress"
            && existing.protocol.eq_ignore_ascii_case(&self.protocol)
            && existing.ethertype == self.ethertype()
            && existing.remote_ip_prefix.parse() == Ok(self.from)
            && (existing.port_range_min, existing.port_range_max) == (self.port, self.port)
    }

    fn ethertype(&self) -> &'static str {
        match self.from {
            IpNet::V4(_) => "IPv4",
            IpNet::V6(_) => "IPv6",
        }
    }

    fn body(&self) -> serde_json::Value {
        json!({
            "direction": "ingress",
            "ethertype": self.ethertype(),
            "protocol": self.protocol,
            "port_range_min": self.port,
            "port_range_max": self.port,
            "remote_ip_prefix": self.from.to_string(),
        })
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} from {}", self.port, self.protocol, self.from)
    }
}

fn described(rule: &SecurityGroupRule) -> Vec<FieldChange> {
    let SecurityGroupRule { direction, ethertype, protocol, port_range_min, port_range_max, .. } = rule;
    let text = match (protocol.as_str(), *port_range_max) {
        ("", _) => format!("{direction} {ethertype}, everything"),
        (protocol, 0) => format!("{direction} {ethertype} {protocol}"),
        (protocol, _) => format!("{direction} {ethertype} {protocol} {port_range_min}-{port_range_max}"),
    };
    vec![field("rule", Some(text), None)]
}

// ---- ports of the nodes

/// Adds the group to the ports that receive traffic of the load balancer; a server may have others.
fn join(context: &Context<'_>, group: &GroupRef, draft: &mut Draft) -> Result<()> {
    let backends = servers::behind(context.config, &context.spec.targets, context.settings.family)?;
    let is_in = |port: &Port| matches!(group, GroupRef::Id(id) if port.security_groups.contains(id));
    // Port security is on unless Neutron says otherwise.
    let has_port_security = |port: &Port| port.port_security_enabled != Some(false);
    let is_member = |port: &Port| backends.iter().any(|backend| is_behind(context, port, backend));
    let node_ports = context.seen.security.node_ports.iter();
    for port in node_ports.filter(|port| !is_in(port) && has_port_security(port) && is_member(port)) {
        change_groups(port, group.clone(), None, Some(&context.names.security_group()), draft);
    }
    Ok(())
}

fn is_behind(context: &Context<'_>, port: &Port, backend: &Backend<'_>) -> bool {
    let subnet = context.member_subnet_id();
    let has = |address: &str, of: &str| address == backend.address && (subnet.is_empty() || of == subnet);
    port.device_id == backend.server && port.fixed_ips.iter().any(|ip| has(&ip.ip_address, &ip.subnet_id))
}

/// Adds a step that adds a group to a port or removes it.
fn change_groups(port: &Port, group: GroupRef, from: Option<&str>, to: Option<&str>, draft: &mut Draft) {
    let changes = vec![field("security_groups", from.map(str::to_owned), to.map(str::to_owned))];
    let change = Change::UpdatePortGroups { port: Box::new(port.clone()), group, adds: to.is_some() };
    draft.push(None, Verb::Update, PORT, &port.id, changes, change);
}
