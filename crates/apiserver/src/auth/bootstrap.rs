//! The default roles and role bindings of a cluster, read from a table (`bootstrap.txt`).
//!
//! They are upstream's defaults with its default feature gates. Aggregated roles (`admin`, `edit`, `view`) are stored
//! without rules, as the upstream API server creates them; [`super::policy`] resolves their rules.

use serde_json::{Map, Value, json};

use super::policy::GROUP;

const TABLE: &str = include_str!("bootstrap.txt");
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The default roles and role bindings as objects (kind, apiVersion, metadata.name, …).
pub(crate) fn bootstrap_objects() -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("  "), objects.last_mut()) {
            (Some(text), Some(role)) => add_rule(role, text),
            _ => {
                let (role, binding) = Head::read(line).objects();
                objects.extend(binding);
                // The role is last, because the following lines add their rules to it.
                objects.push(role);
            }
        }
    }
    objects
}

/// The first line of a role's block.
struct Head<'t> {
    cluster: bool,
    namespace: &'t str,
    name: String,
    /// The role that aggregates the rules of this one.
    aggregate_to: Option<&'t str>,
    /// The role whose `aggregate-to` label this role selects.
    aggregates: Option<&'t str>,
    /// The name of the binding, if the role has one.
    binding: Option<String>,
    subjects: Vec<Value>,
}

impl<'t> Head<'t> {
    fn read(line: &'t str) -> Head<'t> {
        let mut words = line.split(' ');
        let (kind, title) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (namespace, name) = match kind {
            "role" => title.split_once('/').unwrap_or(("", title)),
            _ => ("", title),
        };
        let mut head = Head {
            cluster: kind != "role",
            namespace,
            name: name.to_owned(),
            aggregate_to: None,
            aggregates: None,
            binding: None,
            subjects: Vec::new(),
        };
        if kind == "controller" {
            head.name = format!("system:controller:{name}");
            head.binding = Some(head.name.clone());
            head.subjects.push(account("kube-system", name));
        }
        for word in words {
            head.read_word(word);
        }
        head
    }

    fn read_word(&mut self, word: &'t str) {
        match word.split_once(['=', ':']) {
            Some(("aggregate-to", role)) => self.aggregate_to = Some(role),
            Some(("aggregates", role)) => self.aggregates = Some(role),
            Some(("bound", name)) => self.binding = Some(name.to_owned()),
            Some(("user", name)) => self.subjects.push(subject("User", name)),
            Some(("group", name)) => self.subjects.push(subject("Group", name)),
            Some(("sa", address)) => {
                let (namespace, name) = address.split_once('/').unwrap_or(("", address));
                self.subjects.push(account(namespace, name));
            }
            _ => self.binding = Some(self.name.clone()),
        }
    }

    fn objects(self) -> (Value, Option<Value>) {
        let prefix = if self.cluster { "Cluster" } else { "" };
        let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let binding = self.binding.map(|name| {
            let mut binding = object(&format!("{prefix}RoleBinding"), self.namespace, &name, &labels);
            binding["roleRef"] = json!({"apiGroup": GROUP, "kind": format!("{prefix}Role"), "name": self.name});
            if !self.subjects.is_empty() {
                binding["subjects"] = self.subjects.into();
            }
            binding
        });
        if let Some(whole) = self.aggregate_to {
            labels[format!("{AGGREGATE}{whole}")] = "true".into();
        }
        let mut role = object(&format!("{prefix}Role"), self.namespace, &self.name, &labels);
        role["rules"] = Value::Null;
        if let Some(parts) = self.aggregates {
            let label = Map::from_iter([(format!("{AGGREGATE}{parts}"), "true".into())]);
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": label}]});
        }
        (role, binding)
    }
}

fn object(kind: &str, namespace: &str, name: &str, labels: &Value) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": labels,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    json!({"kind": kind, "apiVersion": format!("{GROUP}/v1"), "metadata": metadata})
}

