//! Finds the leader: from the Lease to the Pod of its holder.

use bowline_console::access;
use serde_json::Value;

/// `--secure-port` of the manager.
const DEFAULT_PORT: u16 = 10258;

/// Labels and values of a manager's Pods: those of Bowline's manifests and of common manifests of Go managers.
const MANAGER_LABELS: [(&str, &str); 5] = [
    ("app.kubernetes.io/component", "cloud-controller-manager"),
    ("app.kubernetes.io/name", "bowline"),
    ("component", "cloud-controller-manager"),
    ("k8s-app", "cloud-controller-manager"),
    ("app", "cloud-controller-manager"),
];

/// Why there is no Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoPod {
    /// No Pod has the host name of the holder.
    Missing,
    /// Several Pods on the host network of this node could be the manager.
    Ambiguous(Vec<String>),
}

/// Name and port of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagerPod {
    pub(super) name: String,
    pub(super) port: u16,
}

/// Returns the Pod of the holder, whose identity is `HOST_UUID`. The host is the name of the Pod or, on the host network, of its node.
pub(super) fn pod_of(holder: &str, pods: &Value) -> Result<ManagerPod, NoPod> {
    let host = holder.rsplit_once('_').map_or(holder, |(host, _)| host);
    let running = items(pods).filter(|pod| pod["status"]["phase"] != "Succeeded" && pod["status"]["phase"] != "Failed");
    let running: Vec<&Value> = running.collect();
    if host.is_empty() {
        return Err(NoPod::Missing);
    }
    if let Some(pod) = running.iter().find(|pod| host_name(pod).eq_ignore_ascii_case(host)) {
        return Ok(to_manager_pod(pod));
    }
    let on_node = running.into_iter().filter(|pod| {
        let node = text(&pod["spec"]["nodeName"]);
        pod["spec"]["hostNetwork"] == true && is_same_host(node, host)
    });
    let on_node: Vec<&Value> = on_node.collect();
    let likely: Vec<&Value> = on_node.into_iter().filter(|pod| is_manager(pod)).collect();
    match likely.as_slice() {
        [] => Err(NoPod::Missing),
        [pod] => Ok(to_manager_pod(pod)),
        several => Err(NoPod::Ambiguous(several.iter().map(|pod| name(pod).to_owned()).collect())),
    }
}

