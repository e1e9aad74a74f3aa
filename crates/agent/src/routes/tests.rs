use bowline_core::{ClusterName, NodeName, ProviderId};

use super::*;

fn request(cluster: &str, destination: &str, node: &str) -> CreateRouteRequest {
    CreateRouteRequest {
        cluster: ClusterName::from(cluster),
        name: String::new(),
        destination: destination.parse().unwrap(),
        node: NodeName::from(node.to_owned()),
        provider_id: ProviderId::new(&format!("cloudlycke://{node}")),
        addresses: Vec::new(),
        cluster_uid: None,
        limit: None,
    }
}

fn texts(table: &RouteTable, cluster: &str) -> Vec<String> {
    table.of(cluster).map(|route| format!("{} {} {}", route.id, route.destination, route.node.as_str())).collect()
}

#[test]
fn a_destination_is_unique_in_a_cluster_whatever_its_host_bits() {
    let mut table = RouteTable::default();
    table.create(request("a", "10.1.2.3/16", "n-1")).unwrap();
    for written in ["10.1.0.0/16", "10.1.255.255/16", "::ffff:10.1.0.0/112"] {
        let taken = table.create(request("a", written, "n-2"));
        assert!(matches!(taken, Err(AgentError::DestinationTaken(route)) if route.id == "rt-0001"), "{written}");
    }
    table.create(request("a", "10.1.0.0/24", "n-2")).unwrap();
    table.create(request("b", "10.1.0.0/16", "n-2")).unwrap();
    assert_eq!(texts(&table, "a"), ["rt-0001 10.1.0.0/16 n-1", "rt-0002 10.1.0.0/24 n-2"]);
    assert_eq!(texts(&table, "b"), ["rt-0003 10.1.0.0/16 n-2"]);
}

#[test]
fn creating_a_route_to_the_same_node_updates_it() {
    let mut table = RouteTable::default();
    let created = table.create(request("a", "fd00::/64", "n-1")).unwrap();
    assert_eq!(table.create(request("a", "fd00::7/64", "n-1")).unwrap(), created);
    // The provider ID counts before the name.
    let renamed = CreateRouteRequest { node: "n-9".to_owned().into(), ..request("a", "fd00::/64", "n-1") };
    assert_eq!(table.create(renamed).unwrap().id, created.id);
    let replaced =
        CreateRouteRequest { provider_id: ProviderId::new("cloudlycke://x"), ..request("a", "fd00::/64", "n-9") };
    assert!(matches!(table.create(replaced), Err(AgentError::DestinationTaken(_))));
    let by_name = CreateRouteRequest { provider_id: None, ..request("a", "fd00::/64", "n-9") };
    assert_eq!(table.create(by_name).unwrap().id, created.id);
}

#[test]
fn ids_are_never_reused_and_limits_count_a_cluster() {
    let mut table = RouteTable::default();
    let id = table.create(request("a", "10.1.0.0/24", "n-1")).unwrap().id.clone();
    table.delete("a", &id).unwrap();
    assert!(matches!(table.delete("a", &id), Err(AgentError::NoSuchRoute(_))));
    assert!(matches!(table.delete("b", &id), Err(AgentError::NoSuchRoute(_))));
    let limited = |cluster, cidr| CreateRouteRequest { limit: Some(1), ..request(cluster, cidr, "n-1") };
    assert_eq!(table.create(limited("a", "10.1.0.0/24")).unwrap().id, "rt-0002");
    assert!(matches!(table.create(limited("a", "10.2.0.0/24")), Err(AgentError::Exhausted(_))));
    assert_eq!(table.create(limited("a", "10.1.0.0/24")).unwrap().id, "rt-0002", "an existing route is not new");
    assert_eq!(table.create(limited("b", "10.2.0.0/24")).unwrap().id, "rt-0003");
}

#[test]
fn invalid_tables_are_not_restored() {
    let route = |id: &str, cidr: &str| {
        let mut table = RouteTable::default();
        let route = table.create(request("a", "10.0.0.0/24", "n-1")).unwrap();
        let route = RouteRecord { id: id.to_owned(), destination: cidr.parse().unwrap(), ..(*route).clone() };
        ("a".to_owned(), Arc::new(route))
    };
    let table = [
        (vec![route("rt-1", "10.0.0.0/24"), route("rt-2", "10.1.0.0/24")], true),
        (vec![route("rt-1", "10.0.0.0/24"), route("rt-1", "10.1.0.0/24")], false),
        (vec![route("rt-1", "10.0.0.0/24"), route("rt-2", "10.0.0.0/24")], false),
        (vec![route("rt-1", "10.0.0.1/24")], false),
    ];
    for (routes, is_valid) in table {
        assert_eq!(RouteTable::restore(routes.clone(), 7).is_ok(), is_valid, "{routes:?}");
    }
}
