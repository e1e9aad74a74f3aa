//! Addresses: none is lost, and none is taken from a virtual server.

use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind};
use bowline_core::testing::service_port;
use bowline_core::{ClusterName, Protocol, Service};
use bowline_vsphere_simulator::nsx::{FaultSpec, Work, error_fault, html_fault};
use http::Method;
use serde_json::json;
use tokio::time::Instant;

use super::takeover::{put_web, tags};
use super::world::{CLUSTER, World, balancers, class, of_class, web};
use crate::config::nsx::IpPool;

const ALLOCATIONS: &str = "infra/ip-pools/{id}/ip-allocations";

fn two_ports() -> Service {
    Service { ports: vec![service_port(Protocol::Tcp, 80), service_port(Protocol::Tcp, 443)], ..web() }
}

fn allocate(world: &World, pool: &str, id: &str) -> String {
    let path = format!("/infra/ip-pools/{pool}/ip-allocations/{id}");
    world.cloud.put(&path, json!({"tags": tags(&[("service", "default/web")])}));
    path
}

/// Sets the addresses of all virtual servers, in the order of their IDs.
fn set_addresses(world: &World, addresses: &[&str]) {
    let servers = world.cloud.objects("lb-virtual-servers");
    let mut paths: Vec<_> = servers.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect();
    paths.sort();
    assert_eq!(paths.len(), addresses.len());
    for (path, address) in paths.iter().zip(addresses) {
        world.cloud.edit(path, |server| drop(server.insert("ip_address".to_owned(), json!(address))));
    }
}

fn addresses(world: &World) -> Vec<String> {
    let servers = world.cloud.objects("lb-virtual-servers");
    servers.iter().map(|one| one["ip_address"].as_str().unwrap().to_owned()).collect()
}

/// VS-123
#[tokio::test(start_paused = true)]
async fn an_address_in_a_pool_that_nothing_names_any_more_is_listed_and_released() {
    let mut world = World::new();
    world.synced(&web()).await;
    let mut config = balancers();
    config.classes.insert("default".to_owned(), class("public-vips"));
    world.restart(config.clone());
    // The process ends after the deletion of the virtual server.
    for server in world.cloud.objects("lb-virtual-servers") {
        world.cloud.remove(server["path"].as_str().unwrap());
    }
    for by_name in [false, true] {
        if by_name {
            allocate(&world, "vips", "left");
            let gone = IpPool::Name("renamed".to_owned());
            config.classes.values_mut().for_each(|class| class.pool = gone.clone());
            world.restart(config.clone());
        }
        let listed = world.provider.load_balancers().unwrap().list(&ClusterName::from(CLUSTER)).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        world.delete(&web()).await.unwrap();
        assert_eq!(world.counts(), [0; 5]);
    }
}

