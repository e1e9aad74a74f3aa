//! What the server has to say about pods that are valid but odd.

use std::collections::BTreeMap;

use serde_json::Value;

use super::defaults::CONTAINER_LISTS;
use crate::quantity;
use crate::validation;
use crate::validation::address;
use crate::value::Json;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Warnings about a new pod.
pub(super) fn of_pod(pod: &Value) -> Vec<String> {
    let mut warnings = hostname(pod, "the Pod's hostname");
    warnings.extend(of_spec_and_metadata(pod, ""));
    warnings
}

/// Warnings about the template of pods at `path`.
pub(crate) fn of_template(template: &Value, path: &str) -> Vec<String> {
    of_spec_and_metadata(template, &format!("{path}."))
}

/// A name that ends up in a hostname should be fit for it.
pub(crate) fn hostname(object: &Value, used_in: &str) -> Vec<String> {
    match validation::dns_label(object.text("metadata.name")) {
        complaints if complaints.is_empty() => Vec::new(),
        complaints => vec![format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            complaints.join(" ")
        )],
    }
}

fn of_spec_and_metadata(holder: &Value, prefix: &str) -> Vec<String> {
    let spec = holder.at("spec");
    let path = format!("{prefix}spec");
    let mut warnings = node_labels(spec, &path);
    warnings.extend(spread_constraints(spec, &path));
    warnings.extend(annotations(holder, prefix));
    warnings.extend(volumes(spec, &path));
    warnings.extend(repeated(spec, &path));
    warnings.extend(containers(spec, &path, prefix, holder));
    warnings.extend(ports(spec, &path));
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let detail = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{path}.terminationGracePeriodSeconds: {detail}"));
    }
    warnings.extend(pod_affinity(spec, &path));
    warnings.extend(addresses(spec, &path));
    warnings
}

// === Labels of nodes ===

const OLD_NODE_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

fn old_node_label(key: &str) -> Option<&'static str> {
    OLD_NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

fn node_labels(spec: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, _) in spec.map("nodeSelector").into_iter().flatten() {
        if let Some(message) = old_node_label(key) {
            warnings.push(format!("{path}.nodeSelector[{key}]: {message}"));
        }
    }
    let affinity = spec.at("affinity.nodeAffinity");
    let base = format!("{path}.affinity.nodeAffinity");
    let terms = affinity.at(REQUIRED).list("nodeSelectorTerms").iter().enumerate();
    for (i, term) in terms {
        warnings.extend(node_selector_term(term, false, &format!("{base}.{REQUIRED}.nodeSelectorTerms[{i}]")));
    }
    for (i, term) in affinity.list(PREFERRED).iter().enumerate() {
        warnings.extend(node_selector_term(
            term.at("preference"),
            true,
            &format!("{base}.{PREFERRED}[{i}].preference"),
        ));
    }
    warnings
}

fn node_selector_term(term: &Value, check_values: bool, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, expression) in term.list("matchExpressions").iter().enumerate() {
        let key = expression.text("key");
        if let Some(message) = old_node_label(key) {
            warnings.push(format!("{path}.matchExpressions[{i}].key: {key} is {message}"));
        }
        for (j, value) in expression.texts("values").into_iter().enumerate().filter(|_| check_values) {
            for complaint in validation::label_value(value) {
                warnings.push(format!("{path}.matchExpressions[{i}].values[{j}]: {value} is invalid, {complaint}"));
            }
        }
    }
    warnings
}

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn spread_constraints(spec: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let path = format!("{path}.topologySpreadConstraints[{i}]");
        let key = constraint.text("topologyKey");
        if let Some(message) = old_node_label(key) {
            warnings.push(format!("{path}.topologyKey: {key} is {message}"));
        }
        if !constraint.has("labelSelector") {
            warnings.push(format!("{path}.labelSelector: {NULL_SELECTOR}"));
        }
    }
    warnings
}

