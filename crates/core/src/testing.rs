//! What tests say about Nodes with few words, here and in the crates above this one (the feature `testing`).

use std::collections::BTreeMap;

use crate::{Address, AddressType, Node, Ready, Taint};

/// A Node that was just registered and of which nothing else is known.
pub fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        resource_version: "1".to_owned(),
        created: None,
        deleting: false,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        provider_id: None,
        taints: Vec::new(),
        pod_cidrs: Vec::new(),
        addresses: Vec::new(),
        ready: Ready::Unknown,
        system_uuid: None,
    }
}

/// A taint without value and time.
pub fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: effect.to_owned(), time_added: None }
}

/// `I10.0.0.1 Ehost …`, the notation of the case catalogue: I, E, H as there; D and X for internal and external DNS.
pub fn addresses(text: &str) -> Vec<Address> {
    text.split_whitespace().map(address).collect()
}

/// One address, in the notation of [`addresses`].
#[allow(clippy::panic, reason = "a test with a slip in it fails")]
pub fn address(text: &str) -> Address {
    let mut letters = text.chars();
    let kind = match letters.next() {
        Some('I') => AddressType::InternalIP,
        Some('E') => AddressType::ExternalIP,
        Some('H') => AddressType::Hostname,
        Some('D') => AddressType::InternalDNS,
        Some('X') => AddressType::ExternalDNS,
        _ => panic!("no type of address: {text:?}"),
    };
    Address::new(kind, letters.as_str())
}
