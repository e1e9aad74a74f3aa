//! What the whole program asks of the API server: its controllers, and what stands around them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bowline_cloud::{CloudProvider, SecretRef};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::{Permissions, node, node_ipam, node_lifecycle, provider_loops, route, secrets, service};
use bowline_kube::{
    Cluster, LeaseOptions, Notes, Permission, Scope, WATCH_NODES, WATCH_SERVICES, account_rights, secret_permission,
};
use bowline_settings::{Election, Settings};

/// Where per-controller service accounts live, and where API servers keep what they say of themselves.
pub(crate) const SYSTEM: &str = "kube-system";

/// For `bowline-serving`, which does not know how rights are declared: who a bearer token stands for.
pub(crate) const REVIEW_TOKENS: Permission = Permission {
    group: "authentication.k8s.io",
    resource: "tokenreviews",
    verbs: &["create"],
    scope: Scope::Cluster,
    why: "to ask who it is that wants to see metrics or status",
    without: Some("who shows a token is refused; probes show none, and are answered"),
};

/// For `bowline-serving`: whether they may.
pub(crate) const REVIEW_ACCESS: Permission = Permission {
    group: "authorization.k8s.io",
    resource: "subjectaccessreviews",
    verbs: &["create"],
    scope: Scope::Cluster,
    why: "to ask whether they may",
    without: Some("metrics and status are for system:masters alone; probes are answered"),
};

/// For `bowline-serving`: which authorities sign the certificates of clients and of front proxies.
pub(crate) const READ_AUTHORITIES: Permission = Permission {
    group: "",
    resource: "configmaps",
    verbs: &["get", "list", "watch"],
    scope: Scope::Named(Cow::Borrowed(SYSTEM), Cow::Borrowed("extension-apiserver-authentication")),
    why: "to know who signs the certificates of those who ask",
    without: None,
};

/// What is switched on beside the controllers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// The Leases that are held.
    pub(crate) leases: Vec<LeaseOptions>,
    /// What the HTTPS server asks the API server about its clients.
    pub(crate) serving: Vec<Permission>,
    /// Secrets that providers need.
    pub(crate) secrets: Vec<SecretRef>,
    /// Each controller has a service account of its own.
    pub(crate) own_accounts: bool,
}

impl Surroundings {
    /// Those of a manager with these settings and providers.
    pub(crate) fn of(settings: &Settings, providers: &[Arc<dyn CloudProvider>]) -> Surroundings {
        Surroundings {
            leases: settings.election.iter().flat_map(leases).collect(),
            serving: if settings.serving.https.is_some() { serving(settings) } else { Vec::new() },
            secrets: providers.iter().flat_map(|provider| provider.secrets()).collect(),
            own_accounts: settings.own_credentials,
        }
    }
}

/// As far as it is asked under the name of the process: a kubeconfig of its own has rights of its own.
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
    all.into_iter().filter_map(|(is_asked, permission)| is_asked.then_some(permission)).collect()
}

/// The one that leads, and that of a migration.
fn leases(election: &Election) -> Vec<LeaseOptions> {
    let second = election.migration.as_ref().map(|migration| election.second_lease(migration));
    std::iter::once(election.lease.clone()).chain(second).collect()
}

/// What the account of the process needs.
pub(crate) fn of_process(manager: &ManagerOptions, surroundings: &Surroundings) -> Vec<Permission> {
    let controllers = Permissions::of(manager);
    let mut permissions = match surroundings.own_accounts {
        true => controllers.process.clone(),
        false => controllers.of_one(),
    };
    if surroundings.own_accounts {
        permissions.extend(account_rights(&controllers.controllers.keys().copied().collect::<Vec<_>>()));
    }
    permissions.extend(surroundings.serving.iter().cloned());
    permissions.extend(secrets::permissions(surroundings.secrets.iter().cloned()));
    permissions.extend(surroundings.leases.iter().flat_map(LeaseOptions::permissions));
    let everywhere: Vec<Permission> =
        permissions.iter().filter(|permission| permission.scope == Scope::Cluster).cloned().collect();
    permissions.retain(|permission| {
        permission.scope == Scope::Cluster || !everywhere.iter().any(|wide| includes(wide, permission))
    });
    permissions
}

/// Who may do it everywhere needs no right to do it in one place.
fn includes(wide: &Permission, permission: &Permission) -> bool {
    let same = (wide.group, wide.resource) == (permission.group, permission.resource);
    same && permission.verbs.iter().all(|verb| wide.verbs.contains(verb))
}

