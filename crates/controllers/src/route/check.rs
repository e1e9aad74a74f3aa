//! Comparing everything with the cloud: at the start, and then now and again.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, Retry};
use bowline_core::Node;
use bowline_core::routes::{self, NodePlan};
use bowline_runtime::{Priority, Shutdown};
use futures::future::join_all;
use tokio::time::Instant;

use super::account::{Account, is_without_routes};
use super::metrics::{Outcome, Trigger};
use super::{BACKOFF, Fleet, Key, Mode, NAME, Shared};

/// Checks each cloud in its own time, until shutdown is requested.
pub(super) async fn run(shared: &Shared, shutdown: &Shutdown) {
    let checks = shared.accounts.iter().map(|account| shutdown.or(shared.check_again_and_again(account)));
    join_all(checks).await;
}

impl Shared {
    async fn check_again_and_again(&self, account: &Account) {
        let mut failures = 0;
        loop {
            let begin = Instant::now();
            account.checking.works();
            let outcome = self.check(account).await;
            account.checking.ends();
            failures = if outcome.is_err() { failures + 1 } else { 0 };
            match self.pause(account, begin, outcome.err(), failures) {
                Some(pause) => {
                    account.checking.rests(pause);
                    tokio::time::sleep(pause).await;
                }
                None => return,
            }
        }
    }

    /// How long until the next check; `None` for ever.
    fn pause(&self, account: &Account, begin: Instant, error: Option<Error>, failures: u32) -> Option<Duration> {
        let refresh = match self.options.mode {
            // From one beginning to the next (ROUTE-2).
            Mode::Periodic { period } => return Some(period.saturating_sub(begin.elapsed())),
            Mode::Watch { refresh } => Some(refresh).filter(|refresh| !refresh.is_zero()),
        };
        // Without a listing nothing can be done, so that the next is worth trying for before its time.
        let sooner = error.map(|error| match error.retry_advice() {
            Retry::After(wait) => wait,
            Retry::Backoff | Retry::Never => BACKOFF.after(failures),
        });
        refresh.into_iter().chain(sooner).chain(account.confirmation_due()).min()
    }

    /// Lists, and queues what differs (ROUTE-4, ROUTE-5, ROUTE-11); done when all of that has had its pass.
    async fn check(&self, account: &Account) -> Result<(), Error> {
        let was_aside = account.is_aside();
        if let Err(error) = account.list().await {
            if is_without_routes(&error) {
                if !was_aside {
                    let cloud = account.cloud.name();
                    tracing::warn!(controller = NAME, %cloud, %error, "the cloud has no routes; it is left alone");
                }
                return Ok(());
            }
            tracing::warn!(controller = NAME, cloud = %account.cloud.name(), %error, "error listing routes");
            self.metrics.synced(Trigger::Periodic, Outcome::Error);
            return Err(error);
        }
        self.metrics.has(account.cloud.name(), account.read(|table| table.len()));
        self.warn_of_another_cluster(account);
        // Whether what differs gets its passes is the queue's affair.
        account.checking.ends();
        let keys = self.differing(account);
        let end = account.rounds.begin(keys.iter().cloned());
        keys.into_iter().for_each(|key| account.queue.add(key, Priority::Low));
        // Whoever would tell the outcome is gone only if we are about to be.
        if let Ok(outcome) = end.await {
            self.metrics.synced(Trigger::Periodic, outcome);
        }
        Ok(())
    }

    /// Logs that the cloud has routes of another cluster of the same name, each time that their number changes.
    fn warn_of_another_cluster(&self, account: &Account) {
        let fleet = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        let foreign = account.read(|table| {
            let scene = self.scene(table, &fleet);
            table.iter().filter(|route| scene.is_foreign(route)).count()
        });
        if account.found_foreign(foreign) && foreign > 0 {
            let (cloud, cluster) = (account.cloud.name(), &self.options.cluster);
            tracing::warn!(
                %cloud, %cluster, routes = foreign,
                "the cloud has routes of another cluster with the same name; they are left alone; \
                 fix: give each cluster its own --cluster-name and pod CIDRs"
            );
        }
    }

    /// What needs a pass: Nodes whose routes or condition are not as they should be, and strays. A Node in back-off has its
    /// own time, except where nothing but the check would give it another try.
    fn differing(&self, account: &Account) -> Vec<Key> {
        let fleet = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        let is_watching = self.is_watching();
        let nodes = fleet.own();
        let plans = account.read(|table| {
            let scene = self.scene(table, &fleet);
            nodes.iter().map(|node| routes::decide(&scene, node)).collect::<Vec<_>>()
        });
        plans.iter().for_each(|plan| account.claim(plan.led.clone()));
        account.read(|table| {
            let differs = |(node, plan): &(&Arc<Node>, &NodePlan)| {
                !plan.is_empty() || routes::network(node, plan.is_complete(), plan.has_route()).is_some()
            };
            let nodes = nodes.iter().zip(&plans).filter(differs).map(|(node, _)| Key::Node(node.name.clone()));
            let nodes = nodes.filter(|key| !is_watching || account.queue.failures(key) == 0);
            let orphans = (!routes::orphans(&self.scene(table, &fleet)).is_empty()).then_some(Key::Orphans);
            nodes.chain(orphans).collect()
        })
    }
}
