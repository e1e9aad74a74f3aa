//! Kubernetes permissions of the whole program: controllers, leader election, HTTPS server, Secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_cloud::{CloudProvider, SecretRef};
use bowline_console::access;
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::{Permissions, node, node_ipam, node_lifecycle, provider_loops, route, secrets, service};
use bowline_kube::{
    Cluster, LeaseOptions, Notes, Permission, Scope, WATCH_NODES, WATCH_SERVICES, account_permissions,
    secret_permission,
};
use bowline_settings::{Election, Settings};

/// Namespace of the controllers' service accounts and of the API server's authentication ConfigMap.
pub(crate) const SYSTEM: &str = "kube-system";

/// Authentication of bearer tokens. Declared here because `bowline-serving` does not depend on [`Permission`].
pub(crate) const REVIEW_TOKENS: Permission = Permission {
    group: "authentication.k8s.io",
    resource: "tokenreviews",
    verbs: &["create"],
    scope: Scope::Cluster,
    why: "authenticate clients of metrics and status endpoints",
    without: Some("requests with a bearer token are rejected; probes send none and work"),
};

/// Authorization of requests, for `bowline-serving`.
pub(crate) const REVIEW_ACCESS: Permission = Permission {
    group: "authorization.k8s.io",
    resource: "subjectaccessreviews",
    verbs: &["create"],
    scope: Scope::Cluster,
    why: "authorize clients of metrics and status endpoints",
    without: Some("only system:masters can read metrics and status; probes work"),
};

/// CAs of client certificates and of front proxies, for `bowline-serving`.
pub(crate) const READ_AUTHORITIES: Permission = Permission {
    group: "",
    resource: "configmaps",
    verbs: &["get", "list", "watch"],
    scope: Scope::Named(Cow::Borrowed(SYSTEM), Cow::Borrowed("extension-apiserver-authentication")),
    why: "read the CAs that sign client certificates",
    without: None,
};

/// Features besides the controllers that need permissions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BuildInputs {
    /// Leases of leader election.
    pub(crate) leases: Vec<LeaseOptions>,
    /// Permissions of the HTTPS server.
    pub(crate) serving: Vec<Permission>,
    /// Secrets that providers need.
    pub(crate) secrets: Vec<SecretRef>,
    /// Each controller uses its own service account.
    pub(crate) own_accounts: bool,
}

impl BuildInputs {
    /// Returns the features of a manager with these settings and providers.
    pub(crate) fn of(settings: &Settings, providers: &[Arc<dyn CloudProvider>]) -> BuildInputs {
        BuildInputs {
            leases: settings.election.iter().flat_map(leases).collect(),
            serving: if settings.serving.https.is_some() { serving(settings) } else { Vec::new() },
            secrets: providers.iter().flat_map(|provider| provider.secrets()).collect(),
            own_accounts: settings.own_credentials,
        }
    }
}

/// Permissions of the HTTPS server that the account of the process needs; a separate kubeconfig has its own account.
fn serving(settings: &Settings) -> Vec<Permission> {
    let (authentication, authorization) = (&settings.serving.authentication, &settings.serving.authorization);
    let is_ours =
        |kubeconfig: &Option<PathBuf>| kubeconfig.is_none() || *kubeconfig == settings.reach.client.kubeconfig;
    let has_files = authentication.client_ca_file.is_some() && authentication.request_header.client_ca_file.is_some();
    let looks_up = !authentication.skip_lookup && !has_files;
    let all = [
        (is_ours(&authentication.kubeconfig), REVIEW_TOKENS),
        (is_ours(&authorization.kubeconfig), REVIEW_ACCESS),
        (is_ours(&authentication.kubeconfig) && looks_up, READ_AUTHORITIES),
    ];
    all.into_iter().filter_map(|(is_needed, permission)| is_needed.then_some(permission)).collect()
}

/// Returns the lease of the leader and that of a leader migration.
fn leases(election: &Election) -> Vec<LeaseOptions> {
    let second = election.migration.as_ref().map(|migration| election.second_lease(migration));
    std::iter::once(election.lease.clone()).chain(second).collect()
}

