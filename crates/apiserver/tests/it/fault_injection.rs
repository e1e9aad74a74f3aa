//! Tests of fault injection and debug endpoints through clients.

use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Effect, FaultRule, Options};
use futures::StreamExt;
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::Failure;

async fn server() -> Result<(ApiServer, Api<ConfigMap>), Failure> {
    let server = ApiServer::start(Options { debug_endpoints: true, ..Options::default() }).await?;
    let maps = Api::namespaced(server.client().await?, "kube-public");
    Ok((server, maps))
}

fn config_map(name: &str) -> Result<ConfigMap, Failure> {
    Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?)
}

fn rule(verb: &str, effect: Effect) -> FaultRule {
    FaultRule { verb: Some(verb.into()), resource: Some("configmaps".into()), effect, ..FaultRule::default() }
}

#[tokio::test]
async fn a_rule_affects_only_matching_requests() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    let effect = Effect::Status { code: StatusCode::CONFLICT, message: "not today".into(), retry_after: None };
    server.faults().add(FaultRule { times: Some(1), ..rule("create", effect) });
    let rejected = maps.create(&PostParams::default(), &config_map("a")?).await;
    match rejected {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (409, "Conflict", "not today"));
        }
        other => return Err(format!("expected an error, got {other:?}").into()),
    }
    assert!(maps.get_opt("a").await?.is_none(), "a rejected request is not processed");
    maps.create(&PostParams::default(), &config_map("a")?).await?;
    Ok(())
}

#[tokio::test]
async fn a_delayed_request_is_processed_later() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    server.faults().add(rule("list", Effect::Latency(Duration::from_millis(300))));
    let begin = Instant::now();
    maps.list(&ListParams::default()).await?;
    assert!(begin.elapsed() >= Duration::from_millis(300));
    Ok(())
}

#[tokio::test]
async fn a_reset_connection_returns_no_response() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    server.faults().add(rule("create", Effect::Reset));
    let rejected = maps.create(&PostParams::default(), &config_map("a")?).await;
    assert!(matches!(rejected, Err(e) if !matches!(e, kube::Error::Api(_))));
    server.faults().clear();
    assert!(maps.get_opt("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_request_with_a_lost_response_is_processed() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    server.faults().add(FaultRule { times: Some(1), ..rule("create", Effect::AnswerLost) });
    let outcome_unknown = maps.create(&PostParams::default(), &config_map("a")?).await;
    assert!(matches!(outcome_unknown, Err(e) if !matches!(e, kube::Error::Api(_))));
    assert!(maps.get_opt("a").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_watcher_recovers_from_partial_watch_lines() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    server.faults().add(FaultRule { times: Some(2), ..rule("watch", Effect::PartialWatchLine) });
    let stream = watcher(maps.clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut stream = std::pin::pin!(stream);
    let writes = async {
        for n in 0..5 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            maps.create(&PostParams::default(), &config_map(&format!("m{n}"))?).await?;
        }
        Ok::<(), Failure>(())
    };
    let reads = async {
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 5 {
            match tokio::time::timeout(Duration::from_secs(20), stream.next()).await? {
                Some(Ok(map)) if map.name_any().starts_with('m') => drop(seen.insert(map.name_any())),
                Some(_) => {}
                None => break,
            }
        }
        Ok::<usize, Failure>(seen.len())
    };
    let (written, seen) = tokio::join!(writes, reads);
    written?;
    assert_eq!(seen?, 5);
    Ok(())
}

#[tokio::test]
async fn old_resource_versions_expire_after_compaction() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    let old = maps.create(&PostParams::default(), &config_map("a")?).await?.resource_version().unwrap_or_default();
    maps.create(&PostParams::default(), &config_map("b")?).await?;
    server.compact();
    let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), &old).await?);
    match events.next().await {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => return Err(format!("expected an error event, got {other:?}").into()),
    }
    Ok(())
}

#[tokio::test]
async fn debug_endpoints_work_over_http() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    let client = server.client().await?;
    let rule = json!({"verb": "get", "effect": {"status": {"code": 503}}, "times": 1}).to_string();
    let post = |path: &str, body: String| http::Request::post(path.to_owned()).body(body.into_bytes());
    client.request_text(post("/debug/faults", rule)?).await?;
    assert!(maps.get_opt("a").await.is_ok() || server.faults().list().is_empty(), "the rule is used up");
    for path in ["/debug/compact", "/debug/cut-watches"] {
        client.request_text(post(path, String::new())?).await?;
    }
    client.request_text(post("/debug/seed", "7".into())?).await?;
    let invalid = client.request_text(post("/debug/faults", "{\"effect\": 5}".into())?).await;
    assert!(matches!(invalid, Err(kube::Error::Api(status)) if status.code == 400));
    Ok(())
}

#[tokio::test]
async fn a_static_bearer_token_authenticates_its_user() -> Result<(), Failure> {
    let (server, _) = server().await?;
    server.add_token("s3cret", "jane", &["dev"]);
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig())?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(kube::config::AuthInfo { token: Some("s3cret".to_owned().into()), ..Default::default() });
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    let reviews: Api<k8s_openapi::api::authentication::v1::SelfSubjectReview> =
        Api::all(kube::Client::try_from(config)?);
    let who = reviews.create(&PostParams::default(), &Default::default()).await?;
    let user = who.status.and_then(|s| s.user_info).unwrap_or_default();
    assert_eq!(user.username.as_deref(), Some("jane"));
    assert_eq!(user.groups.unwrap_or_default(), ["dev", "system:authenticated"]);
    Ok(())
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_status_code() -> Result<(), Failure> {
    let (server, maps) = server().await?;
    let effect = Effect::Status { code: StatusCode::CONFLICT, message: "not today".into(), retry_after: None };
    server.faults().add(FaultRule { times: Some(1), ..rule("create", effect) });
    let _ = maps.create(&PostParams::default(), &config_map("a")?).await;
    maps.create(&PostParams::default(), &config_map("a")?).await?;
    maps.get("a").await?;
    let counts: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|(kind, _)| kind.resource == "configmaps")
        .map(|(kind, count)| (kind.verb, kind.code, count))
        .collect();
    assert_eq!(counts, [("create", 201, 1), ("create", 409, 1), ("get", 200, 1)]);
    Ok(())
}
