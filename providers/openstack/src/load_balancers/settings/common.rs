//! Common settings from this cloud's annotations and configuration.

use std::collections::BTreeMap;

use bowline_core::annotations::{LoadBalancerSettings, NodeSelector, ProxyProtocol, Reader};

use super::super::annotations as known;
use crate::Config;

/// Selector that matches no node.
const NO_NODE: &str = "bowline.dev/none,!bowline.dev/none";

/// Merges this cloud's annotations and configuration into the common settings. Idempotent.
pub(crate) fn common_settings(
    config: &Config,
    reader: &Reader<'_>,
    common: LoadBalancerSettings,
) -> LoadBalancerSettings {
    let internal = config.load_balancer.internal || reader.get(&known::INTERNAL).unwrap_or(common.internal);
    let proxy_protocol = match reader.get(&known::PROXY_PROTOCOL) {
        Some(text) => proxy_protocol(text),
        None => common.proxy_protocol,
    };
    let target_nodes = match reader.get(&known::NODE_SELECTOR) {
        Some(text) => node_selector(text),
        None => common.target_nodes.or_else(|| node_selector(&config.load_balancer.node_selector)),
    };
    LoadBalancerSettings { internal, proxy_protocol, target_nodes, ..common }
}

// upstream: exactly these spellings; any other value turns it off.
fn proxy_protocol(text: &str) -> Option<ProxyProtocol> {
    match text {
        "true" | "v1" => Some(ProxyProtocol::V1),
        "v2" => Some(ProxyProtocol::V2),
        _ => None,
    }
}

/// Parses `key=value`, `key=` or `key`, separated by commas; `None` if there is none of these, which selects all nodes. The last
/// value of a duplicate key counts. An invalid label matches no node.
fn node_selector(text: &str) -> Option<NodeSelector> {
    let items = text.trim().split(',').map(str::trim).filter(|item| !item.is_empty());
    let labels: BTreeMap<&str, &str> = items.map(|item| item.split_once('=').unwrap_or((item, ""))).collect();
    let requirements: Vec<String> = labels.into_iter().map(|(key, value)| requirement(key, value)).collect();
    (!requirements.is_empty()).then(|| NodeSelector::parse(&requirements.join(",")).ok()).flatten()
}

fn requirement(key: &str, value: &str) -> String {
    let is_plain =
        |text: &str, more: &[u8]| text.bytes().all(|letter| letter.is_ascii_alphanumeric() || more.contains(&letter));
    let text = if value.is_empty() { key.to_owned() } else { format!("{key}={value}") };
    // The selector syntax of Kubernetes has more operators, which are invalid labels here.
    let is_label = is_plain(key, b"-_./") && is_plain(value, b"-_.") && NodeSelector::parse(&text).is_ok();
    if is_label && !key.is_empty() { text } else { NO_NODE.to_owned() }
}
