//! The security group of a Service: what lets traffic of the balancer through to the nodes.
//!
//! ```text
//!  managed ─────► group ──► rules: one for each node port, and for the health check; all others go ──► ports of the nodes join
//!                 ──► groups that earlier Services of the name left go
//!  not managed ─► a group from the time when it was goes: ports leave it, then it is deleted
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

/// Who may come in, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    protocol: String,
    port: u16,
    from: IpNet,
}

pub(super) fn steps(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    if let Some(problem) = &context.seen.errors.security {
        return Err(problem.clone().into());
    }
    if !context.config.load_balancer.manage_security_groups {
        removal(&context.seen.security, draft);
        return Ok(());
    }
    // Where the members of a new balancer are may be known only once it is made; then there is a next plan.
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

/// Steps that remove all groups that were seen.
pub(super) fn removal(seen: &Security, draft: &mut Draft) {
    remove(seen.all(), &seen.ports, draft);
}

fn remove<'a>(groups: impl IntoIterator<Item = &'a SecurityGroup>, ports: &[Port], draft: &mut Draft) {
    for group in groups {
        for port in ports.iter().filter(|port| port.security_groups.contains(&group.id)) {
            let change = Change::LeaveSecurityGroup { port: Box::new(port.clone()), group: group.id.clone() };
            draft.push(None, Verb::Update, PORT, &port.id, security_groups(Some(&group.name), None), change);
        }
        // Old managers marked ports like this.
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
        "there are several security groups named {name}, and nobody can tell which one is meant: {}; delete all but one",
        ids.join(", ")
    );
    Error::new(ErrorKind::Conflict, PLAN, message)
}

// ---- its rules

fn wanted(context: &Context<'_>, subnet: &Subnet) -> Result<BTreeSet<Rule>> {
    let members: IpNet = subnet.cidr.parse().map_err(|_| no_range(subnet))?;
    let health = context.spec.health_check.as_ref().map(|check| Rule {
        protocol: "tcp".to_owned(),
        port: check.port,
        from: members,
    });
    // OVN passes the clients' addresses on, so that what it sends does not come from the subnet.
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

fn no_range(subnet: &Subnet) -> Error {
    let message = format!("the range {:?} of the member subnet {} is not understood", subnet.cidr, subnet.id);
    Error::new(ErrorKind::Unexpected, PLAN, message)
}

/// New ones first, so that traffic is never cut off.
fn change_rules(context: &Context<'_>, group: &GroupRef, wanted: &BTreeSet<Rule>, draft: &mut Draft) {
    let there: Vec<_> = context.seen.security.groups.iter().flat_map(|group| &group.security_group_rules).collect();
    for rule in wanted.iter().filter(|rule| !there.iter().any(|there| rule.is(there))) {
        let change = Change::CreateSecurityGroupRule { group: group.clone(), body: rule.body() };
        draft.push(None, Verb::Create, SECURITY_GROUP_RULES.resource.name, &rule.to_string(), Vec::new(), change);
    }
    // upstream: the two rules for what goes out, which Neutron adds to every group, are not wanted either.
    for rule in there.iter().filter(|there| !wanted.iter().any(|rule| rule.is(there))) {
        draft.delete(SECURITY_GROUP_RULES.resource, &rule.id, &rule.id, described(rule));
    }
}

impl Rule {
    fn is(&self, there: &SecurityGroupRule) -> bool {
        there.direction == "ingress"
            && there.protocol.eq_ignore_ascii_case(&self.protocol)
            && there.ethertype == self.ethertype()
            && there.remote_ip_prefix.parse() == Ok(self.from)
            && (there.port_range_min, there.port_range_max) == (self.port, self.port)
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

// ---- the nodes' ports

/// Those that traffic of the balancer comes to; a machine may have others.
fn join(context: &Context<'_>, group: &GroupRef, draft: &mut Draft) -> Result<()> {
    let backends = servers::behind(context.config, &context.spec.targets, context.settings.family)?;
    let is_in = |port: &Port| matches!(group, GroupRef::Id(id) if port.security_groups.contains(id));
    // Where Neutron says nothing of it, a port has it.
    let is_guarded = |port: &Port| port.port_security_enabled != Some(false);
    let is_member = |port: &Port| backends.iter().any(|backend| is_behind(context, port, backend));
    let node_ports = context.seen.security.node_ports.iter();
    for port in node_ports.filter(|port| !is_in(port) && is_guarded(port) && is_member(port)) {
        let change = Change::JoinSecurityGroup { port: Box::new(port.clone()), group: group.clone() };
        let changes = security_groups(None, Some(&context.names.security_group()));
        draft.push(None, Verb::Update, PORT, &port.id, changes, change);
    }
    Ok(())
}

fn is_behind(context: &Context<'_>, port: &Port, backend: &Backend<'_>) -> bool {
    let subnet = context.member_subnet_id();
    let has = |address: &str, of: &str| address == backend.address && (subnet.is_empty() || of == subnet);
    port.device_id == backend.server && port.fixed_ips.iter().any(|ip| has(&ip.ip_address, &ip.subnet_id))
}

fn security_groups(from: Option<&str>, to: Option<&str>) -> Vec<FieldChange> {
    vec![field("security_groups", from.map(str::to_owned), to.map(str::to_owned))]
}
