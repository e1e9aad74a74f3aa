//! Steps that create, change and delete security groups and their rules.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{FieldChange, LoadBalancerKey, Step, Verb};

use super::groups::{NodeTraffic, RuleChanges, all_from, exact, has_network_rules, names_source, network_changes};
use super::{Change, Inputs, State, names};
use crate::api::Tags;
use crate::api::ec2::{NewSecurityGroup, Rule, SecurityGroup};
use crate::config::Config;
use crate::provider::Identity;

/// Subject of steps.
pub(super) const GROUP: &str = "security group";

/// A security group: an existing one, or one that an earlier step creates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupRef {
    Id(String),
    Name(String),
}

/// Change of a security group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GroupChange {
    /// Creates a group.
    Create(NewSecurityGroup),
    /// Adds tags to a group.
    Tag(String, Tags),
    /// Adds rules.
    Authorize(GroupRef, Vec<Rule>),
    /// Adds the rule for all traffic from another group to a group with this ID.
    AuthorizeAllFrom(String, GroupRef),
    /// Removes rules.
    Revoke(String, Vec<Rule>),
    /// Deletes a group.
    Delete(String),
}

/// What a change of a security group is for. The errors of each have their own prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The own group of a Classic Load Balancer.
    ClassicGroup,
    /// The own group of a Network Load Balancer.
    NetworkGroup,
    /// The groups of Nodes.
    Nodes,
    /// The removal of a group that a load balancer does not have any more.
    Replaced,
    /// The removal of the own group of a deleted load balancer.
    Removal,
    /// The removal of the rules of a deleted Network Load Balancer.
    NetworkRemoval,
}

// ---- plans

/// Steps that bring a load balancer's own group to exactly these rules, and the group itself.
pub(super) fn own_group(
    inputs: &Inputs<'_>,
    name: &str,
    description: String,
    rules: &[Rule],
    purpose: Purpose,
) -> Result<(GroupRef, Vec<Step<Change>>)> {
    let Some(group) = inputs.context.groups.named(name, &inputs.identity.vpc_id) else {
        let new = NewSecurityGroup {
            name: name.to_owned(),
            description,
            vpc_id: inputs.identity.vpc_id.clone(),
            tags: inputs.group_tags(),
        };
        let reference = GroupRef::Name(name.to_owned());
        let mut created = step(Verb::Create, name, Vec::new(), GroupChange::Create(new), purpose);
        // AWS rejects a second group of the same name.
        created.repeatable = true;
        let changes = RuleChanges { authorize: rules.to_vec(), revoke: Vec::new() };
        let rules = rule_steps(name, &reference, changes, purpose);
        return Ok((reference, [vec![created], rules].concat()));
    };
    let reference = GroupRef::Id(group.id.clone());
    let tags = missing_tags(inputs, group)?;
    let tag = (!tags.is_empty()).then(|| {
        let changes = tags.iter().map(|(key, value)| FieldChange::new(format!("tag {key}"), None, Some(value.clone())));
        step(Verb::Update, name, changes.collect(), GroupChange::Tag(group.id.clone(), tags.clone()), purpose)
    });
    let rules = rule_steps(name, &reference, exact(&group.rules, rules), purpose);
    Ok((reference, tag.into_iter().chain(rules).collect()))
}

/// Returns the tags of the cluster that a group lacks; an error if it belongs to another cluster.
fn missing_tags(inputs: &Inputs<'_>, group: &SecurityGroup) -> Result<Tags> {
    let mut missing = Tags::new();
    if let Some(other) = inputs.identity.cluster.other(&group.tags) {
        let message = format!("security group {} ({}) has the tag {other} of another cluster", group.name, group.id);
        return Err(Error::new(ErrorKind::AlreadyExists, "find security group", message));
    }
    for (key, value) in inputs.identity.cluster.of_new(&Tags::new()) {
        match group.tags.get(&key).map(String::as_str) {
            Some(old) if old == value => {}
            None | Some("") => drop(missing.insert(key, value)),
            Some(old) => {
                // upstream: also `shared`, which says that the group is not ours to change.
                let message = format!(
                    "resource {:?} has tag belonging to another cluster: {key:?}={old:?} (expected {value:?})",
                    group.id
                );
                return Err(Error::new(ErrorKind::AlreadyExists, "find security group", message));
            }
        }
    }
    Ok(missing)
}

/// Steps for the rules of a group: first the missing ones, so that no client is cut off.
fn rule_steps(name: &str, group: &GroupRef, changes: RuleChanges, purpose: Purpose) -> Vec<Step<Change>> {
    let added = changes.authorize.iter().map(|rule| FieldChange::new("rule", None, Some(rule.to_string()))).collect();
    let removed = changes.revoke.iter().map(|rule| FieldChange::new("rule", Some(rule.to_string()), None)).collect();
    let authorize = (!changes.authorize.is_empty())
        .then(|| step(Verb::Update, name, added, GroupChange::Authorize(group.clone(), changes.authorize), purpose));
    let revoke = match group {
        GroupRef::Id(id) if !changes.revoke.is_empty() => {
            Some(step(Verb::Update, name, removed, GroupChange::Revoke(id.clone(), changes.revoke), purpose))
        }
        _ => None,
    };
    authorize.into_iter().chain(revoke).collect()
}

