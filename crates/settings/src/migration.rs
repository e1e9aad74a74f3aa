//! Leader migration: while controllers move from one manager to another, they run under a Lease that both managers share
//! (MIG-1 to MIG-7).

use std::path::Path;

use bowline_config::{ConfigError, ConfigErrors, ConfigFile};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::{node, node_ipam, node_lifecycle, provider_loops, route, service};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::LEASES;
use crate::controllers::{self, canonical_name};

/// This program, in such a file.
const COMPONENT: &str = "cloud-controller-manager";
/// Every manager, in such a file.
const ANY: &str = "*";
/// Names that lists of old have; upstream knows them no longer, and so lets its own default list match nothing.
const FORMER_NAMES: [(&str, &str); 2] = [("route-controller", route::NAME), ("service-controller", service::NAME)];

/// Which controllers move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The name of the second Lease.
    pub lease: String,
    lock: String,
    leaders: Vec<Leader>,
}

/// A controller that moves, and who runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leader {
    name: String,
    component: String,
}

/// Where a controller runs (MIG-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here, under the lease of this manager alone.
    Here,
    /// Here, under the shared lease, too.
    Moving,
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

    /// As a field of another document has it: the name of the Lease, the lock, and controllers with their managers.
    pub(crate) fn of_field(
        lease: String,
        lock: Option<String>,
        leaders: impl Iterator<Item = [String; 2]>,
    ) -> Migration {
        let leaders = leaders.map(|[name, component]| Leader { name, component }).collect();
        Migration { lease, lock: lock.filter(|lock| !lock.is_empty()).unwrap_or_else(|| LEASES.to_owned()), leaders }
    }

    /// The same as JSON.
    pub(crate) fn field(&self) -> Value {
        let leader = |leader: &Leader| json!({ "name": leader.name, "component": leader.component });
        let leaders: Vec<_> = self.leaders.iter().map(leader).collect();
        json!({ "leaderName": self.lease, "resourceLock": self.lock, "controllerLeaders": leaders })
    }

    /// Whether the second lease can be held at all: what passes for a lock may have no way to be one (MIG-6).
    pub(crate) fn check(&self, main: &str, errors: &mut ConfigErrors) {
        if self.lease == main {
            let message = format!("the leaderName {main:?} is the name of the manager's own lease");
            errors.push(
                ConfigError::flag("leader-migration-config", message)
                    .hint("name another one, which both managers share"),
            );
        }
        if self.lock != LEASES {
            let message = format!("the lock {:?} cannot be held any more", self.lock);
            errors.push(ConfigError::flag("leader-migration-config", message).hint("set resourceLock: leases"));
        }
    }

    /// Switches off what another manager runs, and says so.
    pub(crate) fn restrict(&self, options: &mut ManagerOptions) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut gone = |name: &'static str| {
            let is_gone = self.place(name) == Place::Elsewhere;
            if is_gone {
                remarks.push(format!("{name:?} is run by another manager (--leader-migration-config)"));
            }
            is_gone
        };
        options.node.take_if(|_| gone(node::NAME));
        options.node_lifecycle.take_if(|_| gone(node_lifecycle::NAME));
        options.service.take_if(|_| gone(service::NAME));
        options.node_ipam.take_if(|_| gone(node_ipam::NAME));
        options.route.take_if(|_| gone(route::NAME));
        options.provider_loops.take_if(|_| gone(provider_loops::NAME));
        remarks
    }

    /// The controllers that run under the second lease, too.
    pub fn moving(&self) -> Vec<String> {
        controllers::names().filter(|name| self.place(name) == Place::Moving).map(str::to_owned).collect()
    }

    fn place(&self, name: &str) -> Place {
        // Of several about one controller, the last counts.
        match self.leaders.iter().rev().find(|leader| leader.controller() == name) {
            None => Place::Here,
            Some(leader) if leader.component == ANY || leader.component == COMPONENT => Place::Moving,
            Some(_) => Place::Elsewhere,
        }
    }
}

