//! Lookups of instances, in as few calls as possible.
//!
//! ```text
//!  IDs ──► DescribeInstances of 1,000 IDs ──rejected──► without the IDs that the message names, or in halves
//!  names ──► DescribeInstances with a filter of 195 private DNS names ──► those with the tag of the cluster
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::Future;

use bowline_cloud::{Error, ErrorKind, Identity, Result, Retry};
use futures::future::join;
use futures::stream::{self, StreamExt as _};

use super::FIND;
use super::id::{INSTANCE, is_fargate};
use crate::Aws;
use crate::api::Filter;
use crate::api::ec2::{Instance, NetworkInterface};
use crate::cluster_tags::{ClusterTags, LEGACY_TAG};

/// Maximum number of IDs in a call.
pub(crate) const BATCH: usize = 1000;

/// Maximum number of filter values in a call, of all its filters together.
pub(super) const FILTER_VALUES: usize = 200;

/// Maximum number of concurrent calls for one lookup.
const PARALLEL: usize = 4;

/// States of an instance that exists.
pub(super) const EXISTING: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

/// State of an instance that is deleted, and shown for about an hour.
pub(super) const TERMINATED: &str = "terminated";

/// Code of the error of an ID that no instance has.
pub(crate) const UNKNOWN: &str = "InvalidInstanceID.NotFound";

/// Code of the error of an ID that cannot be the ID of an instance.
const MALFORMED: &str = "InvalidInstanceID.Malformed";

/// A machine of a Node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Machine {
    /// EC2 instance.
    Instance(Box<Instance>),
    /// Network interface of the Pod that is a Fargate Node.
    Fargate(Box<NetworkInterface>),
}

/// Result of one lookup; `None` if the machine does not exist.
pub(crate) type Answer<T> = Result<Option<T>>;

/// Results of lookups.
pub(crate) type Found = HashMap<Identity, Answer<Machine>>;

