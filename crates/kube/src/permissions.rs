//! RBAC permissions. Each permission is declared next to the code that needs it, and the manager's roles are generated from these
//! declarations alone.
//!
//! ```text
//!  const next to a request ──► PERMISSIONS of a controller ──► enabled controllers, by user ──► roles ──► YAML
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// Permission to use verbs on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// API group; `""` is the core group.
    pub group: &'static str,
    /// Resource, with its subresource: `nodes/status`.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Cluster, namespace or a single object.
    pub scope: Scope,
    /// Purpose, printed in the role and in the documentation.
    pub why: &'static str,
    /// Behaviour without the permission; `None` if it is required.
    pub without: Option<&'static str>,
}

/// Scope of a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole cluster.
    Cluster,
    /// All objects in a namespace.
    Namespace(Cow<'static, str>),
    /// One object: its namespace and name.
    Named(Cow<'static, str>, Cow<'static, str>),
}

impl Permission {
    /// Cluster-wide permission on a resource of the core group.
    pub const fn core(resource: &'static str, verbs: &'static [&'static str], why: &'static str) -> Permission {
        Permission { group: "", resource, verbs, scope: Scope::Cluster, why, without: None }
    }

    /// Makes the permission optional; `consequence` is the behaviour without it.
    pub const fn without(mut self, consequence: &'static str) -> Permission {
        self.without = Some(consequence);
        self
    }
}

/// Rules of a `ClusterRole` or `Role`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Namespace of the `Role`; `None` for a `ClusterRole`.
    pub namespace: Option<String>,
    /// Rules, sorted, one per resource.
    pub rules: Vec<Rule>,
}

/// RBAC rule, serialized as in `rbac.authorization.k8s.io/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// API groups.
    pub api_groups: Vec<String>,
    /// Resources.
    pub resources: Vec<String>,
    /// Names of the objects; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Purposes, by verbs: `get: read a Node again`.
    #[serde(skip)]
    pub reasons: Vec<String>,
}

/// Groups permissions into roles: one role per namespace, with one rule per resource.
pub fn roles<'a>(permissions: impl IntoIterator<Item = &'a Permission>) -> Vec<Role> {
    let mut merged: BTreeMap<RuleKey<'_>, Usage> = BTreeMap::new();
    for permission in permissions {
        merged.entry(RuleKey::of(permission)).or_default().add(permission);
    }
    let mut roles: BTreeMap<Option<String>, Vec<Rule>> = BTreeMap::new();
    for (key, usage) in merged {
        let rules = roles.entry(key.namespace.map(str::to_owned)).or_default();
        let rule = usage.into_rule(&key);
        match rules.last_mut().filter(|last| last.differs_in_names_only(&rule)) {
            Some(last) => last.resource_names.extend(rule.resource_names),
            None => rules.push(rule),
        }
    }
    roles.into_iter().map(|(namespace, rules)| Role { namespace, rules }).collect()
}

/// Key by which permissions are merged. Its order is the order of the rules in a role.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleKey<'a> {
    namespace: Option<&'a str>,
    group: &'static str,
    resource: &'static str,
    name: Option<&'a str>,
}

impl<'a> RuleKey<'a> {
    fn of(permission: &'a Permission) -> RuleKey<'a> {
        let (namespace, name) = match &permission.scope {
            Scope::Cluster => (None, None),
            Scope::Namespace(namespace) => (Some(&**namespace), None),
            Scope::Named(namespace, name) => (Some(&**namespace), Some(&**name)),
        };
        RuleKey { namespace, group: permission.group, resource: permission.resource, name }
    }
}

/// Merged verbs and purposes.
#[derive(Default)]
struct Usage {
    verbs: BTreeSet<&'static str>,
    /// Purposes, in declaration order.
    reasons: Vec<String>,
}

impl Usage {
    fn add(&mut self, permission: &Permission) {
        self.verbs.extend(permission.verbs);
        let reason = format!("{}: {}", permission.verbs.join(", "), permission.why);
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    fn into_rule(self, key: &RuleKey<'_>) -> Rule {
        Rule {
            api_groups: vec![key.group.to_owned()],
            resources: vec![key.resource.to_owned()],
            resource_names: key.name.map(str::to_owned).into_iter().collect(),
            verbs: self.verbs.into_iter().map(str::to_owned).collect(),
            reasons: self.reasons,
        }
    }
}

impl Rule {
    /// Both rules have `resourceNames`, and everything else is equal.
    fn differs_in_names_only(&self, other: &Rule) -> bool {
        let both_named = !self.resource_names.is_empty() && !other.resource_names.is_empty();
        both_named && Rule { resource_names: self.resource_names.clone(), ..other.clone() } == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Permission = Permission::core("nodes", &["get"], "read");
    const WATCH: Permission = Permission::core("nodes", &["list", "watch"], "watch");

    fn lease(name: &'static str) -> Permission {
        let scope = Scope::Named("kube-system".into(), name.into());
        let verbs = &["update", "get"];
        Permission { group: "coordination.k8s.io", resource: "leases", verbs, scope, why: "lead", without: None }
    }

    #[test]
    fn permissions_on_one_resource_are_one_rule_with_all_reasons() {
        let [role] = &roles([&WATCH, &GET, &WATCH])[..] else { panic!("one role") };
        assert_eq!((&role.namespace, role.rules.len()), (&None, 1));
        assert_eq!(role.rules[0].verbs, ["get", "list", "watch"]);
        assert_eq!(role.rules[0].reasons, ["list, watch: watch", "get: read"]);
    }

    #[test]
    fn each_namespace_is_a_role_and_names_with_equal_verbs_share_a_rule() {
        let create = Permission { verbs: &["create"], scope: Scope::Namespace("kube-system".into()), ..lease("") };
        let roles = roles([&lease("b"), &create, &lease("a"), &GET]);
        let [cluster, namespaced] = &roles[..] else { panic!("two roles: {roles:?}") };
        assert_eq!((&cluster.namespace, cluster.rules.len()), (&None, 1));
        assert_eq!(namespaced.namespace.as_deref(), Some("kube-system"));
        let [unnamed, named] = &namespaced.rules[..] else { panic!("two rules: {namespaced:?}") };
        assert_eq!((&unnamed.resource_names[..], &unnamed.verbs[..]), (&[][..], &["create".to_owned()][..]));
        assert_eq!((named.resource_names.join(" "), named.verbs.join(" ")), ("a b".into(), "get update".into()));
    }

    #[test]
    fn a_rule_is_serialized_as_in_rbac() {
        let [role] = &roles([&GET])[..] else { panic!("one role") };
        let expected = serde_json::json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
        assert_eq!(serde_json::to_value(&role.rules).ok(), Some(expected));
    }
}
