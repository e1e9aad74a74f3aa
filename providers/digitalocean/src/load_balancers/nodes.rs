//! Which Nodes can be targets, and which IP families they allow.

use std::net::IpAddr;

use bowline_core::{AddressType, TargetNode};

use super::annotations as keys;
use super::request::{BuildError, LoadBalancerType, Network, NetworkStack};
use crate::NAME;

/// Maximum number of Nodes in a message.
const MAX_NAMES: usize = 3;

/// IP families of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Families {
    Dual,
    Ipv4,
    Ipv6,
    None,
}

/// A Node with what its addresses allow.
pub(super) struct NodeInfo<'a> {
    node: &'a TargetNode,
    external: Families,
    has_internal_v4: bool,
}

/// Nodes that can be targets.
pub(super) struct EligibleNodes<'a> {
    pub(super) nodes: Vec<&'a TargetNode>,
    dual: usize,
    /// Names of the Nodes with IPv4 only.
    ipv4_only: Vec<&'a str>,
    /// Whether the Nodes are known at all.
    is_known: bool,
}

impl<'a> NodeInfo<'a> {
    pub(super) fn of(node: &'a TargetNode) -> NodeInfo<'a> {
        // upstream: an address that cannot be parsed counts as IPv4.
        let is_v6 = |address: &str| matches!(address.parse(), Ok(IpAddr::V6(_)));
        let of_kind = |kind| node.addresses.iter().filter(move |address| address.kind == kind);
        let (v6, v4): (Vec<_>, Vec<_>) = of_kind(AddressType::ExternalIP).partition(|address| is_v6(&address.address));
        let external = match (v4.is_empty(), v6.is_empty()) {
            (false, false) => Families::Dual,
            (false, true) => Families::Ipv4,
            (true, false) => Families::Ipv6,
            (true, true) => Families::None,
        };
        let has_internal_v4 = of_kind(AddressType::InternalIP).any(|address| !is_v6(&address.address));
        NodeInfo { node, external, has_internal_v4 }
    }

    /// Families by which a load balancer of this type reaches the Node from outside the VPC. A proxy also uses private addresses.
    fn families(&self, kind: LoadBalancerType) -> Families {
        match self.external {
            Families::None if kind == LoadBalancerType::Regional && self.has_internal_v4 => Families::Ipv4,
            families => families,
        }
    }
}

impl<'a> EligibleNodes<'a> {
    /// Selects the Nodes that a load balancer can reach. `None` if the Nodes are not known.
    pub(super) fn of(
        nodes: Option<Vec<NodeInfo<'a>>>,
        kind: LoadBalancerType,
        network: Network,
    ) -> Result<EligibleNodes<'a>, BuildError> {
        let is_known = nodes.is_some();
        // Nodes of other clouds have no Droplet.
        let is_ours = |info: &NodeInfo<'_>| info.node.provider_id.as_ref().is_none_or(|id| id.prefix() == Some(NAME));
        let nodes: Vec<_> = nodes.unwrap_or_default().into_iter().filter(is_ours).collect();
        if network == Network::Internal {
            let nodes = nodes.iter().map(|info| info.node).collect();
            return Ok(EligibleNodes { nodes, dual: 0, ipv4_only: Vec::new(), is_known });
        }
        let of =
            |families: Families| nodes.iter().filter(move |info| info.families(kind) == families).map(|info| info.node);
        let is_ready = |info: &&NodeInfo<'_>| matches!(info.families(kind), Families::Dual | Families::Ipv4);
        let ready: Vec<_> = nodes.iter().filter(is_ready).map(|info| info.node).collect();
        let is_network = kind == LoadBalancerType::RegionalNetwork;
        if is_network && ready.is_empty() && of(Families::None).next().is_some() {
            return Err(BuildError { has_event: true, ..no_public_node().into() });
        }
        let ipv4_only = of(Families::Ipv4).map(|node| node.node.as_str()).collect();
        Ok(EligibleNodes { dual: of(Families::Dual).count(), ipv4_only, nodes: ready, is_known })
    }

    /// Returns the network stack: the requested one, or a default that the Nodes allow.
    pub(super) fn network_stack(
        &self,
        requested: Option<&str>,
        kind: LoadBalancerType,
        network: Network,
    ) -> Result<NetworkStack, BuildError> {
        if self.is_known && self.nodes.is_empty() {
            let error = BuildError::from("no ready nodes available for load balancer");
            return Err(BuildError { lacks_nodes: true, ..error });
        }
        let is_dual = self.is_known && self.dual > 0 && self.ipv4_only.is_empty();
        let stack = match (requested, network, kind) {
            (Some(text), ..) => {
                NetworkStack::parse(text).ok_or("only LB network stacks supported are (IPV4, DUALSTACK)")?
            }
            (None, Network::External, LoadBalancerType::Regional) => NetworkStack::DualStack,
            (None, Network::External, LoadBalancerType::RegionalNetwork) if is_dual => NetworkStack::DualStack,
            (None, ..) => NetworkStack::Ipv4,
        };
        match (stack, network, kind) {
            (NetworkStack::Ipv4, ..) => Ok(stack),
            (_, Network::Internal, _) => {
                Err(stack_error("dual stack networking is not supported for internal load balancer".to_owned()))
            }
            (_, _, LoadBalancerType::RegionalNetwork) if requested.is_some() && !self.ipv4_only.is_empty() => {
                Err(stack_error(self.nodes_without_ipv6()))
            }
            _ => Ok(stack),
        }
    }

    fn nodes_without_ipv6(&self) -> String {
        let mut names = self.ipv4_only.clone();
        names.sort_unstable();
        let rest = names.len().saturating_sub(MAX_NAMES);
        let shown = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
        let more = if rest > 0 { format!(" [+{rest} more]") } else { String::new() };
        format!(
            "dual-stack networking requested but {} nodes lack IPv6 addresses: {shown}{more}. REGIONAL_NETWORK load balancers \
             require all nodes to have IPv6 for dual-stack mode",
            names.len()
        )
    }
}

fn stack_error(message: String) -> BuildError {
    BuildError { has_event: true, ..format!("network stack configuration error: {message}").into() }
}

fn no_public_node() -> String {
    format!(
        "no eligible load balancer backends: REGIONAL_NETWORK EXTERNAL load balancers require at least one node with a public IPv4 \
         address; no eligible backends found. For private-only nodes, set {} to \"REGIONAL\" or {} to \"INTERNAL\".",
        keys::TYPE.key,
        keys::NETWORK.key
    )
}