/// VS-124
#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_read_fails_only_the_services_that_need_it() {
    let world = World::new();
    world.synced(&web()).await;
    let public = Service { name: "public".to_owned(), ..of_class(web(), "public") };
    world.synced(&public).await;
    let odd = Service { name: "odd".to_owned(), ..web() };
    world.synced(&odd).await;
    let servers = world.cloud.objects("lb-virtual-servers");
    let of_odd = servers.iter().find(|one| one["tags"].to_string().contains("default/odd")).unwrap();
    world.cloud.edit(of_odd["path"].as_str().unwrap(), |server| {
        let tags = server["tags"].as_array_mut().unwrap();
        tags.iter_mut().find(|tag| tag["scope"] == "ippoolid").unwrap()["tag"] = json!("..");
    });
    let number =
        world.cloud.inject(FaultSpec::always(error_fault(403, 289, "Denied.")).on(Method::GET, ALLOCATIONS).times(1));
    let desired = [world.desired(&web()), world.desired(&public), world.desired(&odd)];
    let observed = world.provider.load_balancers().unwrap().observe(&desired).await;
    // The pools are read in the order of their IDs: "..", public-vips, vips.
    let kinds: Vec<_> = observed.iter().map(|one| one.as_ref().err().map(bowline_cloud::Error::kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::PermissionDenied), Some(ErrorKind::InvalidConfig)]);
    world.cloud.repair(number);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_known_allocation_needs_every_pool() {
    let world = World::new();
    world.synced(&web()).await;
    let other = Service { name: "other".to_owned(), ..web() };
    let denied = FaultSpec::always(error_fault(403, 289, "Denied.")).on(Method::GET, ALLOCATIONS).times(1);
    world.cloud.inject(denied.clone());
    let error = world.delete(&other).await.unwrap_err();
    assert_eq!((error.kind(), error.context_value("IP pool")), (ErrorKind::PermissionDenied, Some("public-vips")));
    world.cloud.inject(denied.clone());
    let listed = world.provider.load_balancers().unwrap().list(&ClusterName::from(CLUSTER)).await;
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::PermissionDenied);
    // Its allocation is in the other pool.
    world.cloud.inject(denied);
    let gone = bowline_core::DesiredLoadBalancer { spec: None, ..world.desired(&web()) };
    assert!(world.driver().observe(&gone).await.unwrap().is_some());
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_read_realised_states() {
    let world = World::new();
    world.synced(&web()).await;
    allocate(&world, "public-vips", "second");
    let states = "infra/realized-state/realized-entities";
    world.cloud.inject(FaultSpec::always(html_fault(502)).on(Method::GET, states));
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

/// VS-114
#[tokio::test(start_paused = true)]
async fn of_different_addresses_an_allocated_one_is_kept_and_then_that_of_most_ports() {
    let three = || Service { ports: [80, 443, 8443].map(|port| service_port(Protocol::Tcp, port)).into(), ..web() };
    let kept = |servers: [&'static str; 3], is_allocated: bool| async move {
        let world = World::new();
        world.synced(&three()).await;
        if !is_allocated {
            world.cloud.remove(world.only("ip-allocations")["path"].as_str().unwrap());
        }
        set_addresses(&world, &servers);
        let warnings = world.plan(&three()).await.unwrap().warnings;
        let address = world.synced(&three()).await;
        let moved = servers.iter().filter(|it| **it != address).count();
        let said = warnings.iter().filter(|one| one.message.contains(" moves from ")).count();
        assert_eq!(said, moved, "{warnings:?}");
        assert!(addresses(&world).iter().all(|one| *one == address));
        address
    };
    assert_eq!(kept(["10.0.7.1", "10.0.7.1", "10.0.8.1"], true).await, "10.0.8.1");
    assert_eq!(kept(["10.0.7.1", "10.0.7.2", "10.0.7.2"], false).await, "10.0.7.2");
}

/// VS-114
#[tokio::test(start_paused = true)]
async fn an_address_is_released_only_after_its_virtual_server_has_moved() {
    let world = World::new();
    world.synced(&two_ports()).await;
    let second = allocate(&world, "public-vips", "second");
    let address = world.cloud.allocated_address(&second).unwrap().to_string();
    set_addresses(&world, &["10.0.8.1", &address]);
    let plan = world.plan(&two_ports()).await.unwrap();
    let steps: Vec<_> = plan.steps.iter().map(|step| format!("{} {}", step.verb, step.kind)).collect();
    assert_eq!(steps, ["update virtual server"]);
    world.synced(&two_ports()).await;
    assert_eq!(world.only("ip-allocations")["parent_path"], "/infra/ip-pools/vips");
}

#[tokio::test(start_paused = true)]
async fn at_most_eight_realised_states_are_read_at_once() {
    let world = World::new();
    let services: Vec<_> = (0..32).map(|number| Service { name: format!("web-{number}"), ..web() }).collect();
    for service in &services {
        let tags = tags(&[("service", &format!("default/{}", service.name))]);
        world.cloud.put(&format!("/infra/ip-pools/vips/ip-allocations/{}", service.name), json!({"tags": tags}));
    }
    let desired: Vec<_> = services.iter().map(|service| world.desired(service)).collect();
    world.cloud.set_latency(Duration::from_secs(1));
    let began = Instant::now();
    let observed = world.provider.load_balancers().unwrap().observe(&desired).await;
    assert!(observed.iter().all(Result::is_ok));
    // Virtual servers, the other lists, allocations, LB services, and four rounds of eight states.
    assert_eq!(began.elapsed().as_secs(), 4 + 4);
}

#[tokio::test(start_paused = true)]
async fn a_pending_allocation_is_replaced_after_a_change_of_the_class() {
    let world = World::new();
    world.cloud.configure(|options| options.realization = Work::Manual);
    let (_, plan) = world.driver().plan(&mut world.desired(&web())).await.unwrap();
    world.driver().apply(&mut world.desired(&web()), &plan.steps[0]).await.unwrap();
    let pending = world.driver().observe(&world.desired(&web())).await.unwrap().unwrap().pending.unwrap();
    assert!(pending.advice.contains("loadbalancer.vmware.io/class"), "{}", pending.advice);
    world.cloud.configure(|options| options.realization = Work::Instantly);
    assert_eq!(world.synced(&of_class(web(), "public")).await, "198.51.100.1");
    assert_eq!(world.counts(), [1; 5]);
}

/// Another leader may still send a deletion for the earlier Service.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_created_again_has_objects_with_other_ids() {
    let world = World::new();
    let path =
        |world: &World| ["lb-pools", "lb-virtual-servers", "ip-allocations"].map(|of| world.only(of)["path"].clone());
    world.synced(&Service { uid: "1".to_owned(), ..web() }).await;
    let first = path(&world);
    world.delete(&web()).await.unwrap();
    world.synced(&Service { uid: "2".to_owned(), ..web() }).await;
    assert!(path(&world).iter().all(|path| !first.contains(path)));
    // The tags decide, so objects of the Go manager and of an earlier Service are adopted.
    world.synced(&Service { uid: "3".to_owned(), ..web() }).await;
    assert_eq!(world.counts(), [1; 5]);
    let other = World::new();
    put_web(&other.cloud, "vips", "default");
    other.synced(&Service { uid: "4".to_owned(), ..web() }).await;
    assert_eq!(other.writes(), [""; 0]);
}
