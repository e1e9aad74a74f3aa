//! Flaws in background loops.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, ErrorKind, LoopOutcome, ProviderLoop, Result};
use bowline_core::NodeName;

use crate::flaws::broken::Break::{Declared, Error, Sync};
use crate::flaws::broken::{Break, Broken, Flaw, call, flaws, hook, later};

/// A loop of the broken provider.
pub(crate) struct BrokenLoop {
    pub(crate) broken: Arc<Broken>,
    pub(crate) real: Arc<dyn ProviderLoop>,
}

#[async_trait]
impl ProviderLoop for BrokenLoop {
    fn name(&self) -> &str {
        self.real.name()
    }

    fn period(&self) -> Duration {
        self.real.period()
    }

    async fn sync(&self, cluster: &ClusterSnapshot) -> Result<LoopOutcome> {
        let broken = &*self.broken;
        broken.error(call!(broken, Sync(cluster), self.real.sync(cluster)))
    }
}

/// Tag of the machines of the suite's cluster.
const TAG: &str = "cluster:conformance";

/// IDs of machines with the tag.
fn tagged(it: &Broken) -> Vec<String> {
    let machines = it.cloud.machines().into_iter();
    machines.filter(|machine| machine.spec.tags.contains(TAG)).map(|machine| machine.spec.id).collect()
}

/// Snapshot without Nodes.
fn empty(cluster: &ClusterSnapshot) -> ClusterSnapshot {
    ClusterSnapshot { nodes: Vec::new(), ..cluster.clone() }
}

flaws! {
    "declares a loop twice", [loops_are_declared], Declared(|_, loops| loops.extend(loops.clone()));
    "declares no loops the second time", [loops_are_declared],
        Declared(|it, loops| {
            let mut memory = it.memory();
            memory.starts += 1;
            if memory.starts > 1 {
                loops.clear();
            }
        });
    "never removes a tag", [loops_follow_the_cluster loops_survive_every_crash],
        Sync(later!(|it, cluster| {
            let before = tagged(it);
            let outcome = it.tags().sync(cluster).await?;
            for id in before {
                it.cloud.change(&id, |spec| spec.tags.extend([TAG.to_owned()])).unwrap();
            }
            Ok(outcome)
        }));
    "removes all tags before it adds some", [loops_are_repeatable],
        Sync(later!(|it, cluster| {
            it.tags().sync(&empty(cluster)).await?;
            it.tags().sync(cluster).await
        }));
    "returns other annotations each time", [loops_are_repeatable],
        Sync(later!(|it, cluster| {
            let mut outcome: LoopOutcome = it.tags().sync(cluster).await?;
            it.memory().starts += 1;
            let values = [("example.com/run".to_owned(), Some(it.memory().starts.to_string()))];
            outcome.annotations.insert(NodeName::from("a"), values.into());
            Ok(outcome)
        }));
    "removes tags of other owners", [loops_write_nothing_foreign],
        Sync(later!(|it, cluster| {
            for machine in it.cloud.machines() {
                it.cloud.change(&machine.spec.id, |spec| spec.tags.retain(|tag| tag == TAG)).unwrap();
            }
            it.tags().sync(cluster).await
        }));
    "reports an error as a success", [loop_errors_have_a_kind],
        Sync(later!(|it, cluster| { it.tags().sync(cluster).await.or(Ok(LoopOutcome::default())) }));
    "returns every error of a loop as unexpected", [loop_errors_have_a_kind],
        Error(|error| bowline_cloud::Error::new(ErrorKind::Unexpected, "flaw", error.to_string()));
    "removes only the tags that this process has added", [loops_survive_every_crash],
        Sync(later!(|it, cluster| {
            let before = tagged(it);
            let outcome = it.tags().sync(cluster).await?;
            it.memory().created.extend(tagged(it));
            for id in before {
                if !it.memory().created.contains(&id) {
                    it.cloud.change(&id, |spec| spec.tags.extend([TAG.to_owned()])).unwrap();
                }
            }
            Ok(outcome)
        }));
}
