//! The LB service: where virtual servers are placed, and its deletion after the last one.

use bowline_cloud::ErrorKind;
use bowline_core::testing::service_port;
use bowline_core::{DesiredLoadBalancer, Protocol, Service};
use bowline_vsphere_simulator::nsx::{FaultSpec, error_fault};
use http::Method;
use serde_json::json;

use super::world::{World, balancers, web};
use crate::config::nsx::LbService;

fn other() -> Service {
    Service { name: "other".to_owned(), ..web() }
}

/// NSX deletes in the background.
#[tokio::test(start_paused = true)]
async fn an_lb_service_whose_last_virtual_server_is_being_deleted_is_tried_again() {
    let world = World::new();
    world.synced(&web()).await;
    let in_use = FaultSpec::always(error_fault(400, 500_030, "The object is referenced"));
    let in_use = in_use.on(Method::DELETE, "infra/lb-services/{id}").times(1);
    world.cloud.inject(in_use);
    let error = world.delete(&web()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, Some("500030")));
    assert!(error.to_string().contains("the deletion is retried"), "{error}");
    assert_eq!(world.counts(), [1, 1, 1, 1, 0]);
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn an_lb_service_that_another_service_takes_meanwhile_stays() {
    let world = World::new();
    world.synced(&web()).await;
    let gone = DesiredLoadBalancer { spec: None, ..world.desired(&web()) };
    let (_, plan) = world.driver().plan(&mut gone.clone()).await.unwrap();
    assert_eq!(plan.locks.len(), 1);
    world.synced(&other()).await;
    world.driver().apply_all(&mut gone.clone(), &plan).await.unwrap();
    assert_eq!(world.counts(), [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn deletions_wait_for_each_other_only_if_they_seem_to_be_the_last() {
    let world = World::new();
    world.synced(&web()).await;
    world.synced(&other()).await;
    let gone = [web(), other()].map(|service| DesiredLoadBalancer { spec: None, ..world.desired(&service) });
    let mut plans = Vec::new();
    for desired in &gone {
        let (_, plan) = world.driver().plan(&mut desired.clone()).await.unwrap();
        assert!(plan.locks.is_empty() && plan.steps.iter().any(|step| step.kind == "LB service"), "{plan}");
        plans.push(plan);
    }
    let (first, second) = (world.driver(), world.driver());
    let [mut web, mut other] = gone;
    let (first, second) = futures::join!(first.apply_all(&mut web, &plans[0]), second.apply_all(&mut other, &plans[1]));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(world.counts(), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_virtual_server_whose_lb_service_was_deleted_meanwhile_is_planned_again() {
    let world = World::new();
    world.synced(&other()).await;
    let (_, plan) = world.driver().plan(&mut world.desired(&web())).await.unwrap();
    world.delete(&other()).await.unwrap();
    let error = world.driver().apply_all(&mut world.desired(&web()), &plan).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, Some("500012")), "{error}");
    assert!(error.to_string().contains("was deleted after it was observed"), "{error}");
    world.synced(&web()).await;
    assert_eq!(world.counts(), [1; 5]);
}

/// VS-112
#[tokio::test(start_paused = true)]
async fn a_new_port_joins_the_lb_service_of_the_others_also_after_another_one_is_configured() {
    let mut world = World::new();
    let at = |id: &str| json!({"size": "SMALL", "enabled": true, "connectivity_path": format!("/infra/tier-1s/{id}")});
    world.cloud.add_tier1("second");
    world.cloud.put("/infra/lb-services/a", at("edge"));
    world.cloud.put("/infra/lb-services/b", at("second"));
    for id in ["a", "b"] {
        let mut config = balancers();
        config.service = LbService::Existing { id: id.to_owned(), tier1: None };
        world.restart(config);
        let ports = if id == "a" { vec![80] } else { vec![80, 443] };
        let ports = ports.into_iter().map(|port| service_port(Protocol::Tcp, port)).collect();
        world.synced(&Service { ports, ..web() }).await;
    }
    let servers = world.cloud.objects("lb-virtual-servers");
    let paths: Vec<_> = servers.iter().map(|one| one["lb_service_path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/infra/lb-services/a"; 2]);
}