fn items(pods: &Value) -> impl Iterator<Item = &Value> {
    pods["items"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(pod: &Value) -> &str {
    text(&pod["metadata"]["name"])
}

/// Host name in the containers of a Pod that is not on the host network.
fn host_name(pod: &Value) -> &str {
    match text(&pod["spec"]["hostname"]) {
        _ if pod["spec"]["hostNetwork"] == true => "",
        "" => name(pod),
        given => given,
    }
}

/// The name of a Node is the host name in lower case, or the full name of which the host name is the first label, or the reverse.
fn is_same_host(node: &str, host: &str) -> bool {
    let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_short = |name: &str| !name.contains('.');
    node.eq_ignore_ascii_case(host) || (is_short(node) != is_short(host) && first_label(node) == first_label(host))
}

/// Whether the Pod is a cloud controller manager, by its labels or by the program that a container runs.
fn is_manager(pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    MANAGER_LABELS.iter().any(|(key, value)| labels[key] == *value) || containers(pod).any(runs_manager)
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

fn runs_manager(container: &Value) -> bool {
    let is_program = |text: &str| text.contains("bowline") || text.contains("cloud-controller-manager");
    is_program(text(&container["image"])) || words(container).next().is_some_and(is_program)
}

/// Command and arguments of a container.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    let list = |name: &str| container[name].as_array().into_iter().flatten().filter_map(Value::as_str);
    list("command").chain(list("args"))
}

fn to_manager_pod(pod: &Value) -> ManagerPod {
    ManagerPod { name: name(pod).to_owned(), port: port_of(pod) }
}

/// The secure port: from the flag, else from the declared port `https`.
fn port_of(pod: &Value) -> u16 {
    let of_flag = |container: &Value| {
        let mut words = words(container);
        let flag =
            words.find_map(|word| word.trim_start_matches('-').strip_prefix("secure-port").map(str::to_owned))?;
        match flag.strip_prefix('=') {
            Some(value) => value.parse().ok(),
            None => words.next()?.parse().ok(),
        }
    };
    let declared = |container: &Value| {
        let ports = container["ports"].as_array().into_iter().flatten();
        let port = ports.filter(|port| port["name"] == "https").find_map(|port| port["containerPort"].as_u64())?;
        u16::try_from(port).ok()
    };
    containers(pod).find_map(of_flag).or_else(|| containers(pod).find_map(declared)).unwrap_or(DEFAULT_PORT)
}

/// What an administrator runs to bind the role to a user.
pub(super) fn binding_command(namespace: &str) -> String {
    let role = access::USER_ROLE;
    format!("kubectl -n {namespace} create rolebinding {role} --clusterrole={role} --user=NAME")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host_pod(name: &str, node: &str, container: Value) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {"hostNetwork": true, "nodeName": node, "containers": [container]},
        })
    }

    fn found(holder: &str, pods: &[Value]) -> Result<String, NoPod> {
        pod_of(holder, &json!({"items": pods})).map(|pod| pod.name)
    }

    fn manager() -> Value {
        json!({"image": "registry.example/bowline:1"})
    }

    #[test]
    fn the_holder_is_a_pod_by_its_name_or_on_the_host_network_by_its_node() {
        let pods = [
            json!({"metadata": {"name": "ccm-a"}, "spec": {"nodeName": "node-1", "containers": [manager()]}}),
            json!({"metadata": {"name": "ccm-b"}, "spec": {"hostname": "other", "containers": [manager()]}}),
            host_pod("ccm-c", "node-1", manager()),
            host_pod("proxy", "node-1", json!({"image": "kube-proxy"})),
            host_pod("ccm-d", "node-2.example", manager()),
        ];
        assert_eq!(found("ccm-a_0b1e", &pods).as_deref(), Ok("ccm-a"));
        assert_eq!(found("other_0b1e", &pods).as_deref(), Ok("ccm-b"));
        assert_eq!(found("ccm-b_0b1e", &pods), Err(NoPod::Missing), "its host name is another one");
        assert_eq!(found("NODE-1_0b1e", &pods).as_deref(), Ok("ccm-c"));
        assert_eq!(found("node-2_0b1e", &pods).as_deref(), Ok("ccm-d"), "the short name of the node");
        for holder in ["node-3_0b1e", "node-2.other_0b1e", "", "_"] {
            assert_eq!(found(holder, &pods), Err(NoPod::Missing), "{holder}");
        }
    }

    #[test]
    fn a_pod_that_has_ended_is_not_the_leader() {
        let mut pod = host_pod("ccm", "node-1", manager());
        pod["status"] = json!({"phase": "Failed"});
        assert_eq!(found("node-1_0b1e", &[pod]), Err(NoPod::Missing));
    }

    #[test]
    fn a_manager_is_recognised_by_label_image_or_command() {
        let labelled = |key: &str, value: &str| {
            let mut pod = host_pod("ccm", "n", json!({"image": "x"}));
            pod["metadata"]["labels"] = json!({ key: value });
            pod
        };
        assert!(is_manager(&labelled("k8s-app", "cloud-controller-manager")));
        assert!(is_manager(&labelled("app.kubernetes.io/name", "bowline")));
        assert!(!is_manager(&labelled("k8s-app", "kube-proxy")));
        for (container, expected) in [
            (json!({"image": "registry/openstack-cloud-controller-manager:1"}), true),
            (json!({"image": "x", "command": ["/bin/openstack-cloud-controller-manager"]}), true),
            (json!({"image": "x", "command": ["/bin/proxy"], "args": ["--name=bowline"]}), false),
        ] {
            assert_eq!(is_manager(&host_pod("a", "n", container.clone())), expected, "{container}");
        }
        let two = [host_pod("a", "n", manager()), host_pod("b", "n", manager())];
        assert_eq!(found("n_0b1e", &two), Err(NoPod::Ambiguous(vec!["a".to_owned(), "b".to_owned()])));
    }

    #[test]
    fn the_port_is_that_of_the_flag_or_the_declared_one() {
        let port = |container: Value| port_of(&json!({"spec": {"containers": [{"name": "sidecar"}, container]}}));
        assert_eq!(
            port(json!({"args": ["--v=2", "--secure-port=10300"], "ports": [{"name": "https", "containerPort": 1}]})),
            10300
        );
        assert_eq!(port(json!({"command": ["bowline", "--secure-port", "10301"]})), 10301);
        assert_eq!(port(json!({"ports": [{"containerPort": 80}, {"name": "https", "containerPort": 10302}]})), 10302);
        assert_eq!(port(json!({"args": ["--secure-port=none"]})), DEFAULT_PORT);
        assert_eq!(port(json!({})), DEFAULT_PORT);
    }
}