fn pod_affinity(spec: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.at("affinity").at(kind);
        for (list, selector) in [(REQUIRED, "labelSelector"), (PREFERRED, "podAffinityTerm.labelSelector")] {
            let missing = affinity.list(list).iter().enumerate().filter(|(_, term)| !term.has(selector));
            let texts = missing.map(|(i, _)| format!("{path}.affinity.{kind}.{list}[{i}].{selector}: {NULL_SELECTOR}"));
            warnings.extend(texts);
        }
    }
    warnings
}

// === Things of the past ===

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

fn annotation<'a>(holder: &'a Value, key: &str) -> Option<&'a Value> {
    holder.at("metadata.annotations").get(key)
}

fn annotations(holder: &Value, prefix: &str) -> Vec<String> {
    const OLD: [(&str, &str); 3] = [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
        ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ];
    let present = OLD.iter().filter(|(key, _)| annotation(holder, key).is_some());
    let mut warnings: Vec<String> =
        present.map(|(key, message)| format!("{prefix}metadata.annotations[{key}]: {message}")).collect();
    if annotation(holder, SECCOMP_POD).is_some() && !holder.has("spec.securityContext.seccompProfile") {
        warnings.push(format!("{prefix}metadata.annotations[{SECCOMP_POD}]: {SECCOMP}"));
    }
    warnings
}

