//! Record of deletions, stored in the cluster for the next leader.

use std::sync::Arc;

use bowline_core::lifecycle::Memory;
use bowline_kube::WriteError;

use super::{NodeLifecycleController, Owner};

impl NodeLifecycleController {
    /// Adds the recorded deletions to `memory`. Returns whether Nodes may be deleted: without the record, that could be more Nodes
    /// than the brake allows.
    pub(super) async fn restore_deletions(&self, owner: &Owner, memory: &mut Memory) -> bool {
        let Some(cloud) = owner else { return true };
        match self.context.notes.get(&key(cloud)).await {
            Ok(Some(record)) => self.restore(cloud, &record, memory),
            Ok(None) => {}
            Err(error) => return is_forbidden(cloud, &error),
        }
        true
    }

    /// Records deletions before they are made. Returns whether they are allowed.
    pub(super) async fn record_deletions(&self, owner: &Owner, memory: &mut Memory) -> bool {
        let Some(cloud) = owner else { return true };
        // Another manager may have Nodes of the same cloud.
        let merge = |known: Option<&str>| {
            known.into_iter().for_each(|record| self.restore(cloud, record, memory));
            memory.deletion_record(cloud, self.now())
        };
        match self.context.notes.update(&key(cloud), merge).await {
            Ok(()) => true,
            Err(error) => is_forbidden(cloud, &error),
        }
    }

    fn restore(&self, cloud: &Arc<str>, record: &str, memory: &mut Memory) {
        if let Err(error) = memory.restore_deletions(cloud, record, &self.options.policy, self.now()) {
            tracing::warn!(%cloud, %error, "the record of deleted nodes is invalid and will be replaced");
        }
    }
}

/// Annotation key of this cloud. The name part of a key has at most 63 characters, and most characters other than letters and
/// digits are invalid.
fn key(cloud: &str) -> String {
    let name: String =
        cloud.chars().take(63).map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    format!("deletions.bowline.dev/{}", name.trim_end_matches('-'))
}

/// Whether deletions go on without the record: yes if the permission is missing, because the brake then still works within the
/// lifetime of this process. Any other failure blocks deletions.
fn is_forbidden(cloud: &str, error: &WriteError) -> bool {
    let is_forbidden = matches!(error, WriteError::Rejected { code: 403, .. });
    if is_forbidden {
        tracing::warn!(cloud, %error, "cannot record deletions of nodes: the limit on deletions is reset by a restart");
    } else {
        tracing::warn!(cloud, %error, "cannot access the record of deletions: no node is deleted until that succeeds");
    }
    is_forbidden
}
