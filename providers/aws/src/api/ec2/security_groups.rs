//! Security groups and their ingress rules.
//!
//! EC2 groups the rules of one protocol and port range into one permission. Here a rule has exactly one source, so that sets of rules
//! can be compared.

use bowline_cloud::Result;
use bowline_http::Page;
use serde::{Deserialize, Deserializer};

use super::super::xml::{Items, item_tags};
use super::super::{Filter, Query, Tags};
use super::{Ec2, filtered, paged};

/// A security group with its ingress rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecurityGroup {
    #[serde(rename = "groupId")]
    pub(crate) id: String,
    #[serde(rename = "groupName", default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) vpc_id: String,
    #[serde(rename = "ipPermissions", default, deserialize_with = "rules")]
    pub(crate) rules: Vec<Rule>,
    #[serde(rename = "tagSet", default, deserialize_with = "item_tags")]
    pub(crate) tags: Tags,
}

/// An ingress rule with one source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    /// `tcp`, `udp`, `icmp`, or `-1` for all.
    pub(crate) protocol: String,
    /// First and last port, or type and code of ICMP; `None` for all.
    pub(crate) ports: Option<(i32, i32)>,
    pub(crate) source: Source,
    /// Description; empty for none. EC2 does not identify a rule by it.
    pub(crate) description: String,
}

/// Source of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Ipv4(String),
    Ipv6(String),
    Group(String),
    PrefixList(String),
}

/// A security group to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewSecurityGroup {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) vpc_id: String,
    pub(crate) tags: Tags,
}

impl Rule {
    /// Creates a rule without a description.
    pub(crate) fn new(protocol: &str, ports: Option<(i32, i32)>, source: Source) -> Rule {
        Rule { protocol: protocol.to_owned(), ports, source, description: String::new() }
    }

    /// Sets the description.
    pub(crate) fn described(self, description: &str) -> Rule {
        Rule { description: description.to_owned(), ..self }
    }

    /// Returns whether EC2 treats both as the same rule: everything but the description is equal.
    pub(crate) fn is_same(&self, other: &Rule) -> bool {
        self.protocol == other.protocol && self.ports == other.ports && self.source == other.source
    }
}

impl Source {
    /// Returns the ID or the CIDR.
    pub(crate) fn text(&self) -> &str {
        match self {
            Source::Ipv4(text) | Source::Ipv6(text) | Source::Group(text) | Source::PrefixList(text) => text,
        }
    }

    /// Returns the list of the source in a permission, and the field of its ID or CIDR.
    fn field(&self) -> (&'static str, &'static str) {
        match self {
            Source::Ipv4(_) => ("IpRanges", "CidrIp"),
            Source::Ipv6(_) => ("Ipv6Ranges", "CidrIpv6"),
            Source::Group(_) => ("Groups", "GroupId"),
            Source::PrefixList(_) => ("PrefixListIds", "PrefixListId"),
        }
    }
}

/// Formats the rule for plans: `tcp 80 from 0.0.0.0/0`.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = if self.protocol == "-1" { "all" } else { &self.protocol };
        f.write_str(protocol)?;
        match self.ports {
            Some((from, to)) if from == to => write!(f, " {from}")?,
            Some((from, to)) => write!(f, " {from}-{to}")?,
            None => {}
        }
        write!(f, " from {}", self.source.text())
    }
}

// ---- decoding

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Permission {
    ip_protocol: String,
    #[serde(default)]
    from_port: Option<i32>,
    #[serde(default)]
    to_port: Option<i32>,
    #[serde(default)]
    ip_ranges: Items<Range>,
    #[serde(default)]
    ipv6_ranges: Items<Range>,
    #[serde(default)]
    groups: Items<Range>,
    #[serde(default)]
    prefix_list_ids: Items<Range>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(alias = "cidrIp", alias = "cidrIpv6", alias = "groupId", alias = "prefixListId")]
    source: String,
    #[serde(default)]
    description: String,
}

/// Variant of a source.
type Constructor = fn(String) -> Source;

