//! What this process has written to Neutron, so that it need not be read again: all of it is only a better guess.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::api::network::Port;

/// Ports and security groups that this process has written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Each port as the last answer about it has it. Its lock makes one write after the other.
    ports: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Port>>>>>,
    /// IDs of security groups that were created, by name.
    groups: Mutex<HashMap<String, String>>,
}

impl Written {
    /// Waits until no other step writes to this port.
    pub(crate) async fn port(&self, id: &str) -> OwnedMutexGuard<Option<Port>> {
        let port = self.ports.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default().clone();
        port.lock_owned().await
    }

    pub(super) fn created_group(&self, name: &str, id: String) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), id);
    }

    pub(super) fn group(&self, name: &str) -> Option<String> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// The newer one of what a plan has seen and what was written since; `None` if Neutron counts no revisions.
pub(super) fn newer(seen: Port, written: Option<Port>) -> Option<Port> {
    let newest = [Some(seen), written].into_iter().flatten().max_by_key(|port| port.revision_number);
    newest.filter(|port| port.revision_number.is_some())
}
