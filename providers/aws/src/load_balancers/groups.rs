//! Rules of security groups: the exact set of a load balancer's own group, and the rules by which Nodes accept its traffic.
//!
//! ```text
//!  Classic: node group ◄── all traffic ── group of the load balancer ◄── ports of the Service ── source ranges
//!  Network: node group ◄── node ports ── source ranges;  health check ports ── subnets of the load balancer
//! ```
//!
//! Rules of a Network Load Balancer are found by their description, the rule of a Classic Load Balancer by its source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use ipnet::IpNet;

use crate::api::ec2::{GroupName, Rule, SecurityGroup, Source};
use crate::cluster_tags::ClusterTags;

/// Types 3 and 4 of ICMP, which path MTU discovery needs.
const MTU_PORTS: Option<(i32, i32)> = Some((3, 4));

/// Descriptions of the rules of Network Load Balancers.
const CLIENT: &str = "kubernetes.io/rule/nlb/client=";
const HEALTH: &str = "kubernetes.io/rule/nlb/health=";
pub(super) const MTU: &str = "kubernetes.io/rule/nlb/mtu";

/// Description of rules with an IPv6 source in the group of a load balancer. Others with such a source are left alone.
// upstream: an IPv6 range is sent as an IPv4 range.
const OWN_IPV6: &str = "kubernetes.io/rule/client-ipv6";

/// Security groups by ID: those of the cluster, and those that a load balancer has or requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Groups(pub(super) Arc<BTreeMap<String, SecurityGroup>>);

/// Missing and surplus rules of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuleChanges {
    pub(super) revoke: Vec<Rule>,
    pub(super) authorize: Vec<Rule>,
}

/// Traffic that a Network Load Balancer sends to Nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeTraffic {
    /// Protocol and node port of each port.
    pub(super) ports: BTreeSet<(&'static str, u16)>,
    /// Ports of the health check.
    pub(super) health_ports: BTreeSet<u16>,
    /// Clients.
    pub(super) sources: Vec<IpNet>,
    /// CIDRs of the load balancer's subnets.
    pub(super) subnets: BTreeSet<String>,
}

impl Groups {
    pub(super) fn get(&self, id: &str) -> Option<&SecurityGroup> {
        self.0.get(id)
    }

    /// Returns the group of this name in a VPC.
    pub(super) fn named(&self, name: &str, vpc: &str) -> Option<&SecurityGroup> {
        self.0.values().find(|group| group.name == name && group.vpc_id == vpc)
    }

    /// Returns the groups of the cluster.
    pub(super) fn tagged(&self, cluster: &ClusterTags) -> impl Iterator<Item = &SecurityGroup> {
        self.0.values().filter(|group| cluster.is_tagged(&group.tags))
    }

    fn is_tagged(&self, id: &str, cluster: &ClusterTags) -> bool {
        self.get(id).is_some_and(|group| cluster.is_tagged(&group.tags))
    }

    /// Returns the group of an instance that gets the rules of load balancers: the only one of the cluster, or else the only one.
    /// `None` for an instance without groups.
    pub(super) fn node_group<'a>(
        &self,
        instance: &str,
        groups: &'a [GroupName],
        cluster: &ClusterTags,
    ) -> Result<Option<&'a str>> {
        let (tagged, untagged): (Vec<_>, Vec<_>) =
            groups.iter().partition(|group| self.is_tagged(&group.group_id, cluster));
        match (tagged.as_slice(), untagged.as_slice()) {
            ([one], _) | ([], [one]) => Ok(Some(&one.group_id)),
            ([], []) => Ok(None),
            ([], _) => Err(ambiguous(format!(
                "Multiple untagged security groups found for instance {instance}; ensure the k8s security group is tagged"
            ))),
            (tagged, _) => {
                let named = tagged.iter().map(|group| format!("{}({}) ", group.group_id, group.group_name));
                Err(ambiguous(format!(
                    "Multiple tagged security groups found for instance {instance}; ensure only the k8s security group is tagged; \
                     the tagged groups were {}",
                    named.collect::<String>()
                )))
            }
        }
    }
}

