//! The Nodes that decisions about routes are made from, and whose they are.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds};
use bowline_core::routes::Nodes;
use bowline_core::{Address, Node, NodeName, ProviderId};
use bowline_kube::Store;

/// Where the Nodes are looked up.
enum Source<'a> {
    /// Among those that we hear of.
    Heard(&'a Store<Node>),
    /// In a list.
    Listed(HashMap<NodeName, Arc<Node>>),
}

/// All Nodes, as one cloud sees them.
pub(crate) struct Fleet<'a> {
    source: Source<'a>,
    clouds: &'a Clouds,
    cloud: &'a Cloud,
    /// Made when it is first asked for: most clouds name the Nodes that their routes lead to.
    by_id: OnceCell<HashMap<ProviderId, Arc<Node>>>,
    /// The same for routes that lead to addresses.
    by_address: OnceCell<HashMap<IpAddr, Arc<Node>>>,
}

/// The routes of this Node are for this cloud to make: its machine is there, and no operator has said otherwise. A Node
/// that does not say where its machine is belongs to the only cloud there is, or to none.
pub(super) fn owns(clouds: &Clouds, cloud: &Cloud, node: &Node) -> bool {
    let is_here = match &node.provider_id {
        Some(id) => clouds.owner(id).is_some_and(|owner| owner.name() == cloud.name()),
        None => clouds.iter().count() == 1,
    };
    is_here && !node.is_paused()
}

impl<'a> Fleet<'a> {
    /// As they were last heard of.
    pub(super) fn heard(nodes: &'a Store<Node>, clouds: &'a Clouds, cloud: &'a Cloud) -> Fleet<'a> {
        Fleet { source: Source::Heard(nodes), clouds, cloud, by_id: OnceCell::new(), by_address: OnceCell::new() }
    }

    /// As they were listed.
    pub(crate) fn listed(nodes: &[Arc<Node>], clouds: &'a Clouds, cloud: &'a Cloud) -> Fleet<'a> {
        let nodes = nodes.iter().map(|node| (node.name.clone(), node.clone())).collect();
        Fleet { source: Source::Listed(nodes), clouds, cloud, by_id: OnceCell::new(), by_address: OnceCell::new() }
    }

    /// How many Nodes there are, in any cloud.
    pub(super) fn len(&self) -> usize {
        match &self.source {
            Source::Heard(nodes) => nodes.len(),
            Source::Listed(nodes) => nodes.len(),
        }
    }

    /// All that are this cloud's.
    pub(crate) fn own(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.all();
        nodes.retain(|node| self.is_ours(node));
        nodes
    }

    fn all(&self) -> Vec<Arc<Node>> {
        match &self.source {
            Source::Heard(nodes) => nodes.all(),
            Source::Listed(nodes) => nodes.values().cloned().collect(),
        }
    }

    fn index(&self) -> HashMap<ProviderId, Arc<Node>> {
        let with_id = |node: Arc<Node>| Some((node.provider_id.clone()?, node));
        self.all().into_iter().filter_map(with_id).collect()
    }

    /// Of Nodes that claim one address, the first by name has it: another one each time would move routes to and fro.
    fn index_addresses(&self) -> HashMap<IpAddr, Arc<Node>> {
        let mut nodes = self.all();
        nodes.sort_by(|a, b| b.name.cmp(&a.name));
        let with_addresses = |node: Arc<Node>| {
            let addresses: Vec<_> = node.addresses.iter().filter_map(Address::ip).collect();
            addresses.into_iter().map(move |address| (address, node.clone()))
        };
        nodes.into_iter().flat_map(with_addresses).collect()
    }
}

impl Nodes for Fleet<'_> {
    fn named(&self, name: &NodeName) -> Option<Arc<Node>> {
        match &self.source {
            Source::Heard(nodes) => nodes.get(name.as_str()),
            Source::Listed(nodes) => nodes.get(name).cloned(),
        }
    }

    fn with_id(&self, id: &ProviderId) -> Option<Arc<Node>> {
        self.by_id.get_or_init(|| self.index()).get(id).cloned()
    }

    fn with_address(&self, address: IpAddr) -> Option<Arc<Node>> {
        self.by_address.get_or_init(|| self.index_addresses()).get(&address).cloned()
    }

    fn is_ours(&self, node: &Node) -> bool {
        owns(self.clouds, self.cloud, node)
    }
}
