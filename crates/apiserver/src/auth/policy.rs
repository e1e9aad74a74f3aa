//! RBAC policy: the parsed roles and bindings, and the rules that apply to a user.
//!
//! Each object is parsed once per revision. A request compares the versions of four collections and reuses the parsed
//! policy unless one changed. Role references are resolved per request, so a binding may be created before its role.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::rule::{Rule, rules_of};
use super::{Attributes, User, service_account};
use crate::store::{Key, Store};
use crate::value::Json;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// Caches the latest [`Policy`].
#[derive(Debug, Default)]
pub(super) struct PolicyCache(RwLock<Arc<Policy>>);

/// A snapshot of all roles and bindings.
#[derive(Debug, Default)]
pub(super) struct Policy {
    roles: Collection<Role>,
    cluster_roles: Collection<Role>,
    bindings: Collection<Binding>,
    cluster_bindings: Collection<Binding>,
    /// The rules of aggregated cluster roles, by name.
    aggregated: HashMap<Box<str>, Vec<Rule>>,
}

/// The parsed objects of one collection.
#[derive(Debug)]
struct Collection<T> {
    version: Option<u64>,
    objects: BTreeMap<Key, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    revision: u64,
    value: Arc<T>,
}

#[derive(Debug)]
struct Role {
    rules: Vec<Rule>,
    labels: BTreeMap<String, String>,
    /// The `clusterRoleSelectors` of the aggregation rule.
    selectors: Vec<Value>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug)]
pub(super) struct Binding {
    name: String,
    /// Empty for a cluster role binding.
    namespace: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role that a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleRef {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// Why a request is allowed: a binding and its subject that matches the user.
#[derive(Debug)]
pub(super) struct Grant<'p> {
    binding: &'p Binding,
    subject: &'p Subject,
}

/// Why the role reference of a binding cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RoleRefError {
    RoleNotFound(String),
    ClusterRoleNotFound(String),
    /// A ClusterRoleBinding refers to a Role, which needs a namespace.
    NamespaceRequired,
    UnsupportedKind(String),
}

// === Refreshing ===

impl PolicyCache {
    pub(super) fn current(&self, store: &Store) -> Arc<Policy> {
        let policy = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if policy.is_current(store) {
            return policy;
        }
        let policy = Arc::new(policy.refreshed(store));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = policy.clone();
        policy
    }
}

impl Policy {
    fn is_current(&self, store: &Store) -> bool {
        self.roles.is_current(store, "roles")
            && self.cluster_roles.is_current(store, "clusterroles")
            && self.bindings.is_current(store, "rolebindings")
            && self.cluster_bindings.is_current(store, "clusterrolebindings")
    }

    fn refreshed(&self, store: &Store) -> Policy {
        let cluster_roles = self.cluster_roles.refreshed(store, "clusterroles", Role::read);
        Policy {
            aggregated: aggregate_rules(&cluster_roles),
            roles: self.roles.refreshed(store, "roles", Role::read),
            cluster_roles,
            bindings: self.bindings.refreshed(store, "rolebindings", Binding::read),
            cluster_bindings: self.cluster_bindings.refreshed(store, "clusterrolebindings", Binding::read),
        }
    }
}

impl<T> Default for Collection<T> {
    fn default() -> Self {
        Collection { version: None, objects: BTreeMap::new() }
    }
}

impl<T> Collection<T> {
    fn is_current(&self, store: &Store, storage: &str) -> bool {
        self.version == Some(store.version(storage))
    }

    /// Parses the objects that changed and reuses the others.
    fn refreshed(&self, store: &Store, storage: &str, read: fn(&Value) -> T) -> Collection<T> {
        // Read before the list: a write in between is parsed now and checked again at the next refresh.
        let version = store.version(storage);
        let mut objects = BTreeMap::new();
        for stored in store.list(storage, None).objects {
            let known = self.objects.get(&stored.key).filter(|e| e.revision == stored.revision);
            let value = known.map_or_else(|| Arc::new(read(&stored.value())), |e| e.value.clone());
            objects.insert(stored.key.clone(), Entry { revision: stored.revision, value });
        }
        Collection { version: Some(version), objects }
    }

    fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.objects.get(&Key::new(namespace, name)).map(|e| e.value.as_ref())
    }

    fn in_namespace<'a, 'n>(&'a self, namespace: &'n str) -> impl Iterator<Item = &'a T> + use<'a, 'n, T> {
        let start = Bound::Included(Key::new(namespace, ""));
        let range = self.objects.range((start, Bound::Unbounded));
        range.take_while(move |(key, _)| *key.namespace == *namespace).map(|(_, e)| e.value.as_ref())
    }
}

impl Role {
    fn read(role: &Value) -> Role {
        let labels = role.map("metadata.labels").into_iter().flatten();
        Role {
            rules: rules_of(role),
            labels: labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
            selectors: role.list("aggregationRule.clusterRoleSelectors").to_vec(),
        }
    }
}

impl Binding {
    fn read(binding: &Value) -> Binding {
        Binding {
            name: binding.text("metadata.name").to_owned(),
            namespace: binding.text("metadata.namespace").to_owned(),
            role: RoleRef::read(binding),
            subjects: binding.list("subjects").iter().map(Subject::read).collect(),
        }
    }
}

impl RoleRef {
    /// The `roleRef` of a binding.
    pub(super) fn read(binding: &Value) -> RoleRef {
        let text = |path: &str| binding.text(path).to_owned();
        RoleRef { group: text("roleRef.apiGroup"), kind: text("roleRef.kind"), name: text("roleRef.name") }
    }
}

impl Subject {
    fn read(subject: &Value) -> Subject {
        let text = |path: &str| subject.text(path).to_owned();
        Subject { kind: text("kind"), name: text("name"), namespace: text("namespace") }
    }
}

// === Aggregated roles ===

/// Computes the rules of each cluster role with an aggregation rule: its own rules and those of all roles that its
/// selectors match, recursively. Upstream, the kube-controller-manager writes the aggregated rules into the object;
/// computing them here makes aggregated roles work without it.
fn aggregate_rules(roles: &Collection<Role>) -> HashMap<Box<str>, Vec<Rule>> {
    let mut aggregated = HashMap::new();
    for (key, entry) in roles.objects.iter().filter(|(_, e)| !e.value.selectors.is_empty()) {
        let mut names = vec![&*key.name];
        let mut rules = Vec::new();
        add_rules(roles, &entry.value, &mut names, &mut rules);
        aggregated.insert(key.name.clone(), rules);
    }
    aggregated
}

fn add_rules<'r>(roles: &'r Collection<Role>, role: &'r Role, seen: &mut Vec<&'r str>, rules: &mut Vec<Rule>) {
    for rule in &role.rules {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    for (key, entry) in &roles.objects {
        let matched = role.selectors.iter().any(|selector| selects(selector, &entry.value.labels));
        if matched && !seen.contains(&&*key.name) {
            seen.push(&key.name);
            add_rules(roles, &entry.value, seen, rules);
        }
    }
}

/// Whether a LabelSelector object matches; an empty one matches everything.
fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.map("matchLabels").into_iter().flatten();
    equal.all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
        && selector.list("matchExpressions").iter().all(|e| satisfies(e, labels.get(e.text("key"))))
}