fn ambiguous(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, "find the security group of a Node", message).retry(Retry::Backoff)
}

impl RuleChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.revoke.is_empty() && self.authorize.is_empty()
    }
}

// ---- own group

/// Returns the rules of a load balancer's own group: its ports and path MTU discovery, from all source ranges.
pub(super) fn own_rules<'a>(
    ports: impl IntoIterator<Item = (&'a str, u16)> + Clone,
    source_ranges: &[IpNet],
) -> Vec<Rule> {
    let from_source = |range: &IpNet| {
        let source = source(range);
        let is_v6 = matches!(source, Source::Ipv6(_));
        let described = |rule: Rule| if is_v6 { rule.described(OWN_IPV6) } else { rule };
        let mtu = (!is_v6).then(|| Rule::new("icmp", MTU_PORTS, source.clone()));
        let ports = ports
            .clone()
            .into_iter()
            .map(|(protocol, port)| described(Rule::new(protocol, Some((port.into(), port.into())), source.clone())));
        ports.chain(mtu).collect::<Vec<_>>()
    };
    let mut rules: Vec<_> = clients(source_ranges).iter().flat_map(from_source).collect();
    rules.sort();
    rules.dedup();
    rules
}

/// Returns the changes from the observed rules to exactly the desired ones. Descriptions do not matter.
pub(super) fn exact(observed: &[Rule], desired: &[Rule]) -> RuleChanges {
    let missing = desired.iter().filter(|rule| !observed.iter().any(|other| other.is_same(rule)));
    let surplus = observed.iter().filter(|rule| !desired.iter().any(|other| other.is_same(rule)));
    // upstream: IPv6 ranges and prefix lists of users stay on ports that have other rules.
    let is_foreign = |rule: &&Rule| {
        let is_other_source = match rule.source {
            Source::Ipv6(_) => rule.description != OWN_IPV6,
            Source::PrefixList(_) => true,
            Source::Ipv4(_) | Source::Group(_) => false,
        };
        is_other_source && desired.iter().any(|it| it.protocol == rule.protocol && it.ports == rule.ports)
    };
    RuleChanges {
        authorize: missing.cloned().collect(),
        revoke: surplus.filter(|rule| !is_foreign(rule)).cloned().collect(),
    }
}

/// Returns the clients that may connect: all without source ranges.
pub(super) fn clients(source_ranges: &[IpNet]) -> Vec<IpNet> {
    let all = || vec![IpNet::from(ipnet::Ipv4Net::default())];
    if source_ranges.is_empty() { all() } else { source_ranges.iter().map(IpNet::trunc).collect() }
}

fn source(range: &IpNet) -> Source {
    match range {
        IpNet::V4(range) => Source::Ipv4(range.to_string()),
        IpNet::V6(range) => Source::Ipv6(range.to_string()),
    }
}

// ---- rules of node groups for Classic Load Balancers

/// Returns the rule by which Nodes accept all traffic from the group of a load balancer.
pub(super) fn all_from(group: &str) -> Rule {
    Rule::new("-1", None, Source::Group(group.to_owned()))
}

/// Returns whether a group has any rule with this source group.
pub(super) fn names_source(group: &SecurityGroup, source: &str) -> bool {
    group.rules.iter().any(|rule| rule.source == Source::Group(source.to_owned()))
}

// ---- rules of node groups for Network Load Balancers

