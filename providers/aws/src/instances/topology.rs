//! Network topology of instances, as labels of Nodes: workloads that exchange much data are placed close to each other.
//!
//! Labels are written when a Node is initialised, but every lookup may be the one for that. So the topology of an instance, and the
//! fact that there is none, is kept for a day: other lookups make no call.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, Result};
use regex::Regex;
use tokio::time::Instant;

use super::lookup::{is_about_ids, split_named};
use crate::api::ec2::{Ec2, Instance, InstanceTopology};

/// Prefix of the labels; the number of the layer follows, 1 for the top layer.
const LABEL: &str = "topology.k8s.aws/network-node-layer-";

/// Maximum number of IDs in a call.
const BATCH: usize = 100;

/// Time for which a result is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Error codes of a region or an account without topology.
const UNSUPPORTED: [&str; 2] = ["UnsupportedOperation", "UnauthorizedOperation"];

/// Labels by key.
pub(super) type Labels = BTreeMap<String, String>;

/// Results of earlier calls.
#[derive(Default)]
pub(crate) struct Topology {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Labels by instance; none for an instance without topology.
    instances: HashMap<String, (Instant, Labels)>,
    /// Instance types without topology.
    types: HashMap<String, Instant>,
    /// Set if the region has no topology.
    region: Option<Instant>,
}

impl Topology {
    /// Returns the labels of instances, by ID. `required` matches the types whose Nodes must not be initialised without them.
    pub(super) async fn read(
        &self,
        ec2: &Ec2,
        instances: &[&Instance],
        required: Option<&Regex>,
    ) -> HashMap<String, Result<Labels>> {
        let mut failed = HashMap::new();
        let mut open = self.open(instances);
        while let Some(chunk) = self.next(&mut open) {
            if let Err(error) = self.ask(ec2, chunk.clone(), required).await {
                // The other calls would fail, too.
                let asked = chunk.into_iter().chain(open.drain(..));
                failed.extend(asked.filter_map(|one| one.failed(&error, required)));
            }
        }
        let known = self.known();
        let labels = |id: &str| known.instances.get(id).map(|(_, labels)| labels.clone()).unwrap_or_default();
        let answer = |one: &&Instance| {
            let id = one.instance_id.clone();
            let answer = failed.remove(&id).map_or_else(|| Ok(labels(&id)), Err);
            (id, answer)
        };
        instances.iter().map(answer).collect()
    }

    /// Returns the instances whose topology is unknown. The first one of each type comes first: the response to the first call shows
    /// which types have no topology at all, so that their other instances need no further calls.
    fn open(&self, instances: &[&Instance]) -> VecDeque<Asked> {
        let known = self.known();
        let mut types = HashSet::new();
        let is_open = |one: &&&Instance| !one.instance_type.is_empty() && runs(one) && !known.has(&one.instance_id);
        let open = instances.iter().filter(is_open);
        let (first, others): (Vec<&&Instance>, Vec<_>) = open.partition(|one| types.insert(one.instance_type.as_str()));
        first.into_iter().chain(others).map(|one| Asked::of(one)).collect()
    }

    /// Takes the instances of the next call.
    fn next(&self, open: &mut VecDeque<Asked>) -> Option<Vec<Asked>> {
        let known = self.known();
        if known.region.is_some_and(is_kept) {
            return None;
        }
        open.retain(|one| !known.types.get(&one.instance_type).copied().is_some_and(is_kept));
        let chunk: Vec<_> = open.drain(..open.len().min(BATCH)).collect();
        Some(chunk).filter(|chunk| !chunk.is_empty())
    }