impl Leader {
    /// Its name of today (MIG-5).
    fn controller(&self) -> &str {
        let former = FORMER_NAMES.iter().find(|(former, _)| *former == self.name).map(|(_, name)| *name);
        former.or_else(|| canonical_name(&self.name)).unwrap_or(&self.name)
    }
}

/// The file.
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

/// The version of the document that has no word about the lock.
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

    fn check(&self, wrong: &mut impl FnMut(&str, String, String)) {
        let version = self.api_version.as_deref().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            wrong("apiVersion", format!("{version:?} is no version of this file"), format!("write {LATEST}"));
        }
        let kind = self.kind.as_deref().unwrap_or_default();
        if kind != KIND {
            wrong("kind", format!("{kind:?} is not what belongs here"), format!("write {KIND}"));
        }
        if is_empty(&self.leader_name) {
            let hint = format!("name the Lease that both managers share, such as {}", Migration::default().lease);
            wrong("leaderName", "leaderName must be set for LeaderMigrationConfiguration".to_owned(), hint);
        }
        self.check_lock(version, wrong);
        for (index, entry) in self.controller_leaders.iter().flatten().enumerate() {
            for (key, value) in [("name", &entry.name), ("component", &entry.component)] {
                if is_empty(value) {
                    let hint = format!("each entry has a name and a component, such as {COMPONENT} or {ANY}");
                    wrong(&format!("controllerLeaders[{index}].{key}"), "the key is missing".to_owned(), hint);
                }
            }
        }
    }

    fn check_lock(&self, version: &str, wrong: &mut impl FnMut(&str, String, String)) {
        let lock = self.resource_lock.as_deref();
        match lock {
            Some(_) if version == LATEST => {
                wrong("resourceLock", "there is no such key in this version".to_owned(), "leave it out".to_owned());
            }
            None if version == LATEST => {}
            Some(LEASES | "endpoints") => {}
            _ => {
                let message =
                    format!("resource Lock must be one of 'leases' or 'endpoints', not {:?}", lock.unwrap_or(""));
                wrong("resourceLock", message, format!("write {LEASES}"));
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
    fn g1_without_a_file_the_controllers_that_once_moved_move() {
        let migration = Migration::default();
        assert_eq!(migration.lease, "cloud-provider-extraction-migration");
        // MIG-5: upstream finds the last of them only.
        assert_eq!(migration.moving(), [node_lifecycle::NAME, service::NAME, route::NAME]);
        let mut errors = ConfigErrors::new();
        migration.check("cloud-controller-manager", &mut errors);
        assert!(errors.is_empty());
        migration.check("cloud-provider-extraction-migration", &mut errors);
        assert!(errors.to_string().contains("is the name of the manager's own lease"), "{errors}");
    }

    #[test]
    fn g2_each_version_is_read_and_nobody_need_move() {
        for version in ["v1alpha1", "v1beta1"] {
            let text = file(version, "leaderName: shared\nresourceLock: leases\ncontrollerLeaders: []\n");
            let migration = read(&text).unwrap();
            assert_eq!((migration.lease.as_str(), migration.moving()), ("shared", Vec::new()), "{version}");
        }
        let json = r#"{"apiVersion":"controllermanager.config.k8s.io/v1","kind":"LeaderMigrationConfiguration",
                       "leaderName":"shared","controllerLeaders":[{"name":"route","component":"*"}]}"#;
        assert_eq!(read(json).unwrap().moving(), [route::NAME]);
    }

    #[test]
    fn g3_g4_a_file_that_is_not_right_is_refused_with_what_would_be() {
        let good = "leaderName: shared\n";
        let cases = [
            ("G3 empty", String::new(), "kind: \"\" is not what belongs here"),
            ("G3 kind", file("v1", good).replace("LeaderMigration", "Kubelet"), "\"KubeletConfiguration\" is not what"),
            ("G3 version", file("v2", good), "apiVersion: \"controllermanager.config.k8s.io/v2\" is no version"),
            ("G3 unknown", file("v1", "leaderName: shared\nleader: x\n"), "leader: there is no such key"),
            (
                "G3 unknown",
                file("v1", "leaderName: a\ncontrollerLeaders: [{name: a, component: b, c: d}]\n"),
                "no such key",
            ),
            ("G3 duplicate", file("v1", "leaderName: a\nleaderName: b\n"), "leaderName: the key is there twice"),
            ("G4", file("v1", ""), "leaderName must be set"),
            ("G4", file("v1", "leaderName: ''\n"), "leaderName must be set"),
            ("G4", file("v1beta1", "leaderName: a\nresourceLock: invalid\n"), "must be one of 'leases' or 'endpoints'"),
            ("G4", file("v1beta1", "leaderName: a\n"), "must be one of 'leases' or 'endpoints'"),
            ("MIG-1", file("v1", "leaderName: a\nresourceLock: leases\n"), "there is no such key in this version"),
            ("MIG-1", file("v1", "leaderName: a\ncontrollerLeaders: [{name: a}]\n"), "controllerLeaders[0].component"),
            ("MIG-1", file("v1", "leaderName: a\ncontrollerLeaders: [{name: '', component: b}]\n"), "[0].name"),
        ];
        for (case, text, says) in cases {
            let problem = read(&text).unwrap_err();
            assert!(problem.contains(says) && problem.contains("migration.yaml"), "{case}: {problem}");
        }
        assert!(Migration::read(Path::new("/nowhere/migration.yaml")).is_err());
    }

    #[test]
    fn g5_g6_what_is_listed_for_us_or_for_everybody_moves_and_the_rest_stays() {
        for component in ["cloud-controller-manager", "'*'"] {
            let entry = |name: &str| format!("- {{name: {name}, component: {component}}}\n");
            let leaders =
                ["node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller"].map(entry);
            let migration =
                read(&file("v1", &format!("leaderName: shared\ncontrollerLeaders:\n{}", leaders.concat()))).unwrap();
            assert_eq!(migration.moving(), [node_lifecycle::NAME, service::NAME, route::NAME], "{component}");
            assert_eq!(migration.place(node::NAME), Place::Here);
            let mut options = ManagerOptions::default();
            assert!(migration.restrict(&mut options).is_empty() && options.service.is_some());
        }
    }

    #[test]
    fn mig3_what_another_manager_runs_is_switched_off_and_the_last_word_counts() {
        let leaders = "leaderName: shared\ncontrollerLeaders:\n\
                       - {name: service, component: '*'}\n\
                       - {name: service-lb-controller, component: kube-controller-manager}\n\
                       - {name: cloud-node, component: other}\n\
                       - {name: cloud-node-controller, component: cloud-controller-manager}\n\
                       - {name: nobody-knows-it, component: other}\n";
        let migration = read(&file("v1", leaders)).unwrap();
        assert_eq!(migration.moving(), [node::NAME]);
        let mut options = ManagerOptions::default();
        let remarks = migration.restrict(&mut options);
        assert_eq!(remarks, ["\"service-lb-controller\" is run by another manager (--leader-migration-config)"]);
        assert!(options.service.is_none() && options.node.is_some() && options.node_lifecycle.is_some());
    }

    #[test]
    fn mig6_a_lock_that_nobody_can_hold_is_refused_when_it_is_needed() {
        let migration = read(&file("v1beta1", "leaderName: shared\nresourceLock: endpoints\n")).unwrap();
        let mut errors = ConfigErrors::new();
        migration.check("cloud-controller-manager", &mut errors);
        assert!(errors.to_string().contains("the lock \"endpoints\" cannot be held any more"), "{errors}");
    }
}