impl Aws {
    /// Reads instances by ID, in as few calls as possible; those that do not exist are missing in the result.
    pub(crate) async fn describe_existing(&self, ids: &[String]) -> Result<BTreeMap<String, Instance>> {
        let mut existing = BTreeMap::new();
        for (id, answer) in self.instances_of(ids.iter().cloned().collect()).await {
            match answer {
                Ok(Some(instance)) => drop(existing.insert(id, instance)),
                Ok(None) => {}
                Err(error) if error.code() == Some(MALFORMED) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(existing)
    }

    /// Looks up all of these machines.
    pub(crate) async fn look_up(&self, identities: HashSet<Identity>) -> Found {
        let (mut ids, mut pods, mut names) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for identity in identities {
            match identity {
                Identity::Id(id) if is_fargate(&id) => drop(pods.insert(id)),
                Identity::Id(id) => drop(ids.insert(id)),
                Identity::Name(name) => drop(names.insert(name)),
                Identity::NotMine => {}
            }
        }
        let instances = join(self.instances_of(ids), self.instances_named(names));
        let ((ids, names), pods) = join(instances, self.fargate_pods(pods)).await;
        let instance = |answer: Answer<Instance>| answer.map(|one| one.map(|one| Machine::Instance(Box::new(one))));
        let pod = |answer: Answer<NetworkInterface>| answer.map(|one| one.map(|one| Machine::Fargate(Box::new(one))));
        let ids = ids.into_iter().map(|(id, answer)| (Identity::Id(id), instance(answer)));
        let names = names.into_iter().map(|(name, answer)| (Identity::Name(name), instance(answer)));
        let pods = pods.into_iter().map(|(id, answer)| (Identity::Id(id), pod(answer)));
        ids.chain(names).chain(pods).collect()
    }

    /// Looks up instances by ID. A terminated one does not exist.
    pub(crate) async fn instances_of(&self, ids: BTreeSet<String>) -> Vec<(String, Answer<Instance>)> {
        let read = |ids: Vec<String>| async move { self.ec2.instances_by_id(&ids).await };
        let chunks = in_chunks(ids, BATCH).map(|chunk| batch(chunk, read));
        let chunks: Vec<_> = stream::iter(chunks).buffer_unordered(PARALLEL).collect().await;
        chunks.into_iter().flatten().map(|(id, answer)| (id.clone(), of_id(&id, answer))).collect()
    }

    async fn instances_named(&self, names: BTreeSet<String>) -> Vec<(String, Answer<Instance>)> {
        let cluster = match self.identity() {
            Ok(identity) => &identity.cluster,
            Err(error) => return names.into_iter().map(|name| (name, Err(error.clone()))).collect(),
        };
        let chunks = in_chunks(names, FILTER_VALUES - EXISTING.len()).map(|chunk| async move {
            let filters = [Filter::new("private-dns-name", &chunk), Filter::new("instance-state-name", EXISTING)];
            let found = self.ec2.instances(&filters).await;
            by_name(chunk, found, cluster)
        });
        stream::iter(chunks).buffer_unordered(PARALLEL).collect::<Vec<_>>().await.concat()
    }
}

/// Returns the filters of all instances of the cluster.
pub(super) fn filters_of(cluster: &ClusterTags) -> [Filter; 2] {
    [Filter::new("tag-key", [cluster.key(), LEGACY_TAG]), Filter::new("instance-state-name", EXISTING)]
}

/// Splits a set into chunks.
pub(super) fn in_chunks(all: BTreeSet<String>, size: usize) -> impl Iterator<Item = Vec<String>> {
    let all: Vec<_> = all.into_iter().collect();
    let mut rest = all.into_iter();
    std::iter::from_fn(move || Some(rest.by_ref().take(size).collect::<Vec<_>>()).filter(|chunk| !chunk.is_empty()))
}

/// Result of a lookup in a batch: the instance, or `None` if AWS reported that it does not exist, or omitted it.
enum Batched {
    Found(Box<Instance>),
    Omitted,
    Unknown,
    Failed(Error),
}

/// Looks up IDs with as few calls as possible. AWS rejects a whole call because of one ID, and usually names all such IDs in the
/// message: the call is repeated without them. Otherwise it is repeated in halves.
async fn batch<F, R>(ids: Vec<String>, read: F) -> Vec<(String, Batched)>
where
    F: Fn(Vec<String>) -> R,
    R: Future<Output = Result<Vec<Instance>>>,
{
    let (mut answers, mut open) = (Vec::with_capacity(ids.len()), vec![ids]);
    while let Some(ids) = open.pop() {
        match read(ids.clone()).await {
            Ok(found) => answers.extend(sorted_in(ids, found)),
            Err(error) if ids.len() > 1 && is_about_ids(&error) => {
                let (named, mut rest) = split_named(ids, error.message());
                if named.is_empty() {
                    open.push(rest.split_off(rest.len() / 2));
                }
                answers.extend(all_failed(named, &error));
                open.extend(Some(rest).filter(|rest| !rest.is_empty()));
            }
            Err(error) => answers.extend(all_failed(ids, &error)),
        }
    }
    answers
}

/// Assigns the instances of a response to the requested IDs.
fn sorted_in(ids: Vec<String>, found: Vec<Instance>) -> Vec<(String, Batched)> {
    let mut found: HashMap<_, _> = found.into_iter().map(|one| (one.instance_id.clone(), Box::new(one))).collect();
    let answer = |id: String| {
        let answer = found.remove(&id).map_or(Batched::Omitted, Batched::Found);
        (id, answer)
    };
    ids.into_iter().map(answer).collect()
}

fn all_failed(ids: Vec<String>, error: &Error) -> Vec<(String, Batched)> {
    let failed = || match error.code() {
        Some(UNKNOWN) => Batched::Unknown,
        _ => Batched::Failed(error.clone()),
    };
    ids.into_iter().map(|id| (id, failed())).collect()
}

/// Returns whether AWS rejected a call because of some of its IDs.
pub(crate) fn is_about_ids(error: &Error) -> bool {
    matches!(error.code(), Some(UNKNOWN | MALFORMED))
}

/// Separates the IDs that a message names from the others.
pub(crate) fn split_named(ids: Vec<String>, message: &str) -> (Vec<String>, Vec<String>) {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let named: HashSet<&str> = message.split(|c| !is_inner(c)).filter(|word| word.starts_with(INSTANCE)).collect();
    ids.into_iter().partition(|id| named.contains(id.as_str()))
}

/// Returns the result of a lookup by ID.
fn of_id(id: &str, answer: Batched) -> Answer<Instance> {
    let failed = || format!("failed to get instance by ID {id}");
    match answer {
        Batched::Found(one) if one.instance_state.name == TERMINATED => Ok(None),
        // upstream: an instance without a state does not exist.
        Batched::Found(one) if one.instance_state.name.is_empty() => {
            Err(Error::new(ErrorKind::Unexpected, failed(), "EC2 returned it without a state"))
        }
        Batched::Found(one) => Ok(Some(*one)),
        Batched::Unknown => Ok(None),
        // upstream: an instance that the response omits does not exist.
        Batched::Omitted => Err(Error::new(ErrorKind::Unexpected, failed(), "EC2 omitted it from its response")),
        Batched::Failed(error) => Err(error.during(format!("{}: error listing AWS instances", failed()))),
    }
}

/// Returns the results of lookups by name: only instances of the cluster count.
fn by_name(names: Vec<String>, found: Result<Vec<Instance>>, cluster: &ClusterTags) -> Vec<(String, Answer<Instance>)> {
    let failed = |name: &str| format!("getInstanceByNodeName failed for {name:?}");
    let found = match found {
        Ok(found) => found.into_iter().filter(|one| cluster.is_tagged(&one.tags)),
        Err(error) => {
            let answer = |name: String| {
                let error = error.clone().during(failed(&name));
                (name, Err(error))
            };
            return names.into_iter().map(answer).collect();
        }
    };
    let mut by_name: HashMap<String, Vec<Instance>> = HashMap::new();
    found.for_each(|one| by_name.entry(one.private_dns_name.clone()).or_default().push(one));
    let answer = |name: String| {
        let mut found = by_name.remove(&name).unwrap_or_default();
        let answer = match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => Err(ambiguous(&name, &found)),
        };
        (name, answer)
    };
    names.into_iter().map(answer).collect()
}

fn ambiguous(name: &str, found: &[Instance]) -> Error {
    let ids: Vec<_> = found.iter().map(|one| one.instance_id.as_str()).collect();
    let message = format!("multiple instances found for name: {name} ({})", ids.join(", "));
    // No event reports that an operator fixed this: retry.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn instance(id: &str, state: &str) -> Instance {
        let mut one = Instance { instance_id: id.to_owned(), ..Instance::default() };
        one.instance_state.name = state.to_owned();
        one
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    /// An EC2 with these instances. Its messages name unknown IDs, unless it is terse.
    struct Cloud {
        known: &'static [&'static str],
        terse: bool,
        calls: Mutex<Vec<usize>>,
    }