/// Permissions of a user of `bowline console` and `bowline top`, who reaches a manager with this Lease (namespace and name), with Pods
/// in this namespace and this service account of the console.
pub(crate) fn of_console_user(lease: (&str, &str), namespace: &str, account: &str) -> Vec<Permission> {
    let owned = |text: &str| Cow::Owned(text.to_owned());
    let in_namespace =
        |resource, verbs, scope, why| Permission { group: "", resource, verbs, scope, why, without: None };
    vec![
        Permission {
            group: "coordination.k8s.io",
            resource: "leases",
            verbs: &["get"],
            scope: Scope::Named(owned(lease.0), owned(lease.1)),
            why: "find the leader",
            without: None,
        },
        in_namespace("pods", &["list"], Scope::Namespace(owned(namespace)), "find the Pod of the leader"),
        in_namespace(
            "pods/proxy",
            &["get"],
            Scope::Namespace(owned(namespace)),
            "reach the Pod through the API server",
        ),
        in_namespace(
            "serviceaccounts/token",
            &["create"],
            Scope::Named(owned(namespace), owned(account)),
            "authenticate to the manager with a token that only the console's path accepts",
        ),
    ]
}

/// Permissions of the service account of the process.
pub(crate) fn of_process(manager: &ManagerOptions, inputs: &BuildInputs) -> Vec<Permission> {
    let controllers = Permissions::of(manager);
    let mut permissions = match inputs.own_accounts {
        true => controllers.process.clone(),
        false => controllers.of_one(),
    };
    if inputs.own_accounts {
        permissions.extend(account_permissions(&controllers.controllers.keys().copied().collect::<Vec<_>>()));
    }
    permissions.extend(inputs.serving.iter().cloned());
    permissions.extend(secrets::permissions(inputs.secrets.iter().cloned()));
    permissions.extend(inputs.leases.iter().flat_map(LeaseOptions::permissions));
    let cluster_wide: Vec<Permission> =
        permissions.iter().filter(|permission| permission.scope == Scope::Cluster).cloned().collect();
    permissions.retain(|permission| {
        permission.scope == Scope::Cluster || !cluster_wide.iter().any(|wide| includes(wide, permission))
    });
    permissions
}

/// Whether a cluster-wide permission includes a narrower one.
fn includes(wide: &Permission, permission: &Permission) -> bool {
    let same = (wide.group, wide.resource) == (permission.group, permission.resource);
    same && permission.verbs.iter().all(|verb| wide.verbs.contains(verb))
}

