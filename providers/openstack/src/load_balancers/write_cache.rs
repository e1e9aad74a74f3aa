//! Cache of what this process wrote to Neutron, which saves reads. An outdated entry costs a rejected write and a read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::api::network::Port;

/// Ports and security groups that this process wrote.
#[derive(Debug, Default)]
pub(crate) struct WriteCache {
    /// Each port as in the last response. The lock of an entry serialises writes to the port.
    ports: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Port>>>>>,
    /// IDs of created security groups, by name.
    groups: Mutex<HashMap<String, String>>,
}

impl WriteCache {
    /// Locks the entry of this port: waits until no other step writes to it.
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

/// Returns the newer one of the observed and the written port; `None` if Neutron has no revision numbers.
pub(super) fn newer(observed: Port, written: Option<Port>) -> Option<Port> {
    let newest = [Some(observed), written].into_iter().flatten().max_by_key(|port| port.revision_number);
    newest.filter(|port| port.revision_number.is_some())
}
