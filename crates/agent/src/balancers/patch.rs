//! Changes between two versions of the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_agent_client::{Balancer, CloudAddress};
use serde::{Deserialize, Serialize};

use super::Balancers;

/// Changes from one version to another. Complete records, because most changes concern one load balancer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct BalancersPatch {
    set_addresses: Vec<Arc<CloudAddress>>,
    remove_addresses: Vec<String>,
    set_balancers: Vec<Arc<Balancer>>,
    remove_balancers: Vec<String>,
    last: u64,
}

impl Balancers {
    /// Changes that lead from `before` to these records.
    pub(crate) fn patch_from(&self, before: &Balancers) -> BalancersPatch {
        let (set_addresses, remove_addresses) = difference(&before.addresses, &self.addresses);
        let (set_balancers, remove_balancers) = difference(&before.balancers, &self.balancers);
        BalancersPatch { set_addresses, remove_addresses, set_balancers, remove_balancers, last: self.last }
    }

    /// Applies changes.
    pub(crate) fn patch(&mut self, patch: BalancersPatch) {
        patch.remove_balancers.iter().for_each(|id| self.remove_balancer(id));
        patch.remove_addresses.iter().for_each(|id| self.remove_address(id));
        patch.set_addresses.into_iter().for_each(|address| _ = self.put_address(Arc::unwrap_or_clone(address)));
        patch.set_balancers.into_iter().for_each(|balancer| _ = self.put_balancer(Arc::unwrap_or_clone(balancer)));
        self.last = patch.last;
    }
}

/// Changed and removed records. Unchanged records are shared, so pointers are compared.
fn difference<T>(before: &BTreeMap<String, Arc<T>>, after: &BTreeMap<String, Arc<T>>) -> (Vec<Arc<T>>, Vec<String>) {
    let is_same = |id: &String, record: &Arc<T>| before.get(id).is_some_and(|old| Arc::ptr_eq(old, record));
    let changed = after.iter().filter(|(id, record)| !is_same(id, record)).map(|(_, record)| record.clone());
    let removed = before.keys().filter(|id| !after.contains_key(*id)).cloned();
    (changed.collect(), removed.collect())
}