    /// Reads the topology of instances, and repeats the call without those that AWS does not know.
    async fn ask(&self, ec2: &Ec2, chunk: Vec<Asked>, required: Option<&Regex>) -> Result<()> {
        let ids: Vec<_> = chunk.iter().map(|one| one.id.clone()).collect();
        let mut answer = ec2.instance_topology(&ids).await;
        let mut unknown = Vec::new();
        if let Err(error) = &answer
            && is_about_ids(error)
        {
            let (named, rest) = split_named(ids, error.message());
            if !named.is_empty() {
                answer = if rest.is_empty() { Ok(Vec::new()) } else { ec2.instance_topology(&rest).await };
                unknown = named;
            }
        }
        let asked = chunk.into_iter().filter(|one| !unknown.contains(&one.id)).collect();
        self.known().add(asked, answer, required)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn has(&self, instance: &str) -> bool {
        self.instances.get(instance).is_some_and(|(since, _)| is_kept(*since))
    }

    /// Records the result of a call.
    fn add(
        &mut self,
        asked: Vec<Asked>,
        answer: Result<Vec<InstanceTopology>>,
        required: Option<&Regex>,
    ) -> Result<()> {
        let now = Instant::now();
        let found = match answer {
            Ok(found) => found,
            Err(error) if error.code().is_some_and(|code| UNSUPPORTED.contains(&code)) => {
                tracing::debug!(%error, "the region has no topology of instances");
                self.region = Some(now);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.instances.retain(|_, (since, _)| is_kept(*since));
        let mut found: HashMap<_, _> = found.into_iter().map(|one| (one.instance_id.clone(), one)).collect();
        let supported: HashSet<_> =
            asked.iter().filter(|one| found.contains_key(&one.id)).map(|one| one.instance_type.clone()).collect();
        for one in asked {
            let labels = found.remove(&one.id).map(labels);
            if labels.is_none() && !supported.contains(&one.instance_type) && !one.is_required(required) {
                self.types.insert(one.instance_type, now);
            } else {
                self.instances.insert(one.id, (now, labels.unwrap_or_default()));
            }
        }
        Ok(())
    }
}

/// An instance whose topology is read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    id: String,
    instance_type: String,
}

impl Asked {
    fn of(instance: &Instance) -> Asked {
        Asked { id: instance.instance_id.clone(), instance_type: instance.instance_type.clone() }
    }

    fn is_required(&self, required: Option<&Regex>) -> bool {
        required.is_some_and(|pattern| pattern.is_match(&self.instance_type))
    }

    /// Returns the error of the Node, if it needs the labels.
    fn failed(self, error: &Error, required: Option<&Regex>) -> Option<(String, Error)> {
        if self.is_required(required) {
            let operation = format!("failed to get the topology of instance {}", self.id);
            return Some((self.id, error.clone().during(operation)));
        }
        tracing::warn!(instance = self.id, %error, "the topology could not be read: the Node gets no labels for it");
        None
    }
}

/// Returns whether the instance has a place in the network.
fn runs(instance: &Instance) -> bool {
    matches!(instance.instance_state.name.as_str(), "pending" | "running")
}

fn is_kept(since: Instant) -> bool {
    since.elapsed() < KEPT
}

fn labels(topology: InstanceTopology) -> Labels {
    let layers = topology.network_nodes.into_iter().enumerate();
    layers.map(|(at, node)| (format!("{LABEL}{}", at + 1), node)).collect()
}

#[cfg(test)]
mod tests {
    use bowline_cloud::ErrorKind;

    use super::*;
    use crate::api::ec2::testing::scripted;

    fn instance(id: &str, kind: &str, state: &str) -> Instance {
        let mut one = Instance { instance_id: id.to_owned(), instance_type: kind.to_owned(), ..Instance::default() };
        one.instance_state.name = state.to_owned();
        one
    }

    fn ids(asked: &VecDeque<Asked>) -> Vec<&str> {
        asked.iter().map(|one| one.id.as_str()).collect()
    }

    fn required() -> Option<Regex> {
        Regex::new("^p[0-9]").ok()
    }

    fn network(id: &str) -> InstanceTopology {
        InstanceTopology { instance_id: id.to_owned(), network_nodes: vec!["nn-1".to_owned(), "nn-2".to_owned()] }
    }

    fn ask(topology: &Topology, all: &[Instance], answer: Result<Vec<InstanceTopology>>) -> Result<()> {
        let mut open = topology.open(&all.iter().collect::<Vec<_>>());
        let chunk = topology.next(&mut open).unwrap_or_default();
        topology.known().add(chunk, answer, required().as_ref())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_instance_of_each_type_is_asked_first() {
        let all = [
            instance("i-1", "m5", "running"),
            instance("i-2", "m5", "running"),
            instance("i-3", "p5", "pending"),
            instance("i-4", "", "running"),
            instance("i-5", "c5", "stopped"),
        ];
        assert_eq!(ids(&Topology::default().open(&all.iter().collect::<Vec<_>>())), ["i-1", "i-3", "i-2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_kept_for_a_day() {
        let topology = Topology::default();
        let all: Vec<_> = ["m5", "m5", "p5", "p5", "hpc"]
            .iter()
            .enumerate()
            .map(|(at, kind)| instance(&format!("i-{at}"), kind, "running"))
            .collect();
        // No m5 has a topology, one p5 has, hpc has.
        ask(&topology, &all, Ok(vec![network("i-2"), network("i-4")])).unwrap();
        let open = |all: &[Instance]| {
            let mut open = topology.open(&all.iter().collect::<Vec<_>>());
            topology.next(&mut open).unwrap_or_default().into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(open(&all), Vec::<String>::new());
        let new = [instance("i-7", "m5", "running"), instance("i-8", "p5", "running")];
        assert_eq!(open(&new), ["i-8"], "the type m5 has no topology");
        let labels = topology.known().instances["i-2"].1.clone();
        let expected =
            [("topology.k8s.aws/network-node-layer-1", "nn-1"), ("topology.k8s.aws/network-node-layer-2", "nn-2")];
        assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        tokio::time::advance(KEPT).await;
        assert_eq!(open(&all), ["i-0", "i-2", "i-4", "i-1", "i-3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_required_type_is_never_unsupported_as_a_whole() {
        let topology = Topology::default();
        ask(&topology, &[instance("i-1", "p5", "running")], Ok(Vec::new())).unwrap();
        let known = topology.known();
        assert!(known.types.is_empty() && known.has("i-1") && !known.has("i-2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_region_without_topology_is_asked_once_a_day() {
        for code in UNSUPPORTED {
            let topology = Topology::default();
            let all = [instance("i-1", "p5", "running")];
            let error = Error::new(ErrorKind::Unsupported, "x", "no").with_code(code);
            ask(&topology, &all, Err(error)).unwrap();
            let open = || topology.next(&mut topology.open(&all.iter().collect::<Vec<_>>()));
            assert_eq!(open(), None, "{code}");
            tokio::time::advance(KEPT).await;
            assert!(open().is_some(), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_errors_fail_only_nodes_of_required_types() {
        let error = Error::new(ErrorKind::RateLimited, "x", "slow down");
        let topology = Topology::default();
        let all = [instance("i-1", "p5", "running")];
        assert!(ask(&topology, &all, Err(error.clone())).is_err());
        let failed = |one: &Instance| Asked::of(one).failed(&error, required().as_ref());
        assert_eq!(
            failed(&all[0]).map(|(id, error)| (id, error.kind())),
            Some(("i-1".to_owned(), ErrorKind::RateLimited))
        );
        assert!(failed(&instance("i-2", "m5", "running")).is_none());
    }

    /// Reads the topology of instances of these types, on an EC2 that knows the type p5. Returns the number of labels of each
    /// instance, and the number of IDs in each call.
    async fn read(types: &[&str], unknown: &'static str) -> (Vec<usize>, Vec<usize>) {
        let (ec2, journal) = scripted(move |call| {
            let ids = call.list("InstanceId");
            if ids.contains(&unknown) {
                return Err(("InvalidInstanceID.NotFound", format!("The instance ID '{unknown}' does not exist")));
            }
            let item = |id: &&&str| {
                id.starts_with("i-p5").then(|| {
                    format!(
                        "<item><instanceId>{id}</instanceId><networkNodeSet><item>nn-1</item></networkNodeSet></item>"
                    )
                })
            };
            let items: String = ids.iter().filter_map(|id| item(&id)).collect();
            Ok(format!("<instanceSet>{items}</instanceSet>"))
        });
        let numbered = types.iter().enumerate();
        let all: Vec<_> = numbered.map(|(at, kind)| instance(&format!("i-{kind}{at}"), kind, "running")).collect();
        let (all, topology) = (all.iter().collect::<Vec<_>>(), Topology::default());
        let mut labels = topology.read(&ec2, &all, required().as_ref()).await;
        let labels = all.iter().map(|one| labels.remove(&one.instance_id).unwrap().unwrap().len()).collect();
        let _ = topology.read(&ec2, &all, None).await;
        let calls = journal.lock().unwrap().iter().map(|call| call.list("InstanceId").len()).collect();
        (labels, calls)
    }

    #[tokio::test]
    async fn one_call_shows_which_types_have_no_topology() {
        assert_eq!(read(&["m5"; 1000], "").await, (vec![0; 1000], vec![100]));
        assert_eq!(read(&["p5"; 250], "").await, (vec![1; 250], vec![100, 100, 50]));
        let mixed = [vec!["m5"; 300], vec!["p5"; 30]].concat();
        assert_eq!(read(&mixed, "").await, ([vec![0; 300], vec![1; 30]].concat(), vec![100, 29]));
    }

    #[tokio::test]
    async fn an_unknown_instance_does_not_fail_the_others() {
        assert_eq!(read(&["p5", "p5"], "i-p50").await.0, [0, 1]);
    }
}
