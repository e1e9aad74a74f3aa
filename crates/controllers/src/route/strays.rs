//! Routes that lead to no Node: they go, unless there is reason to doubt that the Nodes are gone.

use std::sync::{Arc, PoisonError};

use bowline_core::Node;
use bowline_core::routes::{self, Brake, Doubt, Removal, Ruling, Scene};
use bowline_runtime::Shutdown;
use futures::stream::{self, StreamExt as _};

use super::account::Account;
use super::pass::Done;
use super::{Fleet, NAME, Shared};

/// What a look at the Nodes gives.
struct Look {
    strays: Vec<Removal>,
    /// How many routes we are responsible for, with those.
    of: usize,
    /// How many Nodes there are.
    nodes: usize,
}

impl Shared {
    /// One pass over the routes of a cloud that lead to no Node.
    pub(super) async fn sync_strays(&self, index: usize, shutdown: &Shutdown) -> Done {
        let Some(account) = self.accounts.get(index) else { return Done::default() };
        match shutdown.or(account.ensure_listed(None)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Done::unlisted(&error),
            None => return Done::default(),
        }
        let heard = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        let look = self.look(account, &heard);
        if look.strays.is_empty() {
            self.release(account);
            return Done::default();
        }
        match account.braked(|brake| brake.judge(look.strays.len(), look.of, look.nodes)) {
            Ruling::Go => self.remove(account, look.strays).await,
            Ruling::Hold(doubt) => self.hold(account, &doubt),
            Ruling::Ask => self.ask(account, shutdown).await,
        }
    }

    /// Many would go: the API server has the last word.
    async fn ask(&self, account: &Account, shutdown: &Shutdown) -> Done {
        let nodes: Vec<Arc<Node>> = match shutdown.or(self.context.cluster.list_nodes()).await {
            Some(Ok(nodes)) => nodes,
            Some(Err(error)) => {
                tracing::warn!(
                    controller = NAME,
                    "routes are kept until the API server says which nodes it has: {error}"
                );
                return Done { failures: vec![bowline_cloud::Retry::Backoff], ..Done::default() };
            }
            None => return Done::default(),
        };
        let look = self.look(account, &Fleet::listed(&nodes, &self.context.clouds, &account.cloud));
        let now = self.context.clock.instant();
        match account.braked(|brake| brake.confirm(look.strays.len(), look.of, look.nodes, now)) {
            Ruling::Hold(doubt) => self.hold(account, &doubt),
            Ruling::Go | Ruling::Ask => self.remove(account, look.strays).await,
        }
    }

    fn look(&self, account: &Account, fleet: &Fleet<'_>) -> Look {
        account.read(|table| {
            let scene = Scene { table, nodes: fleet, ranges: &self.options.ranges };
            Look { strays: routes::strays(&scene), of: scene.responsibilities(), nodes: fleet.len() }
        })
    }

    async fn remove(&self, account: &Account, strays: Vec<Removal>) -> Done {
        self.release(account);
        let done = stream::iter(strays)
            .map(|removal| async move {
                let _turn = account.turn(removal.route.destination.trunc()).await;
                self.delete(account, &removal).await
            })
            .buffer_unordered(account.max_parallel())
            .fold(Done::default(), async |all, one| all.merge(one))
            .await;
        if !done.failures.is_empty() {
            account.doubt(None);
        }
        self.metrics.has(account.cloud.name(), account.read(|table| table.len()));
        done
    }

    fn hold(&self, account: &Account, doubt: &Doubt) -> Done {
        if !account.is_holding() {
            tracing::warn!(controller = NAME, cloud = %account.cloud.name(), "{doubt}");
        }
        account.set_holding(true);
        self.metrics.held(account.cloud.name(), Some(doubt));
        let again = match doubt {
            Doubt::Many { again_in, .. } => Some(*again_in),
            // Only a Node that comes changes that.
            Doubt::NoNodes { .. } => None,
        };
        Done { again, ..Done::default() }
    }

    fn release(&self, account: &Account) {
        account.set_holding(false);
        self.metrics.held(account.cloud.name(), None);
    }
}

impl Account {
    fn braked<T>(&self, judge: impl FnOnce(&mut Brake) -> T) -> T {
        judge(&mut self.brake.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
