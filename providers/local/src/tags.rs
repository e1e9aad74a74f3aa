//! Provider loop that tags the machines of the cluster, so that other users of the cloud can identify them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, LoopOutcome, ProviderLoop, Result};
use bowline_http::{Page, all_pages};

use crate::api::{Key, TagRequest};
use crate::client::Client;
use crate::cloud::Machine;

/// Tags the machines of Nodes with `cluster:NAME`, and removes the tag from all other machines.
pub(crate) struct Tags {
    pub(crate) client: Arc<Client>,
    pub(crate) id_prefix: String,
    pub(crate) page_size: usize,
}

impl Tags {
    async fn machines(&self) -> Result<Vec<Arc<Machine>>> {
        let page = |token: Option<String>| async move {
            let read = self.client.list(token.as_deref(), self.page_size).await?;
            Ok(Page { items: read.instances, next: read.next })
        };
        all_pages("list machines", page).await
    }
}

#[async_trait]
impl ProviderLoop for Tags {
    fn name(&self) -> &str {
        "tags"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(300)
    }

    async fn sync(&self, cluster: &ClusterSnapshot) -> Result<LoopOutcome> {
        let tag = format!("cluster:{}", cluster.name);
        let ids = cluster.nodes.iter().filter_map(|node| node.provider_id.as_ref());
        let ours = ids.filter(|id| id.prefix() == Some(&self.id_prefix)).filter_map(|id| id.rest());
        let ours: BTreeSet<&str> = ours.collect();
        let mut changed = 0;
        for machine in self.machines().await? {
            let (id, present) = (machine.spec.id.clone(), ours.contains(machine.spec.id.as_str()));
            if machine.spec.tags.contains(&tag) != present {
                self.client.change_tag(&TagRequest { machine: Key::Id(id), tag: tag.clone(), present }).await?;
                changed += 1;
            }
        }
        Ok(LoopOutcome::new(format!("{} machines have the tag {tag}; {changed} changed", ours.len())))
    }
}
