//! The annotations that mean the same with every provider, each declared once: key, form, default, meaning, example.
//!
//! From the declarations come the reading of values, the messages about mistakes, the warning about an unknown key, and
//! the reference page. A provider's own annotation goes before ours where both say something.

mod declarations;
mod reference;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::IpMode;
use declarations::DECLARATIONS;
pub use declarations::{
    ADOPT, HEALTH_CHECK_INTERVAL, HEALTH_CHECK_PATH, HEALTH_CHECK_PORT, IDLE_TIMEOUT, INTERNAL, IP_MODE, POLICY,
    PROXY_PROTOCOL, SHARE_GROUP, SOURCE_RANGES, TARGET_NODES,
};
pub use reference::reference;
pub use selector::NodeSelector;

/// What all our keys start with.
pub const PREFIX: &str = "bowline.dev/";

/// A declaration.
#[derive(Debug, Clone, Copy)]
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
    /// Reads a value, which is neither empty nor has spaces around it, into the settings; or all that is wrong with it.
    read: fn(&str, &mut LoadBalancerSettings) -> Result<(), Vec<String>>,
}

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
    &DECLARATIONS
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
    let mut settings = LoadBalancerSettings::default();
    let mut mistakes = Vec::new();
    for annotation in declarations() {
        let Some(value) = annotations.get(annotation.key) else { continue };
        let mistake = |message| Mistake { place: annotation.key.to_owned(), message };
        mistakes.extend(annotation.read_into(value.trim(), &mut settings).into_iter().map(mistake));
    }
    (settings, mistakes)
}

/// The keys with our prefix that mean nothing on a Service.
pub fn unknown(annotations: &BTreeMap<String, String>) -> Vec<Unknown> {
    let names = || declarations().iter().map(Annotation::name);
    let ours = annotations.keys().filter_map(|key| Some((key, name_in(key)?)));
    let unknown = ours.filter(|(key, _)| declarations().iter().all(|known| known.key != key.as_str()));
    // Names are compared without the prefix: its letters would make any two short ones alike.
    let nearest = |name| declarations().iter().find(|known| Some(known.name()) == crate::nearest(name, names()));
    unknown.map(|(key, name)| Unknown { key: key.clone(), nearest: nearest(name).map(|known| known.key) }).collect()
}

/// What stands behind our prefix, in whatever case that is written.
fn name_in(key: &str) -> Option<&str> {
    let (prefix, name) = key.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then_some(name)
}

impl Annotation {
    /// The key without [`PREFIX`].
    pub fn name(&self) -> &'static str {
        self.key.strip_prefix(PREFIX).unwrap_or(self.key)
    }

    /// All that is wrong with this value; if nothing is, the settings say what it says.
    fn read_into(&self, value: &str, settings: &mut LoadBalancerSettings) -> Vec<String> {
        if value.is_empty() {
            return vec![format!("the value is empty; expected {}, or no annotation for the default", self.form)];
        }
        (self.read)(value, settings).err().unwrap_or_default()
    }
}

/// What was probably meant, for people.
impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the annotation {} means nothing on a Service", self.key)?;
        self.nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
    }
}
