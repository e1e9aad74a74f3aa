//! Apply: taints (W-4) and deletions (W-10).

use std::sync::Arc;
use std::time::Duration;

use bowline_core::lifecycle::Deletion;
use bowline_core::{Node, Taint};
use bowline_kube::{EventType, ObjectRef, WriteError};
use bowline_runtime::Shutdown;
use futures::stream::{self, StreamExt as _};

use super::NodeLifecycleController;

/// Maximum number of attempts of a write that meets conflicts, and the pause before a retry, with up to 100 % jitter.
const MAX_ATTEMPTS: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

impl NodeLifecycleController {
    /// Adds the shutdown taint to Nodes of stopped machines (LIFE-8).
    pub(super) async fn taint(&self, nodes: &[Arc<Node>], shutdown: &Shutdown) {
        self.for_each(nodes, shutdown, |node| self.log_failure(node, "apply", with_shutdown_taint)).await;
    }

    /// Removes the shutdown taint from Nodes that are Ready (LIFE-4).
    pub(super) async fn untaint(&self, nodes: &[Arc<Node>], shutdown: &Shutdown) {
        self.for_each(nodes, shutdown, |node| self.log_failure(node, "remove", without_shutdown_taint)).await;
    }

    /// Deletes these Nodes, unless they were recreated meanwhile (LIFE-6).
    pub(super) async fn delete(&self, deletions: &[Deletion], shutdown: &Shutdown) {
        self.for_each(deletions, shutdown, |deletion| self.delete_one(deletion)).await;
    }

    async fn delete_one(&self, Deletion { node, provider }: &Deletion) {
        let object = ObjectRef::node(node);
        let reason = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
        self.events.emit(&object, EventType::Normal, "DeletingNode", reason);
        match self.context.cluster.delete_node(&node.name, &node.uid).await {
            Ok(()) => tracing::info!(key = %node.name, cloud = %provider, "deleted the node"),
            // The Node is gone; another one may have its name.
            Err(WriteError::NotFound(_)) => {}
            Err(error) => {
                let message = format!("Failed deleting node {}: {error}", node.name);
                self.events.emit(&object, EventType::Warning, "DeletingNodeFailed", message);
            }
        }
    }

    /// Changes the taints and logs a failure, which the next sync retries.
    async fn log_failure(&self, node: &Arc<Node>, what: &str, change: ChangeTaints) {
        if let Err(error) = self.change_taints(node, change).await {
            tracing::warn!(key = %node.name, change = what, %error, "failed to change the shutdown taint");
        }
    }

    /// Writes the Node's taints as `change` returns them, and retries after a conflict with another writer.
    async fn change_taints(&self, node: &Arc<Node>, change: ChangeTaints) -> Result<(), WriteError> {
        let mut current = node.clone();
        let mut attempt = 1;
        while let Some(desired) = change(&current.taints) {
            let written = self.context.cluster.set_taints(&current.name, &current.resource_version, &desired).await;
            match written {
                Err(WriteError::Conflict(_)) if attempt < MAX_ATTEMPTS => attempt += 1,
                Err(WriteError::NotFound(_)) | Ok(_) => return Ok(()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(CONFLICT_PAUSE + CONFLICT_PAUSE.mul_f64(fastrand::f64())).await;
            match self.context.cluster.node(&node.name).await? {
                Some(live) if live.uid == node.uid => current = Arc::new(live),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Processes all items with the configured concurrency. Once shutdown is requested, no further item is started.
    async fn for_each<'a, T, F>(&self, items: &'a [T], shutdown: &Shutdown, work: impl Fn(&'a T) -> F)
    where
        F: Future<Output = ()>,
    {
        let begun = stream::iter(items).take_while(|_| std::future::ready(!shutdown.is_requested()));
        begun.for_each_concurrent(self.options.concurrency.max(1), work).await;
    }
}

/// Function from the current to the desired taints of a Node; `None` if they do not change.
type ChangeTaints = fn(&[Taint]) -> Option<Vec<Taint>>;

/// Returns the taints with the shutdown taint, unless it is present.
// upstream: a taint with the same key and effect and another value is replaced in place.
fn with_shutdown_taint(taints: &[Taint]) -> Option<Vec<Taint>> {
    let desired = Taint::shutdown();
    let mut list = taints.to_vec();
    match list.iter_mut().find(|taint| taint.is_shutdown()) {
        Some(found) if *found == desired => return None,
        Some(found) => *found = desired,
        None => list.push(desired),
    }
    Some(list)
}

/// Returns the taints without the shutdown taint, if it is present.
fn without_shutdown_taint(taints: &[Taint]) -> Option<Vec<Taint>> {
    let rest: Vec<_> = taints.iter().filter(|taint| !taint.is_shutdown()).cloned().collect();
    (rest.len() < taints.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use bowline_core::testing::taint;

    use super::*;

    #[test]
    fn f12_the_taint_is_added_once_and_replaced_in_place() {
        let other = taint("other", "NoExecute");
        let ours = Taint::shutdown();
        assert_eq!(with_shutdown_taint(std::slice::from_ref(&other)), Some(vec![other.clone(), ours.clone()]));
        assert_eq!(with_shutdown_taint(&[ours.clone(), other.clone()]), None);
        let odd = Taint { value: "yes".to_owned(), ..Taint::shutdown() };
        assert_eq!(with_shutdown_taint(&[odd, other.clone()]), Some(vec![ours.clone(), other.clone()]));
        let of_another_effect = taint(&ours.key, "NoExecute");
        assert_eq!(with_shutdown_taint(std::slice::from_ref(&of_another_effect)), Some(vec![of_another_effect, ours]));
    }

    #[test]
    fn f10_only_the_shutdown_taint_is_removed() {
        let other = taint("other", "NoSchedule");
        assert_eq!(without_shutdown_taint(&[Taint::shutdown(), other.clone()]), Some(vec![other.clone()]));
        assert_eq!(without_shutdown_taint(&[other]), None);
    }
}
