//! Descriptions of servers.

use std::net::IpAddr;

use bowline_cloud::{CloudProvider as _, Error, ErrorKind, Identity, Instances as _, KnownState, Retry};
use bowline_core::InstanceState;
use bowline_openstack_simulator::{Fault, FaultSpec, Kind, NewPort, NewServer, Service};
use http::Method;
use serde_json::json;

use crate::machines::cloud::{Cloud, addresses, named, with_id};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn state(found: &InstanceState) -> &'static str {
    match found {
        InstanceState::Running(_) => "running",
        InstanceState::Stopped(_) => "stopped",
        InstanceState::Gone => "gone",
        InstanceState::NotMine => "not mine",
    }
}

#[tokio::test]
async fn case_034_both_forms_are_accepted_and_the_region_is_written_if_configured() {
    for (regional, written) in [(false, "openstack:///abc"), (true, "openstack://RegionOne/abc")] {
        let cloud = Cloud::configured(|config| config.regional = regional);
        cloud.simulator.add_server(NewServer { id: "abc".to_owned(), ..NewServer::named("node-1") });
        for id in ["openstack:///abc", "openstack://RegionOne/abc", "/abc"] {
            let refs = with_id("another-name", id);
            assert_eq!(cloud.provider.identify(&refs).unwrap(), Identity::Id("abc".to_owned()), "{id}");
            let found = cloud.find(refs).await.unwrap();
            let found = found.instance().unwrap().provider_id.as_ref().unwrap().to_string();
            assert_eq!(found, written, "{id}");
        }
    }
}

#[tokio::test]
async fn case_035_a_server_of_another_region_is_an_error_without_a_call() {
    let cloud = Cloud::configured(|config| config.regional = true);
    let error = cloud.find(with_id("node-1", "openstack://R2/abc")).await.unwrap_err();
    assert_eq!((error.kind(), cloud.simulator.calls()), (ErrorKind::InvalidConfig, 0));
    assert!(error.to_string().contains("R2"), "{error}");
}

#[tokio::test]
async fn case_036_an_id_of_another_cloud_is_not_owned() {
    let cloud = Cloud::new();
    let found = cloud.find(with_id("node-1", "aws:///abc")).await.unwrap();
    assert_eq!((state(&found), cloud.simulator.calls()), ("not mine", 0));
}

#[tokio::test]
async fn case_037_a_name_without_a_server_is_gone() {
    let cloud = Cloud::new();
    cloud.simulator.add_server(NewServer::named("node-1"));
    assert_eq!(state(&cloud.find(named("node-2")).await.unwrap()), "gone");
    let refs: Vec<_> = ["node-1", "a", "b", "c", "d", "e"].map(named).into();
    let found: Vec<_> = cloud.find_all(&refs).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(found.iter().map(state).collect::<Vec<_>>(), ["running", "gone", "gone", "gone", "gone", "gone"]);
}

