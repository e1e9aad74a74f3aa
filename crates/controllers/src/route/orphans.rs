//! Routes that lead to no Node: they go, unless there is reason to doubt that the Nodes are gone.

use std::sync::{Arc, PoisonError};

use bowline_core::Node;
use bowline_core::routes::{self, Brake, BrakeDecision, HoldReason, Removal};
use bowline_runtime::{Priority, Shutdown};
use futures::stream::{self, StreamExt as _};

use super::account::Account;
use super::pass::Done;
use super::{Fleet, Key, Shared};

/// What a look at the Nodes gives.
struct Look {
    orphans: Vec<Removal>,
    /// How many routes we are responsible for, with those.
    of: usize,
    /// How many Nodes there are.
    nodes: usize,
}

impl Shared {
    /// One pass over the routes of a cloud that lead to no Node.
    pub(super) async fn sync_strays(&self, account: &Account, shutdown: &Shutdown) -> Done {
        match shutdown.or(account.ensure_listed(None)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Done::unlisted(&error),
            None => return Done::default(),
        }
        let heard = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        let look = self.look(account, &heard);
        match account.braked(|brake| brake.judge(look.orphans.len(), look.of, look.nodes)) {
            BrakeDecision::Go => self.remove(account, look.orphans, shutdown).await,
            BrakeDecision::Hold(doubt) => self.hold(account, &doubt),
            BrakeDecision::Ask => self.ask(account, shutdown).await,
        }
    }

    /// Many would go: the API server has the last word.
    async fn ask(&self, account: &Account, shutdown: &Shutdown) -> Done {
        let nodes: Vec<Arc<Node>> = match shutdown.or(self.context.cluster.list_nodes()).await {
            Some(Ok(nodes)) => nodes,
            Some(Err(error)) => {
                tracing::warn!(%error, "routes are kept until the API server says which nodes it has");
                return Done::failed(bowline_cloud::Retry::Backoff, error);
            }
            None => return Done::default(),
        };
        let look = self.look(account, &Fleet::listed(&nodes, &self.context.clouds, &account.cloud));
        let now = self.context.clock.instant();
        match account.braked(|brake| brake.confirm(look.orphans.len(), look.of, look.nodes, now)) {
            BrakeDecision::Hold(doubt) => self.hold(account, &doubt),
            BrakeDecision::Go | BrakeDecision::Ask => self.remove(account, look.orphans, shutdown).await,
        }
    }

    fn look(&self, account: &Account, fleet: &Fleet<'_>) -> Look {
        account.read(|table| {
            let scene = self.scene(table, fleet);
            Look { orphans: routes::orphans(&scene), of: scene.responsibilities(), nodes: fleet.len() }
        })
    }

    async fn remove(&self, account: &Account, orphans: Vec<Removal>, shutdown: &Shutdown) -> Done {
        self.release(account);
        // What has begun is finished; with thousands of them, the rest is the next manager's.
        let going = orphans.into_iter().take_while(|_| !shutdown.is_requested());
        let ended: Vec<(Removal, Done)> = stream::iter(going)
            .map(|stray| self.remove_stray(account, stray))
            .buffer_unordered(account.max_parallel())
            .collect()
            .await;
        let (removed, done): (Vec<Removal>, Vec<Done>) = ended.into_iter().unzip();
        let done = done.into_iter().fold(Done::default(), Done::merge);
        if !done.failures.is_empty() {
            account.doubt(None);
        }
        self.metrics.has(account.cloud.name(), account.read(|table| table.len()));
        self.make_good(account, &removed);
        done
    }

    /// Removes it, unless its Node has come back while others went.
    async fn remove_stray(&self, account: &Account, stray: Removal) -> (Removal, Done) {
        let _turn = account.turn(stray.route.destination.trunc()).await;
        let done = match stray.route.node.as_ref().and_then(|name| self.context.nodes.get(name.as_str())) {
            Some(_) => Done::default(),
            None => self.delete(account, &stray).await,
        };
        account.queue.made_progress();
        (stray, done)
    }

    /// A Node that came back while its routes were on their way out may have found them still there: it gets another pass.
    fn make_good(&self, account: &Account, removed: &[Removal]) {
        let heard = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        let back = account.read(|table| {
            let scene = self.scene(table, &heard);
            removed.iter().filter_map(|stray| scene.target_node(&stray.route)).collect::<Vec<_>>()
        });
        // Otherwise the next period is soon enough.
        if self.is_watching() {
            back.iter().for_each(|node| account.queue.add(Key::Node(node.name.clone()), Priority::High));
        }
    }

    fn hold(&self, account: &Account, doubt: &HoldReason) -> Done {
        if account.hold(Some(doubt)) {
            tracing::warn!(cloud = %account.cloud.name(), %doubt, "routes of nodes that seem to be gone are kept");
        }
        self.metrics.held(account.cloud.name(), Some(doubt));
        let again = match doubt {
            HoldReason::Many { again_in, .. } => Some(*again_in),
            // Only a Node that comes changes that.
            HoldReason::NoNodes { .. } => None,
        };
        Done { again, why: Some(doubt.to_string()), ..Done::default() }
    }

    fn release(&self, account: &Account) {
        account.hold(None);
        self.metrics.held(account.cloud.name(), None);
    }
}

impl Account {
    fn braked<T>(&self, judge: impl FnOnce(&mut Brake) -> T) -> T {
        judge(&mut self.brake.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
