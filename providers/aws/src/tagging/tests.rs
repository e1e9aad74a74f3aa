//! Steps and labels of runs. Calls are tested with the simulator.

use bowline_core::testing::node;

use super::*;
use crate::api::ec2::testing::{Journal, scripted};
use crate::metrics::TaggingMetrics;

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_label_is_the_hash_of_the_sorted_tags() {
    assert_eq!(hash_of(&tags(&[("b", "2"), ("a", "1")])), "9dc867b7f2bf1e40160f90e46628512e");
}

#[test]
fn errors_of_one_instance_are_distinguished_from_those_of_every_call() {
    for (code, kind, unknown, one) in [
        ("InvalidInstanceID.NotFound", ErrorKind::NotFound, true, true),
        ("InvalidID", ErrorKind::InvalidConfig, true, true),
        ("TagLimitExceeded", ErrorKind::QuotaExceeded, false, true),
        ("UnauthorizedOperation", ErrorKind::PermissionDenied, false, false),
        ("RequestLimitExceeded", ErrorKind::RateLimited, false, false),
        ("InternalError", ErrorKind::Unavailable, false, false),
    ] {
        let error = Error::new(kind, "CreateTags", "no").with_code(code);
        assert_eq!((is_unknown(&error), is_about_one(&error)), (unknown, one), "{code}");
    }
}

/// Returns the controller on an EC2 that rejects instances: `i-bad` is unknown, `i-full` has too many tags, and without permission
/// every call is rejected.
fn tagging(permission: bool) -> (Tagging, Journal) {
    let (ec2, journal) = scripted(move |call| {
        let ids = call.list("ResourceId");
        if !permission {
            return Err(("UnauthorizedOperation", "no".to_owned()));
        }
        if ids.contains(&"i-bad") {
            return Err(("InvalidInstanceID.NotFound", "The instance ID 'i-bad' does not exist".to_owned()));
        }
        if ids.contains(&"i-full") {
            return Err(("TagLimitExceeded", "more than 50 tags".to_owned()));
        }
        Ok("<return>true</return>".to_owned())
    });
    let metrics = TaggingMetrics::new().expect("metrics");
    (Tagging::new(Options { tags: tags(&[("a", "1"), ("b", "2")]), rate: None }, ec2, metrics), journal)
}

fn machine(id: &str, pairs: &[(&str, &str)]) -> (String, Instance) {
    (id.to_owned(), Instance { instance_id: id.to_owned(), tags: tags(pairs), ..Instance::default() })
}

fn change(action: Action, instances: &[&str]) -> Change {
    let instances = instances.iter().map(ToString::to_string).collect();
    Change { action, instances, new: BTreeMap::new() }
}

/// Returns the instances of each call.
fn calls(journal: &Journal) -> Vec<Vec<String>> {
    let calls = journal.lock().unwrap();
    calls.iter().map(|call| call.list("ResourceId").into_iter().map(str::to_owned).collect()).collect()
}

#[tokio::test]
async fn only_instances_that_lack_tags_get_them() {
    let (tagging, _) = tagging(true);
    let nodes: Vec<_> = ["c", "b", "a", "again", "gone"].iter().map(|name| Arc::new(node(name))).collect();
    let ids = ["i-3", "i-2", "i-1", "i-3", "i-9"].map(str::to_owned);
    let pairs: Vec<_> = nodes.iter().zip(ids).collect();
    let found = [
        machine("i-1", &[]),
        machine("i-2", &[("a", "1"), ("b", "2"), ("c", "3")]),
        machine("i-3", &[("a", "1"), ("b", "x")]),
    ];
    let steps = tagging.additions(&pairs.iter().collect::<Vec<_>>(), &found.into());
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(step.payload, change(Action::Add, &["i-1", "i-3"]));
    assert_eq!(step.name, "i-1");
}

#[tokio::test]
async fn a_step_has_at_most_a_hundred_instances() {
    let (tagging, _) = tagging(true);
    let nodes: Vec<_> = (0..250).map(|n| (Arc::new(node(&format!("n{n}"))), format!("i-{n}"))).collect();
    let pairs: Vec<_> = nodes.iter().map(|(node, id)| (node, id.clone())).collect();
    let found = (0..250).map(|n| machine(&format!("i-{n}"), &[])).collect();
    let steps = tagging.additions(&pairs.iter().collect::<Vec<_>>(), &found);
    assert_eq!(steps.iter().map(|step| step.payload.instances.len()).collect::<Vec<_>>(), [100, 100, 50]);
}

#[tokio::test]
async fn an_instance_without_a_node_loses_the_tags_that_it_has() {
    let (tagging, _) = tagging(true);
    let ids = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    tagging.memory.see(&ids(&["i-1", "i-2", "i-3"]));
    let found = [machine("i-1", &[("a", "1")]), machine("i-2", &[("a", "other")])];
    let steps = tagging.removals(tagging.memory.see(&ids(&[])), &found.into());
    let removed: Vec<_> = steps.into_iter().map(|step| step.payload).collect();
    assert_eq!(removed, [change(Action::Remove, &["i-1"])]);
    assert_eq!(tagging.memory.see(&ids(&[])), ["i-1"], "the others are forgotten");
    tagging.apply(&removed[0]).await.unwrap();
    assert_eq!(tagging.memory.see(&ids(&[])), Vec::<String>::new());
}

#[tokio::test]
async fn an_instance_that_aws_rejects_does_not_fail_the_others() {
    for (ids, expected, succeeds) in [
        (&["i-1", "i-2"][..], &[&["i-1", "i-2"][..]][..], true),
        // The message names the unknown instance.
        (&["i-1", "i-bad"], &[&["i-1", "i-bad"], &["i-1"]], true),
        (&["i-bad"], &[&["i-bad"]], true),
        (&["i-1", "i-full"], &[&["i-1", "i-full"], &["i-1"], &["i-full"]], false),
        (&["i-full"], &[&["i-full"]], false),
    ] {
        for action in [Action::Add, Action::Remove] {
            let (tagging, journal) = tagging(true);
            let applied = tagging.apply(&change(action, ids)).await;
            assert_eq!((calls(&journal), applied.is_ok()), (owned(expected), succeeds), "{ids:?}");
            assert_eq!(tagging.memory.is_waiting("i-full"), !succeeds, "{ids:?}");
            assert!(!tagging.memory.is_waiting("i-1") && !tagging.memory.is_waiting("i-bad"));
        }
    }
}

fn owned(calls: &[&[&str]]) -> Vec<Vec<String>> {
    calls.iter().map(|ids| ids.iter().map(ToString::to_string).collect()).collect()
}

#[tokio::test]
async fn a_missing_permission_fails_the_step_at_once() {
    let (tagging, journal) = tagging(false);
    let error = tagging.apply(&change(Action::Add, &["i-1", "i-2"])).await.unwrap_err();
    assert_eq!((error.kind(), calls(&journal).len()), (ErrorKind::PermissionDenied, 1));
    assert!(!tagging.memory.is_waiting("i-1"));
}