#[tokio::test]
async fn with_several_regions_a_name_without_a_server_is_an_error() {
    let cloud = Cloud::configured(|config| config.regional = true);
    cloud.simulator.add_server(NewServer::named("node-1"));
    assert_eq!(state(&cloud.find(named("node-1")).await.unwrap()), "running");
    let error = cloud.find(named("node-2")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
}

#[tokio::test]
async fn case_038_two_servers_of_one_name_are_an_error_that_names_both() {
    let cloud = Cloud::new();
    let twins = [0, 1].map(|_| cloud.simulator.add_server(NewServer::named("twin")));
    let many: Vec<_> = ["twin", "a", "b", "c", "d"].map(named).into();
    for refs in [&many[..1], &many[..]] {
        let error = cloud.find_all(refs).await.remove(0).unwrap_err().to_string();
        assert!(twins.iter().all(|id| error.contains(id)) && error.contains("multiple results"), "{error}");
    }
}

#[tokio::test]
async fn case_039_a_dot_in_a_name_matches_only_a_dot() {
    let cloud = Cloud::new();
    cloud.simulator.add_server(NewServer::named("n1xexample"));
    assert_eq!(state(&cloud.find(named("n1.example")).await.unwrap()), "gone");
    cloud.simulator.add_server(NewServer::named("n1.example"));
    let found = cloud.find(named("n1.example")).await.unwrap();
    assert_eq!(found.instance().unwrap().name, "n1.example");
}

#[tokio::test]
async fn case_040_only_nova_proves_that_a_server_is_gone() {
    let cloud = Cloud::new();
    let id = cloud.simulator.add_server(NewServer::named("node-1"));
    let refs = with_id("node-1", &format!("openstack:///{id}"));
    let fault = cloud.simulator.inject(FaultSpec::always(Fault::Answer(500, String::new())).of(Service::Compute));
    assert_eq!(cloud.find(refs.clone()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    cloud.simulator.repair(fault);
    cloud.simulator.delete_server(&id);
    assert_eq!(state(&cloud.find(refs).await.unwrap()), "gone");
}

#[tokio::test]
async fn the_state_of_a_server_is_known_without_neutron() {
    let cloud = Cloud::new();
    let [runs, stopped] = ["a", "b"].map(|name| cloud.simulator.add_server(NewServer::named(name)));
    cloud.simulator.stop_server(&stopped);
    cloud.simulator.inject(FaultSpec::always(Fault::Answer(503, String::new())).of(Service::Network));
    let refs = [runs.as_str(), &stopped, "nobody"].map(|id| with_id("n", &format!("openstack:///{id}")));
    let answers = cloud.find_all(&refs).await;
    let found =
        |answer: &Result<InstanceState, Error>| answer.as_ref().map(state).map_err(|e| (e.kind(), e.known_state()));
    assert_eq!(found(&answers[0]), Err((ErrorKind::Unavailable, Some(KnownState::Running))));
    assert_eq!(found(&answers[1]), Err((ErrorKind::Unavailable, Some(KnownState::Stopped))));
    assert_eq!(found(&answers[2]), Ok("gone"));
}

#[tokio::test]
async fn a_listing_does_not_prove_absence() {
    let cloud = Cloud::new();
    let here: Vec<_> = (0..8).map(|n| cloud.simulator.add_server(NewServer::named(&format!("node-{n}")))).collect();
    let refs: Vec<_> = here.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    // Nova lists nothing, as for a user without that permission, and returns each of them by ID.
    let nothing = json!({ "servers": [] }).to_string();
    let list = FaultSpec::always(Fault::Answer(200, nothing)).on(Method::GET, "servers/detail");
    cloud.simulator.inject(list);
    let answers = cloud.find_all(&refs).await;
    assert!(answers.iter().all(|answer| state(answer.as_ref().unwrap()) == "running"), "{answers:?}");
}

#[tokio::test]
async fn an_invalid_server_does_not_fail_the_others() {
    let cloud = Cloud::new();
    let ids: Vec<_> = (0..8).map(|n| cloud.simulator.add_server(NewServer::named(&format!("node-{n}")))).collect();
    cloud.simulator.edit(Kind::Server, &ids[0], |server| {
        server.insert("addresses".to_owned(), json!("none"));
    });
    cloud.simulator.edit(Kind::Server, &ids[1], |server| {
        server.insert("metadata".to_owned(), json!({ "hostname": null }));
    });
    let by_id = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect::<Vec<_>>();
    let by_name = (0..8).map(|n| named(&format!("node-{n}"))).collect();
    for refs in [by_id, by_name] {
        let answers = cloud.find_all(&refs).await;
        assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Unexpected);
        assert!(answers[1..].iter().all(|answer| state(answer.as_ref().unwrap()) == "running"), "{answers:?}");
    }
    assert!(cloud.simulator.counts().contains_key("GET servers/detail"), "they were listed");
    let page = cloud.provider.list(None).await.unwrap();
    assert_eq!((page.instances.len(), page.unread), (7, 1), "the listing is incomplete without it");
}

#[tokio::test]
async fn a_response_without_a_server_is_an_error() {
    let cloud = Cloud::new();
    cloud.simulator.inject(FaultSpec::always(Fault::Answer(200, "{}".to_owned())).of(Service::Compute));
    let nameless = json!({ "server": { "name": "x" } }).to_string();
    assert_eq!(cloud.find(with_id("n", "openstack:///abc")).await.unwrap_err().kind(), ErrorKind::Unexpected);
    cloud.simulator.repair_all();
    cloud.simulator.inject(FaultSpec::always(Fault::Answer(200, nameless)).of(Service::Compute));
    assert_eq!(cloud.find(with_id("n", "openstack:///abc")).await.unwrap_err().kind(), ErrorKind::Unexpected);
}

#[tokio::test]
async fn case_041_only_a_shutoff_server_is_stopped() {
    let cloud = Cloud::new();
    let id = cloud.simulator.add_server(NewServer::named("node-1"));
    let table = [
        ("SHUTOFF", "stopped"),
        ("PAUSED", "running"),
        ("SUSPENDED", "running"),
        ("SHELVED_OFFLOADED", "running"),
        ("ERROR", "running"),
        ("DELETED", "running"),
        ("ACTIVE", "running"),
    ];
    for (status, wanted) in table {
        cloud.simulator.set_server_status(&id, status);
        assert_eq!(state(&cloud.find(named("node-1")).await.unwrap()), wanted, "{status}");
    }
}

#[tokio::test]
async fn case_042_case_043_a_zone_is_converted_to_a_label_value() {
    let cloud = Cloud::new();
    for (zone, wanted) in [("Default Group", "Default-Group"), ("--eu west/1--", "eu-west-1"), ("az-1", "az-1")] {
        let id = cloud.simulator.add_server(NewServer { zone: zone.to_owned(), ..NewServer::named("node") });
        let found = cloud.instance(&id).await;
        assert_eq!((found.zone.as_str(), found.region.as_str()), (wanted, "RegionOne"));
        assert!(found.labels.is_empty());
    }
}

#[tokio::test]
async fn case_044_case_045_the_instance_type_is_the_flavor_name_or_id() {
    let cloud = Cloud::new();
    for (id, name, wanted) in [("2004", "ug2.2xlarge", "ug2.2xlarge"), ("m4", "4 vCPU / 8 GB", "m4")] {
        cloud.simulator.add_flavor(id, name);
        let server = cloud.simulator.add_server(NewServer { flavor: id.to_owned(), ..NewServer::named("node") });
        assert_eq!(cloud.instance(&server).await.instance_type, wanted);
    }
}

#[tokio::test]
async fn a_flavor_is_read_once() {
    let cloud = Cloud::new();
    let ids = [0, 1].map(|_| cloud.simulator.add_server(NewServer::named("node")));
    for id in &ids {
        cloud.instance(id).await;
    }
    assert_eq!(cloud.simulator.counts().get("GET flavors/{id}"), Some(&1));
}

#[tokio::test]
async fn the_flavor_name_of_a_server_is_used() {
    let cloud = Cloud::new();
    let id = cloud.simulator.add_server(NewServer::named("node-1"));
    cloud.simulator.edit(Kind::Server, &id, |server| {
        server.insert("flavor".to_owned(), json!({ "original_name": "m1.large", "vcpus": 4 }));
    });
    assert_eq!(cloud.instance(&id).await.instance_type, "m1.large");
    assert_eq!(cloud.simulator.counts().get("GET flavors/{id}"), None);
}

#[tokio::test]
async fn case_046_a_deleted_flavor_is_an_error_with_the_state_of_the_server() {
    let cloud = Cloud::new();
    let server = NewServer { flavor: "deleted".to_owned(), ..NewServer::named("node-1") };
    let id = cloud.simulator.add_server(server);
    let error = cloud.find(named("node-1")).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::NotFound, "get flavor"));
    assert_eq!(error.known_state(), Some(KnownState::Running));
    cloud.simulator.stop_server(&id);
    assert_eq!(cloud.find(named("node-1")).await.unwrap_err().known_state(), Some(KnownState::Stopped));
    let page = cloud.provider.list(None).await.unwrap();
    assert_eq!(page.instances.len(), 1, "it does not fail the listing");
}

