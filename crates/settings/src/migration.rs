//! Leader migration: controllers that move from one manager to another run under a Lease that both managers share (MIG-1 to
//! MIG-7).

use std::path::Path;

use bowline_config::{ConfigError, ConfigErrors, ConfigFile};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::{node, node_ipam, node_lifecycle, provider_loops, route, service};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::LEASES;
use crate::controllers::{self, canonical_name};

/// Component name of this program.
const COMPONENT: &str = "cloud-controller-manager";
/// Component name for every manager.
const ANY: &str = "*";
/// Legacy controller names. Upstream no longer knows them, so its own default list matches no controller.
const FORMER_NAMES: [(&str, &str); 2] = [("route-controller", route::NAME), ("service-controller", service::NAME)];

/// Leader migration configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Name of the second Lease.
    pub lease: String,
    lock: String,
    leaders: Vec<Leader>,
}

/// A migrating controller, and the component that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leader {
    name: String,
    component: String,
}

/// The manager and Lease that a controller runs under (MIG-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// In this manager, under its own Lease only.
    Here,
    /// In this manager, under the shared Lease in addition.
    Migrating,
    /// In another manager.
    Elsewhere,
}

impl Default for Migration {
    /// MIG-2.
    fn default() -> Migration {
        let leader = |name: &str| Leader { name: name.to_owned(), component: ANY.to_owned() };
        Migration {
            lease: "cloud-provider-extraction-migration".to_owned(),
            lock: LEASES.to_owned(),
            leaders: ["route-controller", "service-controller", node_lifecycle::NAME].map(leader).into(),
        }
    }
}

impl Migration {
    /// Reads a `LeaderMigrationConfiguration` (MIG-1).
    pub(crate) fn read(path: &Path) -> Result<Migration, ConfigErrors> {
        Document::read(&ConfigFile::read(path)?)
    }

    /// Creates it from the fields of another document: name of the Lease, resource lock, and controllers with their components.
    pub(crate) fn of_field(
        lease: String,
        lock: Option<String>,
        leaders: impl Iterator<Item = [String; 2]>,
    ) -> Migration {
        let leaders = leaders.map(|[name, component]| Leader { name, component }).collect();
        Migration { lease, lock: lock.filter(|lock| !lock.is_empty()).unwrap_or_else(|| LEASES.to_owned()), leaders }
    }

    /// Converts it to JSON.
    pub(crate) fn field(&self) -> Value {
        let leader = |leader: &Leader| json!({ "name": leader.name, "component": leader.component });
        let leaders: Vec<_> = self.leaders.iter().map(leader).collect();
        json!({ "leaderName": self.lease, "resourceLock": self.lock, "controllerLeaders": leaders })
    }

    /// Checks that the second Lease can be acquired: some valid lock types are no longer supported (MIG-6).
    pub(crate) fn check(&self, main: &str, errors: &mut ConfigErrors) {
        if self.lease == main {
            let message = format!("leaderName {main:?} is the name of the manager's own Lease");
            errors.push(
                ConfigError::flag("leader-migration-config", message)
                    .hint("use another name, which both managers share"),
            );
        }
        if self.lock != LEASES {
            let message = format!("resource lock {:?} is no longer supported", self.lock);
            errors.push(ConfigError::flag("leader-migration-config", message).hint("set resourceLock: leases"));
        }
    }

    /// Disables the controllers that another manager runs, and returns a warning for each.
    pub(crate) fn restrict(&self, options: &mut ManagerOptions) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut runs_elsewhere = |name: &'static str| {
            let is_elsewhere = self.placement(name) == Placement::Elsewhere;
            if is_elsewhere {
                warnings.push(format!("{name:?} is run by another manager (--leader-migration-config)"));
            }
            is_elsewhere
        };
        options.node.take_if(|_| runs_elsewhere(node::NAME));
        options.node_lifecycle.take_if(|_| runs_elsewhere(node_lifecycle::NAME));
        options.service.take_if(|_| runs_elsewhere(service::NAME));
        options.node_ipam.take_if(|_| runs_elsewhere(node_ipam::NAME));
        options.route.take_if(|_| runs_elsewhere(route::NAME));
        options.provider_loops.take_if(|_| runs_elsewhere(provider_loops::NAME));
        warnings
    }

    /// Returns the controllers that need the second Lease.
    pub fn migrating(&self) -> Vec<String> {
        controllers::names().filter(|name| self.placement(name) == Placement::Migrating).map(str::to_owned).collect()
    }

    fn placement(&self, name: &str) -> Placement {
        // The last entry for a controller wins.
        match self.leaders.iter().rev().find(|leader| leader.controller() == name) {
            None => Placement::Here,
            Some(leader) if leader.component == ANY || leader.component == COMPONENT => Placement::Migrating,
            Some(_) => Placement::Elsewhere,
        }
    }
}

