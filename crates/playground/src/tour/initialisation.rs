//! First part of the tour: Nodes register and are initialised.

use bowline_core::well_known::{INSTANCE_TYPE, REGION, UNINITIALIZED_TAINT, ZONE};

use super::context::Context;
use super::{POD, Step, TourAction};
use crate::assertion::Assertion;
use crate::node_monitor::{NETWORK_UNAVAILABLE_TAINT, NOT_READY_TAINT};

/// Returns the steps before and after the controllers start.
pub(super) fn steps(context: &Context) -> Vec<Step> {
    vec![context.uninitialised(), context.initialised()]
}

impl Context {
    fn uninitialised(&self) -> Step {
        let first = self.machine(1).name;
        let assertions = vec![
            Assertion::NodeCount(self.nodes),
            Assertion::AllTainted(UNINITIALIZED_TAINT),
            Assertion::Ready(first.clone(), "True"),
            Assertion::NoneTainted(NOT_READY_TAINT),
            Assertion::AllTainted(NETWORK_UNAVAILABLE_TAINT),
            Assertion::ProviderId(first.clone(), None),
            Assertion::Addresses(first.clone(), Vec::new()),
            Assertion::NoPodCidr(first),
            Assertion::PodPending(POD.to_owned()),
        ];
        let description = format!(
            "Each kubelet runs with --cloud-provider=external and registers its Node with the taint\n\
             node.cloudprovider.kubernetes.io/uninitialized. No controller runs yet: the Nodes have no provider ID, no\n\
             addresses and no pod CIDR, and the Pod {POD} stays Pending."
        );
        let views =
            vec!["kubectl get nodes".to_owned(), "kubectl get pods".to_owned(), "bowline cloud list".to_owned()];
        self.step("Before: uninitialised Nodes", description, TourAction::CreatePod, [Vec::new(), views], assertions)
    }

    fn initialised(&self) -> Step {
        let machine = self.machine(1);
        let name = || machine.name.clone();
        let mut assertions = vec![
            Assertion::NoneTainted(UNINITIALIZED_TAINT),
            Assertion::ProviderId(name(), Some(format!("local://{}", machine.id))),
            Assertion::Addresses(name(), machine.addresses.clone()),
        ];
        let values = [(INSTANCE_TYPE, &machine.instance_type), (REGION, &machine.region), (ZONE, &machine.zone)];
        for (label, value) in values {
            assertions.push(Assertion::Label(name(), label.beta, value.clone()));
            assertions.push(Assertion::Label(name(), label.ga, value.clone()));
        }
        assertions.extend([
            Assertion::UniquePodCidrs,
            Assertion::AllRouted,
            Assertion::NetworkUnavailable(name(), "False"),
            Assertion::NoneTainted(NETWORK_UNAVAILABLE_TAINT),
            Assertion::PodRunning(POD.to_owned()),
        ]);
        let description = format!(
            "The controllers start. They read all machines from the cloud, set provider ID, addresses and labels of\n\
             each Node, and remove the taint. They allocate a pod CIDR for each Node and create a route for it in the\n\
             cloud. The scheduler binds the Pod {POD} to a Node."
        );
        let views = vec![
            "kubectl get nodes -o wide".to_owned(),
            format!("kubectl get nodes -L {},{},{}", INSTANCE_TYPE.ga, REGION.ga, ZONE.ga),
            format!("kubectl describe node {}", machine.name),
            "kubectl get pods -o wide".to_owned(),
        ];
        self.step(
            "After: initialised Nodes",
            description,
            TourAction::StartControllers,
            [Vec::new(), views],
            assertions,
        )
    }
}
