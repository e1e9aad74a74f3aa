//! Loop `tagging`: adds tags to the instances of Nodes, and labels each Node whose instance has them.
//!
//! ```text
//!  Nodes without the label, instances without a Node ──► DescribeInstances ──► steps of up to 100 instances, and labels
//!  step ──► CreateTags or DeleteTags ──rejected──► one by one; an instance that AWS rejects waits, and the others go on
//! ```
//!
//! The label says which tags the instance has, so a run without new Nodes makes no call. Changing `--tags` adds the new tags and
//! leaves the old ones.

mod memory;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{
    ClusterSnapshot, Error, ErrorKind, Identity, Instances as _, LabelValues, LoopPlan, LoopTriggers, ProviderLoop,
    Result, TypedProviderLoop,
};
use bowline_core::{FieldChange, InstanceRef, Node, Step, Verb};
use jiff::Timestamp;

use crate::Aws;
use crate::api::Tags;
use crate::api::ec2::{Ec2, Instance};
use crate::instances::{is_about_ids, is_fargate, split_named};
use crate::metrics::TaggingMetrics;
use memory::Memory;
pub(crate) use options::{CONTROLLER, FLAGS, Options};

/// Label with the MD5 hash of the tags.
pub(crate) const LABEL: &str = "k8s.io/cloud-provider-aws";

/// Maximum time between two runs. A run without work makes no call.
const PERIOD: Duration = Duration::from_secs(60);

/// Maximum number of instances in a call.
const BATCH: usize = 100;

/// Code of the error of an ID that is no ID of a resource.
const INVALID_ID: &str = "InvalidID";

/// State of the controller, which all its runs share.
pub(crate) struct Tagging {
    options: Options,
    /// Client with the rate limit of the controller.
    ec2: Ec2,
    metrics: TaggingMetrics,
    memory: Memory,
    /// Value of the label.
    hash: String,
}

impl Tagging {
    /// Creates the controller. `ec2` is a client with the [rate limit](Options::rate) of the controller.
    pub(crate) fn new(options: Options, ec2: Ec2, metrics: TaggingMetrics) -> Tagging {
        let hash = hash_of(&options.tags);
        Tagging { options, ec2, metrics, memory: Memory::default(), hash }
    }
}

/// Returns the value of the label for these tags, which are sorted.
// upstream: MD5, which needs no protection against collisions here.
fn hash_of(tags: &Tags) -> String {
    let pairs: Vec<_> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{:x}", md5::compute(pairs.join(",")))
}

/// The loop.
struct Loop {
    aws: Aws,
    tagging: Arc<Tagging>,
}

impl Aws {
    /// Returns the background loops.
    pub(crate) fn background_loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        let tagging = self.tagging.iter().map(|tagging| Loop { aws: self.clone(), tagging: tagging.clone() });
        tagging.map(|one| Arc::new(one) as Arc<dyn ProviderLoop>).collect()
    }
}

/// A change of some instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    action: Action,
    instances: Vec<String>,
    /// Creation times of the Nodes whose instances get tags for the first time.
    new: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Add,
    Remove,
}

#[async_trait]
impl TypedProviderLoop for Loop {
    type Change = Change;

    fn name(&self) -> &str {
        CONTROLLER
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn triggers(&self) -> LoopTriggers {
        LoopTriggers { nodes: true, services: false }
    }

    fn labels(&self) -> &'static [&'static str] {
        &[LABEL]
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<Change>> {
        let tagging = &self.tagging;
        let nodes: Vec<_> = cluster.nodes.iter().filter_map(|node| Some((node, self.instance_of(node)?))).collect();
        let paused = cluster.paused.iter().filter_map(|node| self.instance_of(node));
        let current: BTreeSet<_> = nodes.iter().map(|(_, id)| id.clone()).chain(paused).collect();
        let removed = tagging.memory.see(&current);
        let open = nodes.iter().filter(|(node, _)| node.labels.get(LABEL) != Some(&tagging.hash));
        let open: Vec<_> = open.filter(|(_, id)| !tagging.memory.is_waiting(id)).collect();
        let asked: Vec<_> = open.iter().map(|(_, id)| id.clone()).chain(removed.iter().cloned()).collect();
        let found = if asked.is_empty() { BTreeMap::new() } else { self.aws.describe_existing(&asked).await? };
        let mut plan = LoopPlan::new(format!("{} instances", nodes.len()), tagging.additions(&open, &found));
        plan.plan.steps.extend(tagging.removals(removed, &found));
        // An instance that does not exist is looked up again in the next run: AWS may not show a new one yet.
        let tagged = open.iter().filter(|(_, id)| found.contains_key(id));
        plan.labels = tagged.map(|(node, _)| (node.name.clone(), tagging.label())).collect();
        Ok(plan)
    }

    async fn apply(&self, change: &Change) -> Result<()> {
        self.tagging.apply(change).await
    }
}

impl Loop {
    /// Returns the ID of a Node's instance; `None` for a Fargate Node, and for an ID that is invalid or of another region.
    fn instance_of(&self, node: &Node) -> Option<String> {
        node.provider_id.as_ref()?;
        match self.aws.identify(&InstanceRef::of(node)) {
            Ok(Identity::Id(id)) if !is_fargate(&id) => Some(id),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(node = %node.name, %error, "the instance of the Node is not tagged");
                None
            }
        }
    }
}

impl Tagging {
    fn label(&self) -> LabelValues {
        [(LABEL.to_owned(), self.hash.clone())].into()
    }

