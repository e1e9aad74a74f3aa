//! Helm chart, rendered from the same templates, with Helm expressions in place of values.
//!
//! Only `if`, `else`, `end`, `range`, `not`, `or`, `eq`, `index`, `print`, `lower`, `quote` and `toJson` are used, so that the templates
//! stay readable.

use bowline_cloud::Registry;
use bowline_controllers::{node, node_ipam, node_lifecycle, provider_loops, route, service};
use bowline_kube::{
    Cluster, EventSink, LeaseOptions, Notes, Permission, WATCH_NODES, WATCH_SERVICES, account_permissions, roles,
    secret_permission,
};

use super::environment;
use super::fill::{Fillings, scalar};
use super::objects::{ACCOUNT, DISRUPTION_BUDGET, LABELS, console_objects, rule};
use super::readme;
use crate::permissions::{self, SYSTEM};

/// A controller, and the chart value that enables it.
struct Switch {
    value: &'static str,
    name: &'static str,
    client: &'static str,
    permissions: Vec<Permission>,
}

fn switches() -> [Switch; 6] {
    // All controllers create Events, so the permission does not depend on a value.
    let without_events = |permissions: &[Permission]| {
        permissions.iter().filter(|permission| **permission != EventSink::PERMISSION).cloned().collect()
    };
    let switch = |value, name, client, permissions: &[Permission]| Switch {
        value,
        name,
        client,
        permissions: without_events(permissions),
    };
    let ipam = [node_ipam::PERMISSIONS, node_ipam::PERMISSIONS_WITH_CLOUD].concat();
    [
        switch("node", node::NAME, node::CLIENT, node::PERMISSIONS),
        switch("nodeLifecycle", node_lifecycle::NAME, node_lifecycle::CLIENT, node_lifecycle::PERMISSIONS),
        switch("service", service::NAME, service::CLIENT, service::PERMISSIONS),
        switch("route", route::NAME, route::CLIENT, route::PERMISSIONS),
        switch("nodeIpam", node_ipam::NAME, node_ipam::CLIENT, &ipam),
        switch("providerLoops", provider_loops::NAME, provider_loops::CLIENT, provider_loops::PERMISSIONS),
    ]
}

/// Helm condition for a Deployment.
const IS_DEPLOYMENT: &str = r#"eq .Values.kind "Deployment""#;

/// Returns the files of the chart by path.
pub(super) fn files(registry: &Registry) -> Vec<(&'static str, String)> {
    let fillings = Fillings::default().with("namespace", "{{ .Release.Namespace }}").with("labels", LABELS);
    let account = fillings.clone().with("annotations", include_str!("templates/chart/annotations.yaml"));
    let config = fillings.clone().with("secret", "bowline");
    let config = config.with("files", "{{ quote .Values.cloudConfigKey }}: {{ quote .Values.cloudConfig }}");
    let config = config.fill(include_str!("templates/config.yaml"));
    let budget = fillings.fill(DISRUPTION_BUDGET);
    vec![
        ("Chart.yaml", chart()),
        ("README.md", readme(registry)),
        ("values.yaml", values(registry)),
        ("values.schema.json", schema(registry)),
        ("templates/NOTES.txt", notes()),
        ("templates/account.yaml", account.fill(include_str!("templates/account.yaml"))),
        ("templates/roles.yaml", [role(None, &cluster_rules()), role(Some(SYSTEM), &system_rules())].join("---\n")),
        ("templates/secrets.yaml", secrets()),
        ("templates/console.yaml", console(&fillings)),
        ("templates/config.yaml", when(".Values.cloudConfig", &config) + "\n"),
        ("templates/disruption_budget.yaml", when(IS_DEPLOYMENT, &budget) + "\n"),
        ("templates/workload.yaml", workload(&fillings)),
        ("templates/pod_monitor.yaml", pod_monitor(&fillings)),
        ("templates/prometheus_rule.yaml", prometheus_rule(&fillings)),
    ]
}

fn provider_names(registry: &Registry) -> Vec<&'static str> {
    registry.iter().map(|factory| factory.name).collect()
}

fn values(registry: &Registry) -> String {
    let fillings = Fillings::default().with("image", image()).with("providers", provider_names(registry).join(", "));
    let fillings = fillings.with("environment_secrets", environment::chart_value(registry));
    fillings.fill(include_str!("templates/chart/values.yaml"))
}

