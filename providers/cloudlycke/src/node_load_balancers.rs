//! Addresses of Nodes in place of load balancers, for tests on a single machine: the address of a Service is that of its first Node, where
//! kube-proxy accepts the traffic, and applies source ranges and session affinity. Nothing is created, so no call is made, and clients lose the Service with that Node.

use std::net::IpAddr;

use async_trait::async_trait;
use bowline_cloud::{
    Applied, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, Result, TypedLoadBalancers,
};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Ingress, IpFamily, IpMode, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState,
    LoadBalancerStatus, Plan, PortStatus, Warning,
};

/// Reason of the Event that says where the address comes from.
const IS_NODE: &str = "LoadBalancerIsNode";

/// Load balancers that are addresses of Nodes.
pub(crate) struct NodeLoadBalancers;

/// Address of a Service, with the name of its Node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeAddress {
    node: String,
    ip: IpAddr,
}

pub(crate) fn capabilities() -> LoadBalancerCapabilities {
    let kind = LoadBalancerKind {
        name: "node",
        tcp: true,
        udp: true,
        sctp: true,
        mixed_protocols: true,
        source_ranges: true,
        session_affinity: true,
        needs_targets: true,
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        dual_stack: true,
        ..LoadBalancerKind::default()
    };
    LoadBalancerCapabilities::of(kind)
}

#[async_trait]
impl TypedLoadBalancers for NodeLoadBalancers {
    type State = Vec<NodeAddress>;
    type Change = ();
    type Polled = ();

    async fn observe(
        &self,
        desired: &[DesiredLoadBalancer],
    ) -> Vec<Result<Option<LoadBalancerState<Vec<NodeAddress>>>>> {
        let state = |desired: &DesiredLoadBalancer| {
            let spec = desired.spec.as_ref()?;
            let addresses = addresses(spec);
            Some(LoadBalancerState::new(status(spec, &addresses, desired.settings.ip_mode), addresses))
        };
        desired.iter().map(|desired| Ok(state(desired))).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(Vec::new())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, _: Option<&Vec<NodeAddress>>) -> Result<Plan<()>> {
        let addresses = desired.spec.as_ref().map(|spec| addresses(spec)).unwrap_or_default();
        let shown: Vec<_> =
            addresses.iter().map(|NodeAddress { node, ip }| format!("{ip} of the Node {node}")).collect();
        let message = format!(
            "the address of the Service is {}, because loadBalancer is node; clients lose the Service with that Node",
            shown.join(", ")
        );
        let warning = Warning { reason: IS_NODE.to_owned(), message };
        let warnings = (!shown.is_empty()).then_some(warning).into_iter().collect();
        Ok(Plan { warnings, ..Plan::default() })
    }

    async fn apply(&self, _: &LoadBalancerKey, (): &(), _: Option<&()>) -> Result<Applied<Vec<NodeAddress>>> {
        Err(Error::new(ErrorKind::Unexpected, "change a load balancer", "an address of a Node needs no change"))
    }
}

/// Returns the first address of each IP family, of the first Node that has one.
fn addresses(spec: &LoadBalancerSpec) -> Vec<NodeAddress> {
    let address = |family: &IpFamily| {
        let targets = spec.targets.iter().filter(|target| !target.draining);
        targets.into_iter().find_map(|target| {
            let ip = target.address(Some(*family))?.parse().ok()?;
            Some(NodeAddress { node: target.node.to_string(), ip })
        })
    };
    spec.ip_families.iter().filter_map(address).collect()
}

/// Status with the addresses. Default of the IP mode: [`IpMode::Vip`], because packets arrive with the address of the Service, and
/// kube-proxy distributes them.
fn status(spec: &LoadBalancerSpec, addresses: &[NodeAddress], ip_mode: Option<IpMode>) -> LoadBalancerStatus {
    let port = |port: &bowline_core::PortSpec| PortStatus { port: port.port, protocol: port.protocol, error: None };
    let ingress = |address: &NodeAddress| Ingress {
        ip: Some(address.ip.to_string()),
        hostname: None,
        ip_mode: Some(ip_mode.unwrap_or(IpMode::Vip)),
        ports: spec.ports.iter().map(port).collect(),
    };
    LoadBalancerStatus { ingress: addresses.iter().map(ingress).collect() }
}

#[cfg(test)]
mod tests {
    use bowline_core::{TargetNode, testing};

    use super::*;

    #[tokio::test]
    async fn the_address_is_that_of_the_first_node_and_the_plan_shows_it() {
        let mut desired = testing::desired("default/web", &[]);
        let target = |node: &str, addresses: &str| TargetNode {
            addresses: testing::addresses(addresses),
            ..testing::target(node)
        };
        let targets = [target("node-b", "I10.0.0.2 Ifd00::2"), target("node-a", "I10.0.0.1 E192.0.2.1")];
        let spec = desired.spec.take().unwrap();
        let ip_families = vec![IpFamily::IPv4, IpFamily::IPv6];
        let spec = LoadBalancerSpec { targets: targets.into_iter().collect(), ip_families, ..(*spec).clone() };
        let desired = DesiredLoadBalancer { spec: Some(spec.into()), ..desired };
        let state = NodeLoadBalancers.observe(std::slice::from_ref(&desired)).await.remove(0).unwrap().unwrap();
        let ips: Vec<_> = state.status.ingress.iter().filter_map(|ingress| ingress.ip.as_deref()).collect();
        assert_eq!(ips, ["10.0.0.1", "fd00::2"]);
        let plan = NodeLoadBalancers.plan(&desired, None).unwrap();
        assert!(plan.steps.is_empty());
        assert!(
            plan.warnings[0]
                .message
                .starts_with("the address of the Service is 10.0.0.1 of the Node node-a, fd00::2 of")
        );
        let deleted = DesiredLoadBalancer { spec: None, ..desired };
        assert_eq!(NodeLoadBalancers.observe(std::slice::from_ref(&deleted)).await.remove(0).unwrap(), None);
        assert!(NodeLoadBalancers.plan(&deleted, None).unwrap().warnings.is_empty());
    }
}
