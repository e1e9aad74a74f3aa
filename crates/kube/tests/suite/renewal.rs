//! Credentials of the cluster that change while their user runs.

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

/// A server that knows two tokens, and a kubeconfig that names the file with the first.
struct World {
    server: ApiServer,
    token: Scratch,
    kubeconfig: Scratch,
    access: Access,
    renewals: Reloader,
}

async fn world() -> Result<World, Failure> {
    let server = ApiServer::start(Options::default()).await?;
    server.add_token("first-token", "first", &["system:masters"]);
    server.add_token("second-token", "second", &["system:masters"]);
    let token = Scratch::write("first-token\n")?;
    let kubeconfig = Scratch::write(&kubeconfig(&server, json!({"tokenFile": token.0}))?)?;
    let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), ..ClientOptions::default() };
    let access = Access::open(&options).await?;
    let renewals = Reloader::register(&prometheus::Registry::new())?.every(Duration::from_millis(50));
    tokio::spawn(renewals.clone().watch("cluster".into(), Arc::new(access.clone()), Shutdown::new()));
    Ok(World { server, token, kubeconfig, access, renewals })
}

/// That of the server, with this user.
fn kubeconfig(server: &ApiServer, user: serde_json::Value) -> Result<String, Failure> {
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig())?;
    for known in &mut kubeconfig.auth_infos {
        known.auth_info = Some(serde_json::from_value(user.clone())?);
    }
    Ok(serde_json::to_string(&kubeconfig)?)
}

async fn who(client: &kube::Client) -> Result<String, Failure> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|status| status.user_info).and_then(|user| user.username).unwrap_or_default())
}

/// Waits until a renewal has ended this way.
async fn renewed(world: &World, result: &str) -> Result<(), Failure> {
    for _ in 0..400 {
        if world.renewals.last("cluster")["result"] == result {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Err(format!("no renewal that ends with {result}: {}", world.renewals.last("cluster")).into())
}

#[tokio::test]
async fn a_token_file_that_changes_is_used_by_clients_that_are_there_already() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.access.client();
    assert_eq!(who(&client).await?, "first", "the end of the line is not a part of the token");
    assert_eq!(world.access.expires(), None, "a token that is no JWT");
    let sources = &world.renewals.part("cluster").status()["sources"];
    assert_eq!(sources[1]["key"], world.token.0.display().to_string(), "{sources}");
    std::fs::write(&world.token.0, "second-token")?;
    renewed(&world, "success").await?;
    assert_eq!(who(&client).await?, "second");
    Ok(())
}

#[tokio::test]
async fn a_client_certificate_says_when_it_expires() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let kubeconfig = Scratch::write(&server.kubeconfig())?;
    let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), ..ClientOptions::default() };
    let end = Access::open(&options).await?.expires();
    assert!(end.is_some_and(|end| end > jiff::Timestamp::now()), "{end:?}");
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_that_changes_counts_and_watches_under_way_go_on() -> Result<(), Failure> {
    use futures::StreamExt as _;
    let world = world().await?;
    let client = world.access.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let watch = nodes.watch(&WatchParams::default().disable_bookmarks(), "0").await?;
    let mut watch = std::pin::pin!(watch);
    std::fs::write(&world.kubeconfig.0, kubeconfig(&world.server, json!({"token": "second-token"}))?)?;
    renewed(&world, "success").await?;
    assert_eq!(who(&client).await?, "second");
    let node = serde_json::from_value(json!({"metadata": {"name": "n"}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let event = tokio::time::timeout(Duration::from_secs(10), watch.next()).await?;
    assert!(matches!(event, Some(Ok(WatchEvent::Added(_)))), "{event:?}");
    Ok(())
}

#[tokio::test]
async fn credentials_that_are_no_good_leave_the_old_ones_in_use() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.access.client();
    let bad = [
        (kubeconfig(&world.server, json!({"token": "unknown-token"}))?, "does not take them"),
        ("apiVersion: v1\nkind: Config\nclusters: [".to_owned(), "cannot be used"),
        (String::new(), "cannot be used"),
    ];
    for (text, why) in bad {
        std::fs::write(&world.kubeconfig.0, text)?;
        for _ in 0..400 {
            if world.renewals.last("cluster")["error"].as_str().is_some_and(|error| error.contains(why)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let last = world.renewals.last("cluster");
        assert!(last["error"].as_str().is_some_and(|error| error.contains(why)), "{why}: {last}");
        assert!(!last.to_string().contains("unknown-token"), "secrets are not told: {last}");
        assert_eq!(who(&client).await?, "first");
    }
    Ok(())
}

#[tokio::test]
async fn another_address_is_taken_if_the_cluster_is_the_same_and_refused_if_it_is_another() -> Result<(), Failure> {
    let world = world().await?;
    let client = world.access.client();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}}))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    let other = ApiServer::start(Options::default()).await?;
    other.add_token("second-token", "second", &["system:masters"]);
    Api::<Node>::all(other.client().await?).create(&PostParams::default(), &node).await?;
    std::fs::write(&world.kubeconfig.0, kubeconfig(&other, json!({"token": "second-token"}))?)?;
    renewed(&world, "error").await?;
    let last = world.renewals.last("cluster").to_string();
    assert!(last.contains(&other.url()) && last.contains("restart the manager"), "{last}");
    assert_eq!(who(&client).await?, "first");
    let elsewhere = kubeconfig(&world.server, json!({"token": "second-token"}))?.replace("127.0.0.1", "localhost");
    std::fs::write(&world.kubeconfig.0, elsewhere)?;
    renewed(&world, "success").await?;
    assert_eq!((who(&client).await?.as_str(), world.access.address().host()), ("second", Some("localhost")));
    Ok(())
}

#[tokio::test]
async fn all_files_that_a_kubeconfig_names_are_looked_at() -> Result<(), Failure> {
    let world = world().await?;
    assert_eq!(world.access.files(), [world.kubeconfig.0.clone(), world.token.0.clone()]);
    Ok(())
}

#[tokio::test]
async fn who_only_asks_about_people_need_not_see_nodes_to_have_new_credentials() -> Result<(), Failure> {
    let server = ApiServer::start(Options { authorization: AuthorizationMode::Rbac, ..Options::default() }).await?;
    server.add_token("first-token", "first", &[]);
    server.add_token("second-token", "second", &[]);
    let token = Scratch::write("first-token")?;
    let kubeconfig = Scratch::write(&kubeconfig(&server, json!({"tokenFile": token.0}))?)?;
    for (probe, taken) in [(Probe::Nodes, false), (Probe::Version, true)] {
        let options = ClientOptions { kubeconfig: Some(kubeconfig.0.clone()), probe, ..ClientOptions::default() };
        std::fs::write(&token.0, "first-token")?;
        let access = Access::open(&options).await?;
        std::fs::write(&token.0, "second-token")?;
        assert_eq!(access.renew().await.is_ok(), taken, "{probe:?}");
        assert_eq!(who(&access.client()).await?, if taken { "second" } else { "first" });
        std::fs::write(&token.0, "unknown-token")?;
        assert!(access.renew().await.is_err(), "{probe:?}");
    }
    Ok(())
}
