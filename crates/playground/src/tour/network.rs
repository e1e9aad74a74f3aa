//! Between the first act and the second: where Pods live, and how they are found there.

use super::scene::Scene;
use super::{Act, POD, POD_PORT, Step};
use crate::CLUSTER;
use crate::claim::Claim;
use crate::pod_network::PodNetwork;
use crate::traffic::Probe;

/// One step.
pub(super) fn steps(scene: &Scene<'_>) -> Vec<Step> {
    vec![scene.lose_routes()]
}

impl Scene<'_> {
    fn lose_routes(&self) -> Step {
        let what = format!(
            "Each Node has a range for its Pods, and the cloud has a route for it to the Node's machine: so the Pod {POD} is\n\
             found. Now somebody empties the cloud's table. No Pod can be reached any more, until the routes are compared\n\
             with the cloud again: every 3 s here, every 10 min in a cluster, or when a Node changes.",
        );
        let table = format!("'{}/v1/routes?cluster={CLUSTER}'", self.cloud.url);
        let each = format!(r#"$(curl -sS {table} | grep -o '"id":"[^"]*"' | cut -d '"' -f 4)"#);
        let curl = self.curl_as_owner();
        let delete = format!(r#"{curl} -X DELETE "{}/v1/routes/$id?cluster={CLUSTER}""#, self.cloud.url);
        let mut commands = vec![
            "kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.spec.podCIDRs".to_owned(),
            format!("curl -sS {table}"),
            format!("kubectl get pod {POD} -o wide"),
        ];
        let mut claims = vec![Claim::AllLed];
        let page = format!("curl -sS http://$(kubectl get pod {POD} -o jsonpath='{{.status.podIP}}'):{POD_PORT}");
        let answers = self.pods == PodNetwork::Reachable;
        commands.extend(answers.then(|| page.clone()));
        commands.push(format!("for id in {each}; do {delete}; done"));
        commands.extend(answers.then(|| format!("until {page}; do sleep 1; done")));
        claims.extend(answers.then(|| Claim::PodAnswers(Probe::Pod(POD.to_owned(), POD_PORT))));
        self.step("Empty the route table", what, Act::LoseRoutes, commands, claims)
    }
}
