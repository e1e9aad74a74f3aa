//! Second part of the tour: pod CIDRs and routes.

use super::context::Context;
use super::{POD, POD_PORT, Step, TourAction};
use crate::CLUSTER;
use crate::assertion::Assertion;
use crate::pod_network::PodNetwork;
use crate::traffic::Probe;

/// Returns the only step.
pub(super) fn steps(context: &Context<'_>) -> Vec<Step> {
    vec![context.delete_routes()]
}

impl Context<'_> {
    fn delete_routes(&self) -> Step {
        let description =
            "The cloud has a route for each pod CIDR to the machine of its Node; without a route, Pods are not reachable.\n\
             This step deletes all routes from the cloud. The route controller creates them again at its next refresh:\n\
             every 3 s here, every 10 min in a cluster, and after each change of a Node."
                .to_owned();
        let table = format!("'{}/v1/routes?cluster={CLUSTER}'", self.cloud.url);
        let each = format!(r#"$(curl -sS {table} | grep -o '"id":"[^"]*"' | cut -d '"' -f 4)"#);
        let curl = self.curl_as_owner();
        let delete = format!(r#"{curl} -X DELETE "{}/v1/routes/$id?cluster={CLUSTER}""#, self.cloud.url);
        let mut commands = vec![
            "kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.spec.podCIDRs".to_owned(),
            format!("curl -sS {table}"),
            format!("kubectl get pod {POD} -o wide"),
        ];
        let mut assertions = vec![Assertion::AllRouted];
        let page = format!("curl -sS http://$(kubectl get pod {POD} -o jsonpath='{{.status.podIP}}'):{POD_PORT}");
        let answers = self.pods == PodNetwork::Reachable;
        commands.extend(answers.then(|| page.clone()));
        commands.push(format!("for id in {each}; do {delete}; done"));
        commands.extend(answers.then(|| format!("until {page}; do sleep 1; done")));
        assertions.extend(answers.then(|| Assertion::PodAnswers(Probe::Pod(POD.to_owned(), POD_PORT))));
        self.step("Delete all routes", description, TourAction::DeleteRoutes, commands, assertions)
    }
}