    impl Cloud {
        fn read(&self, ids: Vec<String>) -> Result<Vec<Instance>> {
            self.calls.lock().unwrap().push(ids.len());
            let bad = |code, bad: Vec<&str>| {
                let shown = if self.terse { String::new() } else { bad.join(", ") };
                let message = format!("api error {code}: The instance IDs '{shown}' do not exist");
                Err(Error::new(ErrorKind::NotFound, "DescribeInstances", message).with_code(code))
            };
            let malformed: Vec<_> = ids.iter().map(String::as_str).filter(|id| id.contains("bad")).collect();
            if !malformed.is_empty() {
                return bad(MALFORMED, malformed);
            }
            let unknown: Vec<_> = ids.iter().map(String::as_str).filter(|id| !self.known.contains(id)).collect();
            if !unknown.is_empty() {
                return bad(UNKNOWN, unknown);
            }
            Ok(ids.iter().map(|id| instance(id, "running")).collect())
        }
    }

    /// Returns the results by ID, and the numbers of IDs of all calls.
    async fn looked_up(asked: &[&str], terse: bool) -> (Vec<String>, Vec<usize>) {
        let cloud = Cloud { known: &["i-1", "i-2", "i-12"], terse, calls: Mutex::default() };
        let answers = batch(ids(asked), |ids| std::future::ready(cloud.read(ids))).await;
        let shown = |(id, answer): (String, Batched)| match of_id(&id, answer) {
            Ok(Some(_)) => format!("{id} exists"),
            Ok(None) => format!("{id} is gone"),
            Err(error) => format!("{id} {}", error.code().unwrap_or_default()),
        };
        let mut shown: Vec<_> = answers.into_iter().map(shown).collect();
        shown.sort();
        (shown, cloud.calls.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_call_is_repeated_without_the_ids_that_the_message_names() {
        let (answers, calls) = looked_up(&["i-1", "i-2"], false).await;
        assert_eq!((answers, calls), (ids(&["i-1 exists", "i-2 exists"]), vec![2]));
        // i-1 is not part of i-1x.
        let (answers, calls) = looked_up(&["i-1", "i-1x", "i-12", "i-9"], false).await;
        let expected = ids(&["i-1 exists", "i-12 exists", "i-1x is gone", "i-9 is gone"]);
        assert_eq!((answers, calls), (expected, vec![4, 2]));
        let (answers, calls) = looked_up(&["i-8", "i-9"], false).await;
        assert_eq!((answers, calls), (ids(&["i-8 is gone", "i-9 is gone"]), vec![2]));
        let (answers, calls) = looked_up(&["i-9"], false).await;
        assert_eq!((answers, calls), (ids(&["i-9 is gone"]), vec![1]));
    }

    #[tokio::test]
    async fn a_call_is_repeated_as_long_as_aws_rejects_ids() {
        let (answers, calls) = looked_up(&["i-1", "i-9", "i-bad"], false).await;
        let expected = ids(&["i-1 exists", "i-9 is gone", "i-bad InvalidInstanceID.Malformed"]);
        assert_eq!((answers, calls), (expected, vec![3, 2, 1]));
    }

    #[tokio::test]
    async fn a_call_is_repeated_in_halves_if_the_message_names_no_id() {
        let (answers, calls) = looked_up(&["i-1", "i-2", "i-9", "i-12"], true).await;
        let expected = ids(&["i-1 exists", "i-12 exists", "i-2 exists", "i-9 is gone"]);
        assert_eq!((answers, calls), (expected, vec![4, 2, 2, 1, 1]));
    }

    #[test]
    fn only_a_terminated_or_unknown_instance_is_gone() {
        let found = |state: &str| Batched::Found(Box::new(instance("i-1", state)));
        for state in EXISTING {
            assert!(of_id("i-1", found(state)).unwrap().is_some(), "{state}");
        }
        assert_eq!(of_id("i-1", found(TERMINATED)).unwrap(), None);
        assert_eq!(of_id("i-1", Batched::Unknown).unwrap(), None);
        for omitted in [found(""), Batched::Omitted] {
            let error = of_id("i-1", omitted).unwrap_err();
            assert_eq!((error.kind(), error.operation()), (ErrorKind::Unexpected, "failed to get instance by ID i-1"));
        }
    }

    #[test]
    fn names_find_instances_of_the_cluster_only() {
        let named = |id: &str, name: &str, cluster: &str| Instance {
            private_dns_name: name.to_owned(),
            tags: [(format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned())].into(),
            ..instance(id, "running")
        };
        let found = vec![
            named("i-1", "a", "demo"),
            named("i-2", "a", "other"),
            named("i-3", "b", "demo"),
            named("i-4", "b", "demo"),
            named("i-5", "c", "other"),
        ];
        let cluster = ClusterTags::new("demo", false);
        let answers: HashMap<_, _> = by_name(ids(&["a", "b", "c", "d"]), Ok(found), &cluster).into_iter().collect();
        assert_eq!(answers["a"].as_ref().unwrap().as_ref().unwrap().instance_id, "i-1");
        let error = answers["b"].as_ref().unwrap_err().message().to_owned();
        assert_eq!(error, "multiple instances found for name: b (i-3, i-4)");
        assert!(answers["c"].as_ref().unwrap().is_none() && answers["d"].as_ref().unwrap().is_none());
        let failed = by_name(ids(&["a"]), Err(Error::new(ErrorKind::Unavailable, "x", "broken")), &cluster);
        let error = failed[0].1.as_ref().unwrap_err().to_string();
        assert_eq!(error, "getInstanceByNodeName failed for \"a\": broken");
    }

    #[test]
    fn chunks_contain_everything_once() {
        let all: BTreeSet<String> = (0..7).map(|n| n.to_string()).collect();
        let chunks: Vec<_> = in_chunks(all, 3).map(|chunk| chunk.len()).collect();
        assert_eq!(chunks, [3, 3, 1]);
        assert_eq!(in_chunks(BTreeSet::new(), 3).count(), 0);
    }
}
