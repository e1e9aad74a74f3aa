//! What holds some controllers back until their own lease is held.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

/// Controllers that begin later than the others. Clones are the same gate.
///
/// While controllers move from one manager to another, they run under a lease that both share, beside the one under which the
/// rest of this manager runs. They are made with the rest, so that there is one set of watches, and wait here.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    names: Arc<BTreeSet<String>>,
    opened: CancellationToken,
}

impl Gate {
    /// Nobody waits.
    pub fn none() -> Gate {
        Gate::default()
    }

    /// The controllers of these canonical names wait.
    pub fn before(names: impl IntoIterator<Item = String>) -> Gate {
        Gate { names: Arc::new(names.into_iter().collect()), opened: CancellationToken::new() }
    }

    /// They may begin.
    pub fn open(&self) {
        self.opened.cancel();
    }

    /// Waits as long as the controller of this name has to.
    pub async fn passed(&self, name: &str) {
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
    fn only_those_who_are_named_wait_until_it_is_opened() {
        let gate = Gate::before(["service-lb-controller".to_owned()]);
        assert_eq!(gate.passed("cloud-node-controller").now_or_never(), Some(()));
        assert_eq!(gate.passed("service-lb-controller").now_or_never(), None);
        gate.clone().open();
        assert_eq!(gate.passed("service-lb-controller").now_or_never(), Some(()));
        assert_eq!(Gate::none().passed("service-lb-controller").now_or_never(), Some(()));
    }
}
