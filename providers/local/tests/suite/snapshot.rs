//! Snapshot file: restored resources, and errors of invalid files.
use std::path::{Path, PathBuf};

use bowline_core::{Address, AddressType, LoadBalancerKey, Protocol};
use bowline_local::{
    BalancerSettings, BalancerTarget, CloudError, CloudOptions, Listener, LocalCloud, NewBalancer, NewMachine, NewRoute,
};

/// Temporary directory of a test, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("bowline-local-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cloud.json")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<LocalCloud, CloudError> {
    LocalCloud::open(CloudOptions { snapshot: Some(path.to_owned()), ..CloudOptions::default() })
}

fn machine(name: &str) -> NewMachine {
    NewMachine {
        name: name.to_owned(),
        zone: "z".to_owned(),
        addresses: vec![Address::new(AddressType::InternalIP, "10.0.0.9"), Address::new(AddressType::Hostname, "n")],
        labels: [("k".to_owned(), "v".to_owned())].into(),
        ..NewMachine::default()
    }
}

#[test]
fn machines_survive_a_restart_and_ids_are_not_reused() {
    let scratch = Scratch::new("restart");
    let cloud = open(&scratch.file()).unwrap();
    for name in ["a", "b", "c"] {
        cloud.add(machine(name)).unwrap();
    }
    cloud.stop("i-0001").unwrap();
    cloud.change("i-0002", |spec| spec.region = "r".to_owned()).unwrap();
    cloud.change("i-0002", |spec| spec.pod_ranges.push("10.1.0.0/24".parse().unwrap())).unwrap();
    cloud.delete("i-0003").unwrap();
    let again = open(&scratch.file()).unwrap();
    assert_eq!(again.machines(), cloud.machines());
    assert_eq!(again.add(machine("d")).unwrap().spec.id, "i-0004");
    let files: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["cloud.json"]);
}

fn balancer(name: &str) -> NewBalancer {
    let owner = LoadBalancerKey {
        cluster: "harbour".into(),
        namespace: "shop".to_owned(),
        service: name.to_owned(),
        uid: format!("uid-of-{name}"),
    };
    let target =
        BalancerTarget { name: "n1".to_owned(), machine: None, addresses: vec![[10, 0, 0, 1].into()], draining: true };
    let settings = BalancerSettings {
        listeners: vec![Listener { protocol: Protocol::Udp, port: 53, node_port: 30053 }],
        source_ranges: vec!["10.0.0.0/8".parse().unwrap()],
        idle_timeout_millis: Some(1000),
        ..BalancerSettings::default()
    };
    NewBalancer { name: name.to_owned(), owner: Some(owner), settings, targets: vec![target], ..NewBalancer::default() }
}

#[test]
fn load_balancers_and_addresses_survive_a_restart_and_ids_are_not_reused() {
    let scratch = Scratch::new("balancers");
    let cloud = open(&scratch.file()).unwrap();
    for name in ["a", "b"] {
        cloud.add_balancer(balancer(name)).unwrap();
    }
    cloud.add_balancer(NewBalancer { owner: None, ..balancer("unowned") }).unwrap();
    cloud.delete_balancer("lb-0004").unwrap();
    let again = open(&scratch.file()).unwrap();
    assert_eq!((again.balancers(), again.addresses()), (cloud.balancers(), cloud.addresses()));
    let new = again.add_balancer(balancer("b")).unwrap();
    assert_eq!((new.id.as_str(), new.addresses), ("lb-0008", vec!["ip-0007".to_owned()]));
    assert!(again.add_balancer(balancer("a")).is_err(), "marks are restored");
}

#[test]
fn a_snapshot_of_version_1_is_read_and_upgraded() {
    let scratch = Scratch::new("first");
    let first = r#"{"version":1,"lastId":1,"machines":[{"name":"a","id":"i-0001","state":"running"}]}"#;
    std::fs::write(scratch.file(), first).unwrap();
    let cloud = open(&scratch.file()).unwrap();
    assert_eq!((cloud.machines().len(), cloud.balancers().len()), (1, 0));
    cloud.add_balancer(balancer("a")).unwrap();
    let text = std::fs::read_to_string(scratch.file()).unwrap();
    assert!(text.contains("\"version\": 3"), "{text}");
    assert_eq!(open(&scratch.file()).unwrap().balancers().len(), 1);
}

