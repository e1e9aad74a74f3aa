//! Target lists, shared by all load balancers with the same targets.
//!
//! A cluster with 5,000 Nodes and 200 Services has one list of 5,000 targets, not 200. During deserialization a list is compared
//! with the lists in use, so another copy of a known list allocates no memory.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::records::BalancerTarget;

/// Immutable targets of a load balancer. Cheap to clone.
#[derive(Clone)]
pub struct Targets(Arc<List>);

struct List {
    version: u64,
    targets: Vec<BalancerTarget>,
}

/// Maximum number of lists that are compared with a new one. More than a few different lists are rare.
const MAX_COMPARED: usize = 8;

/// Latest lists that are still in use.
static LATEST: Mutex<Vec<Weak<List>>> = Mutex::new(Vec::new());

/// Version of the next list; unique in this process.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(0);

static EMPTY: LazyLock<Targets> = LazyLock::new(|| Targets::new(Vec::new()));

impl Targets {
    /// Identifies the list in this process: equal versions mean the same list.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    fn new(targets: Vec<BalancerTarget>) -> Targets {
        let list = Arc::new(List { version: NEXT_VERSION.fetch_add(1, Ordering::Relaxed), targets });
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        latest.retain(|list| list.strong_count() > 0);
        latest.truncate(MAX_COMPARED - 1);
        latest.insert(0, Arc::downgrade(&list));
        Targets(list)
    }
}

/// Lists in use, latest first.
fn latest() -> Vec<Targets> {
    LATEST.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).map(Targets).collect()
}

impl From<Vec<BalancerTarget>> for Targets {
    fn from(targets: Vec<BalancerTarget>) -> Targets {
        if targets.is_empty() {
            return Targets::default();
        }
        latest().into_iter().find(|known| **known == *targets).unwrap_or_else(|| Targets::new(targets))
    }
}

impl Default for Targets {
    fn default() -> Targets {
        EMPTY.clone()
    }
}

impl Deref for Targets {
    type Target = [BalancerTarget];

    fn deref(&self) -> &[BalancerTarget] {
        &self.0.targets
    }
}

impl PartialEq for Targets {
    fn eq(&self, other: &Targets) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Targets {}

/// Prints only the number of targets, because a list may have thousands.
impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Targets(version {}, {} targets)", self.version(), self.len())
    }
}

impl Serialize for Targets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

// ---- deserialization

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Targets, D::Error> {
        deserializer.deserialize_seq(PartialList { equal: latest(), read: Vec::new() })
    }
}

/// List during deserialization.
struct PartialList {
    /// Known lists with the same prefix.
    equal: Vec<Targets>,
    /// Targets read, if there are no such lists.
    read: Vec<BalancerTarget>,
}

/// Target with borrowed strings.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Borrowed<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(default, borrow)]
    machine: Option<Text<'a>>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    draining: bool,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrowed<'_> {
    fn is_equal(&self, known: &BalancerTarget) -> bool {
        self.name.0 == known.name
            && self.machine.as_ref().map(|machine| &*machine.0) == known.machine.as_deref()
            && self.addresses == known.addresses
            && self.draining == known.draining
    }

    fn into_owned(self) -> BalancerTarget {
        let Borrowed { name, machine, addresses, draining } = self;
        let machine = machine.map(|machine| machine.0.into_owned());
        BalancerTarget { name: name.0.into_owned(), machine, addresses, draining }
    }
}

impl PartialList {
    /// Adds the next target, after `count` others.
    fn add(&mut self, count: usize, target: Borrowed<'_>) {
        if let Some(known) = self.equal.first().cloned() {
            self.equal.retain(|known| known.get(count).is_some_and(|known| target.is_equal(known)));
            if self.equal.is_empty() {
                self.read.extend_from_slice(known.get(..count).unwrap_or_default());
            }
        }
        if self.equal.is_empty() {
            self.read.push(target.into_owned());
        }
    }

    /// Completes the list of `count` targets.
    fn finish(self, count: usize) -> Targets {
        if count == 0 {
            return Targets::default();
        }
        let same = self.equal.iter().find(|known| known.len() == count).cloned();
        let prefix = || self.equal.first().and_then(|known| known.get(..count)).map(<[_]>::to_vec);
        same.unwrap_or_else(|| Targets::new(prefix().unwrap_or(self.read)))
    }
}

impl<'de> Visitor<'de> for PartialList {
    type Value = Targets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of targets")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut targets: A) -> Result<Targets, A::Error> {
        let mut count = 0;
        while let Some(target) = targets.next_element::<Borrowed<'de>>()? {
            self.add(count, target);
            count += 1;
        }
        Ok(self.finish(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run concurrently, so each uses its own names.
    fn list(prefix: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<BalancerTarget> {
        let target = |number: u32| BalancerTarget {
            name: format!("{prefix}-{number:05}"),
            machine: number.is_multiple_of(2).then(|| format!("i-{number}")),
            addresses: vec![IpAddr::from(number.to_be_bytes())],
            draining: number.is_multiple_of(7),
        };
        numbers.into_iter().map(target).collect()
    }

    fn read(targets: &[BalancerTarget]) -> Targets {
        serde_json::from_slice(&serde_json::to_vec(targets).unwrap()).unwrap()
    }

    #[test]
    fn equal_lists_are_shared_however_they_are_created() {
        let created = Targets::from(list("one", 0..100));
        assert_eq!(Targets::from(list("one", 0..100)).version(), created.version());
        assert_eq!(read(&list("one", 0..100)).version(), created.version());
        let parsed: Targets = serde_json::from_value(serde_json::to_value(&created).unwrap()).unwrap();
        assert_eq!(parsed.version(), created.version());
    }

    #[test]
    fn a_list_is_deserialized_correctly_whatever_lists_are_known() {
        let known = [Targets::from(list("two", 0..50)), Targets::from(list("two", (0..50).filter(|n| *n != 30)))];
        let changed = |edit: fn(&mut BalancerTarget)| {
            let mut targets = list("two", 0..50);
            targets.iter_mut().skip(20).take(1).for_each(edit);
            targets
        };
        let lists = [
            list("two", 0..0),
            list("two", 0..20),
            list("two", 0..60),
            list("two", 10..50),
            list("two", (0..50).rev()),
            changed(|target| target.name.push('"')),
            changed(|target| target.machine = None),
            changed(|target| target.addresses.clear()),
            changed(|target| target.draining = !target.draining),
        ];
        for targets in lists {
            assert_eq!(*read(&targets), *targets);
            assert!(known.iter().all(|known| known.version() != read(&targets).version()));
        }
        assert_eq!([read(&known[0]), read(&known[1])].map(|read| read.version()), [0, 1].map(|at| known[at].version()));
    }

    #[test]
    fn an_invalid_target_is_rejected() {
        for text in ["{}", "[1]", "[{}]", r#"[{"name":"a","port":1}]"#, r#"[{"name":"a","addresses":["x"]}]"#] {
            assert!(serde_json::from_str::<Targets>(text).is_err(), "{text}");
        }
    }
}
