//! Annotations, each declared once with key, kind of value, default, example and description.
//!
//! The typed reader, the error messages for invalid values, the warnings about misspelled keys and the reference page are all
//! derived from the declarations. The mechanism ([`Table`], [`Reader`], the [kinds](Kind) of values) is part of this crate and
//! not of `bowline-config`, because the annotations that all providers share ([`COMMON`]) are declared here, and that crate
//! depends on this one; providers depend on both. An annotation of a provider takes precedence over a common one.

mod declarations;
mod kinds;
mod reader;
mod reference;
mod selector;
mod strict;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

#[doc(inline)]
pub use crate::__annotations as annotations;
use crate::IpMode;
pub use declarations::{
    ADOPT, COMMON, HEALTH_CHECK_INTERVAL, HEALTH_CHECK_PATH, HEALTH_CHECK_PORT, IDLE_TIMEOUT, INTERNAL, IP_MODE,
    PAUSED, POLICY, PROXY_PROTOCOL, SHARE_GROUP, SOURCE_RANGES, TARGET_NODES,
};
pub use kinds::{
    Bool, Cidrs, Integer, Json, Kind, List, OneOf, OrNone, Pairs, Parsed, Port, Ports, PositiveDuration, Text,
    WriteOnly,
};
pub use reader::Reader;
pub use selector::{NodeSelector, check_label_key};
pub use strict::{GO_BOOL, GO_INTEGER, GO_INTEGERS, GO_UNSIGNED, Strict};
pub use table::{Annotation, Declared, Invalid, Table, UnknownAnnotation};

/// Prefix of all annotation keys of Bowline.
pub const PREFIX: &str = "bowline.dev/";

/// Load balancer settings from the annotations of a Service. The default applies without any annotation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSettings {
    /// `bowline.dev/internal`: the address is reachable from inside the cloud's network only.
    pub internal: bool,
    /// `bowline.dev/source-ranges`: CIDRs from which clients may connect, if `spec.loadBalancerSourceRanges` is empty. Providers
    /// use [`LoadBalancerSpec::source_ranges`](crate::LoadBalancerSpec::source_ranges) instead, which takes all sources into
    /// account.
    pub source_ranges: Option<Vec<IpNet>>,
    /// `bowline.dev/proxy-protocol`: PROXY protocol version that passes the client's address to the backend.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// `bowline.dev/idle-timeout`: time after which an idle connection is closed.
    pub idle_timeout: Option<Duration>,
    /// `bowline.dev/health-check-path`: path of the HTTP health check.
    pub health_check_path: Option<String>,
    /// `bowline.dev/health-check-port`: port of the health check on the Node.
    pub health_check_port: Option<u16>,
    /// `bowline.dev/health-check-interval`: time between two health checks.
    pub health_check_interval: Option<Duration>,
    /// `bowline.dev/target-nodes`: label selector for the target Nodes.
    pub target_nodes: Option<NodeSelector>,
    /// `bowline.dev/policy`: what happens to the load balancer when the Service no longer needs it.
    pub policy: DeletionPolicy,
    /// `bowline.dev/share-group`: Services of one namespace with the same value share an address.
    pub share_group: Option<String>,
    /// `bowline.dev/ip-mode`: how kube-proxy treats the address.
    pub ip_mode: Option<IpMode>,
    /// `bowline.dev/adopt`: name or ID of an existing load balancer that the Service adopts.
    pub adopt: Option<String>,
    /// The load balancer is not managed: neither it nor the status of the Service is changed as long as this is set. No common
    /// annotation sets it, only the settings of a provider with an annotation for it.
    pub unmanaged: bool,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// Version 1, a text header.
    V1,
    /// Version 2, a binary header.
    V2,
}

/// What happens to a load balancer when its Service no longer needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeletionPolicy {
    /// The load balancer is deleted.
    #[default]
    Delete,
    /// The load balancer stays in the cloud without the mark of Bowline, and may be adopted later.
    Retain,
    /// The load balancer stays, and the Service keeps its finalizer, until the annotation changes.
    Protect,
}

/// Invalid value of an annotation or a field of a Service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// Annotation key or field path, such as `spec.loadBalancerSourceRanges`.
    pub field: String,
    /// Reason, with the expected value.
    pub message: String,
}

/// Reads the common annotations. Returns the settings, or all errors at once.
///
/// ```
/// use bowline_core::annotations::{DeletionPolicy, read};
/// let annotated = |value: &str| [("bowline.dev/policy".to_owned(), value.to_owned())].into();
/// assert_eq!(read(&annotated(" retain ")).unwrap().policy, DeletionPolicy::Retain);
/// let errors = read(&annotated("keep")).unwrap_err();
/// assert_eq!(errors[0].to_string(), "bowline.dev/policy: \"keep\" is not delete, retain or protect");
/// ```
pub fn read(annotations: &BTreeMap<String, String>) -> Result<LoadBalancerSettings, Vec<FieldError>> {
    let (settings, errors) = read_leniently(annotations);
    if errors.is_empty() { Ok(settings) } else { Err(errors) }
}

/// Reads the common annotations and ignores invalid ones. Returns the settings, and all errors.
pub fn read_leniently(annotations: &BTreeMap<String, String>) -> (LoadBalancerSettings, Vec<FieldError>) {
    let reader = COMMON.reader(annotations);
    let settings = LoadBalancerSettings {
        internal: reader.get(&INTERNAL).unwrap_or_default(),
        source_ranges: reader.get(&SOURCE_RANGES),
        proxy_protocol: reader.get(&PROXY_PROTOCOL),
        idle_timeout: reader.get(&IDLE_TIMEOUT),
        health_check_path: reader.get(&HEALTH_CHECK_PATH),
        health_check_port: reader.get(&HEALTH_CHECK_PORT),
        health_check_interval: reader.get(&HEALTH_CHECK_INTERVAL),
        target_nodes: reader.get(&TARGET_NODES),
        policy: reader.get(&POLICY).unwrap_or_default(),
        share_group: reader.get(&SHARE_GROUP),
        ip_mode: reader.get(&IP_MODE),
        adopt: reader.get(&ADOPT),
        unmanaged: false,
    };
    (settings, reader.into_errors())
}
