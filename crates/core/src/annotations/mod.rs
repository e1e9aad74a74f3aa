//! Annotations, each declared once: key, kind of value, default, example, meaning.
//!
//! From a declaration come the typed reader, the messages about invalid values, the warning about a misspelled key, and the
//! reference page. The mechanism ([`Table`], [`Reader`], the kinds of values) stands in this crate and not in `bowline-config`,
//! because the annotations that mean the same with every provider ([`COMMON`]) are declared here, and that crate depends on this
//! one; providers depend on both. A provider's own annotation goes before ours where both say something.

mod declarations;
mod kinds;
mod reader;
mod reference;
mod selector;
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
    Bool, Cidrs, Integer, Json, Kind, List, OneOf, OrNone, Pairs, Parsed, Port, Ports, PositiveDuration, Text, Written,
};
pub use reader::Reader;
pub use selector::NodeSelector;
pub use table::{Annotation, Declared, Invalid, Table, Unknown};

/// What all our keys start with.
pub const PREFIX: &str = "bowline.dev/";

/// What the annotations of a Service say. The default is what holds without any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSettings {
    /// `bowline.dev/internal`: reached from inside the cloud's network only.
    pub internal: bool,
    /// `bowline.dev/source-ranges`: who may connect, where `spec.loadBalancerSourceRanges` is empty. A provider looks at
    /// [`LoadBalancerSpec::source_ranges`](crate::LoadBalancerSpec::source_ranges) instead, where all places are weighed.
    pub source_ranges: Option<Vec<IpNet>>,
    /// `bowline.dev/proxy-protocol`: how the backend is told the client's address.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// `bowline.dev/idle-timeout`: after which a silent connection is closed.
    pub idle_timeout: Option<Duration>,
    /// `bowline.dev/health-check-path`.
    pub health_check_path: Option<String>,
    /// `bowline.dev/health-check-port`: on the node.
    pub health_check_port: Option<u16>,
    /// `bowline.dev/health-check-interval`.
    pub health_check_interval: Option<Duration>,
    /// `bowline.dev/target-nodes`: a label selector.
    pub target_nodes: Option<NodeSelector>,
    /// `bowline.dev/policy`: what becomes of the balancer when the Service no longer wants it.
    pub policy: DeletionPolicy,
    /// `bowline.dev/share-group`: Services of one namespace with the same value share an address.
    pub share_group: Option<String>,
    /// `bowline.dev/ip-mode`: how nodes treat the address.
    pub ip_mode: Option<IpMode>,
    /// `bowline.dev/adopt`: the name or ID of a balancer that exists and becomes this Service's.
    pub adopt: Option<String>,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// What becomes of a balancer when its Service no longer wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeletionPolicy {
    /// It is removed.
    #[default]
    Delete,
    /// It stays, without our mark, and may be adopted later.
    Retain,
    /// It stays, and so does the Service, until the annotation says otherwise.
    Protect,
}

/// Something in a Service that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Mistake {
    /// The annotation or the field.
    pub place: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// What these annotations say: settings, or all mistakes.
///
/// ```
/// use bowline_core::annotations::{DeletionPolicy, read};
/// let annotated = |value: &str| [("bowline.dev/policy".to_owned(), value.to_owned())].into();
/// assert_eq!(read(&annotated(" retain ")).unwrap().policy, DeletionPolicy::Retain);
/// let mistakes = read(&annotated("keep")).unwrap_err();
/// assert_eq!(mistakes[0].to_string(), "bowline.dev/policy: \"keep\" is not delete, retain or protect");
/// ```
pub fn read(annotations: &BTreeMap<String, String>) -> Result<LoadBalancerSettings, Vec<Mistake>> {
    let (settings, mistakes) = read_leniently(annotations);
    if mistakes.is_empty() { Ok(settings) } else { Err(mistakes) }
}

/// What these annotations say, as if those that cannot be read were not there, and all mistakes.
pub fn read_leniently(annotations: &BTreeMap<String, String>) -> (LoadBalancerSettings, Vec<Mistake>) {
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
    };
    (settings, reader.into_errors())
}