/// Returns the changes of one node group, for a group that is to accept `traffic`, or none of the load balancer any more.
pub(super) fn network_changes(
    group: &SecurityGroup,
    load_balancer: &str,
    traffic: Option<&NodeTraffic>,
) -> RuleChanges {
    let (client, health) = (format!("{CLIENT}{load_balancer}"), format!("{HEALTH}{load_balancer}"));
    let clients = traffic.map(|traffic| client_rules(traffic, &client)).unwrap_or_default();
    let checks = traffic.map(|traffic| health_rules(traffic, &health)).unwrap_or_default();
    let mut changes = described_changes(&group.rules, &clients, &client);
    let of_checks = described_changes(&group.rules, &checks, &health);
    changes.revoke.extend(of_checks.revoke);
    changes.authorize.extend(of_checks.authorize);
    if !changes.is_empty() {
        let mtu = mtu_changes(group, &changes);
        changes.revoke.extend(mtu.revoke);
        changes.authorize.extend(mtu.authorize);
    }
    changes.authorize.sort();
    changes.authorize.dedup_by(|a, b| a.is_same(b));
    changes
}

/// Returns whether a group has rules of this load balancer.
pub(super) fn has_network_rules(group: &SecurityGroup, load_balancer: &str) -> bool {
    let (client, health) = (format!("{CLIENT}{load_balancer}"), format!("{HEALTH}{load_balancer}"));
    group.rules.iter().any(|rule| rule.description == client || rule.description == health)
}

/// Returns the load balancers whose rules a group has.
pub(super) fn network_load_balancers(group: &SecurityGroup) -> BTreeSet<&str> {
    let name = |rule: &'_ Rule| -> Option<usize> {
        [CLIENT, HEALTH].iter().find(|prefix| rule.description.starts_with(**prefix)).map(|prefix| prefix.len())
    };
    group.rules.iter().filter_map(|rule| rule.description.get(name(rule)?..)).collect()
}

fn client_rules(traffic: &NodeTraffic, description: &str) -> Vec<Rule> {
    let of_port = |(protocol, port): &(&str, u16)| {
        let ports = Some((i32::from(*port), i32::from(*port)));
        let rule = |range: &IpNet| Rule::new(protocol, ports, source(range)).described(description);
        clients(&traffic.sources).iter().map(rule).collect::<Vec<_>>()
    };
    traffic.ports.iter().flat_map(of_port).collect()
}

/// Returns the rules for health checks; none if the rules for clients already allow them.
fn health_rules(traffic: &NodeTraffic, description: &str) -> Vec<Rule> {
    let is_open = clients(&traffic.sources) == clients(&[]);
    let is_covered = |port: &u16| is_open && traffic.ports.contains(&("tcp", *port));
    if traffic.health_ports.iter().all(is_covered) {
        return Vec::new();
    }
    let of_port = |port: &u16| {
        let ports = Some((i32::from(*port), i32::from(*port)));
        let rule = |cidr: &String| Rule::new("tcp", ports, Source::Ipv4(cidr.clone())).described(description);
        traffic.subnets.iter().map(rule).collect::<Vec<_>>()
    };
    traffic.health_ports.iter().flat_map(of_port).collect()
}

/// Returns the changes to exactly the desired rules among those with this description. A rule that exists under another description
/// is not added.
fn described_changes(observed: &[Rule], desired: &[Rule], description: &str) -> RuleChanges {
    let missing = desired.iter().filter(|rule| !observed.iter().any(|other| other.is_same(rule)));
    let own = observed.iter().filter(|rule| rule.description == description);
    let surplus = own.filter(|rule| !desired.iter().any(|other| other.is_same(rule)));
    RuleChanges { authorize: missing.cloned().collect(), revoke: surplus.cloned().collect() }
}

/// Returns the changes of the rules for path MTU discovery: one for each IPv4 client of any Network Load Balancer.
fn mtu_changes(group: &SecurityGroup, changes: &RuleChanges) -> RuleChanges {
    let remaining = group.rules.iter().filter(|rule| !changes.revoke.contains(rule));
    let clients = remaining.chain(&changes.authorize).filter(|rule| rule.description.starts_with(CLIENT));
    described_changes(&group.rules, &mtu_rules(clients), MTU)
}

