//! What the unit tests of this crate share.

use std::collections::BTreeMap;

use bowline_core::{Node, Ready};

/// A Node with nothing on it.
pub(crate) fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid of {name}"),
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
