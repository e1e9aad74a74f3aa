//! Kubernetes objects as YAML, with reasons as comments.

use bowline_console::access;
use bowline_kube::{Permission, Role, Rule, roles};

use super::environment;
use super::fill::{Fillings, block, scalar};
use super::installation::{Installation, Secret, Workload};
use crate::permissions::{self, SYSTEM};

/// Service account of the Pods.
pub(super) const ACCOUNT: &str = "cloud-controller-manager";

/// Labels of all objects.
pub(super) const LABELS: &str =
    "app.kubernetes.io/name: bowline\napp.kubernetes.io/component: cloud-controller-manager";

/// PodDisruptionBudget of a Deployment. Drains do not evict Pods of a DaemonSet.
pub(super) const DISRUPTION_BUDGET: &str = include_str!("templates/disruption_budget.yaml");

/// Returns all objects, in an order in which they can be applied.
pub(super) fn all(installation: &Installation) -> Vec<String> {
    let fillings = common(installation);
    let mut objects = Vec::new();
    if !["kube-system", "default"].contains(&installation.namespace.as_str()) {
        objects.push(fillings.fill(include_str!("templates/namespace.yaml")));
    }
    let account = fillings.clone().with("annotations", annotations(&installation.account_annotations));
    objects.push(account.fill(include_str!("templates/account.yaml")));
    objects.extend(all_roles(installation));
    objects.extend(console(installation));
    for secret in installation.secrets.iter().filter(|secret| !secret.files.is_empty()) {
        let files: Vec<String> = secret.files.iter().map(|(name, text)| block(name, text)).collect();
        let fillings = fillings.clone().with("secret", secret.name).with("files", files.join("\n"));
        objects.push(fillings.fill(include_str!("templates/config.yaml")));
    }
    if matches!(installation.workload, Workload::Deployment { .. }) {
        objects.push(fillings.fill(DISRUPTION_BUDGET));
    }
    objects.push(workload(installation, &fillings));
    objects
}

