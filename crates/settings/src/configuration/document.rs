//! Type of the document (`CloudControllerManagerConfiguration` in `cloudcontrollermanager.config.k8s.io/v1alpha1`), with every key,
//! so that an unknown key is reported with its line. `fields` maps fields to flags.
//!
//! Upstream has JSON names for some keys; the others have their Go names, which start with a capital.

use std::path::Path;

use bowline_config::{ConfigError, ConfigErrors};
use serde::{Deserialize, Serialize};

use super::{API_VERSION, KIND};
use crate::migration::Migration;

/// Root of the document. Missing keys keep the values of the flags.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Document {
    kind: Option<String>,
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    #[serde(rename = "Generic")]
    generic: Generic,
    #[serde(rename = "KubeCloudShared")]
    shared: KubeCloudShared,
    #[serde(rename = "NodeController")]
    node: NodeController,
    #[serde(rename = "NodeLifecycleController")]
    node_lifecycle: NodeLifecycleController,
    #[serde(rename = "ServiceController")]
    service: ServiceController,
    #[serde(rename = "NodeStatusUpdateFrequency", skip_serializing_if = "Option::is_none")]
    node_status_update_frequency: Option<String>,
    #[serde(rename = "Webhook")]
    webhook: Webhook,
    /// The document as `/configz` wraps it.
    #[serde(rename = "cloudcontrollermanager.config.k8s.io", skip_serializing)]
    wrapped: Option<Box<Document>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct Generic {
    port: Option<i32>,
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_resync_period: Option<String>,
    client_connection: ClientConnection,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller_start_interval: Option<String>,
    leader_election: LeaderElection,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    controllers: Option<Option<Vec<String>>>,
    debugging: Debugging,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader_migration_enabled: Option<bool>,
    leader_migration: LeaderMigration,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct ClientConnection {
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<String>,
    accept_content_types: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct LeaderElection {
    #[serde(skip_serializing_if = "Option::is_none")]
    leader_elect: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_deadline: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_namespace: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Debugging {
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_profiling: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_contention_profiling: Option<bool>,
}

/// Leader migration configuration. The file of `--leader-migration-config` overrides it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct LeaderMigration {
    leader_name: Option<String>,
    resource_lock: Option<String>,
    controller_leaders: Option<Vec<ControllerLeader>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ControllerLeader {
    name: String,
    component: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct KubeCloudShared {
    cloud_provider: CloudProvider,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_cloud_volume_plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    use_service_account_credentials: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_untagged_cloud: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_reconciliation_period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_name: Option<String>,
    #[serde(rename = "ClusterCIDR", skip_serializing_if = "Option::is_none")]
    cluster_cidr: Option<String>,
    #[serde(rename = "AllocateNodeCIDRs", skip_serializing_if = "Option::is_none")]
    allocate_node_cidrs: Option<bool>,
    #[serde(rename = "CIDRAllocatorType", skip_serializing_if = "Option::is_none")]
    cidr_allocator_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    configure_cloud_routes: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_sync_period: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct CloudProvider {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_config_file: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct NodeController {
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrent_node_syncs: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrent_node_status_updates: Option<i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct NodeLifecycleController {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_monitor_period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrent_node_lifecycle_syncs: Option<i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct ServiceController {
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrent_service_syncs: Option<i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "PascalCase")]
struct Webhook {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    webhooks: Option<Option<Vec<String>>>,
}

/// Distinguishes an empty list, which disables everything, from a missing one.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Vec<String>>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Document {
    /// Removes the wrapper of `/configz`.
    pub(super) fn unwrapped(self) -> Document {
        match self.wrapped {
            Some(inner) => *inner,
            None => self,
        }
    }

    /// Validates what the type does not: kind, version, and settings that are not supported.
    pub(super) fn validate(&self, path: &Path) -> ConfigErrors {
        let mut errors = ConfigErrors::new();
        let mut report = |key: &str, message: String, hint: String| {
            errors.push(ConfigError::file(path, None, message).field(key).hint(hint));
        };
        for (key, found, expected) in [("kind", &self.kind, KIND), ("apiVersion", &self.api_version, API_VERSION)] {
            match found.as_deref() {
                Some(found) if found == expected => {}
                Some(found) => report(key, format!("unsupported value {found:?}"), format!("use {expected}")),
                None => report(key, "missing key".to_owned(), format!("add {key}: {expected}")),
            }
        }
        if self.generic.port.is_some_and(|port| port != 0) {
            report(
                "Port",
                "insecure serving is not supported".to_owned(),
                "remove it, and use --secure-port".to_owned(),
            );
        }
        for (index, leader) in self.generic.leader_migration.controller_leaders.iter().flatten().enumerate() {
            if leader.name.is_empty() || leader.component.is_empty() {
                let key = format!("LeaderMigration.controllerLeaders[{index}]");
                report(&key, "name or component is missing".to_owned(), "set both, such as component: '*'".to_owned());
            }
        }
        errors
    }

    /// Takes the leader migration configuration out of the document.
    pub(super) fn take_migration(&mut self) -> Option<Migration> {
        let LeaderMigration { leader_name, resource_lock, controller_leaders } =
            std::mem::take(&mut self.generic.leader_migration);
        let leaders = controller_leaders.into_iter().flatten().map(|leader| [leader.name, leader.component]);
        let lease = leader_name.filter(|name| !name.is_empty())?;
        Some(Migration::of_field(lease, resource_lock, leaders))
    }
}
