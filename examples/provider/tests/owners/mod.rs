//! Marks and adoption, as far as the suite cannot know them: IDs, names that are not unique, and other clusters at the same time.

use std::sync::Arc;

use bowline_cloud::{CloudProvider, ErrorKind, Result};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerState, ProviderId, RouteSpec, testing};
use bowline_simulator::Fields;
use bowline_simulator::drive::Driver;
use serde_json::json;

use crate::provider;
use crate::simulator::Simulator;

/// Service that adopts the load balancer with this name or ID.
fn adopting(text: &str) -> DesiredLoadBalancer {
    let mut desired = testing::desired("default/web", &[]);
    Arc::make_mut(&mut desired.settings).adopt = Some(text.to_owned());
    desired
}

async fn sync(provider: &dyn CloudProvider, mut desired: DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
    Ok(Driver::new(provider.load_balancers().unwrap()).settle(&mut desired).await?.state)
}

#[tokio::test]
async fn a_load_balancer_is_adopted_by_its_id_or_its_unique_name() {
    let cloud = Simulator::start().await;
    let [first, _] = [json!({"name": "edge"}), json!({"name": "edge"})].map(|new| cloud.add_load_balancer(new));
    let error = sync(&*provider(&cloud), adopting("edge")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("several load balancers are named"), "{error}");
    assert_eq!(cloud.writes(), 0);
    let state = sync(&*provider(&cloud), adopting(first.text("id"))).await.unwrap().unwrap();
    assert_eq!(state.status, testing::status(&[first.text("ip")]));
}

#[tokio::test]
async fn a_load_balancer_that_another_cluster_adopts_first_keeps_its_owner() {
    let cloud = Simulator::start().await;
    let edge = cloud.add_load_balancer(json!({"name": "edge"}));
    let (ours, mut desired) = (provider(&cloud), adopting("edge"));
    let driver = Driver::new(ours.load_balancers().unwrap());
    let (_, plan) = driver.plan(&mut desired).await.unwrap();
    let mut theirs = adopting("edge");
    theirs.key.cluster = "another".into();
    sync(&*provider(&cloud), theirs.clone()).await.unwrap();
    let error = driver.apply(&mut desired, &plan.steps[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let owner = cloud.all("load_balancer").into_iter().find(|one| one["id"] == edge["id"]).unwrap();
    assert_eq!(owner["owner"], json!(theirs.key));
}

#[tokio::test]
async fn a_route_of_another_owner_to_the_same_server_is_not_taken_over() {
    let cloud = Simulator::start().await;
    let server = cloud.add(json!({"name": "node-1", "status": "running"}));
    let spec = |destination: &str| RouteSpec {
        name_hint: String::new(),
        node: "node-1".into(),
        provider_id: Some(ProviderId::of("acme", &server)),
        node_addresses: Vec::new(),
        destination: destination.parse().unwrap(),
        cluster_uid: None,
    };
    cloud.add_route(json!({"destination": "10.128.1.0/24", "server": server}));
    let (provider, [ours, theirs]) = (provider(&cloud), ["ours", "theirs"].map(ClusterName::from));
    let routes = provider.routes().unwrap();
    assert!(routes.create(&theirs, &[spec("10.128.2.0/24")]).await[0].is_ok());
    let before = cloud.all("route");
    for destination in ["10.128.1.0/24", "10.128.2.0/24"] {
        let created = routes.create(&ours, &[spec(destination)]).await.remove(0);
        assert_eq!(created.unwrap_err().kind(), ErrorKind::AlreadyExists, "{destination}");
    }
    assert_eq!(cloud.all("route"), before);
}
