//! The annotations that mean the same with every provider, each declared once: key, form, default, meaning, example.
//!
//! From the declarations come the reading of values, the messages about mistakes, the warning about an unknown key, and
//! the reference page. A provider's own annotation goes before ours where both say something.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::IpMode;

/// What all our keys start with.
pub const PREFIX: &str = "bowline.dev/";

/// A declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// The whole key.
    pub key: &'static str,
    /// What its value looks like, in words.
    pub form: &'static str,
    /// What holds without it, in words.
    pub default: &'static str,
    /// A value that makes sense.
    pub example: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// What the annotations of a Service say. The default is what holds without any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerSettings {
    /// `bowline.dev/internal`: reached from inside the cloud's network only.
    pub internal: bool,
    /// `bowline.dev/source-ranges`: who may connect, where `spec.loadBalancerSourceRanges` is empty.
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

/// A label selector, as kubectl writes it: `zone in (a, b), !spot, size=large`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
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

/// A key with our prefix that means nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The key.
    pub key: String,
    /// The known one that was probably meant.
    pub nearest: Option<&'static str>,
}

/// All declarations, in the order of the reference.
pub fn declarations() -> &'static [Annotation] {
    todo!()
}

/// What these annotations say: settings, or all mistakes.
pub fn read(annotations: &BTreeMap<String, String>) -> Result<LoadBalancerSettings, Vec<Mistake>> {
    let _ = annotations;
    todo!()
}

/// The keys with our prefix that mean nothing on a Service.
pub fn unknown(annotations: &BTreeMap<String, String>) -> Vec<Unknown> {
    let _ = annotations;
    todo!()
}

impl NodeSelector {
    /// From text.
    pub fn parse(text: &str) -> Result<NodeSelector, String> {
        let _ = text;
        todo!()
    }

    /// Whether labels like these are chosen.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let _ = labels;
        todo!()
    }
}