    /// Returns the steps that add tags to the instances that lack some.
    fn additions(&self, open: &[&(&Arc<Node>, String)], found: &BTreeMap<String, Instance>) -> Vec<Step<Change>> {
        let lacks = |id: &str| found.get(id).is_some_and(|instance| !has_all(instance, &self.options.tags));
        let mut lacking: Vec<_> = open.iter().filter(|(_, id)| lacks(id)).collect();
        lacking.sort_by(|(_, a), (_, b)| a.cmp(b));
        lacking.dedup_by(|(_, a), (_, b)| a == b);
        let change = |chunk: &[&&(&Arc<Node>, String)]| {
            let new = chunk.iter().filter(|(node, _)| !node.labels.contains_key(LABEL));
            let new = new.filter_map(|(node, id)| Some((id.clone(), node.created?))).collect();
            let instances = chunk.iter().map(|(_, id)| id.clone()).collect();
            self.step(Change { action: Action::Add, instances, new })
        };
        lacking.chunks(BATCH).map(change).collect()
    }

    /// Returns the steps that remove tags from instances without a Node, and forgets those that have none of the tags.
    fn removals(&self, removed: Vec<String>, found: &BTreeMap<String, Instance>) -> Vec<Step<Change>> {
        let has_any = |id: &String| found.get(id).is_some_and(|instance| has_any(instance, &self.options.tags));
        let (tagged, others): (Vec<_>, Vec<_>) = removed.into_iter().partition(has_any);
        others.iter().for_each(|id| self.memory.forget(id));
        let tagged: Vec<_> = tagged.into_iter().filter(|id| !self.memory.is_waiting(id)).collect();
        let change = |chunk: &[String]| {
            self.step(Change { action: Action::Remove, instances: chunk.to_vec(), new: BTreeMap::new() })
        };
        tagged.chunks(BATCH).map(change).collect()
    }

    fn step(&self, change: Change) -> Step<Change> {
        let pairs: Vec<_> = self.options.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let tags = Some(pairs.join(","));
        let (from, to) = if change.action == Action::Add { (None, tags) } else { (tags, None) };
        let field = |id: &String| FieldChange::new(format!("tags of {id}"), from.clone(), to.clone());
        let fields = change.instances.iter().map(field).collect();
        let name = change.instances.first().cloned().unwrap_or_default();
        Step::new(Verb::Update, "instances", name, fields, change)
    }

    async fn apply(&self, change: &Change) -> Result<()> {
        let mut failure = None;
        for (id, result) in self.write(change.action, change.instances.clone()).await? {
            match result {
                Ok(()) => self.record(change, &id),
                // The instance is gone, or never existed.
                Err(error) if is_unknown(&error) => self.memory.forget(&id),
                Err(error) => {
                    self.metrics.failed(&id, self.memory.fail(&id));
                    failure = failure.or(Some(error.context("instance", id)));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Records a success.
    fn record(&self, change: &Change, id: &str) {
        match change.action {
            Action::Add => self.memory.succeed(id),
            Action::Remove => self.memory.forget(id),
        }
        if let Some(created) = change.new.get(id) {
            self.metrics.tagged(Duration::try_from(Timestamp::now().duration_since(*created)).unwrap_or_default());
        }
    }

    /// Changes the tags of instances, and returns the result for each. Fails if AWS rejected the call itself.
    async fn write(&self, action: Action, ids: Vec<String>) -> Result<Vec<(String, Result<()>)>> {
        let error = match self.call(action, &ids).await {
            Ok(()) => return Ok(ids.into_iter().map(|id| (id, Ok(()))).collect()),
            Err(error) => error,
        };
        match ids.as_slice() {
            _ if !is_about_one(&error) => Err(error),
            [_] => Ok(ids.into_iter().map(|id| (id, Err(error.clone()))).collect()),
            _ => self.write_others(action, ids, error).await,
        }
    }

    /// Changes the tags of the instances that the message of an error does not name, or of all one by one.
    async fn write_others(&self, action: Action, ids: Vec<String>, error: Error) -> Result<Vec<(String, Result<()>)>> {
        let (named, rest) = if is_unknown(&error) { split_named(ids, error.message()) } else { (Vec::new(), ids) };
        let mut results: Vec<_> = named.iter().map(|id| (id.clone(), Err(error.clone()))).collect();
        if !named.is_empty() && (rest.is_empty() || self.call(action, &rest).await.is_ok()) {
            results.extend(rest.into_iter().map(|id| (id, Ok(()))));
            return Ok(results);
        }
        for id in rest {
            match self.call(action, std::slice::from_ref(&id)).await {
                Err(error) if !is_about_one(&error) => return Err(error),
                result => results.push((id, result)),
            }
        }
        Ok(results)
    }

    async fn call(&self, action: Action, ids: &[String]) -> Result<()> {
        match action {
            Action::Add => self.ec2.create_tags(ids, &self.options.tags).await,
            Action::Remove => self.ec2.delete_tags(ids, &self.options.tags).await,
        }
    }
}

fn has_all(instance: &Instance, tags: &Tags) -> bool {
    tags.iter().all(|(key, value)| instance.tags.get(key) == Some(value))
}

fn has_any(instance: &Instance, tags: &Tags) -> bool {
    tags.iter().any(|(key, value)| instance.tags.get(key) == Some(value))
}

/// Returns whether AWS does not know the instance.
fn is_unknown(error: &Error) -> bool {
    is_about_ids(error) || error.code() == Some(INVALID_ID)
}

/// Returns whether AWS rejected a call because of one of its instances, rather than every call.
fn is_about_one(error: &Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::InvalidConfig, ErrorKind::QuotaExceeded, ErrorKind::Conflict];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests;
