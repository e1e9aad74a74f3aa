//! Services whose annotations exclude the load balancer from management. No call to the cloud is made for them: they have no targets
//! to follow, and their deletion only ends with the removal of the finalizer.

use std::sync::Arc;

use bowline_cloud::Cloud;
use bowline_core::{Service, TargetSet};

use super::error::{Action, SyncError};
use super::plan;
use super::sync::{ServiceSync, Synced};

impl ServiceSync<'_> {
    /// Leaves the load balancer and the status as they are. The Events are those of any sync, as upstream.
    pub(super) async fn leave(&self, cloud: &Cloud, service: &Arc<Service>) -> Result<Synced, SyncError> {
        let (shared, no_targets) = (self.shared, TargetSet::default());
        shared.report_ensuring(service);
        let trigger = shared.trigger(self.key, None, &no_targets);
        let change = plan::unmanaged_change(service, shared.context.clock.now());
        let change = change.with_annotations(service, &shared.open_annotations(self.key));
        self.write(service, &change, Action::AddFinalizer).await?;
        self.own(service, cloud);
        shared.report_ensured(service, trigger, false, &no_targets);
        shared.clear_annotations(self.key);
        shared.states.update(self.key, |state| {
            state.targets = None;
            state.change.close();
        });
        Ok(Synced::Done)
    }
}