#[tokio::test]
async fn case_047_case_048_ports_keep_the_order_of_neutron_in_single_and_batch_lookups() {
    let cloud = Cloud::new();
    let (_, a) = cloud.simulator.add_network("a", "10.0.0.0/24", false);
    let (_, b) = cloud.simulator.add_network("b", "10.1.0.0/24", false);
    // Neutron sorts ports by ID, whatever the order of their creation.
    let port = |id: &str, subnet: &str, address: &str, down| NewPort {
        id: id.to_owned(),
        subnet: subnet.to_owned(),
        addresses: vec![ip(address)],
        down,
        ..NewPort::default()
    };
    for n in 0..10 {
        let ports = vec![
            port(&format!("b000000{n}-0000-4000-8000-000000000000"), &a, &format!("10.0.0.{}", n + 5), n % 2 == 1),
            port(&format!("a000000{n}-0000-4000-8000-000000000000"), &b, &format!("10.1.0.{}", n + 5), false),
        ];
        cloud.simulator.add_server(NewServer { ports, ..NewServer::named(&format!("node-{n}")) });
    }
    let refs: Vec<_> = (0..10).map(|n| named(&format!("node-{n}"))).collect();
    for (n, answer) in cloud.find_all(&refs).await.into_iter().enumerate() {
        let found = answer.unwrap();
        let wanted = [format!("InternalIP=10.1.0.{}", n + 5), format!("InternalIP=10.0.0.{}", n + 5)];
        assert_eq!(addresses(found.instance().unwrap()), wanted);
        let alone = cloud.find(named(&format!("node-{n}"))).await.unwrap();
        assert_eq!(alone, found);
    }
}