/// Returns the node groups that are to accept the load balancer's traffic. One that is the fixed group of load balancers never is.
pub(super) fn node_groups(inputs: &Inputs<'_>) -> Result<BTreeSet<String>> {
    let mut groups = BTreeSet::new();
    for (instance, names) in inputs.context.instances.iter() {
        match inputs.context.groups.node_group(instance, names, &inputs.identity.cluster)? {
            Some(group) => drop(groups.insert(group.to_owned())),
            None => tracing::warn!("Ignoring instance without security group: {instance}"),
        }
    }
    groups.remove(&inputs.config.elb_security_group);
    Ok(groups)
}

/// Steps by which exactly the wanted node groups accept traffic from the group of a Classic Load Balancer.
pub(super) fn classic_node_steps(inputs: &Inputs<'_>, source: &GroupRef) -> Result<Vec<Step<Change>>> {
    if inputs.config.disable_security_group_ingress {
        return Ok(Vec::new());
    }
    let wanted = node_groups(inputs)?;
    let groups = &inputs.context.groups;
    let has_source = |group: &SecurityGroup| matches!(source, GroupRef::Id(id) if names_source(group, id));
    let missing = wanted.iter().filter(|id| !groups.get(id).is_some_and(&has_source));
    let added = missing.map(|id| {
        let rule = FieldChange::new("rule", None, Some(format!("all from {}", source.text())));
        step(Verb::Update, id, vec![rule], GroupChange::AuthorizeAllFrom(id.clone(), source.clone()), Purpose::Nodes)
    });
    let removed = match source {
        GroupRef::Id(source) => revoke_all_from(inputs.config, inputs.identity, inputs.context, source, &wanted, false),
        GroupRef::Name(_) => Vec::new(),
    };
    Ok(added.chain(removed).collect())
}

/// Steps that remove the rule for all traffic from a group, except in the wanted node groups; none if another load balancer needs it.
pub(super) fn revoke_all_from(
    config: &Config,
    identity: &Identity,
    context: &super::Context,
    source: &str,
    wanted: &BTreeSet<String>,
    also_untagged: bool,
) -> Vec<Step<Change>> {
    if context.shared_groups.contains(source) {
        return Vec::new();
    }
    let rule = all_from(source);
    let is_ours = |group: &&SecurityGroup| also_untagged || identity.cluster.is_tagged(&group.tags);
    let is_surplus = |group: &&SecurityGroup| {
        !wanted.contains(&group.id)
            && group.id != config.elb_security_group
            && group.rules.iter().any(|other| other.is_same(&rule))
    };
    let surplus = context.groups.0.values().filter(is_ours).filter(is_surplus);
    surplus.map(|group| revoke(&group.id, vec![rule.clone()], Purpose::Nodes)).collect()
}

fn revoke(group: &str, rules: Vec<Rule>, purpose: Purpose) -> Step<Change> {
    let removed = rules.iter().map(|rule| FieldChange::new("rule", Some(rule.to_string()), None)).collect();
    step(Verb::Update, group, removed, GroupChange::Revoke(group.to_owned(), rules), purpose)
}

/// Steps by which exactly the wanted node groups accept the traffic of a Network Load Balancer.
pub(super) fn network_node_steps(inputs: &Inputs<'_>, traffic: &NodeTraffic) -> Result<Vec<Step<Change>>> {
    if inputs.config.disable_security_group_ingress {
        return Ok(Vec::new());
    }
    let wanted = node_groups(inputs)?;
    let (groups, cluster) = (&inputs.context.groups, &inputs.identity.cluster);
    let relevant = groups.0.values().filter(|group| wanted.contains(&group.id) || cluster.is_tagged(&group.tags));
    let relevant = relevant.filter(|group| group.id != inputs.config.elb_security_group);
    let changes = relevant.flat_map(|group| {
        let traffic = wanted.contains(&group.id).then_some(traffic);
        node_steps(group, network_changes(group, inputs.name, traffic), Purpose::Nodes)
    });
    Ok(changes.collect())
}

/// Steps for the rules of a node group: first the surplus ones, as the number of rules is limited.
fn node_steps(group: &SecurityGroup, mut changes: RuleChanges, purpose: Purpose) -> Vec<Step<Change>> {
    let removed = (!changes.revoke.is_empty()).then(|| revoke(&group.id, std::mem::take(&mut changes.revoke), purpose));
    let added = rule_steps(&group.id, &GroupRef::Id(group.id.clone()), changes, purpose);
    removed.into_iter().chain(added).collect()
}

