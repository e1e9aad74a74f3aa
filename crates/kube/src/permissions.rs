//! What may be asked of the API server. Each right is declared beside the code that needs it; the role that a cluster gives
//! to the manager is rendered from these declarations and from nothing else.
//!
//! ```text
//!  const RIGHT beside a request ──► RIGHTS of a controller ──► who is switched on, under whose name ──► roles ──► YAML
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The right to do something with one kind of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The API group, `""` for the core one.
    pub group: &'static str,
    /// The resource, with its subresource: `nodes/status`.
    pub resource: &'static str,
    /// What is done with it.
    pub verbs: &'static [&'static str],
    /// Where.
    pub scope: Scope,
    /// What for, for the person who reads the role.
    pub why: &'static str,
    /// What becomes of that where the right is missing; `None` if it fails.
    pub without: Option<&'static str>,
}

/// Where a right holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// In this namespace.
    Namespace(Cow<'static, str>),
    /// In this namespace, for the object of this name.
    Named(Cow<'static, str>, Cow<'static, str>),
}

impl Permission {
    /// To do this everywhere with objects of the core group.
    pub const fn core(resource: &'static str, verbs: &'static [&'static str], why: &'static str) -> Permission {
        Permission { group: "", resource, verbs, scope: Scope::Cluster, why, without: None }
    }

    /// One that can be done without; then this becomes of it.
    pub const fn without(mut self, consequence: &'static str) -> Permission {
        self.without = Some(consequence);
        self
    }
}

/// What somebody may do in one place: the rules of a `ClusterRole`, or of a `Role`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// `None` for all of the cluster.
    pub namespace: Option<String>,
    /// Sorted, one for each resource.
    pub rules: Vec<Rule>,
}

/// A rule of a role; its fields are those of RBAC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The API group.
    pub api_groups: Vec<String>,
    /// The resource.
    pub resources: Vec<String>,
    /// The objects it is about; all of them if there are none here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// What is done.
    pub verbs: Vec<String>,
    /// What for, by verbs: `get: to look again`.
    #[serde(skip)]
    pub reasons: Vec<String>,
}

/// What lies in one place is one role, and what is about one resource there is one rule of it.
pub fn roles<'a>(permissions: impl IntoIterator<Item = &'a Permission>) -> Vec<Role> {
    let mut merged: BTreeMap<Place<'_>, Use> = BTreeMap::new();
    for permission in permissions {
        merged.entry(Place::of(permission)).or_default().add(permission);
    }
    let mut roles: BTreeMap<Option<String>, Vec<Rule>> = BTreeMap::new();
    for (place, uses) in merged {
        let rules = roles.entry(place.namespace.map(str::to_owned)).or_default();
        let rule = uses.into_rule(&place);
        match rules.last_mut().filter(|last| last.differs_in_names_only(&rule)) {
            Some(last) => last.resource_names.extend(rule.resource_names),
            None => rules.push(rule),
        }
    }
    roles.into_iter().map(|(namespace, rules)| Role { namespace, rules }).collect()
}

/// What a rule is about. The order is that of rules in a role.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    namespace: Option<&'a str>,
    group: &'static str,
    resource: &'static str,
    name: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn of(permission: &'a Permission) -> Place<'a> {
        let (namespace, name) = match &permission.scope {
            Scope::Cluster => (None, None),
            Scope::Namespace(namespace) => (Some(&**namespace), None),
            Scope::Named(namespace, name) => (Some(&**namespace), Some(&**name)),
        };
        Place { namespace, group: permission.group, resource: permission.resource, name }
    }
}

/// What is done, and what for.
#[derive(Default)]
struct Use {
    verbs: BTreeSet<&'static str>,
    /// In the order of the declarations.
    reasons: Vec<String>,
}

impl Use {
    fn add(&mut self, permission: &Permission) {
        self.verbs.extend(permission.verbs);
        let reason = format!("{}: {}", permission.verbs.join(", "), permission.why);
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    fn into_rule(self, place: &Place<'_>) -> Rule {
        Rule {
            api_groups: vec![place.group.to_owned()],
            resources: vec![place.resource.to_owned()],
            resource_names: place.name.map(str::to_owned).into_iter().collect(),
            verbs: self.verbs.into_iter().map(str::to_owned).collect(),
            reasons: self.reasons,
        }
    }
}

impl Rule {
    /// Both are about objects by name, and the same is done with them.
    fn differs_in_names_only(&self, other: &Rule) -> bool {
        let both_named = !self.resource_names.is_empty() && !other.resource_names.is_empty();
        both_named && Rule { resource_names: self.resource_names.clone(), ..other.clone() } == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_METHODS: Permission = Permission::core("nodes", &["get"], "to look");
    const FOLLOW: Permission = Permission::core("nodes", &["list", "watch"], "to follow");

    fn lease(name: &'static str) -> Permission {
        let scope = Scope::Named("kube-system".into(), name.into());
        let verbs = &["update", "get"];
        Permission { group: "coordination.k8s.io", resource: "leases", verbs, scope, why: "to lead", without: None }
    }

    #[test]
    fn rights_about_one_resource_are_one_rule_with_all_the_reasons() {
        let [role] = &roles([&FOLLOW, &READ_METHODS, &FOLLOW])[..] else { panic!("one role") };
        assert_eq!((&role.namespace, role.rules.len()), (&None, 1));
        assert_eq!(role.rules[0].verbs, ["get", "list", "watch"]);
        assert_eq!(role.rules[0].reasons, ["list, watch: to follow", "get: to look"]);
    }

    #[test]
    fn places_are_roles_and_names_of_one_use_are_one_rule() {
        let create = Permission { verbs: &["create"], scope: Scope::Namespace("kube-system".into()), ..lease("") };
        let roles = roles([&lease("b"), &create, &lease("a"), &READ_METHODS]);
        let [everywhere, there] = &roles[..] else { panic!("two roles: {roles:?}") };
        assert_eq!((&everywhere.namespace, everywhere.rules.len()), (&None, 1));
        assert_eq!(there.namespace.as_deref(), Some("kube-system"));
        let [unnamed, named] = &there.rules[..] else { panic!("two rules: {there:?}") };
        assert_eq!((&unnamed.resource_names[..], &unnamed.verbs[..]), (&[][..], &["create".to_owned()][..]));
        assert_eq!((named.resource_names.join(" "), named.verbs.join(" ")), ("a b".into(), "get update".into()));
    }

    #[test]
    fn a_rule_is_written_as_rbac_has_it() {
        let [role] = &roles([&READ_METHODS])[..] else { panic!("one role") };
        let expected = serde_json::json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
        assert_eq!(serde_json::to_value(&role.rules).ok(), Some(expected));
    }
}