fn satisfies(expression: &Value, label: Option<&String>) -> bool {
    let listed = || label.is_some_and(|value| expression.texts("values").contains(&value.as_str()));
    match expression.text("operator") {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

// === Evaluating ===

impl Policy {
    /// Returns the first binding that allows the request, or the role references that could not be resolved.
    pub(super) fn grant(&self, user: &User, attributes: &Attributes) -> Result<Grant<'_>, Vec<RoleRefError>> {
        let mut errors = Vec::new();
        for grant in self.grants(user, &attributes.namespace) {
            match self.rules_of_binding(grant.binding) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => return Ok(grant),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        Err(errors)
    }

    /// Returns all rules that apply to the user in a namespace or, if it is empty, cluster-wide.
    pub(super) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Vec<RoleRefError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match self.rules_of_binding(grant.binding) {
                Ok(found) => rules.extend(found),
                Err(error) => errors.push(error),
            }
        }
        (rules, errors)
    }

    /// Returns the rules of the role that a binding in `namespace` refers to.
    pub(super) fn rules_of_role(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], RoleRefError> {
        let name = role.name.as_str();
        match role.kind.as_str() {
            "Role" if namespace.is_empty() => Err(RoleRefError::NamespaceRequired),
            "Role" => match self.roles.get(namespace, name) {
                Some(role) => Ok(&role.rules),
                None => Err(RoleRefError::RoleNotFound(name.to_owned())),
            },
            "ClusterRole" => match (self.aggregated.get(name), self.cluster_roles.get("", name)) {
                (Some(rules), _) => Ok(rules),
                (None, Some(role)) => Ok(&role.rules),
                (None, None) => Err(RoleRefError::ClusterRoleNotFound(name.to_owned())),
            },
            kind => Err(RoleRefError::UnsupportedKind(kind.to_owned())),
        }
    }

    fn rules_of_binding(&self, binding: &Binding) -> Result<&[Rule], RoleRefError> {
        self.rules_of_role(&binding.role, &binding.namespace)
    }

    /// The bindings with a subject that matches the user: cluster-wide bindings first, then those of the namespace.
    fn grants<'p, 'u>(&'p self, user: &'u User, namespace: &'u str) -> impl Iterator<Item = Grant<'p>> + use<'p, 'u> {
        let local = (!namespace.is_empty()).then(|| self.bindings.in_namespace(namespace)).into_iter().flatten();
        self.cluster_bindings.in_namespace("").chain(local).filter_map(move |binding| {
            let subject = binding.subjects.iter().find(|s| s.matches(user, &binding.namespace))?;
            Some(Grant { binding, subject })
        })
    }
}

impl Subject {
    fn matches(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => {
                let namespace = self.namespace_or(binding_namespace);
                !namespace.is_empty() && service_account::is_named(&user.name, namespace, &self.name)
            }
            _ => false,
        }
    }

    /// The namespace of a service account; defaults to the namespace of the binding.
    fn namespace_or<'s>(&'s self, binding_namespace: &'s str) -> &'s str {
        if self.namespace.is_empty() { binding_namespace } else { &self.namespace }
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { name, namespace, role, .. } = self.binding;
        // upstream: the namespace comes after the name.
        match namespace.as_str() {
            "" => write!(f, "ClusterRoleBinding {name:?}")?,
            namespace => write!(f, "RoleBinding {:?}", format!("{name}/{namespace}"))?,
        }
        write!(f, " of {} {:?} to {} ", role.kind, role.name, self.subject.kind)?;
        match self.subject.kind.as_str() {
            "ServiceAccount" => {
                write!(f, "{:?}", format!("{}/{}", self.subject.name, self.subject.namespace_or(namespace)))
            }
            _ => write!(f, "{:?}", self.subject.name),
        }
    }
}

impl RoleRefError {
    /// The message of upstream's authorizer, which reads roles from its cache and names them in the singular.
    pub(super) fn authorizer_message(&self) -> String {
        self.message("role", "clusterrole")
    }

    /// The message of upstream's registry, which names roles in the plural.
    pub(super) fn registry_message(&self) -> String {
        self.message("roles", "clusterroles")
    }

    fn message(&self, role: &str, cluster_role: &str) -> String {
        match self {
            RoleRefError::RoleNotFound(name) => format!("{role}.{GROUP} {name:?} not found"),
            RoleRefError::ClusterRoleNotFound(name) => format!("{cluster_role}.{GROUP} {name:?} not found"),
            RoleRefError::NamespaceRequired => "Namespace parameter required.".to_owned(),
            RoleRefError::UnsupportedKind(kind) => format!("unsupported role reference kind: {kind:?}"),
        }
    }
}