/// Steps that remove groups which a load balancer no longer has: of a group that was created for the cluster every rule of the
/// cluster's groups that names it, and the group itself; of another one the rule for all traffic. A group that another load balancer
/// has is left alone.
// upstream: every rule is removed, also of groups that others use.
pub(super) fn replaced(inputs: &Inputs<'_>, replaced: &[String]) -> Vec<Step<Change>> {
    let (cluster, shared) = (&inputs.identity.cluster, &inputs.context.shared_groups);
    let is_removable = |id: &&String| **id != inputs.config.elb_security_group && !shared.contains(*id);
    let steps = replaced.iter().filter(is_removable).flat_map(|id| {
        let owned = inputs.context.groups.get(id).filter(|group| cluster.is_owned(&group.tags));
        let all = all_from(id);
        let is_removed = |rule: &&Rule| rule.is_same(&all) || (owned.is_some() && rule.source == all.source);
        let revoked = inputs.context.groups.tagged(cluster).filter_map(|group| {
            let rules: Vec<_> = group.rules.iter().filter(is_removed).cloned().collect();
            (!rules.is_empty()).then(|| revoke(&group.id, rules, Purpose::Replaced))
        });
        let deleted = owned.map(|group| deletion(group, Purpose::Replaced));
        revoked.chain(deleted).collect::<Vec<_>>()
    });
    steps.collect()
}

/// Steps that delete the groups of a deleted load balancer, and the rules of node groups that name it.
pub(super) fn removal(
    config: &Config,
    identity: &Identity,
    key: &LoadBalancerKey,
    name: &str,
    state: &State,
) -> Vec<Step<Change>> {
    let own = own_groups(config, identity, key, name, state);
    let none = BTreeSet::new();
    let from_own: Vec<_> = if config.disable_security_group_ingress {
        Vec::new()
    } else {
        let revoked =
            |group: &&SecurityGroup| revoke_all_from(config, identity, &state.context, &group.id, &none, true);
        own.values().flat_map(revoked).collect()
    };
    let deleted = own.values().map(|group| deletion(group, Purpose::Removal));
    let network_rules = state.context.groups.tagged(&identity.cluster).filter(|group| has_network_rules(group, name));
    let network_rules =
        network_rules.flat_map(|group| node_steps(group, network_changes(group, name, None), Purpose::NetworkRemoval));
    from_own.into_iter().chain(deleted).chain(network_rules).collect()
}

/// Returns the groups that were created for a load balancer.
fn own_groups<'a>(
    config: &Config,
    identity: &Identity,
    key: &LoadBalancerKey,
    name: &str,
    state: &'a State,
) -> BTreeMap<&'a str, &'a SecurityGroup> {
    let named = [names::classic_group(name), names::network_group(key)];
    let attached = [
        state.classic.as_ref().map(|it| it.load_balancer.security_groups.as_slice()),
        state.network.as_ref().map(|it| it.load_balancer.security_groups.as_slice()),
    ];
    let attached: BTreeSet<&String> = attached.into_iter().flatten().flatten().collect();
    // The name of a group of a Network Load Balancer contains a hash of the whole UID, which a listed key does not have.
    let prefix = if key.name_only().is_some() { "k8s-".to_owned() } else { names::target_group_prefix(key) };
    let is_created = |group: &&SecurityGroup| {
        named.contains(&group.name) || (attached.contains(&group.id) && group.name.starts_with(&prefix))
    };
    let owned = state.context.groups.0.values().filter(|group| identity.cluster.is_owned(&group.tags));
    let owned = owned.filter(|group| group.id != config.elb_security_group && group.vpc_id == identity.vpc_id);
    owned.filter(is_created).map(|group| (group.id.as_str(), group)).collect()
}

fn deletion(group: &SecurityGroup, purpose: Purpose) -> Step<Change> {
    step(Verb::Delete, &group.name, Vec::new(), GroupChange::Delete(group.id.clone()), purpose)
}

fn step(verb: Verb, name: &str, changes: Vec<FieldChange>, change: GroupChange, purpose: Purpose) -> Step<Change> {
    Step::new(verb, GROUP, name, changes, Change::Group(change, purpose))
}

impl GroupRef {
    /// Returns the ID or the name, for plans.
    pub(super) fn text(&self) -> &str {
        match self {
            GroupRef::Id(text) | GroupRef::Name(text) => text,
        }
    }
}

impl Purpose {
    /// Adds the prefix of the Go manager to an error of a change of a group's rules, or of its deletion.
    pub(super) fn explain(self, group: &str, error: Error) -> Error {
        let prefix = match self {
            // It says by itself what is in use.
            _ if error.kind() == ErrorKind::InProgress => return error,
            Purpose::Nodes | Purpose::Removal => return error,
            Purpose::ClassicGroup => format!("creating ingress rules for security group {group:?}"),
            Purpose::NetworkGroup => "error ensuring NLB security group rules".to_owned(),
            Purpose::Replaced => "error removing owned security groups".to_owned(),
            Purpose::NetworkRemoval => "error deleting instance security group rules".to_owned(),
        };
        let operation = format!("{prefix}: {}", error.operation());
        error.during(operation)
    }
}