/// Renders the JSON schema that Helm checks values against.
fn schema(registry: &Registry) -> String {
    let names: Vec<_> = provider_names(registry).into_iter().map(|name| format!("{name:?}")).collect();
    let fillings = Fillings::default().with("provider_names", names.join(", "));
    fillings.with("owned_flags", owned_flags().join("|")).fill(include_str!("templates/chart/values.schema.json"))
}

/// Flags that values set. Those of clouds may be repeated, for several clouds.
fn owned_flags() -> Vec<&'static str> {
    let flags = include_str!("templates/chart/args.yaml").split("--").skip(1);
    let flags: Vec<_> = flags.filter_map(|text| text.split('=').next()).collect();
    let repeatable = ["cloud-provider", "cloud-config"];
    flags.into_iter().chain(["controllers"]).filter(|flag| !repeatable.contains(flag)).collect()
}

fn readme(registry: &Registry) -> String {
    let head = Fillings::default().with("version", env!("CARGO_PKG_VERSION"));
    head.fill(include_str!("templates/chart/README.head.md")) + &readme::table(&values(registry))
}

/// Renders what Helm prints after the installation.
fn notes() -> String {
    Fillings::default().with("image", image()).fill(include_str!("templates/chart/NOTES.txt"))
}

fn image() -> String {
    scalar(concat!("bowline:", env!("CARGO_PKG_VERSION")))
}

fn chart() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "apiVersion: v2\nname: bowline\ndescription: A cloud controller manager for Kubernetes\ntype: application\n\
         version: {version}\nappVersion: {version:?}\n"
    )
}

/// Wraps lines in a Helm `if`.
fn when(condition: &str, lines: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{}\n{{{{- end }}}}", lines.trim_end())
}

/// Wraps lines in a Helm `if` and `else`.
fn either(condition: &str, lines: &str, others: &str) -> String {
    let (lines, others) = (lines.trim_end(), others.trim_end());
    format!("{{{{- if {condition} }}}}\n{lines}\n{{{{- else }}}}\n{others}\n{{{{- end }}}}")
}

// ---- monitoring

fn pod_monitor(fillings: &Fillings) -> String {
    when(".Values.podMonitor.enabled", &fillings.fill(include_str!("templates/chart/pod_monitor.yaml"))) + "\n"
}

/// Renders the alerts of the repository, with Prometheus' own templates as literals of Helm's.
fn prometheus_rule(fillings: &Fillings) -> String {
    let alerts = include_str!("../../../../deploy/prometheus/alerts.yaml");
    let groups = alerts.find("groups:").map(|start| &alerts[start..]).unwrap_or_default();
    let groups = groups.replace("{{", "{{ `{{").replace("}}", "}}` }}");
    let rule = fillings.clone().with("groups", groups).fill(include_str!("templates/chart/prometheus_rule.yaml"));
    when(".Values.prometheusRule.enabled", &rule) + "\n"
}

// ---- RBAC

/// Renders rules. Rules of different conditions are not merged.
fn rules(permissions: &[Permission]) -> String {
    let rules = roles(permissions).into_iter().flat_map(|role| role.rules);
    rules.map(|one| rule(&one)).collect::<Vec<_>>().join("\n")
}

fn cluster_rules() -> String {
    let of_controllers =
        switches().map(|switch| when(&format!(".Values.controllers.{}", switch.value), &rules(&switch.permissions)));
    let lines = [
        rules(&[WATCH_NODES, permissions::REVIEW_TOKENS, permissions::REVIEW_ACCESS]),
        when("or .Values.controllers.service .Values.controllers.providerLoops", &rules(&[WATCH_SERVICES])),
        when(
            "not .Values.useServiceAccountCredentials",
            &[rules(&[EventSink::PERMISSION]), of_controllers.join("\n")].join("\n"),
        ),
    ];
    lines.join("\n")
}