fn rules<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Rule>, D::Error> {
    let permissions = Items::<Permission>::deserialize(from)?;
    Ok(permissions.items.into_iter().flat_map(Permission::into_rules).collect())
}

impl Permission {
    fn into_rules(self) -> Vec<Rule> {
        let (protocol, ports) = (self.ip_protocol, self.from_port.zip(self.to_port));
        let lists: [(Items<Range>, Constructor); 4] = [
            (self.ip_ranges, Source::Ipv4),
            (self.ipv6_ranges, Source::Ipv6),
            (self.groups, Source::Group),
            (self.prefix_list_ids, Source::PrefixList),
        ];
        let sources = lists.into_iter().flat_map(|(list, source)| list.items.into_iter().map(move |it| (it, source)));
        let rule = |(range, source): (Range, Constructor)| {
            Rule::new(&protocol, ports, source(range.source)).described(&range.description)
        };
        sources.map(rule).collect()
    }
}

// ---- calls

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateSecurityGroup {
    group_id: String,
}

paged!(DescribeSecurityGroups, SecurityGroup, "securityGroupInfo");

impl Ec2 {
    /// Reads the security groups that match filters.
    pub(crate) async fn security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>> {
        self.all::<DescribeSecurityGroups>(filtered("DescribeSecurityGroups", filters)).await
    }

    /// Creates a security group, and returns its ID. AWS rejects a second one of the same name in a VPC.
    pub(crate) async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String> {
        let query = Query::create("CreateSecurityGroup").with("GroupName", &group.name);
        let query = query.with("GroupDescription", &group.description).with("VpcId", &group.vpc_id);
        let query = query.with("TagSpecification.1.ResourceType", "security-group");
        let query = query.with_pairs("TagSpecification.1.Tag", &group.tags);
        self.0.send::<CreateSecurityGroup>(query).await.map(|response| response.group_id)
    }

    /// Deletes a security group. AWS rejects that as long as another resource uses it.
    pub(crate) async fn delete_security_group(&self, id: &str) -> Result<()> {
        self.0.execute(Query::write("DeleteSecurityGroup").with("GroupId", id)).await
    }

    /// Adds ingress rules. AWS adds none of them if one exists.
    pub(crate) async fn authorize_ingress(&self, group: &str, rules: &[Rule]) -> Result<()> {
        self.0.execute(ingress("AuthorizeSecurityGroupIngress", group, rules)).await
    }

    /// Removes ingress rules.
    pub(crate) async fn revoke_ingress(&self, group: &str, rules: &[Rule]) -> Result<()> {
        self.0.execute(ingress("RevokeSecurityGroupIngress", group, rules)).await
    }
}

/// Encodes rules, with all sources of one protocol and port range in one permission.
fn ingress(action: &'static str, group: &str, rules: &[Rule]) -> Query {
    let mut sorted: Vec<&Rule> = rules.iter().collect();
    sorted.sort();
    let permissions = sorted.chunk_by(|a, b| (&a.protocol, a.ports) == (&b.protocol, b.ports));
    Query::write(action).with("GroupId", group).with_each("IpPermissions", permissions, with_permission)
}

fn with_permission(query: Query, prefix: &str, rules: &[&Rule]) -> Query {
    let Some(first) = rules.first() else { return query };
    let query = query.with(format!("{prefix}.IpProtocol"), &first.protocol);
    let query = query.with_some(format!("{prefix}.FromPort"), first.ports.map(|(from, _)| from));
    let query = query.with_some(format!("{prefix}.ToPort"), first.ports.map(|(_, to)| to));
    let of_one_list = rules.chunk_by(|a, b| a.source.field() == b.source.field());
    of_one_list.fold(query, |query, rules| {
        let list = rules.first().map_or("", |rule| rule.source.field().0);
        query.with_each(&format!("{prefix}.{list}"), rules, |query, prefix, rule| {
            let description = Some(&rule.description).filter(|text| !text.is_empty());
            let query = query.with(format!("{prefix}.{}", rule.source.field().1), rule.source.text());
            query.with_some(format!("{prefix}.Description"), description)
        })
    })
}