impl Leader {
    /// Canonical name of the controller (MIG-5).
    fn controller(&self) -> &str {
        let former = FORMER_NAMES.iter().find(|(former, _)| *former == self.name).map(|(_, name)| *name);
        former.or_else(|| canonical_name(&self.name)).unwrap_or(&self.name)
    }
}

/// The configuration file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: Option<String>,
    kind: Option<String>,
    leader_name: Option<String>,
    resource_lock: Option<String>,
    controller_leaders: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    component: Option<String>,
}

/// Latest version, which has no `resourceLock`.
const LATEST: &str = "controllermanager.config.k8s.io/v1";
const VERSIONS: [&str; 3] =
    [LATEST, "controllermanager.config.k8s.io/v1beta1", "controllermanager.config.k8s.io/v1alpha1"];
const KIND: &str = "LeaderMigrationConfiguration";

impl Document {
    fn read(file: &ConfigFile) -> Result<Migration, ConfigErrors> {
        let document: Document = file.yaml()?;
        let mut errors = ConfigErrors::new();
        document.check(&mut |field: &str, message: String, hint: String| {
            errors.push(ConfigError::file(file.path(), None, message).field(field).hint(hint));
        });
        if errors.is_empty() { Ok(document.into()) } else { Err(errors) }
    }

    fn check(&self, report: &mut impl FnMut(&str, String, String)) {
        let version = self.api_version.as_deref().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            report("apiVersion", format!("unsupported version {version:?}"), format!("use {LATEST}"));
        }
        let kind = self.kind.as_deref().unwrap_or_default();
        if kind != KIND {
            report("kind", format!("unsupported kind {kind:?}"), format!("use {KIND}"));
        }
        if is_empty(&self.leader_name) {
            let hint = format!("name the Lease that both managers share, such as {}", Migration::default().lease);
            report("leaderName", "leaderName must be set for LeaderMigrationConfiguration".to_owned(), hint);
        }
        self.check_lock(version, report);
        for (index, entry) in self.controller_leaders.iter().flatten().enumerate() {
            for (key, value) in [("name", &entry.name), ("component", &entry.component)] {
                if is_empty(value) {
                    let hint = format!("each entry needs a name and a component, such as {COMPONENT} or {ANY}");
                    report(&format!("controllerLeaders[{index}].{key}"), "missing key".to_owned(), hint);
                }
            }
        }
    }

    fn check_lock(&self, version: &str, report: &mut impl FnMut(&str, String, String)) {
        let lock = self.resource_lock.as_deref();
        match lock {
            Some(_) if version == LATEST => {
                report("resourceLock", "unknown key in this version".to_owned(), "remove it".to_owned());
            }
            None if version == LATEST => {}
            Some(LEASES | "endpoints") => {}
            _ => {
                let message =
                    format!("resource Lock must be one of 'leases' or 'endpoints', not {:?}", lock.unwrap_or(""));
                report("resourceLock", message, format!("use {LEASES}"));
            }
        }
    }
}

fn is_empty(text: &Option<String>) -> bool {
    text.as_ref().is_none_or(String::is_empty)
}

