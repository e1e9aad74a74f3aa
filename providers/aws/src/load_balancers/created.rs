//! IDs of resources that this process has created.
//!
//! The steps of a plan name a resource that an earlier step creates. Its ID is remembered here, so that the later step need not look it
//! up; a process that does not know it, such as the next leader, does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of entries. They are needed only until the plan is applied.
const MAX: usize = 4096;

/// Kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    SecurityGroup,
    LoadBalancer,
    TargetGroup,
}

/// IDs by kind and name. Clones share the entries.
#[derive(Clone, Default)]
pub(crate) struct Created {
    ids: Arc<Mutex<HashMap<(Kind, String), String>>>,
}

impl Created {
    pub(super) fn insert(&self, kind: Kind, name: &str, id: &str) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() >= MAX {
            ids.clear();
        }
        ids.insert((kind, name.to_owned()), id.to_owned());
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<String> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).get(&(kind, name.to_owned())).cloned()
    }

    /// Forgets a resource that is deleted.
    pub(super) fn remove(&self, kind: Kind, name: &str) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(&(kind, name.to_owned()));
    }
}