/// Renders the annotations of the service account; empty if there are none.
fn annotations(annotations: &[(String, String)]) -> String {
    let lines = annotations.iter().map(|(key, value)| format!("\n  {}: {}", scalar(key), scalar(value)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("annotations:{lines}") }
}

fn common(installation: &Installation) -> Fillings {
    Fillings::default().with("namespace", scalar(&installation.namespace)).with("labels", LABELS)
}

// ---- RBAC

/// Renders roles and bindings of all accounts.
fn all_roles(installation: &Installation) -> Vec<String> {
    let process = permissions::of_process(&installation.manager, &installation.build_inputs);
    let mut objects = account_roles(("bowline", ACCOUNT, &installation.namespace), &process);
    if installation.build_inputs.own_accounts {
        for (client, missing) in permissions::missing_from_bootstrap_roles(&installation.manager) {
            objects.extend(account_roles((&format!("bowline:{client}"), client, SYSTEM), &missing));
        }
    }
    objects
}

fn account_roles((name, account, namespace): (&str, &str, &str), permissions: &[Permission]) -> Vec<String> {
    let fillings = Fillings::default()
        .with("name", scalar(name))
        .with("labels", LABELS)
        .with("account", scalar(account))
        .with("account_namespace", scalar(namespace));
    roles(permissions).iter().map(|role| render_role(role, fillings.clone())).collect()
}

fn render_role(role: &Role, fillings: Fillings) -> String {
    let rules: Vec<String> = role.rules.iter().map(rule).collect();
    let fillings = match &role.namespace {
        None => fillings.with("kind", "ClusterRole"),
        Some(namespace) => {
            fillings.with("kind", "Role").with("in_namespace", format!("namespace: {}", scalar(namespace)))
        }
    };
    fillings.with("rules", rules.join("\n")).fill(include_str!("templates/role.yaml"))
}

/// Renders a rule below its reasons.
pub(super) fn rule(rule: &Rule) -> String {
    let list = |texts: &[String]| format!("[{}]", texts.iter().map(|text| scalar(text)).collect::<Vec<_>>().join(", "));
    let mut lines: Vec<String> = rule.reasons.iter().map(|reason| format!("# {reason}")).collect();
    lines.push(format!("- apiGroups: {}", list(&rule.api_groups)));
    lines.push(format!("  resources: {}", list(&rule.resources)));
    if !rule.resource_names.is_empty() {
        lines.push(format!("  resourceNames: {}", list(&rule.resource_names)));
    }
    lines.push(format!("  verbs: {}", list(&rule.verbs)));
    lines.join("\n")
}

/// Renders the account of the console and the role of its users, if the manager serves its document.
fn console(installation: &Installation) -> Option<String> {
    installation.serving?;
    let lease = installation.build_inputs.leases.first().cloned().unwrap_or_default();
    let (namespace, name) = (scalar(&installation.namespace), lease.name);
    Some(console_objects(&Fillings::default().with("namespace", namespace), (&lease.namespace, &name)))
}

/// Renders the objects of the console. `lease` is the namespace and name of the leader's Lease.
pub(super) fn console_objects(fillings: &Fillings, lease: (&str, &str)) -> String {
    let permissions = permissions::of_console_user(lease, "", access::SERVICE_ACCOUNT);
    // A ClusterRole that is bound in a namespace: it has no namespaces itself.
    let rules = roles(&permissions).into_iter().flat_map(|role| role.rules);
    let fillings = fillings
        .clone()
        .with("labels", LABELS)
        .with("account", access::SERVICE_ACCOUNT)
        .with("role", access::USER_ROLE)
        .with("path", access::PATH)
        .with("rules", rules.map(|one| rule(&one)).collect::<Vec<_>>().join("\n"));
    fillings.fill(include_str!("templates/console.yaml"))
}

// ---- workload

fn workload(installation: &Installation, fillings: &Fillings) -> String {
    let args: Vec<String> = installation.flags.iter().map(|flag| format!("- {}", scalar(&escaped(flag)))).collect();
    let fillings = fillings
        .clone()
        .with("image", scalar(&installation.image))
        .with("args", args.join("\n"))
        .with("pull_secrets", pull_secrets(&installation.pull_secrets))
        .with("nodes", selector(&installation.node_selector))
        .with("environment", environment::render(installation))
        .with("serving", serving(installation))
        .with("resources", include_str!("templates/resources.yaml"));
    let fillings = fillings
        .with("mounts", listed("volumeMounts:", &installation.secrets, mount))
        .with("volumes", listed("volumes:", &installation.secrets, volume));
    let fillings = match installation.workload {
        Workload::DaemonSet => {
            fillings.with("kind", "DaemonSet").with("rollout", include_str!("templates/daemonset.yaml"))
        }
        Workload::Deployment { replicas } => fillings
            .with("kind", "Deployment")
            .with("scale", format!("replicas: {replicas}"))
            .with("rollout", rollout(installation))
            .with("affinity", include_str!("templates/affinity.yaml")),
    };
    fillings.fill(include_str!("templates/workload.yaml"))
}

/// Escapes `$`: kubelets expand `$(NAME)`, and `$$` to `$`.
fn escaped(flag: &str) -> String {
    flag.replace('$', "$$")
}

/// Rollout strategy: without leader election, the old Pod must end before a new one starts.
fn rollout(installation: &Installation) -> &'static str {
    match installation.build_inputs.leases.is_empty() {
        true => include_str!("templates/recreate.yaml"),
        false => include_str!("templates/deployment.yaml"),
    }
}

fn pull_secrets(names: &[String]) -> String {
    let names: String = names.iter().map(|name| format!("\n  - name: {}", scalar(name))).collect();
    if names.is_empty() { names } else { format!("imagePullSecrets:{names}") }
}

/// Renders a list of Secrets; empty without Secrets.
fn listed(key: &str, secrets: &[Secret], item: impl Fn(&Secret) -> String) -> String {
    let items: String = secrets.iter().map(|secret| format!("\n{}", item(secret))).collect();
    if items.is_empty() { items } else { format!("{key}{items}") }
}

fn mount(secret: &Secret) -> String {
    format!("  - name: {}\n    mountPath: {}\n    readOnly: true", volume_name(secret), secret.folder)
}

/// Renders the volume, readable by the Pod's fsGroup only. 288 is mode 0440; YAML parsers disagree on octal numbers.
fn volume(secret: &Secret) -> String {
    let (name, secret_name) = (volume_name(secret), secret.name);
    format!("  - name: {name}\n    secret:\n      secretName: {secret_name}\n      defaultMode: 288")
}

fn volume_name(secret: &Secret) -> &str {
    if secret.name == "bowline" { "config" } else { secret.name }
}

fn selector((key, value): &(String, String)) -> String {
    format!("{}: {}", scalar(key), scalar(value))
}

fn serving(installation: &Installation) -> String {
    let Some(serving) = installation.serving else { return String::new() };
    let host = serving.address.map(|address| format!("host: {}", scalar(&address.to_string())));
    let fillings = Fillings::default().with("port", serving.port.to_string());
    fillings.with("host", host.unwrap_or_default()).fill(include_str!("templates/serving.yaml"))
}
