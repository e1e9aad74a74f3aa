//! Delayed start of controllers that need a second lease.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

/// Controllers that start later than the rest. Clones share the gate.
///
/// During a leader migration, the migrating controllers run under a lease that both managers share, and all other controllers
/// under the manager's own lease. The manager creates all of them together, so that they share one set of watches; the migrating
/// ones wait at the gate.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    names: Arc<BTreeSet<String>>,
    opened: CancellationToken,
}

impl Gate {
    /// A gate at which no controller waits.
    pub fn none() -> Gate {
        Gate::default()
    }

    /// A gate at which the controllers of these canonical names wait.
    pub fn before(names: impl IntoIterator<Item = String>) -> Gate {
        Gate { names: Arc::new(names.into_iter().collect()), opened: CancellationToken::new() }
    }

    /// Lets the waiting controllers start.
    pub fn open(&self) {
        self.opened.cancel();
    }

    /// Waits until the controller of this name may start.
    pub async fn wait(&self, name: &str) {
        if self.names.contains(name) {
            self.opened.cancelled().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn only_the_named_controllers_wait_until_the_gate_opens() {
        let gate = Gate::before(["service-lb-controller".to_owned()]);
        assert_eq!(gate.wait("cloud-node-controller").now_or_never(), Some(()));
        assert_eq!(gate.wait("service-lb-controller").now_or_never(), None);
        gate.clone().open();
        assert_eq!(gate.wait("service-lb-controller").now_or_never(), Some(()));
        assert_eq!(Gate::none().wait("service-lb-controller").now_or_never(), Some(()));
    }
}
