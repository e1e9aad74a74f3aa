//! Carrying out what was decided: taints (W-4) and deletions (W-10).

use std::sync::Arc;
use std::time::Duration;

use bowline_core::lifecycle::Deletion;
use bowline_core::{Node, Taint};
use bowline_kube::{EventType, ObjectRef, WriteError};
use bowline_runtime::Shutdown;
use futures::stream::{self, StreamExt as _};

use super::NodeLifecycleController;

/// How often a write that met a conflict is decided anew, and the pause before, to which as much again is added at random.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

impl NodeLifecycleController {
    /// Says on these Nodes that their machines are stopped (LIFE-8).
    pub(super) async fn taint(&self, nodes: &[Arc<Node>], shutdown: &Shutdown) {
        self.each(nodes, shutdown, |node| self.log_failure(node, "apply", with_shutdown_taint)).await;
    }

    /// Takes that back from Nodes that are Ready (LIFE-4).
    pub(super) async fn untaint(&self, nodes: &[Arc<Node>], shutdown: &Shutdown) {
        self.each(nodes, shutdown, |node| self.log_failure(node, "remove", without_shutdown_taint)).await;
    }

    /// Deletes these Nodes, if they are still the ones that were meant (LIFE-6).
    pub(super) async fn delete(&self, deletions: &[Deletion], shutdown: &Shutdown) {
        self.each(deletions, shutdown, |deletion| self.delete_one(deletion)).await;
    }

    async fn delete_one(&self, Deletion { node, provider }: &Deletion) {
        let object = ObjectRef::node(node);
        let reason = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
        self.events.emit(&object, EventType::Normal, "DeletingNode", reason);
        match self.context.cluster.delete_node(&node.name, &node.uid).await {
            Ok(()) => tracing::info!(key = %node.name, cloud = %provider, "deleted the node"),
            // Another Node has taken the name: ours is gone.
            Err(WriteError::NotFound(_)) => {}
            Err(error) => {
                let message = format!("Failed deleting node {}: {error}", node.name);
                self.events.emit(&object, EventType::Warning, "DeletingNodeFailed", message);
            }
        }
    }

    /// The next pass decides anew, so a failure is only told.
    async fn log_failure(&self, node: &Arc<Node>, what: &str, change: ChangeTaints) {
        if let Err(error) = self.change_taints(node, change).await {
            tracing::warn!(key = %node.name, change = what, %error, "failed to change the shutdown taint");
        }
    }

    /// Writes the taints that `change` makes of the Node's, deciding anew if somebody else changes the Node meanwhile.
    async fn change_taints(&self, node: &Arc<Node>, change: ChangeTaints) -> Result<(), WriteError> {
        let mut current = node.clone();
        let mut attempt = 1;
        while let Some(wanted) = change(&current.taints) {
            let written = self.context.cluster.set_taints(&current.name, &current.resource_version, &wanted).await;
            match written {
                Err(WriteError::Conflict(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(WriteError::NotFound(_)) | Ok(_) => return Ok(()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE + PAUSE.mul_f64(fastrand::f64())).await;
            match self.context.cluster.node(&node.name).await? {
                Some(live) if live.uid == node.uid => current = Arc::new(live),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Does this to each, so many at once as are allowed. Once shutdown is requested, no more are begun.
    async fn each<'a, T, F>(&self, items: &'a [T], shutdown: &Shutdown, work: impl Fn(&'a T) -> F)
    where
        F: Future<Output = ()>,
    {
        let begun = stream::iter(items).take_while(|_| std::future::ready(!shutdown.is_requested()));
        begun.for_each_concurrent(self.options.concurrency.max(1), work).await;
    }
}

/// The taints that a Node should have, given those that it has; `None` if these are right.
type ChangeTaints = fn(&[Taint]) -> Option<Vec<Taint>>;

/// The list with the taint, unless it has it.
// upstream: one with the same key and effect and another value is replaced in place.
fn with_shutdown_taint(taints: &[Taint]) -> Option<Vec<Taint>> {
    let wanted = Taint::shutdown();
    let mut list = taints.to_vec();
    match list.iter_mut().find(|taint| taint.is_shutdown()) {
        Some(found) if *found == wanted => return None,
        Some(found) => *found = wanted,
        None => list.push(wanted),
    }
    Some(list)
}

/// The list without the taint, if it has it.
fn without_shutdown_taint(taints: &[Taint]) -> Option<Vec<Taint>> {
    let rest: Vec<_> = taints.iter().filter(|taint| !taint.is_shutdown()).cloned().collect();
    (rest.len() < taints.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use bowline_core::testing::taint;

    use super::*;

    #[test]
    fn f12_the_taint_is_added_once_and_mended_in_place() {
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
    fn f10_only_the_taint_itself_is_removed() {
        let other = taint("other", "NoSchedule");
        assert_eq!(without_shutdown_taint(&[Taint::shutdown(), other.clone()]), Some(vec![other.clone()]));
        assert_eq!(without_shutdown_taint(&[other]), None);
    }
}
