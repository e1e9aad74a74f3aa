//! The record of deletions, kept in the cluster for the next leader.

use std::sync::Arc;

use bowline_core::lifecycle::Memory;
use bowline_kube::WriteError;

use super::{NodeLifecycleController, Owner};

impl NodeLifecycleController {
    /// Adds to `memory` the deletions that are on record. Returns whether that succeeded: without the record, more Nodes might
    /// be deleted than the brake allows.
    pub(super) async fn restore_deletions(&self, owner: &Owner, memory: &mut Memory) -> bool {
        let Some(cloud) = owner else { return true };
        match self.context.notes.get(&key(cloud)).await {
            Ok(Some(record)) => self.restore(cloud, &record, memory),
            Ok(None) => {}
            Err(error) => return is_forbidden(cloud, &error),
        }
        true
    }

    /// Writes the deletions that are about to happen. Returns whether they may.
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
            tracing::warn!(%cloud, %error, "the record of deleted nodes is not readable, and will be replaced");
        }
    }
}

/// Annotation of this cloud. The name part of a key has at most 63 characters, all but a few of which are letters or digits.
fn key(cloud: &str) -> String {
    let name: String =
        cloud.chars().take(63).map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    format!("deletions.bowline.dev/{}", name.trim_end_matches('-'))
}

/// Without the permission, the brake still works within the life of this process. Any other failure is a reason to wait.
fn is_forbidden(cloud: &str, error: &WriteError) -> bool {
    let is_forbidden = matches!(error, WriteError::Rejected { code: 403, .. });
    if is_forbidden {
        tracing::warn!(cloud, %error, "deletions of nodes are not recorded: the limit on them starts over at a restart");
    } else {
        tracing::warn!(cloud, %error, "no node is deleted until the record of deletions can be read and written");
    }
    is_forbidden
}
