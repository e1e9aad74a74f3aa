//! What Octavia says. Everything may be null or missing, and is then empty.

use serde::{Deserialize, Serialize};

use super::{Named, nullable};

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancer {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) description: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) provider: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) provisioning_status: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) vip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) vip_port_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) vip_subnet_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
}

/// What it listens on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Listener {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol_port: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) connection_limit: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) insert_headers: std::collections::BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) default_tls_container_ref: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_client_data: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_member_connect: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_member_data: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_tcp_inspect: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) allowed_cidrs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
    /// In listings of all balancers: whose it is.
    #[serde(deserialize_with = "nullable")]
    pub(crate) loadbalancers: Vec<Named>,
}

/// Where a listener sends traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) lb_algorithm: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) session_persistence: Option<SessionPersistence>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) listeners: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) loadbalancers: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) healthmonitor_id: String,
}

/// Whether connections of one client stay together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionPersistence {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) kind: String,
}

/// A machine behind a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Member {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol_port: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) monitor_port: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subnet_id: String,
}

/// How members are watched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HealthMonitor {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) delay: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) max_retries: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) max_retries_down: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) url_path: String,
}
