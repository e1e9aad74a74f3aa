//! Watches of Nodes through disconnects, 410s, restarts and invalid responses: no change is lost or reported twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_apiserver::{ApiServer, Effect, FaultRule, Options};
use bowline_core::Node;
use bowline_kube::{Change, Store, watch_nodes};
use bowline_runtime::Shutdown;
use http::StatusCode;
use k8s_openapi::api::core::v1::Node as FullNode;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Store fed by a watch, and the changes its listener received: `+name`, `~name`, `-name`.
struct Watched {
    store: Store<Node>,
    changes: Arc<Mutex<Vec<String>>>,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<()>,
}

impl Watched {
    fn start(client: Client) -> Watched {
        let (store, changes, shutdown) = (Store::new(), Arc::new(Mutex::new(Vec::new())), Shutdown::new());
        let listener = changes.clone();
        store.listen(move |change| listener.lock().unwrap_or_else(PoisonError::into_inner).push(format_change(change)));
        let task = tokio::spawn(watch_nodes(client, store.clone(), shutdown.clone()));
        Watched { store, changes, shutdown, task }
    }

    fn take_changes(&self) -> Vec<String> {
        std::mem::take(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the store holds exactly what the server lists.
    async fn converges(&self, nodes: &Api<FullNode>) -> Result<(), Failure> {
        let expected = listed(nodes).await?;
        let arrived = async {
            while self.held() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let within = tokio::time::timeout(Duration::from_secs(30), arrived).await;
        within.map_err(|_| format!("expected {expected:?}, but the store has {:?}", self.held()).into())
    }

    fn held(&self) -> BTreeMap<String, String> {
        self.store.all().iter().map(|node| (node.name.to_string(), node.resource_version.clone())).collect()
    }

    async fn stop(self) -> Result<(), Failure> {
        self.shutdown.request();
        Ok(self.task.await?)
    }
}

fn format_change(change: &Change<Node>) -> String {
    match change {
        Change::Added(node) => format!("+{}", node.name),
        Change::Updated { new, .. } => format!("~{}", new.name),
        Change::Deleted(node) => format!("-{}", node.name),
    }
}

async fn server() -> Result<(ApiServer, Api<FullNode>), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let nodes = Api::all(server.in_process_client());
    Ok((server, nodes))
}

async fn create(nodes: &Api<FullNode>, name: &str) -> Result<(), Failure> {
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}}))?).await?;
    Ok(())
}

