//! Machines and routes of a real OpenStack: with `BOWLINE_OPENSTACK` naming the folder that `tests/openstack/up` has filled.

use std::path::PathBuf;

use bowline_cloud::{CloudProvider, ErrorKind, Instances, Routes};
use bowline_core::{ClusterName, Instance, InstanceRef, InstanceState, ProviderId, Route, RouteSpec};
use bowline_openstack::config::{Credential, Domain, Global, LoadBalancer, Scope, User};
use bowline_openstack::{Config, OpenStack};
use serde_json::Value;

/// The cloud, and what is in it; `None` without one.
fn cloud() -> Option<(OpenStack, Value)> {
    let Some(folder) = std::env::var_os("BOWLINE_OPENSTACK").map(PathBuf::from) else {
        eprintln!("SKIPPED: BOWLINE_OPENSTACK is not set");
        return None;
    };
    let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap() };
    let (ids, clouds) = (read("ids.json"), read("clouds.yaml"));
    let auth = &clouds["clouds"]["k8s"]["auth"];
    let text = |key: &str| auth[key].as_str().unwrap().to_owned();
    let domain = || Domain::Name(text("user_domain_name"));
    let user = User::Name(text("username"), domain());
    let config = Config {
        global: Global {
            auth_url: text("auth_url"),
            credential: Credential::Password { user, password: text("password").into() },
            scope: Scope::ProjectName(text("project_name"), domain()),
            region: clouds["clouds"]["k8s"]["region_name"].as_str().unwrap().to_owned(),
            interface: "public".to_owned(),
            ..Global::default()
        },
        load_balancer: LoadBalancer { enabled: false, ..LoadBalancer::default() },
        router_id: ids["router"].as_str().map(str::to_owned),
        ..Config::default()
    };
    let options = bowline_http::Options {
        tls: bowline_http::Tls::default(),
        proxies: bowline_http::Proxies::default(),
        timeout: config.request_timeout,
    };
    Some((OpenStack::over(config, bowline_http::Client::new(options).unwrap()), ids))
}

fn asked(node: &str, id: Option<&str>) -> InstanceRef {
    InstanceRef { node: node.into(), provider_id: id.and_then(ProviderId::new), system_uuid: None }
}

async fn found(cloud: &OpenStack, asked: InstanceRef) -> Instance {
    let answer = cloud.find(&[asked]).await.remove(0).unwrap();
    Instance::clone(answer.instance().unwrap())
}

#[tokio::test]
async fn servers_are_found_by_id_and_by_name_and_many_as_one() {
    let Some((cloud, ids)) = cloud() else { return };
    let servers = ids["servers"].as_object().unwrap();
    for (name, server) in servers {
        let id = server["id"].as_str().unwrap();
        let instance = found(&cloud, asked("another-name", Some(&format!("openstack:///{id}")))).await;
        assert_eq!(instance, found(&cloud, asked(name, None)).await);
        assert_eq!((instance.id.as_str(), instance.zone.as_str()), (id, server["zone"].as_str().unwrap()));
        assert_eq!(instance.addresses[0].address, server["addresses"][0].as_str().unwrap());
        assert_eq!((instance.instance_type.as_str(), instance.region.as_str()), ("m1.tiny", "RegionOne"));
    }
    let gone = "openstack:///00000000-0000-4000-8000-000000000000";
    let mut questions: Vec<_> = servers.keys().map(|name| asked(name, None)).collect();
    questions.extend(["a", "b", "c"].map(|name| asked(name, Some(gone))));
    questions.push(asked("nobody.example", None));
    let answers: Vec<_> = cloud.find(&questions).await.into_iter().map(Result::unwrap).collect();
    let (there, lost) = answers.split_at(servers.len());
    assert!(there.iter().all(|state| matches!(state, InstanceState::Running(_))), "{there:?}");
    assert!(lost.iter().all(|state| *state == InstanceState::Gone), "{lost:?}");
    let page = Instances::list(&cloud, None).await.unwrap();
    assert!(there.iter().all(|state| page.instances.contains(state)), "{page:?}");
}

/// The route of this range, as it is listed.
async fn listed(cloud: &OpenStack, destination: &str) -> Vec<Route> {
    let mut routes = Routes::list(cloud, &ClusterName::from("real")).await.unwrap();
    routes.retain(|route| route.destination.to_string() == destination);
    routes
}

#[tokio::test]
async fn a_range_is_led_to_a_server_and_to_nobody_who_is_not_there() {
    let Some((cloud, _)) = cloud() else { return };
    let (cluster, machine) = (ClusterName::from("real"), found(&cloud, asked("node-1", None)).await);
    let range = "10.97.1.0/24";
    let spec = RouteSpec {
        name_hint: String::new(),
        node: "node-1".into(),
        provider_id: machine.provider_id.clone(),
        node_addresses: machine.addresses.clone(),
        destination: range.parse().unwrap(),
    };
    let made = cloud.create(&cluster, &spec).await.unwrap();
    assert_eq!((made.provider_id.as_ref(), made.blackhole), (machine.provider_id.as_ref(), false));
    assert_eq!(cloud.create(&cluster, &spec).await.unwrap(), made);
    assert_eq!(listed(&cloud, range).await, [made.clone()]);
    let lost = RouteSpec {
        provider_id: ProviderId::new("openstack:///00000000-0000-4000-8000-000000000000"),
        destination: "10.97.2.0/24".parse().unwrap(),
        ..spec
    };
    assert_eq!(cloud.create(&cluster, &lost).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(listed(&cloud, "10.97.2.0/24").await, []);
    for _ in 0..2 {
        cloud.delete(&cluster, &made).await.unwrap();
    }
    assert_eq!(listed(&cloud, range).await, []);
    cloud.check().await.unwrap();
}