fn route(destination: &str, machine: &str) -> NewRoute {
    NewRoute {
        name: "uid".to_owned(),
        destination: destination.parse().unwrap(),
        machine: machine.to_owned(),
        addresses: Some(vec![Address::new(AddressType::InternalIP, "10.0.0.9")]),
        stamped: true,
        cluster_uid: None,
    }
}

#[test]
fn routes_survive_a_restart_with_blackholes_and_ids_are_not_reused() {
    let scratch = Scratch::new("routes");
    let cloud = open(&scratch.file()).unwrap();
    for name in ["a", "b"] {
        cloud.add(machine(name)).unwrap();
    }
    for (cluster, range, machine) in [
        ("x", "10.1.0.0/24", "i-0001"),
        ("x", "fd00::/64", "i-0002"),
        ("y", "10.1.0.0/24", "i-0002"),
        ("y", "10.2.0.0/24", "i-0002"),
    ] {
        cloud.add_route(cluster, route(range, machine)).unwrap();
    }
    cloud.remove_route("y", "rt-0004").unwrap();
    cloud.delete("i-0001").unwrap();
    let again = open(&scratch.file()).unwrap();
    assert_eq!(again.route_tables(), cloud.route_tables());
    assert_eq!(again.routes("x").iter().map(|route| route.blackhole).collect::<Vec<_>>(), [true, false]);
    assert_eq!(again.add_route("y", route("10.2.0.0/24", "i-0002")).unwrap().id, "rt-0005");
}

#[test]
fn a_snapshot_of_version_2_is_read_and_upgraded() {
    let scratch = Scratch::new("second");
    let second = r#"{"version":2,"lastId":1,"machines":[{"name":"a","id":"i-0001","instanceType":"","zone":"","region":"",
        "addresses":[],"labels":{},"state":"running"}],"lastBalancerId":4,"addresses":[],"balancers":[]}"#;
    std::fs::write(scratch.file(), second).unwrap();
    let cloud = open(&scratch.file()).unwrap();
    assert_eq!((cloud.machines().len(), cloud.route_tables().len()), (1, 0));
    assert_eq!(cloud.machine("i-0001").unwrap().spec.pod_ranges, []);
    cloud.add_route("x", route("10.1.0.0/24", "i-0001")).unwrap();
    let text = std::fs::read_to_string(scratch.file()).unwrap();
    assert!(text.contains("\"version\": 3") && text.contains("\"lastBalancerId\": 4"), "{text}");
    assert_eq!(open(&scratch.file()).unwrap().routes("x"), cloud.routes("x"));
}

#[test]
fn inconsistent_routes_are_an_error() {
    let scratch = Scratch::new("routes-contradiction");
    let cloud = open(&scratch.file()).unwrap();
    cloud.add(machine("a")).unwrap();
    for (cluster, range) in [("x", "10.1.0.0/24"), ("x", "10.2.0.0/24"), ("y", "10.3.0.0/24")] {
        cloud.add_route(cluster, route(range, "i-0001")).unwrap();
    }
    let text = std::fs::read_to_string(scratch.file()).unwrap();
    let table = [
        (text.replace("10.2.0.0/24", "10.1.0.9/24"), "to \"i-0001\" already has the destination 10.1.0.0/24"),
        (text.replace("rt-0003", "rt-0001"), "duplicate route \"rt-0001\""),
        (text.replacen("\"machine\": \"i-0001\"", "\"machine\": \"i-0002\"", 1), "there is no machine \"i-0002\""),
        (text.replace("\"y\": [", "\"\": ["), "the name \"\""),
    ];
    for (text, expected) in table {
        std::fs::write(scratch.file(), &text).unwrap();
        let error = open(&scratch.file()).err().unwrap().to_string();
        assert!(error.contains("is invalid") && error.contains(expected), "{expected}: {error}");
    }
    // A number that is too low does not cause IDs to be reused.
    std::fs::write(scratch.file(), text.replace("\"lastRouteId\": 3", "\"lastRouteId\": 1")).unwrap();
    let reopened = open(&scratch.file()).unwrap();
    assert_eq!(reopened.add_route("x", route("10.4.0.0/24", "i-0001")).unwrap().id, "rt-0004");
}

