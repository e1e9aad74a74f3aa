//! Provider loop bench of the local cloud.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bowline_cloud::ClusterSnapshot;
use bowline_conformance::LoopBench;
use bowline_core::Instance;

use super::LocalBench;

/// Tags that no loop of the suite's cluster may touch.
const FOREIGN: [&str; 2] = ["cluster:conformance-2", "rack-7"];

#[async_trait]
impl LoopBench for LocalBench {
    async fn writes(&self) -> u64 {
        self.cloud.writes()
    }

    async fn check(&self, cluster: &ClusterSnapshot) -> Result<(), String> {
        let tag = format!("cluster:{}", cluster.name);
        let tagged = self.cloud.machines().into_iter().filter(|machine| machine.spec.tags.contains(&tag));
        let tagged: BTreeSet<String> = tagged.map(|machine| machine.spec.name).collect();
        let nodes: BTreeSet<String> = cluster.nodes.iter().map(|node| node.name.to_string()).collect();
        if tagged == nodes { Ok(()) } else { Err(format!("{tagged:?} have the tag {tag}, not {nodes:?}")) }
    }

    async fn put_foreign(&self, machine: &Instance) {
        let tags = FOREIGN.map(str::to_owned);
        self.cloud.change(&machine.id, |spec| spec.tags.extend(tags)).unwrap();
    }

    async fn foreign(&self) -> Vec<String> {
        let tags = |machine: bowline_local::Machine| {
            let foreign = machine.spec.tags.into_iter().filter(|tag| tag != "cluster:conformance");
            foreign.map(|tag| format!("{} {tag}", machine.spec.id)).collect::<Vec<_>>()
        };
        self.cloud.machines().into_iter().flat_map(tags).collect()
    }
}
