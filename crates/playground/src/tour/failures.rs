//! Last part of the tour: machines are stopped, deleted and added, and the cloud returns wrong answers.

use std::time::Duration;

use bowline_core::well_known::{ALLOW_DELETION, SHUTDOWN_TAINT, UNINITIALIZED_TAINT};
use bowline_local::NewMachine;

use super::context::Context;
use super::{Step, TourAction};
use crate::assertion::Assertion;

/// Time for which no Node may be deleted: enough for several checks and their confirmation.
const NO_DELETION_PERIOD: Duration = Duration::from_millis(1_500);

/// Returns the steps that are possible with this number of Nodes.
pub(super) fn steps(context: &Context) -> Vec<Step> {
    let mut steps = vec![context.stop()];
    // Needs a second Node: the list of machines is doubtful only if other machines are missing as well.
    if context.nodes > 1 {
        steps.push(context.hide_machines());
    }
    steps.extend([context.restore(), context.delete(), context.add()]);
    // With fewer Nodes the brake does not hold: one Node may always be deleted.
    if context.nodes > 2 {
        steps.extend([context.brake(), context.release()]);
    }
    steps
}

impl Context {
    fn stop(&self) -> Step {
        let (node, id) = (self.node(), self.id());
        let description = format!(
            "The machine {id} is stopped, and its kubelet sends no heartbeats. After {:.0} s (40 s in a real cluster)\n\
             the condition Ready of the Node becomes Unknown. The controller queries the cloud and taints the Node. It\n\
             does not delete the Node, because the machine still exists.",
            self.timing.grace_period.as_secs_f64()
        );
        let views = vec![
            "kubectl get nodes".to_owned(),
            "bowline cloud list".to_owned(),
            format!(
                r#"kubectl get node {node} -o jsonpath='{{range .spec.taints[*]}}{{.key}}:{{.effect}}{{"\n"}}{{end}}'"#
            ),
        ];
        let commands = [vec![format!("bowline cloud stop {id}")], views];
        let assertions = vec![Assertion::Ready(node.clone(), "Unknown"), Assertion::Tainted(node, SHUTDOWN_TAINT)];
        self.step("Stop a machine", description, TourAction::Stop(id), commands, assertions)
    }

    fn hide_machines(&self) -> Step {
        let node = self.node();
        let description = format!(
            "The cloud returns an empty list of machines, as it would with the credentials of another project. {node}\n\
             is not ready and not in the list, but an empty list does not prove that a machine is deleted: the\n\
             controller deletes no Node, and an Event gives the reason."
        );
        let views = vec![
            "kubectl get nodes".to_owned(),
            format!("kubectl get events --field-selector involvedObject.name={node}"),
        ];
        let commands = [vec!["bowline cloud fault empty".to_owned()], views];
        let assertions = vec![Assertion::Exists(node), Assertion::NodeCount(self.nodes)];
        let step =
            self.step("The cloud lists no machines", description, TourAction::HideMachines, commands, assertions);
        Step { duration: NO_DELETION_PERIOD, ..step }
    }

    fn restore(&self) -> Step {
        let (node, id) = (self.node(), self.id());
        let description = format!(
            "The cloud lists all machines again, and {id} is started. Its kubelet sends heartbeats, and the taint is\n\
             removed."
        );
        let commands = vec!["bowline cloud repair".to_owned(), format!("bowline cloud start {id}")];
        let commands = [commands, vec!["kubectl get nodes".to_owned(), format!("kubectl describe node {node}")]];
        let assertions = vec![
            Assertion::Ready(node.clone(), "True"),
            Assertion::Untainted(node, SHUTDOWN_TAINT),
            Assertion::AllRouted,
        ];
        self.step("Start the machine again", description, TourAction::RestoreAndStart(id), commands, assertions)
    }

    fn delete(&self) -> Step {
        let (node, id) = (self.node(), self.id());
        let description = format!(
            "The machine {id} is deleted. The controller queries the cloud twice, without caches. Both times the cloud\n\
             lists the other machines and not this one, so the controller deletes the Node. Its route is deleted, and\n\
             its pod CIDR is free for another Node."
        );
        let views = vec!["kubectl get nodes".to_owned(), "bowline cloud routes".to_owned()];
        let commands = [vec![format!("bowline cloud delete {id}")], views];
        let assertions = vec![
            Assertion::Deleted(node),
            Assertion::NodeCount(self.nodes.saturating_sub(1)),
            Assertion::NoRouteTo(id.clone()),
        ];
        self.step("Delete the machine", description, TourAction::Delete(id), commands, assertions)
    }

    fn add(&self) -> Step {
        let new = self.machine(self.nodes + 1);
        let assertions = vec![
            Assertion::Ready(new.name.clone(), "True"),
            Assertion::Untainted(new.name.clone(), UNINITIALIZED_TAINT),
            Assertion::ProviderId(new.name.clone(), Some(format!("local://{}", new.id))),
            Assertion::NetworkUnavailable(new.name.clone(), "False"),
            Assertion::AllRouted,
        ];
        let NewMachine { id, name, instance_type, zone, region, .. } = &new;
        let addresses: String = new.addresses.iter().map(|address| format!(" --address {address}")).collect();
        let add = format!(
            "bowline cloud add {name} --id {id} --type {instance_type} --zone {zone} --region {region}{addresses}"
        );
        let views = vec![
            format!("kubectl get node {name} -o wide"),
            format!("kubectl describe node {name}"),
            "bowline cloud calls".to_owned(),
        ];
        let commands = [vec![add], views];
        let description = "A new machine boots, and its kubelet registers a Node. The Node is initialised and gets a pod CIDR and a\n\
                    route, and its condition NetworkUnavailable becomes False. The last command shows how few API calls the\n\
                    cloud received.";
        self.step("Add a machine", description.to_owned(), TourAction::Add(Box::new(new)), commands, assertions)
    }

    fn brake(&self) -> Step {
        let (first, last) = (self.machine(1).name, self.nodes.saturating_sub(1));
        let description = format!(
            "The machines m-1 to m-{last} are deleted at the same time. It is certain that they are gone, but deleting\n\
             most of the Nodes at once looks like a mistake: if more than a third of the Nodes would be deleted, the\n\
             brake holds back all deletions. Events say so."
        );
        let machines: Vec<_> = (1..=last).map(|number| self.machine(number).id).collect();
        let views = vec![
            "kubectl get nodes".to_owned(),
            format!("kubectl get events --field-selector involvedObject.name={first}"),
        ];
        let commands = [vec![format!("bowline cloud delete {}", machines.join(" "))], views];
        let assertions = vec![Assertion::Ready(first, "Unknown"), Assertion::NodeCount(self.nodes)];
        let step = self.step(
            "Delete most machines at once",
            description,
            TourAction::DeleteMany(1..=last),
            commands,
            assertions,
        );
        Step { duration: NO_DELETION_PERIOD, ..step }
    }

    fn release(&self) -> Step {
        let description = "The annotation on the Nodes confirms that they may be deleted, and the brake is released. Nodes that are\n\
                    ready are not deleted, even with the annotation.";
        let first = self.machine(1).name;
        let annotate = format!("kubectl annotate nodes --all {ALLOW_DELETION}=true");
        let commands = [vec![annotate], vec!["kubectl get nodes".to_owned(), "bowline cloud list".to_owned()]];
        let assertions = vec![
            Assertion::Deleted(first),
            Assertion::NodeCount(1),
            Assertion::Exists(self.machine(self.nodes + 1).name),
        ];
        self.step("Release the brake", description.to_owned(), TourAction::AllowDeletion, commands, assertions)
    }
}
