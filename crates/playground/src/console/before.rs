//! Nodes and cloud before the controllers start: the first step of the tour shows a cluster without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_console::document::{self, Health, Level};
use bowline_console::{Document, Source};
use bowline_core::well_known::UNINITIALIZED_TAINT;
use kube::ResourceExt as _;

use super::CLOUD;
use crate::cache::Cache;
use crate::objects::{Node, Taint};

/// Source of what the controllers report as soon as they run. Clones share their state.
#[derive(Clone)]
pub(crate) struct BeforeControllers {
    cache: Cache,
    started: Arc<AtomicBool>,
}

impl BeforeControllers {
    pub(crate) fn new(cache: Cache) -> BeforeControllers {
        BeforeControllers { cache, started: Arc::default() }
    }

    /// Leaves the items to the controllers from now on.
    pub(crate) fn end(&self) {
        self.started.store(true, Ordering::Relaxed);
    }
}

impl Source for BeforeControllers {
    fn fill(&self, document: &mut Document) {
        if self.started.load(Ordering::Relaxed) {
            return;
        }
        let health = Health::new(Level::Ok, "Ok", "The cloud responds. No controller uses it yet.");
        let cloud = document::Cloud { health, provider: CLOUD.to_owned(), ..Default::default() };
        document.cloud.insert(CLOUD.to_owned(), cloud);
        document.node.extend(self.cache.nodes().iter().map(|node| (node.name_any(), to_item(node))));
    }
}

fn to_item(node: &Node) -> document::Node {
    let message = "No controller runs yet. The cloud-node-controller will look up the machine, set provider ID, addresses and \
                   labels, and remove the taint.";
    document::Node {
        health: Health::new(Level::Progressing, "NoController", message),
        provider_id: node.spec.provider_id.clone(),
        machine_state: "unknown".to_owned(),
        ready: node.readiness().to_owned(),
        addresses: node.status.addresses.iter().map(|found| format!("{} {}", found.kind, found.address)).collect(),
        taints: node.spec.taints.iter().map(to_text).collect(),
        uninitialized: node.spec.taints.iter().any(|taint| taint.key == UNINITIALIZED_TAINT),
        pod_cidrs: node.spec.pod_cidrs.clone(),
        created: node.metadata.creation_timestamp.as_ref().map(|created| created.0),
        deleting: node.metadata.deletion_timestamp.is_some(),
        ..Default::default()
    }
}

fn to_text(taint: &Taint) -> String {
    let value = taint.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}