#[tokio::test]
async fn case_049_to_case_055_access_floating_and_host_addresses_are_ordered() {
    let cloud = Cloud::configured(|config| config.networking.public_networks = vec!["pub".to_owned()]);
    let (_, a) = cloud.simulator.add_network("a", "10.0.0.0/24", false);
    let (_, public) = cloud.simulator.add_network("pub", "198.51.100.0/24", false);
    let port = |id: &str, subnet: &str, address: &str, floating: &[&str]| NewPort {
        id: id.to_owned(),
        subnet: subnet.to_owned(),
        addresses: vec![ip(address)],
        floating: floating.iter().map(|address| ip(address)).collect(),
        ..NewPort::default()
    };
    let id = cloud.simulator.add_server(NewServer {
        ports: vec![port("a1", &public, "198.51.100.4", &[]), port("b2", &a, "10.0.0.5", &["203.0.113.7"])],
        access: ("203.0.113.7".to_owned(), "2001:db8::7".to_owned()),
        metadata: vec![("hostname".to_owned(), "h.example".to_owned())],
        ..NewServer::named("node-1")
    });
    let wanted = [
        "InternalIP=10.0.0.5",
        "ExternalIP=203.0.113.7",
        "ExternalIP=2001:db8::7",
        "Hostname=h.example",
        "ExternalIP=198.51.100.4",
    ];
    assert_eq!(addresses(&cloud.instance(&id).await), wanted);
}

/// Adds a server with a trunk with this subport, and returns its ID.
fn with_trunk(cloud: &Cloud, sub_port: &str) -> String {
    let id = cloud.simulator.add_server(NewServer::named("node-1").at(ip("10.10.0.5")));
    let ports = cloud.simulator.records(Kind::Port);
    let own = ports.iter().find(|port| port["device_id"] == id.as_str()).unwrap();
    cloud.simulator.edit(Kind::Port, own["id"].as_str().unwrap(), |port| {
        let sub_ports = json!([{ "port_id": sub_port, "segmentation_id": 9, "segmentation_type": "vlan" }]);
        port.insert("trunk_details".to_owned(), json!({ "trunk_id": "t", "sub_ports": sub_ports }));
    });
    id
}

#[tokio::test]
async fn case_056_case_057_a_trunk_subport_adds_its_addresses_if_it_can_be_read() {
    let cloud = Cloud::new();
    let (network, subnet) = cloud.simulator.add_network("vlan9", "10.9.0.0/24", false);
    let sub_port = cloud.simulator.add(
        Kind::Port,
        json!({ "network_id": network, "device_owner": "trunk:subport", "device_id": "t", "status": "ACTIVE",
                "fixed_ips": [{ "subnet_id": subnet, "ip_address": "10.9.0.3" }] }),
    );
    let id = with_trunk(&cloud, &sub_port);
    assert_eq!(addresses(&cloud.instance(&id).await), ["InternalIP=10.10.0.5", "InternalIP=10.9.0.3"]);
    cloud.simulator.inject(FaultSpec::always(Fault::Answer(500, String::new())).on(Method::GET, "networks"));
    assert_eq!(addresses(&cloud.instance(&id).await), ["InternalIP=10.10.0.5"]);
    cloud.simulator.repair_all();
    cloud.simulator.remove(Kind::Port, &sub_port);
    assert_eq!(addresses(&cloud.instance(&id).await), ["InternalIP=10.10.0.5"]);
}

#[tokio::test]
async fn a_server_requested_by_name_and_id_is_one_server() {
    let cloud = Cloud::new();
    let id = cloud.simulator.add_server(NewServer::named("node-1"));
    let refs = [named("node-1"), with_id("x", &format!("openstack:///{id}")), named("node-1")];
    let answers = cloud.find_all(&refs).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap() == answers[0].as_ref().unwrap()), "{answers:?}");
}

#[tokio::test]
async fn an_uppercase_id_is_the_same_server() {
    let cloud = Cloud::new();
    let id = cloud.simulator.add_server(NewServer::named("node-1"));
    let refs = with_id("n", &format!("openstack:///{}", id.to_uppercase()));
    assert_eq!(cloud.provider.identify(&refs).unwrap(), Identity::Id(id));
    assert_eq!(state(&cloud.find(refs).await.unwrap()), "running");
}

#[tokio::test]
async fn the_provider_owns_the_ids_it_writes() {
    let cloud = Cloud::new();
    let id = cloud.simulator.add_server(NewServer::named("node-1"));
    assert!(cloud.provider.owns(cloud.instance(&id).await.provider_id.as_ref().unwrap()));
}
