//! The first act: Nodes come, and become usable.

use bowline_core::well_known::{INSTANCE_TYPE, REGION, UNINITIALIZED_TAINT, ZONE};

use super::scene::Scene;
use super::{Act, POD, Step};
use crate::claim::Claim;
use crate::node_monitor::{NO_NETWORK as NO_NETWORK_TAINT, NOT_READY as NOT_READY_TAINT};

/// Before and after.
pub(super) fn steps(scene: &Scene<'_>) -> Vec<Step> {
    vec![scene.before(), scene.after()]
}

impl Scene<'_> {
    fn before(&self) -> Step {
        let first = self.machine(1).name;
        let claims = vec![
            Claim::NodeCount(self.nodes),
            Claim::AllTainted(UNINITIALIZED_TAINT),
            Claim::Ready(first.clone(), "True"),
            Claim::NoneTainted(NOT_READY_TAINT),
            Claim::AllTainted(NO_NETWORK_TAINT),
            Claim::ProviderId(first.clone(), None),
            Claim::Addresses(first.clone(), Vec::new()),
            Claim::NoPodRange(first),
            Claim::PodWaits(POD.to_owned()),
        ];
        let what = format!(
            "Kubelets register their Nodes with --cloud-provider=external; no controller runs yet.\n\
             The Nodes are ready, but tainted, and nothing says what they are, or where their Pods could live. The Pod {POD}\n\
             has nowhere to go."
        );
        self.step("Before: Nodes that nobody may use", what, Act::CreatePod, Vec::new(), claims)
    }

    fn after(&self) -> Step {
        let machine = self.machine(1);
        let name = || machine.name.clone();
        let mut claims = vec![
            Claim::NoneTainted(UNINITIALIZED_TAINT),
            Claim::ProviderId(name(), Some(format!("local://{}", machine.id))),
            Claim::Addresses(name(), machine.addresses.clone()),
        ];
        let values = [(INSTANCE_TYPE, &machine.instance_type), (REGION, &machine.region), (ZONE, &machine.zone)];
        for (label, value) in values {
            claims.push(Claim::Label(name(), label.beta, value.clone()));
            claims.push(Claim::Label(name(), label.ga, value.clone()));
        }
        claims.extend([
            Claim::OwnPodRanges,
            Claim::AllLed,
            Claim::NetworkUnavailable(name(), "False"),
            Claim::NoneTainted(NO_NETWORK_TAINT),
            Claim::PodRuns(POD.to_owned()),
        ]);
        let what = "The controllers start. They ask the cloud about all Nodes at once, write down what they hear, and\n\
                    take the taint off. Each Node gets a range for its Pods, and the cloud a route that leads it there. The\n\
                    Pod gets its Node.";
        let commands = vec![
            "kubectl get nodes -o wide".to_owned(),
            format!("kubectl get nodes -L {},{},{}", INSTANCE_TYPE.ga, REGION.ga, ZONE.ga),
            format!("kubectl describe node {}", machine.name),
            "kubectl get pods -o wide".to_owned(),
        ];
        self.step("After: the cloud has said what they are", what.to_owned(), Act::StartControllers, commands, claims)
    }
}