/// Permissions of all accounts; `None` is the account of the process. Each permission is listed once, as required if any use of it
/// is.
pub(crate) fn of_all_accounts(
    manager: &ManagerOptions,
    inputs: &BuildInputs,
) -> Vec<(Option<&'static str>, Permission)> {
    let process = of_process(manager, inputs).into_iter().map(|permission| (None, permission));
    let controllers = if inputs.own_accounts { Permissions::of(manager).controllers } else { BTreeMap::new() };
    let of_controllers = controllers
        .into_iter()
        .flat_map(|(client, permissions)| permissions.into_iter().map(move |permission| (Some(client), permission)));
    let mut once: Vec<(Option<&'static str>, Permission)> = Vec::new();
    for needed in process.chain(of_controllers) {
        match once.iter_mut().find(|known| is_same(known, &needed)) {
            // Optional for one use, required for another.
            Some(known) if needed.1.without.is_none() => *known = needed,
            Some(_) => {}
            None => once.push(needed),
        }
    }
    once
}

/// Compares permissions without their reasons.
fn is_same((a_account, a): &(Option<&str>, Permission), (b_account, b): &(Option<&str>, Permission)) -> bool {
    (a_account, a.group, a.resource, a.verbs, &a.scope) == (b_account, b.group, b.resource, b.verbs, &b.scope)
}

/// A resource and its granted verbs.
type Granted = (&'static str, &'static [&'static str]);

/// Permissions that the API server's bootstrap roles grant to the controllers' service accounts.
// upstream: the rules of the roles system:controller:NAME that these controllers use.
const BOOTSTRAPPED: [(&str, &[Granted]); 3] = [
    (
        "node-controller",
        &[
            ("nodes", &["get", "list", "watch", "update", "delete", "patch"]),
            ("nodes/status", &["patch", "update"]),
            ("events", &["create", "patch", "update"]),
        ],
    ),
    (
        "route-controller",
        &[("nodes", &["list", "watch"]), ("nodes/status", &["patch"]), ("events", &["create", "patch", "update"])],
    ),
    (
        "service-controller",
        &[
            ("services", &["get", "list", "watch"]),
            ("services/status", &["patch", "update"]),
            ("nodes", &["list", "watch"]),
            ("events", &["create", "patch", "update"]),
        ],
    ),
];

/// Permissions that the controllers' service accounts need in addition to the bootstrap roles: currently none.
pub(crate) fn missing_from_bootstrap_roles(manager: &ManagerOptions) -> BTreeMap<&'static str, Vec<Permission>> {
    let mut missing = Permissions::of(manager).controllers;
    for (client, permissions) in &mut missing {
        permissions.retain(|permission| !is_bootstrapped(client, permission));
    }
    missing.retain(|_, permissions| !permissions.is_empty());
    missing
}

fn is_bootstrapped(client: &str, permission: &Permission) -> bool {
    let granted = BOOTSTRAPPED.iter().filter(|(account, _)| *account == client).flat_map(|(_, granted)| *granted);
    let of_resource =
        |(resource, _): &&(&str, &[&str])| permission.group.is_empty() && *resource == permission.resource;
    let mut verbs = granted.filter(of_resource).map(|(_, verbs)| verbs);
    verbs.any(|verbs| permission.verbs.iter().all(|verb| verbs.contains(verb)))
}

// ---- reference page

const HEAD: &str = "\
# RBAC permissions

<!-- Generated by `cargo xtask generate` from the declarations next to the code; change those instead. -->

Permissions that the manager needs, by the controller or flag that needs them. `bowline manifests` grants exactly the permissions of \
the enabled controllers and flags. A permission with an entry in the last column is optional: `bowline check` warns if it is missing. \
Without `--use-service-account-credentials`, the service account of the process needs all of them; with it, a controller's \
permissions belong to the service account in the second column, which has them by the API server's bootstrap roles. \
Providers need no Kubernetes permissions, except to read the Secrets that their configuration references, each by its name. The \
permissions they need in the cloud are in their own documentation.

";

const TABLE_HEAD: &str = "\
| used by | account | API group | resource | verbs | scope | purpose | without it |
|---|---|---|---|---|---|---|---|
";

const CONSOLE_HEAD: &str = "
## Users of the console

The manager needs no permission for [`bowline console` and `bowline top`](../guides/console.md). Their user needs these, which the \
ClusterRole `@role@` of the manifests grants where an administrator binds it; the scopes are the defaults. The service account \
`@account@` may `get` the path `@path@` of managers, and nothing else.

";

/// Returns the reference page of all permissions.
pub(crate) fn reference() -> String {
    let process = |part: &'static str, permissions: Vec<Permission>| (part, "", permissions);
    let ipam = [node_ipam::PERMISSIONS, node_ipam::PERMISSIONS_WITH_CLOUD].concat();
    let parts = [
        process("watches", vec![WATCH_NODES, WATCH_SERVICES]),
        (node::NAME, node::CLIENT, node::PERMISSIONS.to_vec()),
        (node_lifecycle::NAME, node_lifecycle::CLIENT, node_lifecycle::PERMISSIONS.to_vec()),
        (service::NAME, service::CLIENT, service::PERMISSIONS.to_vec()),
        (route::NAME, route::CLIENT, route::PERMISSIONS.to_vec()),
        (node_ipam::NAME, node_ipam::CLIENT, ipam),
        (provider_loops::NAME, provider_loops::CLIENT, provider_loops::PERMISSIONS.to_vec()),
        process(node_lifecycle::NAME, Notes::PERMISSIONS.to_vec()),
        process(route::NAME, vec![Cluster::READ_UID]),
        process("`--leader-elect`", LeaseOptions::default().permissions()),
        process("`--secure-port`", vec![REVIEW_TOKENS, REVIEW_ACCESS, READ_AUTHORITIES]),
        process("a cloud configuration with Secrets", vec![secret_permission("NAMESPACE", "NAME")]),
        process("`--use-service-account-credentials`", account_permissions(&BOOTSTRAPPED.map(|(client, _)| client))),
    ];
    HEAD.to_owned() + TABLE_HEAD + &rows(&parts) + &console_reference()
}

/// A part of the program, its account, and their permissions.
type Part = (&'static str, &'static str, Vec<Permission>);

fn rows(parts: &[Part]) -> String {
    let rows = parts
        .iter()
        .flat_map(|(part, account, permissions)| permissions.iter().map(|permission| row(part, account, permission)));
    rows.collect()
}

/// Returns the section on users of the console.
fn console_reference() -> String {
    let lease = LeaseOptions::default();
    let permissions = of_console_user((&lease.namespace, &lease.name), SYSTEM, access::SERVICE_ACCOUNT);
    let rows = rows(&[("`bowline console`, `bowline top`", "the user", permissions)]);
    CONSOLE_HEAD
        .replace("@role@", access::USER_ROLE)
        .replace("@account@", access::SERVICE_ACCOUNT)
        .replace("@path@", access::PATH)
        + TABLE_HEAD
        + &rows
}

fn row(part: &str, account: &str, permission: &Permission) -> String {
    let scope = match &permission.scope {
        Scope::Cluster => "cluster".to_owned(),
        Scope::Namespace(namespace) => format!("`{namespace}`"),
        Scope::Named(namespace, name) => format!("`{name}` in `{namespace}`"),
    };
    let group = if permission.group.is_empty() { "core" } else { permission.group };
    let (verbs, resource, why) = (permission.verbs.join(", "), permission.resource, permission.why);
    let without = permission.without.unwrap_or_default();
    format!("| {part} | {account} | {group} | `{resource}` | {verbs} | {scope} | {why} | {without} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cl4_with_separate_accounts_the_process_has_only_its_own_permissions() {
        let inputs = BuildInputs { own_accounts: true, ..BuildInputs::default() };
        let permissions = of_process(&ManagerOptions::default(), &inputs);
        let writes =
            |permission: &Permission| permission.resource.starts_with("nodes") && permission.verbs.contains(&"patch");
        assert!(!permissions.iter().any(writes), "{permissions:?}");
        assert!(permissions.iter().any(|permission| permission.resource == "serviceaccounts/token"), "{permissions:?}");
        let missing = missing_from_bootstrap_roles(&ManagerOptions::default());
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_cluster_wide_permission_is_not_repeated_for_a_namespace() {
        let events = |own_accounts| {
            let inputs = BuildInputs { own_accounts, leases: vec![LeaseOptions::default()], ..BuildInputs::default() };
            let permissions = of_process(&ManagerOptions::default(), &inputs).into_iter();
            let of_events = permissions
                .filter(|permission| permission.resource == "events" && permission.verbs.contains(&"create"));
            of_events.map(|permission| permission.scope == Scope::Cluster).collect::<Vec<_>>()
        };
        assert!(events(false).into_iter().all(|is_cluster_wide| is_cluster_wide));
        assert_eq!(events(true), [false], "the process itself records Events on its lease only");
    }

    #[test]
    fn the_process_reads_secrets_by_name_with_and_without_separate_accounts() {
        let secret = SecretRef { namespace: "vault".to_owned(), name: "acme".to_owned() };
        for own_accounts in [false, true] {
            let inputs = BuildInputs { own_accounts, secrets: vec![secret.clone()], ..BuildInputs::default() };
            let needed = of_all_accounts(&ManagerOptions::default(), &inputs);
            let of_secrets: Vec<_> =
                needed.into_iter().filter(|(_, permission)| permission.resource == "secrets").collect();
            assert_eq!(of_secrets, [(None, secret_permission("vault", "acme"))]);
        }
    }

    #[test]
    fn a_disabled_controller_needs_no_permissions() {
        let manager = ManagerOptions { node_lifecycle: None, ..ManagerOptions::default() };
        let permissions = of_process(&manager, &BuildInputs::default());
        let core = |permission: &Permission| permission.group.is_empty() && permission.scope == Scope::Cluster;
        assert!(permissions.iter().all(core), "{permissions:?}");
    }
}
