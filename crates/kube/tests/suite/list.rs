//! Lists, and reads of one Service.

use bowline_apiserver::{ApiServer, Effect, FaultRule, Options};
use bowline_core::ServiceKey;
use bowline_kube::{Cluster, WriteError};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Number of Nodes, more than one page.
const NODES: usize = 501;

async fn server() -> Result<(ApiServer, Cluster), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let client = server.in_process_client();
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..NODES {
        let node = serde_json::from_value(json!({"metadata": {"name": format!("n{number}")}}))?;
        nodes.create(&PostParams::default(), &node).await?;
    }
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let web = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    services.create(&PostParams::default(), &serde_json::from_value(web)?).await?;
    Ok((server, Cluster::new(client)))
}

fn fail_lists(server: &ApiServer, code: StatusCode, times: u64) {
    let effect = Effect::Status { code, message: "no".into(), retry_after: None };
    let rule = FaultRule { verb: Some("list".into()), effect, times: Some(times), ..FaultRule::default() };
    server.faults().add(rule);
}

#[tokio::test(start_paused = true)]
async fn a_list_has_all_pages_and_restarts_when_the_continue_token_expires() -> Result<(), Failure> {
    let (server, cluster) = server().await?;
    assert_eq!(cluster.list_nodes().await?.len(), NODES);
    fail_lists(&server, StatusCode::GONE, 1);
    assert_eq!(cluster.list_nodes().await?.len(), NODES);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_is_an_error() -> Result<(), Failure> {
    let (server, cluster) = server().await?;
    fail_lists(&server, StatusCode::FORBIDDEN, 1);
    assert!(matches!(cluster.list_services().await, Err(WriteError::Rejected { code: 403, .. })));
    let services = cluster.list_services().await?;
    assert!(services.iter().any(|service| service.key().to_string() == "default/web"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_service_is_read() -> Result<(), Failure> {
    let (_server, cluster) = server().await?;
    let key = |text: &str| text.parse::<ServiceKey>();
    assert!(cluster.service(&key("default/web")?).await?.is_some_and(|service| service.name == "web"));
    assert!(cluster.service(&key("default/gone")?).await?.is_none());
    Ok(())
}
