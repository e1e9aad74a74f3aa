//! Actions of the page, on the cloud as its owner and on the API server as `kubectl`.

use std::time::Duration;

use bowline_console::page::{Action, Actions};
use bowline_local::{CloudError, LocalCloud, Machine, MachineState};
use futures::future::BoxFuture;
use kube::Client;

use super::faults;
use crate::manifest::{Applied, EXAMPLES, Manifest, Ports};

/// Performs the actions.
pub(super) struct ConsoleActions {
    pub(super) cloud: LocalCloud,
    pub(super) client: Client,
    /// Ports of the Service `hello` in the tour.
    pub(super) ports: Ports,
    /// Time after which missing heartbeats are noticed.
    pub(super) grace_period: Duration,
}

impl Actions for ConsoleActions {
    fn perform(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            match action {
                Action::StopMachine(id) => self.stop(&id).map_err(with_remedy),
                Action::StartMachine(id) => self.start(&id).map_err(with_remedy),
                Action::DeleteMachine(id) => self.delete(&id).map_err(with_remedy),
                Action::StartFault(name) => faults::start(&self.cloud, &name),
                Action::StopFault(name) => faults::stop(&self.cloud, &name),
                Action::CreateExample(name) => self.create_example(&name).await,
                Action::DeleteExample(name) => self.delete_example(&name).await,
            }
        })
    }
}

impl ConsoleActions {
    fn stop(&self, id: &str) -> Result<String, CloudError> {
        let Machine { spec, state } = self.cloud.machine(id)?;
        if state == MachineState::Stopped {
            return Ok(format!("The machine {id} is already stopped."));
        }
        self.cloud.stop(id)?;
        let (node, after) = (&spec.name, self.grace_period.as_secs_f64());
        Ok(format!(
            "The machine {id} is stopped, and its kubelet sends no heartbeats. After {after:.0} s the Node {node} is not ready, \
             and the cloud-node-lifecycle-controller taints it."
        ))
    }

    fn start(&self, id: &str) -> Result<String, CloudError> {
        let Machine { spec, state } = self.cloud.machine(id)?;
        if state == MachineState::Running {
            return Ok(format!("The machine {id} is already running."));
        }
        self.cloud.start(id)?;
        let node = &spec.name;
        Ok(format!(
            "The machine {id} is started. With the first heartbeats of its kubelet, the Node {node} becomes ready."
        ))
    }

    fn delete(&self, id: &str) -> Result<String, CloudError> {
        let node = self.cloud.machine(id)?.spec.name;
        self.cloud.delete(id)?;
        Ok(format!(
            "The machine {id} is deleted. The cloud-node-lifecycle-controller deletes the Node {node} as soon as the cloud has \
             confirmed that the machine is gone."
        ))
    }

    async fn create_example(&self, name: &str) -> Result<String, String> {
        let applied = example(name)?.apply(self.ports, &self.client).await?;
        let named = |wanted: Applied| -> Vec<String> {
            applied.iter().filter(|(_, applied)| *applied == wanted).map(|(name, _)| name.clone()).collect()
        };
        let (created, existing) = (named(Applied::Created), named(Applied::Existing));
        Ok(match (&created[..], &existing[..]) {
            (created, []) => format!("Created {}.", list(created)),
            ([], existing) => format!("Applied {}, which existed already.", list(existing)),
            (created, existing) => {
                format!("Created {}, and applied {}, which existed already.", list(created), list(existing))
            }
        })
    }

    async fn delete_example(&self, name: &str) -> Result<String, String> {
        let deleted = example(name)?.delete(self.ports, &self.client).await?;
        Ok(match &deleted[..] {
            [] => format!("There is nothing to delete: no object of the example {name} exists."),
            deleted => format!("Deleted {}.", list(deleted)),
        })
    }
}

/// Returns the names of objects as a text, such as `pod/a, pod/b and service/c`.
fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns the examples that the page offers. Nodes without machines are none of them: the tour counts Nodes.
pub(super) fn examples() -> impl Iterator<Item = Manifest> {
    EXAMPLES.into_iter().filter(|example| example.name() != "node")
}

fn example(name: &str) -> Result<Manifest, String> {
    let found = examples().find(|example| example.name() == name);
    found.ok_or_else(|| {
        let names: Vec<_> = examples().map(Manifest::name).collect();
        format!("there is no example {name:?}; the examples are {}", names.join(", "))
    })
}

fn with_remedy(error: CloudError) -> String {
    match error {
        CloudError::NoSuchMachine(_) => {
            format!(
                "{error}; it may have been deleted meanwhile. Fix: choose another one, or add one with `bowline cloud add`"
            )
        }
        other => other.to_string(),
    }
}