fn volumes(spec: &Value, path: &str) -> Vec<String> {
    const OLD: [(&str, &str, &str); 9] = [
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let of_volume = |(i, volume): (usize, &Value)| -> Vec<String> {
        let used = OLD.iter().filter(|(source, ..)| volume.has(source));
        used.map(|(_, shown, message)| format!("{path}.volumes[{i}].{shown}: {message}")).collect()
    };
    spec.list("volumes").iter().enumerate().flat_map(of_volume).collect()
}

// === Repetitions ===

fn repeated(spec: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (list, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen: Vec<&str> = Vec::new();
        for (i, value) in spec.list(list).iter().map(|item| item.text(field)).enumerate() {
            match seen.contains(&value) {
                true => warnings.push(format!("{path}.{list}[{i}].{field}: duplicate {field} {value:?}")),
                false => seen.push(value),
            }
        }
    }
    for (i, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            warnings.push(format!("{path}.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
    warnings.extend(fractions(spec.at("overhead"), &format!("{path}.overhead")));
    warnings
}

/// Bytes come in whole numbers.
fn fractions(amounts: &Value, path: &str) -> Vec<String> {
    let fractional = |name: &&str| quantity::milli(amounts.text(name)) % 1000 != 0;
    let names = ["memory", "ephemeral-storage"].into_iter().filter(fractional);
    names
        .map(|name| {
            let amount = amounts.text(name);
            format!("{path}[{name}]: fractional byte value {amount:?} is invalid, must be an integer")
        })
        .collect()
}

fn each_container<'a>(spec: &'a Value, path: &'a str) -> impl Iterator<Item = (String, &'a Value)> {
    CONTAINER_LISTS.into_iter().flat_map(move |list| {
        let containers = spec.list(list).iter().enumerate();
        containers.map(move |(i, container)| (format!("{path}.{list}[{i}]"), container))
    })
}

fn containers(spec: &Value, path: &str, prefix: &str, holder: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (path, container) in each_container(spec, path) {
        let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
        if annotation(holder, &key).is_some() && !container.has("securityContext.seccompProfile") {
            warnings.push(format!("{prefix}metadata.annotations[{key}]: {SECCOMP}"));
        }
        for list in ["limits", "requests"] {
            let amounts = container.at("resources").at(list);
            warnings.extend(fractions(amounts, &format!("{path}.resources.{list}")));
        }
        warnings.extend(hidden_variables(container, &path));
    }
    warnings
}

/// A variable that is set twice hides its first value, unless the second one builds on it.
fn hidden_variables(container: &Value, path: &str) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut warnings = Vec::new();
    for (i, variable) in container.list("env").iter().enumerate() {
        let (name, value) = (variable.text("name"), variable.text("value"));
        let reference = format!("$({name})");
        let builds_on = value != reference && value.contains(&reference) && !variable.has("valueFrom");
        if !seen.contains(&name) {
            seen.push(name);
        } else if !builds_on {
            warnings.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    warnings
}

fn ports(spec: &Value, path: &str) -> Vec<String> {
    let all: Vec<(String, &Value)> = each_container(spec, path)
        .flat_map(|(path, container)| {
            container.list("ports").iter().enumerate().map(move |(i, port)| (format!("{path}.ports[{i}]"), port))
        })
        .collect();
    let mut warnings = Vec::new();
    for (n, (at, port)) in all.iter().enumerate() {
        for (other_at, other) in all.iter().take(n) {
            if let Some(relation) = port_conflict(port, other) {
                warnings.push(format!("{at}: {relation} port definition with {other_at}"));
            }
        }
    }
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, port) in all.iter().filter(|(_, port)| !port.text("name").is_empty()) {
        let name = port.text("name");
        match names.get(name) {
            Some(first) => warnings.push(format!(
                "{at}: duplicate port name {name:?} with {first}, services and probes that select ports by name will \
                 use {first}"
            )),
            None => {
                names.insert(name, at);
            }
        }
    }
    warnings
}

fn port_conflict(port: &Value, other: &Value) -> Option<&'static str> {
    let host = |port: &Value| port.int("hostPort").unwrap_or(0);
    let same_container_port =
        port.at("containerPort") == other.at("containerPort") && port.text("protocol") == other.text("protocol");
    let (ip, other_ip) = (port.text("hostIP"), other.text("hostIP"));
    match same_container_port {
        false => None,
        true if ip == other_ip && host(port) == host(other) => Some("duplicate"),
        true if host(port) == 0 || host(other) == 0 => Some("overlapping"),
        true if host(port) == host(other) && ip.is_empty() != other_ip.is_empty() => Some("dangerously ambiguous"),
        true => None,
    }
}

fn addresses(spec: &Value, path: &str) -> Vec<String> {
    let servers = spec.texts("dnsConfig.nameservers").into_iter().enumerate();
    let mut warnings: Vec<String> =
        servers.filter_map(|(i, ip)| address::ip_warning(&format!("{path}.dnsConfig.nameservers[{i}]"), ip)).collect();
    let aliases = spec.list("hostAliases").iter().map(|alias| alias.text("ip")).enumerate();
    warnings.extend(aliases.filter_map(|(i, ip)| address::ip_warning(&format!("{path}.hostAliases[{i}].ip"), ip)));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: Value) -> Vec<String> {
        of_pod(&json!({"metadata": {"name": "a"}, "spec": spec}))
    }

    #[test]
    fn a_name_with_dots_makes_a_poor_hostname() {
        assert_eq!(
            of_pod(&json!({"metadata": {"name": "a.b"}, "spec": {}})),
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
              is recommended: [must not contain dots]"
            ]
        );
    }

    #[test]
    fn old_labels_of_nodes_are_named() {
        let template = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}});
        assert_eq!(
            of_template(&template, "spec.template"),
            [
                "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" \
              instead"
            ]
        );
    }

    #[test]
    fn repetitions_are_noticed() {
        let port = json!({"containerPort": 80, "protocol": "TCP", "name": "http"});
        let spec = json!({
            "imagePullSecrets": [{"name": "s"}, {"name": "s"}, {}],
            "containers": [
                {"name": "c", "ports": [port], "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
                {"name": "d", "ports": [port], "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]},
            ],
        });
        assert_eq!(
            of(spec),
            [
                "spec.imagePullSecrets[1].name: duplicate name \"s\"",
                "spec.imagePullSecrets[2].name: invalid empty name \"\"",
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"http\" with spec.containers[0].ports[0], services \
                 and probes that select ports by name will use spec.containers[0].ports[0]"
            ]
        );
    }

    #[test]
    fn half_bytes_do_not_exist() {
        let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"memory": "100m"}}}]});
        assert_eq!(
            of(spec),
            [
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer"
            ]
        );
    }

    #[test]
    fn selectors_that_match_nothing_are_noticed() {
        let spec = json!({
            "topologySpreadConstraints": [{"topologyKey": "zone"}],
            "affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}},
        });
        assert_eq!(of(spec).len(), 2);
    }
}