fn mtu_rules<'a>(clients: impl Iterator<Item = &'a Rule>) -> Vec<Rule> {
    let v4: BTreeSet<&Source> =
        clients.map(|rule| &rule.source).filter(|source| matches!(source, Source::Ipv4(_))).collect();
    v4.into_iter().map(|source| Rule::new("icmp", MTU_PORTS, source.clone()).described(MTU)).collect()
}

/// Returns whether clients of a Network Load Balancer still need this rule for path MTU discovery.
pub(super) fn is_needed_mtu(group: &SecurityGroup, rule: &Rule) -> bool {
    rule.description == MTU
        && group.rules.iter().any(|it| it.description.starts_with(CLIENT) && it.source == rule.source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Tags;

    fn ranges(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn shown(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(ToString::to_string).collect()
    }

    fn group(id: &str, is_tagged: bool, rules: Vec<Rule>) -> SecurityGroup {
        let tags = is_tagged.then(|| ("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned()));
        let (id, tags) = (id.to_owned(), tags.into_iter().collect::<Tags>());
        SecurityGroup { name: format!("name-{id}"), id, vpc_id: "vpc-1".to_owned(), rules, tags }
    }

    fn names(ids: &[&str]) -> Vec<GroupName> {
        ids.iter().map(|id| GroupName { group_id: (*id).to_owned(), group_name: format!("name-{id}") }).collect()
    }

    #[test]
    fn the_group_of_a_node_is_the_only_one_of_the_cluster_or_the_only_one() {
        let cluster = ClusterTags::new("demo", false);
        let all = [group("sg-1", true, vec![]), group("sg-2", true, vec![]), group("sg-3", false, vec![])];
        let groups = Groups(Arc::new(all.into_iter().map(|group| (group.id.clone(), group)).collect()));
        for (ids, expected) in [
            (&["sg-1"][..], Ok(Some("sg-1"))),
            (&["sg-3", "sg-1", "sg-4"], Ok(Some("sg-1"))),
            (&["sg-4"], Ok(Some("sg-4"))),
            (&[], Ok(None)),
            (&["sg-3", "sg-4"], Err("Multiple untagged security groups found for instance i-1")),
            (&["sg-1", "sg-2"], Err("the tagged groups were sg-1(name-sg-1) sg-2(name-sg-2) ")),
        ] {
            let names = names(ids);
            let found = groups.node_group("i-1", &names, &cluster);
            match expected {
                Ok(expected) => assert_eq!(found.unwrap(), expected, "{ids:?}"),
                Err(text) => assert!(found.unwrap_err().message().contains(text), "{ids:?}"),
            }
        }
    }

    #[test]
    fn own_rules_allow_ports_and_mtu_discovery_from_canonical_ranges() {
        let rules = own_rules([("tcp", 80)], &ranges(&["10.0.0.5/8", "fd00::1/64"]));
        let expected =
            ["icmp 3-4 from 10.0.0.0/8", "tcp 80 from 10.0.0.0/8", "tcp 80 from fd00::/64"].map(str::to_owned);
        assert_eq!(shown(&rules), expected);
        assert_eq!(shown(&own_rules([("tcp", 80)], &[])), ["icmp 3-4 from 0.0.0.0/0", "tcp 80 from 0.0.0.0/0"]);
    }

    #[test]
    fn the_own_group_has_exactly_its_rules_but_keeps_foreign_ipv6_rules_on_its_ports() {
        let ports = |port| Some((port, port));
        let desired = own_rules([("tcp", 80)], &[]);
        let observed = [
            Rule::new("tcp", ports(80), Source::Ipv4("0.0.0.0/0".to_owned())).described("by hand"),
            Rule::new("tcp", ports(80), Source::Ipv6("::/0".to_owned())),
            Rule::new("tcp", ports(80), Source::Ipv6("fd00::/64".to_owned())).described(OWN_IPV6),
            Rule::new("tcp", ports(22), Source::Ipv4("0.0.0.0/0".to_owned())),
            Rule::new("tcp", ports(22), Source::Ipv6("::/0".to_owned())),
        ];
        let changes = exact(&observed, &desired);
        assert_eq!(shown(&changes.authorize), ["icmp 3-4 from 0.0.0.0/0"]);
        assert_eq!(shown(&changes.revoke), ["tcp 80 from fd00::/64", "tcp 22 from 0.0.0.0/0", "tcp 22 from ::/0"]);
        assert!(exact(&desired, &desired).is_empty());
    }

    fn traffic(sources: &[&str], port: u16, health_port: u16) -> NodeTraffic {
        NodeTraffic {
            ports: [("tcp", port)].into(),
            health_ports: [health_port].into(),
            sources: ranges(sources),
            subnets: ["10.20.0.0/24".to_owned()].into(),
        }
    }

    fn applied(group: &SecurityGroup, changes: &RuleChanges) -> SecurityGroup {
        let kept = group.rules.iter().filter(|rule| !changes.revoke.contains(rule)).cloned();
        SecurityGroup { rules: kept.chain(changes.authorize.clone()).collect(), ..group.clone() }
    }

    #[test]
    fn nodes_accept_clients_health_checks_and_mtu_discovery() {
        let empty = group("sg-1", true, vec![]);
        let changes = network_changes(&empty, "a1", Some(&traffic(&["1.2.3.0/24"], 30080, 30080)));
        let expected =
            ["icmp 3-4 from 1.2.3.0/24", "tcp 30080 from 1.2.3.0/24", "tcp 30080 from 10.20.0.0/24"].map(str::to_owned);
        assert_eq!(shown(&changes.authorize), expected);
        let group = applied(&empty, &changes);
        assert!(network_changes(&group, "a1", Some(&traffic(&["1.2.3.0/24"], 30080, 30080))).is_empty());
        assert_eq!(network_load_balancers(&group), ["a1"].into());
        let removed = network_changes(&group, "a1", None);
        assert_eq!((removed.authorize.len(), removed.revoke.len()), (0, 3));
        assert_eq!(applied(&group, &removed), empty);
    }

    #[test]
    fn health_checks_need_no_rule_if_all_clients_may_connect_to_the_same_port() {
        let group = group("sg-1", true, vec![]);
        let changes = network_changes(&group, "a1", Some(&traffic(&[], 30080, 30080)));
        assert_eq!(shown(&changes.authorize), ["icmp 3-4 from 0.0.0.0/0", "tcp 30080 from 0.0.0.0/0"]);
        let changes = network_changes(&group, "a1", Some(&traffic(&[], 30080, 32000)));
        assert!(shown(&changes.authorize).contains(&"tcp 32000 from 10.20.0.0/24".to_owned()));
    }

    #[test]
    fn mtu_rules_stay_as_long_as_another_load_balancer_has_the_same_client() {
        let empty = group("sg-1", true, vec![]);
        let one = applied(&empty, &network_changes(&empty, "a1", Some(&traffic(&[], 30080, 30080))));
        let both = applied(&one, &network_changes(&one, "a2", Some(&traffic(&[], 30081, 30081))));
        let removed = network_changes(&both, "a1", None);
        assert_eq!(shown(&removed.revoke), ["tcp 30080 from 0.0.0.0/0"]);
        let mtu = both.rules.iter().find(|rule| rule.description == MTU).unwrap();
        assert!(is_needed_mtu(&both, mtu));
    }

    #[test]
    fn a_rule_of_the_user_is_neither_added_again_nor_revoked() {
        let by_hand = Rule::new("tcp", Some((30080, 30080)), Source::Ipv4("0.0.0.0/0".to_owned())).described("mine");
        let group = group("sg-1", true, vec![by_hand]);
        assert!(network_changes(&group, "a1", Some(&traffic(&[], 30080, 30080))).is_empty());
        assert!(network_changes(&group, "a1", None).is_empty());
    }
}