/// What everybody needs, by who asks: `None` is the process. Each right once, whatever it is for, and as needed as it is anywhere.
pub(crate) fn of_everybody(
    manager: &ManagerOptions,
    surroundings: &Surroundings,
) -> Vec<(Option<&'static str>, Permission)> {
    let process = of_process(manager, surroundings).into_iter().map(|permission| (None, permission));
    let controllers = if surroundings.own_accounts { Permissions::of(manager).controllers } else { BTreeMap::new() };
    let of_controllers = controllers
        .into_iter()
        .flat_map(|(client, permissions)| permissions.into_iter().map(move |permission| (Some(client), permission)));
    let mut once: Vec<(Option<&'static str>, Permission)> = Vec::new();
    for asked in process.chain(of_controllers) {
        match once.iter_mut().find(|known| is_same(known, &asked)) {
            // What one part can do without, another one cannot.
            Some(known) if asked.1.without.is_none() => *known = asked,
            Some(_) => {}
            None => once.push(asked),
        }
    }
    once
}

/// What for does not count.
fn is_same((a_who, a): &(Option<&str>, Permission), (b_who, b): &(Option<&str>, Permission)) -> bool {
    (a_who, a.group, a.resource, a.verbs, &a.scope) == (b_who, b.group, b.resource, b.verbs, &b.scope)
}

/// A resource, and what may be done with it.
type Granted = (&'static str, &'static [&'static str]);

/// What API servers grant to the accounts of these controllers by themselves, with the roles that they make when they start.
// upstream: the roles system:controller:NAME, as far as they matter here.
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

/// What the accounts of controllers need beyond what API servers grant them: nothing today.
pub(crate) fn lacking(manager: &ManagerOptions) -> BTreeMap<&'static str, Vec<Permission>> {
    let mut lacking = Permissions::of(manager).controllers;
    for (client, permissions) in &mut lacking {
        permissions.retain(|permission| !is_bootstrapped(client, permission));
    }
    lacking.retain(|_, permissions| !permissions.is_empty());
    lacking
}

fn is_bootstrapped(client: &str, permission: &Permission) -> bool {
    let granted = BOOTSTRAPPED.iter().filter(|(account, _)| *account == client).flat_map(|(_, granted)| *granted);
    let of_resource =
        |(resource, _): &&(&str, &[&str])| permission.group.is_empty() && *resource == permission.resource;
    let mut verbs = granted.filter(of_resource).map(|(_, verbs)| verbs);
    verbs.any(|verbs| permission.verbs.iter().all(|verb| verbs.contains(verb)))
}

// ---- the page

const HEAD: &str = "\
# Rights

<!-- Made by `cargo xtask generate` from the declarations beside the code; change those instead. -->

What the manager asks of the API server, by what has to be switched on for it. `bowline manifests` grants exactly the rights \
of what is switched on; where the last column says something, the manager does without that right, and `bowline check` warns. \
Without `--use-service-account-credentials` all of them belong to the service account of the process; \
with it, those of a controller belong to the account that is named beside it, which API servers grant them to by themselves. \
The providers know no Kubernetes and need no rights in it, except that the configuration of some names Secrets, each of which is \
read by its name; what they need in their cloud is in their own documentation.

| who | account | API group | resource | verbs | where | why | without it |
|---|---|---|---|---|---|---|---|
";

/// The reference page of all rights.
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
        process("a cloud that names Secrets", vec![secret_permission("NAMESPACE", "NAME")]),
        process("`--use-service-account-credentials`", account_rights(&BOOTSTRAPPED.map(|(client, _)| client))),
    ];
    let rows = parts
        .iter()
        .flat_map(|(part, account, permissions)| permissions.iter().map(|permission| row(part, account, permission)));
    HEAD.to_owned() + &rows.collect::<String>()
}

fn row(part: &str, account: &str, permission: &Permission) -> String {
    let place = match &permission.scope {
        Scope::Cluster => "everywhere".to_owned(),
        Scope::Namespace(namespace) => format!("`{namespace}`"),
        Scope::Named(namespace, name) => format!("`{name}` in `{namespace}`"),
    };
    let group = if permission.group.is_empty() { "core" } else { permission.group };
    let (verbs, resource, why) = (permission.verbs.join(", "), permission.resource, permission.why);
    let without = permission.without.unwrap_or_default();
    format!("| {part} | {account} | {group} | `{resource}` | {verbs} | {place} | {why} | {without} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cl4_with_accounts_of_their_own_the_process_keeps_only_what_it_does_itself() {
        let surroundings = Surroundings { own_accounts: true, ..Surroundings::default() };
        let permissions = of_process(&ManagerOptions::default(), &surroundings);
        let writes =
            |permission: &Permission| permission.resource.starts_with("nodes") && permission.verbs.contains(&"patch");
        assert!(!permissions.iter().any(writes), "{permissions:?}");
        assert!(permissions.iter().any(|permission| permission.resource == "serviceaccounts/token"), "{permissions:?}");
        assert!(lacking(&ManagerOptions::default()).is_empty(), "{:?}", lacking(&ManagerOptions::default()));
    }

    #[test]
    fn what_is_allowed_everywhere_is_not_asked_for_in_one_place_once_more() {
        let events = |own_accounts| {
            let surroundings =
                Surroundings { own_accounts, leases: vec![LeaseOptions::default()], ..Surroundings::default() };
            let permissions = of_process(&ManagerOptions::default(), &surroundings).into_iter();
            let of_events = permissions
                .filter(|permission| permission.resource == "events" && permission.verbs.contains(&"create"));
            of_events.map(|permission| permission.scope == Scope::Cluster).collect::<Vec<_>>()
        };
        assert!(events(false).into_iter().all(|is_everywhere| is_everywhere));
        assert_eq!(events(true), [false], "the process itself tells only of its lease");
    }

    #[test]
    fn a_secret_is_asked_for_by_its_name_with_accounts_of_their_own_too() {
        let secret = SecretRef { namespace: "vault".to_owned(), name: "acme".to_owned() };
        for own_accounts in [false, true] {
            let surroundings = Surroundings { own_accounts, secrets: vec![secret.clone()], ..Surroundings::default() };
            let asked = of_everybody(&ManagerOptions::default(), &surroundings);
            let of_secrets: Vec<_> =
                asked.into_iter().filter(|(_, permission)| permission.resource == "secrets").collect();
            assert_eq!(of_secrets, [(None, secret_permission("vault", "acme"))]);
        }
    }

    #[test]
    fn what_is_not_switched_on_is_not_asked_for() {
        let manager = ManagerOptions { node_lifecycle: None, ..ManagerOptions::default() };
        let permissions = of_process(&manager, &Surroundings::default());
        let core = |permission: &Permission| permission.group.is_empty() && permission.scope == Scope::Cluster;
        assert!(permissions.iter().all(core), "{permissions:?}");
    }
}
