//! What this cloud's annotations and configuration say in words that all clouds share.

use std::collections::BTreeMap;

use bowline_core::annotations::{LoadBalancerSettings, NodeSelector, ProxyProtocol, Reader};

use super::super::annotations as known;
use crate::Config;

/// Matches no node.
const NOBODY: &str = "bowline.dev/nobody,!bowline.dev/nobody";

/// What all clouds share, with what this one's annotations and configuration say about it. Applied twice it is the same.
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

// upstream: in just these letters; whatever else stands there turns it off.
fn proxy_protocol(text: &str) -> Option<ProxyProtocol> {
    match text {
        "true" | "v1" => Some(ProxyProtocol::V1),
        "v2" => Some(ProxyProtocol::V2),
        _ => None,
    }
}

/// `key=value`, `key=` or `key`, with commas between them; `None` if there is none of these, which chooses all nodes. Of a key
/// that is there twice, the last one counts. What no label can be is in no node's labels.
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
    // Kubernetes' own selectors know more than this: what means something else there is no label.
    let is_label = is_plain(key, b"-_./") && is_plain(value, b"-_.") && NodeSelector::parse(&text).is_ok();
    if is_label && !key.is_empty() { text } else { NOBODY.to_owned() }
}