fn subject(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "apiGroup": GROUP, "name": name})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

fn add_rule(role: &mut Value, text: &str) {
    let mut words = text.split(' ');
    let verbs = verbs(words.next().unwrap_or_default());
    let (groups, things) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let list = |text: &str| -> Value { text.split(',').map(Value::from).collect() };
    let mut rule = match groups {
        "url" => json!({"verbs": verbs, "nonResourceURLs": list(things)}),
        groups => {
            let groups: Value = groups.split(',').map(|g| if g == "core" { "" } else { g }).map(Value::from).collect();
            json!({"verbs": verbs, "apiGroups": groups, "resources": list(things)})
        }
    };
    if let (Some("named"), Some(names)) = (words.next(), words.next()) {
        rule["resourceNames"] = list(names);
    }
    match &mut role["rules"] {
        Value::Array(rules) => rules.push(rule),
        rules => *rules = json!([rule]),
    }
}

/// Expands the abbreviations `read` and `write`; upstream lists verbs in alphabetical order.
fn verbs(text: &str) -> Vec<&str> {
    let mut verbs: Vec<&str> = Vec::new();
    for word in text.split(',') {
        match word {
            "read" => verbs.extend(["get", "list", "watch"]),
            "write" => verbs.extend(["create", "delete", "deletecollection", "patch", "update"]),
            verb => verbs.push(verb),
        }
    }
    verbs.sort_unstable();
    verbs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Json;

    fn find(kind: &str, name: &str) -> Value {
        let objects = bootstrap_objects();
        let found = objects.into_iter().find(|o| o.text("kind") == kind && o.text("metadata.name") == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    #[test]
    fn default_roles_have_the_recorded_rules() {
        let discovery = [
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
            "/version/",
        ];
        assert_eq!(
            find("ClusterRole", "system:discovery")["rules"],
            json!([{"nonResourceURLs": discovery, "verbs": ["get"]}])
        );
        assert_eq!(
            find("ClusterRole", "system:public-info-viewer")["rules"],
            json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}])
        );
        let admins = find("ClusterRoleBinding", "cluster-admin");
        assert_eq!(admins["roleRef"], json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"}));
        assert_eq!(admins["subjects"], json!([{"apiGroup": GROUP, "kind": "Group", "name": "system:masters"}]));
    }

    #[test]
    fn an_aggregated_role_has_a_selector_instead_of_rules() {
        let edit = find("ClusterRole", "edit");
        assert_eq!(edit["rules"], Value::Null);
        assert_eq!(
            edit["aggregationRule"],
            json!({"clusterRoleSelectors": [{"matchLabels": {format!("{AGGREGATE}edit"): "true"}}]})
        );
        assert_eq!(edit["metadata"]["labels"][format!("{AGGREGATE}admin")], "true");
    }

    #[test]
    fn each_controller_role_is_bound_to_its_service_account() {
        let binding = find("ClusterRoleBinding", "system:controller:node-controller");
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "node-controller", "namespace": "kube-system"}])
        );
        let reader = find("RoleBinding", "system::extension-apiserver-authentication-reader");
        assert_eq!(reader.text("roleRef.name"), "extension-apiserver-authentication-reader");
        assert_eq!(reader.text("roleRef.kind"), "Role");
        assert_eq!(reader.text("metadata.namespace"), "kube-system");
    }

    #[test]
    fn all_objects_have_a_served_kind_and_a_unique_name() {
        let mut seen = std::collections::HashSet::new();
        for object in bootstrap_objects() {
            let resource = crate::resources::find_kind(object.text("apiVersion"), object.text("kind")).unwrap();
            assert_eq!(resource.namespaced, object.has("metadata.namespace"), "{object}");
            let address = ["metadata.namespace", "metadata.name"].map(|path| object.text(path).to_owned());
            assert!(seen.insert((resource.plural, address)), "{object}");
        }
        assert_eq!(seen.len(), 141);
    }
}