async fn label(nodes: &Api<FullNode>, name: &str, value: &str) -> Result<(), Failure> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"l": value}}}));
    nodes.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn delete(nodes: &Api<FullNode>, name: &str) -> Result<(), Failure> {
    nodes.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

async fn listed(nodes: &Api<FullNode>) -> Result<BTreeMap<String, String>, Failure> {
    let list = nodes.list(&ListParams::default()).await?;
    Ok(list.iter().map(|node| (node.name_any(), node.resource_version().unwrap_or_default())).collect())
}

fn fault(verb: &str, effect: Effect, times: u64) -> FaultRule {
    FaultRule {
        verb: Some(verb.into()),
        resource: Some("nodes".into()),
        effect,
        times: Some(times),
        ..FaultRule::default()
    }
}

fn status(code: StatusCode) -> Effect {
    Effect::Status { code, message: "not now".into(), retry_after: None }
}

#[tokio::test]
async fn changes_are_reported_in_order_after_the_first_list() -> Result<(), Failure> {
    let (server, nodes) = server().await?;
    create(&nodes, "a").await?;
    let watched = Watched::start(server.client().await?);
    watched.store.synced().await;
    assert_eq!(watched.take_changes(), ["+a"]);
    create(&nodes, "b").await?;
    label(&nodes, "a", "1").await?;
    delete(&nodes, "b").await?;
    create(&nodes, "b").await?;
    watched.converges(&nodes).await?;
    assert_eq!(watched.take_changes(), ["+b", "~a", "-b", "+b"]);
    watched.stop().await
}

#[tokio::test]
async fn a_list_of_several_pages_is_complete() -> Result<(), Failure> {
    let (server, nodes) = server().await?;
    for i in 0..601 {
        create(&nodes, &format!("n{i}")).await?;
    }
    let watched = Watched::start(server.in_process_client());
    watched.store.synced().await;
    assert_eq!(watched.store.len(), 601);
    watched.stop().await
}

#[tokio::test]
async fn after_a_410_only_differences_are_reported() -> Result<(), Failure> {
    let (server, nodes) = server().await?;
    for name in ["changed", "gone", "recreated", "same"] {
        create(&nodes, name).await?;
    }
    let watched = Watched::start(server.in_process_client());
    watched.store.synced().await;
    watched.take_changes();
    // The watch can neither continue nor restart until these changes are compacted.
    server.faults().add(fault("watch", status(StatusCode::INTERNAL_SERVER_ERROR), u64::MAX));
    server.cut_watches();
    label(&nodes, "changed", "1").await?;
    delete(&nodes, "gone").await?;
    delete(&nodes, "recreated").await?;
    create(&nodes, "recreated").await?;
    create(&nodes, "new").await?;
    server.compact();
    assert_eq!(watched.store.len(), 4, "the last state stays in use meanwhile");
    server.faults().clear();
    watched.converges(&nodes).await?;
    let mut changes = watched.take_changes();
    let recreated: Vec<String> = changes.extract_if(.., |change| change.ends_with("recreated")).collect();
    assert_eq!(recreated, ["-recreated", "+recreated"]);
    changes.sort();
    assert_eq!(changes, ["+new", "-gone", "~changed"]);
    watched.stop().await
}

#[tokio::test]
async fn interrupted_watches_lose_no_change() -> Result<(), Failure> {
    let (server, nodes) = server().await?;
    let watched = Watched::start(server.client().await?);
    watched.store.synced().await;
    for round in 0..40 {
        let name = format!("n{}", round % 5);
        match round {
            0..5 => create(&nodes, &name).await?,
            _ => label(&nodes, &name, &round.to_string()).await?,
        }
        match round % 8 {
            2 => server.cut_watches(),
            4 => server.faults().add(fault("watch", Effect::PartialWatchLine, 1)),
            6 => server.compact(),
            _ => {}
        }
    }
    watched.converges(&nodes).await?;
    assert!(watched.take_changes().iter().all(|change| !change.starts_with('-')), "no Node was ever deleted");
    watched.stop().await
}

#[tokio::test]
async fn failed_lists_are_retried_until_one_succeeds() -> Result<(), Failure> {
    let (server, nodes) = server().await?;
    create(&nodes, "a").await?;
    server.faults().add(fault("list", status(StatusCode::INTERNAL_SERVER_ERROR), 1));
    server.faults().add(fault("list", Effect::Reset, 1));
    server.faults().add(fault("list", status(StatusCode::FORBIDDEN), 1));
    let watched = Watched::start(server.in_process_client());
    watched.store.synced().await;
    assert_eq!(watched.take_changes(), ["+a"]);
    watched.stop().await
}

#[tokio::test]
async fn a_restarted_server_with_other_objects_is_relisted() -> Result<(), Failure> {
    let (first, nodes) = server().await?;
    create(&nodes, "old").await?;
    let address = first.address();
    first.add_token(TOKEN, "watcher", &[]);
    // The server has a new CA after a restart, so the client does not verify certificates.
    let watched = Watched::start(trusting_client(address).await?);
    watched.store.synced().await;
    first.shutdown().await;
    assert_eq!(watched.held().keys().collect::<Vec<_>>(), ["old"], "the last state stays in use meanwhile");
    let (second, nodes) = server().await?;
    second.add_token(TOKEN, "watcher", &[]);
    // Resource versions restart, so this Node has the version of the old one.
    create(&nodes, "new").await?;
    // The client fails to reconnect, as it does while a server restarts. The second server gets the address only now: an earlier
    // reconnect, before the token is known, would cause a long back-off.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let forwarding = forward(address, second.address()).await?;
    watched.converges(&nodes).await?;
    assert_eq!(watched.take_changes(), ["+old", "+new", "-old"]);
    forwarding.abort();
    watched.stop().await
}

/// Forwards connections from an address, which a server is about to release, to another server.
async fn forward(from: SocketAddr, to: SocketAddr) -> Result<JoinHandle<()>, Failure> {
    let mut attempts = 0;
    let listener = loop {
        match TcpListener::bind(from).await {
            Err(_) if attempts < 1000 => attempts += 1,
            bound => break bound?,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    Ok(tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    }))
}

/// Token of the client, before and after a restart.
const TOKEN: &str = "watcher-token";

/// A client that accepts any server certificate.
async fn trusting_client(address: SocketAddr) -> Result<Client, Failure> {
    let mut config = kube::Config::new(format!("https://{address}").parse()?);
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(TOKEN.to_owned().into());
    Ok(Client::try_from(config)?)
}

#[tokio::test]
async fn a_watch_rejected_with_410_relists() -> Result<(), Failure> {
    let (server, nodes) = server().await?;
    let watched = Watched::start(server.in_process_client());
    watched.store.synced().await;
    // As some proxies do: a response to the request, not an event of the watch.
    server.faults().add(fault("watch", status(StatusCode::GONE), 1));
    server.faults().add(fault("list", status(StatusCode::INTERNAL_SERVER_ERROR), 1));
    server.cut_watches();
    let both_injected = async {
        while !server.faults().list().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), both_injected).await.map_err(|_| "no list was requested")?;
    create(&nodes, "a").await?;
    watched.converges(&nodes).await?;
    watched.stop().await
}
