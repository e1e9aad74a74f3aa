//! Droplets of Nodes.

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{ErrorKind, Freshness, Instances as _, KnownState};
use bowline_core::{InstanceRef, InstanceState, ProviderId};
use bowline_digitalocean_simulator::{FaultSpec, NewDroplet, error_fault};
use http::Method;
use serde_json::json;

use crate::world::World;

fn by_id(id: impl ToString) -> InstanceRef {
    InstanceRef {
        node: "n".into(),
        provider_id: Some(ProviderId::of("digitalocean", &id.to_string())),
        system_uuid: None,
    }
}

fn by_name(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

async fn find(world: &World, asked: InstanceRef) -> bowline_cloud::Result<InstanceState> {
    world.provider.find(&[asked]).await.pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn do_39_and_43a_malformed_ids_are_errors_without_a_call() {
    let world = World::new().await;
    for (rest, message) in [
        ("", "provider ID number cannot be empty"),
        ("0", "dropletID is invalid because cannot be less than 1"),
        ("x", "failed to convert provider ID number \"x\""),
    ] {
        let error = find(&world, by_id(rest)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(
            error.to_string().starts_with(&format!("determining droplet ID from providerID: {message}")),
            "{error}"
        );
    }
    assert_eq!(world.cloud.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn do_40_an_api_error_is_no_answer() {
    let world = World::new().await;
    world.cloud.inject(FaultSpec::always(error_fault(500, "boom")).on(Method::GET, "droplets/{id}"));
    let error = find(&world, by_id(7)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.to_string().starts_with("getting droplet by ID: GET http://do.test/v2/droplets/7: 500 (request"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn do_41_only_a_droplet_that_is_off_is_stopped() {
    let world = World::new().await;
    let id = world.cloud.add_droplet(NewDroplet::named("node-3"));
    for (status, stopped) in
        [("active", false), ("new", false), ("archive", false), ("off", true), ("unheard-of", false)]
    {
        world.cloud.set_droplet(id, "status", status);
        let state = find(&world, by_id(id)).await.unwrap();
        assert_eq!(matches!(state, InstanceState::Stopped(_)), stopped, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn do_42_a_droplet_without_a_private_address_is_an_error_but_exists() {
    let world = World::new().await;
    let public = vec!["198.18.9.9".parse().unwrap()];
    let id = world.cloud.add_droplet(NewDroplet { public, ..NewDroplet::named("bare") });
    let error = find(&world, by_id(id)).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("getting node addresses of droplet {id} for node bare: could not get private ip")),
        "{text}"
    );
    assert_eq!(error.known_state(), Some(KnownState::Running));
}

#[tokio::test(start_paused = true)]
async fn do_43_addresses_are_ordered() {
    let world = World::new().await;
    let (private, public) =
        (vec!["10.108.0.5".parse().unwrap()], vec!["2001:db8::5".parse().unwrap(), "198.18.0.5".parse().unwrap()]);
    let id = world.cloud.add_droplet(NewDroplet { private, public, ..NewDroplet::named("dual") });
    let InstanceState::Running(instance) = find(&world, by_id(id)).await.unwrap() else { panic!("not running") };
    let addresses: Vec<_> =
        instance.addresses.iter().map(|address| format!("{:?} {}", address.kind, address.address)).collect();
    assert_eq!(
        addresses,
        ["Hostname dual", "InternalIP 10.108.0.5", "ExternalIP 198.18.0.5", "ExternalIP 2001:db8::5"]
    );
    let (size, region) = (instance.instance_type.as_str(), instance.region.as_str());
    assert_eq!((size, region, instance.zone.as_str()), ("s-2vcpu-4gb", "nyc3", ""));
    world.cloud.set_droplet(id, "region", json!(null));
    assert!(find(&world, by_id(id)).await.is_ok(), "a Droplet without a region has an empty one");
}

#[tokio::test(start_paused = true)]
async fn do_43b_names_are_case_sensitive_and_must_be_unique() {
    let world = World::new().await;
    world.cloud.add_droplet(NewDroplet::named("web-1"));
    assert_eq!(find(&world, by_name("Web-1")).await.unwrap(), InstanceState::Gone);
    assert!(matches!(find(&world, by_name("web-1")).await.unwrap(), InstanceState::Running(_)));
    world.cloud.add_droplet(NewDroplet::named("web-1"));
    let error = find(&world, by_name("web-1")).await.unwrap_err();
    assert!(error.to_string().contains("--provider-id"), "{error}");
}

/// The Go manager makes a call for each Node.
#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_are_looked_up_with_five_calls() {
    let world = World::new().await;
    let names: Vec<_> = (0..998).map(|index| format!("worker-{index}")).collect();
    let ids: Vec<_> = names.iter().map(|name| world.cloud.add_droplet(NewDroplet::named(name))).collect();
    let cloud = Layered::new(
        std::sync::Arc::new(world.provider.clone()),
        "digitalocean",
        &LayerOptions::default(),
        &Default::default(),
    );
    for asked in [names.iter().map(|name| by_name(name)).collect::<Vec<_>>(), ids.iter().map(by_id).collect()] {
        world.cloud.forget_calls();
        let found = cloud.find_instances(&asked, Freshness::Now).await;
        assert!(found.iter().all(|state| matches!(state, Ok(InstanceState::Running(_)))));
        assert!(world.cloud.calls() <= 6, "{:?}", world.cloud.counts());
    }
}
