//! Second part of the tour: pod CIDRs and routes.

use super::context::Context;
use super::run::pod_address_of;
use super::{POD, POD_PORT, Step, TourAction};
use crate::CLUSTER;
use crate::assertion::Assertion;
use crate::pod_network::PodNetwork;
use crate::traffic::Probe;

/// Returns the only step.
pub(super) fn steps(context: &Context) -> Vec<Step> {
    vec![context.delete_routes()]
}

impl Context {
    fn delete_routes(&self) -> Step {
        let description =
            "The cloud has a route for each pod CIDR to the machine of its Node; without a route, Pods are not reachable.\n\
             This step deletes all routes from the cloud. The route controller lists the routes every 3 s here, every 10 min\n\
             in a cluster, and after each change of a Node. It does not believe a single list that lacks most routes:\n\
             when later lists confirm it, ten seconds after the first, the routes are created again."
                .to_owned();
        let commands = vec![format!("bowline cloud delete-route --all --cluster {CLUSTER}")];
        let mut views = vec![
            "bowline cloud routes".to_owned(),
            "kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.spec.podCIDRs".to_owned(),
        ];
        let mut assertions = vec![Assertion::AllRouted];
        if self.pods == PodNetwork::Reachable {
            views.push(format!("curl -sS http://{}:{POD_PORT}", pod_address_of(POD)));
            assertions.push(Assertion::PodAnswers(Probe::Pod(POD.to_owned(), POD_PORT)));
        }
        let commands = [commands, views];
        self.step("Delete all routes", description, TourAction::DeleteRoutes, commands, assertions)
    }
}