impl From<Document> for Migration {
    fn from(document: Document) -> Migration {
        let leader = |Entry { name, component }| Leader {
            name: name.unwrap_or_default(),
            component: component.unwrap_or_default(),
        };
        Migration {
            lease: document.leader_name.unwrap_or_default(),
            lock: document.resource_lock.unwrap_or_else(|| LEASES.to_owned()),
            leaders: document.controller_leaders.into_iter().flatten().map(leader).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Migration, String> {
        Document::read(&ConfigFile::from_text("migration.yaml", text)).map_err(|errors| errors.to_string())
    }

    fn file(version: &str, rest: &str) -> String {
        format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\n{rest}")
    }

    #[test]
    fn g1_without_a_file_the_default_controllers_migrate() {
        let migration = Migration::default();
        assert_eq!(migration.lease, "cloud-provider-extraction-migration");
        // MIG-5: upstream only matches the last of them.
        assert_eq!(migration.migrating(), [node_lifecycle::NAME, service::NAME, route::NAME]);
        let mut errors = ConfigErrors::new();
        migration.check("cloud-controller-manager", &mut errors);
        assert!(errors.is_empty());
        migration.check("cloud-provider-extraction-migration", &mut errors);
        assert!(errors.to_string().contains("is the name of the manager's own Lease"), "{errors}");
    }

    #[test]
    fn g2_each_version_is_parsed_and_the_list_may_be_empty() {
        for version in ["v1alpha1", "v1beta1"] {
            let text = file(version, "leaderName: shared\nresourceLock: leases\ncontrollerLeaders: []\n");
            let migration = read(&text).unwrap();
            assert_eq!((migration.lease.as_str(), migration.migrating()), ("shared", Vec::new()), "{version}");
        }
        let json = r#"{"apiVersion":"controllermanager.config.k8s.io/v1","kind":"LeaderMigrationConfiguration",
                       "leaderName":"shared","controllerLeaders":[{"name":"route","component":"*"}]}"#;
        assert_eq!(read(json).unwrap().migrating(), [route::NAME]);
    }

    #[test]
    fn g3_g4_an_invalid_file_is_rejected_with_a_fix() {
        let good = "leaderName: shared\n";
        let cases = [
            ("G3 empty", String::new(), "kind: unsupported kind \"\""),
            (
                "G3 kind",
                file("v1", good).replace("LeaderMigration", "Kubelet"),
                "unsupported kind \"KubeletConfiguration\"",
            ),
            ("G3 version", file("v2", good), "apiVersion: unsupported version \"controllermanager.config.k8s.io/v2\""),
            ("G3 unknown", file("v1", "leaderName: shared\nleader: x\n"), "leader: unknown key"),
            (
                "G3 unknown",
                file("v1", "leaderName: a\ncontrollerLeaders: [{name: a, component: b, c: d}]\n"),
                "c: unknown key",
            ),
            ("G3 duplicate", file("v1", "leaderName: a\nleaderName: b\n"), "leaderName: duplicate key"),
            ("G4", file("v1", ""), "leaderName must be set"),
            ("G4", file("v1", "leaderName: ''\n"), "leaderName must be set"),
            ("G4", file("v1beta1", "leaderName: a\nresourceLock: invalid\n"), "must be one of 'leases' or 'endpoints'"),
            ("G4", file("v1beta1", "leaderName: a\n"), "must be one of 'leases' or 'endpoints'"),
            ("MIG-1", file("v1", "leaderName: a\nresourceLock: leases\n"), "unknown key in this version"),
            ("MIG-1", file("v1", "leaderName: a\ncontrollerLeaders: [{name: a}]\n"), "controllerLeaders[0].component"),
            ("MIG-1", file("v1", "leaderName: a\ncontrollerLeaders: [{name: '', component: b}]\n"), "[0].name"),
        ];
        for (case, text, expected) in cases {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected) && error.contains("migration.yaml"), "{case}: {error}");
        }
        assert!(Migration::read(Path::new("/nowhere/migration.yaml")).is_err());
    }

    #[test]
    fn g5_g6_controllers_listed_for_this_component_or_any_migrate() {
        for component in ["cloud-controller-manager", "'*'"] {
            let entry = |name: &str| format!("- {{name: {name}, component: {component}}}\n");
            let leaders =
                ["node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller"].map(entry);
            let migration =
                read(&file("v1", &format!("leaderName: shared\ncontrollerLeaders:\n{}", leaders.concat()))).unwrap();
            assert_eq!(migration.migrating(), [node_lifecycle::NAME, service::NAME, route::NAME], "{component}");
            assert_eq!(migration.placement(node::NAME), Placement::Here);
            let mut options = ManagerOptions::default();
            assert!(migration.restrict(&mut options).is_empty() && options.service.is_some());
        }
    }

    #[test]
    fn mig3_controllers_of_another_manager_are_disabled_and_the_last_entry_wins() {
        let leaders = "leaderName: shared\ncontrollerLeaders:\n\
                       - {name: service, component: '*'}\n\
                       - {name: service-lb-controller, component: kube-controller-manager}\n\
                       - {name: cloud-node, component: other}\n\
                       - {name: cloud-node-controller, component: cloud-controller-manager}\n\
                       - {name: unknown, component: other}\n";
        let migration = read(&file("v1", leaders)).unwrap();
        assert_eq!(migration.migrating(), [node::NAME]);
        let mut options = ManagerOptions::default();
        let warnings = migration.restrict(&mut options);
        assert_eq!(warnings, ["\"service-lb-controller\" is run by another manager (--leader-migration-config)"]);
        assert!(options.service.is_none() && options.node.is_some() && options.node_lifecycle.is_some());
    }

    #[test]
    fn mig6_an_unsupported_lock_is_rejected_when_it_is_needed() {
        let migration = read(&file("v1beta1", "leaderName: shared\nresourceLock: endpoints\n")).unwrap();
        let mut errors = ConfigErrors::new();
        migration.check("cloud-controller-manager", &mut errors);
        assert!(errors.to_string().contains("resource lock \"endpoints\" is no longer supported"), "{errors}");
    }
}
