//! Load balancers and routes by agents, in place of NSX. The agents themselves are tested with the provider `cloudlycke`.

use std::sync::Arc;
use std::time::Duration;

use bowline_agent_client::{API_HEADER, API_VERSION};
use bowline_cloud::{CloudProvider as _, ErrorKind};
use bowline_core::ClusterName;
use bowline_http::{Client, RequestError};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::world::{World, with_agent};

/// An active agent without load balancers, whose pool begins with this address.
fn agent(first: &'static str) -> Client {
    let handler = move |request: Request<Bytes>| {
        let body = match request.uri().path() {
            "/v1/status" => status(first),
            "/v1/balancers/owners" => json!({"owners": [], "more": false}),
            "/v1/routes/list" => json!({"routes": []}),
            path => return std::future::ready(Err(RequestError::Request(path.to_owned()))),
        };
        let mut response = Response::new(Bytes::from(body.to_string()));
        response.headers_mut().insert(API_HEADER, API_VERSION.parse().unwrap());
        std::future::ready(Ok::<_, RequestError>(response))
    };
    Client::in_process(Arc::new(handler), Duration::from_secs(5))
}

fn status(first: &str) -> Value {
    json!({
        "name": "lb-1", "version": "1.0.0", "role": "active", "term": 2, "state": "2.7",
        "pools": [{"family": "IPv4", "ranges": [{"first": first, "last": "10.10.1.99"}], "size": 9, "used": 1}],
    })
}

const AGENT: &str = "[Agent]\nendpoints = unix:/run/agent.sock\n";

#[tokio::test(start_paused = true)]
async fn agents_have_the_load_balancers_of_a_cluster_without_nsx() {
    let world = World::new();
    let provider = with_agent(&world.vcenters, AGENT, agent("10.10.1.90"));
    let kinds = &provider.capabilities().load_balancers.as_ref().unwrap().kinds;
    assert_eq!(kinds.iter().map(|kind| kind.name).collect::<Vec<_>>(), ["external", "internal"]);
    assert_eq!((provider.capabilities().routes.as_ref(), provider.routes().is_some()), (None, false));
    assert_eq!(provider.load_balancers().unwrap().list(&ClusterName::from("c")).await.unwrap(), []);
    let quotas = provider.quotas().await.unwrap();
    assert_eq!(quotas.iter().map(|quota| (quota.used, quota.limit)).collect::<Vec<_>>(), [(1, 9)]);
    provider.check().await.unwrap();

    let with_routes = with_agent(&world.vcenters, &format!("{AGENT}[Route]\nagents\n"), agent("10.10.1.90"));
    assert!(!with_routes.capabilities().routes.as_ref().unwrap().knows_machines);
    assert_eq!(with_routes.routes().unwrap().list(&ClusterName::from("c")).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_check_compares_the_pool_with_the_addresses_of_the_machines() {
    let world = World::new();
    for (first, is_valid) in [("10.10.1.90", true), ("10.10.1.12", false)] {
        let results = with_agent(&world.vcenters, AGENT, agent(first)).diagnose().await;
        let outcome = |subject: &str| results.iter().find(|result| result.subject == subject).unwrap().outcome.clone();
        assert_eq!(outcome("active agent").unwrap(), "lb-1 holds the addresses");
        match outcome("address pool of the agents") {
            Ok(text) => assert_eq!((text.as_str(), is_valid), ("8 of 9 IPv4 addresses of the agents are free", true)),
            Err(error) => {
                assert_eq!((error.kind(), is_valid), (ErrorKind::InvalidConfig, false));
                assert!(error.message().contains("contains the address 10.10.1.12 of node-2"), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_do_not_depend_on_agents() {
    let world = World::new();
    let down = |_: Request<Bytes>| std::future::ready(Err(RequestError::Connect("connection refused".to_owned())));
    let provider = with_agent(&world.vcenters, AGENT, Client::in_process(Arc::new(down), Duration::from_secs(5)));
    provider.start().await.unwrap();
    provider.check().await.unwrap();
    let results = provider.diagnose().await;
    let failed: Vec<_> =
        results.iter().filter(|result| result.outcome.is_err()).map(|result| &*result.subject).collect();
    assert_eq!(failed, ["agent https://agent"]);
}
