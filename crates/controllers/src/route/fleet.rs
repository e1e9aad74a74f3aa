//! Nodes that route plans are based on, and the cloud that owns each.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds};
use bowline_core::routes::Nodes;
use bowline_core::{Address, Node, NodeName, ProviderId};
use bowline_kube::Store;

/// Source of the Nodes.
enum Source<'a> {
    /// Watch cache.
    Store(&'a Store<Node>),
    /// Fresh list from the API server.
    List(HashMap<NodeName, Arc<Node>>),
}

/// All Nodes, seen from one cloud.
pub(crate) struct Fleet<'a> {
    source: Source<'a>,
    clouds: &'a Clouds,
    cloud: &'a Cloud,
    /// Built on first use: the routes of most clouds carry Node names.
    by_id: OnceCell<HashMap<ProviderId, Arc<Node>>>,
    /// The same for routes whose next hop is an address.
    by_address: OnceCell<HashMap<IpAddr, Arc<Node>>>,
}

/// Whether this cloud manages the routes of the Node: it owns the Node's machine, and the Node is not paused. A Node without a
/// provider ID belongs to the only configured cloud, or to none if there are several.
pub(super) fn owns(clouds: &Clouds, cloud: &Cloud, node: &Node) -> bool {
    let is_here = match &node.provider_id {
        Some(id) => clouds.owner(id).is_some_and(|owner| owner.name() == cloud.name()),
        None => clouds.iter().count() == 1,
    };
    is_here && !node.is_paused()
}

impl<'a> Fleet<'a> {
    /// Nodes of the watch cache.
    pub(super) fn from_store(nodes: &'a Store<Node>, clouds: &'a Clouds, cloud: &'a Cloud) -> Fleet<'a> {
        Fleet { source: Source::Store(nodes), clouds, cloud, by_id: OnceCell::new(), by_address: OnceCell::new() }
    }

    /// Nodes of a list.
    pub(crate) fn from_list(nodes: &[Arc<Node>], clouds: &'a Clouds, cloud: &'a Cloud) -> Fleet<'a> {
        let nodes = nodes.iter().map(|node| (node.name.clone(), node.clone())).collect();
        Fleet { source: Source::List(nodes), clouds, cloud, by_id: OnceCell::new(), by_address: OnceCell::new() }
    }

    /// Number of Nodes, in all clouds.
    pub(super) fn len(&self) -> usize {
        match &self.source {
            Source::Store(nodes) => nodes.len(),
            Source::List(nodes) => nodes.len(),
        }
    }

    /// Nodes that this cloud owns.
    pub(crate) fn owned(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.all();
        nodes.retain(|node| self.is_managed(node));
        nodes
    }

    fn all(&self) -> Vec<Arc<Node>> {
        match &self.source {
            Source::Store(nodes) => nodes.all(),
            Source::List(nodes) => nodes.values().cloned().collect(),
        }
    }

    fn index(&self) -> HashMap<ProviderId, Arc<Node>> {
        let by_provider_id = |node: Arc<Node>| Some((node.provider_id.clone()?, node));
        self.all().into_iter().filter_map(by_provider_id).collect()
    }

    /// Of several Nodes with one address, the first by name gets it: a stable choice keeps routes from flapping.
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
    fn by_name(&self, name: &NodeName) -> Option<Arc<Node>> {
        match &self.source {
            Source::Store(nodes) => nodes.get(name.as_str()),
            Source::List(nodes) => nodes.get(name).cloned(),
        }
    }

    fn by_provider_id(&self, id: &ProviderId) -> Option<Arc<Node>> {
        self.by_id.get_or_init(|| self.index()).get(id).cloned()
    }

    fn by_address(&self, address: IpAddr) -> Option<Arc<Node>> {
        self.by_address.get_or_init(|| self.index_addresses()).get(&address).cloned()
    }

    fn is_managed(&self, node: &Node) -> bool {
        owns(self.clouds, self.cloud, node)
    }
}
