//! Tests of kube-runtime against the server while watches are closed and history is compacted: no event is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bowline_apiserver::{ApiServer, Options};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event as FinalizerEvent, finalizer};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::Failure;

async fn server() -> Result<(ApiServer, Client), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let client = server.client().await?;
    Ok((server, client))
}

fn config_map(name: &str, value: &str) -> Result<ConfigMap, Failure> {
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": value}}))?)
}

/// Creates, updates and deletes objects while watches are closed and, optionally, history is compacted.
async fn churn(server: &ApiServer, maps: &Api<ConfigMap>, compact: bool) -> Result<(), Failure> {
    for round in 0..120 {
        let name = format!("c{}", round % 10);
        match round % 4 {
            3 => drop(maps.delete(&name, &DeleteParams::default()).await),
            _ => {
                let patch = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": round.to_string()},
                });
                maps.patch(&name, &PatchParams::apply("churn").force(), &Patch::Apply(patch)).await?;
            }
        }
        if round % 7 == 0 {
            server.cut_watches();
        }
        if compact && round % 11 == 0 {
            server.compact();
        }
    }
    Ok(())
}

async fn names_and_versions(maps: &Api<ConfigMap>) -> Result<BTreeMap<String, String>, Failure> {
    let list = maps.list(&ListParams::default()).await?;
    Ok(list.iter().map(|m| (m.name_any(), m.resource_version().unwrap_or_default())).collect())
}

/// Waits until a reflector store has exactly the objects that the server lists.
async fn converges(store: &reflector::Store<ConfigMap>, maps: &Api<ConfigMap>) -> Result<(), Failure> {
    let expected = names_and_versions(maps).await?;
    for _ in 0..300 {
        let seen: BTreeMap<_, _> =
            store.state().iter().map(|m| (m.name_any(), m.resource_version().unwrap_or_default())).collect();
        if seen == expected {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(format!("the store did not converge to {expected:?}: it has {} objects", store.state().len()).into())
}

async fn reflects(config: watcher::Config, compact: bool) -> Result<(), Failure> {
    let (server, client) = server().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let (store, writer) = reflector::store();
    let stream = watcher(maps.clone(), config).default_backoff().reflect(writer);
    let running = tokio::spawn(stream.for_each(|_| futures::future::ready(())));
    churn(&server, &maps, compact).await?;
    let result = converges(&store, &maps).await;
    running.abort();
    server.shutdown().await;
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_survives_closed_watches_and_compaction() -> Result<(), Failure> {
    reflects(watcher::Config::default(), true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_with_streaming_lists_survives_closed_watches_and_compaction() -> Result<(), Failure> {
    reflects(watcher::Config::default().streaming_lists(), true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_observes_every_write_despite_closed_watches() -> Result<(), Failure> {
    let (server, client) = server().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    maps.create(&PostParams::default(), &config_map("counted", "0")?).await?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let running = tokio::spawn(async move {
        let events = watcher(maps, watcher::Config::default()).default_backoff().applied_objects();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let value = event.ok().and_then(|m| m.data).and_then(|d| d.get("k").cloned());
            if let (Some(value), Ok(mut log)) = (value, log.lock()) {
                log.push(value);
            }
        }
    });
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await?, "kube-public");
    while seen.lock().map(|s| s.is_empty()).unwrap_or(true) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 1..=200 {
        let patch = json!({"data": {"k": n.to_string()}});
        maps.patch("counted", &PatchParams::default(), &Patch::Merge(patch)).await?;
        if n % 9 == 0 {
            server.cut_watches();
        }
    }
    for _ in 0..300 {
        if seen.lock().is_ok_and(|s| s.last().is_some_and(|v| v == "200")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.abort();
    let seen: Vec<u32> = seen.lock().map(|s| s.iter().filter_map(|v| v.parse().ok()).collect()).unwrap_or_default();
    assert_eq!(seen.iter().filter(|n| **n > 0).copied().collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
    server.shutdown().await;
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ReconcileError(String);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_reconciles_every_object_despite_closed_watches() -> Result<(), Failure> {
    let (server, client) = server().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let reconcile = |map: Arc<ConfigMap>, client: Arc<Client>| async move {
        let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), "kube-public");
        let value = map.data.as_ref().and_then(|d| d.get("k").cloned()).unwrap_or_default();
        let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": {"seen": value}}});
        let applied =
            maps.patch(&map.name_any(), &PatchParams::apply("controller").force(), &Patch::Apply(patch)).await;
        match applied {
            Ok(_) => Ok(Action::await_change()),
            Err(kube::Error::Api(e)) if e.code == 404 => Ok(Action::await_change()),
            Err(e) => Err(ReconcileError(e.to_string())),
        }
    };
    let running = tokio::spawn(
        Controller::new(maps.clone(), watcher::Config::default())
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client))
            .for_each(|_| futures::future::ready(())),
    );
    for n in 0..60 {
        let (name, value) = (format!("m{}", n % 15), n.to_string());
        let patch = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value},
        });
        maps.patch(&name, &PatchParams::apply("user").force(), &Patch::Apply(patch)).await?;
        if n % 5 == 0 {
            server.cut_watches();
        }
    }
    let mut behind = usize::MAX;
    for _ in 0..300 {
        let list = maps.list(&ListParams::default()).await?;
        let ours = list.iter().filter(|m| m.name_any().starts_with('m'));
        behind = ours.filter(|m| m.annotations().get("seen") != m.data.as_ref().and_then(|d| d.get("k"))).count();
        if behind == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.abort();
    assert_eq!(behind, 0, "objects whose last state was never reconciled");
    server.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_finalizer_helper_blocks_deletion_until_cleanup() -> Result<(), Failure> {
    const FINALIZER: &str = "example.com/held";
    let (server, client) = server().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let cleaned = Arc::new(Mutex::new(Vec::new()));
    maps.create(&PostParams::default(), &config_map("held", "1")?).await?;

    let reconcile = |object: Arc<ConfigMap>| {
        let (maps, cleaned) = (maps.clone(), cleaned.clone());
        async move {
            finalizer(&maps, FINALIZER, object, |event| async move {
                if let (FinalizerEvent::Cleanup(map), Ok(mut cleaned)) = (event, cleaned.lock()) {
                    cleaned.push(map.name_any());
                }
                Result::<Action, ReconcileError>::Ok(Action::await_change())
            })
            .await
        }
    };
    reconcile(Arc::new(maps.get("held").await?)).await?;
    assert_eq!(maps.get("held").await?.finalizers(), [FINALIZER]);
    maps.delete("held", &DeleteParams::default()).await?;
    let marked = maps.get("held").await?;
    assert!(marked.metadata.deletion_timestamp.is_some());
    reconcile(Arc::new(marked)).await?;
    assert_eq!(*cleaned.lock().map_err(|_| "poisoned")?, ["held"]);
    assert!(maps.get_opt("held").await?.is_none());
    server.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn an_in_process_client_needs_no_socket() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.in_process_client(), "default");
    maps.create(&PostParams::default(), &config_map("a", "1")?).await?;
    let events = maps.watch(&kube::api::WatchParams::default(), "0").await?;
    let first = std::pin::pin!(events).try_next().await?;
    assert!(matches!(first, Some(kube::api::WatchEvent::Added(_))));
    Ok(())
}