#[test]
fn inconsistent_load_balancers_are_an_error() {
    let scratch = Scratch::new("contradiction");
    let cloud = open(&scratch.file()).unwrap();
    for name in ["a", "b"] {
        cloud.add_balancer(balancer(name)).unwrap();
    }
    let text = std::fs::read_to_string(scratch.file()).unwrap();
    let table = [
        (text.replace("127.0.32.2", "127.0.32.1"), "127.0.32.1"),
        (text.replace("\"id\": \"ip-0003\"", "\"id\": \"ip-0009\""), "there is no address \"ip-0003\""),
        (text.replace("\"name\": \"b\"", "\"name\": \"a\""), "duplicate load balancer"),
        (text.replace("\"id\": \"lb-0004\"", "\"id\": \"lb-0002\""), "duplicate load balancer"),
    ];
    for (text, expected) in table {
        std::fs::write(scratch.file(), &text).unwrap();
        let error = open(&scratch.file()).err().unwrap().to_string();
        assert!(error.contains("is invalid") && error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn an_invalid_snapshot_is_an_error_with_its_position() {
    let scratch = Scratch::new("broken");
    let one = r#"{"version":1,"lastId":1,"machines":[{"name":"a","id":"i-0001","state":"running"}]}"#;
    std::fs::write(scratch.file(), one).unwrap();
    assert_eq!(open(&scratch.file()).unwrap().machines().len(), 1);
    let table = [
        (String::new(), "line 1 column 0"),
        (one[..40].to_owned(), "line 1 column 40"),
        (one.replace(",\"machines", ",\n\"machine"), "line 2 column"),
        (one.replace("running", "asleep"), "line 1 column"),
        (one.replace("\"name\":\"a\",", ""), "the name \"\""),
        (one.replace("i-0001", "a/b"), "the ID \"a/b\""),
        (one.replace(":1,\"lastId", ":4,\"lastId"), "version 4"),
        (one.replace(":1,\"lastId", ":0,\"lastId"), "version 0"),
        (one.replace("]}", r#"],"lastBalancerId":18446744073709551615}"#), "lastBalancerId"),
        (one.replace("]}", r#"],"balancers":[{"id":"lb-1"}]}"#), "line 1 column"),
        (one.replace("]}", r#"],"lastRouteId":18446744073709551615}"#), "lastRouteId"),
        (one.replace("]}", r#"],"routes":{"c":[{"id":"rt-1"}]}}"#), "line 1 column"),
        (one.replace("lastId\":1", "lastId\":18446744073709551615"), "lastId"),
        (one.replace("[{", r#"[{"name":"b","id":"i-0001","state":"stopped"},{"#), "already"),
        (
            one.replace("\"state\"", "\"podRanges\":[\"10.1.0.0/16\"],\"state\"")
                .replace("[{", r#"[{"name":"b","id":"i-2","podRanges":["10.0.0.0/8"],"state":"running"},{"#),
            "overlaps with 10.0.0.0/8",
        ),
        ("\u{feff}null".to_owned(), "line 1 column"),
    ];
    for (text, expected) in table {
        std::fs::write(scratch.file(), &text).unwrap();
        let error = open(&scratch.file()).err().unwrap();
        assert!(matches!(&error, CloudError::Snapshot(path, _) if *path == scratch.file()), "{text}: {error:?}");
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert_eq!(std::fs::read_to_string(scratch.file()).unwrap(), text, "the file is unchanged");
    }
}

#[test]
fn a_change_that_cannot_be_saved_is_not_applied() {
    let scratch = Scratch::new("unsaved");
    let folder = scratch.0.join("gone");
    std::fs::create_dir_all(&folder).unwrap();
    let cloud = open(&folder.join("cloud.json")).unwrap();
    cloud.add(machine("a")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(matches!(cloud.add(machine("b")), Err(CloudError::Snapshot(..))));
    assert!(matches!(cloud.delete("i-0001"), Err(CloudError::Snapshot(..))));
    assert_eq!(cloud.machines().len(), 1);
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(cloud.add(machine("b")).unwrap().spec.id, "i-0002");
}

#[test]
fn a_snapshot_that_is_a_folder_is_an_error() {
    let scratch = Scratch::new("folder");
    assert!(matches!(open(&scratch.0), Err(CloudError::Snapshot(..))));
}
