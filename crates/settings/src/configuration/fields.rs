//! Mapping between the fields of the document and the flags.

use bowline_config::{format_duration, parse_duration};
use bowline_controllers::{node, node_lifecycle, service};
use serde_json::{Value, json};

use crate::controllers;
use crate::flags::go_bool;

/// A field and its flag.
pub(super) struct Field {
    /// JSON pointer of the field.
    pub(super) path: &'static str,
    /// Name of the flag, without dashes.
    pub(super) flag: &'static str,
    pub(super) kind: Kind,
    /// Effective value if the flag is not set.
    pub(super) unset: fn() -> String,
}

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Switch,
    Number,
    /// A Go duration.
    Duration,
    /// List of texts.
    List,
    /// List of controllers, which the document has with canonical names.
    Controllers,
}

const fn field(path: &'static str, flag: &'static str, kind: Kind) -> Field {
    Field { path, flag, kind, unset: String::new }
}

const fn field_or(path: &'static str, flag: &'static str, kind: Kind, unset: fn() -> String) -> Field {
    Field { path, flag, kind, unset }
}

/// All fields, in the order of the document.
pub(super) const FIELDS: [Field; 36] = [
    field("/Generic/MinResyncPeriod", "min-resync-period", Kind::Duration),
    field("/Generic/ClientConnection/kubeconfig", "kubeconfig", Kind::Text),
    field("/Generic/ClientConnection/contentType", "kube-api-content-type", Kind::Text),
    // No client-side limit, and the burst that would apply with one.
    field_or("/Generic/ClientConnection/qps", "kube-api-qps", Kind::Number, || "0".to_owned()),
    field_or("/Generic/ClientConnection/burst", "kube-api-burst", Kind::Number, || "30".to_owned()),
    field("/Generic/ControllerStartInterval", "controller-start-interval", Kind::Duration),
    field("/Generic/LeaderElection/leaderElect", "leader-elect", Kind::Switch),
    field("/Generic/LeaderElection/leaseDuration", "leader-elect-lease-duration", Kind::Duration),
    field("/Generic/LeaderElection/renewDeadline", "leader-elect-renew-deadline", Kind::Duration),
    field("/Generic/LeaderElection/retryPeriod", "leader-elect-retry-period", Kind::Duration),
    field("/Generic/LeaderElection/resourceLock", "leader-elect-resource-lock", Kind::Text),
    field("/Generic/LeaderElection/resourceName", "leader-elect-resource-name", Kind::Text),
    field("/Generic/LeaderElection/resourceNamespace", "leader-elect-resource-namespace", Kind::Text),
    field("/Generic/Controllers", "controllers", Kind::Controllers),
    field("/Generic/Debugging/enableProfiling", "profiling", Kind::Switch),
    field("/Generic/Debugging/enableContentionProfiling", "contention-profiling", Kind::Switch),
    field("/Generic/LeaderMigrationEnabled", "enable-leader-migration", Kind::Switch),
    field("/KubeCloudShared/CloudProvider/Name", "cloud-provider", Kind::Text),
    field("/KubeCloudShared/CloudProvider/CloudConfigFile", "cloud-config", Kind::Text),
    field("/KubeCloudShared/ExternalCloudVolumePlugin", "external-cloud-volume-plugin", Kind::Text),
    field("/KubeCloudShared/UseServiceAccountCredentials", "use-service-account-credentials", Kind::Switch),
    field("/KubeCloudShared/AllowUntaggedCloud", "allow-untagged-cloud", Kind::Switch),
    field_or("/KubeCloudShared/RouteReconciliationPeriod", "route-reconciliation-period", Kind::Duration, || {
        "10s".to_owned()
    }),
    field("/KubeCloudShared/ClusterName", "cluster-name", Kind::Text),
    field("/KubeCloudShared/ClusterCIDR", "cluster-cidr", Kind::Text),
    field("/KubeCloudShared/AllocateNodeCIDRs", "allocate-node-cidrs", Kind::Switch),
    field("/KubeCloudShared/CIDRAllocatorType", "cidr-allocator-type", Kind::Text),
    field("/KubeCloudShared/ConfigureCloudRoutes", "configure-cloud-routes", Kind::Switch),
    field("/KubeCloudShared/NodeSyncPeriod", "node-sync-period", Kind::Duration),
    field_or("/NodeController/ConcurrentNodeSyncs", "concurrent-node-syncs", Kind::Number, || {
        node::Options::default().concurrency.to_string()
    }),
    // 0 means ConcurrentNodeSyncs, and the document shows that value.
    field_or("/NodeController/ConcurrentNodeStatusUpdates", "concurrent-node-status-updates", Kind::Number, || {
        "0".to_owned()
    }),
    field("/NodeLifecycleController/NodeMonitorPeriod", "node-monitor-period", Kind::Duration),
    field_or(
        "/NodeLifecycleController/ConcurrentNodeLifecycleSyncs",
        "concurrent-node-lifecycle-syncs",
        Kind::Number,
        || node_lifecycle::Options::default().concurrency.to_string(),
    ),
    field_or("/ServiceController/ConcurrentServiceSyncs", "concurrent-service-syncs", Kind::Number, || {
        service::Options::default().concurrency.to_string()
    }),
    field("/NodeStatusUpdateFrequency", "node-status-update-frequency", Kind::Duration),
    field("/Webhook/Webhooks", "webhooks", Kind::List),
];

impl Kind {
    /// Converts the text of a flag to the document's value. Invalid texts do not occur, because the flags are validated first.
    pub(super) fn value(self, text: &str) -> Value {
        match self {
            Kind::Text => json!(text),
            Kind::Switch => json!(go_bool(text).unwrap_or_default()),
            Kind::Number => number(text),
            Kind::Duration => json!(parse_duration(text).map_or_else(|_| text.to_owned(), format_duration)),
            // upstream: an empty list is null.
            Kind::List | Kind::Controllers if text.is_empty() => Value::Null,
            Kind::List => items(text).map(str::to_owned).collect(),
            Kind::Controllers => items(text).map(controllers::canonical).collect(),
        }
    }

    /// Converts the document's value to the text of the flag; `None` if the key is not set.
    pub(super) fn text(self, value: &Value) -> Option<String> {
        match value {
            Value::Null if matches!(self, Kind::List | Kind::Controllers) => Some(String::new()),
            Value::String(text) => Some(text.clone()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Array(items) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")),
            Value::Null | Value::Object(_) => None,
        }
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Formats a number as Go does: a whole number has no fraction.
fn number(text: &str) -> Value {
    let Ok(number) = text.parse::<f64>() else { return Value::Null };
    // Digits of a whole number.
    let digits = if number.fract() == 0.0 { format!("{number:.0}") } else { String::new() };
    digits.parse::<i64>().map_or_else(|_| json!(number), |whole| json!(whole))
}
