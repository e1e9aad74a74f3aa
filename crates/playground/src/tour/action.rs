//! Actions of the steps, and whether an action was already performed, such as by a user in another terminal.

use std::ops::RangeInclusive;

use bowline_core::well_known::ALLOW_DELETION;
use bowline_local::{Fault, MachineState, NewMachine};
use kube::ResourceExt as _;

use crate::assertion::Snapshot;
use crate::manifest::{Manifest, Ports};

/// Action of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TourAction {
    /// Creates a Pod.
    CreatePod,
    /// Starts the controllers.
    StartControllers,
    /// Removes all routes from the cloud.
    DeleteRoutes,
    /// Applies the objects of a file, with these ports.
    Apply(Manifest, Ports),
    /// Deletes the Pod of this name.
    DeletePod(String),
    /// Sets the external traffic policy of the Service of this name to `Local`.
    SetPolicyLocal(String),
    /// Deletes the Service of this name.
    DeleteService(String),
    /// Stops the machine of this ID.
    Stop(String),
    /// Makes the cloud return an empty list of machines.
    HideMachines,
    /// Makes the cloud list all machines again, and starts the machine of this ID.
    RestoreAndStart(String),
    /// Deletes the machine of this ID.
    Delete(String),
    /// Creates a machine.
    Add(Box<NewMachine>),
    /// Deletes the machines of these numbers, all at once.
    DeleteMany(RangeInclusive<usize>),
    /// Sets the annotation `bowline.dev/allow-deletion` on all Nodes.
    AllowDeletion,
}

impl TourAction {
    /// Returns whether only the playground can perform the action, as part of its start.
    pub fn is_automatic(&self) -> bool {
        *self == TourAction::CreatePod
    }

    /// Returns whether the action was performed between these two observations, or before the first one.
    pub(super) fn is_performed(&self, before: &Snapshot, now: &Snapshot) -> bool {
        match self {
            TourAction::CreatePod | TourAction::StartControllers => false,
            TourAction::DeleteRoutes => {
                let remains = |id: &str| now.routes.iter().any(|route| route.id == id);
                !before.routes.is_empty() && !before.routes.iter().any(|route| remains(&route.id))
            }
            TourAction::Apply(manifest, ports) => manifest.is_applied(*ports, now),
            TourAction::DeletePod(name) => now.pod(name).is_none(),
            TourAction::SetPolicyLocal(name) => {
                now.service(name).is_some_and(|service| service.spec.external_traffic_policy == "Local")
            }
            TourAction::DeleteService(name) => {
                now.service(name).is_none_or(|service| service.metadata.deletion_timestamp.is_some())
            }
            TourAction::Stop(id) => state(now, id) == Some(MachineState::Stopped),
            TourAction::HideMachines => now.faults.contains(&Fault::Empty),
            TourAction::RestoreAndStart(id) => now.faults.is_empty() && state(now, id) == Some(MachineState::Running),
            TourAction::Delete(id) => state(now, id).is_none(),
            TourAction::Add(machine) => state(now, &machine.id).is_some(),
            TourAction::DeleteMany(numbers) => {
                numbers.clone().all(|number| state(now, &format!("m-{number}")).is_none())
            }
            TourAction::AllowDeletion => {
                now.nodes.iter().all(|node| node.annotations().get(ALLOW_DELETION).is_some_and(|value| value == "true"))
            }
        }
    }
}

fn state(snapshot: &Snapshot, id: &str) -> Option<MachineState> {
    snapshot.machines.iter().find(|machine| machine.spec.id == id).map(|machine| machine.state)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::{HELLO, HELLO_UDP};

    fn snapshot(value: serde_json::Value) -> Snapshot {
        let list = |name: &str| value.get(name).cloned().unwrap_or_else(|| json!([]));
        Snapshot {
            nodes: serde_json::from_value(list("nodes")).unwrap(),
            pods: serde_json::from_value(list("pods")).unwrap(),
            services: serde_json::from_value(list("services")).unwrap(),
            routes: serde_json::from_value(list("routes")).unwrap(),
            machines: serde_json::from_value::<Vec<bowline_local::Machine>>(list("machines"))
                .unwrap()
                .into_iter()
                .map(Into::into)
                .collect(),
            faults: serde_json::from_value(list("faults")).unwrap(),
            ..Snapshot::default()
        }
    }

    fn service(policy: &str, ports: &[u16]) -> serde_json::Value {
        let ports: Vec<_> = ports.iter().map(|port| json!({"port": port})).collect();
        json!({"metadata": {"name": "hello"}, "spec": {"externalTrafficPolicy": policy, "ports": ports}})
    }

    #[test]
    fn an_action_is_seen_when_it_is_performed_elsewhere() {
        let machine = |state: &str| json!({"machines": [{"id": "m-1", "name": "a", "state": state}]});
        let pods = json!([{"metadata": {"name": "hello-1"}}, {"metadata": {"name": "hello-2"}}]);
        let id = || "m-1".to_owned();
        let hello = || "hello".to_owned();
        let with = |policy: &str, ports: &[u16]| json!({"services": [service(policy, ports)], "pods": pods});
        let annotated = json!({"nodes": [{"metadata": {"name": "a", "annotations": {ALLOW_DELETION: "true"}}}]});
        let add = TourAction::Add(Box::new(NewMachine { id: id(), ..NewMachine::default() }));
        let cases = [
            (TourAction::Apply(HELLO, Ports::DEFAULT), json!({}), with("Cluster", &[4080])),
            (TourAction::Apply(HELLO_UDP, Ports::DEFAULT), with("Cluster", &[4080]), with("Cluster", &[4080, 4081])),
            (TourAction::DeletePod("hello-1".to_owned()), with("Cluster", &[4080]), json!({})),
            (TourAction::SetPolicyLocal(hello()), with("Cluster", &[4080]), with("Local", &[4080])),
            (TourAction::DeleteService(hello()), with("Local", &[4080]), json!({})),
            (TourAction::Stop(id()), machine("running"), machine("stopped")),
            (TourAction::HideMachines, json!({"faults": ["garbled"]}), json!({"faults": ["garbled", "empty"]})),
            (TourAction::RestoreAndStart(id()), machine("stopped"), machine("running")),
            (TourAction::Delete(id()), machine("running"), json!({})),
            (add, json!({}), machine("running")),
            (TourAction::DeleteMany(1..=2), machine("running"), json!({})),
            (TourAction::AllowDeletion, json!({"nodes": [{"metadata": {"name": "a"}}]}), annotated),
        ];
        for (action, before, after) in cases {
            let (before, after) = (snapshot(before), snapshot(after));
            assert!(!action.is_performed(&before, &before), "{action:?} too early");
            assert!(action.is_performed(&before, &after), "{action:?} not seen");
        }
    }

    #[test]
    fn routes_are_deleted_if_none_of_the_earlier_ones_remains() {
        let routes = |ids: &[&str]| {
            let route = |id: &&str| json!({"id": id, "destination": "10.0.0.0/24", "machine": "m-1"});
            snapshot(json!({"routes": ids.iter().map(route).collect::<Vec<_>>()}))
        };
        let (before, delete) = (routes(&["1", "2"]), TourAction::DeleteRoutes);
        for (now, performed) in [(&["1", "2"][..], false), (&["2"], false), (&[], true), (&["3", "4"], true)] {
            assert_eq!(delete.is_performed(&before, &routes(now)), performed, "{now:?}");
        }
        assert!(!delete.is_performed(&routes(&[]), &routes(&["1"])), "there were no routes to delete");
    }
}
