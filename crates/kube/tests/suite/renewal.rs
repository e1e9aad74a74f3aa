//! Reload of cluster credentials at run time.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::file::Scratch;
use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use bowline_kube::{Access, ClientOptions, Probe};
use bowline_runtime::{Reloadable, Reloader, Shutdown};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::json;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Server with two tokens, and a kubeconfig that references the file with the first.
struct World {
    server: ApiServer,
    token: Scratch,
    kubeconfig: Scratch,
    access: Access,
    reloader: Reloader,
}

async fn world() -> Result<World, Failure> {
    let server = ApiServer::start(Options::default()).await?;
    server.add_token("first-token", "first", &["system:masters"]);
    server.add_token("second-token", "second", &["system:masters"]);
    let token = Scratch::write("first-token\n")?;
    let kubeconfig = Scratch::write(&kubeconfig(&server, json!({"tokenFile": token.0}))?)?;
    let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), ..ClientOptions::default() };
    let access = Access::open(&options).await?;
    let reloader = Reloader::register(&prometheus::Registry::new())?.with_period(Duration::from_millis(50));
    tokio::spawn(reloader.clone().watch("cluster".into(), Arc::new(access.clone()), Shutdown::new()));
    Ok(World { server, token, kubeconfig, access, reloader })
}

/// Kubeconfig of the server with this user.
fn kubeconfig(server: &ApiServer, user: serde_json::Value) -> Result<String, Failure> {
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig())?;
    for known in &mut kubeconfig.auth_infos {
        known.auth_info = Some(serde_json::from_value(user.clone())?);
    }
    Ok(serde_json::to_string(&kubeconfig)?)
}

async fn username(client: &kube::Client) -> Result<String, Failure> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username).unwrap_or_default())
}

/// Waits for a reload with this result.
async fn wait_for_reload(world: &World, result: &str) -> Result<(), Failure> {
    for _ in 0..400 {
        if world.reloader.last_reload("cluster")["result"] == result {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Err(format!("no reload with result {result}: {}", world.reloader.last_reload("cluster")).into())
}

#[tokio::test]
async fn existing_clients_use_a_changed_token_file() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.access.client();
    assert_eq!(username(&client).await?, "first", "the trailing newline is not part of the token");
    assert_eq!(world.access.expires(), None, "the token is not a JWT");
    let sources = &world.reloader.component("cluster").status()["sources"];
    assert_eq!(sources[1]["key"], world.token.0.display().to_string(), "{sources}");
    std::fs::write(&world.token.0, "second-token")?;
    wait_for_reload(&world, "success").await?;
    assert_eq!(username(&client).await?, "second");
    Ok(())
}

#[tokio::test]
async fn the_expiry_of_a_client_certificate_is_reported() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let kubeconfig = Scratch::write(&server.kubeconfig())?;
    let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), ..ClientOptions::default() };
    let end = Access::open(&options).await?.expires();
    assert!(end.is_some_and(|end| end > jiff::Timestamp::now()), "{end:?}");
    Ok(())
}

#[tokio::test]
async fn a_changed_kubeconfig_is_used_and_running_watches_continue() -> Result<(), Failure> {
    use futures::StreamExt as _;
    let world = world().await?;
    let client = world.access.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let watch = nodes.watch(&WatchParams::default().disable_bookmarks(), "0").await?;
    let mut watch = std::pin::pin!(watch);
    std::fs::write(&world.kubeconfig.0, kubeconfig(&world.server, json!({"token": "second-token"}))?)?;
    wait_for_reload(&world, "success").await?;
    assert_eq!(username(&client).await?, "second");
    let node = serde_json::from_value(json!({"metadata": {"name": "n"}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let event = tokio::time::timeout(Duration::from_secs(10), watch.next()).await?;
    assert!(matches!(event, Some(Ok(WatchEvent::Added(_)))), "{event:?}");
    Ok(())
}

#[tokio::test]
async fn invalid_credentials_leave_the_old_ones_in_use() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.access.client();
    let bad = [
        (kubeconfig(&world.server, json!({"token": "unknown-token"}))?, "rejects the new credentials"),
        ("apiVersion: v1\nkind: Config\nclusters: [".to_owned(), "cannot load the kubeconfig"),
        (String::new(), "cannot load the kubeconfig"),
    ];
    for (text, why) in bad {
        std::fs::write(&world.kubeconfig.0, text)?;
        for _ in 0..400 {
            if world.reloader.last_reload("cluster")["error"].as_str().is_some_and(|error| error.contains(why)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let last = world.reloader.last_reload("cluster");
        assert!(last["error"].as_str().is_some_and(|error| error.contains(why)), "{why}: {last}");
        assert!(!last.to_string().contains("unknown-token"), "secrets are not reported: {last}");
        assert_eq!(username(&client).await?, "first");
    }
    Ok(())
}

#[tokio::test]
async fn a_new_address_is_accepted_only_for_the_same_cluster() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.access.client();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}}))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    let other = ApiServer::start(Options::default()).await?;
    other.add_token("second-token", "second", &["system:masters"]);
    Api::<Node>::all(other.client().await?).create(&PostParams::default(), &node).await?;
    std::fs::write(&world.kubeconfig.0, kubeconfig(&other, json!({"token": "second-token"}))?)?;
    wait_for_reload(&world, "error").await?;
    let last = world.reloader.last_reload("cluster").to_string();
    assert!(last.contains(&other.url()) && last.contains("restart the manager"), "{last}");
    assert_eq!(username(&client).await?, "first");
    let elsewhere = kubeconfig(&world.server, json!({"token": "second-token"}))?.replace("127.0.0.1", "localhost");
    std::fs::write(&world.kubeconfig.0, elsewhere)?;
    wait_for_reload(&world, "success").await?;
    assert_eq!((username(&client).await?.as_str(), world.access.address().host()), ("second", Some("localhost")));
    Ok(())
}

#[tokio::test]
async fn all_files_that_a_kubeconfig_references_are_watched() -> Result<(), Failure> {
    let world = world().await?;
    assert_eq!(world.access.files(), [world.kubeconfig.0.clone(), world.token.0.clone()]);
    Ok(())
}

#[tokio::test]
async fn the_version_probe_needs_no_permission_for_nodes() -> Result<(), Failure> {
    let server = ApiServer::start(Options { authorization: AuthorizationMode::Rbac, ..Options::default() }).await?;
    server.add_token("first-token", "first", &[]);
    server.add_token("second-token", "second", &[]);
    let token = Scratch::write("first-token")?;
    let kubeconfig = Scratch::write(&kubeconfig(&server, json!({"tokenFile": token.0}))?)?;
    for (probe, accepted) in [(Probe::Nodes, false), (Probe::Version, true)] {
        let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), probe, ..ClientOptions::default() };
        std::fs::write(&token.0, "first-token")?;
        let access = Access::open(&options).await?;
        std::fs::write(&token.0, "second-token")?;
        assert_eq!(access.reload().await.is_ok(), accepted, "{probe:?}");
        assert_eq!(username(&access.client()).await?, if accepted { "second" } else { "first" });
        std::fs::write(&token.0, "unknown-token")?;
        assert!(access.reload().await.is_err(), "{probe:?}");
    }
    Ok(())
}