fn system_rules() -> String {
    let mut clients: Vec<_> = switches().map(|switch| switch.client).to_vec();
    clients.sort_unstable();
    clients.dedup();
    let accounts = account_permissions(&clients);
    let lease = LeaseOptions { name: "{{ .Values.leaseName }}".to_owned(), ..LeaseOptions::default() };
    // With the permissions of all controllers, the process can already create Events in all namespaces.
    let (events, lease): (Vec<_>, Vec<_>) =
        lease.permissions().into_iter().partition(|permission| permission.resource == "events");
    let events = when(".Values.useServiceAccountCredentials", &rules(&events));
    let lines = [
        rules(&[permissions::READ_AUTHORITIES]),
        when(".Values.controllers.nodeLifecycle", &rules(Notes::PERMISSIONS)),
        when(".Values.controllers.route", &rules(&[Cluster::READ_UID])),
        when(".Values.leaderElection", &[rules(&lease), events].join("\n")),
        when(".Values.useServiceAccountCredentials", &rules(&accounts)),
    ];
    lines.join("\n")
}

/// Renders the account of the console and the role of its users.
fn console(fillings: &Fillings) -> String {
    let objects = console_objects(fillings, (SYSTEM, "{{ .Values.leaseName }}"));
    when(".Values.console.enabled", &objects) + "\n"
}

/// Renders a Role for each Secret, in its namespace.
fn secrets() -> String {
    let rules = rules(&[secret_permission("{{ .namespace }}", "{{ .name }}")]);
    let fillings = account_fillings("{{ $.Release.Namespace }}")
        .with("name", r#""bowline-secret-{{ .name }}""#)
        .with("kind", "Role")
        .with("in_namespace", "namespace: {{ quote .namespace }}")
        .with("rules", rules);
    let role = fillings.fill(include_str!("templates/role.yaml"));
    format!("{{{{- range .Values.secrets }}}}\n---\n{role}{{{{- end }}}}\n")
}

fn account_fillings(namespace: &str) -> Fillings {
    Fillings::default().with("labels", LABELS).with("account", ACCOUNT).with("account_namespace", namespace)
}

fn role(namespace: Option<&str>, rules: &str) -> String {
    let fillings = account_fillings("{{ .Release.Namespace }}")
        .with("name", "bowline")
        .with("kind", if namespace.is_some() { "Role" } else { "ClusterRole" })
        .with("in_namespace", namespace.map(|name| format!("namespace: {name}")).unwrap_or_default())
        .with("rules", rules);
    fillings.fill(include_str!("templates/role.yaml"))
}

// ---- workload

fn workload(fillings: &Fillings) -> String {
    let serving = Fillings::default().with("port", "{{ .Values.port }}").fill(include_str!("templates/serving.yaml"));
    let of_deployment = either(
        ".Values.leaderElection",
        include_str!("templates/deployment.yaml"),
        include_str!("templates/recreate.yaml"),
    );
    // Without leader election, several replicas would run at the same time.
    let replicas = either(".Values.leaderElection", "replicas: {{ .Values.replicas }}", "replicas: 1");
    let fillings = fillings
        .clone()
        .with("kind", "{{ .Values.kind }}")
        .with("scale", when(IS_DEPLOYMENT, &replicas))
        .with("rollout", either(IS_DEPLOYMENT, &of_deployment, include_str!("templates/daemonset.yaml")))
        .with("affinity", when(IS_DEPLOYMENT, include_str!("templates/affinity.yaml")))
        .with("nodes", include_str!("templates/chart/nodes.yaml"))
        .with("tolerations", include_str!("templates/chart/tolerations.yaml"))
        .with("pod_annotations", include_str!("templates/chart/pod_annotations.yaml"))
        .with("image", "{{ quote .Values.image }}")
        .with("args", args())
        .with("pull_secrets", include_str!("templates/chart/pull_secrets.yaml"))
        .with("environment", include_str!("templates/chart/environment.yaml"))
        .with("serving", serving)
        .with("resources", "resources: {{ toJson .Values.resources }}")
        .with("mounts", include_str!("templates/chart/mounts.yaml"))
        .with("volumes", include_str!("templates/chart/volumes.yaml"));
    fillings.fill(include_str!("templates/workload.yaml"))
}

fn args() -> String {
    // Disabled controllers are listed, too: an empty list would enable the default ones.
    let flag = |switch: Switch| {
        let (value, name) = (format!(".Values.controllers.{}", switch.value), switch.name);
        either(&value, &format!("- --controllers={name}"), &format!("- --controllers=-{name}"))
    };
    let controllers = switches().map(flag).join("\n");
    include_str!("templates/chart/args.yaml").replace("@controllers@", &controllers)
}
