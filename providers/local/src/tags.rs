//! Provider loop that tags the machines of the cluster, so that other users of the cloud can identify them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, LoopPlan, LoopTriggers, Result, TypedProviderLoop};
use bowline_core::{FieldChange, ProviderId, Step, Verb};
use bowline_http::{Page, all_pages};

use crate::api::{Key, TagRequest};
use crate::client::Client;
use crate::cloud::Machine;

/// Tags the machines of Nodes with `cluster:NAME`, and removes the tag from all other machines, except those of paused Nodes.
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
impl TypedProviderLoop for Tags {
    type Change = TagRequest;

    fn name(&self) -> &str {
        "tags"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(300)
    }

    fn triggers(&self) -> LoopTriggers {
        LoopTriggers { nodes: true, services: false }
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<TagRequest>> {
        let tag = format!("cluster:{}", cluster.name);
        let ids = cluster.nodes.iter().filter_map(|node| node.provider_id.as_ref());
        let ours = ids.filter(|id| id.prefix() == Some(&self.id_prefix)).filter_map(|id| id.rest());
        let ours: BTreeSet<&str> = ours.collect();
        let is_paused = |id: &str| cluster.is_paused(&ProviderId::of(&self.id_prefix, id));
        let machines = self.machines().await?.into_iter().filter(|machine| !is_paused(&machine.spec.id));
        let steps = machines.filter_map(|machine| {
            let present = ours.contains(machine.spec.id.as_str());
            (machine.spec.tags.contains(&tag) != present).then(|| step(&machine.spec.id, &tag, present))
        });
        Ok(LoopPlan::new(format!("{} machines have the tag {tag}", ours.len()), steps.collect()))
    }

    async fn apply(&self, change: &TagRequest) -> Result<()> {
        self.client.change_tag(change).await
    }
}

fn step(id: &str, tag: &str, present: bool) -> Step<TagRequest> {
    let value = |shown: bool| shown.then(|| tag.to_owned());
    let change = FieldChange { field: "tag".to_owned(), from: value(!present), to: value(present) };
    let request = TagRequest { machine: Key::Id(id.to_owned()), tag: tag.to_owned(), present };
    Step::new(Verb::Update, "machine", id, vec![change], request)
}
