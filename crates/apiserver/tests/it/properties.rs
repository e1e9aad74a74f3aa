//! Property tests with concurrent random writes: resource versions increase, no update is lost, and a replayed watch ends in
//! the state of the final list.

use std::collections::BTreeMap;

use bowline_apiserver::{ApiServer, Options};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use proptest::prelude::*;
use serde_json::json;

use crate::Failure;

/// An operation of a client on one of a few objects.
#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    /// Reads the object, increments its counter and writes it with the version read; retries on a conflict.
    Increment(u8),
    Label(u8, u8),
    Delete(u8),
    /// A patch that changes nothing.
    Repeat(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let object = 0..4u8;
    prop_oneof![
        2 => object.clone().prop_map(Step::Create),
        4 => object.clone().prop_map(Step::Increment),
        1 => (object.clone(), 0..3u8).prop_map(|(o, l)| Step::Label(o, l)),
        1 => object.clone().prop_map(Step::Delete),
        1 => object.prop_map(Step::Repeat),
    ]
}

fn maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "kube-public")
}

fn name(object: u8) -> String {
    format!("o{object}")
}

/// Runs the steps of one client. Returns the number of increments by object UID.
async fn run_client(maps: Api<ConfigMap>, steps: Vec<Step>) -> Result<BTreeMap<String, u64>, Failure> {
    let mut increments = BTreeMap::new();
    for step in steps {
        match step {
            Step::Create(o) => {
                let map = serde_json::from_value(json!({"metadata": {"name": name(o)}, "data": {"n": "0"}}))?;
                ignore_expected(maps.create(&PostParams::default(), &map).await)?;
            }
            Step::Delete(o) => {
                if let Err(error) = maps.delete(&name(o), &DeleteParams::default()).await {
                    ignore_expected::<ConfigMap>(Err(error))?;
                }
            }
            Step::Label(o, l) => {
                let patch = json!({"metadata": {"labels": {"l": l.to_string()}}});
                ignore_expected(maps.patch(&name(o), &PatchParams::default(), &Patch::Merge(patch)).await)?;
            }
            Step::Repeat(o) => {
                let patch = json!({"metadata": {"name": name(o)}});
                ignore_expected(maps.patch(&name(o), &PatchParams::default(), &Patch::Strategic(patch)).await)?;
            }
            Step::Increment(o) => {
                if let Some(uid) = increment(&maps, &name(o)).await? {
                    *increments.entry(uid).or_insert(0) += 1;
                }
            }
        }
    }
    Ok(increments)
}

/// Ignores the expected errors: not found, already exists and conflict.
fn ignore_expected<T>(result: Result<T, kube::Error>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(e)) if matches!(e.code, 404 | 409) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

async fn increment(maps: &Api<ConfigMap>, name: &str) -> Result<Option<String>, Failure> {
    loop {
        let Some(mut map) = maps.get_opt(name).await? else { return Ok(None) };
        let data = map.data.get_or_insert_default();
        let n: u64 = data.get("n").map_or(Ok(0), |n| n.parse())?;
        data.insert("n".into(), (n + 1).to_string());
        match maps.replace(name, &PostParams::default(), &map).await {
            Ok(written) => return Ok(written.uid()),
            Err(kube::Error::Api(e)) if e.code == 409 => {}
            Err(kube::Error::Api(e)) if e.code == 404 => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Replays a watch from `version` until it has caught up with the version of the list.
async fn replay(maps: &Api<ConfigMap>, version: &str, until: u64) -> Result<BTreeMap<String, ConfigMap>, Failure> {
    let parameters = WatchParams::default().timeout(1);
    let mut events = std::pin::pin!(maps.watch(&parameters, version).await?);
    let (mut state, mut last) = (BTreeMap::new(), 0);
    while last < until {
        let Some(event) = events.try_next().await? else { break };
        match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) => {
                last = check_increasing(last, &map)?;
                state.insert(map.name_any(), map);
            }
            WatchEvent::Deleted(map) => {
                last = check_increasing(last, &map)?;
                state.remove(&map.name_any());
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(e) => return Err(e.message.into()),
        }
    }
    Ok(state)
}

fn check_increasing(last: u64, map: &ConfigMap) -> Result<u64, Failure> {
    let version: u64 = map.resource_version().unwrap_or_default().parse()?;
    if version <= last {
        return Err(format!("version {version} follows {last}").into());
    }
    Ok(version)
}

async fn check_properties(clients: Vec<Vec<Step>>) -> Result<(), Failure> {
    let options = Options { built_in_controllers: false, ..Options::default() };
    let server = ApiServer::start(options).await?;
    let start = maps(server.in_process_client()).list(&ListParams::default()).await?;
    let start = start.metadata.resource_version.unwrap_or_default();

    let tasks = clients.into_iter().map(|steps| tokio::spawn(run_client(maps(server.in_process_client()), steps)));
    let mut increments: BTreeMap<String, u64> = BTreeMap::new();
    for result in futures::future::join_all(tasks).await {
        for (uid, count) in result?? {
            *increments.entry(uid).or_insert(0) += count;
        }
    }
    let maps = maps(server.in_process_client());
    let list = maps.list(&ListParams::default()).await?;
    let until: u64 = list.iter().filter_map(|m| m.resource_version()?.parse().ok()).max().unwrap_or(0);
    let last: u64 = list.metadata.resource_version.clone().unwrap_or_default().parse()?;
    assert!(until <= last, "an object is newer than its list");

    for map in &list {
        let counted: u64 = map.data.as_ref().and_then(|d| d.get("n")).map_or(Ok(0), |n| n.parse())?;
        let expected = increments.get(&map.uid().unwrap_or_default()).copied().unwrap_or(0);
        assert_eq!(counted, expected, "updates of {} were lost", map.name_any());
    }
    let listed: BTreeMap<_, _> = list.iter().map(|m| (m.name_any(), m.clone())).collect();
    let seen = replay(&maps, &start, last).await?;
    assert_eq!(seen, listed, "a replayed watch differs from the list");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn concurrent_writes_lose_nothing(clients in prop::collection::vec(prop::collection::vec(step(), 1..25), 1..5)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        if let Err(error) = runtime.block_on(check_properties(clients)) {
            return Err(TestCaseError::fail(error.to_string()));
        }
    }
}
