//! The last act: machines stop, vanish and come, and the cloud is not always to be believed.

use std::time::Duration;

use bowline_core::well_known::{ALLOW_DELETION, SHUTDOWN_TAINT, UNINITIALIZED_TAINT};
use serde_json::json;

use super::scene::Scene;
use super::{Act, Step};
use crate::CLUSTER;
use crate::claim::Claim;

/// How long nothing may be deleted, to be believed: time enough for several looks and for their confirmation.
const NOTHING_GOES: Duration = Duration::from_millis(1_500);

/// All of it, as far as there are Nodes enough.
pub(super) fn steps(scene: &Scene<'_>) -> Vec<Step> {
    let mut steps = vec![scene.stop()];
    // With one Node there is no other by which the lie could be told from the truth.
    if scene.nodes > 1 {
        steps.push(scene.lie());
    }
    steps.extend([scene.recover(), scene.delete(), scene.add()]);
    // Of fewer, no share is too large: one Node may always go.
    if scene.nodes > 2 {
        steps.extend([scene.brake(), scene.release()]);
    }
    steps
}

impl Scene<'_> {
    fn stop(&self) -> Step {
        let (node, id) = (self.node(), self.id());
        let what = format!(
            "The machine {id} is stopped. Its kubelet falls silent, the Node becomes unknown after {:.0} s (40 s in a real\n\
             cluster), the cloud is asked, and the Node is tainted. It is not deleted: the machine still exists.",
            self.pace.silence.as_secs_f64()
        );
        let commands = vec![
            self.post(&format!("instances/{id}/stop"), ""),
            format!("kubectl wait --for=condition=Ready=Unknown node/{node} --timeout=60s"),
            "sleep 2".to_owned(),
            format!(
                r#"kubectl get node {node} -o jsonpath='{{range .spec.taints[*]}}{{.key}}:{{.effect}}{{"\n"}}{{end}}'"#
            ),
            "kubectl get nodes".to_owned(),
        ];
        let claims = vec![Claim::Ready(node.clone(), "Unknown"), Claim::Tainted(node, SHUTDOWN_TAINT)];
        self.step("Stop a machine", what, Act::Stop(id), commands, claims)
    }

    fn lie(&self) -> Step {
        let node = self.node();
        let what = format!(
            "The cloud answers, and shows no machines at all, as with the credentials of the wrong project.\n\
             {node} is not ready and nowhere to be seen, but an answer without it is no proof: nothing is deleted, and an\n\
             Event says why."
        );
        let commands = vec![
            self.post("faults", r#"{"fault":"empty"}"#),
            "sleep 3".to_owned(),
            "kubectl get nodes".to_owned(),
            format!("kubectl get events --field-selector involvedObject.name={node}"),
        ];
        let claims = vec![Claim::Present(node), Claim::NodeCount(self.nodes)];
        let step = self.step("The cloud lies", what, Act::Lie, commands, claims);
        Step { lasting: NOTHING_GOES, ..step }
    }

    fn recover(&self) -> Step {
        let (node, id) = (self.node(), self.id());
        let what = format!("The cloud tells the truth again and {id} is started: its kubelet is back, the taint goes.");
        let commands = vec![
            self.delete_call("faults"),
            self.post(&format!("instances/{id}/start"), ""),
            format!("kubectl wait --for=condition=Ready node/{node} --timeout=60s"),
            format!("kubectl describe node {node}"),
        ];
        let claims = vec![Claim::Ready(node.clone(), "True"), Claim::Untainted(node, SHUTDOWN_TAINT), Claim::AllLed];
        self.step("Start the machine again", what, Act::Recover(id), commands, claims)
    }

    fn delete(&self) -> Step {
        let (node, id) = (self.node(), self.id());
        let what = format!(
            "The machine {id} is deleted. The cloud is asked twice, past every cache, and shows the other machines;\n\
             now there is no doubt, and the Node goes. So does its route, and another Node may have its pod range."
        );
        let commands = vec![
            self.delete_call(&format!("instances/{id}")),
            format!("kubectl wait --for=delete node/{node} --timeout=60s"),
            "kubectl get nodes".to_owned(),
            format!("curl -sS '{}/v1/routes?cluster={CLUSTER}'", self.cloud.url),
        ];
        let claims =
            vec![Claim::Gone(node), Claim::NodeCount(self.nodes.saturating_sub(1)), Claim::NoRouteTo(id.clone())];
        self.step("Delete the machine", what, Act::Delete(id), commands, claims)
    }

    fn add(&self) -> Step {
        let new = self.machine(self.nodes + 1);
        let claims = vec![
            Claim::Ready(new.name.clone(), "True"),
            Claim::Untainted(new.name.clone(), UNINITIALIZED_TAINT),
            Claim::ProviderId(new.name.clone(), Some(format!("local://{}", new.id))),
            Claim::NetworkUnavailable(new.name.clone(), "False"),
            Claim::AllLed,
        ];
        let body = json!({
            "id": new.id, "name": new.name, "instanceType": new.instance_type, "zone": new.zone, "region": new.region,
            "addresses": new.addresses,
        });
        let commands = vec![
            self.post("instances", &body.to_string()),
            "sleep 2".to_owned(),
            format!("kubectl get node {} -o wide", new.name),
            format!("kubectl describe node {}", new.name),
            format!("curl -sS {}/v1/calls", self.cloud.url),
        ];
        let what = "A new machine comes, and its Node with it. It gets a pod range and a route, and then says that its network\n\
                    is there. The last command shows how few calls all this took.";
        self.step("Add a machine", what.to_owned(), Act::Add(Box::new(new)), commands, claims)
    }

    fn brake(&self) -> Step {
        let (first, last) = (self.machine(1).name, self.nodes.saturating_sub(1));
        let what = format!(
            "The machines m-1 to m-{last} are deleted, all at once. There is no doubt that they are gone, but so many at\n\
             a time look like a mistake: if more than a third of the Nodes would go, none goes. Events say so."
        );
        let commands = vec![
            format!("for n in $(seq {last}); do {}; done", self.delete_call("instances/m-$n")),
            "sleep 5".to_owned(),
            "kubectl get nodes".to_owned(),
            format!("kubectl get events --field-selector involvedObject.name={first}"),
        ];
        let claims = vec![Claim::Ready(first, "Unknown"), Claim::NodeCount(self.nodes)];
        let step = self.step("Too much vanishes", what, Act::DeleteMany(1..=last), commands, claims);
        Step { lasting: NOTHING_GOES, ..step }
    }

    fn release(&self) -> Step {
        let what = "An operator who knows better says so on the Nodes, and the brake lets them go. Those that are ready stay\n\
                    whatever is written on them.";
        let first = self.machine(1).name;
        let commands = vec![
            format!("kubectl annotate nodes --all {ALLOW_DELETION}=true"),
            format!("kubectl wait --for=delete node/{first} --timeout=60s"),
            "kubectl get nodes".to_owned(),
        ];
        let claims = vec![Claim::Gone(first), Claim::NodeCount(1), Claim::Present(self.machine(self.nodes + 1).name)];
        self.step("Release the brake", what.to_owned(), Act::AllowDeletion, commands, claims)
    }
}
